"""Values that do not depend on the layout: all ranks' pieces put together are one and the same array."""

from itertools import pairwise, product
from math import erf, prod, sqrt

import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rankatlas import Mesh
from rankatlas.errors import DuplicateAxisError, InputError, IntegerError, RankError, UnknownAxisError
from rankatlas.seeding import SeedPlan, values
from rankatlas.seeding.values import sharded_dropout_mask, sharded_normal, sharded_uniform
from refusals import refused
from strategies import small_meshes


def uniform(*given, **named):
    return sharded_uniform(*given, **named)


def normal(*given, **named):
    return sharded_normal(*given, **named)


def mask(*given, keep=0.7, **named):
    return sharded_dropout_mask(*given, keep=keep, **named)


KINDS = {"uniform": uniform, "normal": normal, "mask": mask}
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
ALONE = Mesh(one=1)


def axes_of(entry):
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


@st.composite
def cuts(draw, meshes=small_meshes, most=3000):
    """A mesh, a shape of the whole array and a spec that cuts it."""
    mesh = draw(meshes)
    order = draw(st.permutations(mesh.axes))
    dimensions = draw(st.integers(1, 4))
    spec: list = [None] * dimensions
    for axis in order:
        place = draw(st.one_of(st.none(), st.integers(0, dimensions - 1)))
        if place is not None:
            spec[place] = (*axes_of(spec[place]), axis)
    spec = [draw(st.sampled_from([axes, list(axes)])) if axes and len(axes) > 1 else axes and axes[0] for axes in spec]
    shape: list[int] = []
    for entry in spec:
        parts = prod(mesh.size(axis) for axis in axes_of(entry))
        shape.append(parts * draw(st.integers(1, max(1, min(9, most // (prod(shape) * parts) or 1)))))
    assume(prod(shape) <= 4 * most)
    return mesh, shape, spec


def stream_of(mesh, seed=1234, name="weight", differ=()):
    return SeedPlan(seed, mesh).stream(name, same=[axis for axis in mesh.axes if axis not in differ], differ=differ)


def whole(kind, shape, **named):
    return kind(stream_of(ALONE), shape, [None] * len(shape), 0, **named)


def window(mesh, shape, spec, rank):
    """The slices of the whole array that a rank holds."""
    places = mesh.coordinate(rank)
    found = []
    for size, entry in zip(shape, spec):
        index, parts = 0, 1
        for axis in axes_of(entry):
            index, parts = index * mesh.size(axis) + places[axis], parts * mesh.size(axis)
        found.append(slice(index * size // parts, (index + 1) * size // parts))
    return tuple(found)


@kinds
@given(cuts())
@settings(max_examples=60)
def test_every_piece_is_a_window_of_the_one_array(kind, cut):
    mesh, shape, spec = cut
    one = whole(kind, shape)
    for rank in list(mesh.select())[:: max(1, mesh.world_size // 24)]:
        piece = kind(stream_of(mesh), shape, spec, rank)
        expected = one[window(mesh, shape, spec, rank)]
        assert (piece.shape, piece.dtype) == (expected.shape, expected.dtype)
        assert numpy.array_equal(piece, expected)


@kinds
@pytest.mark.parametrize(
    "layout", [Mesh(tp=2, dp=2, pp=2), Mesh(dp=4, tp=2), Mesh(tp=8), Mesh(pp=2, tp=4, first_rank=9)]
)
def test_pieces_put_together_are_the_array(kind, layout):
    shape = (16, 3, 24)
    for spec in (
        (None, None, "tp"),
        ("tp", None, None),
        (("tp", layout.axes[0]), None, None)[:3],
        ("tp", None, layout.axes[0]),
    ):
        if axes_of(spec[0]).count("tp") + axes_of(spec[2]).count("tp") + (layout.axes[0] == "tp") > 1:
            continue
        made = numpy.zeros(shape, dtype=whole(kind, (1,)).dtype)
        for rank in layout.select():
            made[window(layout, shape, spec, rank)] = kind(stream_of(layout), shape, spec, rank)
        assert numpy.array_equal(made, whole(kind, shape))


@kinds
def test_torch_gets_the_same_values(kind):
    torch = pytest.importorskip("torch")
    mesh = Mesh(dp=2, tp=2)
    for rank, spec in product(range(4), [("tp", None), (None, "tp"), (("dp", "tp"), None), (None, None)]):
        ours = kind(stream_of(mesh), (8, 6), spec, rank, framework="torch")
        theirs = kind(stream_of(mesh), (8, 6), spec, rank, framework="numpy")
        assert isinstance(ours, torch.Tensor)
        assert (tuple(ours.shape), ours.is_contiguous()) == (theirs.shape, True)
        assert numpy.array_equal(ours.numpy(), theirs)
    assert kind(stream_of(mesh), (), (), 0, framework="torch").shape == ()
    assert kind(stream_of(mesh), (0, 4), (None, "tp"), 0, framework="torch").shape == (0, 2)


@kinds
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((2**21 + 6,), 0), ((700, 4000), 0), ((700, 4000), 1), ((3, 2000, 400), 1), ((5000, 300), 1), ((200, 9000), 1)],
)
def test_large_arrays_are_cut_in_chunks_without_a_seam(kind, shape, axis):
    """Over the steps in which values are drawn, and on both sides of what is worth skipping."""
    mesh = Mesh(tp=2)
    spec = [None] * len(shape)
    spec[axis] = "tp"
    pieces = [kind(stream_of(mesh), shape, spec, rank) for rank in range(2)]
    assert numpy.array_equal(numpy.concatenate(pieces, axis), whole(kind, shape))


@kinds
def test_thin_slices_of_many_rows(kind):
    mesh = Mesh(a=3, tp=5)
    shape, spec = (60, 7, 15, 11), ("a", None, "tp", None)
    one = whole(kind, shape)
    for rank in range(15):
        assert numpy.array_equal(kind(stream_of(mesh), shape, spec, rank), one[window(mesh, shape, spec, rank)])


@kinds
def test_ranks_that_hold_the_same_part_hold_the_same_values(kind):
    mesh = Mesh(dp=2, tp=2)
    pieces = [kind(stream_of(mesh), (6, 8), (None, "tp"), rank) for rank in range(4)]
    assert numpy.array_equal(pieces[0], pieces[2])
    assert numpy.array_equal(pieces[1], pieces[3])
    assert not numpy.array_equal(pieces[0], pieces[1])


@kinds
def test_a_stream_that_differs_along_another_axis_gives_arrays_of_its_own(kind):
    """Each stage its own weights, each cut over tp."""
    mesh = Mesh(pp=2, tp=2)
    stream = SeedPlan(1, mesh).stream("weight", same="tp", differ="pp")
    wholes = [
        numpy.concatenate([kind(stream, (64, 8), ("tp", None), 2 * pp + tp) for tp in range(2)]) for pp in range(2)
    ]
    assert not numpy.array_equal(*wholes)
    alone = SeedPlan(1, Mesh(pp=2)).stream("weight", differ="pp")
    for pp in range(2):
        assert numpy.array_equal(wholes[pp], kind(alone, (64, 8), (None, None), pp))


def correlation(one, other):
    return abs(float(numpy.corrcoef(one.ravel(), other.ravel())[0, 1]))


@kinds
def test_streams_draws_seeds_and_kinds_are_independent(kind):
    shape = (40000,)
    base = kind(stream_of(ALONE), shape, (None,), 0)
    others = [
        kind(stream_of(ALONE, name="other"), shape, (None,), 0),
        kind(stream_of(ALONE, seed=1235), shape, (None,), 0),
        *(kind(stream_of(ALONE), shape, (None,), 0, draw=draw) for draw in (1, 2, 2**32, 2**64 - 1)),
        *(other(stream_of(ALONE), shape, (None,), 0) for other in KINDS.values() if other is not kind),
    ]
    for other in others:
        assert correlation(base, other) < 0.02
        assert correlation(base[:-1], other[1:]) < 0.02
    assert numpy.array_equal(base, kind(stream_of(ALONE), shape, (None,), 0, draw=0))


def test_the_same_words_are_not_used_for_two_kinds_of_values():
    words = sharded_uniform(stream_of(ALONE), (10000,), (None,), 0)
    for bar in (0.3, 0.5, 0.7):
        assert correlation(words < bar, sharded_dropout_mask(stream_of(ALONE), (10000,), (None,), 0, keep=bar)) < 0.05


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(1, 200))
@settings(max_examples=40)
def test_uniform_is_numpys_philox_keyed_by_the_stream(base, draw, count):
    stream = stream_of(ALONE, seed=base)
    key, counter = (numpy.array(words, dtype=numpy.uint64) for words in ([stream.seed(0), 1], [0, 0, draw, 0]))
    reference = numpy.random.Generator(numpy.random.Philox(key=key, counter=counter)).random(count)
    assert numpy.array_equal(sharded_uniform(stream, (count,), (None,), 0, draw=draw), reference)


def test_frozen_values():
    """Checkpoints rely on them: no release and no machine may change them (log and cos may, in their last digit)."""
    stream = SeedPlan(1234, Mesh(tp=2)).stream("weight", same="tp")
    found = {name: kind(stream, (2, 4), (None, "tp"), 1).tolist() for name, kind in KINDS.items()}
    assert found["normal"] == [pytest.approx(row, rel=1e-13) for row in FROZEN["normal"]]
    assert {**found, "normal": None} == {**FROZEN, "normal": None}


@given(st.sampled_from(list(KINDS)), st.integers(1, 9), st.integers(1, 9), st.integers(0, 5))
@settings(max_examples=40)
def test_more_rows_change_no_row_there_was(name, rows, columns, more):
    """A vocabulary is padded to other sizes under other tensor degrees; its real rows stay what they were."""
    kind, stream = KINDS[name], stream_of(ALONE)
    few = kind(stream, (rows, columns), (None, None), 0)
    assert numpy.array_equal(kind(stream, (rows + more, columns), (None, None), 0)[:rows], few)
    assert numpy.array_equal(kind(stream, (rows * columns,), (None,), 0), few.ravel())


FROZEN = {
    "uniform": [[0.6321274613966827, 0.2038885973911343], [0.5295890809681852, 0.6899786756571836]],
    "normal": [[-0.12311884012030515, 0.34342479540670173], [0.4853843797737714, 0.762956752799514]],
    "mask": [[False, True], [False, False]],
}

# What the values are like: one array of four million, so that every bound holds with room.

BIG = (2048, 2048)


@pytest.fixture(scope="module")
def big():
    return {name: whole(kind, BIG).ravel() for name, kind in KINDS.items()}


def test_uniform_is_uniform(big):
    found = big["uniform"]
    count = len(found)
    assert 0 <= found.min() < 1e-5
    assert 1 - 1e-5 < found.max() < 1
    assert abs(found.mean() - 1 / 2) < 4 / sqrt(12 * count)
    assert abs(found.var() - 1 / 12) < 4 / sqrt(180 * count)
    bins = numpy.bincount((found * 1000).astype(int), minlength=1000)
    chi_square = float(((bins - count / 1000) ** 2 / (count / 1000)).sum())
    assert abs(chi_square - 999) < 4 * sqrt(2 * 999)
    assert correlation(found[:-1], found[1:]) < 4 / sqrt(count)
    assert len(numpy.unique(found)) == count


def test_normal_is_normal(big):
    found = big["normal"]
    count = len(found)
    assert abs(found.mean()) < 4 / sqrt(count)
    assert abs(found.var() - 1) < 4 * sqrt(2 / count)
    assert abs((found**3).mean()) < 4 * sqrt(15 / count)
    assert abs((found**4).mean() - 3) < 4 * sqrt(96 / count)
    assert 4.5 < min(found.max(), -found.min()) < max(found.max(), -found.min()) < 7
    ordered = numpy.sort(found)
    exact = numpy.array([(1 + erf(value / sqrt(2))) / 2 for value in ordered[:: count // 2000]])
    steps = numpy.arange(0, count, count // 2000) / count
    assert numpy.abs(exact - steps).max() < 1.95 / sqrt(count)  # Kolmogorov-Smirnov, one in a thousand
    for distance in (1, 2, 3):  # two elements are made of the same two words
        assert correlation(found[:-distance], found[distance:]) < 4 / sqrt(count)
        assert correlation(found[:-distance] ** 2, found[distance:] ** 2) < 4 / sqrt(count)
    assert correlation(found[0::2], found[1::2]) < 6 / sqrt(count)
    assert numpy.isfinite(found).all()


def test_tails_of_normal_are_as_heavy_as_they_should_be(big):
    found = numpy.abs(big["normal"])
    for bar in (1, 2, 3, 4):
        expected = len(found) * (1 - erf(bar / sqrt(2)))
        assert abs((found > bar).sum() - expected) < 4 * sqrt(expected)


def test_a_mask_keeps_what_it_should(big):
    found = big["mask"]
    count = len(found)
    assert found.dtype == bool
    assert abs(found.mean() - 0.7) < 4 * sqrt(0.21 / count)
    for distance in (1, 2, 3, 8):
        assert correlation(found[:-distance], found[distance:]) < 4 / sqrt(count)
    for keep in (0.001, 0.1, 0.5, 0.999):
        made = sharded_dropout_mask(stream_of(ALONE), BIG, (None, None), 0, keep=keep)
        assert abs(made.mean() - keep) < 4 * sqrt(keep * (1 - keep) / count)


def test_a_mask_that_keeps_more_keeps_all_that_one_with_less_keeps():
    masks = [sharded_dropout_mask(stream_of(ALONE), (5000,), (None,), 0, keep=keep) for keep in (0, 0.2, 0.5, 0.9, 1)]
    for less, more in pairwise(masks):
        assert (less <= more).all()
    assert not masks[0].any()
    assert masks[-1].all()
    assert sharded_dropout_mask(stream_of(ALONE), (100,), (None,), 0, keep=1.0).all()


# Shapes at the edge, and what is refused


@kinds
def test_scalars_and_empty_arrays(kind):
    mesh = Mesh(tp=2)
    assert kind(stream_of(mesh), (), (), 1).shape == ()
    assert kind(stream_of(mesh), [], [], 1) == kind(stream_of(mesh), (1,), (None,), 0)[0]
    for shape, spec, expected in (
        ((0,), (None,), (0,)),
        ((0,), ("tp",), (0,)),
        ((4, 0), ("tp", None), (2, 0)),
        ((0, 4), (None, "tp"), (0, 2)),
        ((3, 0, 4), (None, None, "tp"), (3, 0, 2)),
    ):
        piece = kind(stream_of(mesh), shape, spec, 1)
        assert (piece.shape, piece.dtype) == (expected, whole(kind, (1,)).dtype)


@kinds
def test_a_piece_of_an_array_that_fits_nowhere(kind):
    """2^60 elements over 2^50 ranks: only the piece costs anything."""
    mesh = Mesh(tp=2**50)
    rank = 2**49 + 12345
    piece = kind(stream_of(mesh), (2**60,), ("tp",), rank)
    assert piece.shape == (2**10,)
    finer = Mesh(tp=2**51)
    halves = [kind(stream_of(finer), (2**60,), ("tp",), 2 * rank + part) for part in range(2)]
    assert numpy.array_equal(piece, numpy.concatenate(halves))


@kinds
def test_numpy_integers_are_integers(kind):
    mesh = Mesh(tp=2)
    given_ints = kind(stream_of(mesh), (4, 6), ("tp", None), 1, draw=3)
    shape = numpy.array([4, 6])
    assert numpy.array_equal(
        kind(stream_of(mesh), shape, ("tp", None), numpy.int64(1), draw=numpy.int64(3)), given_ints
    )


def test_keep_may_be_any_real_number_of_numpy():
    given = [
        sharded_dropout_mask(stream_of(ALONE), (50,), (None,), 0, keep=keep)
        for keep in (0.5, numpy.float64(0.5), numpy.float32(0.5))
    ]
    assert all(numpy.array_equal(given[0], other) for other in given)


@kinds
def test_what_is_refused(kind):
    mesh = Mesh(dp=2, tp=3, pp=1)
    stream = stream_of(mesh)
    with refused(InputError, "dimension 1", "4 elements", "tp", "3"):
        kind(stream, (2, 4), (None, "tp"), 0)
    with refused(InputError, "dimension 0", "9", "tp*dp", "6"):
        kind(stream, (9, 4), (("tp", "dp"), None), 0)
    with refused(DuplicateAxisError, "'tp'", name="tp"):
        kind(stream, (3, 3), ("tp", "tp"), 0)
    with refused(DuplicateAxisError, name="tp"):
        kind(stream, (9,), (("tp", "tp"),), 0)
    with refused(UnknownAxisError, "'tpp'", name="tpp"):
        kind(stream, (3,), ("tpp",), 0)
    with refused(RankError, rank=6):
        kind(stream, (3,), ("tp",), 6)
    for spec in ((), (None,), (None, None, None), "tp", None, 5, (5, None), (None, b"tp")):
        with refused(InputError, "spec"):
            kind(stream, (3, 3), spec, 0)
    with refused(InputError, "spec"):
        kind(stream, (-3, 3), (None, None), 0)
    for shape in ((3.0, 3), ("3", 3), (True, 3), (None, 3)):
        with refused(IntegerError, "global_shape"):
            kind(stream, shape, (None, None), 0)
    with pytest.raises(InputError):
        kind(stream, 9, (None,), 0)
    with refused(InputError, "numpy", "torch", "'cupy'"):
        kind(stream, (3,), (None,), 0, framework="cupy")
    for draw in (-1, 2**64):
        with refused(InputError, "draw"):
            kind(stream, (3,), (None,), 0, draw=draw)
    for draw in (1.0, True, None, "1"):
        with pytest.raises(InputError, match="draw"):
            kind(stream, (3,), (None,), 0, draw=draw)


@kinds
def test_a_stream_that_differs_along_an_axis_that_cuts_is_refused(kind):
    mesh = Mesh(dp=2, tp=2, pp=1)
    stream = stream_of(mesh, differ=("tp", "pp"))
    with refused(InputError, "'weight'", "tp", "same"):
        kind(stream, (4, 4), (None, "tp"), 0)
    kind(stream, (4, 4), ("dp", "pp"), 0)  # along an axis of size 1 nothing can differ


def test_what_keep_may_not_be():
    for keep in (-0.1, 1.1, float("nan"), float("inf"), True, "0.5", None):
        with refused(InputError, "keep", "0 to 1"):
            sharded_dropout_mask(stream_of(ALONE), (4,), (None,), 0, keep=keep)
    with pytest.raises(TypeError):
        sharded_dropout_mask(stream_of(ALONE), (4,), (None,), 0)


def test_the_three_are_where_they_are_documented():
    assert values.sharded_uniform.__module__ == "rankatlas.seeding.values"
