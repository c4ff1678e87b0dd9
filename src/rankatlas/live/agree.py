"""One agreement before any group is made: every rank says which layout it is about to build, and a difference is named.

Each rank publishes one key to the store all share; rank 0 reads them all and publishes one verdict, which the others
read.  So a rank sends and receives a handful of messages, whatever the world.
"""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from typing import Any

from rankatlas.errors import JobError, LayoutMismatch, RankSilent, shown
from rankatlas.live.fields import flat, layout_fields
from rankatlas.live.jobs import Store, current_job, identity

_PREFIX = "rankatlas/agree"
_GRACE = 3.0  # seconds the others give rank 0 beyond the timeout, for its verdict to arrive
_SHOWN = 8


class Agreement:
    """What all ranks agreed on: `fields`, the number of ranks, and the seconds it took.

    `skipped` says why there was nothing to ask (torch's fake backend has one process only), else it is None.
    """

    __slots__ = ("fields", "seconds", "skipped", "world_size")

    def __init__(self, fields: dict[str, Any], world_size: int, seconds: float, skipped: str | None = None) -> None:
        self.fields = fields
        self.world_size = world_size
        self.seconds = seconds
        self.skipped = skipped

    def __repr__(self) -> str:
        state = f"skipped: {self.skipped}" if self.skipped else f"{self.seconds:.3f} s"
        return f"Agreement({len(self.fields)} fields, {self.world_size} ranks, {state})"


def agree(
    layout: object, *, extra: dict[str, Any] | None = None, timeout: float = 60, engine: str | None = None
) -> Agreement:
    """Make sure that every rank is about to build the same layout; call it after initialisation, before any group.

    `layout` is a mesh, an atlas, notation, a dict, or the framework's own arguments; `extra` anything else that must be
    the same everywhere (batch sizes, seeds, versions, the hash of a configuration).  `timeout` is in seconds; it ends
    within timeout + 5 s whatever happens.  Cost: about six messages per rank; rank 0 reads one per rank.

    Raises LayoutMismatch on every live rank (odd ranks, their hosts, what differs field by field), RankSilent (ranks
    that did not come, or rank 0 that did not answer), JobError (no job, or another job on the same store).

        from rankatlas import live
        live.agree("pp=2 dp=2 tp=2", extra={"seed": 1234})
    """
    started = time.monotonic()
    if not timeout > 0:
        raise JobError(f"timeout is a number of seconds above 0, not {shown(timeout)}")
    fields = {**layout_fields(layout), **{f"extra.{name}": value for name, value in flat(extra or {}).items()}}
    job = current_job(engine)
    store = job.store()
    if store is None:
        reason = f"the store of {job.name}'s backend cannot be written"
        return Agreement(fields, job.world_size, time.monotonic() - started, reason)
    try:
        round_ = _announce(store, job.rank, fields)
        if job.rank == 0:
            verdict = _judge(store, round_, job.world_size, timeout)
            store.set(f"{round_}/verdict", json.dumps(verdict).encode())
        else:
            verdict = _await_verdict(store, round_, timeout)
    except (OSError, RuntimeError) as error:
        if isinstance(error, JobError):
            raise
        raise RankSilent(
            f"rank {job.rank} lost the store of the job ({error}); rank 0, or whoever keeps it, is gone", ranks=[0]
        ) from None
    _raise_if_bad(verdict, job.rank)
    return Agreement(fields, job.world_size, time.monotonic() - started)


def _announce(store: Store, rank: int, fields: dict[str, Any]) -> str:
    """Publish what this rank is about to build; the prefix of this round of agreement."""
    me = identity()
    # Rounds are counted per process, so that nothing is kept here between calls.
    ordinal = store.count(f"{_PREFIX}/calls/{rank}/{me}")
    round_ = f"{_PREFIX}/{ordinal}"
    if store.count(f"{round_}/claims/{rank}") > 1:
        other = store.get(f"{round_}/who/{rank}").decode() if store.wait([f"{round_}/who/{rank}"], 1.0) else "a process"
        raise JobError(
            f"rank {rank} was announced before, by {other}, and now by {me}: a second job uses the same store, or a"
            " restarted one kept it; give each job a port, or each restart a prefix, of its own"
        )
    store.set(f"{round_}/who/{rank}", me.encode())
    said = {"host": socket.gethostname(), "fields": fields}
    store.set(f"{round_}/rank/{rank}", json.dumps(said).encode())
    return round_


