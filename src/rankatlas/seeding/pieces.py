"""Which elements of a global array a rank holds, and where they stand among the draws of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from rankatlas.core.border import as_int, in_order
from rankatlas.errors import DuplicateAxisError, InputError, shown
from rankatlas.seeding.plan import Stream

BLOCK = 64  # columns of a block; pieces of column-parallel weights are nearly always multiples of it
_MOST_ELEMENTS = 2**63 - 1

Spec = Sequence[str | Sequence[str] | None]


class Piece:
    """The part of a global array that one rank holds, and where its elements stand among the draws of a stream.

    Draws are counted in column blocks: a last dimension that is a multiple of 64 is cut into blocks of 64 columns, and
    the rows of one block stand together.  So a piece made of whole rows and one made of whole columns are both a few
    long runs.  Any other last dimension is one block, which is plain row-major order.

    `shape` is the piece's own shape, `count` its number of elements, `columns` its range of the last dimension.

    >>> from rankatlas import Mesh
    >>> from rankatlas.seeding import SeedPlan
    >>> stream = SeedPlan(1, Mesh(tp=2)).stream("w", same="tp")
    >>> piece = Piece(stream, (3, 256), (None, "tp"), 1)
    >>> piece.shape, piece.columns, list(piece.row_runs()), list(piece.blocks())
    ((3, 128), range(128, 256), [(0, 3)], [(384, 0, 64), (576, 0, 64)])
    """

    __slots__ = ("_begins", "_global", "block", "columns", "count", "shape")

    def __init__(self, stream: Stream, global_shape: Sequence[int], spec: Spec, rank: int) -> None:
        if not isinstance(stream, Stream):
            raise InputError(f"values are drawn from a Stream, not from {shown(stream)}; see SeedPlan.stream")
        mesh = stream.mesh
        places = mesh.coordinate(rank)
        sizes = [as_int(size, "a size of global_shape") for size in in_order(global_shape, "global_shape")]
        if prod(sizes) > _MOST_ELEMENTS or max(sizes, default=0) > _MOST_ELEMENTS:
            raise InputError(f"an array of {shown(tuple(sizes))} has more elements than 64 bits can number")
        entries = list(in_order(spec, "spec"))
        named = all(entry is None or isinstance(entry, (str, list, tuple)) for entry in entries)
        if min(sizes, default=0) < 0 or len(entries) != len(sizes) or not named:
            raise InputError(
                f"spec names for each dimension of {tuple(sizes)} the axis that splits it, or None; got {shown(spec)}"
            )
        used: list[str] = []
        begins, lengths = [], []
        for dimension, (size, entry) in enumerate(zip(sizes, entries)):
            axes = () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)
            index, parts = 0, 1
            for axis in axes:
                if axis in used:
                    raise DuplicateAxisError(f"axis {shown(axis)} splits two dimensions of {tuple(sizes)}", name=axis)
                used.append(axis)
                index = index * mesh.size(axis) + places[axis]
                parts *= mesh.size(axis)
            if size % parts:
                raise InputError(
                    f"dimension {dimension} has {size} elements, which {'*'.join(axes)} = {parts} parts do not divide"
                )
            begins.append(index * (size // parts))
            lengths.append(size // parts)
        unlike = [axis for axis in used if axis in stream.differ and mesh.size(axis) > 1]
        if unlike:
            raise InputError(
                f"stream {shown(stream.name)} differs along {', '.join(unlike)}, so its pieces there belong to other"
                " arrays; give a stream that is the same along the axes that split the array"
            )
        self.shape = tuple(lengths)
        self.count = prod(lengths)
        # A scalar is one row of one column, and a vector one row.
        self._global = [1] * max(0, 2 - len(sizes)) + sizes if sizes else [1, 1]
        self._begins = [0] * (len(self._global) - len(begins)) + begins
        last = self._global[-1]
        self.columns = range(self._begins[-1], self._begins[-1] + (lengths[-1] if lengths else 1))
        self.block = BLOCK if last % BLOCK == 0 and last > 0 else last

    def row_runs(self) -> Iterator[tuple[int, int]]:
        """(first row, number of rows) of every run of rows of the piece that stand together, ascending."""
        leading = self._global[:-1]
        lengths = ([1] * len(leading) + list(self.shape[:-1]))[len(self.shape[:-1]) :]
        strides = [prod(leading[place + 1 :]) for place in range(len(leading))]
        # Rows stand together from the innermost dimension that is cut on.
        cut = next((d for d in reversed(range(len(leading))) if lengths[d] != leading[d]), 0)
        start = sum(begin * stride for begin, stride in zip(self._begins, strides))
        rows = prod(lengths[cut:])
        for places in product(*(range(length) for length in lengths[:cut])):
            yield start + sum(place * stride for place, stride in zip(places, strides)), rows

    def blocks(self) -> Iterator[tuple[int, int, int]]:
        """(number of the draw its first row begins with, first column, end) of every block the columns touch.

        Columns are counted inside the block.
        """
        rows = prod(self._global[:-1])
        for block in range(self.columns.start // self.block, -(-self.columns.stop // self.block)):
            begin = block * self.block
            first, end = max(self.columns.start, begin) - begin, min(self.columns.stop - begin, self.block)
            yield block * rows * self.block, first, end
