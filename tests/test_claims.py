"""check_groups: a table somebody wrote, against the mesh."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import brute
from rankatlas import Mesh, check_groups
from rankatlas.errors import (
    DuplicateAxisError,
    GroupError,
    GroupOrderError,
    IntegerError,
    MemberOrderError,
    UnknownAxisError,
)
from refusals import refused
from strategies import axes_of, small_meshes

MESH = Mesh(pp=2, dp=2, tp=2)


@st.composite
def tables(draw):
    mesh = draw(small_meshes)
    axes = draw(axes_of(mesh))
    return mesh, axes, brute.groups(mesh, axes)


@given(tables())
def test_the_mesh_own_groups_pass_in_every_form(case):
    mesh, axes, table = case
    groups = mesh.groups(*axes)
    for claimed in (table, tuple(map(tuple, table)), np.array(table), groups, groups.ranges(), iter(table)):
        assert check_groups(mesh, axes, claimed) is None
    assert check_groups(mesh, tuple(axes), [map(int, members) for members in table], any_order=True) is None


@given(tables(), st.randoms(use_true_random=False))
def test_groups_in_another_order(case, dice):
    mesh, axes, table = case
    shuffled = table[:]
    dice.shuffle(shuffled)
    check_groups(mesh, axes, shuffled, any_order=True)
    assume(shuffled != table)
    with pytest.raises(GroupOrderError) as caught:
        check_groups(mesh, axes, shuffled)
    wrong = [place for place, members in enumerate(shuffled) if members != table[place]]
    error = caught.value
    assert (error.wrong_positions, error.group) == (wrong, wrong[0])
    assert (error.expected, error.given) == (table[wrong[0]], shuffled[wrong[0]])


@given(tables(), st.randoms(use_true_random=False))
def test_members_in_another_order(case, dice):
    mesh, axes, table = case
    assume(len(table[0]) > 1)
    claimed = [members[:] for members in table]
    for members in dice.sample(claimed, dice.randint(1, len(claimed))):
        dice.shuffle(members)
    assume(claimed != table)
    wrong = [
        [group, place]
        for group, members in enumerate(claimed)
        for place, rank in enumerate(members)
        if rank != table[group][place]
    ]
    with pytest.raises(MemberOrderError) as caught:
        check_groups(mesh, axes, claimed)
    error = caught.value
    assert (error.wrong_positions, error.same_members, error.group) == (wrong, True, wrong[0][0])
    assert (error.expected, error.given) == (table[error.group], claimed[error.group])


@given(tables(), st.randoms(use_true_random=False))
def test_with_any_order_positions_are_those_of_the_table_given(case, dice):
    mesh, axes, table = case
    assume(len(table[0]) > 1)
    claimed = [members[:] for members in table]
    dice.shuffle(claimed)
    chosen = dice.randrange(len(claimed))
    claimed[chosen].reverse()
    with pytest.raises(MemberOrderError) as caught:
        check_groups(mesh, axes, claimed, any_order=True)
    assert {group for group, _ in caught.value.wrong_positions} == {chosen}
    assert caught.value.given == claimed[chosen]
    assert caught.value.expected == claimed[chosen][::-1]


@given(tables(), st.data())
def test_ranks_out_of_range_missing_and_repeated(case, data):
    mesh, axes, table = case
    claimed = [members[:] for members in table]
    group = data.draw(st.integers(0, len(claimed) - 1))
    place = data.draw(st.integers(0, len(claimed[0]) - 1))
    world = range(mesh.first_rank, mesh.first_rank + mesh.world_size)
    lost = claimed[group][place]
    wrong = data.draw(st.integers(mesh.first_rank - 3, mesh.first_rank + mesh.world_size + 3).filter(lost.__ne__))
    claimed[group][place] = wrong
    with pytest.raises(GroupError) as caught:
        check_groups(mesh, axes, claimed)
    error = caught.value
    assert type(error) is GroupError
    assert (error.missing, error.group) == ([lost], None)
    assert error.out_of_range == ([] if wrong in world else [wrong])
    assert error.repeated == ([wrong] if wrong in world else [])
    assert f"rank {lost} missing" in str(error)


def test_a_partition_into_other_groups():
    fields = {"out_of_range": [], "missing": [], "repeated": [], "group": 0, "expected": [0, 1], "given": [0, 4]}
    with refused(GroupError, "tp group 0", "[0, 1]", "[0, 4]", **fields):
        check_groups(MESH, ["tp"], [[0, 4], [1, 5], [2, 6], [3, 7]])


@pytest.mark.parametrize(
    "claimed",
    [
        [[0, 1, 2, 3], [4, 5], [6, 7]],
        [[0], [1], [2, 3], [4, 5], [6, 7]],
        [[0, 1], [], [2, 3], [4, 5], [6, 7]],
        [[], [0, 1], [2, 3], [4, 5], [6, 7]],
        [[0, 1], [2, 3], [4, 5], [6, 7], []],
        [list(range(8))],
        [[rank] for rank in range(8)],
    ],
    ids=str,
)
@pytest.mark.parametrize("any_order", [False, True])
def test_groups_of_other_sizes(claimed, any_order):
    with pytest.raises(GroupError) as caught:
        check_groups(MESH, ["tp"], claimed, any_order=any_order)
    assert type(caught.value) is GroupError
    assert caught.value.given == claimed[caught.value.group]
    assert caught.value.given not in [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("claimed", [[], [[]], [[], []]])
def test_an_empty_table(claimed):
    with refused(GroupError, "ranks 0, 1, 2, 3, 4, 5, 6, 7 missing", missing=list(range(8))):
        check_groups(MESH, ["tp"], claimed)


@pytest.mark.parametrize("claimed", [None, 5, [0, 1], [[0, 1], 2], True])
def test_what_is_no_table(claimed):
    with refused(GroupError, "a list of lists", repr(claimed)):
        check_groups(MESH, ["tp"], claimed)


@pytest.mark.parametrize("rank", [1.0, "1", None, True, np.float64(1)])
def test_ranks_that_are_no_integers(rank):
    with refused(IntegerError, "rank", repr(rank), value=rank):
        check_groups(MESH, ["tp"], [[0, rank], [2, 3], [4, 5], [6, 7]])


def test_an_array_of_floats_is_no_table_of_ranks():
    with pytest.raises(IntegerError):
        check_groups(MESH, ["tp"], np.arange(8.0).reshape(4, 2))


def test_axes_may_be_one_name_several_or_none():
    check_groups(MESH, "tp", [[0, 1], [2, 3], [4, 5], [6, 7]])
    check_groups(MESH, ("tp", "pp"), [[0, 1, 4, 5], [2, 3, 6, 7]])
    check_groups(MESH, (), [[rank] for rank in range(8)])
    with refused(UnknownAxisError, "'ep'"):
        check_groups(MESH, ["ep"], [])
    with refused(DuplicateAxisError, "'tp'"):
        check_groups(MESH, ["tp", "tp"], [])


def test_a_shifted_mesh_counts_from_its_first_rank():
    mesh = Mesh(dp=2, tp=2, first_rank=8)
    check_groups(mesh, ["tp"], [[8, 9], [10, 11]])
    with refused(GroupError, "out of range (8 to 11)", out_of_range=[0, 1, 2, 3], missing=[8, 9, 10, 11]):
        check_groups(mesh, ["tp"], [[0, 1], [2, 3]])


def test_a_short_table_for_a_huge_world_is_refused_at_once():
    with pytest.raises(GroupError, match="missing") as caught:
        check_groups(Mesh(dp=2**40), ["dp"], [[0, 1]])
    assert caught.value.missing[:3] == [2, 3, 4]
    assert str(2**40 - 2) in str(caught.value)


def test_a_message_stays_short_however_long_the_table():
    claimed = [list(range(0, 4096, 2)), list(range(1, 4096, 2))]
    for mesh, axes in ((Mesh(dp=2, tp=2048), ["tp"]), (Mesh(dp=4096), ["dp"]), (Mesh(dp=8, tp=1024), ["tp"])):
        with pytest.raises(GroupError) as caught:
            check_groups(mesh, axes, claimed)
        assert len(str(caught.value)) < 600
