"""check_relations and check_families: every pair that should be equal and is not, and every collision."""

import json
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import brute
from rankatlas import Mesh
from rankatlas.errors import DuplicateAxisError, SeedError, UnknownAxisError, UnnamedAxisError
from rankatlas.seeding import SeedPlan, distributed_seeds
from rankatlas.seeding.relations import check_families, check_relations
from rankatlas.seeding.scheme import parse_scheme
from refusals import refused
from strategies import axes_of, small_meshes


@st.composite
def checks(draw):
    """A mesh, what differs on it, and seeds for its ranks, drawn from few so that they meet."""
    mesh = draw(small_meshes)
    differ = draw(axes_of(mesh))
    same = [axis for axis in mesh.axes if axis not in differ]
    if draw(st.booleans()):  # seeds that depend on the set only, so that nothing is unequal
        sets = brute.groups(mesh, same)
        seeds = draw(st.lists(st.integers(0, 3 * len(sets)), min_size=len(sets), max_size=len(sets)))
        seed_of = {rank: seed for group, seed in zip(sets, seeds) for rank in group}
    else:
        size = mesh.world_size
        seeds = draw(st.lists(st.integers(0, size), min_size=size, max_size=size))
        seed_of = dict(zip(mesh.select(), seeds))
    return mesh, same, differ, seed_of


def places_of(mesh, rank, differ):
    return {axis: mesh.coordinate(rank)[axis] for axis in mesh.axes if axis in differ}


@given(checks())
def test_against_every_pair_of_ranks(check):
    mesh, same, differ, seed_of = check
    found = check_relations(seed_of.__getitem__, mesh, same=same, differ=differ)
    sets = brute.groups(mesh, same)
    assert found.wanted == len(sets)
    assert found.distinct == len(set(seed_of.values()))
    # Each rank against the first of its set.
    unequal = [(group[0], rank) for group in sets for rank in group[1:] if seed_of[rank] != seed_of[group[0]]]
    assert [(pair.first, pair.second) for pair in found.unequal] == unequal
    assert all(pair.seeds == (seed_of[pair.first], seed_of[pair.second]) for pair in found.unequal)
    # Sets that share a seed are linked through the first of them, each pair told once.
    held = {}
    for group in sets:
        for seed in dict.fromkeys(seed_of[rank] for rank in group):
            held.setdefault(seed, []).append(("", places_of(mesh, group[0], differ)))
    expected = [(seed, holders[0], other) for seed, holders in held.items() for other in holders[1:]]
    told = [(hit.seed, hit.first, hit.second) for hit in found.collisions]
    assert sorted(told, key=str) == sorted(expected, key=str)
    assert found.ok is (not unequal and not expected)


@given(small_meshes, st.integers(0, 2**64 - 1), st.data())
def test_the_streams_of_a_plan_hold_every_relation(mesh, base, data):
    differ = data.draw(axes_of(mesh))
    stream = SeedPlan(base, mesh).stream("x", [axis for axis in mesh.axes if axis not in differ], differ)
    found = check_relations(stream.seed, mesh, stream.same, stream.differ)
    assert (found.ok, found.unequal, found.collisions) == (True, [], [])
    assert found.wanted == found.distinct
    found.raise_if_bad()


def test_the_reference_held_against_its_own_comment():
    """Its comment wants parameters equal over dp and sharding; the seed that initialises them is not."""
    mesh = Mesh(pp=2, dp=2, sharding=2, mp=2)

    def seed(rank):
        return distributed_seeds(42, mesh, rank=rank).global_seed

    meant = check_relations(seed, mesh, same=("dp", "sharding", "mp"), differ="pp")
    assert len(meant.unequal) == 12
    assert not meant.collisions
    as_it_is = check_relations(seed, mesh, same="mp", differ=("pp", "dp", "sharding"))
    assert as_it_is.ok


def test_pp2_dp11_meet():
    mesh = Mesh(pp=2, dp=11)
    found = check_relations(
        lambda rank: 100 * mesh.coordinate(rank).pp + 10 * mesh.coordinate(rank).dp, mesh, differ=("pp", "dp")
    )
    assert [(hit.seed, hit.first[1], hit.second[1]) for hit in found.collisions] == [
        (100, {"pp": 0, "dp": 10}, {"pp": 1, "dp": 0})
    ]
    assert (found.wanted, found.distinct) == (22, 21)
    assert found.lines() == [
        "21 different seeds where 22 are wanted",
        "(pp=0 dp=10) and (pp=1 dp=0) draw the same numbers: seed 100",
    ]


def test_a_seed_too_many_can_meet_another_set():
    seeds = [1, 2, 2, 2]
    found = check_relations(seeds.__getitem__, Mesh(dp=2, tp=2), same="tp", differ="dp")
    assert [(pair.first, pair.second, pair.seeds) for pair in found.unequal] == [(0, 1, (1, 2))]
    assert [(hit.seed, hit.first, hit.second) for hit in found.collisions] == [(2, ("", {"dp": 0}), ("", {"dp": 1}))]


