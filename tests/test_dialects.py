"""Reading what people launch: logs, scripts, command lines, several frameworks; and writing it down again."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launch_texts import STYLES, megatron_log, paddle_log
from rankatlas import Mesh
from rankatlas.dialects import read_config, registry
from rankatlas.dialects.log_blocks import find
from rankatlas.dialects.own import FORMAT
from rankatlas.dialects.registry import FORMATS
from rankatlas.dialects.scripts import read_script
from rankatlas.dialects.writing import write_config
from rankatlas.errors import ArgumentsError, DegreeError, RankatlasError, SourceError
from rankatlas.job import SETTINGS, Offer

CASES = json.loads(Path(__file__, "../cases/launches.json").resolve().read_text(encoding="utf-8"))
BLOCK = {
    "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "context_parallel_size": 1,
    "data_parallel_size": 2, "world_size": 8, "num_layers": 8, "micro_batch_size": 1, "global_batch_size": 8,
    "expert_model_parallel_size": 1, "expert_tensor_parallel_size": 2, "num_experts": None, "fp8": None,
}  # fmt: skip


@pytest.fixture
def file(tmp_path):
    def write(content, name="file"):
        path = tmp_path / name
        data = content if isinstance(content, (str, bytes)) else json.dumps(content)
        path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8", "surrogateescape"))
        return str(path)

    return write


class TestLogs:
    PREFIXES = (
        "", "[rank0]:", "[default3]:", "0: ", " 12: ", "\x1b[32m", "2026-01-02 03:04:05 ", "node-01: ",
        "[1,0]<stdout>:", "(TaskRunner pid=71, ip=10.0.0.1) ",
    )  # fmt: skip

    @pytest.mark.parametrize("prefix", PREFIXES)
    def test_what_stands_before_the_lines(self, file, prefix):
        lines = STYLES["megatron log"][0](BLOCK).replace("\x1b[36m[default0]:\x1b[0m", "").splitlines()
        job = read_config(file("\n".join(prefix + line + ("\x1b[0m" if "\x1b" in prefix else "") for line in lines)))
        assert str(job.layout) == "pp=2 dp=2 cp=1 tp=2"
        assert job.notes == ()
        told = {fact.name: fact.origin for fact in job.facts}
        assert told["tp"] == f"given, line {next(at for at, line in enumerate(lines, 1) if 'tensor_model' in line)}"

    def test_the_last_of_several_is_read_and_said(self, file):
        text = (
            megatron_log({**BLOCK, "tensor_model_parallel_size": 1, "data_parallel_size": 4})
            + "\nx\n"
            + megatron_log(BLOCK)
        )
        job = read_config(file(text))
        assert str(job.layout) == "pp=2 dp=2 cp=1 tp=2"
        assert "holds 2 configurations" in job.notes[0]

    def test_a_block_cut_off_by_a_restart(self, file):
        half = "\n".join(megatron_log(BLOCK).splitlines()[:6])
        assert str(read_config(file(half + "\n" + megatron_log(BLOCK))).layout) == "pp=2 dp=2 cp=1 tp=2"

    def test_a_block_without_an_end_is_said(self, file):
        job = read_config(file("\n".join(megatron_log(BLOCK).splitlines()[:-2])))
        assert any("has no end" in note for note in job.notes)

    def test_other_ranks_between_the_lines_and_bytes_that_are_no_text(self, file):
        lines = megatron_log(BLOCK).splitlines()
        lines.insert(5, "[default7]:WARNING: something: else")
        lines.insert(7, "")
        data = "\n".join(lines).encode() + b"\n\xff\xfe\x00 loss"
        assert str(read_config(file(data)).layout) == "pp=2 dp=2 cp=1 tp=2"

    def test_a_log_read_for_another_world(self, file):
        job = read_config(file(megatron_log(BLOCK)), world_size=16)
        assert str(job.layout) == "pp=2 dp=4 cp=1 tp=2"
        assert "the source is of 8 ranks" in job.notes[0]

    def test_blocks_with_titles_are_one_configuration(self, file):
        model = paddle_log({"hidden_size": 64, "world_size": 8}).replace("Training", "Model")
        text = (
            model + "\n" + paddle_log({"tensor_parallel_degree": 2, "sharding": "", "world_size": 8, "hidden_size": 1})
        )
        job = read_config(file(text))
        assert str(job.layout) == "dp=4 pp=1 sharding=1 sep=1 mp=2"
        assert job.notes == ()

    def test_the_job_inside_a_wrapper_is_the_first(self, file):
        case = next(case for case in CASES if case["id"] == "verl-qwen2-7b-megatron")
        text = STYLES["verl log"][0](case["facts"]) + "\n" + megatron_log(BLOCK)
        job = read_config(file(text))
        assert str(job.layout) == case["layout"]
        assert any("a configuration of megatron as well" in note for note in job.notes)

    def test_a_large_log_is_scanned_in_flat_memory(self, file):
        noise = b" iteration 10/ 500 | consumed samples: 640 | loss scale: 1.0 | json = x | lm loss: 9.1E+00 |\n"
        path = file(b"start\n" + noise * 100_000 + megatron_log(BLOCK).encode() + b"\n" + noise * 400_000, "big.log")
        assert Path(path).stat().st_size > 40 << 20
        tracemalloc.start()
        try:
            job = read_config(path)
            assert tracemalloc.get_traced_memory()[1] < 40 << 20
        finally:
            tracemalloc.stop()
        assert str(job.layout) == "pp=2 dp=2 cp=1 tp=2"
        assert job.facts[0].origin.startswith("given, line 100")

    def test_a_large_file_without_one_is_refused(self, file):
        with pytest.raises(SourceError, match="16 MiB"):
            read_config(file(b"loss: 1\n" * (3 << 20)))

    def test_one_endless_line(self):
        assert find([b"x" * (1 << 20)] * 12 + [b"\n", megatron_log(BLOCK).encode()])[0].values["world_size"] == 8

    @given(st.integers(1, 90))
    def test_chunks_may_end_anywhere(self, size):
        data = ("noise\n" + megatron_log(BLOCK) + "\nnoise").encode()
        (block,) = find([data[at : at + size] for at in range(0, len(data), size)])
        assert (block.values, block.first, block.whole) == ({**BLOCK}, 3, True)


SCRIPT = """#!/bin/bash
TP=${TP:-2}
PP=4
if [ -n "$MOE" ]; then
  EP=8
