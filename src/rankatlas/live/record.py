"""What really runs: every group of every process, gathered once and written down."""

from __future__ import annotations

import json
import os
import socket
import time
import zlib
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

from rankatlas.core import Atlas, Mesh
from rankatlas.core.border import in_order
from rankatlas.creation import CreationPlan
from rankatlas.errors import InputError, JobError, LaunchError, RankSilent, shown
from rankatlas.live.jobs import (
    Store,
    current_job,
    expected_given,
    is_of_world,
    refuse_other_world,
    seconds_given,
    store_may_go,
    within,
)
from rankatlas.live.launch import Launch
from rankatlas.live.rounds import GRACE, Round
from rankatlas.records.check import check_record
from rankatlas.records.kinds import shortest, sort_kinds
from rankatlas.records.record import LayoutRecord, made_of
from rankatlas.whole_file import whole_file

_TOPIC = "rankatlas/record"


def record(
    path: str | os.PathLike[str] | None = None,
    expect: Mesh | Atlas | CreationPlan | str | None = None,
    *,
    timeout: float = 60,
    engine: str | None = None,
) -> LayoutRecord:
    """Gather every process group of the job; rank 0 writes them to `path` as JSON, whole or not at all.

    `expect` is the layout the job should have, or a `CreationPlan`, by whose partial sets groups are named, too;
    without it the layout is inferred from the groups.  Every rank calls
    this, at the same point; it makes no group, draws no random number and runs no collective.
    Cost: about six messages per rank; on rank 0 O(groups).

    Raises, on every rank alike, RankSilent (a rank did not come within `timeout` seconds), JobError (no job, `expect`
    has other ranks than the job, or rank 0 could not write the file: that is SourceError on rank 0).
    """
    return _recorded(path, expect, timeout, engine, any_world=False)


def _recorded(
    path: str | os.PathLike[str] | None,
    expect: Mesh | Atlas | CreationPlan | str | None,
    timeout: float,
    engine: str | None,
    *,
    any_world: bool,
) -> LayoutRecord:
    timeout = seconds_given(timeout)
    expected = expected_given(expect)
    layout = expected.layout if isinstance(expected, CreationPlan) else expected
    if path is not None and not (isinstance(path, (str, os.PathLike)) and os.fspath(path)):
        raise InputError(f"path is the name of the file to write, not {shown(path)}")
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
            refuse_other_world(layout, job.world_size)
        fitting = expected if is_of_world(layout, job.world_size) else None
        made = made_of(ranks, kinds, fitting, job.name)
        if path is not None and job.rank == 0:
            _write(made, os.fspath(path))
        return made

    if store is None:
        return put_together([own])
    return within(
        timeout + GRACE + 1,
        lambda stop: _gather(store, job.rank, job.world_size, own, timeout, stop, put_together),
    )


def verify(
    expect: Mesh | Atlas | CreationPlan | str,
    *,
    axes: str | Sequence[str] = (),
    timeout: float = 60,
    engine: str | None = None,
) -> LayoutRecord:
    """Hold every group of the job against the layout it should have; the record of it when all is right.

    Every kind must be groups of `expect`, the order of members included.  `axes` names what must exist ("tp",
    "dp+cp"), so that a group nobody made is a fault as well.  Of a `CreationPlan`, which `open_groups` carries out,
    all that it creates must exist, and its partial sets are meant as the groups of its layout are.

    Raises GroupMismatch on every rank: the kind, its first wrong group, what was expected, the ranks concerned.
    Otherwise as `record`.
    """
    named = (axes,) if isinstance(axes, str) else in_order(axes, "axes")
    if not all(isinstance(name, str) for name in named):
        raise InputError(f"axes are names such as 'tp' or 'dp+cp', not {shown(axes)}")
    meant = expected_given(expect)
    if meant is None:
        raise InputError("verify needs the layout, or the plan, that is expected; record infers a layout")
    made = _recorded(None, meant, timeout, engine, any_world=True)
    check_record(made, meant, named)
    return made


def _gather(
    store: Store,
    rank: int,
    world_size: int,
    own: dict[str, Any],
    timeout: float,
    stop: Event,
    put_together: Callable[[list[dict[str, Any]]], LayoutRecord],
) -> LayoutRecord:
    """The record of what every rank said, on every rank: rank 0 reads all, and publishes what it makes of them."""
    with store_may_go(rank):
        round_ = Round(store, _TOPIC, rank, world_size, stop=stop)
        try:
            round_.say(_packed({**own, "groups": [_short(one) for one in own["groups"]]}))
            if rank == 0:
                return _publish(round_, world_size, timeout, put_together)
            found = _unpacked(round_.hear(timeout + GRACE))
        finally:
            round_.end()
    if found["silent"] is not None:
        raise RankSilent(found["refused"], ranks=found["silent"])
    if found["refused"]:
        raise JobError(found["refused"])
    return LayoutRecord.from_dict(found["record"])


def _publish(
    round_: Round, world_size: int, timeout: float, put_together: Callable[[list[dict[str, Any]]], LayoutRecord]
) -> LayoutRecord:
    """Rank 0's part: the record, or why there is none; whatever comes of it, the others hear of it."""
    try:
        made = put_together(_everyone(round_, world_size, timeout))
    except Exception as error:
        silent = error.ranks if isinstance(error, RankSilent) else None
        said = {"record": None, "silent": silent, "refused": str(error)}
        round_.answer(_packed(said), world_size - 1 - len(silent or ()))
        raise
    round_.answer(_packed({"record": made.to_dict(), "silent": None, "refused": None}), world_size - 1)
    return made


def _everyone(round_: Round, world_size: int, timeout: float) -> list[dict[str, Any]]:
    """What every rank said.  Raises RankSilent where some did not, JobError where two processes are one rank."""
    started = time.monotonic()
    full = round_.full(timeout)
    conflict, gone = round_.conflict(), round_.gave_up()
    if conflict is not None:
        raise JobError(conflict)
    missing, asked = ([gone], world_size) if gone is not None else ([], world_size)
    if gone is None and not full:
        missing, asked = round_.missing(started + timeout + GRACE / 2)
    if missing or asked < world_size:
        told = f"ranks {missing}" if missing else f"some of {world_size} ranks"
        raise RankSilent(f"{told} did not come to the record within {timeout:g} s", ranks=missing)
    found = [_long(_unpacked(text)) for text in round_.said(max(started + timeout, time.monotonic() + 1))]
    if len(found) < world_size:
        raise RankSilent(
            f"what ranks {len(found)} to {world_size - 1} said could not be read within {timeout:g} s; give more",
            ranks=[],
        )
    return found


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
