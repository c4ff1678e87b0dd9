"""Ranks behave as the list of them would, whatever they are made of, and become arrays without Python loops."""

import copy
import pickle
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankatlas import Mesh, Ranks
from strategies import HUGE, axes_of, large_meshes, ranks_of, small_meshes

bounds = st.none() | st.integers(-30, 30)
steps = st.none() | st.integers(-5, 5).filter(bool)
slices = st.builds(slice, bounds, bounds, steps)


@st.composite
def ranks_and_lists(draw):
    """The ranks of some group, perhaps sliced once or twice, and the list they must equal."""
    mesh = draw(small_meshes)
    group = mesh.group(*draw(axes_of(mesh)), rank=draw(ranks_of(mesh)))
    ranks, plain = group.ranks, list(group.ranks)
    for part in draw(st.lists(slices, max_size=2)):
        ranks, plain = ranks[part], plain[part]
    return ranks, plain


@given(ranks_and_lists())
def test_equal_to_every_sequence_of_the_same_ints(case):
    ranks, plain = case
    assert type(ranks) is Ranks
    for same in (plain, tuple(plain), ranks, ranks[:]):
        assert (ranks == same, same == ranks, ranks != same, same != ranks) == (True, True, False, False)
    for other in ([*plain, 1], [rank + 1 for rank in plain] or [0], plain[::-1] if len(plain) > 1 else [-1]):
        assert (ranks == other, other == ranks, ranks != other) == (False, False, True)
    assert (ranks == set(plain), ranks == None, ranks == "", ranks != iter(plain)) == (  # noqa: E711
        *(False, False, False, True),
    )


@given(ranks_and_lists(), ranks_and_lists())
def test_two_ranks_are_equal_when_their_lists_are(one, two):
    assert (one[0] == two[0]) == (one[1] == two[1])


@given(ranks_and_lists())
def test_len_iteration_reversed_bool_and_repr(case):
    ranks, plain = case
    assert (list(ranks), len(ranks), bool(ranks), list(reversed(ranks))) == (
        *(plain, len(plain), bool(plain), plain[::-1]),
    )
    assert (repr(ranks), str(ranks), f"{ranks}") == (repr(plain), str(plain), f"{plain}")
    assert (sorted(ranks), sum(ranks), {*ranks}) == (sorted(plain), sum(plain), {*plain})
    assert all(type(rank) is int for rank in ranks)


@given(ranks_and_lists(), slices)
def test_every_index_and_slice(case, part):
    ranks, plain = case
    assert ranks[part] == plain[part]
    for index in range(-len(plain), len(plain)):
        assert ranks[index] == ranks[np.int64(index)] == plain[index]
    for outside in (len(plain), -len(plain) - 1, 2**70):
        with pytest.raises(IndexError):
            ranks[outside]
    for wrong in (1.0, "0", None, (0, 1)):
        with pytest.raises(TypeError):
            ranks[wrong]


@given(ranks_and_lists(), st.integers(-10, 160))
def test_in_count_and_index_find_what_the_list_finds(case, rank):
    ranks, plain = case
    for asked in (rank, np.int64(rank), float(rank), HUGE + rank, *plain[:2], *plain[-1:]):
        assert (asked in ranks, ranks.count(asked)) == (asked in plain, plain.count(asked))
        if asked in plain:
            assert ranks.index(asked) == plain.index(asked)
        else:
            with pytest.raises(ValueError, match="not in"):
                ranks.index(asked)
    for odd in ("1", None, 0.5, [0], float("nan")):
        assert (odd in ranks, ranks.count(odd)) == (False, 0)


@given(ranks_and_lists(), bounds, bounds)
def test_index_honours_its_bounds(case, start, stop):
    ranks, plain = case
    for rank in plain:
        arguments = (rank, 0 if start is None else start, len(plain) if stop is None else stop)
        try:
            expected = plain.index(*arguments)
        except ValueError:
            with pytest.raises(ValueError, match="not in"):
                ranks.index(*arguments)
        else:
            assert ranks.index(*arguments) == expected


@given(ranks_and_lists())
def test_as_range_where_they_are_one_progression_else_none(case):
    ranks, plain = case
    gaps = {after - before for before, after in pairwise(plain)}
    found = ranks.as_range()
    assert (found is not None) == (len(gaps) <= 1)
    assert found is None or (type(found) is range and list(found) == plain)


@pytest.mark.parametrize("sizes", [(2, 5, 2), (3, 2, 3), (3, 3, 3), (2, 2, 3, 2, 2), (4, 2, 2), (5, 2, 3)])
def test_as_range_of_every_slice_of_a_group_over_every_second_axis(sizes):
    mesh = Mesh.from_axes([(f"a{place}", size) for place, size in enumerate(sizes)])
    ranks = mesh.group(*mesh.axes[::2], rank=0).ranks
    plain, count = list(ranks), len(ranks)
    for start, stop in product(range(count), range(-1, count + 1)):
        for step in range(1, count) if stop > start else range(-1, -count, -1):
            part = slice(start, None if stop < 0 else stop, step)
            members, found = plain[part], ranks[part].as_range()
            assert (found is not None) == (len({b - a for a, b in pairwise(members)}) <= 1), (part, members)
            assert found is None or list(found) == members


@given(ranks_and_lists())
def test_pickles_copies_and_has_no_hash(case):
    ranks, plain = case
    for again in (pickle.loads(pickle.dumps(ranks)), copy.copy(ranks), copy.deepcopy(ranks)):
        assert (type(again), again) == (Ranks, plain)
    with pytest.raises(TypeError, match="unhashable"):
        hash(ranks)


