"""The order in which ranks use the groups they share: whether any of them would wait for ever."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from rankatlas.core.border import as_int, in_order
from rankatlas.creation.plan import CreationPlan
from rankatlas.errors import InputError, IssueOrderError, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Use = tuple[str, tuple[int, ...]]  # the name of a group, and its members

_SHOWN = 6
_MOST_PAIRS = 1000  # that an error keeps


def check_issue_order(orders_by_rank: Mapping[Any, Iterable[Any]], members: Mapping[Any, Any] | CreationPlan) -> None:
    """Nothing, if collectives issued in these orders all complete; each waits for every member of its group.

    `orders_by_rank` is rank → the names of the groups it uses, in the order of use, a name as often as it is used.
    `members` says who is in them: a CreationPlan (names are its own), name → groups as lists of ranks, name → rank →
    its group, or rank → its group where all names have the same members.  Found are ranks that use two groups in
    different orders, circles over several ranks, and uses that a member lacks.  Cost: O(uses + members of them).

    Raises IssueOrderError: pairs of ranks in conflict and who is stuck where; InputError.

    >>> orders = {0: ["dense", "expert"], 2: ["expert", "dense"]}
    >>> check_issue_order(orders, {0: [0, 2], 2: [0, 2]})
    Traceback (most recent call last):
    rankatlas.errors.IssueOrderError: rank 0 waits in dense [0, 2] for rank 2, which waits in expert [0, 2]
    2 ranks wait for ever: let all members of a group use the groups they share in one order
    """
    uses = _uses_given(orders_by_rank, members)
    stuck = _stuck(uses)
    if stuck:
        raise _deadlock(stuck, uses)


def _uses_given(orders: object, members: object) -> dict[int, list[Use]]:
    if not isinstance(orders, Mapping):
        raise InputError(f"orders_by_rank is rank → names in the order of use, not {shown(orders)}")
    find = _finder(members)
    found: dict[int, list[Use]] = {}
    for given, names in orders.items():
        rank = _rank(given)
        found[rank] = [find(name, rank) for name in in_order(names, f"the order of rank {rank}")]
    return dict(sorted(found.items()))


def _rank(given: Any) -> int:
    # JSON writes numbers as text where they are keys.
    return int(given) if _is_number(given) else as_int(given, "a rank")


def _is_number(given: Any) -> bool:
    return isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 20


def _finder(members: Any) -> Any:
    """How to find the members of a name on a rank."""
    if isinstance(members, CreationPlan):
        return _of_plan(members)
    if not isinstance(members, Mapping):
        raise InputError(f"members is a CreationPlan, or a dict that says who is in which group, not {shown(members)}")
    if not any(isinstance(key, str) and not _is_number(key) for key in members):
        table = _by_rank(members)
        return lambda name, rank: (_named(name), _checked(table.get(rank), name, rank))
    tables = {name: _table(name, groups) for name, groups in members.items()}
    return lambda name, rank: (_named(name), _checked(tables.get(name, {}).get(rank), name, rank))


def _table(name: object, groups: Any) -> dict[int, Any]:
    if isinstance(groups, Mapping):
        return _by_rank(groups)
    found: dict[int, Any] = {}
    for given in in_order(groups, f"the groups of {shown(name)}"):
        group = in_order(given, f"a group of {shown(name)}")
        for rank in group:
            if found.get(as_int(rank, "a rank")) is group:
                raise InputError(f"a group of {shown(name)} has rank {rank} twice: {shown(group)}; list each rank once")
            if rank in found:
                raise InputError(f"rank {rank} is in two groups of {shown(name)}; give them two names")
            found[rank] = group
    return found


def _by_rank(groups: Mapping[Any, Any]) -> dict[int, Any]:
    """Rank → its group, read once, for a generator has no second time."""
    return {_rank(rank): None if group is None else in_order(group, "a group") for rank, group in groups.items()}


def _of_plan(plan: CreationPlan) -> Any:
    """In a plan groups with equal members are one, whatever name they are used by."""
    first: dict[tuple[int, ...], str] = {}  # members → the name they were created by

    def find(name: object, rank: int) -> Use:
        partial = next((one for one in plan.partial if one.name == name), None)
        if partial is not None:
            groups = partial.of(rank)
            if len(groups) != 1:
                raise InputError(f"rank {rank} is in {len(groups)} groups of {shown(name)}; name one it is in once")
            ranks = groups[0]
        else:
            family = plan.family(_named(name) if isinstance(name, str) else name)  # type: ignore[arg-type]
            group = family.group_of(rank)
            ranks = _checked(group and group.ranks, name, rank)
        if ranks not in first:
            holder = plan.family_with(ranks)
            first[ranks] = holder.label if holder else next(one.name for one in plan.partial if ranks in one.of(rank))
        return first[ranks], ranks

    return find


def _named(name: object) -> str:
    if isinstance(name, str):
        return str(name)
    raise InputError(f"a group is named by text, not {shown(name)}")


def _checked(group: Any, name: object, rank: int) -> tuple[int, ...]:
    if group is None:
        raise InputError(f"rank {rank} uses {shown(name)}, and nothing says which of its groups it is in")
    ranks = tuple(as_int(member, f"a member of {name}") for member in in_order(group, f"the members of {name}"))
    if min(ranks, default=-1) < 0 or len(dict.fromkeys(ranks)) != len(ranks):
        raise InputError(f"the members of {shown(name)} are different ranks from 0 on, each once, not {shown(ranks)}")
    if rank not in ranks:
        raise InputError(f"rank {rank} uses {shown(name)}, whose members on it are {shown(list(ranks))} without it")
    return tuple(sorted(ranks))  # a group is its members, in whatever order they were written


def _stuck(uses: dict[int, list[Use]]) -> dict[int, Use]:
    """Rank → what it waits in for ever.  A use completes when every member has come to it; nothing else goes on."""
    places = dict.fromkeys(uses, 0)
    arrived: dict[Use, int] = {}
    ready = deque(rank for rank in uses if uses[rank])
    while ready:
        rank = ready.popleft()
        use = uses[rank][places[rank]]
        arrived[use] = arrived.get(use, 0) + 1
        if arrived[use] == len(use[1]):
            arrived[use] = 0
            for member in use[1]:
                places[member] += 1
                if places[member] < len(uses[member]):
                    ready.append(member)
    return {rank: order[places[rank]] for rank, order in uses.items() if places[rank] < len(order)}


def _waits(stuck: dict[int, Use]) -> Iterator[tuple[int, int]]:
    """(rank, member it waits for) of every stuck rank; a member may have ended, or be stuck elsewhere."""
    for rank, use in stuck.items():
        for member in use[1]:
            if member != rank and stuck.get(member) != use:
                yield rank, member


def _deadlock(stuck: dict[int, Use], uses: dict[int, list[Use]]) -> IssueOrderError:
    waits = list(islice(_waits(stuck), 100 * _MOST_PAIRS))
    # In conflict are two ranks that share both groups; waits beyond that are a consequence, or a longer circle.
    pairs = [sorted((rank, other)) for rank, other in waits if other in stuck and rank in stuck[other][1]]
    conflicts = [list(pair) for pair in dict.fromkeys(map(tuple, pairs))][:_MOST_PAIRS]
    told = conflicts[:_SHOWN] or [list(pair) for pair in waits[:_SHOWN]]
    lines = [_line(rank, other, stuck) for rank, other in told]
    many = f"{len(stuck)} ranks wait" if len(stuck) > 1 else "1 rank waits"
    return IssueOrderError(
        "\n".join(lines) + f"\n{many} for ever: let all members of a group use the groups they share in one order",
        conflicting_rank_pairs=conflicts,
        stuck={rank: (name, list(ranks)) for rank, (name, ranks) in stuck.items()},
    )


def _line(rank: int, other: int, stuck: dict[int, Use]) -> str:
    there = f"waits in {_told(stuck[other])}" if other in stuck else "has nothing more to do"
    return f"rank {rank} waits in {_told(stuck[rank])} for rank {other}, which {there}"


def _told(use: Use) -> str:
    return f"{use[0]} {shown(list(use[1]))}"
