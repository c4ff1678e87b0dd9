"""The last step from a lazy sequence to a numpy array."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import numpy

_LONG = 32


def refuse_view(copy: bool | None) -> None:
    """Raise ValueError where a caller insists on no copy: what is computed has no memory to share."""
    if copy is False:
        raise ValueError("ranks are computed, not stored: an array of them is always a copy")


def sums(start: int, parts: Sequence[tuple[int, int]]) -> numpy.ndarray[Any, Any]:
    """Every `start` + one multiple of each stride of the (size, stride) `parts`, flat int64, the last part fastest.

    One addition per element and little memory beside the result: the minor parts are summed first.

    >>> sums(4, [(2, 8), (2, 1)]).tolist()
    [4, 5, 12, 13]
    """
    import numpy

    found = numpy.full(1, start, dtype=numpy.int64)
    for size, stride in reversed(parts):
        steps = numpy.arange(0, size * stride, stride, dtype=numpy.int64)
        table = numpy.empty((size, len(found)), dtype=numpy.int64)
        if len(found) < _LONG:
            # Short rows one by one would cost more in loops than in additions: walk down the columns instead.
            numpy.add(found[:, None], steps, out=table.T, order="C")
        else:
            numpy.add(steps[:, None], found, out=table)
        found = table.reshape(-1)
    return found


def cast(ranks: numpy.ndarray[Any, Any], dtype: Any) -> numpy.ndarray[Any, Any]:
    """`ranks` (int64) as `dtype`, which must hold every one of them.  Raises OverflowError, as for a list of ints.

    >>> import numpy
    >>> cast(numpy.arange(3), numpy.int32).dtype
    dtype('int32')
    """
    if dtype is None:
        return ranks
    import numpy

    kind = numpy.dtype(dtype)
    if kind.kind in "iu" and ranks.size:
        lowest, highest = int(ranks.min()), int(ranks.max())
        if lowest < numpy.iinfo(kind).min or highest > numpy.iinfo(kind).max:
            raise OverflowError(f"ranks from {lowest} to {highest} do not fit {kind}")
    return ranks.astype(kind, copy=False)
