"""Cases of tests/cases/data.json: batches, samplers, slices and resumes that users reported elsewhere."""

import json
from pathlib import Path

import pytest

from rankatlas import Mesh
from rankatlas.batches import BatchPlan
from rankatlas.errors import BatchError
from rankatlas.sequence import sequence_slices
from refusals import refused

CASES = json.loads(Path(__file__, "../cases/data.json").resolve().read_text(encoding="utf-8"))


def mesh_of(given):
    return Mesh.from_axes([(axis, given["degrees"][axis]) for axis in given["order"]])


def data_size(given):
    """World size over the model's sizes: what a launcher computes."""
    return given["world"] // (given["tp"] * given["pp"])


def check_a_validate_batch_case(given, expected):
    words = expected["error"]["must_mention"]
    whole, micro = given["global_batch"], given["micro_batch"]
    if "saved" in given:
        before, after = data_size(given["saved"]), data_size(given["target"])
        assert (before, after) == (expected["dp_saved"], expected["dp_target"])
        with refused(BatchError, *words, *expected["hint_words"], remainder=expected["remainder"]):
            BatchPlan(whole, micro, before).resized(after)
        return
    legal = expected["legal_dp"]
    with refused(BatchError, *words, product=expected["product"], legal_data_sizes=legal):
        BatchPlan(whole, micro, given["dp"], accumulation=given["grad_acc"])
    with refused(BatchError, *words, legal_data_sizes=legal):
        BatchPlan(whole, micro, given["dp"])


def check_an_elastic_resume_case(given, expected):
    before, after = data_size(given["before"]), data_size(given["after"])
    assert (before, after) == (expected["dp_before"], expected["dp_after"])
    plan = BatchPlan(given["global_batch"], given["micro_batch"], before)
    legal, remainder = expected["legal_dp"], expected["remainder"]
    with refused(BatchError, *expected["error"]["must_mention"], legal_data_sizes=legal, remainder=remainder):
        plan.resized(after)
    consumed = given["consumed_samples"]
    for size in legal:
        kept = plan.resized(size)
        assert kept.positions(consumed // kept.global_batch, 0, 0).start == expected["next_sample_if_kept"]


def check_a_cp_slices_case(given, expected):
    tokens = given["sequence"]
    slices = sequence_slices(len(tokens), given["cp"], given["layout"].partition(" ")[0])
    assert [[tokens[at] for part in parts for at in part] for parts in slices] == expected["shards"]


def check_a_reduction_group_case(given, expected):
    mesh, tokens = mesh_of(given), given["tokens_by_rank"]

    def counted(*axes):
        return {str(list(group)): sum(tokens[str(rank)] for rank in group) for group in mesh.groups(*axes)}

    assert [list(group) for group in mesh.groups(*given["order"])] == expected["correct_group"]
    assert list(counted(*given["order"]).values()) == [expected["correct_total"]]
    assert counted("dp") == expected["wrong_over_dp_only"]


CHECKS = {
    "validate-batch": check_a_validate_batch_case,
    "elastic-resume": check_an_elastic_resume_case,
    "cp-slices": check_a_cp_slices_case,
    "reduction-group": check_a_reduction_group_case,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case):
    CHECKS[case["kind"]](case["input"], case["expected"])
