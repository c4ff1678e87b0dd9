"""Somebody's samples against the layout: right tables pass, wrong ones are named for what they are."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankatlas import Mesh
from rankatlas.errors import DataCoverageError, DataResumeError, InputError, IntegerError, RankError, SizeError
from rankatlas.sampling import DataShard, ShardedSampler, check_loader_states, coverage
from rankatlas.sampling.coverage import examined
from refusals import refused

MESH = Mesh(pp=2, dp=4, tp=2)
SHARD = DataShard(MESH)


def table(share, mesh=MESH):
    """rank → share(its data rank)."""
    return {rank: list(share(DataShard(mesh).data_rank(rank))) for rank in range(mesh.world_size)}


def torch_distributed(n, replicas, rank, *, drop_last=False, seed=0, shuffle=False):
    """What torch.utils.data.DistributedSampler gives (torch 2.13), in a few lines."""
    order = list(np.random.default_rng(seed).permutation(n)) if shuffle else list(range(n))
    total = n // replicas * replicas if drop_last else -(-n // replicas) * replicas
    order = [*order, *order[: max(0, total - n)]][:total]
    return [int(sample) for sample in order[rank::replicas]]


def found(samples_by_rank, shard, samples=None, **allowed):
    """The kinds of what is wrong."""
    with pytest.raises(DataCoverageError) as caught:
        coverage(samples_by_rank, shard, samples, **allowed)
    return caught.value.kinds


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.sampled_from(["drop", "pad"]), st.data())
def test_our_own_samplers_pass(size, micro, accumulation, tail, data):
    batch = size * micro * accumulation
    n = data.draw(st.integers(batch if tail == "drop" else 1, 5 * batch))
    shard = DataShard(Mesh(dp=size, tp=2))
    samplers = [
        ShardedSampler(n, shard, rank, global_batch=batch, micro_batch=micro, tail=tail) for rank in range(2 * size)
    ]
    dropped, padded = samplers[0].dropped, samplers[0].padded
    passed = coverage([list(own) for own in samplers], shard, n, dropped=dropped, padded=padded)
    assert (passed.ok, passed.covered) == (True, n - dropped)


@given(st.integers(1, 4), st.lists(st.lists(st.integers(0, 12)), min_size=1, max_size=4), st.integers(1, 16))
def test_against_counting(tp, shares, samples):
    shard = DataShard(Mesh(dp=len(shares), tp=tp))
    answer = examined({rank: shares[rank // tp] for rank in range(tp * len(shares))}, shard, samples)
    counts = Counter(sample for share in shares for sample in share)
    assert answer.covered == sum(sample < samples for sample in counts)
    assert answer.missing == [sample for sample in range(samples) if sample not in counts]
    assert answer.repeated == sorted(sample for sample in counts if counts[sample] > 1 and sample < samples)
    once = all(counts[sample] == 1 for sample in range(samples)) and max(counts, default=0) < samples
    assert answer.ok == (once and len({len(share) for share in shares}) == 1)
    assert answer.to_dict()["ok"] == answer.ok


def test_a_table_may_leave_out_peers_and_name_ranks_as_json_does():
    passed = coverage({"0": [0, 4], "2": [1, 5], "4": [[2], [6]], "6": np.array([[3, 7]])}, SHARD)
    assert (passed.samples, passed.unheard, passed.per_data_rank) == (8, 12, [2, 2, 2, 2])
    assert passed.lines() == ["all 8 of 8 samples are read exactly once"]


class TestDiagnosis:
    @pytest.mark.parametrize("shuffle", [False, True])
    @pytest.mark.parametrize("n", [64, 61])
    def test_sharded_by_the_world(self, n, shuffle):
        by_world = {rank: torch_distributed(n, 16, rank, shuffle=shuffle) for rank in range(16)}
        with refused(DataCoverageError, "shards by the world", "num_replicas=4", kinds=("sharded-by-world",)):
            coverage(by_world, SHARD, n)

    @pytest.mark.parametrize("n", [64, 61, 1000])
    def test_sharded_twice(self, n):
        def twice(rank):
            once = torch_distributed(n, 4, rank, drop_last=True)
            return [once[place] for place in torch_distributed(len(once), 4, rank, drop_last=True)]

        assert found(table(twice), SHARD, n) == ("sharded-twice",)

    def test_not_sharded_and_one_share_for_all(self):
        assert found(table(lambda _: range(16)), SHARD) == ("not-sharded",)
        assert found(table(lambda _: range(0, 16, 4)), SHARD, 16) == ("one-share-for-all",)

    def test_tails_per_rank(self):
        assert found(table(lambda rank: range(rank, 14, 4)), SHARD, 14) == ("tail-per-rank",)
        assert found(table(lambda rank: range(rank * 10, rank * 10 + 8)), SHARD, 40) == ("tail-per-rank",)

    def test_padding_of_distributed_sampler(self):
        assert found(table(lambda rank: torch_distributed(14, 4, rank)), SHARD, 14) == ("padded",)
        assert coverage(table(lambda rank: torch_distributed(14, 4, rank)), SHARD, 14, padded=2).ok

    def test_peers(self):
        shares = table(lambda rank: range(rank, 16, 4))
        shares[1] = shares[1][::-1]
        with refused(DataCoverageError, "rank 1", "another order", kinds=("peers-order",), ranks=[1]):
            coverage(shares, SHARD)
        shares[9] = [15, 15, 15, 15]
        with refused(DataCoverageError, "rank 1", "pp, tp", kinds=("peers-disagree",), ranks=[1, 9]):
            coverage(shares, SHARD)

    def test_what_is_just_wrong(self):
        assert found({0: [0], 2: [1], 4: [2]}, SHARD) == ("data-rank-unknown",)
        assert found([[0, 1], [2, 9]], DataShard(Mesh(dp=2)), 4) == ("outside", "missing")
        assert found([[0, 1], [2, 1]], DataShard(Mesh(dp=2)), 3) == ("padded",)
        assert found([[0, 0, 1, 2], [1, 1, 2, 3]], DataShard(Mesh(dp=2)), 4) == ("repeated",)
        assert found([[], []], DataShard(Mesh(dp=2)), 2) == ("missing",)
        with refused(DataCoverageError, "say dropped=2", missing=[4, 5], covered=[0, 1, 2, 3]):
            coverage([[0, 1], [2, 3]], DataShard(Mesh(dp=2)), 6)
        assert coverage([[0, 1], [2, 3]], DataShard(Mesh(dp=2)), 6, dropped=2).ok

    def test_few_of_very_many(self):
        shares = [np.arange(rank, 2**40, 2**37) for rank in range(2)]
        with refused(DataCoverageError, "16 of 1099511627776", "1099511627760 are missing", covered_count=16):
            coverage(shares, DataShard(Mesh(dp=2)), 2**40)

    def test_lists_are_bounded(self):
        answer = examined([range(0, 10_000, 2), range(0, 10_000, 2)], DataShard(Mesh(dp=2)), 10_000)
        assert (len(answer.missing), len(answer.repeated), answer.covered) == (1024, 1024, 5000)


class TestRefusals:
    @pytest.mark.parametrize("bad", [None, 8, "0,1", b"01", {}, [], {"a": [0]}, {"-1": [0]}, {"²": [0]}])
    def test_no_table(self, bad):
        with refused(InputError):
            coverage(bad, SHARD)

    @pytest.mark.parametrize("bad", [3, "01", {"0": 1}, [-1], [2**62], [2**200], np.array([2**63], np.uint64)])
    def test_no_samples(self, bad):
        with pytest.raises(InputError):
            coverage({0: bad}, SHARD)

    @pytest.mark.parametrize("bad", [[True], [1.5], [None], ["1"], [[1.0]], np.array([1.0]), np.array([True])])
    def test_samples_that_are_no_integers(self, bad):
        with pytest.raises(IntegerError):
            coverage({0: bad}, SHARD)

    def test_ranks(self):
        for rank in (-1, 16):
            with refused(RankError, str(rank)):
                coverage({rank: [0]}, SHARD)
        with refused(InputError, "twice"):
            coverage({0: [0], "0": [0]}, SHARD)
        with refused(RankError):
            coverage([[0]] * 17, SHARD)
        for samples in (0, -1, 2**63):
            with refused(InputError):
                coverage({0: [0]}, SHARD, samples)


class TestLoaderStates:
    def test_as_many_as_data_ranks(self):
        check_loader_states([{}, {}], 2)
        check_loader_states({1: b"", 0: b""}, 2)
        check_loader_states({"dp_rank_0": b"", "dp_rank_1": b"", "world_size": 2}, 2)

    def test_shrunk(self):
        saved = {f"dp_rank_{rank}": b"" for rank in range(4)}
        with refused(DataResumeError, "4 data ranks", "by 2", "2, 3", orphaned_states=[2, 3], missing_states=[]):
            check_loader_states(saved, 2)

    def test_grown(self):
        with refused(DataResumeError, "none for 2, 3", orphaned_states=[], missing_states=[2, 3]):
            check_loader_states([0, 0], 4)
        with refused(DataResumeError, "2 data ranks", str(2**40)):
            check_loader_states([0, 0], 2**40)

    def test_incomplete(self):
        with refused(DataResumeError, "of 4 data ranks", "there are 0, 1, 3", missing_states=[2]):
            check_loader_states({0: 0, 1: 0, 3: 0, "world_size": 4}, 4)
        with refused(DataResumeError, "3 data ranks (0, 1, 5)", orphaned_states=[5], missing_states=[2]):
            check_loader_states({0: 0, 1: 0, 5: 0}, 3)
        with refused(DataResumeError, "0, 1, 2, 3, … 99"):
            check_loader_states(range(100), 2)
        with refused(DataResumeError, "none"):
            check_loader_states({}, 2)

    @pytest.mark.parametrize(
        "bad", [None, 4, "states", {"dp": 0}, {None: 0}, {-1: 0}, {True: 0}, {"0": 0, "dp_rank_0": 0}, {"9" * 30: 0}]
    )
    def test_no_states(self, bad):
        with refused(InputError):
            check_loader_states(bad, 2)

    def test_no_data_size(self):
        with refused(SizeError):
            check_loader_states([0], 0)
