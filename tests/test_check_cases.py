"""Cases about launches: what users reported elsewhere, and ours beside them; one small function per kind."""

import json
from pathlib import Path

import pytest

from rankatlas import Atlas, Mesh
from rankatlas.batches import BatchPlan
from rankatlas.checks import Numbers, check_job, check_numbers
from rankatlas.cluster import Cluster, crossing, differing_places, natural_order, string_order
from rankatlas.errors import BatchError, PipelineSplitError
from rankatlas.job import Fact, Job
from rankatlas.pipeline import pipeline_split
from refusals import refused

CASES = json.loads(Path(__file__, "../cases/checks.json").resolve().read_text(encoding="utf-8"))


def finding(findings, *words):
    """The one finding among them whose message has all these words."""
    (found,) = [one for one in findings if all(word in one.message for word in words)]
    assert all(word in one for word in words for one in (found.told("message", "zh"),) if word.isdigit())
    return found


def numbers_of(given, **origins):
    return Numbers([Fact(name, value, origins.get(name, "given")) for name, value in given.items()])


def check_a_validate_case(given, expected):
    degrees = dict(given["degrees"])
    if "rollout_tp" in degrees:
        numbers = numbers_of({"world": given["world_size"], **degrees}, rollout_tp=given["rollout_tp_source"])
        found = finding(check_numbers(numbers), *expected["error"]["must_mention"])
        assert found.numbers["legal"] == expected["legal"]
        return
    # A size that does not fit has no layout; it is checked beside that of the dense layers.
    job = Job(Mesh.from_axes(degrees.items()), format="notation", source="")
    numbers = Numbers.of(job, [Fact("ep", given["ep"], "given"), Fact("experts", given["num_experts"], "given")])
    assert numbers["world"] == given["world_size"]
    found = finding(check_numbers(numbers), *expected["error"]["must_mention"])
    assert found.severity == "error"
    assert (found.numbers["remainder"], found.numbers["legal"]) == (expected["remainder"], expected["legal_ep"])


