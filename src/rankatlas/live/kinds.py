"""The groups of a job sorted into kinds, and the axes of a layout each kind runs along."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

from rankatlas.core import Atlas, Mesh
from rankatlas.derived import end_pairs

_MOST_AXES = 10  # 2^10 sets of axes are tried; no layout has more axes of size > 1


class Kind:
    """All groups of one description: `groups` in order of first rank, members in the order their process group has.

    `axes` is what they are in a layout ("tp", "dp+cp", "expert.ep", "first and last stage of pp", "world"), None where
    no set of axes matches; `disagreements` are ranks that see other members than the rest of their group does.
    """

    __slots__ = ("axes", "description", "disagreements", "groups")

    def __init__(
        self,
        description: str,
        groups: list[list[int]],
        axes: str | None = None,
        disagreements: list[int] | None = None,
    ) -> None:
        self.description = description
        self.groups = groups
        self.axes = axes
        self.disagreements = disagreements or []

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "description": self.description,
            "axes": self.axes,
            "groups": self.groups,
            "disagreements": self.disagreements,
        }

    def __repr__(self) -> str:
        return f"Kind({self.description!r}, {len(self.groups)} groups, axes={self.axes!r})"


def sort_kinds(seen: Mapping[int, Iterable[Mapping[str, Any]]]) -> list[Kind]:
    """Kinds from what every rank saw: rank → its groups, each a `description` and `ranks`.

    Descriptions that say nothing ("", "undefined") are told apart by their place among such groups of a rank.

    >>> sort_kinds({0: [{"description": "tp", "ranks": [0, 1]}], 1: [{"description": "tp", "ranks": [0, 1]}]})
    [Kind('tp', 1 groups, axes=None)]
    """
    members: dict[str, dict[tuple[int, ...], set[int]]] = {}
    for rank in sorted(seen):
        nameless = 0
        times: dict[str, int] = {}
        for group in seen[rank]:
            description = str(group["description"])
            if description in ("", "undefined"):
                nameless += 1
                description = f"group without a name, number {nameless}"
            times[description] = times.get(description, 0) + 1
            if times[description] > 1:
                description = f"{description}, number {times[description]}"
            members.setdefault(description, {}).setdefault(tuple(group["ranks"]), set()).add(rank)
    return [_kind(description, groups) for description, groups in members.items()]


def _kind(description: str, groups: dict[tuple[int, ...], set[int]]) -> Kind:
    """One kind; a rank whose view of its group not all of its members share disagrees."""
    ordered = sorted(groups, key=lambda ranks: (min(ranks, default=-1), ranks))
    odd = sorted(rank for ranks, viewers in groups.items() for rank in viewers if viewers != set(ranks))
    return Kind(description, [list(ranks) for ranks in ordered], disagreements=odd)


def name_kinds(kinds: Iterable[Kind], layout: Mesh | Atlas) -> None:
    """Write into every kind the axes of `layout` it runs along.  Cost: O(kinds × world + sets of axes).

    >>> kind = Kind("data", [[0, 2], [1, 3]])
    >>> name_kinds([kind], Mesh(dp=2, tp=2))
    >>> kind.axes
    'dp'
    """
    names = known_groups(layout)
    for kind in kinds:
        kind.axes = names.get(_signature(kind.groups))


def known_groups(layout: Mesh | Atlas) -> dict[tuple[tuple[int, ...], ...], str]:
    """Groups → their name in the layout, for every set of axes, the whole world and the ends of pipelines.

    Of several names for the same groups the one with fewest axes counts, then the earlier chart.
    """
    charts = {"": layout} if isinstance(layout, Mesh) else layout.charts
    found: dict[tuple[tuple[int, ...], ...], str] = {}
    for mesh in charts.values():
        everyone = tuple(range(mesh.first_rank, mesh.first_rank + mesh.world_size))
        found.setdefault((everyone,), "world")
    for chart, mesh in charts.items():
        shared = layout.shared if isinstance(layout, Atlas) else mesh.axes
        axes = [axis for axis in mesh.axes if mesh.size(axis) > 1][:_MOST_AXES]
        for count in range(1, len(axes) + 1):
            for chosen in combinations(axes, count):
                table = tuple(tuple(ranks) for ranks in mesh.groups(*chosen).ranges())
                name = "+".join(chosen)
                found.setdefault(table, name if set(chosen) <= set(shared) or not chart else f"{chart}.{name}")
        if "pp" in axes:
            found.setdefault(tuple(end_pairs(mesh)), "first and last stage of pp")
            found.setdefault(tuple((rank,) for rank in mesh.select(pp=0)), "first stage of pp")
    return found


def _signature(groups: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, groups))
