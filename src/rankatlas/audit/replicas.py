"""Tensors held against their layouts: copies that must be equal, shards that must differ."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from rankatlas.audit.compare import (
    Groups,
    Thing,
    along,
    differing,
    equal_shards,
    exchange,
    held_by_nobody,
    measure,
    of_other_layouts,
)
from rankatlas.audit.engine import ReadsTensors, checksum, current
from rankatlas.audit.meeting import together, told_to_all
from rankatlas.audit.report import AuditReport, Finding
from rankatlas.audit.tied import Ties
from rankatlas.errors import HandleError, InputError, JobError, shown
from rankatlas.tensors import TensorLayout

_Tensors = Mapping[str, Any] | Iterable[tuple[str, Any]]
_Layouts = TensorLayout | Mapping[str, TensorLayout]


def audit_replicas(
    named_tensors: _Tensors,
    layouts: _Layouts,
    handles: Any = None,
    *,
    tied: Mapping[str, Iterable[Iterable[int]]] | None = None,
    engine: str | None = None,
) -> AuditReport:
    """Whether every copy equals its replicas, and every shard differs from the others; each rank calls this.

    `named_tensors` is `model.named_parameters()`, or name → tensor; `layouts` a TensorLayout for all of them, or name →
    TensorLayout.  `handles` are the groups opened from a plan: copies are compared over the replicated axes, shards
    over the sharded ones where the plan has a group for them (a note says where not).  Without handles all ranks
    exchange with all, which is right for small jobs.  Ranks may hold different tensors, as stages do.  Shards that are
    equal by nature, such as zeros, are found, too: leave them out, or audit after the first step.

    `tied` is name → groups of ranks that hold one tensor in places which no axis tells, such as the embedding on the
    first and the last stage: {"embedding": first_and_last(mesh)}.  It goes by that name on all of them, so an output
    layer that shares the table of the input is given under the name of the table.  Its copies are compared within these
    groups besides, and not as shards.  With handles the plan needs a partial set with these groups; all ranks give the
    same ties.

    Every member of a group in which something is wrong reports it, also one that lacks the tensor; whether anything is
    wrong anywhere is known on every rank.  What one rank refuses is an error on all ranks.

    Cost: O(bytes) on this rank, read once; over all ranks an all-gather of three numbers and one of one, per group one
    of five, one of two per tensor in groups whose members hold different tensors, and one of three per tensor where
    copies differ or there are shards.  Of the first 8 tensors that differ in a group the largest difference of two
    elements is measured.

    Raises JobError (no job), InputError (a tensor without a layout or without bytes, a layout of other ranks, ranks of
    which only some give handles), HandleError (closed handles, or handles without the group of the copies).

        report = audit_replicas(model.named_parameters(), layouts, handles)
        logger.info(report.line)
        report.raise_if_bad()
    """
    reader = current(engine)

    def prepare() -> tuple[Places, int]:
        tensors = tensors_given(named_tensors, reader)
        meant = layouts_given(layouts, tensors, reader)
        ties = Ties(tied, reader.world_size)
        things = [thing_of(reader, name, meant[name], tensor) for name, tensor in tensors.items()]
        return Places(reader, things, handles, ties), sum(size_of(reader, tensor) for tensor in tensors.values())

    return compared("replicas", reader, handles, prepare)


def compared(what: str, reader: ReadsTensors, handles: Any, prepare: Callable[[], tuple[Places, int]]) -> AuditReport:
    """The report of an audit whose places, and the bytes read for them, `prepare` finds on every rank."""
    started = time.monotonic()
    places, size = together(reader, handles, what, prepare, lambda prepared: prepared[0].ties.told())
    findings = compare(reader, places)
    bad = [rank for rank, (wrong,) in enumerate(reader.gather(reader.world(), [int(bool(findings))])) if wrong]
    return AuditReport(
        what,
        findings,
        checked=places.checked,
        bytes=size,
        seconds=time.monotonic() - started,
        notes=places.notes,
        unchecked=places.unchecked,
        bad_ranks=bad,
    )


def tensors_given(given: Any, reader: ReadsTensors) -> dict[str, Any]:
    """Name → tensor.  Raises InputError."""
    pairs = list(given.items()) if isinstance(given, Mapping) else list(_pairs(given))
    found: dict[str, Any] = {}
    for name, tensor in pairs:
        if not isinstance(name, str) or not reader.is_tensor(tensor):
            raise InputError(f"named tensors are names → tensors; got {shown(name)} → {type(tensor).__name__}")
        if name in found:
            raise InputError(f"two tensors are named {shown(name)}")
        found[name] = tensor
    return found


def _pairs(given: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise InputError(f"named tensors are name → tensor, such as model.named_parameters(), not {shown(given)}")
    for pair in given:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InputError(f"named tensors are (name, tensor) pairs; got a {type(pair).__name__}")
        yield pair


def layouts_given(layouts: Any, names: Iterable[str], reader: ReadsTensors) -> dict[str, TensorLayout]:
    """Name → layout of each.  Raises InputError where one is missing, or is of other ranks than the job."""
    found: dict[str, TensorLayout] = {}
    for name in names:
        layout = layouts.get(name) if isinstance(layouts, Mapping) else layouts
        if not isinstance(layout, TensorLayout):
            raise InputError(f"no TensorLayout for {shown(name)}; give one for every name, or one for all of them")
        found[name] = layout
        mesh = layout.mesh
        if (mesh.first_rank, mesh.world_size) != (0, reader.world_size):
            raise JobError(
                f"the layout of {shown(name)} is of {mesh}, and the job has {reader.world_size} ranks, from 0"
            )
    return found


class Places:
    """Where things are compared: over all ranks at once, or over the groups of `handles`.

    `copied` and `cut` are family → things, `tied` partial set → things; without handles, all are together under "".
    `over` is family → the axes of its groups, where shards are compared.
    `unchecked` is reason → how many things are compared with nobody's.  Raises HandleError (copies without a group,
    closed handles), InputError.
    """

    __slots__ = ("checked", "copied", "cut", "handles", "notes", "over", "things", "tied", "ties", "unchecked")

    def __init__(self, reader: ReadsTensors, things: list[Thing], handles: Any, ties: Ties | None = None) -> None:
        if handles is not None and not hasattr(handles, "plan"):
            raise InputError(
                f"handles are what open_groups gives, not {shown(handles)}; leave them out to exchange over all ranks"
            )
        if handles is not None:
            handles.refuse_closed()
        self.handles = handles
        self.things = things
        self.ties = ties or Ties(None, reader.world_size)
        labels = dict.fromkeys(self.ties, "") if handles is None else self.ties.labels(handles)
        self.copied: dict[str, list[Thing]] = {}
        self.cut: dict[str, list[Thing]] = {}
        self.over: dict[str, tuple[str, ...]] = {}
        self.tied: dict[str, list[Thing]] = {label: [] for label in labels.values()}
        self.checked = 0
        self.unchecked: dict[str, int] = {}
        notes: dict[str, None] = {}
        for thing in things:
            found = 0
            if thing.name in labels:
                self.tied[labels[thing.name]].append(thing)
                found += 1
            copies, shards = (along(thing.layout, axes) for axes in (thing.layout.replicated, thing.layout.sharded))
            if copies:
                family = _family(handles, thing.layout, copies, reader.rank)
                if family is None:
                    raise HandleError(
                        f"copies of {shown(thing.name)} along {'+'.join(copies)} need a group to be compared over; the"
                        f" handles have {', '.join(handles)}.  Add it to the plan (see audit.sets_for), or leave"
                        " handles out",
                        name=copies,
                        known=tuple(handles),
                    )
                self.copied.setdefault(family, []).append(thing)
                found += 1
            if shards and thing.name not in labels:
                some = _families(handles, thing.layout, shards, reader.rank)
                for family, axes in some.items():
                    self.cut.setdefault(family, []).append(thing)
                    self.over[family] = axes
                found += bool(some)
                if shards not in some.values():
                    told = ", ".join("+".join(axes) for axes in some.values())
                    how = f"only along {told}" if some else "not"
                    note = f"shards along {'+'.join(shards)} were compared {how}: the handles have no group for them"
                    notes[note.replace("were compared not", "were not compared")] = None
            self.checked += bool(found)
            if not found:
                why = (
                    f"the handles have no group along {'+'.join(shards)}"
                    if shards
                    else "no other rank has a copy or a shard of it"
                )
                self.unchecked[why] = self.unchecked.get(why, 0) + 1
        self.notes = list(notes)


def compare(reader: ReadsTensors, places: Places) -> list[Finding]:
    """What is wrong with things that have layouts; the same on every member of the group in which it is."""
    return _over_the_world(reader, places) if places.handles is None else _over_groups(reader, places)


def _over_the_world(reader: ReadsTensors, places: Places) -> list[Finding]:
    """One exchange of all ranks; each finds what is wrong anywhere with the things it knows, and tells the others."""
    copied, cut = places.copied.get("", []), places.cut.get("", [])
    everybody = list(range(reader.world_size))
    # Those that are copied along some axes may be cut along others: everybody's are needed.
    said = exchange(reader, reader.world(), [], [*dict.fromkeys([*copied, *cut])], places.things)
    if said is None:
        return held_by_nobody(places.ties, {}, places.ties.groups)
    held = dict(zip(everybody, said[0]))

    def groups(axes_of: Any) -> Any:
        return lambda layout: map(list, layout.mesh.groups(*along(layout, axes_of(layout))).ranges())

    found = differing(copied, held, groups(lambda layout: layout.replicated))
    for thing in places.tied.get("", []):
        found += differing([thing], held, _these(places.ties.groups(thing.name)), tied=True)
    measure(reader, reader.world(), everybody, held, found)
    findings = of_other_layouts(places.things, said[1], everybody) + [one for _, one in found]
    findings += equal_shards(cut, held, groups(lambda layout: layout.sharded), ())
    findings += held_by_nobody(places.ties, held, places.ties.groups)
    return told_to_all(reader, reader.world(), findings)


def _over_groups(reader: ReadsTensors, places: Places) -> list[Finding]:
    """One exchange over every group this rank is in, in the order of the plan, whether it has things for it or not.

    So ranks that hold different things, such as stages of a pipeline, still send the same messages.
    """
    findings: list[Finding] = []
    handles = places.handles
    for family in handles.plan.families:
        group = family.group_of(reader.rank)
        if family.size > 1 and group is not None:
            name = family.label
            equal, different = places.copied.get(name, []), places.cut.get(name, [])
            over = places.over.get(name, ())
            findings += _over_one(reader, handles[name], list(group.ranks), equal, different, over, places.things)
    for one in handles.plan.partial:
        if one.name in places.tied:
            for ranks, communicator in zip(handles.ranks(one.name), handles.all(one.name)):
                findings += _over_tied(reader, communicator, list(ranks), places, places.tied[one.name])
    return findings


def _over_one(
    reader: ReadsTensors,
    communicator: Any,
    ranks: list[int],
    equal: list[Thing],
    different: list[Thing],
    over: Sequence[str],
    known: Sequence[Thing],
) -> list[Finding]:
    """What is wrong within one group; its members all call this."""
    said = exchange(reader, communicator, equal, different, known)
    if said is None:
        return []
    held = dict(zip(ranks, said[0]))
    found = differing(equal, held, _these([ranks]))
    measure(reader, communicator, ranks, held, found)
    here = of_other_layouts(known, said[1], ranks) + [one for _, one in found]
    return told_to_all(reader, communicator, here + equal_shards(different, held, _these([ranks]), over))


def _over_tied(
    reader: ReadsTensors, communicator: Any, ranks: list[int], places: Places, things: list[Thing]
) -> list[Finding]:
    """What is wrong with the tied copies of one group; its members all call this."""
    names = [name for name in places.ties if ranks in places.ties.groups(name)]
    mine = [thing for thing in things if thing.name in names]
    said = exchange(reader, communicator, mine, [], ())
    if said is None:  # all hold the same
        alike = {rank: {thing.key: (0, 0) for thing in mine} for rank in ranks}
        return held_by_nobody(names, alike, lambda name: [ranks])
    held = dict(zip(ranks, said[0]))
    found = differing(mine, held, _these([ranks]), tied=True)
    measure(reader, communicator, ranks, held, found)
    here = [one for _, one in found] + held_by_nobody(names, held, lambda name: [ranks])
    return told_to_all(reader, communicator, here)


def _these(groups: list[list[int]]) -> Groups:
    """These groups, whatever the layout."""
    return lambda layout: groups


def _family(handles: Any, layout: TensorLayout, axes: tuple[str, ...], rank: int) -> str | None:
    """The name of the family whose group of `rank` has the same members, whatever its axes are called there.

    "" without handles, where all ranks are one group.
    """
    if handles is None:
        return ""
    ranks = layout.mesh.group(*axes, rank=rank).ranks
    for family in handles.plan.families:
        group = family.group_of(rank)
        if group is not None and family.size == len(ranks) and group.ranks == ranks:
            return str(family.label)
    return None


def _families(handles: Any, layout: TensorLayout, axes: tuple[str, ...], rank: int) -> dict[str, tuple[str, ...]]:
    """The families over which shards along `axes` are compared → their axes: one over all of them, else the largest.

    Shards that must all differ must differ along some of the axes, too.
    """
    found: dict[str, tuple[str, ...]] = {}
    for size in range(len(axes), 0, -1):
        for some in combinations(axes, size):
            if not any(set(some) <= set(larger) for larger in found.values()):
                family = _family(handles, layout, some, rank)
                if family is not None:
                    found[family] = some
        if handles is None:
            break
    return found


def thing_of(reader: ReadsTensors, name: str, layout: TensorLayout, tensor: Any) -> Thing:
    """A tensor with its checksums.  Cost: O(bytes)."""
    dtype, shape, content = reader.raw(tensor)
    return Thing(name, layout, checksum(dtype, shape, b""), checksum(dtype, shape, content), tensor)


def size_of(reader: ReadsTensors, tensor: Any) -> int:
    """Its bytes."""
    return len(reader.raw(tensor)[2])
