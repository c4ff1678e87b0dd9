"""The groups of a job sorted into kinds, and the axes of a layout each kind runs along."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

from rankatlas.core import Atlas, Mesh
from rankatlas.derived import end_pairs

# Descriptions of groups along one axis, as frameworks write them, and the axis.
_DESCRIPTIONS = (
    (r"^TENSOR_MODEL_PARALLEL_GROUP$", "tp"),
    (r"^PIPELINE_MODEL_PARALLEL_GROUP$", "pp"),
    (r"^DATA_PARALLEL_GROUP(_GLOO)?$", "dp"),
    (r"^CONTEXT_PARALLEL_GROUP$", "cp"),
    (r"^EXPERT_MODEL_PARALLEL_GROUP$", "ep"),
    (r"^EXPERT_TENSOR_PARALLEL_GROUP$", "etp"),
    (r"^EXPERT_DATA_PARALLEL_GROUP(_GLOO)?$", "edp"),
    (r"^mesh_([A-Za-z_][A-Za-z0-9_]*)$", r"\1"),
    (r"^(data|dp)_parallel(_group)?$", "dp"),
    (r"^(model|mp)_parallel(_group)?$", "mp"),
    (r"^(pipe|pp)_parallel(_group)?$", "pp"),
    (r"^sharding_parallel(_group)?$", "sharding"),
    (r"^sep_parallel(_group)?$", "sep"),
)
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

    Where several sets of axes have the same groups, the one its description speaks of counts, then the smallest.

    >>> kind = Kind("data", [[0, 2], [1, 3]])
    >>> name_kinds([kind], Mesh(dp=2, tp=2))
    >>> kind.axes
    'dp'
    """
    families = known_groups(layout)
    for kind in kinds:
        names = families.get(tuple(map(tuple, kind.groups)), [])
        spoken = axis_name(kind.description)
        kind.axes = next((name for name in names if name.rpartition(".")[2] == spoken), names[0] if names else None)


def known_groups(layout: Mesh | Atlas) -> dict[tuple[tuple[int, ...], ...], list[str]]:
    """Groups → their names in the layout: every set of axes (small ones first), the world, the ends of pipelines.

    >>> known_groups(Mesh(dp=2, tp=1))
    {((0, 1),): ['world', 'dp']}
    """
    charts = {"": layout} if isinstance(layout, Mesh) else layout.charts
    found: dict[tuple[tuple[int, ...], ...], list[str]] = {}
    for mesh in charts.values():
        everyone = tuple(range(mesh.first_rank, mesh.first_rank + mesh.world_size))
        found.setdefault((everyone,), ["world"])
    for chart, mesh in charts.items():
        shared = layout.shared if isinstance(layout, Atlas) else mesh.axes
        axes = [axis for axis in mesh.axes if mesh.size(axis) > 1][:_MOST_AXES]
        for count in range(1, len(axes) + 1):
            for chosen in combinations(axes, count):
                table = tuple(tuple(ranks) for ranks in mesh.groups(*chosen).ranges())
                name = "+".join(chosen)
                name = name if set(chosen) <= set(shared) or not chart else f"{chart}.{name}"
                names = found.setdefault(table, [])
                if name not in names:
                    names.append(name)
        if "pp" in axes:
            found.setdefault(tuple(end_pairs(mesh)), []).append("first and last stage of pp")
            found.setdefault(tuple((rank,) for rank in mesh.select(pp=0)), []).append("first stage of pp")
    return found


def axis_name(description: str) -> str | None:
    """The axis that a framework's description of a group speaks of, or None.

    >>> axis_name("TENSOR_MODEL_PARALLEL_GROUP"), axis_name("mesh_dp_shard"), axis_name("MODEL_PARALLEL_GROUP")
    ('tp', 'dp_shard', None)
    """
    for pattern, name in _DESCRIPTIONS:
        found = re.match(pattern, description)
        if found:
            return found.expand(name)
    return None
