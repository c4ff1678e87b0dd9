"""The last step from a lazy sequence to a numpy array."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import numpy

_LONG = 64


def refuse_view(copy: bool | None) -> None:
    """Raise ValueError where a caller insists on no copy: what is computed has no memory to share."""
    if copy is False:
        raise ValueError("ranks are computed, not stored: an array of them is always a copy")


def outer_sum(rows: numpy.ndarray[Any, Any], columns: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """The (rows, columns) int64 table of all sums, one pass over it with the inner loop along a long side."""
    import numpy

    table = numpy.empty((len(rows), len(columns)), dtype=numpy.int64)
    if len(columns) < _LONG:
        # Short rows one by one would cost more in loops than in additions: walk down the columns instead.
        numpy.add(columns[:, None], rows, out=table.T, order="C")
    else:
        numpy.add(rows[:, None], columns, out=table)
    return table


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
    if kind.kind in "iu" and ranks.size and ranks.max() > numpy.iinfo(kind).max:
        raise OverflowError(f"ranks up to {ranks.max()} do not fit {kind}")
    return ranks.astype(kind, copy=False)
