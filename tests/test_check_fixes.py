"""Changes that are offered, pasted into the source and checked again: the finding goes, and no new error comes."""

import json
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launch_texts import toml
from rankatlas.checks import Numbers, check_numbers
from rankatlas.job import Fact

calm = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)
size = st.sampled_from([1, 1, 2, 3, 4, 5, 6, 8])
MODEL = st.fixed_dictionaries(
    {},
    optional={
        "num_hidden_layers": st.integers(8, 70),
        "num_attention_heads": st.sampled_from([8, 12, 20, 32, 36]),
        "num_key_value_heads": st.sampled_from([2, 4, 8]),
        "hidden_size": st.sampled_from([1024, 1536, 4096, 1000]),
        "intermediate_size": st.sampled_from([4096, 11008, 11009]),
        "num_experts": st.sampled_from([6, 8, 60, 64]),
        "moe_intermediate_size": st.sampled_from([768, 769]),
    },
).filter(bool)
WORLDS = st.one_of(st.integers(1, 130), st.sampled_from([8, 16, 32, 64, 120, 128, 256, 512, 2**20]))
BATCHES = {"global": st.integers(1, 300), "micro": st.integers(1, 3)}


def pairs(draw, names, values):
    """Some of these names, each with a value."""
    return {names[name]: draw(values[name]) for name in names if draw(st.booleans())}


class Notation:
    """A layout in notation; changes stand there as a whole layout."""

    file = None

    @staticmethod
    def drawn(draw):
        axes = draw(st.permutations(["pp", "dp", "cp", "tp", "sharding"]))[: draw(st.integers(2, 5))]
        sizes = {axis: draw(size) for axis in axes}
        if draw(st.booleans()):
            sizes[draw(st.sampled_from(axes))] = "?"
        return sizes

    @staticmethod
    def text(sizes):
        return " ".join(f"{axis}={number}" for axis, number in sizes.items())

    @staticmethod
    def pasted(sizes, line):
        found = dict(part.split("=") for part in line.split())
        assert list(found) == list(sizes)
        return found


class Megatron:
    """Options of Megatron-LM on a command line."""

    file = "run.sh"

    @staticmethod
    def drawn(draw):
        axes = {
            "tp": "tensor-model",
            "pp": "pipeline-model",
            "cp": "context",
            "ep": "expert-model",
            "etp": "expert-tensor",
        }
        names = {axis: f"{name}-parallel-size" for axis, name in axes.items()}
        options = {
            names["tp"]: draw(size),
            "micro-batch-size": draw(BATCHES["micro"]),
            "num-layers": draw(st.integers(4, 70)),
        }
        options |= pairs(draw, {**names, "global": "global-batch-size"}, {**dict.fromkeys(names, size), **BATCHES})
        rest = {"seq": "seq-length", "experts": "num-experts", "virtual": "num-virtual-stages-per-pipeline-rank"}
        values = {
            "seq": st.integers(4090, 4100),
            "experts": st.sampled_from([8, 12]),
            "virtual": st.sampled_from([2, 3]),
        }
        rest |= {"first": "decoder-first-pipeline-num-layers"}
        options |= pairs(draw, rest, {**values, "first": st.integers(1, 9)})
        if "num-experts" not in options:  # without experts their tensor size is nobody's
            options.pop(names["etp"], None)
        return options

    @staticmethod
    def text(options):
        told = [f"--{name}" if value is True else f"--{name} {value}" for name, value in options.items()]
        return " ".join(["torchrun pretrain_gpt.py", *told])

    @staticmethod
    def pasted(options, line):
        changed = dict(options)
        for part in (f" {line}").split(" --")[1:]:
            name, _, value = part.partition(" ")
            changed[name] = value or True
        return changed


class Paddle:
    """Training arguments as JSON."""

    file = "args.json"

    @staticmethod
    def drawn(draw):
        axes = ("tensor", "pipeline", "sep", "data", "sharding")
        arguments = {"tensor_parallel_degree": draw(size)}
        arguments |= pairs(draw, {axis: f"{axis}_parallel_degree" for axis in axes}, dict.fromkeys(axes, size))
        arguments |= pairs(draw, {"sharding": "sharding"}, {"sharding": st.sampled_from(["stage1", ""])})
        names = {
            "micro": "per_device_train_batch_size",
            "steps": "gradient_accumulation_steps",
            "virtual": "virtual_pp_degree",
        }
        return arguments | pairs(
            draw, names, {**BATCHES, "steps": st.integers(1, 12), "virtual": st.sampled_from([1, 2])}
        )

    text = staticmethod(json.dumps)

    @staticmethod
    def pasted(arguments, line):
        return {**arguments, **json.loads("{" + line + "}")}


class Titan:
    """A TOML file of torchtitan."""

    file = "train.toml"

    @staticmethod
    def drawn(draw):
        axes = ("tensor", "pipeline", "context", "data_parallel_shard", "data_parallel_replicate", "expert")
        names = {axis: f"{axis}_degree" if "parallel" in axis else f"{axis}_parallel_degree" for axis in axes}
        found = {"tensor_parallel_degree": draw(size)} | pairs(draw, names, dict.fromkeys(axes, size))
        batch = {"micro": "local_batch_size", "global": "global_batch_size", "seq": "seq_len"}
        return {"parallelism": found, "training": pairs(draw, batch, {**BATCHES, "seq": st.integers(4090, 4100)})}

    text = staticmethod(toml)

    @staticmethod
    def pasted(sections, line):
        told, section = re.fullmatch(r"(.*)  # in \[(\w+)\]", line).groups()
        name, _, value = told.partition(" = ")
        return {**sections, section: {**sections[section], name: json.loads(value)}}


