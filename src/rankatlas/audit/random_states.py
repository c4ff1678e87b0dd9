"""Random states: streams that must be the same on some ranks are, and those that must differ do."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from rankatlas.audit.compare import Thing, exchange
from rankatlas.audit.engine import ReadsTensors, current, signed
from rankatlas.audit.meeting import together, told_to_all
from rankatlas.audit.replicas import Places, compare, layouts_given
from rankatlas.audit.report import AuditReport, Finding
from rankatlas.core import Mesh
from rankatlas.errors import InputError, RandomStateError, shown
from rankatlas.seeding import RngStateTracker
from rankatlas.tensors import TensorLayout


def audit_rng(
    tracker: RngStateTracker,
    layouts: TensorLayout | Mapping[str, TensorLayout] | None = None,
    handles: Any = None,
    *,
    engine: str | None = None,
) -> AuditReport:
    """Whether the streams of a tracker are at the same place where they must be, and apart where they must; each calls.

    `layouts` says it per stream: equal along replicated axes, different along sharded ones; `handles` as in
    `audit_replicas`.  Without layouts all ranks exchange, and what is wrong whatever the layout is found: ranks with
    other streams, and two streams that draw the same numbers, on one rank or on two.  Cost: O(size of the states), and
    the messages of `audit_replicas`; nothing is drawn.  Of Paddle's streams only the seeds are compared, as its states
    are handles; a note says so.

    Raises JobError, InputError, HandleError as `audit_replicas`.
    """
    started = time.monotonic()
    reader = current(engine)

    def prepare() -> tuple[Places | None, dict[str, int], int, list[str]]:
        if not isinstance(tracker, RngStateTracker):
            raise InputError(f"random states are audited of an RngStateTracker, not of {shown(tracker)}")
        sums, size, notes = _sums(tracker)
        if layouts is None:
            return None, sums, size, notes
        meant = layouts_given(layouts, sums, reader)
        things = [Thing(name, meant[name], 0, number) for name, number in sums.items()]
        return Places(reader, things, handles), sums, size, notes

    what = "random states" if layouts is None else "random states by layouts"
    places, sums, size, notes = together(reader, None if layouts is None else handles, what, prepare)
    return AuditReport(
        "random states",
        _collisions(reader, sums) if places is None else compare(reader, places),
        checked=len(sums) if places is None else places.checked,
        bytes=size,
        seconds=time.monotonic() - started,
        notes=notes if places is None else notes + places.notes,
        unchecked={} if places is None else places.unchecked,
    )


def _sums(tracker: RngStateTracker) -> tuple[dict[str, int], int, list[str]]:
    """Stream → checksum of its state, the bytes read, notes."""
    notes = []
    try:
        streams = {name: stream["states"] for name, stream in tracker.state_dict()["streams"].items()}
    except RandomStateError:
        states = tracker.get_states_tracker()
        streams = {name: [_seeds(part) for part in parts] for name, parts in states.items()}
        notes.append("the states of Paddle are handles: of its streams only the seeds are compared")
    packed = {name: json.dumps(streams[name], sort_keys=True).encode() for name in sorted(streams)}
    found = {name: signed(blake2b(one, digest_size=8).digest()) for name, one in packed.items()}
    return found, sum(map(len, packed.values())), notes


def _seeds(state: Any) -> Any:
    if isinstance(state, (list, tuple)):
        return [_seeds(one) for one in state]
    return int(state.current_seed()) if hasattr(state, "current_seed") else repr(state)


def _collisions(reader: ReadsTensors, sums: dict[str, int]) -> list[Finding]:
    """Names that some ranks lack, and streams of two names that are at one place."""
    everybody = list(range(reader.world_size))
    anywhere = TensorLayout(Mesh(all=reader.world_size), sharded="all")
    things = [Thing(name, anywhere, 0, number) for name, number in sums.items()]
    exchanged = exchange(reader, reader.world(), [], things, things)
    if exchanged is None:
        return []
    said = exchanged[0]
    findings = []
    holders: dict[int, dict[int, list[int]]] = {}
    for rank, held in enumerate(said):
        for key, (_, number) in held.items():
            holders.setdefault(number, {}).setdefault(key, []).append(rank)
    names = {thing.key: thing.name for thing in things}
    for thing in things:
        odd = [rank for rank, held in enumerate(said) if thing.key not in held]
        if odd:
            findings.append(Finding("missing", thing.name, (), everybody, odd))
    for streams in holders.values():
        if len(streams) > 1:
            odd = sorted(dict.fromkeys(rank for ranks in streams.values() for rank in ranks))
            told = " and ".join(names.get(key, "a stream that is not on this rank") for key in streams)
            findings.append(Finding("streams equal", told, (), everybody, odd))
    return told_to_all(reader, reader.world(), findings)
