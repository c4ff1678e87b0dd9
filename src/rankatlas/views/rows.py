"""The rank table as lines, one rank or one member of a group at a time, so that a million of them need no memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from rankatlas.core import Atlas, Groups, Mesh
from rankatlas.errors import InputError

_MOST_MEMBERS = 10**7  # of one group that stand on one line, which is made in memory


def rank_lines(layout: Mesh | Atlas, ranks: Iterable[int], format: str) -> Iterator[str]:
    """One line per rank, in "jsonl" or "csv" (which has a header line first).  Cost: O(axes) per line.

    >>> list(rank_lines(Mesh(dp=2, tp=2), [3], "csv"))
    ['rank,dp,tp', '3,1,1']
    >>> list(rank_lines(Mesh(dp=2, tp=2), [3], "jsonl"))
    ['{"rank": 3, "coordinate": {"dp": 1, "tp": 1}}']
    """
    if isinstance(layout, Atlas):
        return _atlas_csv(layout, ranks) if format == "csv" else _atlas_jsonl(layout, ranks)
    return _mesh_csv(layout, ranks) if format == "csv" else _mesh_jsonl(layout, ranks)


def group_lines(layout: Mesh | Atlas, axes: tuple[str, ...], format: str) -> Iterator[str]:
    """The groups over `axes`: in "csv" one line per member, in "jsonl" one line per group.

    Cost: O(1) memory in "csv", O(size) in "jsonl".  Raises InputError where a group is too large for one line, and
    the errors of `groups`.

    >>> list(group_lines(Mesh(dp=2, tp=2), ("tp",), "csv"))
    ['index,group_rank,rank', '0,0,0', '0,1,1', '1,0,2', '1,1,3']
    >>> list(group_lines(Mesh(dp=2, tp=2), ("tp",), "jsonl"))[1]
    '{"axes": ["tp"], "index": 1, "ranks": [2, 3]}'
    """
    groups = layout.groups(*axes)
    if format == "csv":
        return _members_csv(groups)
    if groups.size > _MOST_MEMBERS:
        raise InputError(
            f"a group over {'+'.join(axes)} has {groups.size:,} ranks, and a line of jsonl holds a whole group, at most"
            f" {_MOST_MEMBERS:,}; --format csv writes one line per member"
        )
    return _groups_jsonl(groups, axes)


def _members_csv(groups: Groups) -> Iterator[str]:
    yield "index,group_rank,rank"
    for index, ranks in enumerate(groups.ranges()):
        for place, rank in enumerate(ranks):
            yield f"{index},{place},{rank}"


def _groups_jsonl(groups: Groups, axes: tuple[str, ...]) -> Iterator[str]:
    for index, ranks in enumerate(groups.ranges()):
        yield json.dumps({"axes": list(axes), "index": index, "ranks": list(ranks)})


def _mesh_jsonl(mesh: Mesh, ranks: Iterable[int]) -> Iterator[str]:
    places = ", ".join(f'"{axis}": %d' for axis in mesh.axes)
    line = f'{{"rank": %d, "coordinate": {{{places}}}}}'
    return (line % (rank, *mesh.coordinate(rank).values()) for rank in ranks)


def _mesh_csv(mesh: Mesh, ranks: Iterable[int]) -> Iterator[str]:
    # An axis may be called rank as well.
    yield ",".join(["rank", *(f"coordinate.{axis}" if axis == "rank" else axis for axis in mesh.axes)])
    line = ",".join(["%d"] * (len(mesh.axes) + 1))
    for rank in ranks:
        yield line % (rank, *mesh.coordinate(rank).values())


def _atlas_jsonl(atlas: Atlas, ranks: Iterable[int]) -> Iterator[str]:
    for rank in ranks:
        places = {chart: dict(coordinate) for chart, coordinate in atlas.coordinate(rank).items()}
        yield json.dumps({"rank": rank, "coordinate": places})


def _atlas_csv(atlas: Atlas, ranks: Iterable[int]) -> Iterator[str]:
    yield ",".join(["rank", *(f"{chart}.{axis}" for chart, mesh in atlas.charts.items() for axis in mesh.axes)])
    for rank in ranks:
        found = atlas.coordinate(rank)
        cells = [str(rank)]
        for chart, mesh in atlas.charts.items():
            cells += map(str, found[chart].values()) if chart in found else [""] * len(mesh.axes)
        yield ",".join(cells)