def check_an_explain_case(given, expected):
    tp, pp, ep = given["tp"], given["pp"], given["ep"]
    dense = Mesh(pp=pp, dp=given["world_size"] // tp // pp, tp=tp)
    etp = tp if given["etp"] is None else given["etp"]
    if "error" in expected:
        said = {"world": given["world_size"], "dp": dense.size("dp"), "tp": tp, "pp": pp, "ep": ep, "etp": etp}
        found = finding(check_numbers(numbers_of(said, etp="inherited from tp")), *expected["error"]["must_mention"])
        assert (found.severity, found.numbers["etp"]) == ("error", expected["etp"])
        assert [dict(fix.changes) for fix in found.fixes] == expected["fixes"]
        return
    expert = Mesh(pp=pp, edp=given["world_size"] // pp // ep // etp, ep=ep, etp=etp)
    job = Job(
        Atlas(dense=dense, expert=expert, shared=("pp",)),
        format="megatron-0.16",
        source="",
        facts=[Fact("etp", etp, "inherited from tp")],
    )
    (found,) = check_job(job)
    assert found.severity == "note"
    assert all(word in found.message for word in expected["note_words"])
    alone = expected["if_etp_were_1"]
    told = [found.numbers[name] for name in ("etp", "expert_block", "edp", "one_block", "one_edp")]
    assert told == [expected["etp"], expected["expert_block"], expected["edp"], alone["expert_block"], alone["edp"]]
    assert found.fixes[0].lines == ("--expert-tensor-parallel-size 1",)


def check_a_validate_batch_case(given, expected):
    batch, micro = given["global_batch"], given["micro_batch"]
    words = expected["error"]["must_mention"]
    sizes = {"global_batch": batch, "micro_batch": micro}
    if "target" in given:
        saved, target = (part["world"] // part["tp"] // part["pp"] for part in (given["saved"], given["target"]))
        assert (saved, target) == (expected["dp_saved"], expected["dp_target"])
        with refused(BatchError, *words, *expected["hint_words"]):
            BatchPlan(batch, micro, saved).resized(target)
        data = target
    else:
        data = given["dp"]
        sizes |= {"accumulation": given["grad_acc"]} if "grad_acc" in given else {}
        with refused(BatchError, *words):
            BatchPlan(batch, micro, data, accumulation=given.get("grad_acc"))
    found = finding(check_numbers(numbers_of({**sizes, "dp": data})), *words)
    for name in ("product", "remainder"):
        assert found.numbers.get(name) == expected.get(name, found.numbers.get(name))
    assert found.numbers["legal"] == expected.get("legal_dp", found.numbers["legal"])
    assert all(word in found.why for word in expected.get("hint_words", ()))


def check_a_validate_heads_case(given, expected):
    found = finding(check_numbers(numbers_of(given)), *expected["error"]["must_mention"])
    assert (found.severity, found.numbers["remainder"]) == ("error", expected["remainder"])
    assert found.numbers["legal"] == expected["legal"]


def check_a_pipeline_split_case(given, expected):
    asked = {"policy": given.get("policy") or "even", "explicit": given.get("explicit")}
    virtual = given.get("vpp", 1)
    facts = {"layers": given["num_layers"], "pp": given["pp"], "virtual_stages": virtual}
    if given.get("explicit"):
        facts["stage_layers"] = given["explicit"]
    if given.get("policy"):
        facts["layer_split"] = given["policy"]
    findings = [one for one in check_numbers(numbers_of(facts)) if one.code in ("RA130", "RA131")]
    if "error" not in expected:
        split = pipeline_split(given["num_layers"], given["pp"], virtual, **asked)
        assert (split.sizes, split.offsets) == (expected["sizes"], expected["offsets"])
        assert findings == []
        return
    fields = {name: value for name, value in expected.items() if name != "error"}
    with refused(PipelineSplitError, *expected["error"]["must_mention"], **fields):
        pipeline_split(given["num_layers"], given["pp"], virtual, **asked)
    assert finding(findings, *expected["error"]["must_mention"])


def check_a_virtual_pipeline_case(given, expected):
    split = pipeline_split(given["num_layers"], given["pp"], given["vpp"])
    for stage, chunks in expected["chunks_by_stage"].items():
        assert [list(chunk) for chunk in split.chunks(int(stage))] == chunks


def check_a_crossing_report_case(given, expected):
    cluster = Cluster.of(given["world_size"] // given["gpus_per_node"], given["gpus_per_node"])
    for order, truth in zip(given["orders"], expected["crossing_groups"]):
        mesh = Mesh.from_axes([(axis, given["degrees"][axis]) for axis in order])
        assert {axis: list(crossing(mesh, axis, cluster).indices()) for axis in truth} == truth


def check_a_node_order_case(given, expected):
    assert given["launcher_sort"] == "string"
    letters, natural = string_order(given["hosts"]), natural_order(given["hosts"])
    assert (letters, natural) == (expected["order_assigned"], expected["natural"])
    assert differing_places(letters, natural) == expected["positions_that_differ"]
    world = len(letters)
    job = Job(Mesh(dp=world), format="notation", source="")
    found = finding(check_job(job, Cluster.of(world, 1, letters)), *expected["warning_words"])
    assert found.severity == "warning"
    assert found.numbers["places"] == expected["positions_that_differ"]


def check_an_uneven_nodes_case(given, expected):
    cluster = Cluster(given["gpus_by_node"])
    assert [cluster.node(rank) for rank in range(cluster.slots)] == expected["node_of_rank"]
    for degrees in given["degrees"]:
        mesh = Mesh.from_axes(degrees.items())
        assert mesh.world_size == cluster.slots
        truth = expected[f"tp{degrees['tp']}"]
        assert [list(group) for group in mesh.groups("tp")] == truth["groups"]
        assert list(crossing(mesh, "tp", cluster).indices()) == truth["crossing"]
        codes = [one.code for one in check_job(Job(mesh, format="notation", source=""), cluster)]
        assert ("RA172" in codes) == bool(truth["crossing"])


CHECKS = {
    "validate": check_a_validate_case,
    "explain": check_an_explain_case,
    "validate-batch": check_a_validate_batch_case,
    "validate-heads": check_a_validate_heads_case,
    "pipeline-split": check_a_pipeline_split_case,
    "virtual-pipeline": check_a_virtual_pipeline_case,
    "crossing-report": check_a_crossing_report_case,
    "node-order": check_a_node_order_case,
    "uneven-nodes": check_an_uneven_nodes_case,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case):
    CHECKS[case["kind"]](case["input"], case["expected"])


def test_the_cases_of_this_issue_are_all_here():
    ids = [case["id"] for case in CASES]
    assert len(set(ids)) == len(ids)
    assert {case["kind"] for case in CASES} == set(CHECKS)
    wanted = {f"VAL-{number:03d}" for number in (5, 7, 9, 11, 13)} | {"PP-001", "PP-003", "PP-005"}
    assert wanted | {"PLACE-001", "PLACE-003", "PLACE-007"} <= set(ids)
