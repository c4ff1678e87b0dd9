"""`distributed_seeds` against the reference's own frozen answers, and the laws its formula has."""

import sys
from math import prod
from types import SimpleNamespace

import numpy
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from golden import facts, table
from rankatlas import Mesh, Topology
from rankatlas.errors import AxisError, InputError, IntegerError, RankError, SeedError
from rankatlas.seeding import DistributedSeeds, distributed_seeds
from refusals import refused

PEERS = ("paddlenlp_seeds", "paddleformers_seeds")
FLEET = "paddle.distributed.fleet"
AXES = ("dp", "pp", "sharding", "mp", "sep")


class LiveGroup:
    """Answers as Paddle's communicate group does, with the ranks and sizes of a fact."""

    def __init__(self, places, world, with_sep=True, with_cp=False, sharding_rank_with_cp=0):
        words = {"mp": "model", "dp": "data", "pp": "pipe"}
        words |= {"sep": "sep"} if with_sep else {}
        words |= {"cp": "context"} if with_cp else {}
        for axis, word in words.items():
            place, size = places[axis]
            setattr(self, f"get_{word}_parallel_rank", lambda place=place: place)
            setattr(self, f"get_{word}_parallel_world_size", lambda size=size: size)
        self.get_stage_id = self.get_pipe_parallel_rank
        self._sharding = (places["sharding"][0], sharding_rank_with_cp)
        self.nranks = world

    def get_sharding_parallel_rank(self, with_context_parallel=False):
        return self._sharding[with_context_parallel]


def seeds_of(fact):
    return tuple(fact["seeds"])


def mesh_of(fact):
    degrees = dict(zip(AXES, fact["degrees"]))
    return Mesh.from_axes([(axis, degrees[axis]) for axis in fact["order"].split()])


@pytest.fixture
def fleet(monkeypatch):
    """Says what the fleet module of the program knows; the real one may be loaded by another test."""

    def knows(**names):
        monkeypatch.setitem(sys.modules, FLEET, SimpleNamespace(**names))

    return knows


def test_the_frozen_tables_are_as_large_as_promised():
    assert [len(table(name)["facts"]) for name in PEERS] == [759, 359]


@pytest.mark.parametrize("name", PEERS)
def test_of_a_topology(name):
    for fact in facts(name, "topology"):
        order = fact["order"].split()
        topology = Topology(fact["rank"], prod(fact["degrees"]), *fact["degrees"], order=order)
        assert distributed_seeds(fact["seed"], topology, world_size=fact["world"]) == seeds_of(fact)
        if fact["world"] == topology.world.size:
            assert distributed_seeds(fact["seed"], topology) == seeds_of(fact)


@pytest.mark.parametrize("name", PEERS)
def test_of_a_mesh(name):
    for fact in facts(name, "topology"):
        mesh = mesh_of(fact)
        assert distributed_seeds(fact["seed"], mesh, rank=fact["rank"], world_size=fact["world"]) == seeds_of(fact)
        moved = Mesh.from_axes(zip(mesh.axes, mesh.sizes), first_rank=1000)
        assert distributed_seeds(fact["seed"], moved, rank=1000 + fact["rank"], world_size=fact["world"]) == seeds_of(
            fact
        )


@pytest.mark.parametrize("name", PEERS)
def test_of_a_live_group(name, fleet):
    refusals = 0
    for fact in facts(name, "live"):
        fleet(**({"get_context_parallel_rank": lambda: 0} if fact["has_cp"] else {}))
        group = LiveGroup(
            fact["live"], fact["world"], fact["has_sep"], fact["has_cp"], fact.get("sharding_rank_with_cp", 0)
        )
        if "error" in fact:
            refusals += 1
            with refused(InputError, "cp=", "sep=", "must be 1"):
                distributed_seeds(fact["seed"], group)
            continue
        assert distributed_seeds(fact["seed"], group) == seeds_of(fact)
        assert distributed_seeds(fact["seed"], group, world_size=fact["world"]) == seeds_of(fact)
    assert refusals == (9 if name == "paddleformers_seeds" else 0)