class Own:
    """A job in rankatlas's own YAML."""

    file = "job.yaml"

    @staticmethod
    def drawn(draw):
        names = {"layers": "layers", "global": "global_batch", "micro": "micro_batch", "seq": "sequence_length"}
        values = {**BATCHES, "layers": st.integers(4, 70), "seq": st.integers(4090, 4100)}
        layout = Notation.text({axis: draw(size) for axis in ("pp", "dp", "cp", "tp")})
        return {"layout": layout, "settings": pairs(draw, names, values)}

    @staticmethod
    def text(job):
        return json.dumps({"format": "rankatlas.job", "version": 1, **job})

    @staticmethod
    def pasted(job, line):
        name, _, value = line.replace("  # in settings", "").partition(": ")
        if name == "layout":
            return {**job, "layout": value}
        return {**job, "settings": {**job["settings"], name: json.loads(value)}}


KINDS = {"notation": Notation, "megatron": Megatron, "paddlenlp": Paddle, "torchtitan": Titan, "rankatlas": Own}


def changed(kind, content, world, fix):
    """The source and its world with the lines of a fix pasted, and what they stand in the place of taken out."""
    gone = [name.lstrip("-") for name in fix.get("instead", ())]
    if gone:
        content = {name: value for name, value in content.items() if name not in gone}
    for line in fix["lines"]:
        if line.startswith("#"):
            continue
        launcher = re.fullmatch(r"(?:torchrun|python -m \S+) --nnodes (\d+) --nproc[-_]per[-_]node (\d+)", line)
        asked = re.fullmatch(r"(?:--world-size |world_size: )(\d+)", line)
        if launcher or asked:
            world = int(launcher[1]) * int(launcher[2]) if launcher else int(asked[1])
        else:
            content = kind.pasted(content, line)
    return content, world


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data(), world=WORLDS, model=MODEL)
@calm
def test_no_change_that_is_offered_brings_another_error(run, tmp_path, name, data, world, model):
    kind = KINDS[name]
    (tmp_path / "model.json").write_text(json.dumps(model))
    content = kind.drawn(data.draw)

    def errors(content, world):
        source = kind.text(content)
        if kind.file:
            (tmp_path / kind.file).write_text(source)
            source = str(tmp_path / kind.file)
        answer = run(
            "check", source, "--from", name, "-n", str(world), "--model", str(tmp_path / "model.json"), "--json"
        )
        assert answer.code in (0, 1), (answer.err, content)
        findings = answer.json["findings"]
        return findings, {finding["code"] for finding in findings if finding["severity"] == "error"}

    findings, before = errors(content, world)
    for finding in findings:
        assert not (finding["fixes"] and finding.get("tried"))
        for fix in finding["fixes"]:
            after, wrong = errors(*changed(kind, content, world, fix))
            assert wrong <= before, (content, world, finding["code"], fix, after)
            about = finding["code"], finding["numbers"].get("name")
            assert about not in {(other["code"], other["numbers"].get("name")) for other in after}, (
                content,
                world,
                fix,
            )


def test_sizes_that_fit_the_model_are_found_where_the_nearest_do_not(run, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8}))
    near = run("check", "pp=4 dp=? tp=8", "-n", "120", "--json").json["findings"][0]["fixes"]
    assert {"pp": 3, "dp": 5} in [fix["changes"] for fix in near]  # 32 layers do not divide by 3
    fitting = run("check", "pp=4 dp=? tp=8", "-n", "120", "--model", str(path), "--json").json["findings"][0]["fixes"]
    sizes = [fix["lines"] for fix in fitting if "world" not in fix["changes"]]
    assert sizes[:3] == [["pp=1 dp=15 tp=8"], ["pp=2 dp=15 tp=4"], ["pp=1 dp=30 tp=4"]]


def test_a_change_is_offered_together_with_what_it_needs():
    """Another tensor size leaves more data ranks than the batch has samples for: the batch comes with it."""
    facts = {"tp": 8, "pp": 1, "dp": 2, "world": 16, "heads": 12, "global_batch": 2, "micro_batch": 1}
    numbers = Numbers([Fact(name, size, "given") for name, size in facts.items()], format="megatron-0.16")
    (finding,) = [one for one in check_numbers(numbers) if one.code == "RA120"]
    assert [dict(fix.changes) for fix in finding.fixes] == [{"tp": 4, "global_batch": 4}, {"tp": 2, "global_batch": 8}]
    assert finding.tried == ()


def test_what_would_break_something_else_is_told_and_not_offered(run):
    source = "pretrain_gpt.py --tensor-model-parallel-size 5 --num-attention-heads 5 --micro-batch-size 1"
    arguments = ("check", f"{source} --global-batch-size 7", "-n", "12", "--from", "megatron")
    (finding,) = [one for one in run(*arguments, "--json").json["findings"] if one["code"] == "RA102"]
    assert finding["fixes"] == []
    assert [(one["lines"], one["brings"]) for one in finding["tried"]] == [
        (["--tensor-model-parallel-size 4"], ["RA120", "RA151"]),
        (["--tensor-model-parallel-size 6"], ["RA120", "RA151"]),
    ]
    page = run(*arguments)
    assert "fix: " not in page.out
    assert "not: --tensor-model-parallel-size" in page.out
    assert "(it would bring RA" in page.out
    assert "（会引出 RA" in run(*arguments, "--lang", "zh").out
