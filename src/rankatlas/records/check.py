"""A record held against the layout the job should have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from rankatlas.core import Atlas, Mesh
from rankatlas.creation import CreationPlan, PartialSet
from rankatlas.derived import axis_role
from rankatlas.errors import GroupMismatch
from rankatlas.records.kinds import Kind, axis_name, covered, known_groups, name_kinds
from rankatlas.records.planned import Meant, base
from rankatlas.records.record import LayoutRecord

_Table = tuple[tuple[int, ...], ...]
_LISTED = 6  # other kinds that are wrong, in a message
_SAME = {"mp": "tp", "tp": "mp", "pipe": "pp", "data": "dp", "model": "tp"}  # two words of the field for one axis


def check_record(made: LayoutRecord, expected: Mesh | Atlas | CreationPlan, axes: Sequence[str] = ()) -> None:
    """Nothing, if every kind of the record is groups of the layout, members in order, and all of `axes` were made.

    Of a plan, its partial sets are meant, too, and every group it creates must have been made.  A kind whose
    description speaks of an axis, or of a partial set, must be groups of that.  Names the kinds by what is expected.
    Cost: O(kinds × world).

    Raises GroupMismatch: the kind, its first wrong group, what was expected, the ranks concerned, and which other kinds
    are wrong.  UnknownAxisError for an axis in `axes` that the layout does not have.
    """
    layout = expected.layout if isinstance(expected, CreationPlan) else expected
    if layout.world_size != made.world_size or covered(layout) != list(range(made.world_size)):
        last = layout.first_rank + layout.world_size - 1
        raise _refusal(
            f"the job has ranks 0 to {made.world_size - 1}, {layout} has {layout.first_rank} to {last}", "world"
        )
    name_kinds(made.kinds, layout)
    meant = Meant(expected) if isinstance(expected, CreationPlan) else None
    if meant:
        meant.name(made.kinds)
    faults = [*_wrong_kinds(made, layout, meant), *_absent(made, layout, axes)]
    if meant:
        faults += _missing(made, meant, [base(fault.kind) for fault in faults])
    if faults:
        first, *rest = faults
        raise _with_others(first, [fault.kind for fault in rest])


def _wrong_kinds(made: LayoutRecord, layout: Mesh | Atlas, meant: Meant | None) -> Iterator[GroupMismatch]:
    families = known_groups(layout)
    for kind in made.kinds:
        if kind.disagreements:
            yield _refusal(
                f"{kind.description}: ranks {kind.disagreements} see other members than the rest of their group",
                kind.description,
                ranks=kind.disagreements,
            )
            continue
        spoken = meant.spoken_of(kind) if meant else None
        if spoken is not None:
            if any(ranks not in spoken.groups for ranks in _table(kind)):
                yield _stray(kind, spoken)
            continue
        promised = _broken_promise(kind, layout, families)
        if promised:
            yield _mismatch(kind, layout, promised)
        elif kind.axes is None and meant and any(map(meant.has, _table(kind))):
            yield _unplanned(kind, meant)
        elif kind.axes is None:
            yield _mismatch(kind, layout, {name: table for table, (name, *_) in families.items()})


def _stray(kind: Kind, spoken: PartialSet) -> GroupMismatch:
    """The error for a kind with a group that the partial set it speaks of has not."""
    given = next(ranks for ranks in _table(kind) if ranks not in spoken.groups)
    near = tuple(sorted(given))
    told = f"; it has {list(near)}, whose members stand in another order here" if near in spoken.groups else ""
    return GroupMismatch(
        f"{kind.description}: {list(given)} is no group of the partial set {spoken.name}{told}",
        kind=kind.description,
        given=list(given),
        expected=list(near) if told else None,
        ranks=sorted(given),
        others=[],
    )


def _unplanned(kind: Kind, meant: Meant) -> GroupMismatch:
    """The error for a kind some of whose groups are those of the plan, and one is not."""
    given = next(ranks for ranks in _table(kind) if not meant.has(ranks))
    return GroupMismatch(
        f"{kind.description}: {list(given)} is no group of the plan of {meant.plan.layout}, which has"
        f" {', '.join(meant.plan.names)}",
        kind=kind.description,
        given=list(given),
        expected=None,
        ranks=sorted(given),
        others=[],
    )


def _missing(made: LayoutRecord, meant: Meant, told: Sequence[str]) -> Iterator[GroupMismatch]:
    """The error for every name of the plan with groups nobody made, but for those a fault was `told` of already."""
    for name, (lacking, count) in meant.missing(made.kinds).items():
        if name in told:
            continue
        first, *rest = lacking
        if len(lacking) == count:
            there = ", ".join(dict.fromkeys(str(kind.axes) for kind in made.kinds)) or "none"
            what = f"of the {meant.told(name)}" if name != meant.told(name) else f"over {name}"
            message = f"no groups {what} were made; there are {there}"
        else:
            more = f", and nor {'was' if len(rest) == 1 else 'were'} {len(rest)} more" if rest else ""
            message = f"{name} group {first.index} of the plan, {list(first.ranks)}, was not made{more}"
        yield GroupMismatch(
            message, kind=name, given=None, expected=list(first.ranks), ranks=list(first.ranks), others=[]
        )


def _absent(made: LayoutRecord, layout: Mesh | Atlas, axes: Sequence[str]) -> Iterator[GroupMismatch]:
    there = [_table(kind) for kind in made.kinds]
    for name in axes:
        groups = layout.groups(*name.split("+"))
        if tuple(map(tuple, groups.ranges())) not in there:
            told = ", ".join(dict.fromkeys(str(kind.axes) for kind in made.kinds)) or "none"
            yield _refusal(f"no groups over {name} were made; there are {told}", name)


def _with_others(fault: GroupMismatch, others: list[str]) -> GroupMismatch:
    """The first fault, with the names of the kinds that have one too."""
    if not others:
        return fault
    listed = ", ".join(others[:_LISTED]) + (", ..." if len(others) > _LISTED else "")
    return GroupMismatch(f"{fault}\n{len(others)} more are wrong: {listed}", **{**vars(fault), "others": others})


def misnamed(kinds: Sequence[Kind], layout: Mesh | Atlas) -> list[tuple[str, str]]:
    """(description, axes) of every kind whose description speaks of one axis and whose groups are those of another.

    >>> mesh = Mesh(dp=2, tp=2)
    >>> misnamed([Kind("mesh_tp", [[0, 2], [1, 3]], "dp"), Kind("mesh_dp", [[0, 2], [1, 3]], "dp")], mesh)
    [('mesh_tp', 'dp')]
    """
    families = known_groups(layout)
    return [
        (kind.description, kind.axes)
        for kind in kinds
        if kind.axes is not None and _broken_promise(kind, layout, families)
    ]


def _broken_promise(kind: Kind, layout: Mesh | Atlas, families: Mapping[_Table, list[str]]) -> dict[str, _Table]:
    """The groups that the description of a kind speaks of, where its groups are others; else nothing."""
    spoken = axis_name(kind.description) or kind.description
    meant = dict(_tables_of(spoken, layout))
    if not meant and _has_another_role(spoken, families.get(_table(kind), [])):
        meant = {f"{spoken} (an axis it has not)": tuple((rank,) for rank in covered(layout))}
    return {} if _table(kind) in meant.values() else meant


def _has_another_role(spoken: str, names: Sequence[str]) -> bool:
    """Whether groups with these `names` certainly cut something else than an axis called `spoken` does.

    A layout without a tensor axis has each rank alone there, and no group along data can be called one of tensors; but
    groups along an axis of a name nobody knows may be.
    """
    role = axis_role(spoken)
    of_axes = [name for name in names if name != "world" and " " not in name]  # the rest are words of ours
    sets = [[axis_role(axis) for axis in name.rpartition(".")[2].split("+")] for name in of_axes]
    return role is not None and bool(sets) and all(None not in roles and role not in roles for roles in sets)


def _table(kind: Kind) -> _Table:
    return tuple(map(tuple, kind.groups))


def _tables_of(axis: str, layout: Mesh | Atlas) -> Iterator[tuple[str, _Table]]:
    """The groups of the axis that a description speaks of, in every chart that has it."""
    for chart, mesh in {"": layout}.items() if isinstance(layout, Mesh) else layout.charts.items():
        name = next((one for one in (axis, _SAME.get(axis)) if one in mesh.axes), None)
        if name is not None:
            yield f"{chart}.{name}" if chart else name, tuple(map(tuple, mesh.groups(name).ranges()))


def _refusal(message: str, kind: str, ranks: list[int] | None = None) -> GroupMismatch:
    return GroupMismatch(message, kind=kind, given=None, expected=None, ranks=ranks or [], others=[])


def _mismatch(kind: Kind, layout: Mesh | Atlas, families: dict[str, _Table]) -> GroupMismatch:
    """The error for a kind that is none of `families`: held against the one it shares most groups with."""
    given = _table(kind)
    name, table = max(families.items(), key=lambda one: _likeness(given, one[1]))
    stray = next((ranks for ranks in given if len(families) > 1 and _likeness(given, table)[0] == 0), None)
    if stray is not None:
        return GroupMismatch(
            f"{kind.description}: {list(stray)} is no group of {layout}, whichever axes are taken"
            + (f", and nor are {len(given) - 1} more" if len(given) > 1 else ""),
            kind=kind.description,
            given=list(stray),
            expected=None,
            ranks=sorted(stray),
            others=[],
        )
    pairs = enumerate(zip_longest(given, table))
    wrong, (made, expected) = next((place, pair) for place, pair in pairs if pair[0] != pair[1])
    concerned = sorted({*(made or ()), *(expected or ())})
    order = "in another order " if made and expected and sorted(made) == sorted(expected) else ""
    was = f"{order}{list(made)} was made" if made else "is not there"
    really = f"; they are its groups over {kind.axes}" if kind.axes else ""
    return GroupMismatch(
        f"{kind.description}: the groups of {name} in {layout} were expected, whose group {wrong} is"
        f" {list(expected) if expected else None}, and {was} (ranks {concerned}){really}",
        kind=kind.description,
        given=list(made) if made else None,
        expected=list(expected) if expected else None,
        ranks=concerned,
        others=[],
    )


def _likeness(given: _Table, table: _Table) -> tuple[int, int, int]:
    shared = len(set(given) & set(table))
    members = len({tuple(sorted(ranks)) for ranks in given} & set(table))
    alike = sum(len(set(a) & set(b)) for a, b in zip(given, table))
    return members + shared, -abs(len(given) - len(table)), alike
