"""What every rank did, or would do, to create groups: whether all make the same calls, and where they part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from rankatlas.core import Mesh
from rankatlas.core.border import as_int, in_order, is_list
from rankatlas.creation.families import Family, PlannedGroup
from rankatlas.creation.plan import CreationPlan
from rankatlas.errors import CreationOrderError, InputError, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Members = tuple[int, ...]
    Call = tuple[Members, ...]  # one group, or all groups of a partition, made by one call

    _Due = tuple[Members, bool, str]  # members, whether they need a communicator, and what the group is called
    _Planned = list[_Due]
    _Parting = tuple[int, _Due | None, Call | None]  # the number of a call, what was due there, what was created

_SHOWN = 8
_MOST_RANKS = 1 << 22  # of a plan that calls are held against


def check_calls(
    calls_by_rank: Mapping[Any, Iterable[Any]] | Sequence[Iterable[Any]], plan: CreationPlan | None = None
) -> None:
    """Nothing, if these creation calls of the ranks make the same groups in the same order everywhere.

    `calls_by_rank` is rank → its calls in order.  A call is the list of ranks of one group, or the list of such
    lists when one call makes several (a partition).  Members in another order are another group.  Without a plan every
    rank must make the same calls, which `new_group` of every framework asks for.  With a plan the ranks may follow it
    in any of three ways: every rank all groups one by one, every rank only those it is in, or as `open_groups` does it
    (those it is in, then partial sets and what members cannot name by all ranks); groups that need no communicator may
    be created or not, that of a rank alone also first.  A rank of the plan that is not given creates nothing.
    Cost: O(calls of all ranks).

    Raises CreationOrderError: the first call at which ranks part, who does what there, and an order that works, that of
    the most ranks; with a plan, the group that was due by its name, and what the plan has for that rank.
    InputError for something that is no list of calls.

    >>> check_calls({0: [[0, 1], [0, 2]], 1: [[0, 1], [0, 2]], 2: [[0, 1], [0, 2]]})
    >>> check_calls({0: [[0, 2]], 1: [[1, 3]], 2: [[0, 2]], 3: [[1, 3]]})
    Traceback (most recent call last):
    rankatlas.errors.CreationOrderError: ranks part at call 0: ranks 0, 2 create [0, 2], ranks 1, 3 create [1, 3]
    every rank must make every call, in the same order, member or not: [0, 2], [1, 3]
    """
    calls = _calls_given(calls_by_rank)
    if plan is None:
        _check_same(calls)
    elif isinstance(plan, CreationPlan):
        _check_plan(calls, plan)
    else:
        raise InputError(f"calls are held against a CreationPlan, not against {shown(plan)}")


def _calls_given(given: object) -> dict[int, list[Call]]:
    if isinstance(given, Mapping):
        pairs = [(_rank(rank), calls) for rank, calls in given.items()]
    else:
        pairs = list(enumerate(in_order(given, "calls_by_rank")))
    found: dict[int, list[Call]] = {}
    for rank, calls in sorted(pairs, key=lambda pair: pair[0]):
        if rank in found:
            raise InputError(f"rank {rank} has two lists of calls; give each rank once")
        found[rank] = [_call(one, rank) for one in in_order(calls, f"the calls of rank {rank}")]
    return found


def _rank(given: object) -> int:
    # JSON writes numbers as text where they are keys.
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 20:
        return int(given)
    return as_int(given, "a rank of calls_by_rank")


def _call(given: object, rank: int) -> Call:
    parts = in_order(given, f"a call of rank {rank}")
    several = bool(parts) and all(map(is_list, parts))
    groups = parts if several else (parts,)
    made = tuple(
        tuple(as_int(member, f"a member in a call of rank {rank}") for member in in_order(group, "a group"))
        for group in groups
    )
    if not all(made):
        raise InputError(f"a call of rank {rank} creates a group without members: {shown(given)}")
    for group in made:
        if min(group) < 0 or len(dict.fromkeys(group)) != len(group):
            raise InputError(
                f"a call of rank {rank} creates {shown(list(group))}; members are different ranks from 0 on, each once"
            )
    return made


def _check_same(calls: dict[int, list[Call]]) -> None:
    """Every rank must do what the most do; those who make no call at some place do something else, too."""
    everybody = sorted({rank for made in calls.values() for call in made for group in call for rank in group})
    absent = [rank for rank in everybody if rank not in calls]
    for number in range(max(map(len, calls.values()), default=0)):
        at_once = {rank: made[number] if number < len(made) else None for rank, made in calls.items()}
        at_once.update(dict.fromkeys(absent))
        camps = _camps(at_once)
        if len(camps) > 1:
            raise _parted(number, camps, _canonical(calls))


def _camps(at_once: Mapping[int, Call | None]) -> list[tuple[Call | None, list[int]]]:
    """Who does the same, the most first; of equally many those of the lowest rank."""
    camps: dict[Call | None, list[int]] = {}
    for rank in sorted(at_once):
        camps.setdefault(at_once[rank], []).append(rank)
    return sorted(camps.items(), key=lambda camp: (-len(camp[1]), camp[1][0]))


def _parted(number: int, camps: list[tuple[Call | None, list[int]]], canonical: list[list[int]]) -> CreationOrderError:
    (expected, _), *others = camps
    told = ", ".join(f"{_who(ranks)} create{'s' * (len(ranks) == 1)} {_told(call)}" for call, ranks in camps[:_SHOWN])
    more = f", and {len(camps) - _SHOWN} more" if len(camps) > _SHOWN else ""
    return CreationOrderError(
        f"ranks part at call {number}: {told}{more}\n"
        f"every rank must make every call, in the same order, member or not: {_listed(canonical)}",
        first_divergent_call=number,
        odd_ranks=sorted(rank for _, ranks in others for rank in ranks),
        expected=_plain(expected),
        given=_plain(others[0][0]),
        canonical_plan=canonical,
    )


def _canonical(calls: dict[int, list[Call]]) -> list[list[int]]:
    """Every distinct group once: as the most ranks make them, others where the most of those who make them do."""
    places: dict[Members, Counter[int]] = {}
    for made in calls.values():
        for members, number in _numbered(made):
            places.setdefault(members, Counter())[number] += 1
    most = {members: min(times, key=lambda one: (-times[one], one)) for members, times in places.items()}
    followed: dict[Members, int] = {}
    for members, number in _numbered(_followed(calls)):
        followed.setdefault(members, number)
    most.update(followed)
    order = sorted(most, key=lambda members: (most[members], members not in followed, members))
    return [list(members) for members in order]


def _numbered(made: list[Call]) -> Iterator[tuple[Members, int]]:
    return ((tuple(sorted(group)), number) for number, call in enumerate(made) for group in call)


def _followed(calls: dict[int, list[Call]]) -> list[Call]:
    """The calls of those who are with the most ranks at every call."""
    ranks = list(calls)
    found: list[Call] = []
    while True:
        at_once = {rank: calls[rank][len(found)] for rank in ranks if len(found) < len(calls[rank])}
        if not at_once:
            return found
        call, ranks = _camps(at_once)[0]
        found += [call] if call else []


def _check_plan(calls: dict[int, list[Call]], plan: CreationPlan) -> None:
    """Every rank must follow the plan in one of the ways there are; the closest one is the measure."""
    if plan.layout.world_size > _MOST_RANKS:
        raise InputError(
            f"calls are held against every group of a plan; {plan.layout.world_size:,} ranks are too many for that,"
            f" {_MOST_RANKS:,} the most"
        )
    for rank in calls:
        if not plan.covers(rank):
            raise InputError(
                f"calls_by_rank has rank {rank}, which is not in {plan.layout}; give the ranks of the layout"
            )
    ways = _Ways(plan)
    absent = (rank for rank in _ranks_of(plan) if rank not in calls)
    everybody = {**calls, **{rank: [] for rank in absent}}  # who is not given creates nothing
    parted = [
        (way, {rank: left for rank, made in everybody.items() if (left := _parting(made, way(rank)))})
        for way in (ways.every, ways.own, ways.opened)
    ]
    if not all(found for _, found in parted):
        return
    # The way along which fewer ranks leave, and those later, is the one they were on.
    way, odd = min(parted, key=lambda one: (len(one[1]), -min(left[0] for left in one[1].values())))
    raise _left(plan, ways, way, odd)


def _left(
    plan: CreationPlan, ways: _Ways, way: Callable[[int], Iterator[_Due]], odd: dict[int, _Parting]
) -> CreationOrderError:
    """The error for ranks that leave the plan, along the way they were on: the first of them, and what it was to do."""
    rank = min(odd, key=lambda rank: (odd[rank][0], rank))
    number, due, given = odd[rank]
    others = [other for other in sorted(odd) if other != rank]
    return CreationOrderError(
        f"{_who([rank])} leaves the plan at call {number}: {f'{due[2]}, {shown(list(due[0]))},' if due else 'nothing'}"
        f" is due, it creates {_told(given)}{_called(given, ways)}"
        + (f"; {_who(others)} {'leaves' if len(others) == 1 else 'leave'} it, too" if others else "")
        + f"\nby the plan of {plan.layout} rank {rank}{', as every rank,' if way == ways.every else ''} creates,"
        f" in this order: {_around(due, [one for one in way(rank) if one[1]])}",
        first_divergent_call=number,
        odd_ranks=sorted(odd),
        expected=list(due[0]) if due else None,
        given=_plain(given),
        canonical_plan=[list(members) for members, new, _ in ways.planned if new],
    )


def _called(given: Call | None, ways: _Ways) -> str:
    """What the plan calls a group that was created where another was due."""
    members = tuple(sorted(given[0])) if given and len(given) == 1 else None
    name = next((name for other, _, name in ways.planned if other == members), None)
    return f" ({name})" if name else ""


def _around(due: _Due | None, planned: _Planned) -> str:
    """What a rank creates, from the group that was due on where it is much."""
    place = planned.index(due) if due in planned else len(planned)
    first = max(0, min(place, len(planned) - _SHOWN))
    told = ", ".join(f"{name} {shown(list(members))}" for members, _, name in planned[first : first + _SHOWN])
    more = ", ..." if len(planned) > first + _SHOWN else ""
    return ("..., " if first else "") + (told or "nothing") + more


class _Ways:
    """What is due of a rank, in order, in each of the ways in which a plan can be carried out."""

    def __init__(self, plan: CreationPlan) -> None:
        self._plan = plan
        self._partial: _Planned = [_due(one) for one in plan.partial_groups()]
        self._of_family = [[_due(one) for one in family.planned()] for family in plan.families]
        self.planned: _Planned = [*chain.from_iterable(self._of_family), *self._partial]
        self._partial_of: dict[int, _Planned] = {}
        for one in self._partial:
            for rank in one[0]:
                self._partial_of.setdefault(rank, []).append(one)

    def every(self, rank: int) -> Iterator[_Due]:
        """All groups."""
        return chain([_alone(rank)], self.planned)

    def own(self, rank: int) -> Iterator[_Due]:
        """The groups that the rank is in."""
        families = (self._own(family, rank) for family in self._plan.families)
        return chain([_alone(rank)], *families, self._partial_of.get(rank, ()))

    def opened(self, rank: int) -> Iterator[_Due]:
        """As `open_groups` does it: partial sets, and sets whose members could not agree on a name, by all ranks."""
        families = (
            planned if family.how == "every" else self._own(family, rank)
            for family, planned in zip(self._plan.families, self._of_family)
        )
        return chain([_alone(rank)], *families, self._partial)

    def _own(self, family: Family, rank: int) -> _Planned:
        group = family.group_of(rank)
        if group is None or family.is_repeat(group):
            return []
        return [_due(PlannedGroup(family.names, group.index, group.ranks, family.created > 0))]


def _due(one: PlannedGroup) -> _Due:
    return tuple(one.ranks), one.new, f"{one.names[0]} group {one.index}"


def _alone(rank: int) -> _Due:
    return (rank,), False, f"rank {rank} alone"


def _ranks_of(plan: CreationPlan) -> Iterable[int]:
    layout = plan.layout
    charts = [layout] if isinstance(layout, Mesh) else list(layout.charts.values())
    ranges = [range(mesh.first_rank, mesh.first_rank + mesh.world_size) for mesh in charts]
    return dict.fromkeys(chain.from_iterable(ranges))


def _parting(made: list[Call], planned: Iterator[_Due]) -> _Parting | None:
    """Where one rank's calls leave what is planned for it; groups without a communicator may be left out."""
    for number, call in enumerate(made):
        for group in call:
            due = next((one for one in planned if one[1] or one[0] == group), None)
            if due is None or due[0] != group:
                return number, due, call
    left = next((one for one in planned if one[1]), None)
    return (len(made), left, None) if left else None


def _listed(groups: list[list[int]]) -> str:
    return ", ".join(shown(group) for group in groups[:_SHOWN]) + (", ..." if len(groups) > _SHOWN else "")


def _who(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN])) + (f", ... ({len(ranks)} in all)" if len(ranks) > _SHOWN else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def _told(call: Call | None) -> str:
    if call is None:
        return "nothing"
    if len(call) == 1:
        return shown(list(call[0]))
    return "a partition: " + shown([list(group) for group in call])


def _plain(call: Call | None) -> list[Any] | None:
    if call is None:
        return None
    return list(call[0]) if len(call) == 1 else [list(group) for group in call]
