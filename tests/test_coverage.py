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


TWO, FOUR, PEERS = DataShard(Mesh(dp=2)), DataShard(Mesh(dp=4)), DataShard(Mesh(dp=2, tp=2))


def own(n, size, taken, **named):
    """What our samplers on `size` data ranks have read after `taken` micro-batches."""
    shard = DataShard(Mesh(dp=size))
    return [[m for _, m in zip(range(taken), ShardedSampler(n, shard, rank, **named))] for rank in range(size)]


class TestArraysAndTensors:
    """The same samples, in whatever holds them."""

    def test_of_torch(self):
        torch = pytest.importorskip("torch")
        whole = {0: torch.arange(0, 8, 2), 1: torch.arange(1, 8, 2, dtype=torch.int32)}
        for table in (
            whole,
            [*whole.values()],
            torch.stack([*map(torch.Tensor.long, whole.values())]),
            {rank: list(read) for rank, read in whole.items()},
            {rank: [read[:3], read[3]] for rank, read in whole.items()},
            {rank: [[read[:1], read[1]], (read[2:],)] for rank, read in whole.items()},
            {rank: read.reshape(2, 2) for rank, read in whole.items()},
        ):
            assert coverage(table, TWO).covered == 8
        assert examined([torch.tensor([]), torch.tensor([0])], TWO).per_data_rank == [0, 1]
        for bad in (
            torch.tensor([1.5]),
            torch.tensor([True]),
            [torch.tensor(0.5)],
            torch.ones(2, dtype=torch.bfloat16),
        ):
            with refused(IntegerError, "rank 0"):
                coverage({0: bad}, TWO)
        with refused(InputError, "cannot be read"):
            coverage({0: torch.arange(3, device="meta")}, TWO)
        with refused(InputError, "by rank"):
            coverage(torch.tensor(3), TWO)

    def test_of_jax(self):
        numpy = pytest.importorskip("jax.numpy")
        whole = [numpy.arange(0, 8, 2), numpy.arange(1, 8, 2)]
        assert coverage(whole, TWO).covered == coverage([*map(list, whole)], TWO).covered == 8

    def test_of_numpy(self):
        for table in (
            [[np.array(0)], [np.array([1])]],
            [[np.int32(0)], np.array(1)],
            [np.array([0], object), [[[np.uint8(1)]]]],
        ):
            assert coverage(table, TWO).covered == 2
        ragged = np.empty(2, object)
        ragged[:] = [np.array([0, 2]), np.array([4])]
        assert coverage([ragged, [1, 3, 5]], TWO).covered == 6
        assert examined([np.array([]), [0]], TWO).per_data_rank == [0, 1]

    def test_steps_of_our_own_sampler(self):
        samplers = [ShardedSampler(24, TWO, rank, global_batch=12, micro_batch=3) for rank in range(2)]
        assert coverage([list(sampler.steps()) for sampler in samplers], TWO, 24).ok

    @pytest.mark.parametrize("bad", [range(2**61), range(2**80), range(-3, 0)], ids=str)
    def test_ranges_that_cannot_be(self, bad):
        with refused(InputError, "rank 0"):
            coverage({0: bad}, TWO)

    def test_lists_without_end(self):
        endless = []
        endless.append(endless)
        with refused(InputError, "lists in lists"):
            coverage({0: endless}, TWO)


