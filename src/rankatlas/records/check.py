"""A record held against the layout the job should have."""

from __future__ import annotations

from collections.abc import Sequence

from rankatlas.core import Atlas, Mesh
from rankatlas.errors import GroupMismatch
from rankatlas.records.kinds import Kind, axis_name, known_groups, name_kinds
from rankatlas.records.record import LayoutRecord


def check_record(made: LayoutRecord, layout: Mesh | Atlas, axes: Sequence[str] = ()) -> None:
    """Nothing, if every kind of the record is groups of `layout`, members in order, and all of `axes` were made.

    Names the kinds by `layout`.  Cost: O(kinds × world).
    Raises GroupMismatch: the kind, its first wrong group, what was expected, the ranks concerned.
    """
    if layout.world_size != made.world_size:
        raise _refusal(f"the job has {made.world_size} ranks, {layout} has {layout.world_size}", "world")
    name_kinds(made.kinds, layout)
    singles = [[rank] for rank in range(made.world_size)]
    for kind in made.kinds:
        if kind.disagreements:
            raise _refusal(
                f"{kind.description}: ranks {kind.disagreements} see other members than the rest of their group",
                kind.description,
                ranks=kind.disagreements,
            )
        if kind.axes is None and kind.groups != singles:
            raise _mismatch(kind, layout)
    there = [kind.axes for kind in made.kinds if kind.axes]
    for name in axes:
        if name not in there:
            raise _refusal(f"no groups over {name} were made; there are {', '.join(there) or 'none'}", name)


def _refusal(message: str, kind: str, ranks: list[int] | None = None) -> GroupMismatch:
    return GroupMismatch(message, kind=kind, given=None, expected=None, ranks=ranks or [])


def _mismatch(kind: Kind, layout: Mesh | Atlas) -> GroupMismatch:
    """The error for a kind that is nothing in the layout: held against the family it shares most groups with."""
    given = [tuple(ranks) for ranks in kind.groups]
    families = known_groups(layout)
    name, table = max(
        ((name, table) for table, names in families.items() for name in names),
        key=lambda one: _likeness(given, one[1], kind, one[0]),
    )
    wrong = next((place for place, ranks in enumerate(given) if place >= len(table) or ranks != table[place]), 0)
    expected = list(table[wrong]) if wrong < len(table) else None
    concerned = sorted({*kind.groups[wrong], *(expected or [])})
    same = expected is not None and sorted(expected) == sorted(given[wrong])
    return GroupMismatch(
        f"{kind.description} is no set of groups of {layout}: nearest is {name}, whose group {wrong} is {expected},"
        f" and {'in another order ' if same else ''}{list(given[wrong])} was made (ranks {concerned})",
        kind=kind.description,
        given=list(given[wrong]),
        expected=expected,
        ranks=concerned,
    )


def _likeness(
    given: list[tuple[int, ...]], table: tuple[tuple[int, ...], ...], kind: Kind, name: str
) -> tuple[bool, int, int]:
    shared = len(set(given) & set(table))
    members = len({tuple(sorted(ranks)) for ranks in given} & set(table))
    return axis_name(kind.description) == name, members + shared, -abs(len(given) - len(table))
