"""flatten, unflatten, reorder, select: what moves, what stays, what is refused."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

import brute
from rankatlas import Mesh
from rankatlas.errors import (
    AxisError,
    CoordinateRangeError,
    DuplicateAxisError,
    IntegerError,
    LayoutChangeError,
    SizeError,
    SizeTypeError,
    UnknownAxisError,
    WorldSizeError,
)
from refusals import refused
from strategies import axes_of, coordinates_of, large_meshes, meshes, neighbours_of, ranks_of, small_meshes

MESH = Mesh(pp=2, dp=4, cp=2, tp=8, first_rank=16)


@given(meshes, st.data())
def test_flatten_puts_one_axis_in_the_place_of_its_parts_and_moves_no_rank(mesh, data):
    parts = data.draw(neighbours_of(mesh))
    rank = data.draw(ranks_of(mesh))
    flat = mesh.flatten(*parts, into="whole")
    first = mesh.axes.index(parts[0])
    assert flat.axes == (*mesh.axes[:first], "whole", *mesh.axes[first + len(parts) :])
    assert flat.size("whole") == prod(mesh.size(axis) for axis in parts)
    assert (flat.world_size, flat.first_rank) == (mesh.world_size, mesh.first_rank)
    before, after = mesh.coordinate(rank), flat.coordinate(rank)
    assert all(before[axis] == after[axis] for axis in mesh.axes if axis not in parts)


@given(meshes, st.data())
def test_reorder_keeps_coordinates_and_sizes_and_moves_ranks(mesh, data):
    order = data.draw(st.permutations(mesh.axes))
    places = data.draw(coordinates_of(mesh))
    other = mesh.reorder(*order)
    assert other.axes == tuple(order)
    assert [other.size(axis) for axis in mesh.axes] == list(mesh.sizes)
    assert other.coordinate(other.rank(**places)) == places
    assert other.reorder(*mesh.axes) == mesh
    assert (other == mesh) == (tuple(order) == mesh.axes)


def test_reorder_gives_a_coordinate_another_rank():
    mesh = Mesh(pp=2, tp=4)
    assert mesh.rank(pp=1, tp=0) == 4
    assert mesh.reorder("tp", "pp").rank(pp=1, tp=0) == 1


@given(small_meshes, st.data())
def test_select_gives_the_ascending_ranks_that_stand_there(mesh, data):
    kept = data.draw(axes_of(mesh))
    places = {axis: place for axis, place in data.draw(coordinates_of(mesh)).items() if axis in kept}
    truth = [rank for rank, at in brute.places(mesh).items() if places.items() <= at.items()]
    assert mesh.select(**places) == truth
    assert list(mesh.select(**places)) == truth


@given(large_meshes, st.data())
def test_select_in_a_huge_world_is_the_group_over_the_other_axes(mesh, data):
    kept, rank = data.draw(axes_of(mesh)), data.draw(ranks_of(mesh))
    others = [axis for axis in mesh.axes if axis not in kept]
    coordinate = mesh.coordinate(rank)
    assert mesh.select(**{axis: coordinate[axis] for axis in kept}) == mesh.group(*others, rank=rank).ranks


def test_the_names_of_the_contract():
    mesh = Mesh(pp=4, dp=4, tp=2)
    assert mesh.flatten("dp", "tp", into="loss") == Mesh(pp=4, loss=8)
    assert mesh.unflatten("dp", dp_replicate=2, dp_shard=2) == Mesh(pp=4, dp_replicate=2, dp_shard=2, tp=2)
    assert mesh.reorder("dp", "pp", "tp") == Mesh(dp=4, pp=4, tp=2)
    assert mesh.flatten("pp", "dp", "tp", into="world") == Mesh(world=32)
    assert mesh.flatten("tp", into="mp") == Mesh(pp=4, dp=4, mp=2)
    assert MESH.flatten("cp", "tp", into="cp").first_rank == 16
    assert MESH.unflatten("tp", self=2, axis=2, into=-1).sizes == (2, 4, 2, 2, 2, 2)


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        (("tp", "cp"), ("'cp', 'tp'", "mesh order", "group('cp', 'tp')")),
        (("pp", "cp"), ("not adjacent", "group('pp', 'cp')", "reorder")),
        (("cp", "pp"), ("not adjacent", "group('pp', 'cp')")),
        (("pp", "dp", "tp"), ("not adjacent",)),
        ((), ("at least one axis",)),
    ],
)
def test_flatten_refuses_axes_that_are_no_neighbours_in_order(axes, words):
    with refused(LayoutChangeError, *words):
        MESH.flatten(*axes, into="x")


def test_flatten_refuses_names_that_cannot_be():
    with refused(UnknownAxisError, "'ep'", "'pp', 'dp', 'cp', 'tp'", name="ep", known=("pp", "dp", "cp", "tp")):
        MESH.flatten("dp", "ep", into="x")
    with refused(DuplicateAxisError, "'dp'", name="dp"):
        MESH.flatten("dp", "dp", into="x")
    with refused(DuplicateAxisError, "'pp'", name="pp"):
        MESH.flatten("dp", "cp", into="pp")
    for bad in ("", "d p", "1x", "first_rank", "dp-cp", "größe", None, 3):
        with refused(AxisError, repr(bad)):
            MESH.flatten("dp", "cp", into=bad)


def test_unflatten_refuses_sizes_that_do_not_make_the_axis():
    with refused(WorldSizeError, "axis dp", "4", "a=3", "b=2", "6", product=6, world_size=4, remainder=4):
        MESH.unflatten("dp", a=3, b=2)
    with refused(WorldSizeError, "a=3", "remainder of 1", remainder=1, nearest_worlds=[3, 6]):
        MESH.unflatten("dp", a=3, b=-1)
    with refused(WorldSizeError, "only one size", "a, b"):
        MESH.unflatten("dp", a=-1, b=-1)
    with refused(LayoutChangeError, "'dp'"):
        MESH.unflatten("dp")
    with refused(UnknownAxisError, "'ep'", name="ep"):
        MESH.unflatten("ep", a=2, b=2)
    with refused(DuplicateAxisError, "'tp'", name="tp"):
        MESH.unflatten("dp", tp=2, b=2)
    with refused(AxisError, "first_rank"):
        MESH.unflatten("dp", first_rank=2, b=2)


@pytest.mark.parametrize("size", [0, -2])
def test_unflatten_refuses_sizes_below_one(size):
    with refused(SizeError, "the size of b", str(size), axis="b", size=size):
        MESH.unflatten("dp", a=2, b=size)


@pytest.mark.parametrize("size", [None, True, 2.0, -1.0, "2", "?", "-1"])
def test_unflatten_refuses_sizes_that_are_no_integers(size):
    with refused(SizeTypeError, repr(size), axis="b", size=size):
        MESH.unflatten("dp", a=2, b=size)


def test_unflatten_takes_numpy_integers_also_for_the_open_size():
    numpy = pytest.importorskip("numpy")
    for integer in (numpy.int64, numpy.int8):
        split = MESH.unflatten("dp", a=integer(2), b=integer(-1))
        assert (split.axes, split.sizes) == (("pp", "a", "b", "cp", "tp"), (2, 2, 2, 2, 8))
        assert all(type(size) is int for size in split.sizes)


def test_reorder_refuses_axes_left_out_unknown_or_named_twice():
    with refused(LayoutChangeError, "missing: pp, dp"):
        MESH.reorder("tp", "cp")
    with refused(UnknownAxisError, "'ep'"):
        MESH.reorder("tp", "cp", "pp", "dp", "ep")
    with refused(DuplicateAxisError, "'tp'", name="tp"):
        MESH.reorder("tp", "tp", "cp", "pp", "dp")


def test_select_refuses_places_that_are_not_there():
    with refused(CoordinateRangeError, "dp=4", "0 to 3", axis="dp", place=4, size=4):
        MESH.select(dp=4)
    with refused(CoordinateRangeError, "dp=-1", axis="dp", place=-1, size=4):
        MESH.select(dp=-1)
    with refused(UnknownAxisError, "'ep'", name="ep"):
        MESH.select(ep=0)
    with refused(IntegerError, "dp", "True", value=True):
        MESH.select(dp=True)