def test_findings_as_words_and_as_data():
    seeds = [5, 6, 7, 8, 5, 5, 5, 5]
    found = check_relations(seeds.__getitem__, Mesh(dp=2, tp=4), same="tp", differ="dp")
    assert found.lines() == [
        "4 different seeds where 2 are wanted",
        "ranks 0 and 1 must share a seed and have 5 and 6",
        "ranks 0 and 2 must share a seed and have 5 and 7",
        "ranks 0 and 3 must share a seed and have 5 and 8",
        "(dp=0) and (dp=1) draw the same numbers: seed 5",
    ]
    data = found.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert (data["ok"], data["wanted"], data["distinct"]) == (False, 2, 4)
    assert data["unequal"][0] == {"ranks": [0, 1], "seeds": [5, 6]}
    assert data["collisions"] == [
        {"seed": 5, "first": {"family": "", "places": {"dp": 0}}, "second": {"family": "", "places": {"dp": 1}}}
    ]
    with refused(SeedError, *found.lines()):
        found.raise_if_bad()


def test_only_a_few_findings_are_told_in_words():
    found = check_relations(lambda rank: 0, Mesh(dp=9), differ="dp")
    assert len(found.collisions) == 8
    assert found.lines()[0] == "1 different seeds where 9 are wanted"
    assert found.lines()[-1] == "5 more of the same kind"
    assert len(found.lines()) == 5


def test_a_mesh_may_begin_anywhere():
    mesh = Mesh(dp=2, tp=2, first_rank=100)
    asked = []
    found = check_relations(lambda rank: asked.append(rank) or rank // 2, mesh, same="tp", differ="dp")
    assert found.ok
    assert asked == [100, 101, 102, 103]


def test_what_is_refused():
    mesh = Mesh(pp=2, dp=2, one=1)
    with refused(UnnamedAxisError, "dp=2", "same", "differ", forgotten=("dp",)):
        check_relations(int, mesh, same="pp")
    with refused(DuplicateAxisError, name="pp"):
        check_relations(int, mesh, same=("pp", "dp"), differ="pp")
    with refused(UnknownAxisError, name="tp"):
        check_relations(int, mesh, same=("pp", "dp"), differ="tp")
    assert check_relations(int, mesh, differ=("dp", "pp")).ok


# Families of additive schemes

MEGATRON = "base+100*pp; tp=+2718+tp; expert=+1024+100*ep+etp"


def by_hand(mesh, base):
    """Every stream of Megatron's offsets with the places it depends on, and its seed."""
    for pp in range(mesh.size("pp")):
        yield ("", (pp,)), base + 100 * pp
        for tp in range(mesh.size("tp")):
            yield ("tp", (pp, tp)), base + 100 * pp + 2718 + tp
        for ep in range(mesh.size("ep")):
            for etp in range(mesh.size("etp")):
                yield ("expert", (pp, ep, etp)), base + 100 * pp + 1024 + 100 * ep + etp


@given(st.tuples(st.integers(1, 20), st.integers(1, 8), st.integers(1, 20), st.integers(1, 3)), st.integers(0, 2**63))
def test_families_against_every_pair_of_streams(sizes, base):
    mesh = Mesh(**dict(zip(("pp", "tp", "ep", "etp"), sizes)))
    found = check_families(parse_scheme(MEGATRON, mesh), mesh, base)
    streams = list(by_hand(mesh, base))
    assert found.wanted == len(streams)
    assert found.distinct == len({seed for _, seed in streams})
    meeting = [one for one, other in combinations(streams, 2) if one[1] == other[1]]
    assert found.ok is (not meeting)
    assert len(found.collisions) == found.wanted - found.distinct
    seeds = dict(streams)
    for hit in found.collisions:
        for family, places in (hit.first, hit.second):
            assert seeds[family, tuple(places.values())] == hit.seed


def test_an_axis_that_a_family_does_not_name_changes_nothing():
    mesh = Mesh(pp=2, dp=1000)
    found = check_families(parse_scheme("base+pp", mesh), mesh)
    assert (found.wanted, found.distinct, found.ok) == (2, 2, True)


def test_collisions_across_families_are_told_by_name_and_place():
    mesh = Mesh(ep=64, tp=8)
    found = check_families(parse_scheme("tp=+2718+tp; expert=+1024+100*ep", mesh), mesh, 1234)
    assert found.lines() == [
        "71 different seeds where 72 are wanted",
        "tp (tp=6) and expert (ep=17) draw the same numbers: seed 3958",
    ]
    constant = check_families(parse_scheme("a=5; b=5", mesh), mesh)
    assert constant.lines()[1] == "a (every rank) and b (every rank) draw the same numbers: seed 5"


@pytest.mark.parametrize(("pp", "ep", "distinct"), [(2, 2, 3), (4, 8, 11), (1, 8, 8), (16, 8, 23)])
def test_stages_and_experts_share_a_step(pp, ep, distinct):
    mesh = Mesh(pp=pp, ep=ep)
    found = check_families(parse_scheme("expert=+100*pp+1024+100*ep", mesh), mesh)
    assert (found.wanted, found.distinct) == (pp * ep, distinct)
