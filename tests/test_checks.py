"""Checks against brute force: exactly what is wrong is found, and every change offered puts it right."""

import json
from math import prod

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rankatlas import Atlas, Mesh
from rankatlas.checks import Finding, Fix, Numbers, check_job, check_numbers, check_refusal, worst
from rankatlas.checks.run import _all_of
from rankatlas.cluster import Cluster
from rankatlas.core import parse_layout
from rankatlas.dialects import read_config
from rankatlas.errors import InputError, WorldSizeError
from rankatlas.job import Fact, Job

FORMATS = (
    "notation",
    "rankatlas",
    "megatron-0.16",
    "paddlenlp-2.8",
    "paddleformers-1.2",
    "torchtitan-0.3",
    "deepspeed",
)
size = st.sampled_from([1, 1, 2, 3, 4, 5, 6, 8])
SETTINGS = {
    "global_batch": st.integers(1, 600),
    "micro_batch": st.integers(1, 6),
    "accumulation": st.integers(1, 12),
    "sequence_length": st.integers(1, 5000),
    "layers": st.integers(1, 130),
    "heads": st.integers(1, 130),
    "kv_heads": st.integers(1, 40),
    "hidden": st.integers(1, 9000),
    "ffn": st.integers(1, 9000),
    "vocab": st.integers(1, 60000),
    "experts": st.integers(1, 64),
    "expert_ffn": st.integers(1, 3000),
    "virtual_stages": st.integers(1, 4),
    "first_stage_layers": st.integers(1, 12),
    "last_stage_layers": st.integers(1, 12),
    "stage_layers": st.lists(st.integers(0, 20), min_size=1, max_size=8),
    "prompts": st.integers(1, 300),
    "responses": st.integers(1, 16),
}


