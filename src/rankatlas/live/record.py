"""What really runs: every group of every process, gathered once and written down."""

from __future__ import annotations

import json
import os
import socket
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from rankatlas.core import Atlas, Mesh
from rankatlas.core.border import in_order
from rankatlas.errors import InputError, JobError, LaunchError, RankSilent
from rankatlas.live.jobs import (
    Store,
    current_job,
    identity,
    is_of_world,
    layout_given,
    refuse_other_world,
    seconds_given,
    store_may_go,
    within,
)
from rankatlas.live.launch import Launch
from rankatlas.records.check import check_record
from rankatlas.records.kinds import shortest, sort_kinds
from rankatlas.records.record import LayoutRecord, made_of
from rankatlas.whole_file import whole_file

_PREFIX = "rankatlas/record"
_GRACE = 3.0  # seconds the others give rank 0 beyond the timeout
_HEARD = 1.0  # seconds rank 0 waits for the others to read


def record(
    path: str | os.PathLike[str] | None = None,
    expect: Mesh | Atlas | str | None = None,
    *,
    timeout: float = 60,
    engine: str | None = None,
) -> LayoutRecord:
    """Gather every process group of the job; rank 0 writes them to `path` as JSON, whole or not at all.

    `expect` is the layout the job should have; without it the layout is inferred from the groups.  Every rank calls
    this, at the same point; it makes no group, draws no random number and runs no collective.
    Cost: about six messages per rank; on rank 0 O(groups).

    Raises, on every rank alike, RankSilent (a rank did not come within `timeout` seconds), JobError (no job, `expect`
    has other ranks than the job, or rank 0 could not write the file: that is SourceError on rank 0).
    """
    return _recorded(path, expect, timeout, engine, any_world=False)


def _recorded(
    path: str | os.PathLike[str] | None,
    expect: Mesh | Atlas | str | None,
    timeout: float,
    engine: str | None,
    *,
    any_world: bool,
) -> LayoutRecord:
    timeout = seconds_given(timeout)
    expected = layout_given(expect)
    job = current_job(engine)
    own = {
        "rank": job.rank,
        "host": socket.gethostname(),
        "local_rank": _local_rank(),
        "device": job.device(),
        "groups": job.groups(),
    }
    store = job.store()

    def put_together(gathered: list[dict[str, Any]]) -> LayoutRecord:
        kinds = sort_kinds({one["rank"]: one["groups"] for one in gathered})
        ranks = [{key: one[key] for key in ("rank", "host", "local_rank", "device")} for one in gathered]
        if not any_world:
            refuse_other_world(expected, job.world_size)
        fitting = expected if is_of_world(expected, job.world_size) else None
        made = made_of(ranks, kinds, fitting, job.name)
        if path is not None and job.rank == 0:
            _write(made, os.fspath(path))
        return made

    if store is None:
        return put_together([own])
    return within(timeout + _GRACE + 1, lambda: _gather(store, job.rank, job.world_size, own, timeout, put_together))


def verify(
    expect: Mesh | Atlas | str, *, axes: str | Sequence[str] = (), timeout: float = 60, engine: str | None = None
) -> LayoutRecord:
    """Hold every group of the job against the layout it should have; the record of it when all is right.

    Every kind must be groups of `expect`, the order of members included.  `axes` names what must exist ("tp",
    "dp+cp"), so that a group nobody made is a fault as well.

    Raises GroupMismatch on every rank: the kind, its first wrong group, what was expected, the ranks concerned.
    Otherwise as `record`.
    """
    named = (axes,) if isinstance(axes, str) else in_order(axes, "axes")
    meant = layout_given(expect)
    if meant is None:
        raise InputError("verify needs the layout that is expected; record infers one")
    made = _recorded(None, meant, timeout, engine, any_world=True)
    check_record(made, meant, named)
    return made


