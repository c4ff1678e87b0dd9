"""A table of groups that somebody wrote, or a framework printed, held against the mesh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice

from rankatlas.core.border import as_int, axis_names
from rankatlas.core.mesh import Mesh
from rankatlas.errors import GroupError, GroupOrderError, InputError, MemberOrderError, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SHOWN = 8  # ranks or groups a message lists
_MOST_MISSING = 1000  # missing ranks that an error keeps


def check_groups(mesh: Mesh, axes: Iterable[str], claimed: Iterable[Iterable[int]], *, any_order: bool = False) -> None:
    """Nothing, if `claimed` is exactly `mesh.groups(*axes)`: members, their order, and the groups' order.

    `claimed` is a list of rank lists (lists, tuples, ranges, arrays).  `any_order=True` accepts the right groups
    listed in any order.  Cost: O(world).

    Raises GroupError (ranks out of range, missing, repeated, or other members than the mesh says),
    MemberOrderError (right members in a wrong order, with positions), GroupOrderError (right groups, listed in
    another order), UnknownAxisError.

    >>> check_groups(Mesh(dp=2, tp=2), ["dp"], [[0, 2], [1, 3]])
    >>> check_groups(Mesh(dp=2, tp=2), ["dp"], [[2, 0], [1, 3]])
    Traceback (most recent call last):
    rankatlas.errors.MemberOrderError: dp group 0 has the right members in another order: expected [0, 2], got [2, 0]
    a reduction over it still works, but 2 ranks hold another index in their group than dp=2 tp=2 says
    """
    if not isinstance(mesh, Mesh):
        raise InputError(f"a table is held against a Mesh, not against {shown(mesh)}; for notation use parse_mesh")
    names = axis_names(axes, "axes")
    groups = mesh.groups(*names)
    table = _table(claimed, mesh.world_size)
    what = "+".join(groups.axes) or "singleton"
    _check_partition(mesh, table, what)
    expected = [list(group) for group in groups]
    if any_order:
        # The expected groups follow the table, so that positions in errors are the table's own.
        by_first = {members[0]: members for members in expected}
        found = [by_first.pop(min(members, default=-1), None) for members in table]
        expected = [members or by_first.popitem()[1] for members in found if members or by_first]
    if table == expected:
        return
    if sorted(map(sorted, table)) != sorted(expected):
        raise _wrong_members(table, expected, what)
    if [sorted(members) for members in table] != expected:
        raise _wrong_group_order(table, expected, what)
    raise _wrong_member_order(mesh, table, expected, what)


def _table(claimed: Iterable[Iterable[int]], world_size: int) -> list[list[int]]:
    """The table as lists of ints, read no further than a table of this world can reach."""
    most = 2 * world_size + _MOST_MISSING
    table: list[list[int]] = []
    read = 0
    try:
        if isinstance(claimed, (set, frozenset, Mapping, str, bytes)):
            raise TypeError
        for members in claimed:
            if isinstance(members, (set, frozenset, Mapping, str, bytes)):
                raise TypeError
            table.append(list(islice(members, most)))
            read += max(1, len(table[-1]))
            if read >= most:
                raise GroupError(f"the table lists more than {most} ranks; the mesh has {world_size}", **_facts())
    except TypeError:
        raise GroupError(
            f"a table of groups is a list of lists of ranks, in an order; got {shown(claimed)}", **_facts()
        ) from None
    return [[as_int(rank, "a rank in the table") for rank in members] for members in table]


def _facts(**given: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"out_of_range": [], "missing": [], "repeated": []}
    return {**empty, "group": None, "expected": None, "given": None, **given}


def _check_partition(mesh: Mesh, table: list[list[int]], what: str) -> None:
    times = Counter(rank for members in table for rank in members)
    world = range(mesh.first_rank, mesh.first_rank + mesh.world_size)
    out_of_range = sorted(rank for rank in times if rank not in world)
    absent = mesh.world_size - sum(rank in world for rank in times)
    missing = list(islice((rank for rank in world if rank not in times), min(absent, _MOST_MISSING)))
    repeated = sorted(rank for rank, count in times.items() if count > 1)
    if not (out_of_range or missing or repeated):
        return
    faults = []
    if out_of_range:
        faults.append(f"{_listed(out_of_range)} out of range ({world[0]} to {world[-1]})")
    if missing:
        faults.append(f"{_listed(missing, absent)} missing")
    if repeated:
        faults.append(f"{_listed(repeated)} in more than one place")
    raise GroupError(
        f"the {what} table is no partition of {mesh}: {'; '.join(faults)}",
        **_facts(out_of_range=out_of_range, missing=missing, repeated=repeated),
    )


def _listed(ranks: list[int], count: int | None = None) -> str:
    count = count or len(ranks)
    shown = ", ".join(map(str, ranks[:_SHOWN])) + (f", ... ({count} ranks)" if count > _SHOWN else "")
    return f"rank {shown}" if count == 1 else f"ranks {shown}"


def _members(ranks: list[int] | None) -> str:
    if ranks is None:
        return "no group"
    return str(ranks) if len(ranks) <= 4 * _SHOWN else f"[{', '.join(map(str, ranks[: 4 * _SHOWN]))}, ...]"


def _wrong_members(table: list[list[int]], expected: list[list[int]], what: str) -> GroupError:
    wanted = {tuple(members) for members in expected}
    position = next(place for place, members in enumerate(table) if tuple(sorted(members)) not in wanted)
    given = table[position]
    should = expected[position] if position < len(expected) else None
    return GroupError(
        f"{what} group {position} has other members: expected {_members(should)}, got {_members(given)}",
        **_facts(group=position, expected=should, given=given),
    )


def _wrong_group_order(table: list[list[int]], expected: list[list[int]], what: str) -> GroupOrderError:
    wrong = [place for place, members in enumerate(table) if sorted(members) != expected[place]]
    first = wrong[0]
    return GroupOrderError(
        f"the {what} groups are right but listed in another order: place {first} should hold"
        f" {_members(expected[first])} and holds {_members(table[first])};"
        f" {len(wrong)} places differ (any_order=True accepts this)",
        wrong_positions=wrong,
        **_facts(group=first, expected=expected[first], given=table[first]),
    )


def _wrong_member_order(mesh: Mesh, table: list[list[int]], expected: list[list[int]], what: str) -> MemberOrderError:
    wrong = [
        [group, place]
        for group, members in enumerate(table)
        for place, rank in enumerate(members)
        if rank != expected[group][place]
    ]
    first = wrong[0][0]
    return MemberOrderError(
        f"{what} group {first} has the right members in another order:"
        f" expected {_members(expected[first])}, got {_members(table[first])}\n"
        f"a reduction over it still works, but {len(wrong)} ranks hold another index in their group than {mesh} says",
        wrong_positions=wrong,
        same_members=True,
        **_facts(group=first, expected=expected[first], given=table[first]),
    )
