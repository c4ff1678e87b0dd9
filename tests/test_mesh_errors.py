"""What a mesh refuses: every error's class, builtin, words and fields; and what other libraries let pass in silence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden import facts
from rankatlas import Mesh, Topology, errors, parse_mesh
from rankatlas.errors import (
    AxisError,
    CoordinateError,
    CoordinateRangeError,
    DescriptionError,
    DuplicateAxisError,
    InputError,
    IntegerError,
    RankError,
    SizeError,
    SizeTypeError,
    UnknownAxisError,
    WorldSizeError,
)
from refusals import refused
from strategies import HUGE, meshes

np = pytest.importorskip("numpy")
MESH = Mesh(pp=2, dp=4, tp=8, first_rank=16)
TREE = {name: value for name, value in vars(errors).items() if isinstance(value, type)}
BUILTINS = {
    "UnknownAxisError": KeyError,
    "UnknownChartError": KeyError,
    "SizeTypeError": TypeError,
    "IntegerError": TypeError,
    "RankError": IndexError,
    "CoordinateRangeError": IndexError,
}


@pytest.mark.parametrize("name", TREE)
def test_every_error_is_one_of_ours_and_the_builtin_a_caller_expects(name):
    error = TREE[name]
    assert issubclass(error, errors.RankatlasError)
    builtin = {base for base in error.__mro__ if base.__module__ == "builtins"} - {Exception, BaseException, object}
    assert builtin or error is errors.RankatlasError
    assert issubclass(error, ValueError) == issubclass(error, InputError)
    assert issubclass(error, BUILTINS.get(name, Exception))
    value = error("three words long", name="x")
    assert (str(value), value.name) == ("three words long", "x")


# names


@pytest.mark.parametrize(
    "name", ["", "1a", "d p", "dp-1", "größe", "日", "a\n", " a", "a.b", "dp=", None, 3, b"dp", ("a",)]
)
def test_a_name_that_cannot_name_an_axis(name):
    with refused(AxisError, repr(name), "letters, digits and _", name=name):
        Mesh.from_axes([("dp", 2), (name, 2)])


def test_first_rank_is_reserved():
    with refused(AxisError, "'first_rank' is reserved", name="first_rank"):
        Mesh.from_axes([("first_rank", 2)])


def test_a_mesh_without_axes():
    for make in (Mesh, lambda: Mesh.from_axes([]), lambda: Mesh(first_rank=4), lambda: Mesh.from_axes(iter(()))):
        with refused(AxisError, "at least one axis", "Mesh(dp=8)"):
            make()


@pytest.mark.parametrize("pairs", [None, 8, [("dp",)], [("dp", 2, 3)], [2], ["x"], [None]])
def test_axes_that_are_no_pairs(pairs):
    with refused(InputError, "(name, size) pairs", repr(pairs)):
        Mesh.from_axes(pairs)


def test_a_mapping_of_axes_is_not_taken_apart_letter_by_letter():
    for pairs in ({"dp": 2, "tp": 4}, ["dp", "tp"], "dp"):
        with pytest.raises(InputError):
            Mesh.from_axes(pairs)


@given(meshes)
def test_an_axis_named_twice(mesh):
    pairs = list(zip(mesh.axes, mesh.sizes))
    with refused(DuplicateAxisError, repr(mesh.axes[0]), name=mesh.axes[0]):
        Mesh.from_axes([*pairs, (mesh.axes[0], 1)])


@pytest.mark.parametrize(
    ("asked", "near"),
    [("tpp", "tp"), ("t", "tp"), ("pd", "dp"), ("TP", "tp"), ("data", None), ("", None), (None, None)],
)
def test_an_unknown_axis_gets_near_names(asked, near):
    doings = [
        *(lambda: MESH.size(asked), lambda: MESH.stride(asked), lambda: MESH.groups(asked)),
        *(lambda: MESH.group("dp", asked, rank=16), lambda: MESH.flatten(asked, into="x")),
        *(lambda: MESH.reorder("pp", asked, "tp"), lambda: MESH.unflatten(asked, a=2, b=2)),
    ]
    words = [f"no axis {asked!r}", "'pp', 'dp', 'tp'"] + ([f"Did you mean '{near}'"] if near else [])
    for doing in doings:
        with refused(UnknownAxisError, *words, name=asked, known=("pp", "dp", "tp")):
            doing()
    if near is None:
        with pytest.raises(KeyError) as caught:
            MESH.size(asked)
        assert caught.value.near == ()


def test_an_axis_asked_for_twice():
    for doing in (lambda: MESH.groups("dp", "tp", "dp"), lambda: MESH.group("dp", "dp", rank=16)):
        with refused(DuplicateAxisError, "'dp'", "twice", name="dp"):
            doing()


def test_a_list_of_axes_where_names_belong():
    for wrong in (["dp", "tp"], ("dp", "tp"), 0, {"dp"}):
        with pytest.raises(InputError):
            MESH.groups(wrong)


# sizes

NO_INTEGERS = [None, True, False, 2.0, float("nan"), "2", "?", b"2", [2], 2j, np.float64(2), np.True_, np.array([2])]


@pytest.mark.parametrize("size", NO_INTEGERS, ids=repr)
def test_a_size_that_is_no_integer(size):
    for make in (lambda: Mesh(pp=2, dp=size), lambda: Mesh.from_axes([("pp", 2), ("dp", size)])):
        with pytest.raises(TypeError) as caught:
            make()
        assert type(caught.value) is SizeTypeError
        assert (caught.value.axis, caught.value.size is size) == ("dp", True)
        assert "the size of dp must be an integer" in str(caught.value)
        assert repr(size) in str(caught.value)


@pytest.mark.parametrize("size", [0, -1, -8, -HUGE])
def test_a_size_below_one(size):
    for make in (lambda: Mesh(pp=2, dp=size), lambda: Mesh.from_axes([("pp", 2), ("dp", size)])):
        with refused(SizeError, "dp", "1 or more", str(size), axis="dp", size=size):
            make()


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint64", "intp"])
def test_numpy_integers_are_taken_and_stored_as_int(kind):
    number = getattr(np, kind)
    mesh = Mesh(dp=number(2), tp=number(3), first_rank=number(5))
    assert mesh == Mesh(dp=2, tp=3, first_rank=5)
    assert {type(value) for value in (*mesh.sizes, *mesh.strides, mesh.first_rank, mesh.world_size)} == {int}
    assert mesh.rank(dp=number(1), tp=number(2)) == 10
    assert type(mesh.rank(dp=number(1), tp=number(2))) is int
    group = mesh.group("dp", rank=number(9))
    assert {type(value) for value in (*mesh.coordinate(number(9)).values(), group.index, *group.ranks)} == {int}
    assert type(group.group_rank) is int
    assert mesh.groups("dp")[number(1)] == mesh.groups("dp")[1]
    assert repr(mesh.select(tp=number(1))) == "[6, 9]"


def test_subclasses_of_int_are_stored_as_int():
    from enum import IntEnum

    two = IntEnum("Two", {"TWO": 2}).TWO
    mesh = Mesh(dp=two, first_rank=two)
    assert (type(mesh.size("dp")), type(mesh.first_rank), repr(mesh)) == (int, int, "Mesh(dp=2, first_rank=2)")


def test_more_ranks_than_64_bits_number():
    for axes in ({"dp": 2**63}, {"dp": 2**62, "tp": 2}, {"dp": 2**40, "tp": 2**40}):
        with refused(WorldSizeError, "64 bits", factors=tuple(axes.items())):
            Mesh(**axes)
    assert Mesh(dp=2**62, tp=1).world_size == 2**62


# first_rank and ranks


@pytest.mark.parametrize("first_rank", NO_INTEGERS, ids=repr)
def test_a_first_rank_that_is_no_integer(first_rank):
    with pytest.raises(IntegerError, match="first_rank must be an integer"):
        Mesh(dp=2, first_rank=first_rank)


def test_a_first_rank_out_of_bounds():
    with refused(InputError, "first_rank must be 0 or more", "-1", first_rank=-1):
        Mesh(dp=2, first_rank=-1)
    with pytest.raises(InputError, match="first_rank"):
        Mesh(dp=2, first_rank=2**70)


@pytest.mark.parametrize("rank", [15, 80, -1, 0, HUGE, -HUGE, 2**70])
def test_a_rank_outside_the_world(rank):
    for ask in (MESH.coordinate, lambda rank: MESH.group("dp", rank=rank), lambda rank: MESH.group(rank=rank)):
        with refused(RankError, f"rank {rank}", "16 to 79", rank=rank, first_rank=16, world_size=64):
            ask(rank)


@pytest.mark.parametrize("rank", NO_INTEGERS, ids=repr)
def test_a_rank_that_is_no_integer(rank):
    for ask in (MESH.coordinate, lambda rank: MESH.group("dp", rank=rank)):
        with pytest.raises(IntegerError, match="rank must be an integer"):
            ask(rank)


# coordinates


def test_a_partial_coordinate():
    with refused(CoordinateError, "missing: pp, tp", "select", missing=("pp", "tp")):
        MESH.rank(dp=1)
    with refused(CoordinateError, "missing: pp, dp, tp", missing=("pp", "dp", "tp")):
        MESH.rank()


def test_an_unknown_coordinate():
    with refused(UnknownAxisError, "'ep'", "'pp', 'dp', 'tp'", name="ep"):
        MESH.rank(pp=0, dp=0, tp=0, ep=0)
    with refused(UnknownAxisError, "Did you mean 'tp'", name="tpp"):
        MESH.rank(pp=0, dp=0, tpp=0)


@pytest.mark.parametrize(("axis", "place"), [("pp", 2), ("dp", 4), ("tp", -1), ("tp", HUGE), ("dp", -HUGE)])
def test_a_coordinate_beyond_its_axis(axis, place):
    size = MESH.size(axis)
    with refused(CoordinateRangeError, f"{axis}={place}", f"0 to {size - 1}", axis=axis, place=place, size=size):
        MESH.rank(**{"pp": 0, "dp": 0, "tp": 0, axis: place})


@pytest.mark.parametrize("place", NO_INTEGERS, ids=repr)
def test_a_coordinate_that_is_no_integer(place):
    for ask in (MESH.select, lambda **places: MESH.rank(pp=0, tp=0, **places)):
        with pytest.raises(IntegerError, match="dp"):
            ask(dp=place)


# descriptions


def test_a_description_with_unknown_or_missing_keys():
    with refused(DescriptionError, "unknown: 'colour'"):
        Mesh.from_dict({**MESH.to_dict(), "colour": 1})
    for key in ("axes", "first_rank"):
        with refused(DescriptionError, f"missing: {key}"):
            Mesh.from_dict({name: value for name, value in MESH.to_dict().items() if name != key})


@pytest.mark.parametrize("version", [0, 2, "1", None, True, 1.0])
def test_a_description_of_another_version(version):
    with refused(DescriptionError, repr(version), "version"):
        Mesh.from_dict({**MESH.to_dict(), "version": version})


@pytest.mark.parametrize("found", ["rankatlas.atlas", "", None, 1])
def test_a_description_of_another_format(found):
    with refused(DescriptionError, repr(found), "rankatlas.mesh"):
        Mesh.from_dict({**MESH.to_dict(), "format": found})


@pytest.mark.parametrize("nothing", [None, [], "rankatlas.mesh", 3, MESH])
def test_what_is_no_description(nothing):
    with pytest.raises(DescriptionError):
        Mesh.from_dict(nothing)


@pytest.mark.parametrize(
    ("axes", "error"),
    [
        ({"dp": 2}, DescriptionError),
        ("dp", DescriptionError),
        ([["dp"]], DescriptionError),
        (["dp"], DescriptionError),
        (None, DescriptionError),
        ([["dp", 2], ["dp", 2]], DuplicateAxisError),
        ([["dp", 0]], SizeError),
        ([["dp", True]], SizeTypeError),
        ([["dp", "2"]], SizeTypeError),
        ([[3, 2]], AxisError),
        ([], AxisError),
    ],
)
def test_a_description_with_axes_that_are_none(axes, error):
    with pytest.raises(error):
        Mesh.from_dict({**MESH.to_dict(), "axes": axes})


# worlds


def test_a_product_that_is_not_the_world_names_everything():
    with refused(
        *(WorldSizeError, "dp=2", "pp=2", "tp=3", "= 12", "16", "remainder 4", "dp=4 pp=2 tp=2"),
        factors=(("dp", 2), ("pp", 2), ("tp", 3)),
        product=12,
        world_size=16,
        remainder=4,
        nearest_worlds=[12],
    ):
        parse_mesh("dp=2 pp=2 tp=3", 16)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(1, 400), st.booleans())
def test_every_fix_fits_the_world_and_the_facts_add_up(sizes, world, leave_open):
    notation = " ".join(f"a{place}={size}" for place, size in enumerate(sizes)) + (" open=?" if leave_open else "")
    product = int(np.prod(sizes))
    fits = world % product == 0 if leave_open else world == product
    if fits:
        assert parse_mesh(notation, world).world_size == world
        return
    with pytest.raises(WorldSizeError) as caught:
        parse_mesh(notation, world)
    error = caught.value
    assert (error.product, error.world_size, error.remainder) == (product, world, world % product)
    assert dict(error.factors) == {f"a{place}": size for place, size in enumerate(sizes)}
    for nearest in error.nearest_worlds:
        assert parse_mesh(notation, nearest).world_size == nearest
    assert len({tuple(fix.items()) for fix in error.fixes}) == len(error.fixes) <= 8
    for fix in error.fixes:
        mended = Mesh.from_axes(({**dict(error.factors)} | fix).items())
        assert mended.world_size == world
        changed = [axis for axis, size in error.factors if fix.get(axis, size) != size]
        assert 1 <= len(changed) <= 2


def test_the_nearest_fixes_come_first():
    with pytest.raises(WorldSizeError) as caught:
        parse_mesh("a=8 b=8 c=4", 128)
    assert caught.value.fixes[:3] == [{"a": 4, "b": 8, "c": 4}, {"a": 8, "b": 4, "c": 4}, {"a": 8, "b": 8, "c": 2}]
    for fix in caught.value.fixes[3:]:
        assert all(wanted / 4 <= fix[axis] <= wanted * 4 for axis, wanted in (("a", 8), ("b", 8), ("c", 4)))


@pytest.mark.parametrize("world", [963761198400, 2**61 - 1, 2**62, 6**24, 1_000_000_007 * 998_244_353])
def test_a_mismatch_with_a_highly_composite_or_prime_world_still_explains_itself(world):
    with pytest.raises(WorldSizeError) as caught:
        parse_mesh("a=2 b=3 c=5 d=7 e=11 f=13", world)
    assert all(int(np.prod(list(fix.values()), dtype=object)) == world for fix in caught.value.fixes)


# what peers accept silently and we must refuse; each peer's own answer is a frozen fact


def special(name, word):
    return [fact for fact in facts(name) if word in fact.get("call", "") + fact.get("case", "")]


def test_jax_and_megatron_accept_an_axis_twice():
    assert any("answer" in fact for fact in special("jax", "a name twice"))
    assert any("answer" in fact for fact in special("megatron", "an axis twice in the order"))
    with refused(DuplicateAxisError, "'dp'", name="dp"):
        Mesh.from_axes([("dp", 2), ("dp", 2)])
    with refused(DuplicateAxisError, "'tp'", name="tp"):
        Mesh.from_axes([("pp", 2), ("tp", 1), ("dp", 4), ("tp", 1)])
    with pytest.raises(DuplicateAxisError):
        Mesh(tp=2, dp=2, pp=2).reorder("pp", "tp", "dp", "tp")


def test_hypercommgrid_notices_an_axis_twice_only_when_asked_for_groups():
    assert special("megatron", "a name twice")
    with refused(DuplicateAxisError, "'tp'", name="tp"):
        Mesh.from_axes([("tp", 2), ("dp", 2), ("tp", 2)])
    with refused(DuplicateAxisError, "'tp'", name="tp"):
        Mesh(pp=2, dp=2, tp=2).groups("tp", "tp")


def test_torch_paddlenlp_hypercommgrid_and_jax_accept_a_product_smaller_than_the_world():
    assert any("answer" in fact for fact in special("megatron", "smaller than the world"))
    assert any("answer" in fact for fact in special("jax", "fewer devices than there are"))
    assert any("product<world" in fact.get("marks", ()) for fact in facts("paddlenlp", "special"))
    for make in (lambda: parse_mesh("dp=2 tp=2", 8), lambda: Topology(0, 8, 2, 1, 1, 2, 1)):
        with pytest.raises(WorldSizeError, match="fewer than the world size 8"):
            make()


def test_deepspeed_accepts_more_sizes_than_names():
    fact = next(fact for fact in special("deepspeed", "more dims than axes") if "answer" in fact)
    for pairs in (zip(fact["axes"], fact["dims"], strict=False), [*zip(fact["axes"], fact["dims"]), (None, 3)]):
        listed = list(pairs)
        if len(listed) == len(fact["dims"]):
            with pytest.raises(AxisError):
                Mesh.from_axes(listed)
    with pytest.raises(InputError, match="pairs"):
        Mesh.from_axes([("pipe", 2), ("data", 2), (3,)])


def test_paddle_and_colossalai_accept_two_negative_sizes():
    assert any("answer" in fact for fact in special("paddle", "two negative sizes"))
    with refused(SizeError, "-2", axis="data", size=-2):
        Mesh(data=-2, pipe=-2, model=2)
    with refused(SizeError, "-3", axis="data", size=-3):
        Mesh(data=-3, pipe=-2)
    with pytest.raises(InputError):
        parse_mesh("data=-1 pipe=-1 model=2", 8)


def test_deepspeed_answers_an_unknown_axis_with_nothing():
    answers = [fact["answer"] for fact in special("deepspeed", "an unknown axis") if "answer" in fact]
    assert answers == [[], 0]
    mesh = Mesh(pipe=2, data=2, model=2)
    for ask in (mesh.groups, mesh.size, mesh.stride):
        with refused(UnknownAxisError, "'expert'", "'pipe', 'data', 'model'", name="expert"):
            ask("expert")


def test_deepspeed_and_paddle_answer_a_place_out_of_range_with_no_ranks():
    for name in ("deepspeed", "paddle"):
        assert any(fact.get("answer") == [] for fact in special(name, "an index out of range"))
    with refused(CoordinateRangeError, "pipe=2", axis="pipe", place=2, size=2):
        Mesh(pipe=2, data=2, model=2).select(pipe=2)


def test_jax_deepspeed_paddle_and_hypercommgrid_accept_size_0():
    for name in ("jax", "deepspeed", "paddle", "megatron"):
        assert any("answer" in fact for fact in special(name, "size 0"))
    with refused(SizeError, "0", axis="dp", size=0):
        Mesh(dp=0, tp=2)


def test_jax_accepts_a_name_that_is_no_text():
    assert any("answer" in fact for fact in special("jax", "a name that is an int"))
    with refused(AxisError, "0", name=0):
        Mesh.from_axes([(0, 4)])


def test_paddle_fuses_an_axis_with_itself():
    assert any("answer" in fact for fact in special("paddle", "a name twice fused"))
    with refused(DuplicateAxisError, "'data'", name="data"):
        Mesh(data=2, pipe=2, model=2).groups("data", "data")


def test_megatron_ignores_a_negative_offset():
    assert any("answer" in fact for fact in special("megatron", "a negative rank_offset is ignored"))
    with refused(InputError, "first_rank", "-4"):
        Mesh(tp=2, dp=2, first_rank=-4)


def test_colossalai_wraps_a_place_beyond_its_axis():
    assert any(fact.get("answer") == 1 for fact in special("colossalai", "'wrap'"))
    with refused(CoordinateRangeError, "tp=5", axis="tp", place=5, size=4):
        Mesh(dp=2, tp=4).rank(dp=0, tp=5)
