"""A layout, or one rank of it, told as plain data: what `--json` prints and every other pen starts from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from rankatlas.cluster import Places
from rankatlas.core import Atlas, Group, Mesh, Ranks
from rankatlas.derived import (
    data_axes,
    data_rank,
    groups_of,
    model_axes,
    pipeline_axis,
    purposes,
    stage_neighbours,
    unknown_axes,
)
from rankatlas.errors import AtlasError, InputError
from rankatlas.job import Job

MOST_MEMBERS = 1024  # members of one group that are listed; the size tells the rest
_MOST_HOSTS = 64  # hosts of a cluster that a summary lists
_MOST_NEIGHBOURS = 16  # hosts a rank talks to along one axis that are listed
_MOST_SEARCHED = 10**6  # ranks that are looked up one by one


def listed(ranks: Iterable[int]) -> list[int]:
    """The first ranks of a group as plain data.

    >>> listed(range(3))
    [0, 1, 2]
    """
    return list(islice(ranks, MOST_MEMBERS))


def plain(value: object) -> list[int]:
    """What stands in the facts for a lazy sequence of ranks when they leave as JSON (its `default`).

    >>> plain(Mesh(dp=4).group("dp", rank=0).ranks)
    [0, 1, 2, 3]
    """
    if isinstance(value, (Ranks, range)):
        return listed(value)
    raise TypeError(f"{type(value).__name__} is no plain data")


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
        facts["host_count"] = job.places.cluster.nodes if isinstance(job.places, Places) else len(facts["hosts"])
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
        "unknown_roles": list(unknown_axes(mesh)),
    }


def rank_facts(job: Job, rank: int) -> dict[str, Any]:
    """Everything `where` says about one rank, chart by chart, members as lazy sequences.  Cost: O(axes).

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
        facts["made_otherwise"] = _made_otherwise(job, rank)
    facts["notes"] = list(job.notes)
    return facts


def hosts_of(places: Mapping[int, Mapping[str, Any]]) -> list[str]:
    """The hosts in order of their first rank.  Cost: O(ranks), of a cluster O(hosts).

    >>> hosts_of({0: {"host": "a"}, 1: {"host": "b"}, 2: {"host": "a"}})
    ['a', 'b']
    """
    if isinstance(places, Places):
        return list(places.cluster.hosts)
    return list(dict.fromkeys(str(places[rank]["host"]) for rank in sorted(places)))


def ranks_on(places: Mapping[int, Mapping[str, Any]], host: str) -> Sequence[int]:
    """The ranks on a host, ascending.  Cost: as `hosts_of`.

    >>> ranks_on({0: {"host": "a"}, 1: {"host": "b"}, 2: {"host": "a"}}, "a")
    [0, 2]
    """
    if isinstance(places, Places):
        return places.on(host)
    return [rank for rank in sorted(places) if places[rank]["host"] == host]


def _hosts(job: Job) -> dict[str, Sequence[int]]:
    """Host → its ranks, in order of the first; of a cluster the first hosts."""
    if isinstance(job.places, Places):
        cluster = job.places.cluster
        nodes = range(min(cluster.nodes, _MOST_HOSTS))
        return {cluster.host(cluster.first(node)): job.places.by_node(node) for node in nodes}
    found: dict[str, list[int]] = {}
    for rank in sorted(job.places):
        found.setdefault(str(job.places[rank]["host"]), []).append(rank)
    return {**found}


def _made_otherwise(job: Job, rank: int) -> list[dict[str, Any]]:
    """The groups of `rank` that the job made and that are none of its layout's."""
    strange = [kind for kind in job.kinds if kind["axes"] is None]
    return [
        {"description": kind["description"], "ranks": ranks}
        for kind in strange
        for ranks in kind["groups"]
        if rank in ranks
    ]


def _neighbours(job: Job, facts: dict[str, Any]) -> dict[str, str]:
    """Who is talked to along each axis, and on which host: the other members of the axis groups."""
    charts = facts.get("charts", {"": facts})
    found: dict[str, str] = {}
    for chart, told in charts.items():
        for group in told["groups"]:
            if len(group["axes"]) == 1 and group["size"] > 1:
                name = f"{chart}.{group['name']}" if chart else group["name"]
                others = [other for other in listed(group["ranks"]) if other != facts["rank"]]
                hosts = dict.fromkeys(str(job.places[other]["host"]) for other in others if other in job.places)
                more = ", …" if len(hosts) > _MOST_NEIGHBOURS or group["size"] > MOST_MEMBERS else ""
                found[name] = ", ".join(islice(hosts, _MOST_NEIGHBOURS)) + more
    return found


def _in_mesh(mesh: Mesh, rank: int) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "order": list(mesh.axes),
        "coordinate": dict(mesh.coordinate(rank)),
        "groups": [_group(name, mesh, group) for name, group in groups_of(mesh, rank)],
    }
    pipeline = pipeline_axis(mesh)
    if pipeline is not None:
        before, after = stage_neighbours(mesh, rank)
        stage, stages = facts["coordinate"][pipeline], mesh.size(pipeline)
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
            "other_batches": readers.ranks,
        }
        model = model_axes(mesh)
        if model:
            same = mesh.group(*model, rank=rank)
            facts["data"].update(same_batch_axes=list(model), same_batch=same.ranks, same_batch_size=same.size)
    facts["unknown_roles"] = list(unknown_axes(mesh))
    return facts


def _group(name: str, mesh: Mesh, group: Group) -> dict[str, Any]:
    return {
        "name": name,
        "axes": list(group.axes),
        "index": group.index,
        "groups": mesh.world_size // group.size,
        "group_rank": group.group_rank,
        "size": group.size,
        "ranks": group.ranks,
    }


def matching_ranks(layout: Mesh | Atlas, coordinate: dict[str, int]) -> Sequence[int]:
    """The ranks at a partial coordinate whose axes may be addressed as in an atlas, also those of several charts.

    Cost: O(axes), with axes of several charts O(ranks of the smallest part).  Raises InputError where those are too
    many, and the errors of `Mesh.select` and `Atlas.resolve`.

    >>> matching_ranks(Mesh(pp=2, tp=2), {"pp": 1})
    [2, 3]
    >>> matching_ranks(Atlas(dense=Mesh(dp=4, tp=2), expert=Mesh(edp=2, ep=4)), {"tp": 1, "ep": 3})
    [3, 7]
    """
    if isinstance(layout, Mesh):
        return layout.select(**coordinate)
    try:
        mesh, names = layout.resolve(*coordinate)
        return mesh.select(**dict(zip(names, coordinate.values())))
    except AtlasError:
        return _in_all_charts(layout, coordinate)


def _in_all_charts(atlas: Atlas, coordinate: dict[str, int]) -> list[int]:
    """The ranks that stand at every place, each in the chart its axis belongs to."""
    places: dict[Mesh, dict[str, int]] = {}
    for axis, place in coordinate.items():
        mesh, (name,) = atlas.resolve(axis)
        places.setdefault(mesh, {})[name] = place
    parts = [mesh.select(**chosen) for mesh, chosen in places.items()]
    smallest = min(parts, key=len)
    if len(smallest) > _MOST_SEARCHED:
        raise InputError(
            f"these places are of several charts, and {len(smallest):,} ranks would have to be looked at one by one;"
            f" at most {_MOST_SEARCHED:,} are: name more places of one chart"
        )
    return [rank for rank in smallest if all(rank in part for part in parts)]
