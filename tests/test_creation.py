"""Plans of groups, held against brute force, the calls they stand for, and cases that people reported."""

import json
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import brute
from rankatlas import Atlas, Mesh
from rankatlas.creation import CreationPlan, check_calls, check_issue_order, first_and_last, neighbours
from rankatlas.errors import (
    AtlasError,
    CreationOrderError,
    DuplicateAxisError,
    InputError,
    IntegerError,
    IssueOrderError,
    RankError,
    UnknownAxisError,
)
from refusals import refused
from strategies import atlases, axes_of, large_meshes, small_meshes

CASES = json.loads(Path(__file__, "../cases/creation.json").resolve().read_text(encoding="utf-8"))
ERRORS = {"CreationOrderError": CreationOrderError, "IssueOrderError": IssueOrderError}


def refuses(expected):
    error = expected["error"]
    fields = {name: value for name, value in expected.items() if name in ("first_divergent_call", "odd_ranks")}
    fields |= {name: expected[name] for name in ("canonical_plan", "conflicting_rank_pairs") if name in expected}
    return refused(ERRORS[error["cls"]], *error["must_mention"], **fields)


def check_a_creation_order_case(given, expected):
    calls = given["calls_by_rank"]
    numbered = {int(rank): [*made] for rank, made in calls.items()}
    mesh = Mesh.from_axes([(axis, given["degrees"][axis]) for axis in given["order"]]) if "order" in given else None
    for form in (calls, numbered, [numbered[rank] for rank in range(len(numbered))]):
        if "error" not in expected:
            check_calls(form)
            continue
        with refuses(expected):
            check_calls(form)
    if "correct_sum_of_rank_plus_1" in expected:
        plan = [sum(rank + 1 for rank in group) for group in expected["canonical_plan"]]
        assert plan == expected["correct_sum_of_rank_plus_1"]
        assert [list(group.ranks) for group in CreationPlan(mesh, ["pp"]).groups()] == expected["canonical_plan"]
        # Each rank making its own group is right where members alone can make it, which a plan says.
        check_calls(calls, CreationPlan(mesh, ["pp"]))


def check_an_issue_order_case(given, expected):
    orders = given["collective_order_by_rank"]
    if "error" not in expected:
        check_issue_order(orders, given["members"])
        return
    with refuses(expected):
        check_issue_order(orders, given["members"])


