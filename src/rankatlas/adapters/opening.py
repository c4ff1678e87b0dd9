"""A plan carried out: the same steps for every framework, which tells only how one group is made and closed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol

from rankatlas.core import Group
from rankatlas.creation import CreationPlan, Family, PlannedGroup
from rankatlas.creation.families import addresses, label
from rankatlas.creation.plan import axes_named
from rankatlas.errors import HandleError, InputError, RankatlasError, shown

_LOG = logging.getLogger("rankatlas")
_AGREEMENT = "rankatlas.live"  # stands above the adapters, so it is named and not imported
_OPENINGS = "rankatlas.live.openings"  # so do these
_JOBS = "rankatlas.live.jobs"
_MOST_NAMED = 100  # partial sets whose groups are told to other ranks one set by one
_LISTED = 80  # characters of the groups of a set that are told one by one


class MakesGroups(Protocol):
    """How one framework makes groups.  A communicator is whatever its collectives take."""

    name: str
    rank: int
    world_size: int

    def said(self) -> dict[str, Any]:
        """What must be the same on all ranks for groups to find each other: calls made so far, backend."""

    def history(self) -> str | None:
        """What must be the same on all ranks for members to make a group alone; None where nothing is exchanged."""

    def begin(self, opening: int, same_history: bool) -> None:
        """All ranks have agreed, and this is the opening of that number; told where `history` was exchanged."""

    def alike(self) -> bool:
        """Whether members alone can make a group now; asked on every rank, after `begin`, with one answer."""

    def alive(self) -> bool:
        """Whether the job in which groups were made is still there."""

    def by_members(self, family: Family) -> bool:
        """Whether, all being alike, the groups of `family` may be made by their members alone."""

    def world(self) -> Any:
        """The communicator of all ranks."""

    def alone(self) -> Any:
        """A communicator of this rank by itself; every rank makes its own, and waits for nobody."""

    def make_own(self, family: Family, group: Group, description: str) -> Any:
        """The communicator of the group this rank is in; every rank of `family` calls this for its own group."""

    def make(self, ranks: list[int], description: str, name: str) -> Any:
        """The communicator of `ranks`, None where this rank is no member; every rank calls this."""

    def close(self, communicator: Any) -> None:
        """End a communicator that was made here."""


class Handles:
    """Live communicators of one rank, by the names of a plan: `handles["tp"]`, `handles["dp", "cp"]`.

    A context manager: leaving it closes what was made.  `agreement` is what `live.agree` said (its `skipped` tells why
    there was nobody to ask), `calls` how many creation calls this rank made, `how` "own" or "every" (each rank made the
    groups it is in, or all).  An axis of size 1 gives a communicator of this rank alone, the whole world the one that
    is there.

    `handles[name]` raises HandleError where this rank is in no group of that name, or in several (see `all`): a name
    never stands for None, which frameworks take for the whole world.  So it does once the handles are closed, or the
    job they were opened in was torn down.
    """

    __slots__ = ("_closed", "_engine", "_made", "_of", "agreement", "calls", "how", "plan", "rank")

    def __init__(self, plan: CreationPlan, rank: int, agreement: Any, engine: MakesGroups) -> None:
        self._closed = False
        self._engine = engine
        self.plan = plan
        self.rank = rank
        self.agreement = agreement
        self.calls = 0
        self.how = "own"
        self._of: dict[str, list[tuple[Sequence[int], Any]]] = {}
        self._made: list[tuple[MakesGroups, Any]] = []

    def __getitem__(self, name: str | tuple[str, ...]) -> Any:
        found = self.all(name)
        if len(found) != 1:
            told = f"is in {len(found)} groups of" if found else "is in no group of"
            hint = "handles.all(…) gives them in the order of the plan" if found else "ask `name in handles` first"
            raise self._error(f"rank {self.rank} {told} {shown(name)}; {hint}", name)
        return found[0]

    def __contains__(self, name: object) -> bool:
        try:
            return bool(self.all(name))  # type: ignore[arg-type]
        except HandleError:
            return False

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def all(self, name: str | tuple[str, ...]) -> list[Any]:
        """Every communicator of that name that this rank is in, in the order of the plan: several only where pairs are.

        Raises HandleError for a name that is not in the plan.
        """
        return [communicator for _, communicator in self._of[self._name(name)]]

    def ranks(self, name: str | tuple[str, ...]) -> list[Sequence[int]]:
        """The members of each of these communicators, ascending."""
        return [ranks for ranks, _ in self._of[self._name(name)]]

    def group(self, name: str | tuple[str, ...]) -> Group:
        """The group of this rank over axes of the plan, as a value: `index`, `size`, `ranks`, `group_rank`.

        It stays after the handles are closed.  Raises HandleError.
        """
        label_ = self._label(name)
        partial = any(one.name == label_ for one in self.plan.partial)
        group = None if partial else self.plan.family(label_).group_of(self.rank)
        if group is None:
            raise self._error(
                f"rank {self.rank} is in no group over axes of the plan by the name of {shown(name)}", name
            )
        return group

    def refuse_closed(self) -> None:
        """Raise HandleError where these handles were closed, or the job was torn down: the names stand for nothing."""
        if self._closed or not self._engine.alive():
            told = "are closed" if self._closed else "are closed with their job, which was torn down"
            raise self._error(f"the handles of {self.plan.layout} {told}; open the plan again: open_groups(plan)", None)

    def close(self) -> None:
        """Close every communicator that was made, the last one first; a second time does nothing."""
        self._closed = True
        while self._made:
            engine, communicator = self._made.pop()
            engine.close(communicator)

    def __enter__(self) -> Handles:
        self.refuse_closed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _name(self, name: Any) -> str:
        self.refuse_closed()
        return self._label(name)

    def _label(self, name: Any) -> str:
        if isinstance(name, str) and name in self._of:
            return str(name)
        try:
            wanted = label(addresses(self.plan.layout, axes_named(name)))
        except InputError as error:
            raise self._error(
                f"no group {shown(name)} in this plan, which has {self._names()}: {error}", name
            ) from None
        if wanted not in self._of:
            raise self._error(f"no group {shown(wanted)} in this plan, which has {self._names()}", name)
        return wanted

    def _names(self) -> str:
        return ", ".join(self._of)

    def _error(self, message: str, name: object) -> HandleError:
        return HandleError(message, name=name, known=tuple(self._of))

    def __repr__(self) -> str:
        return f"Handles(rank {self.rank} of {str(self.plan.layout)!r}: {', '.join(self._of)})"


def open_plan(engine: MakesGroups, plan: CreationPlan, wait: float) -> Handles:
    """The communicators of `plan`, made by `engine`, once all ranks have agreed on it within `wait` seconds.

    What was made is closed again where a later group fails.
    """
    if not isinstance(plan, CreationPlan):
        raise InputError(
            f"groups are opened from a CreationPlan, not from {shown(plan)}; CreationPlan(mesh, [('tp',)])"
        )
    wait = import_module(_JOBS).seconds_given(wait, "wait")
    agreement = import_module(_AGREEMENT).agree(
        plan.layout,
        extra={**_agreed_on(plan), **engine.said()},
        timeout=wait,
        engine=engine.name,
    )
    if agreement.skipped:
        _LOG.info("rankatlas: no agreement before groups are made: %s", agreement.skipped)
    import_module(_JOBS).refuse_other_world(plan.layout, engine.world_size)
    history = engine.history()
    if history is not None:
        engine.begin(*import_module(_OPENINGS).number_opening(history, wait, engine.name))
    handles = Handles(plan, engine.rank, agreement, engine)
    try:
        _make_all(engine, handles)
    except BaseException as error:
        if isinstance(error, Exception):  # an interrupt must not wait for peers
            _close_quietly(handles)
        raise
    return handles


def _agreed_on(plan: CreationPlan) -> dict[str, Any]:
    """What of a plan, beside its layout, must be the same on all ranks; whatever differs goes by a name of its own."""
    told: dict[str, Any] = {"axes": list(map(label, plan.axes))}
    if len(plan.partial) > _MOST_NAMED:
        told["partial_sets"] = f"{len(plan.partial)} sets ({plan.fingerprint()[:16]})"
    elif plan.partial:
        told["partial_sets"] = [one.name for one in plan.partial]  # their order is that of creation
        told["partial"] = {one.name: _groups_told(one.groups) for one in plan.partial}
    return told


def _groups_told(groups: Sequence[Sequence[int]]) -> Any:
    """The groups of a partial set where they are few, else how many, the first, the last, and a digest."""
    listed = list(map(list, groups))
    text = json.dumps(listed)
    if len(text) <= _LISTED:
        return listed
    digest = sha256(text.encode()).hexdigest()[:16]
    return f"{len(listed)} groups, {shown(listed[0])} to {shown(listed[-1])} ({digest})"


def _close_quietly(handles: Handles) -> None:
    try:
        handles.close()
    except (RankatlasError, RuntimeError, ValueError) as error:
        _LOG.warning("rankatlas: a group could not be closed: %s", error)


def _make_all(engine: MakesGroups, handles: Handles) -> None:
    plan, rank = handles.plan, engine.rank
    own = engine.alike()
    handles.how = "own" if own else "every"
    handles._of.update({name: [] for name in plan.names})
    made: dict[tuple[int, ...], Any] = {}
    everybody = (plan.layout.first_rank, plan.layout.world_size)
    if plan.has_ranks_alone:  # on every rank, also where a rank is in no such group: all make equally many calls
        handles.calls += 1
        handles._made.append((engine, engine.alone()))
        made[rank,] = handles._made[-1][1]
    for family in plan.families:
        group = family.group_of(rank)
        if family.created:
            _make_family(engine, handles, family, group, made, own)
        if group is not None:
            communicator = engine.world() if family.how == "world" else made[tuple(group.ranks)]
            for name in family.names:
                handles._of[name].append((group.ranks, communicator))
    for one in plan.partial_groups():
        if one.new:
            _made(engine, handles, made, one.ranks, engine.make(list(one.ranks), _described(one), one.names[0]))
    for partial in plan.partial:
        for ranks in partial.of(rank):
            communicator = engine.world() if (ranks[0], len(ranks)) == everybody else made[ranks]
            handles._of[partial.name].append((ranks, communicator))


def _make_family(
    engine: MakesGroups,
    handles: Handles,
    family: Family,
    group: Group | None,
    made: dict[tuple[int, ...], Any],
    own: bool,
) -> None:
    if own and family.how == "own" and engine.by_members(family):
        if group is not None:
            described = f"{family.label} group {group.index} of the plan"
            _made(engine, handles, made, group.ranks, engine.make_own(family, group, described))
        return
    for one in family.planned():
        _made(engine, handles, made, one.ranks, engine.make(list(one.ranks), _described(one), family.label))


def _made(
    engine: MakesGroups, handles: Handles, made: dict[tuple[int, ...], Any], ranks: Iterable[int], communicator: Any
) -> None:
    handles.calls += 1
    if communicator is not None:
        handles._made.append((engine, communicator))
        made[tuple(ranks)] = communicator


def _described(group: PlannedGroup) -> str:
    return f"{group.names[0]} group {group.index} of the plan"
