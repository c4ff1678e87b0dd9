"""Cases of tests/cases/data.json: batches, samplers, slices and resumes that users reported elsewhere."""

import json
from pathlib import Path

import pytest

from rankatlas import Mesh
from rankatlas.batches import BatchPlan
from rankatlas.errors import BatchError, DataCoverageError, DataResumeError
from rankatlas.sampling import DataShard, ShardedSampler, check_loader_states, coverage
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


def check_a_sampler_case(given, expected):
    mesh, n = mesh_of(given), given["samples"]
    shard = DataShard(mesh)
    right = {int(rank): samples for rank, samples in expected["samples_by_rank"].items()}
    assert shard.data_size == expected["sampler_args"]["num_replicas"]
    assert all(shard.data_rank(rank) == mesh.coordinate(rank)["dp"] for rank in right)
    assert coverage(expected["samples_by_rank"], shard, n).ok
    if given["policy"] == "strided":
        for rank, samples in right.items():
            own = ShardedSampler(n, shard, rank, global_batch=shard.data_size, micro_batch=1, shuffle=False)
            assert [index for indexes in own for index in indexes.tolist()] == samples
    replicas = expected["wrong_default"]["num_replicas"]
    with refused(DataCoverageError, f"num_replicas={shard.data_size}", kinds=("sharded-by-world",)):
        coverage({rank: range(rank, n, replicas) for rank in right}, shard, n)


def check_a_coverage_case(given, expected):
    shard = DataShard(Mesh(dp=given["dp"]))
    covered, missing = expected["covered"], expected["missing"]
    with refused(DataCoverageError, *expected["error"]["must_mention"], covered=covered, missing=missing):
        coverage(given["samples_by_rank"], shard, given["samples"])


def check_a_resume_dp_change_case(given, expected):
    saved = {f"dp_rank_{rank}": b"" for rank in range(given["saved_dp"])}
    words, orphaned = expected["error"]["must_mention"], expected["orphaned_states"]
    for states in (saved, list(saved.values()), dict(enumerate(saved.values()))):
        with refused(DataResumeError, *words, orphaned_states=orphaned):
            check_loader_states(states, given["current_dp"])


def check_a_sequence_shards_case(given, expected):
    mesh = mesh_of(given)
    size = mesh.size("sp")
    shard = DataShard(mesh)
    # Every rank reads the sequence of its data rank, and holds one slice of it.
    assert shard.data_size == mesh.size("dp")
    assert [shard.agreement_group(rank).size for rank in range(mesh.world_size)] == [size] * mesh.world_size
    slices = sequence_slices(64 * size, size)
    held = [slices[mesh.coordinate(rank)["sp"]] for rank in shard.ranks(0)]
    assert {len(parts) for parts in held} == {expected["shards_per_rank_per_sequence"]}
    assert len({*held}) == expected["distinct_shards"] == expected["wrong_seen"]


CHECKS = {
    "sampler": check_a_sampler_case,
    "coverage": check_a_coverage_case,
    "resume-dp-change": check_a_resume_dp_change_case,
    "sequence-shards": check_a_sequence_shards_case,
    "validate-batch": check_a_validate_batch_case,
    "elastic-resume": check_an_elastic_resume_case,
    "cp-slices": check_a_cp_slices_case,
    "reduction-group": check_a_reduction_group_case,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case):
    CHECKS[case["kind"]](case["input"], case["expected"])