@st.composite
def jobs(draw):
    """A job of any format with some settings, its experts in a chart of their own where they fit."""
    mesh = Mesh(pp=draw(size), dp=draw(size), cp=draw(size), sep=draw(st.sampled_from([1, 1, 2])), tp=draw(size))
    names = draw(st.lists(st.sampled_from(list(SETTINGS)), unique=True, max_size=9))
    facts = [Fact(name, draw(SETTINGS[name]), "given") for name in names]
    layout = mesh
    stage = mesh.world_size // mesh.size("pp")
    ep, etp = draw(size), draw(st.sampled_from([1, mesh.size("tp")]))
    origins = []
    if ep > 1 and stage % (ep * etp) == 0:
        expert = Mesh(pp=mesh.size("pp"), edp=stage // (ep * etp), ep=ep, etp=etp)
        layout = Atlas(dense=mesh, expert=expert, shared=("pp",))
        origins = [Fact("etp", etp, draw(st.sampled_from(["given", "inherited from tp"])))]
    format = draw(st.sampled_from(FORMATS))
    return Job(layout, format=format, source=str(layout), settings=facts, facts=origins)


def codes(findings):
    return [finding.code for finding in findings]


def wrong(numbers):
    """The codes of what is wrong with plain numbers, said once more and as plainly as possible."""
    get = numbers.get
    tp, sep, cp, ep, etp, data = (numbers[name] for name in ("tp", "sep", "cp", "ep", "etp", "dp"))
    found = set()
    for code, name in (("RA120", "heads"), ("RA122", "hidden"), ("RA123", "ffn")):
        if get(name) and get(name) % tp:
            found.add(code)
    if get("hidden") and get("heads") and get("hidden") % get("heads"):
        found.add("RA126")
    shared = get("kv_heads")
    if shared and shared != get("heads") and shared % tp and not (shared < tp and tp % shared == 0):
        found.add("RA121")
    if shared and get("heads") and get("heads") % shared:
        found.add("RA127")
    if get("experts") and ep > 1 and get("experts") % ep:
        found.add("RA111")
    if get("expert_ffn") and get("expert_ffn") % etp:
        found.add("RA114")
    batch, micro, steps = get("global_batch"), get("micro_batch"), get("accumulation")
    if batch and micro and steps and batch != micro * steps * data:
        found.add("RA150")
    if batch and not steps and batch % ((micro or 1) * data):
        found.add("RA151")
    balanced = numbers.format.startswith(("megatron", "torchtitan", "paddle"))
    if get("sequence_length") and cp > 1 and get("sequence_length") % (cp * (1 + balanced)):
        found.add("RA140")
    if get("sequence_length") and sep > 1 and get("sequence_length") % sep:
        found.add("RA141")
    if get("heads") and sep > 1 and get("heads") % tp == 0 and get("heads") // tp % sep:
        found.add("RA142")
    if get("prompts") and get("prompts") * (get("responses") or 1) % data:
        found.add("RA161")
    if get("prompts") and batch and get("prompts") * (get("responses") or 1) % batch:
        found.add("RA162")
    stages, virtual, layers = numbers["pp"], get("virtual_stages") or 1, get("layers")
    explicit = numbers.value("stage_layers")
    ends = [get(f"{end}_stage_layers") for end in ("first", "last")]
    if stages > 1 and layers and explicit is None and ends == [None, None]:
        uneven = numbers.format.startswith(("torchtitan", "deepspeed"))
        if layers % (stages * virtual) and not (uneven and layers >= stages * virtual):
            found.add("RA130")
    if stages > 1 and layers and explicit is not None:
        fits = len(explicit) == stages * virtual or (
            len(explicit) == stages and not any(part % virtual for part in explicit)
        )
        if not fits or sum(explicit) != layers:
            found.add("RA131")
    return found


COMPARED = ("RA111", "RA114", "RA12", "RA130", "RA14", "RA15", "RA16")
LEFT_OUT = ("RA124", "RA125", "RA143", "RA144", "RA160")  # notes, or asked about elsewhere


@given(jobs())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_exactly_what_is_wrong_is_found(job):
    numbers = Numbers.of(job)
    found = {code for code in codes(check_job(job)) if code.startswith(COMPARED) and code not in LEFT_OUT}
    truth = wrong(numbers)
    assert found == {code for code in truth if code != "RA131"}
    if "RA131" in truth:
        assert "RA131" in codes(check_job(job))


@given(jobs())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_every_change_offered_makes_its_finding_go_away(job):
    numbers = Numbers.of(job)
    for finding in check_job(job):
        for fix in finding.fixes:
            assert fix.lines
            after = list(_all_of(numbers.changed(fix.changes)))
            assert not any(map(finding.is_also, after)), (finding, fix)


@given(jobs())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_every_sentence_has_all_its_numbers_in_both_languages(job):
    for finding in check_job(job, Cluster.of(64 * 64, 8)):
        for lang in ("en", "zh"):
            for what in ("title", "message", "why"):
                assert "{" not in finding.told(what, lang), finding
        json.dumps(finding.to_dict())
        assert repr(finding).startswith("Finding(")


@given(jobs())
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_layout_in_notation_is_offered_as_notation_that_is_read(job):
    assume(isinstance(job.layout, Mesh))
    job = Job(job.layout, format="notation", source=str(job.layout), settings=job.settings.values())
    for finding in check_job(job, Cluster.of(64 * 64, 8)):
        for fix in finding.fixes:
            layouts = [line for line in fix.lines if line.startswith("pp=")]
            assert all(line.startswith("pp=") or ": " in line for line in fix.lines)
            for line in layouts:
                mesh = parse_layout(line, None)
                assert mesh.world_size == job.layout.world_size
                again = Job(mesh, format="notation", source=line, settings=job.settings.values())
                assert finding.code not in codes(check_job(again, Cluster.of(64 * 64, 8)))


@given(
    st.lists(
        st.tuples(st.sampled_from(["pp", "dp", "cp", "tp", "x"]), st.integers(1, 12)),
        min_size=1,
        max_size=5,
        unique_by=lambda pair: pair[0],
    ),
    st.booleans(),
    st.integers(1, 500),
)
def test_sizes_that_are_not_the_world_get_sizes_that_are(pairs, leave_open, world):
    items = [f"{axis}={number}" for axis, number in pairs] + ["sharding=?"] * leave_open
    text = " ".join(items)
    try:
        parse_layout(text, world)
    except WorldSizeError as error:
        problem = error
    else:
        return
    near = problem.nearest_worlds[-1]
    numbers = Numbers.of(Job(parse_layout(text, near), format="notation", source=text))
    finding = check_refusal(problem, numbers)
    assert finding.code == ("RA102" if leave_open else "RA101")
    assert finding.numbers["remainder"] == world % prod(number for _, number in pairs)
    assert str(world) in finding.message
    for fix in finding.fixes:
        (line,) = fix.lines
        if "world" in fix.changes:
            assert line == f"--world-size {fix.changes['world']}"
            assert parse_layout(text, fix.changes["world"]).world_size == fix.changes["world"]
        else:
            assert parse_layout(line, world).world_size == world


PADDLE = {
    "paddlenlp-2.8": ("tensor_parallel_degree", "pipeline_parallel_degree", "data_parallel_degree"),
    "paddleformers-1.2": ("tensor_model_parallel_size", "pipeline_model_parallel_size", "data_parallel_size"),
}


@pytest.mark.parametrize("release", PADDLE)
@pytest.mark.parametrize("ending", ["json", "yaml"])
@pytest.mark.parametrize("data", [{"sharding": "stage1"}, {"sharding": ""}, {"dp": 6, "sharding": ""}])
def test_lines_pasted_into_training_arguments_are_read_and_pass(tmp_path, release, ending, data):
    tensor, pipeline, split = PADDLE[release]
    arguments = {tensor: 8, pipeline: 4, **{split if key == "dp" else key: value for key, value in data.items()}}
    path = tmp_path / f"args.{ending}"
    model = [Fact("heads", 36, "given"), Fact("layers", 30, "given"), Fact("kv_heads", 4, "given")]

    def written(arguments):
        lines = [f"{key}: {json.dumps(value)}" for key, value in arguments.items()]
        path.write_text(json.dumps(arguments) if ending == "json" else "\n".join(lines))
        return read_config(str(path), release, world_size=192)

    findings = {finding.code: finding for finding in check_job(written(arguments), extra=model)}
    assert {"RA120", "RA130"} <= set(findings)
    assert findings["RA120"].fixes
    for code in ("RA120", "RA130"):
        for fix in findings[code].fixes:
            changed = dict(arguments)
            for line in fix.lines:
                key, _, value = line.replace('"', "").partition(": ")
                changed[key] = int(value)
            assert code not in codes(check_job(written(changed), extra=model)), fix


@given(
    st.fixed_dictionaries(
        {
            "tensor-model-parallel-size": st.sampled_from([1, 2, 4, 8]),
            "pipeline-model-parallel-size": st.sampled_from([1, 2, 4, 8]),
            "context-parallel-size": st.sampled_from([1, 1, 2]),
            "num-layers": st.integers(8, 70),
            "hidden-size": st.sampled_from([1024, 1536, 1000]),
            "num-attention-heads": st.sampled_from([8, 12, 20, 36]),
            "seq-length": st.sampled_from([4096, 4098]),
            "micro-batch-size": st.integers(1, 3),
            "global-batch-size": st.integers(1, 300),
        },
        optional={"num-experts": st.sampled_from([6, 8, 16]), "expert-model-parallel-size": st.sampled_from([2, 4])},
    )
)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
def test_lines_pasted_behind_a_command_line_of_megatron_are_read_and_pass(options):
    def read(options):
        line = "pretrain_gpt.py " + " ".join(f"--{name} {value}".strip() for name, value in options.items())
        return read_config(line, "megatron", world_size=128)

    try:
        job = read(options)
    except WorldSizeError:
        return  # asked about elsewhere
    for finding in check_job(job):
        for fix in finding.fixes:
            changed = dict(options)
            for line in fix.lines:
                for part in (f" {line}").split(" --")[1:]:
                    name, _, value = part.partition(" ")
                    changed[name] = value
            assert finding.code not in codes(check_job(read(changed))), (finding, fix)


@pytest.mark.parametrize("ending", ["json", "yaml"])
def test_lines_pasted_into_a_job_of_our_own_are_read_and_pass(tmp_path, ending):
    path = tmp_path / f"job.{ending}"
    settings_ = {"layers": 30, "heads": 36, "global_batch": 30, "micro_batch": 4, "sequence_length": 4097}
    content = {"format": "rankatlas.job", "version": 1, "layout": "pp=4 dp=2 cp=2 tp=8", "settings": settings_}

    def read(content):
        path.write_text(json.dumps(content))
        return read_config(str(path))

    findings = check_job(read(content))
    assert codes(findings) == ["RA120", "RA130", "RA140", "RA151"]
    for finding in findings:
        assert finding.fixes
        for fix in finding.fixes:
            changed = {**content, "settings": dict(settings_)}
            for line in fix.lines:
                key, _, value = line.replace("  # in settings", "").replace('"', "").partition(": ")
                place = changed if key in ("layout", "world_size") else changed["settings"]
                place[key] = value if key == "layout" else json.loads(value)
            assert finding.code not in codes(check_job(read(changed))), fix


def test_lines_are_written_as_each_dialect_writes_them():
    changes = {"tp": 4}
    told = {}
    for format, source in (
        ("megatron-0.16", "slurm.out"),
        ("megatron-0.16", "run.yaml"),
        ("paddlenlp-2.8", "args.json"),
        ("paddleformers-1.2", "args.yaml"),
        ("torchtitan-0.3", "run.log"),
        ("torchtitan-0.1", "run.toml"),
        ("deepspeed", "ds.json"),
        ("accelerate", "config.yaml"),
        ("verl", "run.log"),
        ("nemo-rl", "run.log"),
        ("rankatlas", "job.yaml"),
    ):
        from rankatlas.checks.spelling import lines

        job = Job(Mesh(dp=2, tp=8), format=format, source=source)
        told[format, source] = lines(Numbers.of(job), changes)
    assert told == {
        ("megatron-0.16", "slurm.out"): ["--tensor-model-parallel-size 4"],
        ("megatron-0.16", "run.yaml"): ["tensor_model_parallel_size: 4"],
        ("paddlenlp-2.8", "args.json"): ['"tensor_parallel_degree": 4'],
        ("paddleformers-1.2", "args.yaml"): ["tensor_model_parallel_size: 4"],
        ("torchtitan-0.3", "run.log"): ["--parallelism.tensor_parallel_degree 4"],
        ("torchtitan-0.1", "run.toml"): ["tensor_parallel_degree = 4  # in [parallelism]"],
        ("deepspeed", "ds.json"): ['"tensor_parallel": {"autotp_size": 4}'],
        ("accelerate", "config.yaml"): ["parallelism_config: {parallelism_config_tp_size: 4}"],
        ("verl", "run.log"): ["actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4"],
        ("nemo-rl", "run.log"): ["policy.megatron_cfg.tensor_model_parallel_size=4"],
        ("rankatlas", "job.yaml"): ["layout: dp=2 tp=4"],
    }


def numbers_of(format="notation", **given):
    return Numbers([Fact(name, value, "given") for name, value in given.items()], format=format)


def only(findings, code):
    (found,) = [finding for finding in findings if finding.code == code]
    return found


def test_an_uneven_split_is_offered_as_flags_of_megatron():
    found = only(check_numbers(numbers_of("megatron-0.16", layers=30, pp=4, world=64, dp=16)), "RA130")
    lines = [fix.lines for fix in found.fixes]
    assert ('--pipeline-model-parallel-layout "Et*8|t*8|t*7|t*7L"',) in lines
    assert ("--decoder-first-pipeline-num-layers 7", "--decoder-last-pipeline-num-layers 7") in lines
    assert ("--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",) in lines
    assert ("--pipeline-model-parallel-size 2",) in lines
    odd = only(check_numbers(numbers_of("megatron-0.16", layers=31, pp=2, world=64, dp=32)), "RA130")
    assert ("--decoder-first-pipeline-num-layers 16",) in [fix.lines for fix in odd.fixes]


@pytest.mark.parametrize("format", ["torchtitan-0.3", "deepspeed", "accelerate"])
def test_frameworks_that_share_layers_out_unevenly_lose_none(format):
    assert codes(check_numbers(numbers_of(format, layers=30, pp=4, world=4, dp=1))) == []
    assert codes(check_numbers(numbers_of(format, layers=3, pp=4, world=4, dp=1))) == ["RA130"]


def test_an_inherited_expert_size_is_a_note_and_a_given_one_is_nothing():
    layout = Atlas(dense=Mesh(pp=1, dp=4, tp=2), expert=Mesh(pp=1, edp=1, ep=4, etp=2), shared=("pp",))
    for origin, expected in (("inherited from tp", ["RA112"]), ("given", [])):
        job = Job(layout, format="megatron-0.16", source="", facts=[Fact("etp", 2, origin)])
        assert codes(check_job(job)) == expected


def test_what_a_default_decides_is_said():
    job = Job(Mesh(dp=2, tp=2), format="paddlenlp-2.8", source="", facts=[Fact("tp", 2, "default of some release")])
    found = only(check_job(job), "RA103")
    assert found.severity == "note"
    assert "tp=2" in found.message
    assert "default of some release" in found.message


def test_what_a_reader_could_not_use_is_a_warning():
    job = Job(
        Mesh(dp=2),
        format="notation",
        source="",
        notes=["tp_sise=2 is not understood and was left out", "the order is a guess"],
    )
    assert [(finding.code, finding.severity) for finding in check_job(job)] == [("RA104", "warning"), ("RA105", "note")]


def test_seeds_that_follow_other_coordinates_are_a_finding(tmp_path):
    path = tmp_path / "args.json"
    path.write_text('{"enable_auto_parallel": true, "tensor_parallel_degree": 2, "sep_parallel_degree": 2}')
    assert codes(check_job(read_config(str(path), world_size=8))) == ["RA181"]


@pytest.mark.parametrize(
    ("given_", "code"),
    [
        ({"pp": 1, "virtual_stages": 2}, "RA106"),
        ({"pp": 1, "first_stage_layers": 3}, "RA106"),
        ({"ep": 2, "layers": 4, "hidden": 8, "heads": 2, "world": 4, "dp": 4}, "RA113"),
        ({"pp": 4, "virtual_stages": 2, "global_batch": 6, "micro_batch": 1, "dp": 1, "world": 4}, "RA132"),
        ({"pp": 4, "global_batch": 2, "micro_batch": 1, "dp": 1, "world": 4}, "RA133"),
        ({"tp": 8, "kv_heads": 4, "world": 8, "dp": 1}, "RA124"),
        ({"tp": 4, "vocab": 50257, "world": 4, "dp": 1}, "RA125"),
        ({"sep": 4, "kv_heads": 2, "world": 4, "dp": 1}, "RA144"),
        ({"sep": 4, "kv_heads": 3, "world": 4, "dp": 1}, "RA143"),
        ({"pp": 2, "dp": 2, "tp": 3, "world": 8}, "RA101"),
        ({"rollout_tp": 2, "world": 1, "dp": 1}, "RA160"),
    ],
)
def test_one_of_each_other_kind(given_, code):
    assert codes(check_numbers(numbers_of(**given_))) == [code]


def test_severities():
    assert worst([]) is None
    assert worst([Finding("RA112", "note", {}), Finding("RA172", "warning", {})]) == "warning"
    findings = check_numbers(numbers_of(layers=30, pp=4, world=4, dp=1, global_batch=2, micro_batch=1))
    assert [finding.severity for finding in findings] == ["error", "note"]


@pytest.mark.parametrize("value", [None, True, "8", 2.0, float("nan"), [], {}, 0, -4, b"8"])
def test_settings_that_are_no_numbers_are_passed_over(value):
    job = Job(
        Mesh(pp=2, dp=2, tp=2),
        format="notation",
        source="",
        settings=[Fact(name, value, "given") for name in SETTINGS if name != "stage_layers"],
    )
    assert [finding for finding in check_job(job) if finding.severity == "error"] == []


@pytest.mark.parametrize("value", [None, True, "8", 2.0, [2.0], [None], [[1]], {}, -4, [True, 3]])
def test_stage_layers_that_are_no_numbers_are_refused_or_passed_over(value):
    job = Job(
        Mesh(pp=2), format="notation", source="", settings=[Fact("layers", 4, ""), Fact("stage_layers", value, "")]
    )
    for finding in check_job(job):
        assert finding.code == "RA131"
        assert finding.message


@pytest.mark.parametrize("number", [2**40, 2**40 - 87, 2**61 - 1, 10**40])
def test_enormous_numbers_are_answered(number):
    job = Job(
        Mesh(pp=3, dp=2**20, tp=7),
        format="megatron-0.16",
        source="",
        settings=[Fact(name, number, "given") for name in SETTINGS if name != "stage_layers"],
    )
    for finding in check_job(job):
        assert len(finding.message) < 2000
        assert len(str(finding.to_dict())) < 20000


def test_a_code_or_language_there_is_not():
    for ask in (lambda: Finding("RA999", "error", {}).message, lambda: Finding("RA111", "error", {}).told("why", "fr")):
        with pytest.raises(InputError):
            ask()


class TestNodes:
    def crossing(self, layout, cluster, **options):
        job = Job(layout, format="notation", source=str(layout), **options)
        return check_job(job, cluster)

    def test_a_tensor_axis_that_leaves_the_node(self):
        (found,) = self.crossing(Mesh(tp=8, dp=2), Cluster.of(2, 8))
        assert found.code == "RA172"
        assert [fix.lines for fix in found.fixes] == [("dp=2 tp=8",)]
        assert found.numbers["ranks"] == [0, 2, 4, 6, 8, 10, 12, 14]

    def test_a_tensor_axis_longer_than_a_node_has_no_better_order(self):
        (found,) = self.crossing(Mesh(dp=2, tp=16), Cluster.of(4, 8))
        assert (found.code, found.fixes) == ("RA172", ())

    def test_expert_and_context_axes_that_need_not_leave(self):
        assert codes(self.crossing(Mesh(cp=2, dp=4, tp=4), Cluster.of(4, 8))) == ["RA172"]
        assert codes(self.crossing(Mesh(dp=4, cp=2, tp=4), Cluster.of(4, 8))) == []
        assert codes(self.crossing(Mesh(dp=2, cp=4, tp=4), Cluster.of(4, 8))) == []  # too long beside tp

    def test_fewer_and_more_devices_than_ranks(self):
        few, more = (self.crossing(Mesh(dp=8), Cluster.of(nodes, 4))[0] for nodes in (1, 3))
        assert (few.code, few.severity, few.fixes[0].lines) == ("RA170", "error", ("--nodes 2x4",))
        assert (more.code, more.severity, more.numbers["more"]) == ("RA171", "warning", 4)

    def test_hosts_in_string_order(self):
        hosts = sorted(f"n{number}" for number in range(1, 12))
        (found,) = self.crossing(Mesh(dp=11), Cluster.of(11, 1, hosts))
        assert found.code == "RA173"
        assert "string order" in found.message
        assert "natural order" in found.message
        natural = found.fixes[0].changes["hosts"]
        assert self.crossing(Mesh(dp=11), Cluster.of(11, 1, natural)) == []


def test_another_order_than_the_default_is_a_note():
    usual = Job(Mesh(pp=2, dp=2, cp=1, tp=2), format="megatron-0.16", source="")
    other = Job(Mesh(dp=2, pp=2, tp=2), format="megatron-0.16", source="")
    assert codes(check_job(usual)) == []
    assert codes(check_job(other)) == ["RA180"]


def test_values_that_say_nothing():
    assert repr(Fix({"tp": 2}, ["x"])) == "Fix({'tp': 2}, ['x'])"
    assert check_numbers(numbers_of()) == []