def _gather(
    store: Store,
    rank: int,
    world_size: int,
    own: dict[str, Any],
    timeout: float,
    put_together: Callable[[list[dict[str, Any]]], LayoutRecord],
) -> LayoutRecord:
    """The record of what every rank said, on every rank: rank 0 reads all, and publishes what it makes of them."""
    started = time.monotonic()
    with store_may_go(rank):
        round_ = f"{_PREFIX}/{store.count(f'{_PREFIX}/calls/{rank}/{identity()}')}"
        store.set(f"{round_}/rank/{rank}", _packed({**own, "groups": [_short(one) for one in own["groups"]]}))
        if store.count(f"{round_}/arrived") == world_size:
            store.set(f"{round_}/full", b"1")
        if rank == 0:
            missing, made = _publish(store, round_, world_size, timeout, put_together)
        else:
            missing, made = _read(store, round_, rank, timeout)
    if made is None:
        waited = time.monotonic() - started
        raise RankSilent(f"ranks {missing} did not come to the record within {waited:.0f} s", ranks=missing)
    return made


def _publish(
    store: Store,
    round_: str,
    world_size: int,
    timeout: float,
    put_together: Callable[[list[dict[str, Any]]], LayoutRecord],
) -> tuple[list[int], LayoutRecord | None]:
    """Rank 0's part: who is missing, or the record; whatever comes of it is published."""
    keys = [f"{round_}/rank/{other}" for other in range(world_size)]
    full = store.wait([f"{round_}/full"], timeout)
    missing = [] if full else [other for other, key in enumerate(keys) if not store.has(key)]
    if store.has(f"{round_}/gave_up"):
        missing = [int(store.get(f"{round_}/gave_up"))]
    made = refused = None
    try:
        made = None if missing else put_together([_long(_unpacked(text)) for text in store.get_all(keys)])
    except Exception as error:  # whatever it is, the others must hear of it
        refused = error
    readers = world_size - 1 - len(missing)
    said = {"missing": missing, "record": made and made.to_dict(), "refused": refused and str(refused)}
    store.set(f"{round_}/all", _packed({**said, "readers": readers}))
    if readers:
        # This process may end now, or fail at what it found, and keep the store: let the others read first.
        store.wait([f"{round_}/heard"], _HEARD)
    if refused:
        raise refused
    return missing, made


def _read(store: Store, round_: str, rank: int, timeout: float) -> tuple[list[int], LayoutRecord | None]:
    """The part of the others: what rank 0 published."""
    if not store.wait([f"{round_}/all"], timeout + _GRACE):
        store.set(f"{round_}/gave_up", str(rank).encode())  # whoever comes later must not count on this rank
        raise RankSilent(f"rank 0 gathered nothing within {timeout + _GRACE:g} s", ranks=[0])
    found = _unpacked(store.get(f"{round_}/all"))
    if store.count(f"{round_}/read") == found["readers"]:
        store.set(f"{round_}/heard", b"1")
    if found["refused"]:
        raise JobError(found["refused"])
    return found["missing"], None if found["missing"] else LayoutRecord.from_dict(found["record"])


def _short(group: dict[str, Any]) -> dict[str, Any]:
    """A group as it is sent: most are progressions, whatever their size."""
    members = shortest(group["ranks"])
    if not isinstance(members, range):
        return group
    return {**group, "ranks": None, "range": [members.start, members.stop, members.step]}


def _long(said: dict[str, Any]) -> dict[str, Any]:
    groups = [{**one, "ranks": range(*one["range"])} if "range" in one else one for one in said["groups"]]
    return {**said, "groups": groups}


def _packed(value: object) -> bytes:
    """JSON, compressed: lists of ranks shrink to a tenth, and every rank fetches the whole record from one store."""
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 1)


def _unpacked(packed: bytes) -> Any:
    return json.loads(zlib.decompress(packed))


def _local_rank() -> int | None:
    """The local rank the launcher gave, where it gave one."""
    try:
        return Launch.detect().local_rank
    except LaunchError:
        return None  # a job may be started by hand; the record is none the worse


def _write(made: LayoutRecord, path: str) -> None:
    with whole_file(path) as file:
        json.dump(made.to_dict(), file)
        file.write("\n")