@pytest.mark.parametrize("name", PEERS)
def test_alone(name):
    for fact in facts(name, "alone"):
        assert distributed_seeds(fact["seed"], world_size=fact["world"]) == seeds_of(fact)
        if fact["world"] == 1:
            assert distributed_seeds(fact["seed"]) == seeds_of(fact)


def test_the_example_everybody_knows():
    assert distributed_seeds(1234) == (1234, 1235, 1234) == DistributedSeeds(1234, 1235, 1234)
    assert distributed_seeds(1234)._fields == ("global_seed", "local_seed", "random_seed")


def test_a_mesh_with_a_context_axis_gives_what_a_live_group_with_one_gives(fleet):
    """The reference takes the rank along sharding inside a context group from the group; on a mesh it is its place."""
    checked = 0
    for fact in facts("paddleformers_seeds", "live"):
        if not fact["has_cp"] or "error" in fact or fact["live"]["cp"][1] == 1:
            continue
        places = {axis: place for axis, (place, _) in fact["live"].items()}
        places["sharding"] = fact["sharding_rank_with_cp"]
        if not fact["has_sep"]:
            places.pop("sep")
        mesh = Mesh(**{axis: fact["live"][axis][1] for axis in places})
        seeds = distributed_seeds(fact["seed"], mesh, rank=mesh.rank(**places), world_size=fact["world"])
        assert seeds == seeds_of(fact)
        checked += 1
    assert checked >= 50


def test_paddle_never_reaches_the_context_branch():
    """It asks the fleet module for a function that Paddle 3.3.1's does not have."""
    pytest.importorskip("paddle")
    from paddle.distributed import fleet

    assert not hasattr(fleet, "get_context_parallel_rank")


reference_meshes = st.builds(
    lambda sizes, order, cp: Mesh.from_axes([(axis, {**dict(zip(AXES, sizes)), "cp": cp}[axis]) for axis in order]),
    st.tuples(*[st.integers(1, 3)] * 5),
    st.permutations((*AXES, "cp")),
    st.integers(1, 3),
)
base_seeds = st.integers(0, 2**63)


@given(reference_meshes, base_seeds)
def test_local_seeds_differ_everywhere_and_global_seeds_along_all_but_mp_and_cp(mesh, base):
    assume(mesh.size("sep") == 1 or mesh.size("cp") == 1)
    seeds = [distributed_seeds(base, mesh, rank=rank) for rank in mesh.select()]
    assert len({seed.local_seed for seed in seeds}) == mesh.world_size
    assert min(seed.local_seed for seed in seeds) == base + mesh.world_size
    shared = ("mp", "cp") if mesh.size("cp") > 1 else ("mp",)
    groups = mesh.groups(*shared)
    assert {len({seeds[rank].global_seed for rank in group}) for group in groups} == {1}
    assert len({seed.global_seed for seed in seeds}) == len(groups)
    assert {seeds[rank].random_seed - base for rank in mesh.select()} == {100 * s for s in range(mesh.size("pp"))}


@given(reference_meshes, base_seeds, st.data())
def test_the_order_of_axes_does_not_matter_only_places_do(mesh, base, data):
    assume(mesh.size("sep") == 1 or mesh.size("cp") == 1)
    other = mesh.reorder(*data.draw(st.permutations(mesh.axes)))
    rank = data.draw(st.integers(0, mesh.world_size - 1))
    again = other.rank(**mesh.coordinate(rank))
    assert distributed_seeds(base, mesh, rank=rank) == distributed_seeds(base, other, rank=again)


@given(st.tuples(*[st.integers(1, 3)] * 5), base_seeds, st.data())
def test_a_topology_is_its_mesh(sizes, base, data):
    world = prod(sizes)
    rank = data.draw(st.integers(0, world - 1))
    topology = Topology(rank, world, *sizes, order=data.draw(st.permutations(AXES)))
    assert distributed_seeds(base, topology) == distributed_seeds(base, topology.mesh, rank=rank)
    assert distributed_seeds(base, topology) == distributed_seeds(base, topology, rank=rank)