fi
NODES=$(sinfo | wc -l)
ARGS="--tensor-model-parallel-size $TP \\
  --pipeline-model-parallel-size $PP --num-layers $LAYERS"
$(rm -rf /) ; touch /tmp/rankatlas-was-here
torchrun --nproc-per-node 8 --nnodes $NODES pretrain_gpt.py $ARGS --expert-model-parallel-size $EP \\
  --use-distributed-optimizer $EXTRA
"""


class TestScripts:
    def test_what_is_not_known_is_listed_with_the_way_to_give_it(self, file):
        with pytest.raises(SourceError) as caught:
            read_config(file(SCRIPT))
        message = str(caught.value)
        assert "expert_model_parallel_size waits for EP, set in a branch on line 5" in message
        assert "nnodes waits for $(sinfo | wc -l)" in message
        assert "--set EP=…" in message
        assert not Path("/tmp/rankatlas-was-here").exists()

    def test_variables_are_given(self, file):
        job = read_config(file(SCRIPT), sets={"EP": "4", "NODES": "4"})
        assert str(job.layout) == "dense: pp=4 dp=4 cp=1 tp=2; expert: pp=4 edp=1 ep=4 etp=2; shared: pp"
        told = {fact.name: fact.origin for fact in job.facts}
        assert told["tp"] == "default of ${TP}, line 2"
        assert told["pp"] == "given, line 8"
        assert told["ep"] == "given: --set EP"
        assert told["etp"] == "inherited from tp"
        assert job.settings["zero_stage"].value == 1
        assert any("num_layers waits for LAYERS" in note for note in job.notes)
        assert any("EXTRA adds to the options" in note for note in job.notes) is False

    def test_options_are_given_themselves(self, file):
        job = read_config(file(SCRIPT), world_size=64, sets={"expert_model_parallel_size": "2", "num_experts": "8"})
        assert job.layout["expert"].size("ep") == 2
        assert job.settings["experts"].value == 8

    def test_a_command_line_is_a_source(self):
        line = "python train.py --tensor-model-parallel-size=4 --num-layers 8 --micro-batch-size 2 --bf16"
        job = read_config(line, world_size=8)
        assert str(job.layout) == "pp=1 dp=2 cp=1 tp=4"
        assert job.settings["precision"].value == "bf16"

    @pytest.mark.parametrize(
        ("text", "values"),
        [
            ("A=1\nB=$A$A\nrun.py --x $B", {"x": 11}),
            ("A=(--x 1)\nA+=(--y 2)\nrun.py ${A[@]}", {"x": 1, "y": 2}),
            ('A="--x 1"\nA="$A --y 2"\nrun.py $A', {"x": 1, "y": 2}),
            ("run.py --x '1 2' --y \"a b\"", {"x": "1 2", "y": "a b"}),
            ("run.py --x=1 \\\n --y 2 # --z 3", {"x": 1, "y": 2}),
            ("# run.py --x 9\nrun.py --x 1; echo --y", {"x": 1}),
            ("cat <<EOF\nrun.py --x 9\nEOF\nrun.py --x 1", {"x": 1}),
            ("N=$((2*(3+1)))\nrun.py --x $N", {"x": 8}),
            ("run.py --x 1 2 3", {"x": [1, 2, 3]}),
            ("run.py --x -1 --flag", {"x": -1, "flag": True}),
            ("f() {\nX=2\n}\nX=1\nrun.py --x $X", {"x": 1}),
            ("run.py --x $((1/0))", {}),
            ("run.py --x `echo 1` --y $(echo 2) --z ${A:-$B}", {}),
            ("run.py a.b=2 --x 1", {"a": {"b": 2}, "x": 1}),
        ],
    )
    def test_words(self, text, values):
        assert read_script(text, "x", {}).values_ == values

    def test_a_script_that_reads_its_settings_elsewhere(self, file):
        with pytest.raises(SourceError, match="give the file it reads"):
            read_config(file("#!/bin/bash\npython -m paddle.distributed.launch --gpus 0,1 run.py config.json\n"))

    @pytest.mark.parametrize("sets", [{"": "1"}, {"a b": "1"}, {"tensor_model_parallel_size.x": "1"}])
    def test_a_setting_that_is_none(self, file, sets):
        with pytest.raises(SourceError, match="--set"):
            read_config(file({"tensor_model_parallel_size": 2, "num_layers": 2}), world_size=4, sets=sets)


class TestWhoseWords:
    def test_both_meanings_are_shown(self, file):
        with pytest.raises(SourceError) as caught:
            read_config(file({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}), world_size=8)
        assert "--from megatron: pp=2 dp=2 cp=1 tp=2" in str(caught.value)
        assert "--from paddleformers-1.2: dp=1 sharding=2 pp=2 sep=1 mp=2" in str(caught.value)

    @pytest.mark.parametrize("name", ["megatron", "megatron@0.16", "megatron@head"])
    def test_a_name_with_a_release(self, file, name):
        assert read_config(file({"tensor_model_parallel_size": 2}), name, world_size=4).layout.size("tp") == 2

    @pytest.mark.parametrize("name", ["megatron@9", "deepsped", "@", "paddlenlp@3"])
    def test_a_name_that_is_none(self, file, name):
        with pytest.raises(SourceError, match=r"the (formats|releases) are"):
            read_config(file({"tensor_model_parallel_size": 2}), name, world_size=4)

    def test_every_format_is_taken(self):
        for name in FORMATS:
            registry.named(name, "")

    def test_a_third_party_adds_its_own(self, file, monkeypatch, tmp_path):
        (tmp_path / "strangers.py").write_text(
            "from rankatlas import Mesh\nfrom rankatlas.job import Job\nLAYOUT = ()\n"
            "def evidence(given): return 2 if 'stranger_size' in given else 0\n"
            "def read(given, release, world_size):\n"
            "    return Job(Mesh(dp=given.size('stranger_size')), format='stranger', source=given.source)\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        points = [
            EntryPoint("stranger", "strangers", registry.GROUP),
            EntryPoint("megatron", "nothing", registry.GROUP),
        ]
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
        assert read_config(file({"stranger_size": 4})).layout == Mesh(dp=4)
        assert read_config(file({"stranger_size": 4}), "stranger").format == "stranger"
        points[0] = EntryPoint("stranger", "no_such_module", registry.GROUP)
        with pytest.raises(SourceError, match="cannot be loaded"):
            read_config(file({"stranger_size": 4}), "stranger")


REPORTED = json.loads(Path(__file__, "../cases/reading.json").resolve().read_text(encoding="utf-8"))
MEGATRON_SIZES = {
    "tp": "tensor_model_parallel_size", "cp": "context_parallel_size", "pp": "pipeline_model_parallel_size",
    "ep": "expert_model_parallel_size", "etp": "expert_tensor_parallel_size",
}  # fmt: skip
TITAN_DEGREES = {
    "pp": "pipeline_parallel_degree", "dp_replicate": "data_parallel_replicate_degree",
    "dp_shard": "data_parallel_shard_degree", "cp": "context_parallel_degree", "tp": "tensor_parallel_degree",
}  # fmt: skip


def megatron_job(file, asked):
    return read_config(
        file({name: asked[axis] for axis, name in MEGATRON_SIZES.items() if axis in asked}),
        "megatron",
        world_size=asked["world_size"],
    )


def check_a_folding_case(file, asked, expected):
    """Experts lie over the ranks of the dense layers and are no factor of the world."""
    layout = megatron_job(file, asked).layout
    dense, expert = layout["dense"], layout["expert"]
    assert (dense.size("dp"), expert.size("edp")) == (expected["dp"], expected["edp"])
    assert [list(group) for group in dense.groups("dp")] == expected["dense_dp_groups"]
    assert [list(group) for group in expert.groups("ep")] == expected["ep_groups"]


def check_an_explain_case(file, asked, expected):
    """An expert tensor size that nobody gave is legal, and noted with what 1 would mean."""
    job = megatron_job(file, asked)
    (note,) = [note for note in job.notes if all(word in note for word in expected["note_words"])]
    found = {fact.name: fact for fact in job.facts}
    assert (found["etp"].value, found["etp"].origin) == (expected["etp"], "inherited from tp")
    assert found["edp"].value == expected["edp"]
    other = expected["if_etp_were_1"]
    assert f"takes {expected['expert_block']} ranks and edp={expected['edp']};" in note
    assert f"with etp=1 it would take {other['expert_block']} and edp be {other['edp']}" in note


def check_a_validate_case(file, asked, expected):
    if "ep" in asked:
        degrees = {TITAN_DEGREES[axis]: size for axis, size in asked["degrees"].items()}
        content = {
            "parallelism": {**degrees, "expert_parallel_degree": asked["ep"]},
            "model_spec": {"model": {"num_experts": asked["num_experts"]}},
        }
    else:
        sizes = (
            {}
            if asked["rollout_tp_source"] == "default"
            else {"tensor_model_parallel_size": asked["degrees"]["rollout_tp"]}
        )
        content = {"actor_rollout_ref": {"actor": {}, "rollout": sizes}}
    with pytest.raises(DegreeError) as caught:
        read_config(file(content), world_size=asked["world_size"])
    assert all(word in str(caught.value) for word in expected["error"]["must_mention"])
    assert caught.value.legal == expected.get("legal_ep", expected.get("legal"))
    assert caught.value.remainder == expected.get("remainder", caught.value.remainder)


CHECKS = {
    "folding": check_a_folding_case,
    "explain": check_an_explain_case,
    "validate": check_a_validate_case,
}


@pytest.mark.parametrize("case", REPORTED, ids=lambda case: case["id"])
def test_a_reported_case(file, case):
    CHECKS[case["kind"]](file, case["input"], case["expected"])


class TestMeaningsOfOneOption:
    """`pp_first` is another order to each of the three places that read it."""

    ARGUMENTS = {"hybrid_parallel_topo_order": "pp_first", "tensor_parallel_degree": 2, "sep_parallel_degree": 2}  # noqa: RUF012

    def test_dynamic(self, file):
        assert read_config(file(self.ARGUMENTS), world_size=8).layout.axes == ("dp", "pp", "sharding", "sep", "mp")

    def test_auto_parallel_and_its_seeds(self, file):
        job = read_config(file({**self.ARGUMENTS, "enable_auto_parallel": True}), world_size=8)
        assert job.layout.axes == ("pp", "dp", "sharding", "sep", "mp")
        assert any("seed from 'pp=1 dp=2 sharding=1 mp=2 sep=2'" in note for note in job.notes)

    def test_fleet(self, file):
        content = {"hybrid_configs": {"dp_degree": 2, "mp_degree": 2, "pp_degree": 2}}
        job = read_config(file(content))
        assert str(job.layout) == "dp=2 pp=2 sharding=1 sep=1 cp=1 mp=2"
        ordered = {"hybrid_configs": {**content["hybrid_configs"], "order": ["pp", "dp", "mp"]}}
        assert str(read_config(file(ordered)).layout) == "pp=2 dp=2 mp=2"
        with pytest.raises(ArgumentsError, match="without mp"):
            read_config(file({"hybrid_configs": {"mp_degree": 2, "order": ["pp", "dp"]}}))


class TestOwnFormat:
    CONTENT = {"format": FORMAT, "version": 1, "layout": "pp=2 dp=? tp=2", "world_size": 8, "seed": 5}  # noqa: RUF012

    def test_it_is_read(self, file):
        job = read_config(file({**self.CONTENT, "settings": {"layers": 8, "stage_layers": [5, 3]}}))
        assert str(job.layout) == "pp=2 dp=2 tp=2"
        assert (job.seed, job.settings["layers"].value, job.settings["stage_layers"].value) == (5, 8, [5, 3])

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"version": 2}, "version 2"),
            ({"layot": ""}, "did you mean layout"),
            ({"layout": 8}, "is notation"),
            ({"settings": {"layrs": 8}}, "did you mean layers"),
            ({"settings": {"layers": "8"}}, "a positive integer"),
            ({"settings": {"layers": True}}, "a positive integer"),
            ({"settings": {"zero_stage": 4}}, "0, 1, 2 or 3"),
            ({"settings": {"stage_layers": [0]}}, "a list of positive integers"),
            ({"settings": []}, "is a mapping"),
            ({"world_size": -8}, "positive integer"),
            ({"seed": "5"}, "is an integer"),
        ],
    )
    def test_what_it_does_not_have(self, file, change, words):
        with pytest.raises(RankatlasError, match=words):
            read_config(file({**self.CONTENT, **change}))

    def test_the_example_is_the_stored_layout_beside_it(self):
        folder = Path(__file__).resolve().parent.parent / "examples" / "layouts"
        job = read_config(str(folder / "llama3_405b_8k.yaml"))
        assert job.layout == read_config(str(folder / "llama3_405b_8k.json")).layout
        assert job.settings["global_batch"].value == 2048

    def test_the_schema_has_the_same_names(self):
        import rankatlas.dialects

        schema = json.loads(Path(rankatlas.dialects.__file__).with_name("job.schema.json").read_text(encoding="utf-8"))
        assert list(schema["properties"]["settings"]["properties"]) == list(SETTINGS)
        assert set(schema["properties"]) == {"format", "version", "layout", "world_size", "seed", "settings"}
        shipped = Path(__file__).resolve().parent.parent / "docs" / "job.schema.json"
        assert json.loads(shipped.read_text(encoding="utf-8")) == schema


# Fuzzing: whatever is given, an answer or one of our errors, for each dialect from its own words.
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([2**40, 2**70, "auto", "${x}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def leaves(content, path=()):
    for name, value in content.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, name))
        yield (*path, name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_no_settings_bring_anything_but_our_errors(tmp_path_factory, case, data):
    content = json.loads(json.dumps(case["facts"]))
    for path in data.draw(st.lists(st.sampled_from(list(leaves(content))), max_size=4)):
        inner = content
        for name in path[:-1]:
            inner = inner.get(name) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner[path[-1]] = data.draw(values)
    path = tmp_path_factory.mktemp("fuzz") / "config.json"
    path.write_text(json.dumps(content))
    for format in (case.get("format"), data.draw(st.sampled_from(list(FORMATS)))):
        with contextlib.suppress(RankatlasError):
            job = read_config(str(path), format, world_size=data.draw(st.sampled_from([None, 1, 7, 8, 64, 2**40])))
            for to in ("rankatlas", "megatron", "paddle"):
                with contextlib.suppress(RankatlasError):
                    write_config(job, to)


@pytest.mark.parametrize("style", STYLES)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_damage_to_a_text_brings_anything_but_our_errors(tmp_path_factory, style, data):
    case = data.draw(st.sampled_from([case for case in CASES if case["style"] == style]))
    write, name = STYLES[style]
    text = write(case["facts"]).encode()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + data.draw(st.binary(max_size=8)) + text[end:]
    path = tmp_path_factory.mktemp("fuzz") / name
    path.write_bytes(text)
    with contextlib.suppress(RankatlasError):
        read_config(str(path), world_size=case.get("world") or 8)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab=$(){}[]'\"`\\ \n;|&<>#-+*/0123X", max_size=60))
def test_no_shell_text_brings_anything_but_our_errors(text):
    with contextlib.suppress(RankatlasError):
        read_script("python x.py " + text, "x", {"X": "1"})


SIZES = {"tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 4}


@pytest.mark.parametrize(
    ("beside", "format"),
    [
        ({"global_batch_size": 64}, "megatron-0.16"),
        ({"global_batch_size": 64, "per_device_train_batch_size": 1}, "paddleformers-1.2"),
        ({"global_batch_size": 64, "gradient_accumulation_steps": 4}, "paddleformers-1.2"),
        ({"global_batch_size": 64, "stage": "PT"}, "paddleformers-1.2"),
        ({"global_batch_size": 64, "fine_tuning": "full"}, "paddleformers-1.2"),
        ({"global_batch_size": 64, "sharding_parallel_size": 4}, "paddleformers-1.2"),
        ({"num_layers": 64, "data_parallel_size": 4}, "megatron-0.16"),
        ({"global_batch_size": 64, "data_parallel_size": 4}, "megatron-0.16"),
    ],
    ids=str,
)
def test_names_that_only_one_of_two_frameworks_has_decide(tmp_path, beside, format):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({**SIZES, **beside}))
    assert read_config(str(path), world_size=64).format == format


@pytest.mark.parametrize("beside", [{}, {"num_layers": 8, "per_device_train_batch_size": 1}], ids=str)
def test_names_of_both_frameworks_decide_nothing(tmp_path, beside):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({**SIZES, **beside}))
    with pytest.raises(SourceError, match="may be written for Megatron or PaddleFormers"):
        read_config(str(path), world_size=64)


BALANCER = "context_parallel_load_balancer"
TITAN_LOG = """\
[titan] 10:00:01 - root - INFO - Running with args: {
 "parallelism": {"context_parallel_degree": 2, "data_parallel_shard_degree": -1, "pipeline_parallel_degree": 4,
  "tensor_parallel_degree": 8},
 "training": {"local_batch_size": 8}
}
[titan] 10:00:02 - root - INFO - Building 4-D device mesh with ['pp', 'dp_shard', 'cp', 'tp'], [4, 4, 2, 8]
"""


class TestTheMeshThatTorchtitanBuilt:
    def test_an_older_release_lists_names_and_sizes(self, tmp_path):
        path = tmp_path / "x.log"
        path.write_text(TITAN_LOG)
        job = read_config(str(path))
        assert str(job.layout) == "pp=4 dp_replicate=1 dp_shard=4 cp=2 tp=8"
        assert job.notes == ()
        assert str(read_config(str(path), offered=Offer(128, "--nodes 16x8")).layout) == str(job.layout)

    def test_another_world_is_said_to_be_another(self, tmp_path):
        path = tmp_path / "x.log"
        path.write_text(TITAN_LOG)
        job = read_config(str(path), world_size=128)
        assert job.layout.size("dp_shard") == 2
        assert any("is of 256 ranks (given, line 6)" in note for note in job.notes), job.notes

    def test_one_axis_called_dp(self, tmp_path):
        path = tmp_path / "x.log"
        text = TITAN_LOG.replace("['pp', 'dp_shard', 'cp', 'tp'], [4, 4, 2, 8]", "['dp', 'tp'], [4, 8]")
        path.write_text(text.replace('degree": 4', 'degree": 1').replace('degree": 2', 'degree": 1'))
        assert str(read_config(str(path)).layout) == "pp=1 dp_replicate=1 dp_shard=4 cp=1 tp=8"

    @pytest.mark.parametrize(
        ("balancer", "split", "origin"),
        [
            ({}, "balanced", "default of torchtitan 0.3"),
            ({BALANCER: None}, "contiguous", f"given: parallelism.{BALANCER}"),
            ({BALANCER: "ptrr"}, "balanced", f"given: parallelism.{BALANCER}"),
        ],
    )
    def test_where_the_cut_of_sequences_came_from(self, tmp_path, balancer, split, origin):
        path = tmp_path / "x.json"
        path.write_text(json.dumps({"parallelism": {"context_parallel_degree": 2, **balancer}}))
        fact = read_config(str(path), world_size=8).settings["cp_split"]
        assert (fact.value, fact.origin) == (split, origin)