def check_a_cost_report_case(given, expected):
    if "order" in given:
        mesh = Mesh.from_axes([(axis, given["degrees"][axis]) for axis in given["order"]])
        plan = CreationPlan(mesh, given["axes"])
    else:
        mesh = Mesh(outer=given["world_size"] // given["group_size"], inner=given["group_size"])
        plan = CreationPlan(mesh, ["inner"])
    cost = plan.cost()
    assert plan.communicators == cost.communicators == expected["n_groups"]
    assert cost.one_by_one == expected["per_rank_calls_one_by_one"]
    assert cost.not_a_member == expected["of_which_not_a_member"]
    assert cost.by_partition == plan.calls_of(0) == expected["per_rank_calls_by_partition"]


def check_a_singletons_case(given, expected):
    mesh = Mesh.from_axes([(axis, given["degrees"][axis]) for axis in given["order"]])
    plan = CreationPlan(mesh, mesh.axes)
    for axis in mesh.axes:
        family = plan.family(axis)
        if f"{axis}_groups" in expected:
            assert [list(group) for group in family.groups] == expected[f"{axis}_groups"]
    found = {name: one.communicators for one in plan.cost().families for name in one.names}
    assert found == expected["communicators_needed"]
    alone = [group for group in plan.groups() if len(group.ranks) == 1]
    assert not any(group.new for group in alone)


CHECKS = {
    "creation-order": check_a_creation_order_case,
    "issue-order": check_an_issue_order_case,
    "cost-report": check_a_cost_report_case,
    "singletons": check_a_singletons_case,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case):
    CHECKS[case["kind"]](case["input"], case["expected"])


def test_the_cases_of_this_issue_are_all_here():
    ids = [case["id"] for case in CASES]
    assert len(set(ids)) == len(ids)
    assert {"GRP-001", "GRP-003", "GRP-005", "GRP-007", "GRP-009"} <= set(ids)


# The plan against brute force.


def sets_of(mesh):
    return st.lists(axes_of(mesh, min_size=1), min_size=1, max_size=5)


def walked(layout, tables):
    """(name, index, members, new) of every distinct group, by walking all of them."""
    everybody = {rank for _, table in tables for ranks in table for rank in ranks}
    covered = sorted(everybody if isinstance(layout, Mesh) else _covered(layout))
    seen, found = [], []
    for name, table in tables:
        for index, ranks in enumerate(table):
            if ranks not in seen:
                seen.append(ranks)
                found.append((name, index, ranks, len(ranks) > 1 and ranks != covered))
    return found


def _covered(atlas):
    return {rank for mesh in atlas.charts.values() for rank in mesh.select()}


@given(st.data())
def test_law_a_plan_lists_every_distinct_group_once_in_the_order_given(data):
    mesh = data.draw(small_meshes)
    sets = data.draw(sets_of(mesh))
    plan = CreationPlan(mesh, sets)
    tables = [("+".join(axis for axis in mesh.axes if axis in axes), brute.groups(mesh, axes)) for axes in sets]
    expected = walked(mesh, tables)
    found = [(group.names[0], group.index, list(group.ranks), group.new) for group in plan.groups()]
    assert found == expected
    check_counts(plan, expected, mesh.select())


@given(st.data())
def test_law_an_atlas_makes_common_groups_once(data):
    atlas = data.draw(st.one_of(atlases(), overlapping()))
    known = [f"{chart}.{axis}" for chart, mesh in atlas.charts.items() for axis in mesh.axes]
    sets = data.draw(st.lists(st.lists(st.sampled_from(known), min_size=1, max_size=1), min_size=1, max_size=4))
    plan = CreationPlan(atlas, sets)
    tables = []
    for (address,) in sets:
        chart, axis = address.split(".")
        tables.append((axis if axis in atlas.shared else address, brute.groups(atlas[chart], [axis])))
    expected = walked(atlas, tables)
    found = [(group.names[0], group.index, list(group.ranks), group.new) for group in plan.groups()]
    assert found == expected
    check_counts(plan, expected, sorted(_covered(atlas)))


def overlapping():
    """Charts that have some ranks in common and others not."""
    return st.builds(
        lambda sizes, tp, shift: Atlas(
            a=Mesh(dp=sizes[0], tp=tp), b=Mesh(x=sizes[1], y=tp, first_rank=shift), c=Mesh(z=sizes[2])
        ),
        st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 9)),
        st.integers(1, 4),
        st.integers(0, 8),
    )


def check_counts(plan, expected, ranks):
    new = [members for _, _, members, needed in expected if needed]
    assert plan.communicators == plan.cost().communicators == plan.cost().one_by_one == len(new)
    for rank in ranks:
        mine = [members for members in new if rank in members]
        assert [list(group.ranks) for group in plan.memberships(rank)] == mine
        alone = plan.has_ranks_alone  # one call of every rank, for itself
        assert plan.memberships_of(rank) == len(mine) <= plan.calls_of(rank) - alone <= len(new)
        if isinstance(plan.layout, Mesh):
            assert plan.calls_of(rank) - alone == len(mine) <= len(plan.axes)
    cost = plan.cost()
    assert cost.memberships == max(map(plan.memberships_of, ranks))
    assert cost.by_partition == max(map(plan.calls_of, ranks))
    assert cost.not_a_member == len(new) - cost.memberships
    assert cost.memory == cost.memberships * 16 * 2 * (4 << 20)


