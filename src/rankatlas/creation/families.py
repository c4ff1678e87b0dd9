"""One set of axes of a plan: its groups, the names they go by, and how they come to be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankatlas.core import Atlas, Group, Mesh
from rankatlas.errors import InputError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    How = Literal["alone", "world", "own", "every"]

_MOST_COMPARED = 1 << 22  # groups of charts that overlap in part, which are compared one by one


class PlannedGroup:
    """One distinct group of a plan: every name it goes by, its `index` under the first, its members.

    `new` says whether a communicator must be created for it: not for one rank alone, nor for the whole world.
    """

    __slots__ = ("index", "names", "new", "ranks")

    def __init__(self, names: tuple[str, ...], index: int, ranks: Sequence[int], new: bool) -> None:
        self.names = names
        self.index = index
        self.ranks = ranks
        self.new = new

    def __repr__(self) -> str:
        return f"PlannedGroup({self.names!r}, {self.index}, {self.ranks!r}, new={self.new})"


class Family:
    """All groups over one set of axes: `axes` as addresses, `names` (the first and its aliases), size and `count`.

    `how` is how they are created: "alone" (groups of one rank, which talk to nobody), "world" (the communicator that is
    there), "own" (each rank makes the group it is in, one call), "every" (every rank makes all of them in order:
    members would name a group differently if they made it alone).

    `mesh` is the mesh, or the chart, whose groups these are, `ranks` those that are in one, each in exactly one.
    `repeats` are earlier families some of whose groups these are, which happens only where charts overlap in part.
    """

    __slots__ = ("axes", "count", "groups", "how", "mesh", "names", "new_count", "ranks", "repeats", "size")

    def __init__(self, axes: tuple[str, ...], layout: Mesh | Atlas, earlier: Earlier) -> None:
        self.axes = axes
        self.groups = layout.groups(*axes)
        self.mesh = mesh = self.groups[0].mesh
        self.ranks = range(mesh.first_rank, mesh.first_rank + mesh.world_size)
        self.size = self.groups.size
        self.count = len(self.groups)
        self.names: tuple[str, ...] = (label(axes),)
        self.repeats = earlier.overlapping_in_part(self)
        self.new_count = self._count_new()
        self.how = self._how(layout, earlier)

    @property
    def label(self) -> str:
        """The first name, such as "dp+cp" or "expert.ep"."""
        return self.names[0]

    @property
    def created(self) -> int:
        """How many of them are communicators that this family brings: none for ranks alone and for the world."""
        return self.new_count if self.how in ("own", "every") else 0

    def group_of(self, rank: int) -> Group | None:
        """The group of `rank`, None where these axes have no place for it.  Cost: O(axes)."""
        return self.mesh.group(*self.groups.axes, rank=rank) if rank in self.ranks else None

    def is_repeat(self, group: Group) -> bool:
        """Whether an earlier family has this very group.  Cost: O(axes × repeats)."""
        return self.first_with(group) is not None

    def first_with(self, group: Group) -> Family | None:
        """The earlier family that has the same members as one of its groups, None mostly."""
        for family in self.repeats:
            other = family.group_of(group.ranks[0])
            if other is not None and other.ranks == group.ranks:
                return family
        return None

    def planned(self) -> Iterator[PlannedGroup]:
        """The groups that no earlier family has, in order.  Cost: O(axes) each."""
        new = self.how in ("own", "every")
        for index, group in enumerate(self.groups):
            if not self.repeats or not self.is_repeat(group):
                yield PlannedGroup(self.names, index, group.ranks, new)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal where two families have the same groups, over the same ranks.  Cost: O(axes).

        Row-major meshes over the same ranks have the same groups where they have one of them in common.
        """
        first = self.mesh.group(*self.groups.axes, rank=self.ranks.start).ranks
        return self.ranks, self.size, first.progressions

    def _count_new(self) -> int:
        if not self.repeats:
            return self.count
        if self.count > _MOST_COMPARED:
            raise InputError(
                f"the charts of {self.label} and {self.repeats[0].label} overlap in part, and {self.count:,} groups are"
                f" too many to compare one by one, {_MOST_COMPARED:,} the most; plan the charts apart"
            )
        return sum(1 for group in self.groups if not self.is_repeat(group))

    def _how(self, layout: Mesh | Atlas, earlier: Earlier) -> How:
        if self.size == 1:
            return "alone"
        if self.count == 1 and _is_everybody(self.ranks, layout):
            return "world"
        return "own" if self.new_count == self.count and earlier.is_even(self.ranks) else "every"

    def __repr__(self) -> str:
        return f"Family({'='.join(self.names)}: {self.count:,} groups of {self.size:,}, {self.how})"


class Earlier:
    """The families of a plan so far, by the ranks they cover and by size, so that a further one asks few of them."""

    __slots__ = ("_by_ranks", "_number")

    def __init__(self) -> None:
        # Ranks → size → families with their numbers; whether one of them created groups, and only for some ranks.
        self._by_ranks: dict[range, tuple[dict[int, list[tuple[int, Family]]], list[bool]]] = {}
        self._number = 0

    def add(self, family: Family) -> None:
        """One more family."""
        by_size, told = self._by_ranks.setdefault(family.ranks, ({}, [False, False]))
        by_size.setdefault(family.size, []).append((self._number, family))
        self._number += 1
        told[0] = told[0] or family.created > 0
        told[1] = told[1] or 0 < family.created < family.count

    def overlapping_in_part(self, family: Family) -> tuple[Family, ...]:
        """Those of its size over other ranks, some of which are its own, in order."""
        found: list[tuple[int, Family]] = []
        for ranks, (by_size, _) in self._by_ranks.items():
            if ranks != family.ranks and not _apart(ranks, family.ranks):
                found += by_size.get(family.size, [])
        return tuple(one for _, one in sorted(found, key=lambda pair: pair[0]))

    def is_even(self, ranks: range) -> bool:
        """Whether all of these ranks have been given equally many groups so far."""
        for others, (_, (created, some)) in self._by_ranks.items():
            if not _apart(others, ranks) and (some or (created and not _contains(others, ranks))):
                return False
        return True


def label(axes: tuple[str, ...]) -> str:
    """The name of a set of axes: "dp+cp".

    >>> label(("dp", "cp"))
    'dp+cp'
    """
    return "+".join(axes)


def addresses(layout: Mesh | Atlas, axes: tuple[str, ...]) -> tuple[str, ...]:
    """`axes` in the order of the mesh; those of an atlas with their chart, where they are not shared.

    Cost: O(axes).  Raises UnknownAxisError, DuplicateAxisError, AtlasError.

    >>> addresses(Atlas(dense=Mesh(pp=2, tp=2), expert=Mesh(pp=2, ep=2), shared=("pp",)), ("ep", "pp"))
    ('pp', 'expert.ep')
    """
    if isinstance(layout, Mesh):
        return layout.groups(*axes).axes
    mesh, names = layout.resolve(*axes)
    chart = next(name for name, one in layout.charts.items() if one is mesh)
    ordered = mesh.groups(*names).axes
    return tuple(axis if axis in layout.shared else f"{chart}.{axis}" for axis in ordered)


def _contains(outer: range, inner: range) -> bool:
    return outer.start <= inner.start and inner.stop <= outer.stop


def _apart(one: range, other: range) -> bool:
    return one.stop <= other.start or other.stop <= one.start


def _is_everybody(ranks: range, layout: Mesh | Atlas) -> bool:
    return (ranks.start, len(ranks)) == (layout.first_rank, layout.world_size)
