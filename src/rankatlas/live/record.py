"""What really runs: every group of every process, gathered once and written down."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from typing import Any

from rankatlas.core import Atlas, Mesh, parse_layout
from rankatlas.errors import LaunchError, RankSilent
from rankatlas.live.jobs import Store, current_job, identity
from rankatlas.live.launch import Launch
from rankatlas.records.check import check_record
from rankatlas.records.kinds import sort_kinds
from rankatlas.records.record import LayoutRecord, made_of
from rankatlas.whole_file import whole_file

_PREFIX = "rankatlas/record"


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
    Cost: about four messages per rank; on rank 0 O(groups).

    Raises RankSilent (a rank did not come within `timeout` seconds), JobError.
    """
    expected = parse_layout(expect) if isinstance(expect, str) else expect
    job = current_job(engine)
    own = {
        "rank": job.rank,
        "host": socket.gethostname(),
        "local_rank": _local_rank(),
        "device": job.device(),
        "groups": job.groups(),
    }
    gathered = _gather(job.store(), job.rank, job.world_size, own, timeout)
    kinds = sort_kinds({one["rank"]: one["groups"] for one in gathered})
    ranks = [{key: one[key] for key in ("rank", "host", "local_rank", "device")} for one in gathered]
    made = made_of(ranks, kinds, expected, job.name)
    if path is not None and job.rank == 0:
        _write(made, os.fspath(path))
    return made


def verify(
    expect: Mesh | Atlas | str, *, axes: Sequence[str] = (), timeout: float = 60, engine: str | None = None
) -> LayoutRecord:
    """Hold every group of the job against the layout it should have; the record of it when all is right.

    Every kind must be groups of `expect`, the order of members included.  `axes` names what must exist ("tp",
    "dp+cp"), so that a group nobody made is a fault as well.

    Raises GroupMismatch on every rank: the kind, its first wrong group, what was expected, the ranks concerned.
    Otherwise as `record`.
    """
    made = record(expect=expect, timeout=timeout, engine=engine)
    if made.layout is not None:
        check_record(made, made.layout, axes)
    return made


def _gather(
    store: Store | None, rank: int, world_size: int, own: dict[str, Any], timeout: float
) -> list[dict[str, Any]]:
    """What every rank said, on every rank: rank 0 reads all, and publishes them together."""
    if store is None:
        return [own]
    round_ = f"{_PREFIX}/{store.count(f'{_PREFIX}/calls/{rank}/{identity()}')}"
    started = time.monotonic()
    store.set(f"{round_}/rank/{rank}", json.dumps(own).encode())
    if rank == 0:
        keys = [f"{round_}/rank/{other}" for other in range(world_size)]
        missing = [] if store.wait(keys, timeout) else [one for one, key in enumerate(keys) if not store.has(key)]
        said = [] if missing else [json.loads(text) for text in store.get_all(keys)]
        store.set(f"{round_}/all", json.dumps({"missing": missing, "said": said}).encode())
    else:
        if not store.wait([f"{round_}/all"], timeout + 3):
            raise RankSilent(f"rank 0 gathered nothing within {timeout:g} s", ranks=[0])
        found = json.loads(store.get(f"{round_}/all"))
        missing, said = found["missing"], found["said"]
    if missing:
        waited = time.monotonic() - started
        raise RankSilent(f"ranks {missing} did not come to the record within {waited:.0f} s", ranks=missing)
    return list(said)


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
