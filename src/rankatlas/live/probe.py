"""The pre-flight: every group of a plan opened on the real machine, checked by collectives, and timed."""

from __future__ import annotations

import json
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from threading import Thread
from types import MappingProxyType
from typing import Any, Protocol

from rankatlas.creation import CreationPlan, Family
from rankatlas.errors import JobError, ProbeError, RankatlasError, RankSilent, shown
from rankatlas.live.jobs import Store, current_job
from rankatlas.live.roll import Roll, Verdict, sentence

_PREFIX = "rankatlas/probe"
_TICK = 0.05  # seconds between two looks of the thread that waits
_AGREES = 6.0  # seconds by which an agreement may outlast its timeout
_FINISHES = 0.5  # seconds a rank that is asked to end has to finish what it is about to have done
_ENDED = "the launcher ended this process"
_COLLECTIVES = ("all_reduce", "all_gather")


class Probes(Protocol):
    """What a probe needs of a framework."""

    name: str
    patience: float  # seconds in which a process that its launcher asks to end should have ended

    def meet(self, rank: int, world_size: int, timeout: float) -> tuple[Store | None, int | None]:
        """The store of the job, which can be asked before all ranks have come, and the rank that keeps it, if known.

        The connection is used by nothing else.  No store where the job cannot have one.
        """

    def start(self, timeout: float) -> None:
        """Initialise the job as the launcher described it."""

    def open(self, plan: CreationPlan, timeout: float, wait: float) -> Any:
        """The handles of `plan`, whose collectives have `timeout` seconds, after an agreement within `wait`."""

    def world(self) -> Any:
        """The communicator of all ranks."""

    def backend(self) -> str:
        """What carries the messages, such as gloo or nccl."""

    def gather(self, communicator: Any, numbers: list[int]) -> list[list[int]]:
        """The numbers of every member, in the order of the group."""

    def prepare(self, communicator: Any, collective: str, size: int) -> Callable[[], None]:
        """What runs `collective` once over `size` bytes of this rank, and waits until it is done."""


# Framework → its adapter for probes.
ENGINES = MappingProxyType({"torch": "rankatlas.adapters.torch_probe", "paddle": "rankatlas.adapters.paddle_probe"})


