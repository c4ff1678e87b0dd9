"""The layout against the nodes it runs on: devices, hosts, and which axes leave a node."""

from __future__ import annotations

from collections.abc import Iterator

from rankatlas.catalogue import said
from rankatlas.checks.experts import inherited_size
from rankatlas.checks.finding import Finding, Fix
from rankatlas.checks.numbers import EXPERT_ROLES, ROLES, Numbers
from rankatlas.cluster import Cluster, Crossing, crossing, differing_places, natural_order, placed, string_order
from rankatlas.core import Atlas, Mesh

# Those that talk inside every layer, the most talkative first.
_INNER = ("tp", "ep", "cp", "sep")


def crossings(numbers: Numbers, cluster: Cluster) -> list[tuple[str, str, Crossing]]:
    """(role or axis, address, its groups against nodes) for every axis above 1 of every chart, shared ones once.

    >>> from rankatlas.job import Job
    >>> numbers = Numbers.of(Job(Mesh(dp=2, tp=8), format="notation", source=""))
    >>> [(address, found.count) for _, address, found in crossings(numbers, Cluster.of(2, 8))]
    [('dp', 8), ('tp', 0)]
    """
    layout = numbers.layout
    if layout is None or _last(layout) >= cluster.slots:
        return []
    charts = {"": layout} if isinstance(layout, Mesh) else layout.charts
    shared = layout.shared if isinstance(layout, Atlas) else ()
    found: list[tuple[str, str, Crossing]] = []
    seen: list[str] = []
    for chart, mesh in charts.items():
        roles = EXPERT_ROLES if mesh is numbers.expert else ROLES
        for axis in mesh.axes:
            if mesh.size(axis) == 1 or (axis in shared and axis in seen):
                continue
            seen.append(axis)
            role = next((role for role, names in {**roles, "ep": EXPERT_ROLES["ep"]}.items() if axis in names), axis)
            alone = sum(axis in mesh.axes for mesh in charts.values()) == 1 or axis in shared
            found.append((role, axis if alone or not chart else f"{chart}.{axis}", crossing(mesh, axis, cluster)))
    return found


def devices(numbers: Numbers, cluster: Cluster) -> Iterator[Finding]:
    """RA170: fewer devices than ranks; RA171: devices that stay idle."""
    world = numbers.get("world") if numbers.layout is None else _last(numbers.layout) + 1
    if world is None:
        return
    facts = {"world": world, "slots": cluster.slots, "cluster": str(cluster), "more": abs(cluster.slots - world)}
    if world > cluster.slots:
        enough = f"{-(-world // cluster.even)}x{cluster.even}" if cluster.even else None
        fixes = [Fix({"nodes": enough}, [f"--nodes {enough}"])] if enough and not cluster.hosts else []
        yield Finding("RA170", "error", facts, fixes)
    elif world < cluster.slots:
        yield Finding("RA171", "warning", facts)


def leaving(numbers: Numbers, cluster: Cluster) -> Iterator[Finding]:
    """RA172: groups that talk in every layer and leave a node although they need not."""
    cluster = placed(cluster, numbers.launched)
    for role, address, found in crossings(numbers, cluster):
        if role not in _INNER or found.count == 0:
            continue
        size, mesh = found.mesh.size(found.axis), found.mesh
        inner = 1
        for other in _INNER[: _INNER.index(role)]:
            names = ROLES.get(other, ()) + EXPERT_ROLES.get("etp" if other == "tp" else other, ())
            inner *= max([mesh.size(axis) for axis in mesh.axes if axis in names], default=1)
        each = cluster.even or 0
        avoidable = bool(each) and each % (inner * size) == 0
        alone = [] if avoidable or role != "ep" else _without_tensor(numbers, size, each)
        avoidable = avoidable or bool(alone)
        if not avoidable and role != "tp":
            continue  # it has to; the page tells where it goes
        yield Finding(
            "RA172",
            "warning",
            {
                "axis": address,
                "size": size,
                "count": said("many") if found.count is None else found.count,
                "groups": found.groups,
                "stride": mesh.stride(found.axis),
                "nodes": found.most_nodes,
                "cluster": str(cluster),
                "group": found.first or 0,
                "ranks": [int(rank) for rank in mesh.groups(found.axis)[found.first or 0].ranks[:8]],
            },
            alone or _inward(numbers, found, cluster, avoidable),
        )


def _without_tensor(numbers: Numbers, ep: int, each: int) -> list[Fix]:
    """Experts that are not cut along tp, where nobody asked for it: then ep is innermost and may fit a node."""
    there, _ = numbers.expert_ranks()
    fits = numbers["etp"] > 1 and inherited_size(numbers) and bool(each) and each % ep == 0 and there % ep == 0
    return [Fix({"etp": 1})] if fits else []


def _inward(numbers: Numbers, found: Crossing, cluster: Cluster, avoidable: bool) -> list[Fix]:
    """The same sizes with the axis innermost, in notation; where it is too long, a size that fits a node."""
    mesh = found.mesh
    if not isinstance(numbers.layout, Mesh) or numbers.format != "notation":
        return []
    if avoidable:
        rest = [axis for axis in mesh.axes if axis != found.axis]
        moved = mesh.reorder(*rest, found.axis)
        return [Fix({"layout": str(moved)}, [str(moved)])] if crossing(moved, found.axis, cluster).count == 0 else []
    return []


def launcher(numbers: Numbers, cluster: Cluster) -> Iterator[Finding]:
    """RA174: a launcher that starts another number of processes on a node than there are devices."""
    if numbers.launched is None or cluster.even in (None, numbers.launched[1]):
        return
    told = said("placed.devices", each=numbers.launched[1], cluster=str(cluster), devices=cluster.even)
    yield Finding("RA174", "warning", {"detail": told})


def host_order(numbers: Numbers, cluster: Cluster) -> Iterator[Finding]:
    """RA173: hosts that stand in string order (n1, n10, n2), where natural order (n1, n2, n10) is meant.

    >>> list(host_order(Numbers([]), Cluster.of(3, 8, ["n1", "n10", "n2"])))[0].numbers["places"]
    [1, 2]
    """
    hosts = list(cluster.hosts)
    letters, natural = string_order(hosts), natural_order(hosts)
    if hosts == letters and letters != natural:
        facts = {
            "places": differing_places(letters, natural),
            "string": letters[:8],
            "natural": natural[:8],
        }
        yield Finding("RA173", "warning", facts, [Fix({"hosts": natural}, [f"--hosts {','.join(natural[:64])}"])])


def _last(layout: Mesh | Atlas) -> int:
    charts = [layout] if isinstance(layout, Mesh) else list(layout.charts.values())
    return max(mesh.first_rank + mesh.world_size for mesh in charts) - 1