@given(st.data())
def test_law_members_that_make_a_group_alone_are_in_equally_many_groups(data):
    """The name torch gives such a group counts the groups of the process: all members must count the same."""
    atlas = data.draw(st.one_of(atlases(), overlapping()))
    known = [f"{chart}.{axis}" for chart, mesh in atlas.charts.items() for axis in mesh.axes]
    plan = CreationPlan(atlas, data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=5)))
    held = dict.fromkeys(_covered(atlas), 0)
    for family in plan.families:
        groups = [list(group.ranks) for group in family.planned()] if family.created else []
        if family.how == "own":
            assert len(groups) == family.count
            for ranks in groups:
                assert len({held[rank] for rank in ranks}) == 1, (family, ranks)
        for ranks in groups:
            for rank in ranks:
                held[rank] += 1


@given(large_meshes, st.data())
def test_law_costs_are_arithmetic_whatever_the_world(mesh, data):
    sets = data.draw(sets_of(mesh))
    plan = CreationPlan(mesh, sets)
    rank = mesh.first_rank + mesh.world_size - 1
    expected = {}
    for axes in sets:
        groups = mesh.groups(*axes)
        if groups.size > 1 and len(groups) > 1:
            expected[tuple(mesh.group(*axes, rank=mesh.first_rank).ranks[:2]), groups.size] = len(groups)
    cost = plan.cost()
    assert plan.calls_of(rank) == cost.by_partition == plan.memberships_of(rank) + plan.has_ranks_alone
    assert cost.communicators == sum(family.created for family in plan.families) >= max(expected.values(), default=0)
    assert len(plan.fingerprint()) == 64


@given(st.data())
def test_law_equal_plans_have_equal_fingerprints_and_others_do_not(data):
    mesh = data.draw(small_meshes)
    first, second = data.draw(sets_of(mesh)), data.draw(sets_of(mesh))

    def ordered(sets):
        return list(dict.fromkeys(tuple(axis for axis in mesh.axes if axis in axes) for axes in sets))

    plans = CreationPlan(mesh, first), CreationPlan(mesh, second)
    assert (plans[0] == plans[1]) is (ordered(first) == ordered(second))
    assert (plans[0].fingerprint() == plans[1].fingerprint()) is (plans[0] == plans[1])
    assert plans[0].fingerprint() == CreationPlan(str(mesh), ["+".join(axes) for axes in first]).fingerprint()


def test_the_fingerprint_is_the_same_in_every_release():
    plan = CreationPlan(Mesh(pp=2, dp=2, tp=2), ["tp", ("dp", "tp")], partial={"embedding": [[0, 4]]})
    told = (
        '{"axes":[["tp"],["dp","tp"]],"format":"rankatlas.creation","layout":{"axes":[["pp",2],["dp",2],["tp",2]],'
        '"first_rank":0,"format":"rankatlas.mesh","version":1},"partial":[["embedding",[[0,4]]]],"version":1}'
    )
    assert json.dumps(plan.to_dict(), sort_keys=True, separators=(",", ":")) == told


# Partial sets.


