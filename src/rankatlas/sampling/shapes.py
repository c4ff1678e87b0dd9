"""Shapes of what ranks read, by which a wrong sampler is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


def same(one: Array, other: Array) -> bool:
    """Whether two hold the same samples in the same order."""
    return len(one) == len(other) and bool((one == other).all())


def alike(one: Array, other: Array) -> bool:
    """Whether two hold the same samples in any order."""
    import numpy

    return same(numpy.sort(one), numpy.sort(other))


def repeats(parts: Iterable[Array]) -> int:
    """How many reads of `parts` together repeat a sample.

    >>> import numpy
    >>> repeats([numpy.array([0, 1]), numpy.array([1, 1])])
    2
    """
    import numpy

    every = numpy.concatenate([numpy.empty(0, numpy.int64), *parts])
    return len(every) - len(numpy.unique(every))


def filled_up(parts: list[Array], most: int) -> bool:
    """Whether shares of one length repeat samples at their ends only, at most `most` of them, as a filled-up tail does.

    >>> import numpy
    >>> one, other = numpy.array([0, 2]), numpy.array([1, 0])
    >>> filled_up([one, other], 1), filled_up([other, one[::-1]], 1)
    (True, True)
    >>> filled_up([one, other[::-1]], 1), filled_up([one, one], 2)
    (False, False)
    """
    again = repeats(parts)
    if not again:
        return True
    if again > most or len({len(part) for part in parts}) > 1:
        return False
    return not repeats(part[:-1] for part in parts) and not any(repeats([part]) for part in parts)


def ascending(parts: Iterable[Array]) -> bool:
    """Whether each of `parts` is read in the order of the data, so that nothing is shuffled."""
    return all(bool((part[1:] > part[:-1]).all()) for part in parts)


def left_of_shares(by_data_rank: Mapping[int, Array], n: int, size: int) -> list[int] | None:
    """How many samples each data rank leaves unread at the end of its own share, or None where shares have no shape.

    A share is every `size`-th sample, or one block of the `n` samples, both read in the order of the data.

    >>> import numpy
    >>> left_of_shares({0: numpy.array([0, 2, 4]), 1: numpy.array([1, 3])}, 10, 2)
    [2, 3]
    >>> left_of_shares({0: numpy.array([0, 1]), 1: numpy.array([5, 6])}, 10, 2)
    [3, 3]
    """
    if not ascending(by_data_rank.values()):
        return None
    for cut in _cuts(n, size):
        shares = [cut(range(n), rank) for rank in by_data_rank]
        if all(map(_begins, shares, by_data_rank.values())):
            return [len(share) - len(part) for share, part in zip(shares, by_data_rank.values())]
    return None


def sharded_twice(by_data_rank: Mapping[int, Array], n: int, size: int) -> bool:
    """Whether each data rank reads its part of its own part of the `n` samples, unshuffled, each by turns or by blocks.

    >>> import numpy
    >>> sharded_twice({0: numpy.array([0, 4]), 1: numpy.array([3, 7])}, 8, 2)
    True
    """
    if not ascending(by_data_rank.values()):
        return False
    for first in _cuts(n, size):
        for second in _cuts(-(-n // size), size):
            parts = [(second(first(range(n), rank), rank), part) for rank, part in by_data_rank.items()]
            if all(len(share) - len(part) <= 1 and _begins(share, part) for share, part in parts):
                return True
    return False


def _cuts(n: int, size: int) -> list[Callable[[range, int], range]]:
    """The ways in which `n` samples are cut for `size` data ranks: in turn, and in blocks rounded down and up."""

    def in_turn(whole: range, rank: int) -> range:
        return whole[rank::size]

    def in_blocks(block: int) -> Callable[[range, int], range]:
        return lambda whole, rank: whole[rank * block : None if rank == size - 1 else (rank + 1) * block]

    return [in_turn, *map(in_blocks, dict.fromkeys((max(1, n // size), -(-n // size))))]


def _begins(share: range, part: Array) -> bool:
    """Whether `part` is the beginning of `share`."""
    import numpy

    if len(part) > len(share):
        return False
    return same(part, numpy.arange(len(part), dtype=numpy.int64) * share.step + share.start)


def dealt_out(lengths: list[int]) -> bool:
    """Whether shares of these lengths, by data rank, are what dealing out a whole data set gives.

    Single samples, or batches, in turn: the first ranks have one more, one may have a part of one.  Blocks: the last
    has the remainder.

    >>> dealt_out([5, 4, 4]), dealt_out([8, 8, 6, 4]), dealt_out([3, 3, 5]), dealt_out([10, 0]), dealt_out([40, 4])
    (True, True, True, False, False)
    """
    size, high, low = len(lengths), max(lengths), min(lengths)
    if high - low <= 1:
        return True
    if all(length == lengths[0] for length in lengths[:-1]) and abs(lengths[-1] - lengths[0]) < size:
        return True
    batch = high - low
    between = [length for length in lengths if low < length < high]
    falling = all(one >= other for one, other in pairwise(lengths))
    # At least one whole batch for everybody, else "a batch's worth" is whatever somebody happened to read.
    return falling and len(between) <= 1 and low >= batch


def around(lengths: Iterable[int], n: int, *sizes: int) -> bool:
    """Whether shares are as long as n samples divided by each of `sizes` in turn, rounded up or down each time."""
    low = high = n
    for size in sizes:
        low, high = low // size, -(-high // size)
    return all(low <= length <= high for length in lengths)
