"""The six laws of the algebra, against brute force where the world can be walked, and alone where it cannot."""

import gc
import sys
import tracemalloc
from collections import Counter
from math import prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import brute
from rankatlas import Mesh
from strategies import HUGE, axes_of, coordinates_of, large_meshes, meshes, neighbours_of, ranks_of, small_meshes

# 1. mesh.rank(**mesh.coordinate(r)) == r for every rank, and back


@given(small_meshes)
def test_law_1_every_rank_has_the_coordinate_that_counting_gives_it(mesh):
    table = brute.places(mesh)
    assert len(table) == mesh.world_size == prod(mesh.sizes)
    for rank, places in table.items():
        assert list(mesh.coordinate(rank).items()) == list(places.items())
        assert mesh.rank(**mesh.coordinate(rank)) == rank


@given(meshes.flatmap(lambda mesh: st.tuples(st.just(mesh), ranks_of(mesh), coordinates_of(mesh))))
def test_law_1_rank_and_coordinate_undo_each_other_in_any_world(asked):
    mesh, rank, places = asked
    assert mesh.rank(**mesh.coordinate(rank)) == rank
    assert mesh.coordinate(mesh.rank(**places)) == places
    assert mesh.rank(**dict(reversed(places.items()))) == mesh.rank(**places)


@given(meshes)
def test_law_1_strides_say_how_far_apart_neighbours_are(mesh):
    assert mesh.strides[-1] == 1
    assert mesh.strides == tuple(mesh.stride(axis) for axis in mesh.axes)
    for axis, size in zip(mesh.axes, mesh.sizes):
        assert mesh.size(axis) == size
        if size > 1:
            there = mesh.coordinate(mesh.first_rank + mesh.stride(axis))
            assert dict(there) == {name: int(name == axis) for name in mesh.axes}


# 2. mesh.groups(*axes) partitions the ranks


@given(small_meshes, st.data())
def test_law_2_groups_partition_the_ranks_as_brute_force_does(mesh, data):
    axes = data.draw(axes_of(mesh))
    groups = mesh.groups(*axes)
    truth = brute.groups(mesh, axes)
    assert [list(group) for group in groups] == truth
    assert [list(ranks) for ranks in groups.ranges()] == truth
    assert Counter(rank for group in groups for rank in group) == Counter(list(brute.places(mesh)))
    assert len(groups) * groups.size == mesh.world_size
    assert [group.index for group in groups] == list(range(len(truth)))


@given(large_meshes, st.data())
def test_law_2_any_group_of_a_huge_world_is_found_again_by_its_members(mesh, data):
    groups = mesh.groups(*data.draw(axes_of(mesh)))
    index = data.draw(st.integers(0, len(groups) - 1))
    group = groups[index]
    assert (group.index, group.size, len(group)) == (index, groups.size, groups.size)
    member = group.ranks[data.draw(st.integers(0, group.size - 1))]
    again = mesh.group(*group.axes, rank=member)
    assert again == group
    assert again in groups
    if index:
        assert groups[index - 1].ranks[0] < group.ranks[0]


# 3. mesh.group(*axes, rank=r) contains r at group_rank, the mixed-radix value of its coordinates


@given(small_meshes, st.data())
def test_law_3_a_rank_stands_in_its_group_at_the_mixed_radix_value_of_its_places(mesh, data):
    axes = data.draw(axes_of(mesh))
    ordered = tuple(axis for axis in mesh.axes if axis in axes)
    for position, members in enumerate(brute.groups(mesh, axes)):
        for place, rank in enumerate(members):
            group = mesh.group(*axes, rank=rank)
            assert (group.axes, group.index, group.group_rank) == (ordered, position, place)
            assert group.ranks == members


@given(large_meshes, st.data())
def test_law_3_holds_in_a_huge_world(mesh, data):
    rank, axes = data.draw(ranks_of(mesh)), data.draw(axes_of(mesh))
    group = mesh.group(*axes, rank=rank)
    value = 0
    for axis, place in mesh.coordinate(rank).items():
        value = value * mesh.size(axis) + place if axis in axes else value
    assert group.group_rank == value
    assert group.ranks[value] == rank
    assert group.ranks.index(rank) == value
    assert rank in group


# 4. groups over disjoint axis sets meet in at most one rank; over complementary sets in exactly one


@given(small_meshes, st.data())
def test_law_4_disjoint_groups_meet_in_at_most_one_rank_complementary_in_exactly_one(mesh, data):
    axes = data.draw(axes_of(mesh))
    others = [axis for axis in mesh.axes if axis not in axes]
    fewer = others[: data.draw(st.integers(0, len(others)))]
    for group in mesh.groups(*axes):
        mine = set(group)
        assert all(len(mine & set(other)) == 1 for other in mesh.groups(*others))
        assert all(len(mine & set(other)) <= 1 for other in mesh.groups(*fewer))


@given(large_meshes, st.data())
def test_law_4_complementary_groups_meet_exactly_where_both_coordinates_say(mesh, data):
    axes = data.draw(axes_of(mesh))
    others = [axis for axis in mesh.axes if axis not in axes]
    one, two = data.draw(ranks_of(mesh)), data.draw(ranks_of(mesh))
    mine, other = mesh.coordinate(one), mesh.coordinate(two)
    meeting = mesh.rank(**{axis: mine[axis] if axis in others else other[axis] for axis in mesh.axes})
    assert meeting in mesh.group(*axes, rank=one)
    assert meeting in mesh.group(*others, rank=two)