def test_partial_sets_come_last_and_share_what_is_there():
    mesh = Mesh(pp=2, dp=2, tp=2)
    sets = {"embedding": first_and_last(mesh), "ends": [[0, 7], [3]], "all": [range(8)], "more": [[7, 0], [1, 2]]}
    plan = CreationPlan(mesh, ["pp"], partial=sets)
    found = [(group.names, list(group.ranks), group.new) for group in plan.groups()][4:]
    # The ends of two stages are the pipelines themselves; the whole world and one rank alone are no new communicators.
    assert found == [
        (("ends", "more"), [0, 7], True),
        (("ends",), [3], False),
        (("all",), list(range(8)), False),
        (("more",), [1, 2], True),
    ]
    assert [plan.calls_of(rank) for rank in (0, 3)] == [4, 4]  # one of them for each rank alone
    assert [plan.memberships_of(rank) for rank in (0, 1, 3)] == [2, 2, 1]
    assert plan.names == ("pp", "embedding", "ends", "all", "more")


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 3))
def test_law_ends_and_neighbours_along_a_pipeline(pp, dp, tp):
    mesh = Mesh(dp=dp, pp=pp, tp=tp)
    chains = brute.groups(mesh, ["pp"])
    assert first_and_last(mesh) == ([[chain[0], chain[-1]] for chain in chains] if pp > 1 else [])
    pairs = sorted(pair for chain in chains for pair in map(list, pairwise(chain)))
    assert sorted(neighbours(mesh)) == pairs
    closing = [[chain[0], chain[-1]] for chain in chains] if pp > 2 else []
    assert sorted(neighbours(mesh, around=True)) == sorted(pairs + closing)
    assert CreationPlan(mesh, [], partial=[neighbours(mesh)]).names == ("partial 0",)


# What cannot be planned.

MESH = Mesh(pp=2, dp=2, tp=2)
FAR = Atlas(a=Mesh(a=2**24, x=2), b=Mesh(b=2**25, y=2))


@pytest.mark.parametrize(
    ("error", "words", "make"),
    [
        (UnknownAxisError, ["'tpp'", "Did you mean 'tp'"], lambda: CreationPlan(MESH, ["tpp"])),
        (DuplicateAxisError, ["twice"], lambda: CreationPlan(MESH, ["tp+tp"])),
        (InputError, ["no order"], lambda: CreationPlan(MESH, {"tp", "dp"})),
        (InputError, ["axes"], lambda: CreationPlan(MESH, 3)),
        (InputError, ["axes"], lambda: CreationPlan(MESH, None)),
        (InputError, ["'tp' or ('dp', 'cp')"], lambda: CreationPlan(MESH, [""])),
        (InputError, ["'tp' or ('dp', 'cp')"], lambda: CreationPlan(MESH, [()])),
        (InputError, ["axis names"], lambda: CreationPlan(MESH, [[1]])),
        (InputError, ["Mesh, an Atlas or notation"], lambda: CreationPlan(8, ["tp"])),
        (InputError, ["more than a plan takes"], lambda: CreationPlan(MESH, ["tp"] * 5000)),
        (RankError, ["rank 8", "'a'"], lambda: CreationPlan(MESH, [], partial={"a": [[0, 8]]})),
        (IntegerError, ["1.0"], lambda: CreationPlan(MESH, [], partial={"a": [[0, 1.0]]})),
        (IntegerError, ["True"], lambda: CreationPlan(MESH, [], partial={"a": [[0, True]]})),
        (InputError, ["different ranks"], lambda: CreationPlan(MESH, [], partial={"a": [[0, 0]]})),
        (InputError, ["at least one"], lambda: CreationPlan(MESH, [], partial={"a": [[]]})),
        (InputError, ["twice"], lambda: CreationPlan(MESH, [], partial={"a": [[0, 1], [1, 0]]})),
        (InputError, ["two partial sets"], lambda: CreationPlan(MESH, [], partial=[("a", [[0]]), ("a", [[1]])])),
        (InputError, ["names a set of axes"], lambda: CreationPlan(MESH, ["tp"], partial={"tp": [[0, 1]]})),
        (InputError, ["named by text"], lambda: CreationPlan(MESH, [], partial={1: [[0, 1]]})),
        (InputError, ["not in this plan", "tp"], lambda: CreationPlan(MESH, ["tp"]).family("dp")),
        (RankError, ["rank 8"], lambda: CreationPlan(MESH, ["tp"]).calls_of(8)),
        (IntegerError, ["rank"], lambda: CreationPlan(MESH, ["tp"]).memberships(None)),
        (AtlasError, ["two charts"], lambda: CreationPlan(Atlas(a=Mesh(x=2), b=Mesh(y=2)), [("x", "y")])),
        (InputError, ["overlap in part"], lambda: CreationPlan(FAR, ["x", "y"])),
        (InputError, ["too many to list"], lambda: neighbours(Mesh(pp=2**20, dp=2**20))),
        (InputError, ["too many to list"], lambda: first_and_last(Mesh(pp=2**20, dp=2**20))),
        (UnknownAxisError, ["'pp'"], lambda: neighbours(Mesh(dp=2**40))),
        (InputError, ["'pp=2'", "parse_mesh"], lambda: neighbours("pp=2")),
        (InputError, ["Atlas", "a chart"], lambda: first_and_last(Atlas(a=Mesh(pp=2), b=Mesh(ep=2)))),
        (InputError, ["too many for that"], lambda: check_calls({0: []}, CreationPlan(Mesh(x=2**20, y=2**20), ["x"]))),
        (InputError, ["calls_by_rank"], lambda: check_calls(7)),
        (InputError, ["calls of rank 0"], lambda: check_calls({0: "abc"})),
        (InputError, ["a call of rank 0"], lambda: check_calls({0: [5]})),
        (InputError, ["without members"], lambda: check_calls({0: [[]]})),
        (IntegerError, ["calls_by_rank"], lambda: check_calls({"first": [[0, 1]]})),
        (IntegerError, ["1.5"], lambda: check_calls({0: [[1, 1.5]]})),
        (InputError, ["two lists"], lambda: check_calls({0: [[0]], "0": [[0]]})),
        (InputError, ["CreationPlan"], lambda: check_calls({0: [[0]]}, MESH)),
        (InputError, ["orders_by_rank"], lambda: check_issue_order([["a"]], {0: [0]})),
        (InputError, ["nothing says"], lambda: check_issue_order({0: ["a"]}, {"b": [[0]]})),
        (InputError, ["without it"], lambda: check_issue_order({0: ["a"]}, {0: [1]})),
        (InputError, ["named by text"], lambda: check_issue_order({0: [1]}, {0: [0]})),
        (InputError, ["two groups"], lambda: check_issue_order({0: ["a"]}, {"a": [[0, 1], [0, 2]]})),
        (InputError, ["members"], lambda: check_issue_order({0: ["a"]}, None)),
    ],
)
def test_what_is_refused(error, words, make):
    with refused(error, *words):
        make()


