"""Groups: the ranks that differ only along the chosen axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import index as to_index

from rankatlas.core.arrays import cast, refuse_view, sums
from rankatlas.core.ranks import Ranks, progressions
from rankatlas.errors import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, overload

    import numpy

    from rankatlas.core.mesh import Mesh

    Parts = tuple[tuple[int, int], ...]

_SHOWN = 16  # members a repr lists


class Group:
    """The ranks that differ only along `axes`: a frozen value that holds no communicator.

    `axes` (mesh order), `index` (its position in `mesh.groups(*axes)`), `size`, `ranks` (lazy, ascending) and
    `group_rank` (the place of the rank it was asked for, None when it was taken by index).  Groups are equal when
    mesh, axes and index are.  Has `len`, iteration and `in` over its ranks.

    Cost: O(axes) for every attribute; iteration O(size).

    >>> from rankatlas import Mesh
    >>> group = Mesh(pp=2, dp=4, tp=2).group("dp", rank=11)
    >>> group.index, group.size, group.group_rank, group.ranks
    (3, 4, 1, [9, 11, 13, 15])
    """

    __module__ = "rankatlas"  # the public home: pickles must not depend on where the file is

    __slots__ = ("_axes", "_group_rank", "_mesh", "_parts", "_start")

    def __init__(
        self, mesh: Mesh, axes: tuple[str, ...], parts: Parts, start: int, group_rank: int | None = None
    ) -> None:
        self._mesh = mesh
        self._axes = axes
        self._parts = parts
        self._start = start
        self._group_rank = group_rank

    @property
    def mesh(self) -> Mesh:
        """The mesh this is a group of."""
        return self._mesh

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes along which the members differ, in mesh order."""
        return self._axes

    @property
    def group_rank(self) -> int | None:
        """Place of the asked rank among the members: the mixed-radix value of its coordinates over `axes`."""
        return self._group_rank

    @property
    def size(self) -> int:
        """Number of members."""
        return self._mesh._volume(self._axes)

    @property
    def index(self) -> int:
        """Position of this group in `mesh.groups(*axes)`: groups ascend by first rank."""
        return self._mesh._group_index(self._axes, self._start)

    @property
    def ranks(self) -> Ranks:
        """The members, ascending, as a lazy sequence equal to the list of them."""
        return progressions(self._parts, self._start)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[int]:
        return iter(self.ranks)

    def __contains__(self, rank: object) -> bool:
        return rank in self.ranks

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, Any]:
        return self.ranks.__array__(dtype, copy)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        return (self._start, self._axes, self._mesh) == (other._start, other._axes, other._mesh)

    def __hash__(self) -> int:
        return hash((self._start, self._axes, self._mesh))

    def __repr__(self) -> str:
        shown = ", ".join(map(str, islice(self, _SHOWN))) + (", ..." if self.size > _SHOWN else "")
        place = "" if self._group_rank is None else f", group_rank={self._group_rank}"
        return f"Group(axes={self._axes!r}, index={self.index}, size={self.size}, ranks=[{shown}]{place})"

    def __reduce__(self) -> tuple[object, ...]:
        return Group, (self._mesh, self._axes, self._parts, self._start, self._group_rank)