@given(ranks_and_lists())
def test_asarray_is_the_int64_array_of_the_list(case):
    ranks, plain = case
    array = np.asarray(ranks)
    assert (array.dtype, array.ndim, array.tolist()) == (np.int64, 1, plain)
    for dtype in (np.float64, np.uint64):
        cast = np.asarray(ranks, dtype=dtype)
        assert (cast.dtype, cast.tolist()) == (dtype, plain)
    assert np.array(ranks).tolist() == np.array(ranks, copy=True).tolist() == plain
    with pytest.raises(ValueError, match="copy"):
        np.array(ranks, copy=False)
    assert (array == np.array(plain, dtype=np.int64)).all()


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32])
@pytest.mark.parametrize("first_rank", [0, 126, 127, 2**15, 2**31 - 8, 2**31 - 1, 2**32 - 2, HUGE])
def test_a_dtype_too_narrow_for_the_ranks_is_an_overflow_as_with_a_list(dtype, first_rank):
    mesh = Mesh(pp=2, dp=2, tp=2, first_rank=first_rank)
    groups = mesh.groups("pp", "tp")
    for lazy, plain in (
        *((mesh.select(), list(mesh.select())), (mesh.select(dp=1), list(mesh.select(dp=1)))),
        *((groups, [list(group) for group in groups]), (mesh.groups("tp"), [list(g) for g in mesh.groups("tp")])),
    ):
        try:
            expected = np.asarray(plain, dtype=dtype)
        except OverflowError:
            with pytest.raises(OverflowError):
                np.asarray(lazy, dtype=dtype)
        else:
            found = np.asarray(lazy, dtype=dtype)
            assert (found.dtype, found.tolist()) == (dtype, expected.tolist())


@given(large_meshes, st.data())
def test_the_ranks_of_a_huge_group_cost_nothing_to_ask(mesh, data):
    group = mesh.group(*data.draw(axes_of(mesh)), rank=data.draw(ranks_of(mesh)))
    ranks = group.ranks
    place = data.draw(st.integers(0, group.size - 1))
    rank = ranks[place]
    assert (ranks[place - group.size], rank in ranks, ranks.count(rank), ranks.index(rank)) == (rank, True, 1, place)
    tail = ranks[place:]
    assert (len(tail), tail[0], tail.index(rank)) == (group.size - place, rank, 0)
    assert ranks == pickle.loads(pickle.dumps(ranks))
    assert ranks[:3] == [ranks[index] for index in range(min(3, group.size))]
    assert len(repr(ranks)) < 2000 * 16
    assert ranks != ranks[1:]


# arrays of groups


@given(small_meshes, st.data())
def test_asarray_of_groups_is_their_table(mesh, data):
    groups = mesh.groups(*data.draw(axes_of(mesh)))
    table = np.asarray(groups)
    assert (table.dtype, table.shape, table.tolist()) == (
        *(np.int64, (len(groups), groups.size), [list(group) for group in groups]),
    )
    assert np.asarray(groups, dtype=np.float64).tolist() == table.tolist()
    assert np.array(groups).tolist() == table.tolist()
    assert [np.asarray(ranks).tolist() for ranks in groups.ranges()] == table.tolist()
    with pytest.raises(ValueError, match="copy"):
        np.array(groups, copy=False)


@given(small_meshes, st.data())
def test_the_table_is_a_view_where_both_directions_are_one_progression(mesh, data):
    groups = mesh.groups(*data.draw(axes_of(mesh)))
    table = np.asarray(groups)
    if groups[0].ranks.as_range() is not None and mesh.select(**dict.fromkeys(groups.axes, 0)).as_range() is not None:
        memory = table
        while memory.base is not None:
            memory = memory.base
        assert memory is not table
        assert memory.tolist() == list(range(mesh.first_rank, mesh.first_rank + mesh.world_size))


def test_the_table_of_a_million_ranks_costs_one_arange():
    mesh = Mesh(dp=2**10, tp=2**10)
    for axis in ("dp", "tp"):
        table = np.asarray(mesh.groups(axis))
        assert table.base is not None
        assert table.shape == (2**10, 2**10)
        assert (table[3, 5], table[-1, -1]) == (mesh.groups(axis)[3].ranks[5], 2**20 - 1)


def test_an_array_of_groups_may_be_written_to_without_changing_the_groups():
    groups = Mesh(dp=2, tp=2).groups("tp")
    table = np.asarray(groups)
    if table.flags.writeable:
        table[:] = -1
    assert [list(group) for group in groups] == [[0, 1], [2, 3]]
    assert np.asarray(groups).tolist() == [[0, 1], [2, 3]]


def test_ranks_print_as_a_list_but_never_fill_the_memory():
    assert repr(Mesh(dp=HUGE).select()) == f"[0, 1, 2, ..., {HUGE - 1}]"
    assert repr(Mesh(dp=1000).select()) == repr(list(range(1000)))


def test_the_bare_ranges_are_ranges_where_a_group_is_one_progression():
    mesh = Mesh(pp=2, dp=2, tp=2)
    assert all(type(ranks) is range for axis in mesh.axes for ranks in mesh.groups(axis).ranges())
    assert all(type(ranks) is range for ranks in mesh.groups("pp", "dp").ranges())
    assert all(type(ranks) is Ranks for ranks in mesh.groups("pp", "tp").ranges())
    assert list(mesh.groups().ranges()) == [range(rank, rank + 1) for rank in range(8)]
