"""Plans with partial sets and axes of size 1 against brute force; calls and uses held against them; many sets."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankatlas import Atlas, Mesh
from rankatlas.creation import CreationPlan, check_calls, check_issue_order
from rankatlas.errors import CreationOrderError, InputError, IssueOrderError
from refusals import refused


@st.composite
def plans(draw):
    """Plans of meshes and of charts that overlap or not, with partial sets."""
    if draw(st.booleans()):
        layout = Mesh.from_axes([(name, draw(st.integers(1, 3))) for name in ("a", "b")], draw(st.sampled_from([0, 3])))
        known, charts = list(layout.axes), [layout]
    else:
        one = Mesh(a=draw(st.integers(1, 3)), b=draw(st.integers(1, 2)))
        two = Mesh(c=draw(st.integers(1, 4)), first_rank=draw(st.integers(0, 6)))
        layout, charts = Atlas(x=one, y=two), [one, two]
        known = ["x.a", "x.b", "y.c"]
    ranks = list(dict.fromkeys(rank for mesh in charts for rank in mesh.select()))
    groups = st.lists(st.sampled_from(ranks), min_size=1, max_size=3, unique=True).map(sorted)
    sets = st.lists(groups, max_size=3, unique_by=tuple)
    axes = draw(st.lists(st.sampled_from(known), unique=True, max_size=3))
    return CreationPlan(layout, axes, {"p": draw(sets), "q": draw(sets)}), sorted(ranks)


def opened(plan, rank):
    """What `open_groups` calls on a rank whose peers have made as many groups."""
    calls = [[rank]] if plan.has_ranks_alone else []
    for family in plan.families:
        for one in family.planned() if family.created else ():
            if family.how == "every" or rank in one.ranks:
                calls.append(list(one.ranks))
    return calls + [list(one.ranks) for one in plan.partial_groups() if one.new]


@settings(max_examples=150, deadline=None)
@given(plans())
def test_law_costs_and_calls_with_partial_sets_are_those_of_brute_force(drawn):
    plan, ranks = drawn
    new = [list(group.ranks) for group in plan.groups() if group.new]
    cost = plan.cost()
    assert cost.one_by_one == cost.communicators == len(new)
    assert cost.memberships == max(sum(rank in group for group in new) for rank in ranks)
    assert cost.by_partition == max(len(opened(plan, rank)) for rank in ranks)
    assert [plan.calls_of(rank) for rank in ranks] == [len(opened(plan, rank)) for rank in ranks]


@settings(max_examples=150, deadline=None)
@given(plans(), st.randoms(use_true_random=False))
def test_law_what_opening_does_is_a_way_through_the_plan(drawn, rnd):
    plan, ranks = drawn
    calls = {rank: opened(plan, rank) for rank in ranks}
    check_calls(calls, plan)
    check_calls({rank: [[rank], *(list(one.ranks) for one in plan.groups())] for rank in ranks}, plan)
    busy = [rank for rank in ranks if any(len(call) > 1 and rank in call for call in calls[rank])]
    if busy:
        del calls[rnd.choice(busy)]
        with pytest.raises(CreationOrderError):
            check_calls(calls, plan)


def test_ranks_of_the_plan_that_are_not_given_create_nothing():
    plan = CreationPlan(Mesh(dp=2, tp=2), ["tp"])
    for calls in ({}, {0: [[0, 1]]}, {0: [[0, 1]], 1: [[0, 1]], 2: [[2, 3]]}):
        with pytest.raises(CreationOrderError):
            check_calls(calls, plan)
    with refused(InputError, "rank 4", "dp=2 tp=2"):
        check_calls({rank: [] for rank in range(5)}, plan)


@pytest.mark.parametrize("members", [[0, 0], [0, -1], [1, 0, 1]])
def test_members_are_different_ranks_from_0_on(members):
    with refused(InputError, "each once"):
        check_calls({0: [members], 1: [members]})
    with refused(InputError):
        check_issue_order({0: ["x"], 1: ["x"]}, {"x": {0: members, 1: members}})


def test_groups_with_equal_members_are_one_in_a_plan_whatever_the_name():
    plan = CreationPlan(
        Mesh(dp=2, tp=2), ["tp"], {"pair": [[0, 1]], "again": [[1, 0]], "odd": [[0, 3]], "too": [[0, 3]]}
    )
    check_issue_order({0: ["tp"], 1: ["pair"]}, plan)
    check_issue_order({0: ["pair", "odd"], 1: ["again"], 3: ["too"]}, plan)
    with pytest.raises(IssueOrderError):
        check_issue_order({0: ["pair", "odd"], 3: ["too"]}, plan)


def test_a_group_is_its_members_in_whatever_order_they_are_written():
    check_issue_order({0: ["x"], 1: ["x"]}, {"x": {0: [0, 1], 1: [1, 0]}})


def test_every_set_of_twelve_axes_makes_a_plan():
    mesh = Mesh(**{f"a{number}": 2 for number in range(12)})
    sets = [tuple(f"a{bit}" for bit in range(12) if number >> bit & 1) for number in range(1, 4096)]
    random.Random(1).shuffle(sets)
    plan = CreationPlan(mesh, sets)
    assert len(plan.families) == 4095
    assert plan.cost().memberships == 4094  # the whole world is there already


def test_a_cost_reads_as_words():
    cost = CreationPlan(Mesh(dp=2, tp=2), ["tp", "dp"], {"own": [[0, 3]]}).cost()
    assert repr(cost) == (
        "Cost(5 communicators; calls of every rank: 5 one by one, 3 by partition; a rank is in 3, about 384 MiB)"
    )
    assert repr(cost.families[0]) == (
        "FamilyCost(tp: 2 groups of 2, 2 created; calls of every rank: 2 one by one, 1 by partition)"
    )


def test_members_of_a_partial_set_ascend_as_in_every_group():
    plan = CreationPlan(Mesh(dp=4), ["dp"], {"own": [[3, 0]]})
    assert [group.ranks for group in plan.partial_groups()] == [[0, 3]]
    assert plan == CreationPlan(Mesh(dp=4), ["dp"], {"own": [[0, 3]]})
