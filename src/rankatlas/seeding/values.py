"""Random values that do not depend on the layout: each rank draws its piece, and the pieces are always the same array.

Philox 4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), as numpy implements it, is keyed
by the stream; element i of the global array, counted row-major, takes word i of its output.  So any rank can draw any
piece by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rankatlas.core.border import as_int
from rankatlas.errors import InputError, shown
from rankatlas.seeding.pieces import Piece, Spec
from rankatlas.seeding.plan import Stream

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

# The second word of the key: two kinds of values of one stream must not be made of the same words.
_UNIFORM, _NORMAL, _DROPOUT = 1, 2, 3
_CHUNK = 1 << 20  # units drawn at once where rows are cut out of what was drawn
_CACHED = 1 << 14  # words of one step of the normal transform
_WORTH_SKIPPING = 768  # units: jumping over fewer takes longer than drawing them


def sharded_uniform(
    stream: Stream, global_shape: Sequence[int], spec: Spec, rank: int, *, draw: int = 0, framework: str = "numpy"
) -> Any:
    """The piece of `rank` of an array of uniform float64 in [0, 1), the same array whatever the layout.

    `spec` names for each dimension of `global_shape` the axis that splits it, several (first is major), or None.
    `stream` must be the same along these axes.  `draw` numbers independent arrays of one stream, such as steps.
    `framework` is "numpy" or "torch".  Cost: O(piece); rows of a few elements cost more.

    Raises InputError (a shape, spec or stream that does not fit), UnknownAxisError, DuplicateAxisError, RankError.

    >>> from rankatlas import Mesh
    >>> from rankatlas.seeding import SeedPlan
    >>> def pieces(mesh):
    ...     stream = SeedPlan(1, mesh).stream("w", same=mesh.axes)
    ...     return [sharded_uniform(stream, (2, 4), (None, "tp"), rank).tolist() for rank in range(mesh.world_size)]
    >>> (whole,) = pieces(Mesh(tp=1))
    >>> left, right = pieces(Mesh(tp=2))
    >>> [a + b for a, b in zip(left, right)] == whole
    True
    """
    piece = Piece(stream, global_shape, spec, rank)
    source = _Source(stream.seed(rank), _UNIFORM, draw, 4, lambda generator, count: generator.random(count))
    return _given(_filled(piece, source), framework)


def sharded_normal(
    stream: Stream, global_shape: Sequence[int], spec: Spec, rank: int, *, draw: int = 0, framework: str = "numpy"
) -> Any:
    """The piece of `rank` of an array of standard normal float64, the same array whatever the layout.

    Arguments, cost and errors as `sharded_uniform`.  Two neighbouring elements are made of two words by the transform
    of Box and Muller (1958), so that an element never depends on how many were drawn before it.

    >>> from rankatlas import Mesh
    >>> from rankatlas.seeding import SeedPlan
    >>> stream = SeedPlan(1, Mesh(tp=2)).stream("w", same="tp")
    >>> sharded_normal(stream, (4, 6), ("tp", None), rank=1).shape
    (2, 6)
    """
    piece = Piece(stream, global_shape, spec, rank)
    source = _Source(stream.seed(rank), _NORMAL, draw, 4, _normal)
    return _given(_filled(piece, source), framework)


def sharded_dropout_mask(
    stream: Stream,
    global_shape: Sequence[int],
    spec: Spec,
    rank: int,
    *,
    keep: float,
    draw: int = 0,
    framework: str = "numpy",
) -> Any:
    """The piece of `rank` of a boolean mask that is True with probability `keep`, the same mask whatever the layout.

    Arguments, cost and errors as `sharded_uniform`; each element takes 32 bits, so `keep` is met to 2^-32.

    >>> from rankatlas import Mesh
    >>> from rankatlas.seeding import SeedPlan
    >>> stream = SeedPlan(1, Mesh(tp=2)).stream("dropout", same="tp")
    >>> mask = sharded_dropout_mask(stream, (100, 100), ("tp", None), rank=0, keep=0.9)
    >>> mask.shape, bool(0.88 < mask.mean() < 0.92)
    ((50, 100), True)
    """
    try:
        bar = round(float(keep) * 2**32)
    except (TypeError, ValueError, OverflowError):
        bar = -1
    if isinstance(keep, (bool, str)) or not 0 <= bar <= 2**32:
        raise InputError(f"keep is a probability from 0 to 1, not {shown(keep)}")
    piece = Piece(stream, global_shape, spec, rank)
    source = _Source(
        stream.seed(rank), _DROPOUT, draw, 8, lambda generator, count: _halves(generator.bit_generator, count) < bar
    )
    return _given(_filled(piece, source), framework)


class _Source:
    """Units of one Philox stream from any place on: `per_block` of them are made of each block of four words."""

    def __init__(
        self, seed: int, kind: int, draw: int, per_block: int, make: Callable[[numpy.random.Generator, int], Array]
    ) -> None:
        import numpy

        draw = as_int(draw, "draw")
        if not 0 <= draw < 2**64:
            raise InputError(f"draw numbers an array of the stream, 0 to 2**64 - 1, not {shown(draw)}")
        self._bits = numpy.random.Philox(
            counter=numpy.array([0, 0, draw, 0], dtype=numpy.uint64), key=numpy.array([seed, kind], dtype=numpy.uint64)
        )
        self._generator = numpy.random.Generator(self._bits)
        self._make = make
        self._per_block = per_block
        self._block = 0

    def units(self, start: int, count: int) -> Array:
        """Units start … start + count − 1.  Cost: O(count), and a few microseconds to jump."""
        first = start // self._per_block
        blocks = -(-(start + count) // self._per_block) - first
        if first != self._block:
            self._bits.advance(first - self._block)
        self._block = first + blocks
        made = self._make(self._generator, blocks * self._per_block)
        skip = start - first * self._per_block
        return made[skip : skip + count]


def _filled(piece: Piece, source: _Source) -> Array:
    """The piece, row by row, or many rows at once where the gaps between them are short."""
    import numpy

    width, period = piece.width, piece.period
    if not piece.count:
        return source.units(0, 0).reshape(piece.shape)
    parts = []
    for start, rows in piece.slabs():
        if rows == 1 or period - width > _WORTH_SKIPPING:
            parts += [source.units(start + row * period, width) for row in range(rows)]
            continue
        step = max(1, _CHUNK // period)
        for row in range(0, rows, step):
            taken = min(step, rows - row)
            drawn = source.units(start + row * period, taken * period)
            parts.append(drawn.reshape(taken, period)[:, :width].reshape(-1))
    return (parts[0] if len(parts) == 1 else numpy.concatenate(parts)).reshape(piece.shape)


def _normal(generator: numpy.random.Generator, count: int) -> Array:
    """`count` normals (a multiple of 4) of as many words, two by two, in steps that stay in the cache."""
    import numpy

    made = numpy.empty(count)
    for start in range(0, count, _CACHED):
        words = generator.random(min(_CACHED, count - start))
        # 1 - u lies in (0, 1], where the logarithm is finite.
        radius = 1.0 - words[0::2]
        numpy.log(radius, out=radius)
        radius *= -2.0
        numpy.sqrt(radius, out=radius)
        turn = words[1::2]
        cosine = numpy.cos(turn * (2 * numpy.pi))
        # The sine without a second, slow, trigonometric pass: its size from the cosine, its sign from the half turn.
        sine = numpy.sqrt((1.0 - cosine) * (1.0 + cosine))
        numpy.copysign(sine, 0.5 - turn, out=sine)
        part = made[start : start + len(words)]
        numpy.multiply(radius, cosine, out=part[0::2])
        numpy.multiply(radius, sine, out=part[1::2])
    return made


def _halves(bits: numpy.random.BitGenerator, count: int) -> Array:
    """`count` halves (an even number) of 64-bit words, low half first on every machine."""
    return bits.random_raw(count // 2).astype("<u8", copy=False).view("<u4")


def _given(values: Array, framework: str) -> Any:
    if framework == "numpy":
        return values
    if framework == "torch":
        from rankatlas.seeding.backends import adapter

        return adapter("torch").tensor(values)
    raise InputError(f"framework is 'numpy' or 'torch', not {shown(framework)}")
