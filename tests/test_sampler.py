"""Samplers of one rank each, held against the global order; states, tails, and every wrong way to use them."""

import json
import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankatlas import Atlas, Mesh, Topology
from rankatlas.errors import (
    AtlasError,
    AxisError,
    BatchError,
    DataResumeError,
    DuplicateAxisError,
    InputError,
    IntegerError,
    RankError,
    SeedError,
    SizeTypeError,
    UnknownAxisError,
    UnnamedAxisError,
)
from rankatlas.sampling import DataShard, Order, ShardedSampler
from refusals import refused
from strategies import axes_of, ranks_of, small_meshes

small = st.integers(1, 5)


class TestShard:
    @given(small_meshes.flatmap(lambda mesh: st.tuples(st.just(mesh), axes_of(mesh), ranks_of(mesh))))
    def test_data_ranks_agreement_and_data_groups(self, drawn):
        mesh, axes, rank = drawn
        shard = DataShard(mesh, axes)
        every = range(mesh.first_rank, mesh.first_rank + mesh.world_size)
        of = {other: shard.data_rank(other) for other in every}
        sizes = dict(zip(mesh.axes, mesh.sizes))
        composed = 0
        for axis in axes:
            composed = composed * sizes[axis] + mesh.coordinate(rank)[axis]
        assert of[rank] == composed
        assert sorted({*of.values()}) == list(range(shard.data_size))
        same = [other for other in every if of[other] == of[rank]]
        assert shard.agreement_group(rank).ranks == same == shard.ranks(of[rank])
        assert rank in shard.data_group(rank)
        assert sorted(of[other] for other in shard.data_group(rank)) == list(range(shard.data_size))

    @given(*[small] * 5, st.permutations(("dp", "pp", "sharding", "mp", "sep")))
    def test_the_default_is_the_drop_ins_data_info(self, dp, pp, sharding, mp, sep, order):
        world = dp * pp * sharding * mp * sep
        topology = Topology(world - 1, world, dp, pp, sharding, mp, sep, order=order)
        shard = DataShard(topology)
        info = topology.data_info
        assert (shard.data_size, shard.data_rank(world - 1)) == (info.size, info.rank)
        assert [shard.data_rank(rank) for rank in range(world)] == list(info.world)
        assert shard.agreement_group(0).size == topology.data_inner_times
        assert shard == DataShard(topology.mesh)

    def test_the_default_takes_the_axes_there_are(self):
        assert DataShard(Mesh(pp=2, dp=2, tp=2)).axes == ("dp",)
        assert DataShard(Mesh(sharding=4, tp=2)).axes == ("sharding",)
        assert DataShard(Mesh(pp=2, cp=2)).data_size == 1
        assert DataShard(Mesh(dp=2, rows=1, dp_shard=1)).data_size == 2

    def test_the_default_refuses_to_leave_out_what_may_split_the_data(self):
        with refused(AxisError, "dp_shard", "axes=('dp', 'dp_shard',)"):
            DataShard(Mesh(dp=2, dp_shard=2))
        with refused(UnnamedAxisError, "ep=4", "axes=('dp',)", "axes=('dp', 'ep')", forgotten=("ep",)):
            DataShard(Mesh(dp=2, ep=4))
        assert DataShard(Mesh(dp=2, ep=4), ["dp", "ep"]).data_size == 8
        assert DataShard(Mesh(dp=2, ep=4), "dp").data_size == 2

    def test_charts_of_an_atlas(self):
        atlas = Atlas(dense=Mesh(pp=2, dp=4, tp=2), expert=Mesh(pp=2, edp=2, ep=4), shared=("pp",))
        assert DataShard(atlas) == DataShard(atlas["dense"])
        assert DataShard(atlas, ("dense.dp",)) == DataShard(atlas["dense"], "dp")
        assert DataShard(atlas, ("expert.edp", "expert.ep")).data_size == 8
        two = Atlas(train=Mesh(dp=4), rollout=Mesh(dp=2, first_rank=4))
        with refused(AtlasError, "train.dp or rollout.dp"):
            DataShard(two)
        with refused(RankError, "4"):
            DataShard(two, "train.dp").data_rank(4)
        with refused(AxisError, "dp or sharding"):
            DataShard(Atlas(a=Mesh(tp=2), b=Mesh(ep=2)))

    def test_what_cannot_be_shared_over(self):
        with refused(UnknownAxisError, "'dq'", "Did you mean 'dp'?"):
            DataShard(Mesh(dp=2), axes=("dq",))
        with refused(UnknownAxisError, "sharding"):
            DataShard(Mesh(dp=2), axes=("sharding", "dp"))
        with refused(DuplicateAxisError, "dp"):
            DataShard(Mesh(dp=2), axes=("dp", "dp"))
        for bad in (None, 8, "dp=8", {"dp": 8}):
            with refused(InputError, "Mesh"):
                DataShard(bad)
        for bad in ({"dp"}, None, [1]):
            with refused(InputError, "axes"):
                DataShard(Mesh(dp=2), axes=bad)
        for rank in (-1, 2):
            with refused(RankError):
                DataShard(Mesh(dp=2)).ranks(rank)

    def test_a_shard_of_any_world_costs_nothing(self):
        shard = DataShard(Mesh(pp=2**10, dp=2**40, tp=2**10))
        assert shard.data_rank(2**60 - 1) == 2**40 - 1
        assert shard.agreement_group(0).size == 2**20

    def test_a_shard_is_a_value(self):
        shard = DataShard(Mesh(dp=2, tp=2))
        assert eval(repr(shard)) == shard == pickle.loads(pickle.dumps(shard)) != DataShard(Mesh(dp=2))
        assert hash(shard) == hash(DataShard(Mesh(dp=2, tp=2)))


