"""The groups of a job sorted into kinds, and the axes of a layout each kind runs along."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from rankatlas.core import Atlas, Mesh
from rankatlas.derived import end_pairs, pipeline_axis

# Descriptions of groups along one axis, as frameworks write them, and the axis.
_DESCRIPTIONS = (
    (r"^TENSOR_MODEL_PARALLEL_GROUP$", "tp"),
    (r"^PIPELINE_MODEL_PARALLEL_GROUP$", "pp"),
    (r"^DATA_PARALLEL_GROUP(_GLOO)?$", "dp"),
    (r"^CONTEXT_PARALLEL_GROUP$", "cp"),
    (r"^EXPERT_MODEL_PARALLEL_GROUP$", "ep"),
    (r"^EXPERT_TENSOR_PARALLEL_GROUP$", "etp"),
    (r"^EXPERT_DATA_PARALLEL_GROUP(_GLOO)?$", "edp"),
    (r"^mesh_(?!first_rank$)([A-Za-z_][A-Za-z0-9_]*)$", r"\1"),  # but for the one word that names no axis
    (r"^(data|dp)_parallel(_group)?$", "dp"),
    (r"^context_parallel$", "cp"),
    (r"^expert_parallel$", "ep"),
    (r"^moe_sharding_parallel$", "moe_sharding"),
    (r"^(model|mp)_parallel(_group)?$", "mp"),
    (r"^(pipe|pp)_parallel(_group)?$", "pp"),
    (r"^sharding_parallel(_group)?$", "sharding"),
    (r"^sep_parallel(_group)?$", "sep"),
)
# Words of the field that are the whole description: whoever makes groups by hand writes the axis.
_AXES = r"^(dp|dp_replicate|dp_shard|fsdp|hsdp|pp|tp|mp|cp|sp|sep|ep|etp|edp|sharding)$"
_NAMELESS = "group without a name"
ALONE = "each rank alone"  # what groups of one rank are
_MOST_AXES = 10  # sets of these many axes are tried, 2^10; beyond them each axis alone


_Place = tuple[int, int]
Members = range | tuple[int, ...]
_Views = dict[Members, set[int]]  # members as somebody saw them → who saw them so


class Kind:
    """All groups of one description: `groups` in order of first rank, members in the order their process group has.

    `axes` is what they are in a layout ("tp", "dp+cp", "expert.ep", "first and last stage of pp", "world", "each rank
    alone"), None where no set of axes matches; `disagreements` are ranks that see other members than the rest of their
    group does.
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
    """Kinds from what every rank saw: rank → its groups, each a `description`, `ranks`, and maybe a `number`.

    The number counts the groups of the job, by which groups that say the same of themselves, or nothing, are told
    apart: a kind ends where a rank would be in it twice.  Without numbers the place among a rank's own groups counts.

    >>> sort_kinds({0: [{"description": "tp", "ranks": [0, 1]}], 1: [{"description": "tp", "ranks": [0, 1]}]})
    [Kind('tp', 1 groups, axes=None)]
    """
    views: dict[str, dict[_Place, _Views]] = {}
    for rank in sorted(seen):
        unnumbered: Counter[str] = Counter()
        for group in seen[rank]:
            description = str(group["description"])
            description = _NAMELESS if description in ("", "undefined") else description
            number = group.get("number")
            # Groups without a number stand behind those that have one, all first ones of a rank at one place.
            place: _Place = (0, number) if isinstance(number, int) else (1, unnumbered[description])
            unnumbered[description] += place[0]
            found = views.setdefault(description, {}).setdefault(place, {})
            found.setdefault(shortest(group["ranks"]), set()).add(rank)
    return [kind for description, places in views.items() for kind in _kinds(description, places)]


def _kinds(description: str, places: dict[_Place, _Views]) -> Iterator[Kind]:
    """The kinds of one description: in order of creation, cut where a rank would come again."""
    families: list[tuple[_Views, set[int]]] = []
    for place in sorted(places):
        members = {rank for ranks in places[place] for rank in ranks}
        if not families or members & families[-1][1]:
            families.append(({}, set()))
        for ranks, viewers in places[place].items():
            families[-1][0].setdefault(ranks, set()).update(viewers)
        families[-1][1].update(members)
    for number, (views, _) in enumerate(families, 1):
        numbered = number > 1 or description == _NAMELESS
        yield _kind(f"{description}, number {number}" if numbered else description, views)


def _kind(description: str, groups: _Views) -> Kind:
    """One kind; a rank whose view of its group not all of its members share disagrees."""
    ordered = sorted(groups, key=lambda ranks: (min(ranks, default=-1), tuple(ranks)))
    odd = sorted({rank for ranks, viewers in groups.items() for rank in viewers if viewers != set(ranks)})
    return Kind(description, [list(ranks) for ranks in ordered], disagreements=odd)


def shortest(ranks: Sequence[int]) -> Members:
    """A `range` where the members are one, else a tuple: every rank of a large job tells of groups of thousands.

    >>> shortest([0, 2, 4]), shortest([0, 1, 4])
    (range(0, 6, 2), (0, 1, 4))
    """
    if isinstance(ranks, range):
        return ranks
    if len(ranks) > 1 and ranks[0] != ranks[1]:
        step = ranks[1] - ranks[0]
        found = range(ranks[0], ranks[-1] + step, step)
        if len(found) == len(ranks) and list(found) == list(ranks):
            return found
    return tuple(ranks)


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
    {((0, 1),): ['world', 'dp'], ((0,), (1,)): ['each rank alone', 'tp']}
    """
    charts = {"": layout} if isinstance(layout, Mesh) else layout.charts
    found: dict[tuple[tuple[int, ...], ...], list[str]] = {}
    everyone = tuple(covered(layout))
    found[(everyone,)] = ["world"]
    for mesh in charts.values():
        ranks = range(mesh.first_rank, mesh.first_rank + mesh.world_size)
        found.setdefault((tuple(ranks),), ["world"])
        alone = found.setdefault(tuple((rank,) for rank in ranks), [ALONE])
        alone += [axis for axis in mesh.axes if mesh.size(axis) == 1 and axis not in alone]
    found.setdefault(tuple((rank,) for rank in everyone), [ALONE])
    for chart, mesh in charts.items():
        shared = layout.shared if isinstance(layout, Atlas) else mesh.axes
        axes = [axis for axis in mesh.axes if mesh.size(axis) > 1]
        for count in range(1, min(len(axes), _MOST_AXES) + 1):
            for chosen in combinations(axes if count == 1 else axes[:_MOST_AXES], count):
                table = tuple(tuple(ranks) for ranks in mesh.groups(*chosen).ranges())
                name = "+".join(chosen)
                name = name if set(chosen) <= set(shared) or not chart else f"{chart}.{name}"
                names = found.setdefault(table, [])
                if name not in names:
                    names.append(name)
        pipeline = pipeline_axis(mesh)
        if pipeline in axes:
            found.setdefault(tuple(end_pairs(mesh)), []).append(f"first and last stage of {pipeline}")
            ends = {"first": 0, "last": mesh.size(pipeline) - 1}
            for end, stage in ends.items():
                there = mesh.select(**{pipeline: stage})
                found.setdefault(tuple((rank,) for rank in there), []).append(f"{end} stage of {pipeline}")
    return found


def covered(layout: Mesh | Atlas) -> list[int]:
    """The ranks some chart covers, ascending.

    >>> covered(Mesh(dp=2, first_rank=4))
    [4, 5]
    """
    charts = [layout] if isinstance(layout, Mesh) else layout.charts.values()
    return sorted({rank for mesh in charts for rank in range(mesh.first_rank, mesh.first_rank + mesh.world_size)})


def axis_name(description: str) -> str | None:
    """The axis that a framework's description of a group speaks of, or None.

    >>> axis_name("TENSOR_MODEL_PARALLEL_GROUP"), axis_name("mesh_dp_shard"), axis_name("MODEL_PARALLEL_GROUP")
    ('tp', 'dp_shard', None)
    >>> axis_name("tp")
    'tp'
    """
    for pattern, name in (*_DESCRIPTIONS, (_AXES, r"\1")):
        found = re.match(pattern, description)
        if found:
            return found.expand(name)
    return None
