"""Every rank's groups as plain tables for other tools, in the words of FlagScale's profiler.

The three tables, and names such as "tp-pp", are those that its `analyze_save_dir` fills
(github.com/flagos-ai/FlagScale, pull requests 177 and 186).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rankatlas.core import Mesh
from rankatlas.derived import purposes
from rankatlas.errors import InputError
from rankatlas.job import Job

_INNER_FIRST = ("tp", "mp", "etp", "ep", "edp", "dp", "cp", "sep", "pp")  # as "tp-dp-cp" has them
_MOST_RANKS = 1 << 20  # each stands in every table, in memory


def rank_tables(job: Job) -> dict[str, Any]:
    """Parallelism → groups, rank → parallelism → number of its group, and for a recorded job rank → host and device.

    Of a recorded job the groups that were made, else one family per axis and those with a purpose.  Cost: O(families ×
    world).  Raises InputError for a world of more than a million ranks.

    >>> tables = rank_tables(Job(Mesh(pp=2, dp=1, tp=2), format="notation", source=""))
    >>> list(tables["parallelism_to_groups"]), tables["parallelism_to_groups"]["tp"]
    (['pp', 'dp', 'tp', 'tp-pp'], [[0, 1], [2, 3]])
    >>> tables["rank_to_parallelism_to_group_id"]["3"]
    {'pp': 1, 'dp': 3, 'tp': 1, 'tp-pp': 0}
    """
    if job.layout.world_size > _MOST_RANKS:
        raise InputError(f"a dump of all ranks has at most {_MOST_RANKS:,}, this layout {job.layout.world_size:,}")
    families: dict[str, list[list[int]]] = {}
    for name, groups in _made(job) if job.kinds else _derived(job):
        families.setdefault(name, [list(ranks) for ranks in groups])
    of_rank: dict[str, dict[str, int]] = {}
    for name, groups in families.items():
        for number, ranks in enumerate(groups):
            for rank in ranks:
                of_rank.setdefault(str(rank), {})[name] = number
    tables: dict[str, Any] = {
        "parallelism_to_groups": families,
        "rank_to_parallelism_to_group_id": {rank: of_rank[rank] for rank in sorted(of_rank, key=int)},
    }
    if job.places:
        tables["rank_to_host_and_device"] = {
            str(rank): {key: place.get(key) for key in ("host", "local_rank", "device")}
            for rank, place in job.places.items()
        }
    return tables


def _made(job: Job) -> Iterator[tuple[str, list[list[int]]]]:
    """The kinds of a record, by their axes where they are known, else by their description."""
    for kind in job.kinds:
        axes = kind["axes"]
        of_axes = axes is not None and " " not in axes and axes != "world"
        yield (_joined(axes.split("+")) if of_axes else kind["description"]), kind["groups"]


def _derived(job: Job) -> Iterator[tuple[str, Iterable[Iterable[int]]]]:
    if isinstance(job.layout, Mesh):
        charts, shared = {"": job.layout}, job.layout.axes
    else:
        charts, shared = dict(job.layout.charts), job.layout.shared
    everywhere = Counter(axis for mesh in charts.values() for axis in mesh.axes)
    for chart, mesh in charts.items():
        sets = [(axis,) for axis in mesh.axes] + [purpose.axes for purpose in purposes(mesh, 0)]
        for axes in sets:
            if len(axes) == 1 or all(mesh.size(axis) > 1 for axis in axes):
                names = [axis if axis in shared or everywhere[axis] == 1 else f"{chart}.{axis}" for axis in axes]
                yield _joined(names), mesh.groups(*axes).ranges()


def _joined(axes: Iterable[str]) -> str:
    """Axes in the order of the names that other tools know, further ones after them.

    >>> _joined(["pp", "dp", "tp"]), _joined(["expert.edp", "ep"])
    ('tp-dp-pp', 'ep-expert.edp')
    """
    known = [axis for axis in _INNER_FIRST if axis in axes]
    return "-".join([*known, *(axis for axis in axes if axis not in known)])
