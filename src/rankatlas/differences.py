"""What changes between two layouts: which groups stay, which differ, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankatlas.core import Atlas, Mesh, Ranks
from rankatlas.core.compare import first_difference, ranks_shown, same_groups
from rankatlas.derived import data_axes
from rankatlas.job import Fact, Job

_MOST_MEMBERS = 1024  # members of a differing group that plain data lists


class Changes:
    """Two meshes compared axis by axis.

    `same` axes have the same groups in both, `different` are (axis, Difference), `only_first` and `only_second`
    name the axes the other lacks (of size 1 too), `renamed` are (axis of the first, axis of the second) with the
    same groups under another name.  `equal` is whether every group is the same: axes of size 1 do not count.

    >>> changes = Changes(Mesh(dp=2, tp=2), Mesh(tp=2, dp=2))
    >>> changes.equal, changes.same, [axis for axis, _ in changes.different]
    (False, [], ['dp', 'tp'])
    """

    def __init__(self, first: Mesh, second: Mesh) -> None:
        self.first, self.second = first, second
        both = [axis for axis in first.axes if axis in second.axes]
        found = [(axis, first_difference(first, second, axis)) for axis in both]
        self.same = [axis for axis, difference in found if difference is None]
        self.different = [(axis, difference) for axis, difference in found if difference is not None]
        self.only_first = [axis for axis in first.axes if axis not in both]
        self.only_second = [axis for axis in second.axes if axis not in both]
        self.renamed = [
            (mine, theirs)
            for mine in self.only_first
            for theirs in self.only_second
            if first.size(mine) > 1 and same_groups(first, mine, second, theirs)
        ]
        lost = [axis for axis in self.only_first if first.size(axis) > 1]
        won = [axis for axis in self.only_second if second.size(axis) > 1]
        ranks = (first.first_rank, first.world_size), (second.first_rank, second.world_size)
        self.equal = not (self.different or lost or won) and ranks[0] == ranks[1]

    def to_dict(self) -> dict[str, Any]:
        """The same facts as plain data."""
        return {
            "equal": self.equal,
            "first": str(self.first),
            "second": str(self.second),
            "world_size": [self.first.world_size, self.second.world_size],
            "first_rank": [self.first.first_rank, self.second.first_rank],
            "same": self.same,
            "different": [
                {
                    "axis": axis,
                    "group": found.group,
                    "first": _listed(found.first),
                    "second": _listed(found.second),
                    "size": [self.first.size(axis), self.second.size(axis)],
                    "stride": [self.first.stride(axis), self.second.stride(axis)],
                }
                for axis, found in self.different
            ],
            "only_first": self.only_first,
            "only_second": self.only_second,
            "renamed": [list(pair) for pair in self.renamed],
        }

    def lines(self) -> list[str]:
        """The same facts in words."""
        first, second = self.first, self.second
        lines = []
        if first.world_size != second.world_size:
            lines.append(f"world size is {first.world_size} in A and {second.world_size} in B")
        if first.first_rank != second.first_rank:
            lines.append(f"first rank is {first.first_rank} in A and {second.first_rank} in B")
        if self.same:
            lines.append(f"same groups: {', '.join(self.same)}")
        for axis, found in self.different:
            lines.append(
                f"{axis} groups differ: group {found.group} is {ranks_shown(found.first)} in A"
                f" and {ranks_shown(found.second)} in B ({_extent(first, axis)} in A, {_extent(second, axis)} in B)"
            )
        for name, mesh, axes in (("A", first, self.only_first), ("B", second, self.only_second)):
            lines += [f"{axis}={mesh.size(axis)} is only in {name}{_harmless(mesh, axis)}" for axis in axes]
        lines += [f"{mine} of A has the same groups as {theirs} of B" for mine, theirs in self.renamed]
        return lines


def compare(first: Mesh | Atlas, second: Mesh | Atlas) -> dict[str, Changes | None]:
    """Chart by chart, the changes from one layout to another; a chart that only one has gives None.

    A mesh is an atlas with one chart without a name, compared with every chart of an atlas.

    >>> list(compare(Mesh(dp=2), Mesh(dp=2)))
    ['']
    """
    if isinstance(first, Mesh) and isinstance(second, Mesh):
        return {"": Changes(first, second)}
    mine = first.charts if isinstance(first, Atlas) else dict.fromkeys(_charts(second), first)
    theirs = second.charts if isinstance(second, Atlas) else dict.fromkeys(_charts(first), second)
    names = [*mine, *(name for name in theirs if name not in mine)]
    return {name: Changes(mine[name], theirs[name]) if name in mine and name in theirs else None for name in names}


def compare_settings(first: Job, second: Job) -> list[dict[str, Any]]:
    """What two jobs say otherwise beside their groups: each as name, and value and origin in both (None: not said).

    A value that is the same but given in one and a default in the other counts too: defaults change with releases.

    >>> one, two = (Job(Mesh(dp=8), format="notation", source="") for _ in range(2))
    >>> compare_settings(one, two)
    []
    """
    found = []
    defaults = dict.fromkeys(fact.name for job in (first, second) for fact in job.facts if _is_default(fact))
    mine, theirs = _said(first, defaults), _said(second, defaults)
    for name in {**mine, **theirs}:
        a, b = mine.get(name), theirs.get(name)
        same = a is not None and b is not None and a.value == b.value
        if same and a is not None and b is not None and _is_default(a) == _is_default(b):
            continue
        if a is None or b is None:
            one_sided = not (first.settings and second.settings)
            if one_sided:
                continue  # one of them says nothing beside its layout
        found.append({"name": name, "same": same, "first": _fact(a), "second": _fact(b)})
    return found


def settings_lines(found: list[dict[str, Any]]) -> list[str]:
    """The same in words."""
    lines = []
    for one in found:
        a, b = (_told(one[name]) for name in ("first", "second"))
        if one["same"]:
            origins = one["first"]["origin"], one["second"]["origin"]
            lines.append(f"{one['name']} is the same, but {origins[0]} in A, {origins[1]} in B")
        else:
            lines.append(f"{one['name']} is {a} in A and {b} in B")
    return lines


def _said(job: Job, defaults: Mapping[str, None]) -> dict[str, Fact]:
    """The data size, the settings, and what a job says of axes that are a default in one of the two."""
    mesh = job.layout if isinstance(job.layout, Mesh) else None
    if isinstance(job.layout, Atlas):
        mesh = next((job.layout.charts[name] for name in ("dense", "train") if name in job.layout.charts), None)
    facts = [fact for fact in job.facts if fact.name in defaults]
    if mesh is not None and job.settings:
        size = 1
        for axis in data_axes(mesh):
            size *= mesh.size(axis)
        facts.append(Fact("data ranks", size, "the layout"))
        order = ", ".join(axis for axis in mesh.axes if mesh.size(axis) > 1)
        facts.append(Fact("order", order, "outer → inner"))
    if job.seed is not None:
        facts.append(Fact("seed", job.seed, "given"))
    return {fact.name: fact for fact in (*facts, *job.settings.values())}


def _is_default(fact: Fact) -> bool:
    return fact.origin.startswith(("default", "inherited"))


def _fact(fact: Fact | None) -> dict[str, Any] | None:
    return None if fact is None else {"value": fact.value, "origin": fact.origin}


def _told(fact: dict[str, Any] | None) -> str:
    return "not said" if fact is None else f"{fact['value']} ({fact['origin']})"


def _charts(layout: Mesh | Atlas) -> list[str]:
    return list(layout.charts) if isinstance(layout, Atlas) else []


def _listed(ranks: Ranks | None) -> list[int] | None:
    return None if ranks is None else list(ranks[:_MOST_MEMBERS])


def _extent(mesh: Mesh, axis: str) -> str:
    return f"size {mesh.size(axis)} stride {mesh.stride(axis)}"


def _harmless(mesh: Mesh, axis: str) -> str:
    return " (no effect on any group)" if mesh.size(axis) == 1 else ""