# Calls.


@given(st.data())
def test_law_calls_of_a_plan_pass_and_any_one_that_is_left_out_is_found(data):
    mesh = data.draw(small_meshes.filter(lambda mesh: 1 < mesh.world_size <= 48 and mesh.first_rank < 101))
    plan = CreationPlan(mesh, data.draw(sets_of(mesh)))
    new = [list(group.ranks) for group in plan.groups() if group.new]
    ranks = list(mesh.select())
    every = {rank: list(new) for rank in ranks}
    own = {rank: [members for members in new if rank in members] for rank in ranks}
    partition = {
        rank: [[list(group) for group in family.groups] for family in plan.families if family.created] for rank in ranks
    }
    for calls in (every, own, partition):
        check_calls(calls, plan)
    check_calls(every)
    if not new:
        return
    victim = data.draw(st.sampled_from(ranks))
    place = data.draw(st.integers(0, len(new) - 1))
    every[victim] = new[:place] + new[place + 1 :]
    with refused(CreationOrderError, f"call {place}", first_divergent_call=place, canonical_plan=new):
        check_calls(every, plan)
    with pytest.raises(CreationOrderError) as caught:
        check_calls(every)
    assert caught.value.first_divergent_call == place
    assert caught.value.odd_ranks == ([victim] if len(ranks) > 2 else [max(ranks)])


