"""A layout, or one rank of it, told as plain data: what `--json` prints and every other pen starts from."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from rankatlas.core import Atlas, Group, Mesh, Ranks
from rankatlas.derived import data_axes, data_rank, groups_of, model_axes, purposes, stage_neighbours
from rankatlas.job import Job

_MOST_MEMBERS = 1024  # members of one group that are listed; the size tells the rest


def listed(ranks: Iterable[int]) -> list[int]:
    """The first ranks of a group as plain data.

    >>> listed(range(3))
    [0, 1, 2]
    """
    return list(islice(ranks, _MOST_MEMBERS))


def layout_facts(job: Job, shown: int = 3) -> dict[str, Any]:
    """Everything `show` says about a layout except its rank table.  Cost: O(axes × shown)."""
    layout = job.layout
    facts: dict[str, Any] = {
        "source": job.source,
        "format": job.format,
        "notation": str(layout),
        "fingerprint": layout.fingerprint(),
        "world_size": layout.world_size,
        "first_rank": layout.first_rank,
        "given": [{"name": fact.name, "value": fact.value, "origin": fact.origin} for fact in job.facts],
        "notes": list(job.notes),
    }
    if job.places:
        facts["hosts"] = _hosts(job)
        facts["kinds"] = [
            {
                "description": kind["description"],
                "axes": kind["axes"],
                "groups": len(kind["groups"]),
                "first_groups": kind["groups"][:shown],
            }
            for kind in job.kinds
        ]
    if isinstance(layout, Atlas):
        facts["shared"] = list(layout.shared)
        facts["charts"] = {name: mesh_facts(mesh, shown) for name, mesh in layout.charts.items()}
    else:
        facts.update(mesh_facts(layout, shown))
    return facts


def mesh_facts(mesh: Mesh, shown: int = 3) -> dict[str, Any]:
    """The axes of a mesh, outer → inner, and the groups with a purpose.

    >>> mesh_facts(Mesh(tp=2), shown=1)["axes"]
    [{'axis': 'tp', 'size': 2, 'stride': 1, 'groups': 1, 'first_groups': [[0, 1]]}]
    """
    return {
        "order": list(mesh.axes),
        "axes": [
            {
                "axis": axis,
                "size": size,
                "stride": stride,
                "groups": mesh.world_size // size,
                "first_groups": [listed(ranks) for ranks in islice(mesh.groups(axis).ranges(), shown)],
            }
            for axis, size, stride in zip(mesh.axes, mesh.sizes, mesh.strides)
        ],
        "derived": [
            {
                "name": purpose.name,
                "meaning": purpose.meaning,
                "axes": list(purpose.axes),
                "groups": purpose.count,
                "size": purpose.size,
                "first_groups": [listed(ranks) for ranks in purpose.first],
            }
            for purpose in purposes(mesh, shown)
        ],
    }


def rank_facts(job: Job, rank: int) -> dict[str, Any]:
    """Everything `where` says about one rank, chart by chart.  Cost: O(axes), members listed up to 1,024.

    Raises RankError.
    """
    layout = job.layout
    facts: dict[str, Any] = {"rank": rank, "notation": str(layout), "world_size": layout.world_size}
    if isinstance(layout, Atlas):
        facts["charts"] = {name: _in_mesh(layout[name], rank) for name in layout.coordinate(rank)}
    else:
        facts.update(_in_mesh(layout, rank))
    if rank in job.places:
        facts["place"] = dict(job.places[rank])
        facts["neighbours"] = _neighbours(job, facts)
    facts["notes"] = list(job.notes)
    return facts


def _hosts(job: Job) -> dict[str, list[int]]:
    """Host → its ranks, in order of the first."""
    found: dict[str, list[int]] = {}
    for rank in sorted(job.places):
        found.setdefault(str(job.places[rank]["host"]), []).append(rank)
    return found


def _neighbours(job: Job, facts: dict[str, Any]) -> dict[str, str]:
    """Who is talked to along each axis, and on which host: the other members of the axis groups."""
    charts = facts.get("charts", {"": facts})
    found: dict[str, str] = {}
    for chart, told in charts.items():
        for group in told["groups"]:
            if len(group["axes"]) == 1 and group["size"] > 1:
                name = f"{chart}.{group['name']}" if chart else group["name"]
                others = [other for other in group["ranks"] if other != facts["rank"]]
                hosts = dict.fromkeys(str(job.places[other]["host"]) for other in others if other in job.places)
                found[name] = ", ".join(hosts)
    return found


def _in_mesh(mesh: Mesh, rank: int) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "order": list(mesh.axes),
        "coordinate": dict(mesh.coordinate(rank)),
        "groups": [_group(name, mesh, group) for name, group in groups_of(mesh, rank)],
    }
    if "pp" in mesh.axes:
        before, after = stage_neighbours(mesh, rank)
        stage, stages = facts["coordinate"]["pp"], mesh.size("pp")
        facts["pipeline"] = {"stage": stage, "stages": stages, "previous": before, "next": after}
    data = data_axes(mesh)
    if data:
        place, size = data_rank(mesh, rank)
        readers = mesh.group(*data, rank=rank)
        facts["data"] = {
            "axes": list(data),
            "data_rank": place,
            "data_size": size,
            "group_rank": readers.group_rank,
            "other_batches": listed(readers),
        }
        model = model_axes(mesh)
        if model:
            same = mesh.group(*model, rank=rank)
            facts["data"].update(same_batch_axes=list(model), same_batch=listed(same), same_batch_size=same.size)
    return facts


def _group(name: str, mesh: Mesh, group: Group) -> dict[str, Any]:
    return {
        "name": name,
        "axes": list(group.axes),
        "index": group.index,
        "groups": mesh.world_size // group.size,
        "group_rank": group.group_rank,
        "size": group.size,
        "ranks": listed(group),
    }


def matching_ranks(layout: Mesh | Atlas, coordinate: dict[str, int]) -> Ranks:
    """The ranks at a partial coordinate whose axes may be addressed as in an atlas.

    >>> matching_ranks(Mesh(pp=2, tp=2), {"pp": 1})
    [2, 3]
    """
    if isinstance(layout, Mesh):
        return layout.select(**coordinate)
    mesh, names = layout.resolve(*coordinate)
    return mesh.select(**dict(zip(names, coordinate.values())))