def _judge(store: Store, round_: str, world_size: int, timeout: float) -> dict[str, Any]:
    """Rank 0's part: everybody's words, compared with those of the most."""
    keys = [f"{round_}/rank/{rank}" for rank in range(world_size)]
    if not store.wait(keys, timeout):
        missing = [rank for rank, key in enumerate(keys) if not store.has(key)]
        if missing:
            return {"missing": missing, "world_size": world_size, "timeout": timeout}
    said = [json.loads(text) for text in store.get_all(keys)]
    texts = [json.dumps(one["fields"], sort_keys=True) for one in said]
    times = Counter(texts)
    if len(times) == 1:
        return {}
    most = max(times.values())
    # Among equally many, the camp of the lowest rank is the measure.
    measure = next(text for text in texts if times[text] == most)
    return {"camps": _camps(said, texts, measure), "expected_ranks": times[measure], "world_size": world_size}


def _camps(said: list[dict[str, Any]], texts: list[str], measure: str) -> list[dict[str, Any]]:
    """Those who differ from the measure, together where they say the same, with the fields that differ."""
    expected = json.loads(measure)
    camps: dict[str, dict[str, Any]] = {}
    for rank, (one, text) in enumerate(zip(said, texts)):
        if text == measure:
            continue
        names = [name for name in {**expected, **one["fields"]} if expected.get(name) != one["fields"].get(name)]
        different = {name: [expected.get(name), one["fields"].get(name)] for name in names}
        camp = camps.setdefault(text, {"ranks": [], "hosts": [], "fields": different})
        camp["ranks"].append(rank)
        if one["host"] not in camp["hosts"]:
            camp["hosts"].append(one["host"])
    return list(camps.values())


def _await_verdict(store: Store, round_: str, timeout: float) -> dict[str, Any]:
    if store.wait([f"{round_}/verdict"], timeout + _GRACE):
        found: dict[str, Any] = json.loads(store.get(f"{round_}/verdict"))
        return found
    came = store.has(f"{round_}/rank/0")
    raise RankSilent(
        f"rank 0 gave no verdict within {timeout:g} s: "
        + ("it announced its layout and then fell silent" if came else "it never announced its layout"),
        ranks=[0],
    )


def _raise_if_bad(verdict: dict[str, Any], rank: int) -> None:
    if "missing" in verdict:
        missing = verdict["missing"]
        raise RankSilent(
            f"{_ranks(missing)} of {verdict['world_size']} did not come to the agreement within"
            f" {verdict['timeout']:g} s: still starting, dead, or past it already",
            ranks=missing,
        )
    if "camps" not in verdict:
        return
    camps = verdict["camps"]
    odd = sorted(rank for camp in camps for rank in camp["ranks"])
    agreeing = f"{verdict['expected_ranks']} of {verdict['world_size']} agree"
    lines = [f"ranks are about to build different layouts; {agreeing}"]
    for camp in camps[:_SHOWN]:
        lines.append(f"{_ranks(camp['ranks'])} on {', '.join(camp['hosts'][:_SHOWN])}:")
        for name, (expected, given) in list(camp["fields"].items())[:_SHOWN]:
            lines.append(f"  {name} is {_told(given)}, elsewhere {_told(expected)}")
    raise LayoutMismatch("\n".join(lines), rank=rank, odd_ranks=odd, camps=camps)


def _told(value: Any) -> str:
    return "not given" if value is None else repr(value)


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN])) + (f", ... ({len(ranks)} in all)" if len(ranks) > _SHOWN else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
