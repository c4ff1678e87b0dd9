"""Lazy sequences of ints: what a group's members are before anybody asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import index as to_index

from rankatlas.core.arrays import cast, refuse_view, sums
from rankatlas.errors import InputError, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, overload

    import numpy

_SHOWN = 1000  # a longer sequence prints its ends only: a repr must not fill the memory


class IntSequence(Sequence[int]):
    """A sequence of ints computed on demand, equal to any list, tuple or range of the same ints.

    Prints as a list (beyond 1,000 elements only the ends) and, like a list, has no hash.
    """

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, (list, tuple, range, IntSequence)):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other))

    def __add__(self, other: list[int]) -> list[int]:
        return [*self, *other]

    def __radd__(self, other: list[int]) -> list[int]:
        return [*other, *self]

    def __mul__(self, times: int) -> list[int]:
        return list(self) * times

    __rmul__ = __mul__

    def tolist(self) -> list[int]:
        """The ints as a plain list, for JSON and whoever insists on one.  Cost: O(n)."""
        return list(self)

    def __repr__(self) -> str:
        if len(self) <= _SHOWN:
            return repr(list(self))
        return f"[{self[0]}, {self[1]}, {self[2]}, ..., {self[-1]}]"


class Ranks(IntSequence):
    """Ranks as a sum of arithmetic progressions: `start` plus one multiple of every stride in `parts`.

    `parts` are (size, stride) pairs, major to minor, that do not coalesce; `positions` is the range of places
    taken from the whole sum, so that a slice is a `Ranks` again.  Without parts a place is the rank itself:
    `Ranks(range(2, 10, 4))` is [2, 6].

    Cost: O(parts) to make, index, search or slice; nothing is enumerated until iterated.

    >>> ranks = Ranks(range(4), parts=((2, 8), (2, 1)), start=4)
    >>> ranks, ranks[2], 13 in ranks, ranks[1:3]
    ([4, 5, 12, 13], 12, True, [5, 12])
    """

    __module__ = "rankatlas"  # the public home: pickles must not depend on where the file is

    __slots__ = ("_parts", "_positions", "_start")

    def __init__(self, positions: range, parts: tuple[tuple[int, int], ...] = (), start: int = 0) -> None:
        if type(positions) is not range:
            raise InputError(f"Ranks are made of a range of places, not of {shown(positions)}; see Mesh.select")
        self._positions = positions
        self._parts = parts
        self._start = start

    def __len__(self) -> int:
        return len(self._positions)

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, item: int) -> int: ...
        @overload
        def __getitem__(self, item: slice) -> Ranks: ...

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, slice):
            return _taken(self._positions[item], self._parts, self._start)
        try:
            position = self._positions[to_index(item)]
        except IndexError:
            raise IndexError(f"index {shown(item)} is outside a sequence of {len(self)} ranks") from None
        return self._at(position) if self._parts else position

    def _at(self, position: int) -> int:
        rank = self._start
        for size, stride in reversed(self._parts):
            position, place = divmod(position, size)
            rank += place * stride
        return rank

    def __iter__(self) -> Iterator[int]:
        if not self._parts:
            return iter(self._positions)
        if self._is_whole():
            return _walk(self._start, self._parts)
        return map(self._at, self._positions)

    def _total(self) -> int:
        total = 1
        for size, _ in self._parts:
            total *= size
        return total

    def _position(self, rank: object) -> int | None:
        """The place of `rank` in the whole sum, or None.  Strides of minor parts never reach a major stride."""
        if isinstance(rank, float) and rank.is_integer():
            rank = int(rank)  # a list finds 1.0 too
        try:
            rest = to_index(rank)  # type: ignore[arg-type]
        except TypeError:
            return None
        if not self._parts:
            return rest
        rest -= self._start
        position = 0
        for size, stride in self._parts:
            place, rest = divmod(rest, stride)
            if not 0 <= place < size:
                return None
            position = position * size + place
        return None if rest else position

    def __contains__(self, rank: object) -> bool:
        position = self._position(rank)
        return position is not None and position in self._positions

    def index(self, rank: int, start: int = 0, stop: int | None = None) -> int:
        """The place of `rank` in the sequence.  Cost: O(parts).  Raises ValueError when it is not there."""
        position = self._position(rank)
        if position is not None and position in self._positions:
            place = self._positions.index(position)
            if place in range(len(self))[start:stop]:
                return place
        raise ValueError(f"rank {shown(rank)} is not in {shown(self)}")

    def count(self, rank: object) -> int:
        """1 when `rank` is in the sequence, else 0: no rank stands twice.  Cost: O(parts)."""
        return int(rank in self)

    def as_range(self) -> range | None:
        """The same ranks as one `range` where they are one progression, else None.  Cost: O(1).

        >>> Ranks(range(0, 8, 4)).as_range()
        range(0, 8, 4)
        """
        return None if self._parts else self._positions

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, range):
            other = Ranks(other)
        if isinstance(other, Ranks):
            if self._parts == other._parts and self._start == other._start:
                return self._positions == other._positions
            if self._is_whole() and other._is_whole():
                # Parts that do not coalesce are the only such parts of these ranks.
                return False
        return super().__eq__(other)

    @property
    def progressions(self) -> tuple[object, ...]:
        """What these ranks are made of; hashable, and of groups of a mesh equal where the ranks are."""
        return self._parts, self._start, self._positions

    def _is_whole(self) -> bool:
        return not self._parts or self._positions == range(self._total())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, Any]:
        import numpy

        refuse_view(copy)
        taken = self._positions
        if self._parts and taken == range(self._total()):
            return cast(sums(self._start, self._parts), dtype)
        positions = numpy.arange(taken.start, taken.stop, taken.step, dtype=numpy.int64)
        if not self._parts:
            return cast(positions, dtype)
        ranks = numpy.full(len(positions), self._start, dtype=numpy.int64)
        for size, stride in reversed(self._parts):
            positions, place = numpy.divmod(positions, size)
            ranks += place * stride
        return cast(ranks, dtype)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._positions, self._parts, self._start)


def progressions(parts: tuple[tuple[int, int], ...], start: int) -> Ranks:
    """The `Ranks` of coalesced (size, stride) parts: one range where there is at most one.  Cost: O(parts).

    >>> progressions(((2, 8), (2, 1)), 4)
    [4, 5, 12, 13]
    """
    if len(parts) == 1:
        size, stride = parts[0]
        return Ranks(range(start, start + size * stride, stride))
    total = 1
    for size, _ in parts:
        total *= size
    return Ranks(range(total), parts, start) if parts else Ranks(range(start, start + 1))


def _taken(positions: range, parts: tuple[tuple[int, int], ...], start: int) -> Ranks:
    """The ranks at some of the places: one progression where they are one, so that equal ranks have one form."""
    whole = Ranks(positions, parts, start)
    gap = _gap(positions, parts) if positions else 1
    if gap is None:
        return whole
    begin = whole[0] if positions else 0
    return Ranks(range(begin, begin + gap * len(positions), gap))


def _gap(positions: range, parts: tuple[tuple[int, int], ...]) -> int | None:
    """The distance between ranks at neighbouring places where it is always the same, else None.

    From the minor part up: every step moves a part by the same number of places, or every step wraps it round by the
    same number and carries one into the next part; where neither holds there is no progression.
    """
    steps = len(positions) - 1
    first, step, gap = positions[0], positions.step, 0
    for size, stride in reversed(parts):
        first, place = divmod(first, size)
        moved = step % size
        if place + steps * moved >= size:
            moved -= size
            if place + steps * moved < 0:
                return None
        gap += moved * stride
        step = (step - moved) // size
    return (gap if parts else positions.step) if steps else 1


def _walk(start: int, parts: tuple[tuple[int, int], ...]) -> Iterator[int]:
    """Every rank of the sum in order, the last part fastest."""
    size, stride = parts[0]
    for first in range(start, start + size * stride, stride):
        if len(parts) == 2:
            size2, stride2 = parts[1]
            yield from range(first, first + size2 * stride2, stride2)
        else:
            yield from _walk(first, parts[1:])