@given(st.integers(1, 3), st.integers(1, 3), base_seeds, st.data())
def test_tp_is_another_word_for_mp(dp, mp, base, data):
    rank = data.draw(st.integers(0, dp * mp - 1))
    assert distributed_seeds(base, Mesh(dp=dp, tp=mp), rank=rank) == distributed_seeds(
        base, Mesh(dp=dp, mp=mp), rank=rank
    )


def test_axes_of_size_1_may_have_any_name_and_both_words_may_stand_together():
    mesh = Mesh(ep=1, dp=2, mp=1, tp=2, cp=1, sep=1)
    assert distributed_seeds(7, mesh, rank=3) == distributed_seeds(7, Mesh(dp=2, mp=2), rank=3)
    assert distributed_seeds(7, Mesh(tp=2, mp=1), rank=1) == distributed_seeds(7, Mesh(mp=2), rank=1)


def test_one_process_has_no_places():
    mesh = Mesh(pp=2, dp=2, mp=2)
    assert distributed_seeds(42, mesh, rank=7, world_size=1) == (42, 43, 42)
    assert distributed_seeds(42, Topology(7, 8, pp_degree=2, mp_degree=2), world_size=1) == (42, 43, 42)
    both = LiveGroup(dict.fromkeys((*AXES, "cp"), (1, 2)), 64, with_cp=True)
    assert distributed_seeds(42, both, world_size=1) == (42, 43, 42)


def test_a_group_that_does_not_tell_its_world_size_is_told_it():
    group = LiveGroup(dict.fromkeys(AXES, (1, 2)), 32)
    told = distributed_seeds(1, group)
    del group.nranks
    with refused(InputError, "world size", "world_size="):
        distributed_seeds(1, group)
    assert distributed_seeds(1, group, world_size=32) == told


def test_seeds_come_out_as_plain_ints():
    seeds = distributed_seeds(numpy.int64(3), Mesh(dp=2), rank=numpy.int64(1), world_size=numpy.int32(2))
    assert [type(seed) for seed in seeds] == [int, int, int]
    assert seeds == distributed_seeds(3, Mesh(dp=2), rank=1)


def test_what_is_refused():
    mesh = Mesh(dp=2, mp=2)
    with refused(InputError, "rank="):
        distributed_seeds(1, mesh)
    with refused(RankError, "rank 4"):
        distributed_seeds(1, mesh, rank=4)
    with refused(IntegerError, "rank"):
        distributed_seeds(1, mesh, rank=True)
    with refused(InputError, "rank 1", "rank 0"):
        distributed_seeds(1, Topology(1, 2), rank=0)
    with refused(AxisError, "ep=2", "SeedPlan", name="ep"):
        distributed_seeds(1, Mesh(dp=2, ep=2), rank=0)
    with refused(AxisError, "mp=2", name="mp"):
        distributed_seeds(1, Mesh(tp=2, mp=2), rank=0)
    with refused(InputError, "cp=2", "sep=3"):
        distributed_seeds(1, Mesh(cp=2, sep=3), rank=0)
    with refused(InputError, "Topology", "Mesh", "communicate group", "dict"):
        distributed_seeds(1, {"mp": 2})
    for bad in (-1, 2**64):
        with refused(SeedError, "2**64", seed=bad):
            distributed_seeds(bad)
    for bad in (1.0, True, "1", None):
        with refused(IntegerError, "seed"):
            distributed_seeds(bad)
    for bad in (0, -8):
        with refused(InputError, "world_size"):
            distributed_seeds(1, world_size=bad)
    with refused(IntegerError, "world_size"):
        distributed_seeds(1, world_size=2.0)


def test_a_rank_without_anything_it_could_be_a_rank_of_is_refused():
    with refused(InputError, "rank"):
        distributed_seeds(1, rank=3)
    with refused(InputError, "rank"):
        distributed_seeds(1, LiveGroup(dict.fromkeys(AXES, (0, 2)), 32), rank=3)
