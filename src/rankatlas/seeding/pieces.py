"""Which elements of a global array a rank holds, as rows of equal width at equal distance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from rankatlas.core.border import as_int, in_order
from rankatlas.errors import DuplicateAxisError, InputError, shown
from rankatlas.seeding.plan import Stream

_MOST_ELEMENTS = 2**63 - 1

Spec = Sequence[str | Sequence[str] | None]


class Piece:
    """The part of a row-major global array that one rank holds.

    `shape` is its own shape, `count` its number of elements.  In the flat global array it is made of slabs, each some
    runs of `width` elements, `period` apart.

    >>> from rankatlas import Mesh
    >>> from rankatlas.seeding import SeedPlan
    >>> stream = SeedPlan(1, Mesh(tp=2)).stream("w", same="tp")
    >>> piece = Piece(stream, (3, 4), (None, "tp"), 1)
    >>> piece.shape, piece.width, piece.period, list(piece.slabs())
    ((3, 2), 2, 4, [(2, 3)])
    """

    __slots__ = ("_begins", "_global", "count", "period", "shape", "width")

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
        self._global = sizes
        self._begins = begins
        self.shape = tuple(lengths)
        self.count = prod(lengths)
        self.width, self.period = self._run()

    def _run(self) -> tuple[int, int]:
        """Length of a run of consecutive elements, and the distance to the next run."""
        width = period = 1
        for size, length in zip(reversed(self._global), reversed(self.shape)):
            width *= length
            period *= size
            if length != size:
                break
        return width, period

    def slabs(self) -> Iterator[tuple[int, int]]:
        """(first element, number of runs) of every slab, ascending: runs of one slab are `period` apart."""
        strides = [prod(self._global[dimension + 1 :]) for dimension in range(len(self._global))]
        # The dimension that is cut (or the first one), and the one before it, whose places are the runs of a slab.
        cut = next((d for d in reversed(range(len(self.shape))) if self.shape[d] != self._global[d]), 0)
        before = cut - 1
        start = sum(begin * stride for begin, stride in zip(self._begins, strides))
        rows = self.shape[before] if before >= 0 else 1
        for places in product(*(range(length) for length in self.shape[: max(before, 0)])):
            yield start + sum(place * stride for place, stride in zip(places, strides)), rows
