"""The mesh: named axes with sizes, laid row-major over ranks."""

from __future__ import annotations

from collections.abc import Iterable
from keyword import iskeyword

from rankatlas.core.axis_errors import MOST_RANKS, bad_axes, bad_extent, bad_name, not_adjacent, plain_name
from rankatlas.core.border import as_int, in_order
from rankatlas.core.coordinate import Coordinate
from rankatlas.core.group import Group, Groups
from rankatlas.core.ranks import Ranks, progressions
from rankatlas.core.sizes import checked_open, checked_size, resolve
from rankatlas.errors import (
    CoordinateError,
    CoordinateRangeError,
    DuplicateAxisError,
    InputError,
    LayoutChangeError,
    RankError,
    shown,
    unknown_axis,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Mesh:
    """Named axes with sizes, laid row-major over ranks first_rank … first_rank + world_size − 1.

    Keyword order is major → minor: the LAST axis is adjacent, rank + 1 moves along it.  A mesh is a frozen value that
    knows no framework, no environment and no rank of its own.  Equality, hash and fingerprint use names, sizes,
    order and first_rank.

    Raises AxisError (a name that does not match `[A-Za-z_][A-Za-z0-9_]*`, a name twice, none at all), SizeError
    (below 1, or no integer), WorldSizeError (more ranks than 64 bits number).  Cost: O(axes), whatever the world.

    >>> mesh = Mesh(pp=4, dp=2, tp=8)
    >>> mesh.world_size, mesh.axes, mesh.sizes, mesh.stride("dp")
    (64, ('pp', 'dp', 'tp'), (4, 2, 8), 8)
    >>> mesh.coordinate(37).tp, mesh.rank(pp=2, dp=0, tp=5), mesh.group("dp", rank=37).ranks
    (5, 37, [37, 45])
    """

    __module__ = "rankatlas"  # the public home: pickles must not depend on where the file is

    __slots__ = ("_axes", "_first_rank", "_sizes", "_strides", "_world_size")

    def __init__(self, /, *, first_rank: int = 0, **sizes: int) -> None:
        self._build(tuple(sizes), tuple(sizes.values()), first_rank)

    @classmethod
    def from_axes(cls, axes: Iterable[tuple[str, int]], first_rank: int = 0) -> Mesh:
        """A mesh from (name, size) pairs, major → minor.  Cost and errors as for `Mesh(…)`.

        >>> Mesh.from_axes([("pp", 4), ("dp", 2)], first_rank=8)
        Mesh(pp=4, dp=2, first_rank=8)
        """
        try:
            pairs = [(name, size) for name, size in in_order(axes, "axes")]
        except (TypeError, ValueError):
            raise InputError(f"axes must be (name, size) pairs, major to minor; got {shown(axes)}") from None
        self = object.__new__(cls)
        self._build(tuple(name for name, _ in pairs), tuple(size for _, size in pairs), first_rank)
        return self

    def _build(self, axes: tuple[str, ...], sizes: tuple[int, ...], first_rank: int) -> None:
        stride = 1
        strides = []
        for axis, size in zip(reversed(axes), reversed(sizes)):
            if type(axis) is not str or type(size) is not int or size < 1:
                # Not the canonical form: coerced here once, or refused.
                return self._build(tuple(map(plain_name, axes)), tuple(map(checked_size, axes, sizes)), first_rank)
            if not (axis.isascii() and axis.isidentifier()) or axis == "first_rank":
                raise bad_name(axis)
            strides.append(stride)
            stride *= size
        if len(set(axes)) != len(axes) or not axes:
            raise bad_axes(axes)
        if type(first_rank) is not int:
            first_rank = as_int(first_rank, "first_rank")
        if first_rank < 0 or first_rank + stride > MOST_RANKS:
            raise bad_extent(axes, sizes, first_rank, stride)
        strides.reverse()
        self._axes = axes
        self._sizes = sizes
        self._strides = tuple(strides)
        self._first_rank = first_rank
        self._world_size = stride

    @property
    def axes(self) -> tuple[str, ...]:
        """Axis names, major → minor."""
        return self._axes

    @property
    def sizes(self) -> tuple[int, ...]:
        """Axis sizes, in the order of `axes`."""
        return self._sizes

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart in ranks neighbours along each axis are, in the order of `axes`; the last is 1."""
        return self._strides

    @property
    def first_rank(self) -> int:
        """The lowest rank of the mesh."""
        return self._first_rank

    @property
    def world_size(self) -> int:
        """The number of ranks: the product of the sizes."""
        return self._world_size

    def size(self, axis: str) -> int:
        """The length of `axis`.  Cost: O(axes).  Raises UnknownAxisError."""
        return self._sizes[self._position(axis)]

    def stride(self, axis: str) -> int:
        """How far apart in ranks two neighbours along `axis` are.  Cost: O(axes).  Raises UnknownAxisError.

        >>> Mesh(dp=2, tp=4).stride("dp")
        4
        """
        return self._strides[self._position(axis)]

    def coordinate(self, rank: int) -> Coordinate:
        """Where `rank` stands along every axis.  Cost: O(axes).  Raises RankError, IntegerError.

        >>> Mesh(dp=2, tp=4).coordinate(6)
        Coordinate(dp=1, tp=2)
        """
        offset = self._offset(rank)
        places = [offset // stride % size for stride, size in zip(self._strides, self._sizes)]
        return Coordinate._of(self._axes, tuple(places))

    def rank(self, /, **coordinate: int) -> int:
        """The rank at a coordinate, every axis named once in any order.  Cost: O(axes).

        Raises UnknownAxisError, CoordinateError (an axis is missing), CoordinateRangeError, IntegerError.

        >>> Mesh(dp=2, tp=4).rank(tp=2, dp=1)
        6
        """
        if len(coordinate) != len(self._axes):
            missing = tuple(axis for axis in self._axes if axis not in coordinate)
            if missing:
                self._offset_of(coordinate)  # an unknown axis is the likelier mistake
                raise CoordinateError(
                    f"a rank of {self} needs a place along every axis; missing: {', '.join(missing)}."
                    " To leave axes open, use select(…)",
                    missing=missing,
                )
        return self._first_rank + self._offset_of(coordinate)

    def select(self, /, **coordinate: int) -> Ranks:
        """The ascending ranks that stand at these places, the other axes free.  Cost: O(axes).

        Raises UnknownAxisError, CoordinateRangeError, IntegerError.

        >>> Mesh(pp=2, dp=2, tp=2).select(pp=1, tp=0)
        [4, 6]
        """
        start = self._first_rank + self._offset_of(coordinate)
        return progressions(self._parts([axis for axis in self._axes if axis not in coordinate]), start)

    def group(self, *axes: str, rank: int) -> Group:
        """The group of `rank` over `axes` (any order, each once; none gives a singleton).  Cost: O(axes).

        Raises UnknownAxisError, DuplicateAxisError, RankError, IntegerError.

        >>> Mesh(pp=2, dp=2, tp=2).group("tp", "dp", rank=5)
        Group(axes=('dp', 'tp'), index=1, size=4, ranks=[4, 5, 6, 7], group_rank=1)
        """
        offset = self._offset(rank)
        if len(axes) == 1:  # the everyday question, answered without any loop
            position = self._position(axes[0])
            stride = self._strides[position]
            size = self._sizes[position]
            place = offset // stride % size
            parts = ((size, stride),) if size > 1 else ()
            start = self._first_rank + offset - place * stride
            return Group(self, self._axes[position : position + 1], parts, start, place)
        names = self._ordered(axes)
        group_rank = 0
        start = self._first_rank + offset
        for axis, size, stride in zip(self._axes, self._sizes, self._strides):
            if axis in names:
                place = offset // stride % size
                group_rank = group_rank * size + place
                start -= place * stride
        return Group(self, names, self._parts(names), start, group_rank)

    def groups(self, *axes: str) -> Groups:
        """All groups over `axes`, a lazy sequence in which every rank stands exactly once.

        Ranks inside a group run with the last mesh axis fastest; groups ascend by first rank.
        Cost: O(axes) until iterated.  Raises UnknownAxisError, DuplicateAxisError.

        >>> [group.ranks for group in Mesh(dp=2, tp=4).groups("dp")]
        [[0, 4], [1, 5], [2, 6], [3, 7]]
        """
        return Groups(self, self._ordered(axes))

    def flatten(self, *axes: str, into: str) -> Mesh:
        """The same ranks with adjacent `axes`, named in mesh order, made one axis `into` in their place.

        No rank moves.  Cost: O(axes).  Raises LayoutChangeError for axes that are not adjacent or not in mesh
        order, UnknownAxisError, AxisError.

        >>> Mesh(pp=2, dp=2, tp=4).flatten("dp", "tp", into="loss")
        Mesh(pp=2, loss=8)
        """
        names = self._ordered(axes)
        if not names:
            raise LayoutChangeError(f"flatten needs at least one axis of {self}")
        first = self._axes.index(names[0])
        if names != tuple(axes) or self._axes[first : first + len(names)] != names:
            raise not_adjacent(self, axes, names)
        pairs = list(zip(self._axes, self._sizes))
        pairs[first : first + len(names)] = [(into, self._volume(names))]
        return Mesh.from_axes(pairs, self._first_rank)

    def unflatten(self, axis: str, /, **sizes: int) -> Mesh:
        """The same ranks with `axis` split into several, major → minor; one size may be -1.

        No rank moves.  Cost: O(axes).  Raises WorldSizeError when the sizes do not give the axis, AxisError.

        >>> Mesh(dp=4, tp=2).unflatten("dp", dp_replicate=2, dp_shard=-1)
        Mesh(dp_replicate=2, dp_shard=2, tp=2)
        """
        position = self._position(axis)
        if not sizes:
            raise LayoutChangeError(f"unflatten of {shown(axis)} needs the new axes, such as {axis}_a=2, {axis}_b=-1")
        wanted = {name: None if checked_open(name, size) else size for name, size in sizes.items()}
        parts = resolve(wanted, self._sizes[position], whole=f"axis {axis}")
        pairs = list(zip(self._axes, self._sizes))
        pairs[position : position + 1] = parts.items()
        return Mesh.from_axes(pairs, self._first_rank)

    def reorder(self, *axes: str) -> Mesh:
        """Another layout: the same axes, each named once, in a new order.  The rank of a coordinate changes.

        Cost: O(axes).  Raises LayoutChangeError when an axis is left out, UnknownAxisError, DuplicateAxisError.

        >>> Mesh(pp=2, tp=4).reorder("tp", "pp")
        Mesh(tp=4, pp=2)
        """
        self._ordered(axes)
        missing = [axis for axis in self._axes if axis not in axes]
        if missing:
            raise LayoutChangeError(f"reorder names every axis of {self} once; missing: {', '.join(missing)}")
        return Mesh.from_axes([(axis, self.size(axis)) for axis in axes], self._first_rank)

    def to_dict(self) -> dict[str, Any]:
        """The stored description of this layout: plain data for JSON, see `from_dict`.

        >>> Mesh(dp=2).to_dict()
        {'format': 'rankatlas.mesh', 'version': 1, 'axes': [['dp', 2]], 'first_rank': 0}
        """
        from rankatlas.core.description import mesh_to_dict

        return mesh_to_dict(self)

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Mesh:
        """The mesh of a stored description.  Raises DescriptionError on unknown keys and versions.

        >>> Mesh.from_dict(Mesh(dp=2).to_dict())
        Mesh(dp=2)
        """
        from rankatlas.core.description import mesh_from_dict

        return mesh_from_dict(description)

    def fingerprint(self) -> str:
        """SHA-256 (hex) of the stored description: equal exactly when the meshes are.  Cost: O(axes).

        >>> Mesh(pp=4, dp=2, tp=8).fingerprint()[:16]
        '79f19846e81d1d07'
        """
        from rankatlas.core.description import fingerprint

        return fingerprint(self.to_dict())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mesh):
            return NotImplemented
        return self is other or (
            self._axes == other._axes and self._sizes == other._sizes and self._first_rank == other._first_rank
        )

    def __hash__(self) -> int:
        return hash((self._axes, self._sizes, self._first_rank))

    def __str__(self) -> str:
        shift = f" first_rank={self._first_rank}" if self._first_rank else ""
        return " ".join(f"{axis}={size}" for axis, size in zip(self._axes, self._sizes)) + shift

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __repr__(self) -> str:
        shift = f", first_rank={self._first_rank}" if self._first_rank else ""
        if any(map(iskeyword, self._axes)):
            return f"Mesh.from_axes({list(zip(self._axes, self._sizes))!r}{shift})"
        return f"Mesh({', '.join(f'{axis}={size}' for axis, size in zip(self._axes, self._sizes))}{shift})"

    def __reduce__(self) -> tuple[object, ...]:
        return Mesh.from_axes, (tuple(zip(self._axes, self._sizes)), self._first_rank)

    # What groups, atlas and checks ask beyond the public names.

    def _position(self, axis: str) -> int:
        try:
            return self._axes.index(axis)
        except ValueError:
            raise unknown_axis(axis, self._axes) from None

    def _ordered(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """`axes` in mesh order, each known and named once."""
        for position, axis in enumerate(axes):
            self._position(axis)
            if axis in axes[:position]:
                raise DuplicateAxisError(f"axis {shown(axis)} is named twice in {', '.join(axes)}", name=axis)
        return tuple(axis for axis in self._axes if axis in axes)

    def _offset(self, rank: int) -> int:
        if type(rank) is not int:
            rank = as_int(rank, "rank")
        offset = rank - self._first_rank
        if not 0 <= offset < self._world_size:
            raise RankError(
                f"rank {shown(rank)} is outside {self}, whose ranks are "
                f"{self._first_rank} to {self._first_rank + self._world_size - 1}",
                rank=rank,
                first_rank=self._first_rank,
                world_size=self._world_size,
            )
        return offset

    def _offset_of(self, coordinate: dict[str, int]) -> int:
        offset = 0
        for axis, place in coordinate.items():
            position = self._position(axis)
            number = as_int(place, f"the place along {axis}")
            size = self._sizes[position]
            if not 0 <= number < size:
                raise CoordinateRangeError(
                    f"{axis}={number} is outside axis {shown(axis)} of {self}; its places are 0 to {size - 1}",
                    axis=axis,
                    place=number,
                    size=size,
                    missing=(),
                )
            offset += number * self._strides[position]
        return offset

    def _volume(self, axes: tuple[str, ...]) -> int:
        volume = 1
        for axis in axes:
            volume *= self._sizes[self._axes.index(axis)]
        return volume

    def _parts(self, axes: Iterable[str]) -> tuple[tuple[int, int], ...]:
        """The (size, stride) progressions along `axes` (in mesh order), coalesced: a law decides, not adjacency."""
        parts: list[tuple[int, int]] = []
        for axis in axes:
            position = self._axes.index(axis)
            size = self._sizes[position]
            if size > 1:
                stride = self._strides[position]
                if parts and parts[-1][1] == size * stride:
                    size *= parts.pop()[0]
                parts.append((size, stride))
        return tuple(parts)

    def _group_index(self, axes: tuple[str, ...], start: int) -> int:
        offset = start - self._first_rank
        index = 0
        for axis, size, stride in zip(self._axes, self._sizes, self._strides):
            if axis not in axes:
                index = index * size + offset // stride % size
        return index