class Groups(Sequence[Group]):
    """All groups of a mesh over the same axes, as a lazy sequence ascending by first rank.

    Cost: O(axes) for `len`, one group by index and `in`; iteration O(groups); a slice is a tuple of groups.
    `numpy.asarray(groups)` is the (groups, size) int64 array, made without a Python loop.

    >>> from rankatlas import Mesh
    >>> groups = Mesh(dp=2, tp=4).groups("dp")
    >>> len(groups), groups[3].ranks, [list(ranks) for ranks in groups.ranges()]
    (4, [3, 7], [[0, 4], [1, 5], [2, 6], [3, 7]])
    """

    __module__ = "rankatlas"  # the public home: pickles must not depend on where the file is

    __slots__ = ("_axes", "_mesh")

    def __init__(self, mesh: Mesh, axes: tuple[str, ...]) -> None:
        self._mesh = mesh
        self._axes = axes

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes along which the members of each group differ, in mesh order."""
        return self._axes

    @property
    def size(self) -> int:
        """Number of members of each group."""
        return self._mesh._volume(self._axes)

    def __len__(self) -> int:
        return self._mesh.world_size // self.size

    if TYPE_CHECKING:

        @overload
        def __getitem__(self, item: int) -> Group: ...
        @overload
        def __getitem__(self, item: slice) -> tuple[Group, ...]: ...

    def __getitem__(self, item: Any) -> Any:
        count = len(self)
        if isinstance(item, slice):
            return tuple(self[index] for index in range(count)[item])
        index = to_index(item)
        if not -count <= index < count:
            raise IndexError(f"group {shown(index)} is outside the {count} groups over {shown(self._axes)}")
        start = self._starts()[index]
        return Group(self._mesh, self._axes, self._mesh._parts(self._axes), start)

    def __iter__(self) -> Iterator[Group]:
        mesh, axes = self._mesh, self._axes
        parts = mesh._parts(axes)
        return (Group(mesh, axes, parts, start) for start in self._starts())

    def ranges(self) -> Iterator[range] | Iterator[Ranks]:
        """The bare members of every group: `range` objects where a group is one progression, else `Ranks`.

        Cost: O(axes) each, the fastest way through all groups.

        >>> from rankatlas import Mesh
        >>> list(Mesh(dp=2, tp=2).groups("tp").ranges())
        [range(0, 2), range(2, 4)]
        """
        parts = self._mesh._parts(self._axes)
        if len(parts) > 1:
            return (progressions(parts, start) for start in self._starts())
        size, stride = parts[0] if parts else (1, 1)
        span = size * stride
        return (range(start, start + span, stride) for start in self._starts())

    def _starts(self) -> Ranks:
        """The first rank of every group: the ranks whose places along `axes` are all 0."""
        rest = tuple(axis for axis in self._mesh.axes if axis not in self._axes)
        return progressions(self._mesh._parts(rest), self._mesh.first_rank)

    def index(self, group: Group, start: int = 0, stop: int | None = None) -> int:
        """The position of `group`, which is its own `index`.  Cost: O(axes).  Raises ValueError when it is none."""
        if group in self and group.index in range(len(self))[start:stop]:
            return group.index
        raise ValueError(f"{shown(group)} is not among {self!r}")

    def count(self, group: object) -> int:
        """1 when `group` is one of these, else 0.  Cost: O(axes)."""
        return int(group in self)

    def __contains__(self, group: object) -> bool:
        return isinstance(group, Group) and group.mesh == self._mesh and group.axes == self._axes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Groups):
            return NotImplemented
        return (self._axes, self._mesh) == (other._axes, other._mesh)

    def __hash__(self) -> int:
        return hash((self._axes, self._mesh))

    def __repr__(self) -> str:
        return f"{self._mesh!r}.groups({', '.join(map(repr, self._axes))})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, Any]:
        import numpy
        from numpy.lib.stride_tricks import as_strided

        refuse_view(copy)
        mesh = self._mesh
        rest = mesh._parts(axis for axis in mesh.axes if axis not in self._axes)
        members = mesh._parts(self._axes)
        if len(rest) <= 1 and len(members) <= 1:
            # Both directions are one progression, so the table is a view of one arange of the world.
            first, last = mesh.first_rank, mesh.first_rank + mesh.world_size
            world = numpy.arange(first, last, dtype=numpy.int64)
            (rows, down), (columns, across) = (parts[0] if parts else (1, 1) for parts in (rest, members))
            table = as_strided(world, (rows, columns), (down * world.itemsize, across * world.itemsize))
        else:
            table = sums(mesh.first_rank, [*rest, *members]).reshape(len(self), self.size)
        return cast(table, dtype)

    def __reduce__(self) -> tuple[object, ...]:
        return Groups, (self._mesh, self._axes)
