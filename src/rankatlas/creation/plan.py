"""The plan: the distinct groups of a job in one order, how many calls that takes and of whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rankatlas.core import Atlas, Mesh, parse_layout
from rankatlas.core.border import as_int, axis_names, in_order, is_list
from rankatlas.core.description import fingerprint
from rankatlas.creation.cost import Cost, most_covered
from rankatlas.creation.families import Earlier, Family, PlannedGroup, addresses, label
from rankatlas.creation.partial import partial_sets, refuse_ranks_outside
from rankatlas.errors import InputError, RankError, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST_SETS = 4096  # of axes; 2^axes exist, nobody needs them all


class CreationPlan:
    """Which communicators a job creates, in one canonical order: sets of axes as given, then by group index.

    `layout` is a mesh, an atlas or notation; `axes` the sets of axes, such as [("tp",), ("dp", "cp")] or ["tp",
    "dp+cp"]; `partial` the sets that do not cover every rank alike, made last: name → lists of ranks (see
    `first_and_last`, `neighbours`), whose members ascend however they are written.  Groups with equal members are one,
    under several names.  One rank alone and the whole world need no new communicator.  Axes of an atlas go by their
    chart ("expert.ep") unless they are shared.

    Cost: O(sets × axes), whatever the world; O(ranks in it) for a partial set.

    Raises UnknownAxisError, DuplicateAxisError, AtlasError, RankError (a partial set with a rank outside), InputError.

    >>> plan = CreationPlan(Mesh(pp=2, dp=2, tp=2), [("tp",), ("dp", "tp"), ("pp",)])
    >>> [(group.names[0], group.index, group.ranks) for group in plan.groups()][:5]
    [('tp', 0, [0, 1]), ('tp', 1, [2, 3]), ('tp', 2, [4, 5]), ('tp', 3, [6, 7]), ('dp+tp', 0, [0, 1, 2, 3])]
    >>> plan.calls_of(0), plan.memberships_of(0), plan.communicators
    (3, 3, 10)
    """

    __slots__ = ("axes", "families", "layout", "partial")

    def __init__(
        self,
        layout: Mesh | Atlas | str,
        axes: Iterable[str | Iterable[str]],
        partial: Mapping[str, Iterable[Iterable[int]]] | Iterable[Any] = (),
    ) -> None:
        if isinstance(layout, str):
            layout = parse_layout(layout)
        if not isinstance(layout, (Mesh, Atlas)):
            raise InputError(f"a plan is made for a Mesh, an Atlas or notation, not for {shown(layout)}")
        self.layout = layout
        self.axes = _axis_sets(layout, axes)
        self.families = _distinct(layout, self.axes)
        self.partial = partial_sets(partial)
        taken = dict.fromkeys(name for family in self.families for name in family.names)
        for one in self.partial:
            if one.name in taken:
                raise InputError(f"{shown(one.name)} names a set of axes already; name the partial set otherwise")
        refuse_ranks_outside(self.partial, layout.first_rank, self.covers, str(layout))

    @property
    def names(self) -> tuple[str, ...]:
        """Every name a group goes by: "tp", "dp+cp", and those of the partial sets."""
        return (*map(label, self.axes), *(one.name for one in self.partial))

    def covers(self, rank: int) -> bool:
        """Whether the layout has this rank.  Cost: O(charts).  Raises IntegerError."""
        rank = as_int(rank, "rank")
        charts = [self.layout] if isinstance(self.layout, Mesh) else self.layout.charts.values()
        return any(0 <= rank - mesh.first_rank < mesh.world_size for mesh in charts)

    def family(self, name: str | Iterable[str]) -> Family:
        """The family of groups that goes by `name` ("dp+cp", or the axes in any order).

        Raises UnknownAxisError, and InputError for axes that are not in the plan.
        """
        axes = addresses(self.layout, axes_named(name))
        wanted = label(axes)
        for family in self.families:
            if wanted in family.names:
                return family
        raise InputError(
            f"{wanted} is not in this plan; it has {', '.join(self.names)}.  Name it when the plan is made"
        )

    def groups(self) -> Iterator[PlannedGroup]:
        """Every distinct group in the order of creation, those that need no communicator included, partial ones last.

        Cost: O(axes) each; nothing is enumerated before it is asked for.
        """
        for family in self.families:
            yield from family.planned()
        yield from self.partial_groups()

    def partial_groups(self) -> Iterator[PlannedGroup]:
        """The groups of the partial sets that nothing before them has."""
        names: dict[tuple[int, ...], list[str]] = {}
        for one in self.partial:
            for ranks in one.groups:
                names.setdefault(ranks, []).append(one.name)
        seen: dict[str, int] = {}
        for ranks, holders in names.items():
            index = seen.get(holders[0], 0)
            seen[holders[0]] = index + 1
            if self.family_with(ranks) is None:
                yield PlannedGroup(tuple(holders), index, list(ranks), len(ranks) > 1 and not self._is_world(ranks))

    def family_with(self, ranks: tuple[int, ...]) -> Family | None:
        """The family that has a group of exactly these members, None mostly.  Cost: O(sets × axes)."""
        for family in self.families:
            group = family.group_of(ranks[0]) if family.size == len(ranks) else None
            if group is not None and group.ranks == ranks:
                return family
        return None

    def _is_world(self, ranks: tuple[int, ...]) -> bool:
        return (ranks[0], len(ranks)) == (self.layout.first_rank, self.layout.world_size)

    @property
    def has_ranks_alone(self) -> bool:
        """Whether some group is one rank alone; all such groups of a rank are one, and none needs a communicator."""
        partial = any(len(ranks) == 1 for one in self.partial for ranks in one.groups)
        return partial or any(family.how == "alone" for family in self.families)

    @property
    def communicators(self) -> int:
        """How many new communicators exist once the plan is carried out.  Cost: O(sets)."""
        return sum(family.created for family in self.families) + self._partial_calls()

    def calls_of(self, rank: int) -> int:
        """How many creation calls `rank` makes: one per set of axes it makes its own group of, and partial groups.

        Partial groups, and sets whose members could not agree on a name, are made by every rank: their calls count.  So
        does the one by which every rank makes the group of itself alone, where some group of the plan is one rank.
        Raises RankError.
        """
        self._refuse_outside(rank)
        return sum(1 for family in self.families if family.how == "own" and rank in family.ranks) + self._shared_calls()

    def _shared_calls(self) -> int:
        """Calls that every rank makes."""
        every = sum(family.created for family in self.families if family.how == "every")
        return every + self._partial_calls() + self.has_ranks_alone

    def memberships_of(self, rank: int) -> int:
        """Of how many new communicators `rank` is a member.  Raises RankError.  Cost: O(sets × axes)."""
        return len(self.memberships(rank))

    def memberships(self, rank: int) -> list[PlannedGroup]:
        """The new groups that `rank` is in, in the order of creation.  Raises RankError.  Cost: O(sets × axes)."""
        self._refuse_outside(rank)
        found = []
        for family in self.families:
            group = family.group_of(rank) if family.created else None
            if group is not None and not family.is_repeat(group):
                found.append(PlannedGroup(family.names, group.index, group.ranks, True))
        partial = (group for group in self.partial_groups() if group.new) if self._may_be_partial(rank) else ()
        return found + [group for group in partial if rank in group.ranks]

    def cost(self) -> Cost:
        """What creation costs: communicators, calls one by one and by partition, memory.

        Cost: O(sets + partial groups × sets), and O(groups) of charts that overlap in part.
        """
        own = [family for family in self.families if family.how == "own"]
        created = [family for family in self.families if family.created]
        extra: dict[int, int] = {}
        for group in self.partial_groups():
            for rank in group.ranks if group.new else ():
                extra[rank] = extra.get(rank, 0) + 1
        for family in created:
            if family.created < family.count:
                for group in family.planned():
                    for rank in group.ranks:
                        extra[rank] = extra.get(rank, 0) + 1
        whole = [family.ranks for family in created if family.created == family.count]
        return Cost(
            [
                (family.names, family.count, family.size, family.created, family.how == "own")
                for family in self.families
            ],
            self.layout.world_size,
            self._partial_calls(),
            by_partition=most_covered([family.ranks for family in own], {}) + self._shared_calls(),
            memberships=most_covered(whole, extra),
        )

    def fingerprint(self) -> str:
        """SHA-256 (hex) of the stored description: equal exactly when two plans create the same under the same names.

        >>> CreationPlan(Mesh(dp=2, tp=2), ["tp"]).fingerprint()[:16]
        'd297231eeb6c2525'
        """
        return fingerprint(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "format": "rankatlas.creation",
            "version": 1,
            "layout": self.layout.to_dict(),
            "axes": [list(axes) for axes in self.axes],
            "partial": [[one.name, [list(ranks) for ranks in one.groups]] for one in self.partial],
        }

    def _partial_calls(self) -> int:
        return sum(1 for group in self.partial_groups() if group.new)

    def _may_be_partial(self, rank: int) -> bool:
        return any(one.of(rank) for one in self.partial)

    def _refuse_outside(self, rank: int) -> None:
        if not self.covers(as_int(rank, "rank")):
            raise RankError(
                f"rank {shown(rank)} is not in {self.layout}",
                rank=rank,
                first_rank=self.layout.first_rank,
                world_size=self.layout.world_size,
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CreationPlan):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.layout, self.axes))

    def __repr__(self) -> str:
        return f"CreationPlan({str(self.layout)!r}, {list(self.names)!r}, {self.communicators:,} communicators)"


def axes_named(name: object) -> tuple[str, ...]:
    """The axes of "dp+cp", or of several names in any order.  Raises InputError.

    >>> axes_named("dp+cp"), axes_named(["cp", "dp"])
    (('dp', 'cp'), ('cp', 'dp'))
    """
    names = axis_names(name, "axes") if isinstance(name, str) or is_list(name) else ()
    if len(names) == 1:
        names = tuple(part.strip() for part in names[0].split("+"))
    if not names or not all(names):
        raise InputError(f"groups are named by their axes, such as 'tp' or ('dp', 'cp'), not {shown(name)}")
    return names


def _axis_sets(layout: Mesh | Atlas, axes: object) -> tuple[tuple[str, ...], ...]:
    """The sets of axes as addresses, each once, in the order given."""
    given = (axes,) if isinstance(axes, str) else in_order(axes, "axes")
    if len(given) > _MOST_SETS:
        raise InputError(f"{len(given):,} sets of axes are more than a plan takes, {_MOST_SETS:,}; name those needed")
    return tuple(dict.fromkeys(addresses(layout, axes_named(one)) for one in given))


def _distinct(layout: Mesh | Atlas, sets: tuple[tuple[str, ...], ...]) -> tuple[Family, ...]:
    """One family per set of axes whose groups no earlier one has; the others become names of the earlier one."""
    families: dict[tuple[object, ...], Family] = {}
    aliases: dict[tuple[object, ...], list[str]] = {}
    earlier = Earlier()
    for axes in sets:
        family = Family(axes, layout, earlier)
        key = family.key
        if key not in families:
            families[key] = family
            earlier.add(family)
        aliases.setdefault(key, []).append(family.label)
    for key, family in families.items():
        family.names = tuple(aliases[key])
    return tuple(families.values())
