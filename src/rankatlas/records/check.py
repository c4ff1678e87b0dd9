"""A record held against the layout the job should have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rankatlas.core import Atlas, Mesh
from rankatlas.errors import GroupMismatch
from rankatlas.records.kinds import Kind, axis_name, covered, known_groups, name_kinds
from rankatlas.records.record import LayoutRecord

_Table = tuple[tuple[int, ...], ...]
_SAME = {"mp": "tp", "tp": "mp", "pipe": "pp", "data": "dp", "model": "tp"}  # two words of the field for one axis


def check_record(made: LayoutRecord, layout: Mesh | Atlas, axes: Sequence[str] = ()) -> None:
    """Nothing, if every kind of the record is groups of `layout`, members in order, and all of `axes` were made.

    A kind whose description speaks of an axis must be the groups of that axis.  Names the kinds by `layout`.
    Cost: O(kinds × world).

    Raises GroupMismatch: the kind, its first wrong group, what was expected, the ranks concerned.  UnknownAxisError
    for an axis in `axes` that the layout does not have.
    """
    if layout.world_size != made.world_size or covered(layout) != list(range(made.world_size)):
        last = layout.first_rank + layout.world_size - 1
        raise _refusal(
            f"the job has ranks 0 to {made.world_size - 1}, {layout} has {layout.first_rank} to {last}", "world"
        )
    name_kinds(made.kinds, layout)
    for kind in made.kinds:
        if kind.disagreements:
            raise _refusal(
                f"{kind.description}: ranks {kind.disagreements} see other members than the rest of their group",
                kind.description,
                ranks=kind.disagreements,
            )
        meant = _broken_promise(kind, layout)
        if meant:
            raise _mismatch(kind, layout, meant)
        if kind.axes is None:
            raise _mismatch(kind, layout, {name: table for table, (name, *_) in known_groups(layout).items()})
    there = [_table(kind) for kind in made.kinds]
    for name in axes:
        groups = layout.groups(*name.split("+"))
        if tuple(map(tuple, groups.ranges())) not in there:
            told = ", ".join(dict.fromkeys(str(kind.axes) for kind in made.kinds)) or "none"
            raise _refusal(f"no groups over {name} were made; there are {told}", name)


def misnamed(kinds: Sequence[Kind], layout: Mesh | Atlas) -> list[tuple[str, str]]:
    """(description, axes) of every kind whose description speaks of one axis and whose groups are those of another.

    >>> mesh = Mesh(dp=2, tp=2)
    >>> misnamed([Kind("mesh_tp", [[0, 2], [1, 3]], "dp"), Kind("mesh_dp", [[0, 2], [1, 3]], "dp")], mesh)
    [('mesh_tp', 'dp')]
    """
    return [(kind.description, kind.axes) for kind in kinds if kind.axes is not None and _broken_promise(kind, layout)]


def _broken_promise(kind: Kind, layout: Mesh | Atlas) -> dict[str, _Table]:
    """The groups that the description of a kind speaks of, where its groups are others; else nothing."""
    meant = dict(_tables_of(axis_name(kind.description) or kind.description, layout))
    return {} if _table(kind) in meant.values() else meant


def _table(kind: Kind) -> _Table:
    return tuple(map(tuple, kind.groups))


def _tables_of(axis: str, layout: Mesh | Atlas) -> Iterator[tuple[str, _Table]]:
    """The groups of the axis that a description speaks of, in every chart that has it."""
    for chart, mesh in {"": layout}.items() if isinstance(layout, Mesh) else layout.charts.items():
        name = next((one for one in (axis, _SAME.get(axis)) if one in mesh.axes), None)
        if name is not None:
            yield f"{chart}.{name}" if chart else name, tuple(map(tuple, mesh.groups(name).ranges()))


def _refusal(message: str, kind: str, ranks: list[int] | None = None) -> GroupMismatch:
    return GroupMismatch(message, kind=kind, given=None, expected=None, ranks=ranks or [])


def _mismatch(kind: Kind, layout: Mesh | Atlas, families: dict[str, _Table]) -> GroupMismatch:
    """The error for a kind that is none of `families`: held against the one it shares most groups with."""
    given = _table(kind)
    name, table = max(families.items(), key=lambda one: _likeness(given, one[1]))
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
    )


def _likeness(given: _Table, table: _Table) -> tuple[int, int, int]:
    shared = len(set(given) & set(table))
    members = len({tuple(sorted(ranks)) for ranks in given} & set(table))
    alike = sum(len(set(a) & set(b)) for a, b in zip(given, table))
    return members + shared, -abs(len(given) - len(table)), alike
