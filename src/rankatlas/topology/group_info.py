"""What a `Topology` says of one group, and the lazy sequences in it."""

from __future__ import annotations

from bisect import bisect_left
from collections import namedtuple
from collections.abc import Iterator, Sequence
from operator import index as to_index

from rankatlas.core import IntSequence, Mesh
from rankatlas.core.arrays import cast, refuse_view
from rankatlas.errors import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple, overload

    import numpy

    class _Fields(NamedTuple):
        size: int
        rank: int
        world: Sequence[int]

else:
    _Fields = namedtuple("GroupInfo", ["size", "rank", "world"])


class ListToBe:
    """The ranks of one group, which turn into a plain list when a `GroupInfo` that holds them is read.

    Equal to that list already, because tuples compare what they hold without asking `GroupInfo`.
    """

    __slots__ = ("_made", "_ranks")
    __hash__ = None  # type: ignore[assignment]

    _made: list[int]

    def __init__(self, ranks: range) -> None:
        self._ranks = ranks

    def made(self) -> list[int]:
        """The list, made now or before: always the same one, so that whoever changes it changes it for all."""
        try:
            return self._made
        except AttributeError:
            self._made = list(self._ranks)
            return self._made

    def __eq__(self, other: object) -> bool:
        return self.made() == (other.made() if isinstance(other, ListToBe) else other)

    def __repr__(self) -> str:
        return repr(self.made())


class GroupInfo(_Fields):
    """`(size, rank, world)` of one group: how many members, this rank's place among them, and who they are.

    The infos of a `Topology` make the list in `world` when it is first read, by whatever way.

    >>> info = GroupInfo(size=2, rank=1, world=[1, 5])
    >>> info.world, info[2], info
    ([1, 5], [1, 5], GroupInfo(size=2, rank=1, world=[1, 5]))
    """

    __module__ = "rankatlas"  # the public home: pickles must not depend on where the file is

    if not TYPE_CHECKING:

        @property
        def world(self):
            """The members, a plain list where this is an axis group."""
            world = tuple.__getitem__(self, 2)
            return world.made() if type(world) is ListToBe else world

        # Everything that looks into the tuple must find the list, so none of tuple's own ways stay.
        def __iter__(self):
            return iter((self.size, self.rank, self.world))

        def __getitem__(self, item):
            return (self.size, self.rank, self.world)[item]

        def __add__(self, other):
            return tuple(self) + other

        def __radd__(self, other):
            return other + tuple(self)

        def __mul__(self, times):
            return tuple(self) * times

        __rmul__ = __mul__

        def __lt__(self, other):
            return tuple(self) < tuple(other)

        def __le__(self, other):
            return tuple(self) <= tuple(other)

        def __gt__(self, other):
            return tuple(self) > tuple(other)

        def __ge__(self, other):
            return tuple(self) >= tuple(other)

    def __repr__(self) -> str:
        # The original prints whole lists, and programs compare that text.
        return f"GroupInfo(size={self.size}, rank={self.rank}, world={list(self.world)})"

    def __reduce__(self) -> tuple[object, ...]:
        return GroupInfo, tuple(self)


class DataRanks(IntSequence):
    """Global rank → data rank, a lazy sequence equal to the list of all of them.

    It is no group: its values are data ranks, each standing as often as ranks share it.  Never give it to
    `new_group`.  Cost: O(1) per element.
    """

    __slots__ = ("_mesh", "_ranks")

    def __init__(self, mesh: Mesh, ranks: range | None = None) -> None:
        self._mesh = mesh
        self._ranks = range(mesh.world_size) if ranks is None else ranks

    def __len__(self) -> int:
        return len(self._ranks)

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, item: int) -> int: ...
        @overload
        def __getitem__(self, item: slice) -> DataRanks: ...

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, slice):
            return DataRanks(self._mesh, self._ranks[item])
        return self._data_rank(self._ranks[to_index(item)])

    def __iter__(self) -> Iterator[int]:
        return map(self._data_rank, self._ranks)

    def __contains__(self, data_rank: object) -> bool:
        return self.count(data_rank) > 0

    def index(self, data_rank: int, start: int = 0, stop: int | None = None) -> int:
        """The first global rank (of those here) with this data rank.  Raises ValueError when there is none."""
        places = range(len(self))[start:stop]
        holders = self._holders(data_rank)
        first = bisect_left(holders, self._ranks[places[0]]) if places and self._ranks.step == 1 else len(holders)
        if first < len(holders) and holders[first] in self._ranks[start:stop]:
            return self._ranks.index(holders[first])
        if places and self._ranks.step != 1:
            return super().index(data_rank, start, len(self) if stop is None else stop)
        raise ValueError(f"{shown(data_rank)} is no data rank here")

    def count(self, data_rank: object) -> int:
        """How many of the global ranks here have this data rank.  Cost: O(log ranks) for consecutive ranks."""
        if self._ranks.step != 1:
            return super().count(data_rank)
        holders = self._holders(data_rank)
        return bisect_left(holders, self._ranks.stop) - bisect_left(holders, self._ranks.start)

    def _holders(self, data_rank: object) -> Sequence[int]:
        """All global ranks of the mesh with this data rank, ascending."""
        sharding = self._mesh.size("sharding")
        if not isinstance(data_rank, int) or not 0 <= data_rank < self._mesh.size("dp") * sharding:
            return ()
        return self._mesh.select(dp=data_rank // sharding, sharding=data_rank % sharding)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DataRanks) and (self._mesh, self._ranks) == (other._mesh, other._ranks):
            return True
        return super().__eq__(other)

    __hash__ = None

    def _data_rank(self, rank: int) -> int:
        places = self._mesh.coordinate(rank)
        return places["dp"] * self._mesh.size("sharding") + places["sharding"]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, Any]:
        import numpy

        refuse_view(copy)
        ranks = numpy.arange(self._ranks.start, self._ranks.stop, self._ranks.step, dtype=numpy.int64)
        dp, sharding = (ranks // self._mesh.stride(axis) % self._mesh.size(axis) for axis in ("dp", "sharding"))
        data = dp * self._mesh.size("sharding") + sharding
        return cast(data, dtype)

    def __reduce__(self) -> tuple[object, ...]:
        return DataRanks, (self._mesh, self._ranks)
