"""One exchange of all ranks before they make groups: the number of the opening, and whether members may act alone.

The number is given when all have come, and by rank 0 alone, so an attempt that failed on some ranks leaves nothing on
which the next one could part.
"""

from __future__ import annotations

import json
import time
from threading import Event
from typing import Any

from rankatlas.errors import JobError, RankSilent
from rankatlas.live.jobs import Store, current_job, seconds_given, store_may_go, within
from rankatlas.live.rounds import GRACE, Round

_TOPIC = "rankatlas/groups"


def number_opening(history: str, timeout: float, engine: str) -> tuple[int, bool]:
    """The number of this opening in the job, from 1, and whether all ranks gave the same `history`.

    Cost: about eight messages per rank.  Raises RankSilent, JobError.
    """
    started = time.monotonic()
    timeout = seconds_given(timeout)
    job = current_job(engine)
    store = job.store()
    if store is None:
        return 1, True
    verdict = within(
        timeout + GRACE + 1, lambda stop: _verdict(store, job.rank, job.world_size, history, started + timeout, stop)
    )
    if "conflict" in verdict:
        raise JobError(verdict["conflict"])
    if "missing" in verdict:
        who = verdict["missing"]
        raise RankSilent(
            f"{'ranks ' + ', '.join(map(str, who)) if who else 'some ranks'} agreed on the plan, and did not come to"
            f" open it within {timeout:g} s; let all ranks call open_groups again, or end the job",
            ranks=who,
        )
    return int(verdict["number"]), bool(verdict["alike"])


def _verdict(store: Store, rank: int, world: int, history: str, deadline: float, stop: Event) -> dict[str, Any]:
    with store_may_go(rank):
        round_ = Round(store, _TOPIC, rank, world, stop=stop)
        try:
            round_.say(history.encode(), history)
            if rank:
                found: dict[str, Any] = json.loads(round_.hear(max(deadline - time.monotonic(), 0) + GRACE))
                return found
            verdict = _judged(round_, store, world, history, deadline)
            round_.answer(json.dumps(verdict).encode(), world - 1 - len(verdict.get("missing", ())))
            return verdict
        finally:
            round_.end()


def _judged(round_: Round, store: Store, world: int, history: str, deadline: float) -> dict[str, Any]:
    full = round_.full(deadline - time.monotonic())
    conflict, gone = round_.conflict(), round_.gave_up()
    if conflict is not None:
        return {"conflict": conflict}
    if gone is not None:
        return {"missing": [gone]}
    if not full:
        return {"missing": round_.missing(deadline + GRACE / 2)[0]}
    return {"number": store.count(f"{_TOPIC}/openings"), "alike": round_.how_many(history) == world}