class Probe:
    """One rank's part of a probe of `plan`: `run` returns what all ranks have found, the same on each.

    `sizes` are the bytes each rank puts into a collective, `turns` how often each is timed; no single step may take
    longer than `timeout` seconds.
    """

    def __init__(
        self,
        plan: CreationPlan,
        engine: str,
        *,
        sizes: Sequence[int],
        turns: int,
        timeout: float,
        rank: int,
        local: int,
    ) -> None:
        if engine not in ENGINES:
            raise JobError(f"engine is one of {', '.join(ENGINES)}, not {shown(engine)}")
        self.plan = plan
        self.rank = rank
        self._local = local
        try:
            self._engine: Probes = import_module(ENGINES[engine]).Engine()
        except ImportError as error:
            raise JobError(
                f"a probe with {engine} needs {engine} in {sys.executable}: {error}; install it there, or give --engine"
            ) from None
        self._sizes, self._turns, self._timeout = tuple(sizes), turns, timeout
        self._during = "reaching the store of the job, which rank 0 or the launcher keeps,"
        self._moved = time.monotonic()
        self._limit = timeout
        self._roll: Roll | None = None

    def run(self, ended: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """Everything, in a thread: collectives hold no ear for signals, and a peer that hangs for no timeout either.

        `ended` tells whether somebody, mostly the launcher after a rank died, has asked this process to end.

        Raises ProbeError naming who died or hangs, and the errors of `live.agree` and `open_groups`.
        """
        outcome: list[Any] = []

        def work() -> None:
            try:
                outcome.append(self._all())
            except BaseException as error:
                outcome.append(error)

        thread = Thread(target=work, name="rankatlas probe", daemon=True)
        self._moved = time.monotonic()
        thread.start()
        asked_at: float | None = None
        while thread.is_alive():
            thread.join(_TICK)
            now = time.monotonic()
            if self._roll is not None and self._roll.verdict is not None:
                raise _error(self._roll.verdict)
            if asked_at is None and ended():
                asked_at = now
            patience = _FINISHES if self._roll is not None else min(self._engine.patience, self._timeout)
            if asked_at is not None and now - asked_at > patience and thread.is_alive():
                raise self._lost(_ENDED)  # where it could ask nobody yet, it may have come near the store meanwhile
            if now - self._moved > self._limit and thread.is_alive():
                # Whoever has not come had that time, too.
                raise self._lost(f"took longer than {self._limit:g} s", patience=0)
        found = outcome[0]
        if isinstance(found, dict):
            return found
        if isinstance(found, (RankSilent, JobError)):  # rank 0 may be the silent one: whoever is left tells
            raise self._lost(str(found), getattr(found, "ranks", ()))
        if isinstance(found, RankatlasError) or not isinstance(found, Exception):
            raise found
        raise self._lost(str(found).strip().splitlines()[0][:200] if str(found).strip() else type(found).__name__)

    def tell(self, error: ProbeError, say: Callable[[], None]) -> None:
        """Have `error` said by one of the ranks that are left; returns when it is, or a moment later."""
        verdict = self._roll.verdict if self._roll is not None else None
        if self._roll is not None and verdict is not None:
            self._roll.tell(verdict, say)
        elif self._roll is None or self.rank == next(
            (rank for rank in range(min(1, self.rank), self.plan.layout.world_size) if rank not in error.ranks),
            self.rank,
        ):  # where there is no store left to ask, which rank 0 mostly keeps, the lowest other that is not blamed
            say()

    def _lost(self, why: str, known: Sequence[int] = (), patience: float | None = None) -> ProbeError:
        """The error that names the ranks which do not answer any more, the same on all ranks that are left.

        `known` are those that somebody has named already; those that may still be starting have `patience` seconds.
        Bounded: a store whose keeper is stopped answers nothing.
        """
        during, roll = self._during, self._roll
        if roll is None:
            return ProbeError(
                f"rank {self.rank}: {during} failed: {why}; which ranks are left is not known without a store to ask",
                ranks=list(known),
                during=during,
            )
        try:
            patience = min(self._engine.patience, self._timeout) if patience is None else patience
            return _error(roll.ask(during, why, patience))
        except (OSError, RuntimeError, RankSilent):
            if roll.verdict is not None:  # heard by the thread that listens
                return _error(roll.verdict)
        # Whoever keeps the store takes it along: rank 0, unless the launcher keeps it.
        silent = [0] if self.rank and why != _ENDED else list(known)
        gone = "the store of the job is gone, too, or hangs, which rank 0 keeps, or the launcher"
        if not silent:
            text = f"{during} failed on rank {self.rank}: {why}; {gone}"
        else:
            text = sentence([(rank, "") for rank in silent], [], during=during, why=f"{why}; {gone}")
        return ProbeError(text, ranks=silent, during=during)

    def _at(self, during: str) -> None:
        self._during = during
        self._limit = self._timeout
        self._moved = time.monotonic()

    def _all(self) -> dict[str, Any]:
        engine, host = self._engine, socket.gethostname()
        world = self.plan.layout.world_size
        store, keeper = engine.meet(self.rank, world, self._timeout)
        if store is not None:
            roll = Roll(store, _PREFIX, self.rank, world, keeper=keeper)
            roll.introduce(f"host {host}")
            self._roll = roll
        self._at("the start of the job")
        engine.start(self._timeout)
        job = current_job(engine.name)
        place = {"rank": self.rank, "host": host, "local_rank": self._local, "device": job.device()}
        if self._roll is not None:
            self._roll.introduce(f"host {host}, device {place['device']}")
        self._at("opening the groups")
        # The agreement names who is missing, and must have ended before this step has.
        wait = self._timeout / 3
        self._limit = max(self._timeout, wait + _AGREES)
        handles = engine.open(self.plan, self._timeout, wait)
        said: dict[str, Any] = {**place, "calls": handles.calls, "wrong": {}, "seconds": {}}
        for family in self._families():
            self._probe(family, handles[family.label], said)
        self._at("gathering the results")
        everybody = self._gather(said)
        # Nobody leaves, and takes the store along, before all have what they need.
        engine.gather(engine.world(), [1])
        if self._roll is not None:
            self._roll.leave()
        return report(self.plan, engine.name, engine.backend(), everybody)

    def _families(self) -> list[Family]:
        return [family for family in self.plan.families if family.size > 1]

    def _probe(self, family: Family, communicator: Any, said: dict[str, Any]) -> None:
        """One set of axes: all its groups at the same time, as in training."""
        engine, name = self._engine, family.label
        group = family.group_of(self.rank)
        expected = list(group.ranks) if group else [self.rank]
        self._at(f"checking the members along {name}")
        members = [row[0] for row in engine.gather(communicator, [self.rank])]
        if members != expected:
            said["wrong"][name] = {"given": members, "expected": expected}
        for collective in _COLLECTIVES:
            for size in self._sizes:
                self._at(f"{collective.replace('_', '-')} of {size:,} bytes along {name}")
                once = engine.prepare(communicator, collective, size)
                once()
                taken = []
                for _ in range(self._turns):
                    engine.gather(communicator, [0])  # all members begin at the same time
                    started = time.perf_counter()
                    once()
                    taken.append(time.perf_counter() - started)
                    self._moved = time.monotonic()
                said["seconds"][f"{name}/{collective}/{size}"] = statistics.median(taken)
        self._at(f"waiting for all ranks after {name}")
        engine.gather(engine.world(), [0])

    def _gather(self, said: dict[str, Any]) -> list[dict[str, Any]]:
        """What every rank says, on every rank: JSON, as integers of eight bytes."""
        text = json.dumps(said).encode()
        world = self._engine.world()
        longest = max(row[0] for row in self._engine.gather(world, [len(text)]))
        words = -(-longest // 8)
        padded = text.ljust(words * 8)
        numbers = [int.from_bytes(padded[at : at + 8], "little", signed=True) for at in range(0, len(padded), 8)]
        rows = self._engine.gather(world, numbers)
        return [json.loads(b"".join(number.to_bytes(8, "little", signed=True) for number in row)) for row in rows]


def _error(verdict: Verdict) -> ProbeError:
    return ProbeError(verdict.text, ranks=verdict.ranks, during=verdict.during)


def report(plan: CreationPlan, engine: str, backend: str, everybody: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The facts of a probe from what every rank says, plain data for JSON.

    The time of a group is that of its slowest member, each member's being the median of its turns.

    >>> said = [{"rank": rank, "wrong": {}, "calls": 1, "host": "a", "local_rank": rank, "device": "cpu",
    ...          "seconds": {"tp/all_reduce/8": 0.1 + rank}} for rank in range(4)]
    >>> facts = report(CreationPlan("dp=2 tp=2", ["tp"]), "torch", "gloo", said)
    >>> facts["timings"][0]["slowest_group"], facts["timings"][0]["slowest_rank"]["rank"]
    ({'index': 1, 'ranks': [2, 3], 'seconds': 3.1}, 3)
    """
    wrong = [{"rank": one["rank"], "axes": name, **fault} for one in everybody for name, fault in one["wrong"].items()]
    timings = []
    for family in plan.families:
        for key in everybody[0]["seconds"]:
            name, collective, size = key.rsplit("/", 2)
            if name == family.label:
                timings.append(
                    _timing(family, collective, int(size), {one["rank"]: one["seconds"][key] for one in everybody})
                )
    ranks = [{key: one[key] for key in ("rank", "host", "local_rank", "device")} for one in everybody]
    return {
        "ok": not wrong,
        "notation": str(plan.layout),
        "plan": plan.fingerprint(),
        "engine": engine,
        "backend": backend,
        "groups": [{"axes": family.label, "groups": family.count, "size": family.size} for family in plan.families],
        "calls": max(one["calls"] for one in everybody),
        "wrong": wrong,
        "timings": timings,
        "ranks": ranks,
    }


def _timing(family: Family, collective: str, size: int, seconds: dict[int, float]) -> dict[str, Any]:
    groups = [list(ranks) for ranks in family.groups.ranges()]
    times = [max(seconds[rank] for rank in ranks) for ranks in groups]
    index = max(range(len(groups)), key=times.__getitem__)
    slowest = max(seconds, key=seconds.__getitem__)
    return {
        "axes": family.label,
        "collective": collective,
        "bytes": size,
        "median": statistics.median(times),
        "slowest_group": {"index": index, "ranks": groups[index], "seconds": times[index]},
        "slowest_rank": {"rank": slowest, "seconds": seconds[slowest]},
    }