# 5. flatten then unflatten is the identity; groups over a flattened axis are the groups over its parts


@given(meshes, st.data())
def test_law_5_flatten_then_unflatten_is_the_identity(mesh, data):
    parts = data.draw(neighbours_of(mesh))
    flat = mesh.flatten(*parts, into=parts[0])
    sizes = {axis: mesh.size(axis) for axis in parts}
    assert flat.unflatten(parts[0], **sizes) == mesh
    opened = data.draw(st.sampled_from(parts))
    assert flat.unflatten(parts[0], **{**sizes, opened: -1}) == mesh


@given(small_meshes, st.data())
def test_law_5_groups_over_a_flattened_axis_are_the_groups_over_its_parts(mesh, data):
    parts = data.draw(neighbours_of(mesh))
    others = data.draw(axes_of(mesh))
    flat = mesh.flatten(*parts, into="whole")
    assert flat.sizes == (*mesh.sizes[: mesh.axes.index(parts[0])], flat.size("whole"), *_after(mesh, parts[-1]))
    assert _lists(flat.groups("whole")) == brute.groups(mesh, parts)
    rest = [axis for axis in others if axis not in parts]
    assert _lists(flat.groups("whole", *rest)) == brute.groups(mesh, [*parts, *rest])
    assert _lists(flat.groups(*rest)) == brute.groups(mesh, rest)


@given(large_meshes, st.data())
def test_law_5_holds_for_one_rank_of_a_huge_world(mesh, data):
    parts = data.draw(neighbours_of(mesh))
    flat = mesh.flatten(*parts, into="whole")
    rank = data.draw(ranks_of(mesh))
    over_parts, over_whole = mesh.group(*parts, rank=rank), flat.group("whole", rank=rank)
    assert over_parts.ranks == over_whole.ranks
    assert (over_parts.index, over_parts.group_rank) == (over_whole.index, over_whole.group_rank)
    assert flat.coordinate(rank)["whole"] == over_parts.group_rank


def _after(mesh, axis):
    return mesh.sizes[mesh.axes.index(axis) + 1 :]


def _lists(groups):
    return [list(group) for group in groups]


# 6. cost: O(axes) time and memory, whatever the world

SMALL = {"pp": 2, "dp": 2, "cp": 2, "ep": 2, "tp": 4}
LARGE = {"pp": 2**8, "dp": 2**10, "cp": 2**6, "ep": 2**8, "tp": 2**8}


def one_rank_of(sizes):
    """What one rank asks for: its coordinate and a group along each of five axes."""
    mesh = Mesh(**sizes)
    rank = mesh.world_size - 2
    groups = [mesh.group(axis, rank=rank) for axis in sizes]
    return mesh.coordinate(rank), groups, [group.ranks for group in groups]


def several_axes_of(sizes):
    mesh = Mesh(**sizes)
    rank = mesh.world_size // 3
    groups = mesh.groups("pp", "cp", "tp")
    group = mesh.group("tp", "pp", "cp", rank=rank)
    return groups[len(groups) // 2].index, rank in group, group.ranks.index(rank), group.ranks[-3:], mesh.select(dp=1)


def reshaped(sizes):
    mesh = Mesh(**sizes)
    flat = mesh.flatten("dp", "cp", into="data")
    return flat.unflatten("data", dp=-1, cp=sizes["cp"]) == mesh, mesh.reorder("tp", "ep", "cp", "dp", "pp")


WORK = pytest.mark.parametrize("work", [one_rank_of, several_axes_of, reshaped])


@WORK
def test_law_6_one_rank_of_2_to_the_40_takes_less_than_four_kibibytes(work):
    assert prod(LARGE.values()) == HUGE
    work(LARGE)
    tracemalloc.start()
    try:
        kept = work(LARGE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert kept
    assert peak < 4096


def calls_of(work, sizes):
    """How many Python and C functions run, by name."""
    count = Counter()

    def note(frame, event, argument):
        if event in ("call", "c_call"):
            count[getattr(argument, "__name__", frame.f_code.co_name)] += 1

    gc.disable()  # a collection may call hooks of whatever else the process has imported
    sys.setprofile(note)
    try:
        work(sizes)
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@WORK
def test_law_6_the_work_does_not_grow_with_the_world(work):
    work(SMALL)
    assert calls_of(work, SMALL) == calls_of(work, LARGE)


@pytest.mark.parametrize("axes", [1, 2, 8, 40])
def test_law_6_the_work_grows_at_most_with_the_axes(axes):
    mesh = Mesh(**{f"a{place}": 2 for place in range(axes)})
    calls = calls_of(lambda _: (mesh.coordinate(1), mesh.group("a0", rank=1).ranks), None)
    assert sum(calls.values()) <= 20 + 10 * axes


@given(large_meshes, st.data())
def test_law_6_a_slice_of_a_huge_group_stays_lazy(mesh, data):
    group = mesh.group(*data.draw(axes_of(mesh)), rank=data.draw(ranks_of(mesh)))
    assume(group.size > 8)
    step = data.draw(st.sampled_from([-3, -1, 1, 2, group.size // 4]))
    part = group.ranks[::step]
    assert part[0] == group.ranks[0 if step > 0 else -1]
    assert part[1] == group.ranks[step if step > 0 else step - 1]
    assert len(part) == len(range(group.size)[::step])
