"""One agreement before any group is made: every rank says which layout it is about to build, and a difference is named.

Each rank publishes one key to the store all share, and counts itself among those who say the same.  Where that count
is the world rank 0 need read nothing more; else it reads all keys.  It publishes one verdict, which the others read.
So a rank sends and receives a handful of messages, whatever the world, and rank 0 too while all is well.
"""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from threading import Event
from typing import Any

from rankatlas.errors import InputError, JobError, LayoutMismatch, RankSilent, shown
from rankatlas.live.fields import flat, layout_fields
from rankatlas.live.jobs import Store, current_job, refuse_other_world, seconds_given, store_may_go, within
from rankatlas.live.rounds import GRACE, Round

_TOPIC = "rankatlas/agree"
_SHOWN = 8
_MOST_BYTES = 1 << 18  # of the fields of a rank; far longer messages break the store of the job
_MOST_CAMPS = 64  # of ranks that say the same, told in a verdict
_LONGEST = 120  # characters of a value in a verdict
_MOST_DIFFERENT = 100  # fields told of those who say the same


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

    With Paddle it may also come before initialisation, in processes that its launcher started: where the training
    arguments call `fleet.init` by themselves, that is the only moment.

    `layout` is a mesh, an atlas, notation, a dict, or the framework's own arguments; `extra` anything else that must be
    the same everywhere (batch sizes, seeds, versions, the hash of a configuration).  `timeout` is in seconds; it ends
    within timeout + 5 s whatever happens.  Cost: about eight messages per rank, on rank 0 too while all agree; after a
    difference, or a silence, rank 0 reads one key per rank.

    Raises LayoutMismatch on every live rank (odd ranks, their hosts, what differs field by field), RankSilent (ranks
    that did not come, or rank 0 that did not answer), JobError (no job, a timeout that is none, another job on the
    same store, or a mesh, an atlas or notation that all agree on and that has other ranks than the job), InputError.

        from rankatlas import live
        live.agree("pp=2 dp=2 tp=2", extra={"seed": 1234})
    """
    started = time.monotonic()
    timeout = seconds_given(timeout)
    if extra is not None and not isinstance(extra, Mapping):
        raise InputError(f"extra is a dict of what must be the same everywhere, not {shown(extra)}")
    fields = {**layout_fields(layout), **{f"extra.{name}": value for name, value in flat(extra or {}).items()}}
    size = len(json.dumps(fields))
    if size > _MOST_BYTES:
        raise InputError(f"{size:,} bytes to agree on are too many, {_MOST_BYTES:,} the most: hash what is long")
    job = current_job(engine, groups=False)
    store = job.store()
    if store is None:
        reason = f"the store of {job.name}'s backend cannot be written"
        return Agreement(fields, job.world_size, time.monotonic() - started, reason)
    verdict = within(
        timeout + GRACE + 1, lambda stop: _verdict(store, job.rank, job.world_size, fields, started + timeout, stop)
    )
    _raise_if_bad(verdict, job.rank, timeout)
    refuse_other_world(layout, job.world_size)
    return Agreement(fields, job.world_size, time.monotonic() - started)


def _verdict(
    store: Store, rank: int, world_size: int, fields: dict[str, Any], deadline: float, stop: Event
) -> dict[str, Any]:
    """What rank 0 has found, on every rank."""
    with store_may_go(rank):
        said = json.dumps({"host": socket.gethostname(), "fields": fields})
        digest = digest_of(fields)
        round_ = Round(store, _TOPIC, rank, world_size, stop=stop)
        try:
            round_.say(said.encode(), digest)
            if rank:
                found: dict[str, Any] = json.loads(round_.hear(max(deadline - time.monotonic(), 0) + GRACE))
                return found
            verdict = judge(round_, world_size, digest, deadline)
            readers = world_size - 1 - len(verdict.get("missing", ())) if verdict else 0
            round_.answer(json.dumps(verdict).encode(), readers)
            return verdict
        finally:
            round_.end()


def digest_of(fields: dict[str, Any]) -> str:
    """What ranks count that say the same."""
    return sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def judge(round_: Round, world_size: int, digest: str, deadline: float) -> dict[str, Any]:
    """Rank 0's part: nothing where all said the same, else everybody's words, compared with those of the most."""
    full = round_.full(deadline - time.monotonic())
    conflict, gone = round_.conflict(), round_.gave_up()
    if conflict is not None:
        return {"conflict": conflict}
    if gone is not None:
        return {"missing": [gone], "asked": world_size, "of": world_size}
    if not full:
        missing, asked = round_.missing(deadline + GRACE / 2)
        if missing or asked < world_size:
            return {"missing": missing, "asked": asked, "of": world_size}
        # Everybody's word is there: somebody died between saying it and being counted, and holds nobody up.
    if round_.how_many(digest) == world_size:
        return {}
    said = [json.loads(text) for text in round_.said(max(deadline, time.monotonic() + 1))]
    texts = [json.dumps(one["fields"], sort_keys=True) for one in said]
    times = Counter(texts)
    most = max(times.values())
    # Among equally many, the camp of the lowest rank is the measure.
    measure = next(text for text in texts if times[text] == most)
    if times[measure] == world_size:
        return {}
    odd = [rank for rank, text in enumerate(texts) if text != measure]
    camps = _camps(said, texts, measure)
    return {"camps": camps, "odd": odd, "agree": times[measure], "asked": len(said), "of": world_size}


def _camps(said: list[dict[str, Any]], texts: list[str], measure: str) -> list[dict[str, Any]]:
    """Those who differ from the measure, together where they say the same, with the fields that differ."""
    expected = json.loads(measure)
    camps: dict[str, dict[str, Any]] = {}
    for rank, (one, text) in enumerate(zip(said, texts)):
        if text == measure or (text not in camps and len(camps) == _MOST_CAMPS):
            continue
        both = expected, one["fields"]
        # By what they look like: 1 and 1.0 and True are equal in Python.
        names = [
            name
            for name in {**both[0], **both[1]}
            if (name in both[0], repr(both[0].get(name))) != (name in both[1], repr(both[1].get(name)))
        ]
        different = {name: [_brief(fields, name) for fields in both] for name in names[:_MOST_DIFFERENT]}
        camp = camps.setdefault(text, {"ranks": [], "hosts": [], "fields": different})
        camp["ranks"].append(rank)
        if one["host"] not in camp["hosts"]:
            camp["hosts"].append(one["host"])
    return list(camps.values())


def _brief(fields: dict[str, Any], name: str) -> Any:
    """A value for a verdict: None where it is not given, {} for None, long ones cut and told apart by a hash."""
    if name not in fields:
        return None
    value = fields[name]
    if value is None:
        return {}
    text = json.dumps(value)
    if len(text) <= _LONGEST:
        return value
    return f"{text[:_LONGEST]}... ({sha256(text.encode()).hexdigest()[:8]})"


def _raise_if_bad(verdict: dict[str, Any], rank: int, timeout: float) -> None:
    if "conflict" in verdict:
        raise JobError(verdict["conflict"])
    if "missing" in verdict:
        raise _silent(verdict["missing"], verdict["asked"], verdict["of"], timeout)
    if "camps" in verdict:
        raise _different(verdict["camps"], verdict, rank)


def _silent(missing: list[int], asked: int, world_size: int, timeout: float) -> RankSilent:
    more = "" if asked == world_size else f" (of the first {asked} ranks; there was no time to ask for more)"
    who = f"{_ranks(missing)} of {world_size}" if missing else f"some of {world_size} ranks"
    return RankSilent(
        f"{who} did not come to the agreement within {timeout:g} s: still starting, dead, or past it already{more}",
        ranks=missing,
    )


def _different(camps: list[dict[str, Any]], verdict: dict[str, Any], rank: int) -> LayoutMismatch:
    odd, asked, world_size = verdict["odd"], verdict["asked"], verdict["of"]
    more = "" if asked == world_size else f" of the first {asked}, which there was time to ask,"
    lines = [f"ranks are about to build different layouts; {verdict['agree']} of {world_size}{more} agree"]
    for camp in camps[:_SHOWN]:
        lines.append(f"{_ranks(camp['ranks'])} on {', '.join(camp['hosts'][:_SHOWN])}:")
        for name, (expected, given) in list(camp["fields"].items())[:_SHOWN]:
            named = name if name.isprintable() and len(name) < 500 else shown(name)
            lines.append(f"  {named} is {_told(given)}, elsewhere {_told(expected)}")
    return LayoutMismatch("\n".join(lines), rank=rank, odd_ranks=odd, camps=camps)


def _told(value: Any) -> str:
    return "not given" if value is None else "None" if value == {} else shown(value)


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN])) + (f", ... ({len(ranks)} in all)" if len(ranks) > _SHOWN else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