class TestNoCauseIsMadeUp:
    """Tables that several causes explain, and tables whose cause is none of the known shapes."""

    @pytest.mark.parametrize(
        ("table", "shard"),
        [
            ([range(0, 500, 2), range(1, 500, 2)], TWO),
            ([range(rank, 250, 4) for rank in range(4)], FOUR),
            ([range(250), range(500, 750)], TWO),
            ([range(rank * 250, rank * 250 + 62) for rank in range(4)], FOUR),
            (own(1000, 2, 20, global_batch=12, micro_batch=3, shuffle=False), TWO),
            (own(1000, 2, 125, global_batch=4, micro_batch=2, shuffle=False), TWO),
        ],
    )
    def test_the_beginning_of_an_epoch(self, table, shard):
        with refused(DataCoverageError, "unfinished epoch", kinds=("unfinished",)):
            coverage(table, shard, 1000)

    def test_the_beginning_of_a_shuffled_epoch(self):
        half = own(1000, 2, 125, global_batch=4, micro_batch=2)
        with refused(DataCoverageError, "sharded twice", "epoch is unfinished", kinds=("part-of-each-share",)):
            coverage(half, TWO, 1000)
        with refused(DataCoverageError, "unfinished", kinds=("missing",)):
            coverage(own(1000, 2, 90, global_batch=4, micro_batch=2), TWO, 1000)

    @pytest.mark.parametrize(("n", "shuffle"), [(8, False), (1000, False), (1000, True), (1001, True), (10, False)])
    def test_a_rank_of_each_data_rank_of_a_sampler_over_the_world(self, n, shuffle):
        table = {rank: torch_distributed(n, 4, rank, shuffle=shuffle) for rank in (0, 2)}
        words = ("world of 4 ranks", "num_replicas=2", "sharded twice", "leave one of the two out")
        with refused(DataCoverageError, *words, kinds=("part-of-each-share",)):
            coverage(table, PEERS, n)

    def test_three_ranks_of_four(self):
        table = {rank: torch_distributed(60, 4, rank, shuffle=True) for rank in range(3)}
        assert found(table, PEERS, 60)[0] == "sharded-by-world"
        agreeing = {0: [0, 4], 1: [0, 4], 2: [3, 7]}
        assert found(agreeing, PEERS, 8) == ("sharded-twice",)

    def test_peers_that_agree_are_not_sharded_by_the_world(self):
        with refused(DataCoverageError, "rank 3 reads [1, 4]", ranks=[3]):
            coverage({0: [0, 2], 1: [0, 2], 2: [1, 3], 3: [1, 4]}, PEERS)
        assert "sharded-by-world" not in found({0: [0, 2], 1: [0, 2], 2: [1, 3], 3: [1, 4]}, PEERS)
        assert found({0: [0], 1: [1], 2: [2], 3: [2]}, PEERS)[0] == "peers-disagree"

    def test_peers_of_which_little_is_known(self):
        few = {rank: torch_distributed(10**5, 2, rank // 2, seed=rank, shuffle=True)[:3] for rank in range(4)}
        with refused(DataCoverageError, "num_replicas=2", "seeds"):
            coverage(few, PEERS, 10**5)
        assert found(few, PEERS, 10**5)[0] == "peers-disagree"

    @pytest.mark.parametrize(
        ("table", "samples", "kind", "words"),
        [
            ([range(0, 1000, 2), []], None, "missing", ("499 are missing", "Data rank 1 reads nothing")),
            ([range(0, 1000, 2), []], 1000, "missing", ("500 are missing",)),
            ([range(1000), []], None, "uneven-shares", ("1000, 0 samples", "once")),
            ([range(100), range(50, 149)], None, "repeated", ("100, 99 samples", "50 reads repeat")),
            ([range(0, 100, 2), [*range(1, 60, 2), *range(1, 100, 2)]], None, "repeated",
             ("50, 80 samples", "30 of data rank 1")),
            ([range(0, 10, 2), [1, 3, 7, 9]], None, "missing", ("5, 4 samples", "1 is missing")),
            ([range(0, 10, 2), [1, 3, 3, 7, 9]], None, "missing", ("1 is missing", "1 read repeats")),
            ([[0, 1, 2, 3, 4], [0, 5, 6, 7, 8]], None, "repeated", ("1 read repeats", "padded=1")),
        ],
    )  # fmt: skip
    def test_readers_that_die_restart_and_lose(self, table, samples, kind, words):
        with refused(DataCoverageError, *words, kinds=(kind,)):
            coverage(table, TWO, samples)

    @pytest.mark.parametrize("n", [14, 15, 17, 18, 61])
    @pytest.mark.parametrize("batch", [1, 2, 3])
    def test_tails_of_batches_dealt_out_in_turn(self, n, batch):
        shares = [[at for at in range(n) if at // batch % 4 == rank] for rank in range(4)]
        if len({*map(len, shares)}) > 1:
            assert found(shares, FOUR) == ("tail-per-rank",)

    @given(st.integers(2, 4), st.integers(2, 60), st.data())
    def test_no_beginning_of_an_epoch_is_called_sharded_twice(self, size, steps, data):
        n = size * steps
        taken = data.draw(st.integers(1, steps - 1))
        parts = [range(rank, size * taken, size) for rank in range(size)]
        assert found(parts, DataShard(Mesh(dp=size)), n) == ("unfinished",)


class TestWhatIsSaid:
    def test_of_samples_that_come_again_or_are_left_out(self):
        padded = coverage({0: [0, 1, 2], 1: [3, 4, 0]}, TWO, 5, padded=1)
        assert padded.lines() == ["all 5 of 5 samples are read, and 1 read repeats a sample, as is allowed"]
        assert padded.to_dict()["read"] == 6
        dropped = coverage([[0, 1], [2, 3]], TWO, 6, dropped=2)
        assert dropped.lines() == ["4 of 6 samples are read exactly once; 2 are left out, as is allowed"]

    @pytest.mark.parametrize("samples", [None, 1, 8])
    def test_nothing_read_proves_nothing(self, samples):
        for shard, table in ((TWO, [[], []]), (DataShard(Mesh(tp=2)), [[], []]), (TWO, {0: []})):
            with refused(DataCoverageError, "nothing is proven", kinds=("missing",), covered_count=0):
                coverage(table, shard, samples, dropped=8)

    @pytest.mark.parametrize("allowed", [{"dropped": -1}, {"padded": -1}])
    def test_less_than_nothing_is_not_allowed(self, allowed):
        with refused(InputError, f"{next(iter(allowed))}=-1"):
            coverage([[0], [1]], TWO, **allowed)
        for bad in (True, 1.0, None, "1"):
            with refused(IntegerError):
                coverage([[0], [1]], TWO, **dict.fromkeys(allowed, bad))


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
        for none in ({}, [], {"world_size": 0}):
            with refused(DataResumeError, "none for any of 2", missing_states=[0, 1]):
                check_loader_states(none, 2)
        with refused(DataResumeError, "of 2 data ranks, and there are none", "where the checkpoint keeps them"):
            check_loader_states({"world_size": 2}, 2)
        check_loader_states({"dp-0": 0, "dp-1": 0}, 2)

    @pytest.mark.parametrize(
        "bad",
        [
            None,
            4,
            "states",
            {"dp": 0},
            {None: 0},
            {-1: 0},
            {True: 0},
            {"0": 0, "dp_rank_0": 0},
            {"9" * 30: 0},
            {"dp_rank_-1": 1},
            {"-1": 1},
            {"rank=-0": 1},
        ],
    )
    def test_no_states(self, bad):
        with refused(InputError):
            check_loader_states(bad, 2)

    def test_no_data_size(self):
        with refused(SizeError):
            check_loader_states([0], 0)