@st.composite
def setups(draw):
    """(data size, micro batch, accumulation, n, tail) with at least one whole batch."""
    size, micro, accumulation = draw(small), draw(small), draw(small)
    batch = size * micro * accumulation
    tail = draw(st.sampled_from(["drop", "pad"]))
    n = draw(st.integers(batch if tail == "drop" else 1, 6 * batch))
    return size, micro, accumulation, n, tail


def sampler(n, size, rank=0, micro=1, accumulation=1, **named):
    if "global_batch" not in named:
        named["global_batch"] = size * micro * accumulation
    return ShardedSampler(n, DataShard(Mesh(dp=size)), rank, micro_batch=micro, **named)


class TestEpoch:
    @given(setups(), st.integers(0, 3), st.booleans())
    def test_every_rank_reads_its_places_of_the_one_order(self, setup, epoch, shuffle):
        size, micro, accumulation, n, tail = setup
        batch = size * micro * accumulation
        length = -(-n // batch) * batch if tail == "pad" else n // batch * batch
        order = Order(n, 5, epoch, shuffle=shuffle)
        expected = [order(place % n) for place in range(length)]
        read = [None] * length
        for rank in range(size):
            own = sampler(n, size, rank, micro, accumulation, seed=5, shuffle=shuffle, tail=tail)
            own.set_epoch(epoch)
            assert (own.dropped, own.padded) == (max(0, n - length), max(0, length - n))
            assert len(own) == length // (size * micro)
            for place, indexes in enumerate(own):
                assert indexes.dtype == np.int64
                step, micro_step = divmod(place, accumulation)
                first = step * batch + (micro_step * size + rank) * micro
                read[first : first + micro] = indexes.tolist()
                assert own.consumed == (place + 1) * size * micro or own.epoch == epoch + 1
        assert read == expected
        if length <= n:
            assert len({*read}) == length

    @given(setups())
    def test_steps_are_the_micro_batches_in_their_steps(self, setup):
        size, micro, accumulation, n, tail = setup
        one, other = (sampler(n, size, size - 1, micro, accumulation, tail=tail) for _ in range(2))
        steps = list(one.steps())
        assert [len(step) for step in steps] == [accumulation] * (len(other) // accumulation)
        assert [indexes.tolist() for step in steps for indexes in step] == [indexes.tolist() for indexes in other]

    def test_peers_read_the_same(self):
        shard = DataShard(Mesh(pp=2, dp=2, tp=2))
        read = {
            rank: [i.tolist() for i in ShardedSampler(16, shard, rank, global_batch=4, micro_batch=2)]
            for rank in range(8)
        }
        assert read[0] == read[1] == read[4] == read[5] != read[2] == read[3] == read[6] == read[7]

    def test_chunks_change_nothing(self):
        whole = sampler(100_000, 3, 1, 2)
        batches = np.stack(list(whole))
        assert (batches == sampler(100_000, 3, 1, 2).indexes(0, len(batches))).all()
        assert len(batches) == 100_000 // 6

    def test_an_epoch_of_any_size_begins_at_once(self):
        own = sampler(2**62, 1024, 1023, 8, 4, seed=3)
        own.load_state_dict({**own.state_dict(), "consumed": 2**61, "epoch": 4})
        first = next(iter(own))
        places = 2**61 + 1023 * 8 + np.arange(8)
        assert (first == Order(2**62, 3, 4)(places)).all()

    def test_an_iteration_reads_the_rest_and_then_the_next_epoch_begins(self):
        own = sampler(8, 1, micro=2)
        assert len(list(zip(range(2), own))) == 2
        assert (own.epoch, own.consumed, len(own)) == (0, 4, 2)
        own.set_epoch(0)
        assert own.consumed == 4
        assert len(list(own)) == 2
        assert (own.epoch, own.consumed, len(own)) == (1, 0, 4)
        again = [indexes.tolist() for indexes in own]
        assert own.epoch == 2
        own.set_epoch(1)
        assert [indexes.tolist() for indexes in own] == again

    def test_an_epoch_is_over_when_its_last_micro_batch_is_handed_out(self):
        own, other = sampler(8, 1, micro=2), sampler(8, 1, micro=2)
        for epoch, read in enumerate((iter(own), own.steps())):
            for _ in range(4):
                next(read)
            assert (own.epoch, own.consumed) == (epoch, 8)
            own.set_epoch(epoch)
            assert own.consumed == 8
        assert own.epoch == 1
        other.load_state_dict(own.state_dict())
        assert len(list(own)) == 4
        assert list(other.steps()) == []
        assert (own.epoch, other.epoch) == (3, 2)

    def test_moving_ends_an_iteration_that_is_under_way(self):
        own = sampler(8, 1, micro=2)
        reading = iter(own)
        next(reading)
        own.set_epoch(3)
        assert list(reading) == []
        assert (own.epoch, own.consumed) == (3, 0)

    def test_ten_samples_on_three_ranks(self):
        read = []
        for rank in range(3):
            own = sampler(10, 3, rank, 2)
            assert (len(own), own.dropped) == (1, 4)
            assert own.tail_told().startswith("4 of 10 samples are dropped")
            read += [sample for indexes in own for sample in indexes.tolist()]
        assert len({*read}) == 6
        assert sampler(10, 3, 0, 2, tail="pad").tail_told().startswith("2 of 10 samples are read twice")
        assert sampler(1, 3, 0, 2, tail="pad").tail_told().startswith("samples repeat")
        assert sampler(12, 3, 0, 2, tail="error").tail_told().startswith("all 12 samples")

    def test_a_sampler_travels(self):
        own = sampler(1000, 2, micro=2)
        for _ in zip(range(3), own):
            pass
        again = pickle.loads(pickle.dumps(own))
        assert [i.tolist() for i in again] == [i.tolist() for i in own]


@st.composite
def two_layouts(draw):
    """A global batch that two (data size, micro batch) pairs divide, n, and the micro-steps done under the first."""
    sizes = [(draw(small), draw(small)) for _ in range(2)]
    batch = draw(st.integers(1, 3)) * int(np.lcm(sizes[0][0] * sizes[0][1], sizes[1][0] * sizes[1][1]))
    n = draw(st.integers(batch, 5 * batch))
    done = draw(st.integers(0, n // batch * batch // (sizes[0][0] * sizes[0][1])))
    return sizes, batch, n, done


class TestResume:
    @given(two_layouts(), st.sampled_from(["drop", "pad"]))
    def test_another_layout_reads_what_is_left_or_refuses(self, drawn, tail):
        ((size, micro), (new_size, new_micro)), batch, n, done = drawn
        common = {"global_batch": batch, "seed": 9, "tail": tail}
        before = [sampler(n, size, rank, micro, **common) for rank in range(size)]
        for rank in range(size):
            assert len(list(zip(range(done), before[rank]))) == done
        states = [json.loads(json.dumps(own.state_dict())) for own in before]
        assert states == [states[0]] * size
        assert states[0]["consumed"] == done * size * micro
        consumed = states[0]["consumed"]
        after = [sampler(n, new_size, rank, new_micro, **common) for rank in range(new_size)]
        if consumed % batch % (new_size * new_micro):
            for own in after:
                with refused(DataResumeError, str(batch), "restart_step", changed={}):
                    own.load_state_dict(states[0])
                own.load_state_dict(states[0], policy="restart_step")
                assert own.consumed == consumed - consumed % batch
            return
        for own in after:
            own.load_state_dict(states[0])
            assert own.state_dict() == states[0]
        read = [[sample for indexes in own for sample in indexes.reshape(-1).tolist()] for own in after]
        length = -(-n // batch) * batch if tail == "pad" else n // batch * batch
        order = Order(n, 9)
        expected = [order(place % n) for place in range(consumed, length)]
        together = np.array(read).reshape(new_size, -1, new_micro).transpose(1, 0, 2).reshape(-1).tolist()
        assert together == expected

    def test_the_rest_of_a_step_comes_first(self):
        own = sampler(48, 2, 1, 2, 3, shuffle=False)
        next(iter(own))
        again = sampler(48, 1, 0, 4, global_batch=12, shuffle=False)
        again.load_state_dict(own.state_dict())
        first, second = (step for _, step in zip(range(2), again.steps()))
        assert [i.tolist() for i in first] == [[4, 5, 6, 7], [8, 9, 10, 11]]
        assert [i[0] for i in second] == [12, 16, 20]

    def test_the_end_of_an_epoch_is_a_place_too(self):
        own = sampler(8, 2)
        reading = iter(own)
        for _ in range(4):
            next(reading)
        state = own.state_dict()
        assert (state["epoch"], state["consumed"]) == (0, 8)
        again = sampler(8, 1, global_batch=2)
        again.load_state_dict(state)
        again.set_epoch(0)
        assert list(again) == []
        assert (again.epoch, len(again)) == (1, 8)

    def test_policies_for_what_has_changed(self):
        state = sampler(96, 2, seed=1, global_batch=8).state_dict() | {"consumed": 48, "epoch": 2}
        with refused(DataResumeError, "seed was 1 and is 2", "'continue'", changed={"seed": (1, 2)}):
            sampler(96, 2, seed=2, global_batch=8).load_state_dict(state)
        own = sampler(96, 2, seed=2, global_batch=8)
        own.load_state_dict(state, policy="continue")
        assert own.state_dict() == state
        for policy, epoch in (("restart_epoch", 2), ("next_epoch", 3)):
            own = sampler(100, 2, seed=2, global_batch=12)
            own.load_state_dict(state, policy)
            assert own.state_dict() == state | {"epoch": epoch, "consumed": 0, "seed": 2, "n": 100, "global_batch": 12}
        with refused(DataResumeError, "n was 96 and is 100", "restart_epoch"):
            sampler(100, 2, seed=1, global_batch=8).load_state_dict(state)
        with refused(DataResumeError, "n was 96 and is 100"):
            sampler(100, 2, seed=1, global_batch=8).load_state_dict(state, "continue")
        with refused(DataResumeError, "seed was 1 and is None"):
            sampler(96, 2, shuffle=False, global_batch=8).load_state_dict(state, "continue")

    def test_another_global_batch_goes_on_between_its_own_batches_only(self):
        state = sampler(96, 2, seed=1, global_batch=8).state_dict() | {"consumed": 48}
        own = sampler(96, 2, seed=1, global_batch=12)
        with refused(DataResumeError, "global_batch was 8 and is 12"):
            own.load_state_dict(state)
        own.load_state_dict(state, "continue")
        assert own.consumed == 48
        with refused(DataResumeError, "remainder 8", "go on here: 8, 12, 16, 24"):
            sampler(96, 2, seed=1, global_batch=20).load_state_dict(state, "continue")

    @pytest.mark.parametrize(
        ("saved", "own"),
        [
            ({"seed": None}, {"seed": 7}),
            ({"seed": 7}, {"shuffle": False}),
            ({"n": 100}, {}),
            ({"consumed": 48}, {"global_batch": 20}),
            ({"consumed": 96}, {"global_batch": 14, "seed": 2}),
            ({"consumed": 2, "seed": 2}, {"micro": 2, "size": 4, "global_batch": 8}),
        ],
    )
    def test_no_policy_is_offered_that_is_refused(self, saved, own):
        named = {"global_batch": 8, "micro": 1, "size": 2} | own
        size = named.pop("size")
        state = sampler(96, 2, seed=1, global_batch=8).state_dict() | saved
        for policy in ("exact", "continue"):
            with pytest.raises(DataResumeError) as caught:
                sampler(96, size, **named).load_state_dict(state, policy)
            assert "'continue'" not in str(caught.value)

    def test_more_consumed_than_there_is(self):
        state = sampler(10, 1, global_batch=4, tail="pad").state_dict() | {"consumed": 12}
        with refused(DataResumeError, "12 samples", "8"):
            sampler(10, 1, global_batch=4).load_state_dict(state)

    good = sampler(8, 2).state_dict()

    @pytest.mark.parametrize(
        "bad",
        [
            None,
            [],
            "state",
            {},
            {"consumed": 3},
            good | {"consumed": -1},
            good | {"consumed": 1.5},
            good | {"consumed": True},
            good | {"consumed": "8"},
            good | {"epoch": None},
            good | {"epoch": -1},
            good | {"seed": -1},
            good | {"seed": [1]},
            good | {"seed": 2**64},
            good | {"n": 2**63},
            good | {"epoch": 10**40},
            good | {"n": 0},
            good | {"global_batch": 0},
            good | {"version": 2},
            good | {"consumed": 2**200},
            {key: value for key, value in good.items() if key != "seed"},
        ],
        ids=str,
    )
    @pytest.mark.parametrize("policy", ["exact", "continue", "restart_step", "restart_epoch", "next_epoch"])
    def test_what_is_no_state(self, bad, policy):
        own = sampler(8, 2)
        with refused(DataResumeError):
            own.load_state_dict(bad, policy)
        assert own.state_dict() == self.good

    def test_a_policy_of_another_name(self):
        with refused(InputError, "restart_step", "'ignore'"):
            sampler(8, 2).load_state_dict(self.good, "ignore")

    def test_a_refused_state_changes_nothing(self):
        own = sampler(96, 3, micro=2, accumulation=2)
        for _ in zip(range(3), own):
            pass
        before = own.state_dict()
        with refused(DataResumeError):
            own.load_state_dict(before | {"consumed": 4})
        assert own.state_dict() == before
        assert len(list(own)) == 16 - 3


class TestRefusals:
    def test_sizes_that_do_not_fit(self):
        with refused(BatchError, "dp × sharding=6", "12", legal_data_sizes=[1, 2, 4, 8]):
            ShardedSampler(4096, DataShard(Mesh(dp=2, sharding=3)), 0, global_batch=512, micro_batch=2)

    def test_nothing_left_and_nothing_over(self):
        with refused(BatchError, "5 samples", "tail='pad'", remainder=5):
            sampler(5, 3, micro=2)
        with refused(BatchError, "remainder 4", "drop", "pad", remainder=4, legal_global_batches=[]):
            sampler(10, 3, micro=2, tail="error")
        with refused(BatchError, "leave no rest: 5, 10", legal_global_batches=[5, 10]):
            sampler(10, 1, micro=5, global_batch=15)

    @pytest.mark.parametrize("bad", [True, 2.0, None, "8"])
    def test_no_integers(self, bad):
        with refused(IntegerError):
            sampler(bad, 2)
        with refused(SizeTypeError):
            sampler(8, 2, global_batch=bad)
        with refused(SizeTypeError):
            sampler(8, 2, micro=bad, global_batch=2)
        with refused(IntegerError):
            sampler(8, 2, seed=bad)
        with refused(IntegerError):
            sampler(8, 2, rank=bad)
        with refused(IntegerError):
            sampler(8, 2).set_epoch(bad)

    def test_values_outside(self):
        for n in (0, -1, 2**63):
            with refused(InputError):
                sampler(n, 2)
        for seed in (-1, 2**64):
            with refused(SeedError):
                sampler(8, 2, seed=seed)
        for rank in (-1, 2):
            with refused(RankError):
                sampler(8, 2, rank)
        with refused(InputError):
            sampler(8, 2).set_epoch(-1)
        with refused(InputError, "2**62"):
            sampler(8, 1, global_batch=2**63, tail="pad")
        for tail in ("keep", None, "DROP", ["drop"]):
            with refused(InputError, "drop, pad, error"):
                sampler(8, 2, tail=tail)
        with refused(InputError, "DataShard"):
            ShardedSampler(8, Mesh(dp=2), 0, global_batch=2, micro_batch=1)


def test_growing_steps_of_one_epoch_never_meet():
    own = sampler(10_000, 4, 2, 5, 2, seed=11)
    taken = [*map(frozenset, (indexes.tolist() for indexes in own))]
    assert all(not one & other for one, other in pairwise(taken))
    assert len(frozenset().union(*taken)) == 2500