def test_a_plan_names_the_rank_that_leaves_it():
    plan = CreationPlan(Mesh(dp=2, tp=2), ["tp", "dp"])
    own = {rank: [list(group.ranks) for group in plan.memberships(rank)] for rank in range(4)}
    own[2].reverse()
    with refused(CreationOrderError, "rank 2 leaves", "call 0", "[2, 3]", "[0, 2]", odd_ranks=[2], expected=[2, 3]):
        check_calls(own, plan)
    own[2] = [[2, 3], [0, 2], [0, 2]]
    with refused(CreationOrderError, "rank 2", "call 2", "nothing is due", first_divergent_call=2, expected=None):
        check_calls(own, plan)
    own[2] = [[2, 3]]
    with refused(CreationOrderError, "it creates nothing", first_divergent_call=1, expected=[0, 2], given=None):
        check_calls(own, plan)


def test_groups_that_need_no_communicator_may_be_created_all_the_same():
    plan = CreationPlan(Mesh(dp=2, tp=2, cp=1), ["cp", "tp", "dp+tp"])
    everything = [[0], [1], [2], [3], [0, 1], [2, 3], [0, 1, 2, 3]]
    check_calls(dict.fromkeys(range(4), everything), plan)
    check_calls({rank: [ranks for ranks in everything if rank in ranks] for rank in range(4)}, plan)


@pytest.mark.parametrize("victim", range(8))
def test_the_order_that_is_offered_is_that_of_the_most_ranks(victim):
    """Whoever swaps two calls, or makes one more, is not followed, whatever its place and its groups' numbers."""
    calls = [[4, 5], [0, 1], [2, 3], [6, 7], [1, 2]]
    everybody = {rank: list(calls) for rank in range(8)}
    everybody[victim][0], everybody[victim][2] = calls[2], calls[0]
    with refused(CreationOrderError, f"rank {victim} creates [2, 3]", odd_ranks=[victim], canonical_plan=calls):
        check_calls(everybody)
    everybody[victim] = [[0, 7], *calls]
    with refused(CreationOrderError, "[0, 7]", canonical_plan=[calls[0], [0, 7], *calls[1:]]):
        check_calls(everybody)


@given(st.permutations([[0, 1], [2, 3], [0, 2], [1, 3]]), st.integers(0, 3), st.data())
def test_law_most_ranks_need_not_change_anything(most, victim, data):
    own = data.draw(st.permutations(most))
    calls = {rank: own if rank == victim else most for rank in range(4)}
    if own == most:
        check_calls(calls)
        return
    with refused(CreationOrderError, "ranks part", canonical_plan=most, odd_ranks=[victim]):
        check_calls(calls)


def test_a_plan_tells_what_is_due_by_name_and_what_concerns_the_rank():
    plan = CreationPlan(Mesh(pp=4, tp=2), ["tp", "pp"], {"pairs": [[2, 5]]})
    own = {rank: [list(group.ranks) for group in plan.memberships(rank)] for rank in range(8)}
    own[5] = [[1, 3, 5, 7], [4, 5], [2, 5]]
    own[6] = []
    told = (
        "rank 5 leaves the plan at call 0: tp group 2, [4, 5], is due, it creates [1, 3, 5, 7] (pp group 1); rank 6"
        " leaves it, too\nby the plan of pp=4 tp=2 rank 5 creates, in this order: tp group 2 [4, 5], pp group 1"
        " [1, 3, 5, 7], pairs group 0 [2, 5]"
    )
    with pytest.raises(CreationOrderError) as caught:
        check_calls(own, plan)
    assert str(caught.value) == told
    large = CreationPlan(Mesh(dp=16, tp=2), ["tp", "dp"])
    every = [list(group.ranks) for group in large.groups()]
    calls = {rank: list(every) for rank in range(32)}
    del calls[7][10]
    with refused(
        CreationOrderError,
        "rank 7 leaves the plan at call 10: tp group 10, [20, 21], is due, it creates [22, 23] (tp group 11)\n",
        "rank 7, as every rank, creates, in this order: ..., tp group 10 [20, 21], tp group 11",
    ):
        check_calls(calls, large)


# The order of use.


@given(st.data())
def test_law_uses_complete_exactly_where_they_have_an_order_in_common(data):
    """Against another way to see it: each use once per group, in some order that no rank contradicts."""
    world = data.draw(st.integers(2, 5))
    names = data.draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True))
    some = st.lists(st.integers(0, world - 1), min_size=1, unique=True)
    members = {name: [sorted(data.draw(some))] for name in names}
    everything = data.draw(st.lists(st.sampled_from(names), max_size=6))
    orders = {rank: [name for name in everything if rank in members[name][0]] for rank in range(world)}
    check_issue_order(orders, members)  # what all take from one order never blocks
    for rank in range(world):
        orders[rank] = data.draw(st.permutations(orders[rank]))
    if data.draw(st.booleans()) and orders[0]:
        orders[0] = orders[0][1:]
    if completes(orders, members):
        check_issue_order(orders, members)
    else:
        with pytest.raises(IssueOrderError) as caught:
            check_issue_order(orders, members)
        assert all(a < b for a, b in caught.value.conflicting_rank_pairs)
        assert all(rank in ranks for rank, (_, ranks) in caught.value.stuck.items())


def completes(orders, members):
    after: dict = {}
    for rank, order in orders.items():
        seen: dict = {}
        numbered = []
        for name in order:
            seen[name] = seen.get(name, 0) + 1
            numbered.append((name, seen[name]))
        for place, use in enumerate(numbered):
            after.setdefault(use, {"before": set(), "ranks": set()})["ranks"].add(rank)
            after[use]["before"] |= set(numbered[:place])
    if any(facts["ranks"] != set(members[name][0]) for (name, _), facts in after.items()):
        return False
    try:
        list(TopologicalSorter({use: facts["before"] for use, facts in after.items()}).static_order())
    except CycleError:
        return False
    return True


def test_the_names_of_a_plan_stand_for_its_groups():
    mesh = Mesh(pp=2, tp=2)
    plan = CreationPlan(mesh, ["tp", "pp"], partial={"ends": [[0, 3]]})
    orders = {rank: ["tp", "pp"] for rank in range(4)}
    orders[0].append("ends")
    orders[3].append("ends")
    check_issue_order(orders, plan)
    orders[1], orders[2] = ["pp", "tp"], ["pp", "tp"]
    with refused(IssueOrderError, "rank 0 waits in tp [0, 1] for rank 1", "pp [1, 3]", "4 ranks wait for ever"):
        check_issue_order(orders, plan)


def test_arrays_are_lists_of_ranks_and_their_elements_are_ranks():
    table = numpy.array([[0, 1], [2, 3]])
    check_calls({rank: [table] for rank in range(4)}, CreationPlan("dp=2 tp=2", ["tp"]))
    check_calls([[[numpy.array(0), numpy.array(1)]]] * 2)
    plan = CreationPlan("dp=2 tp=2", ["tp"], partial=[numpy.array([0, 3]), [numpy.int64(1), numpy.int64(2)], table])
    assert [one.groups for one in plan.partial] == [((0, 3),), ((1, 2),), ((0, 1), (2, 3))]
    with refused(InputError, "must be a list or tuple"):
        CreationPlan("tp=2", [], partial={"a": [numpy.array(1)]})


@pytest.mark.parametrize(
    "members",
    [
        {"a": iter([iter([0, 1])])},
        {0: iter([0, 1]), 1: iter([0, 1])},
        {"a": {0: iter([0, 1]), 1: iter([0, 1])}},
        {numpy.int64(0): [0, 1], numpy.int64(1): [0, 1]},
    ],
)
def test_members_may_be_given_once_and_ranks_may_be_numbers_of_numpy(members):
    check_issue_order({0: ["a", "a"], numpy.int64(1): ["a", "a"]}, members)
