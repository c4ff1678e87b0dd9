"""The pre-flight: every group of a plan opened on the real machine, checked by collectives, and timed."""

from __future__ import annotations

import json
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from threading import Event, Thread
from types import MappingProxyType
from typing import Any, Protocol

from rankatlas.creation import CreationPlan, Family
from rankatlas.errors import JobError, ProbeError, RankatlasError, RankSilent, shown
from rankatlas.live.jobs import Store, current_job, within

_PREFIX = "rankatlas/probe"
_TICK = 0.05  # seconds between two looks of the thread that waits
_ANSWER = 4.0  # seconds the ranks that are left have to say that they are; their store may be busy for 2
_LOOK = 0.5  # seconds between two looks whether somebody calls the roll, in a step that lasts as long
_STORE = 3.0  # seconds more until the store counts as hung
_AGREES = 6.0  # seconds by which an agreement may outlast its timeout
_SHOWN = 8
_COLLECTIVES = ("all_reduce", "all_gather")


class Probes(Protocol):
    """What a probe needs of a framework."""

    name: str

    def meet(self, rank: int, world_size: int, timeout: float) -> Store | None:
        """The store of the job, where it can be asked before all ranks have come."""

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
        self._store: Store | None = None
        self._told: dict[int, str] = {}
        self._listens = False

    def run(self) -> dict[str, Any]:
        """Everything, in a thread: collectives hold no ear for signals, and a peer that hangs for no timeout either.

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
        while thread.is_alive():
            thread.join(_TICK)
            if time.monotonic() - self._moved > self._limit and thread.is_alive():
                raise self.lost(f"took longer than {self._limit:g} s")
        found = outcome[0]
        if isinstance(found, dict):
            return found
        if isinstance(found, (RankSilent, JobError)):  # rank 0 may be the silent one: whoever is left tells
            raise self.lost(str(found), getattr(found, "ranks", ()))
        if isinstance(found, RankatlasError) or not isinstance(found, Exception):
            raise found
        raise self.lost(str(found).strip().splitlines()[0][:200] if str(found).strip() else type(found).__name__)

    def lost(self, why: str, known: Sequence[int] = ()) -> ProbeError:
        """The error that names the ranks which do not answer any more; asks the store which ranks still do.

        `known` are those that somebody has named already.  Bounded: a store whose keeper is stopped answers nothing.
        """
        during, world = self._during, self.plan.layout.world_size
        store = self._store
        if store is None:
            return ProbeError(
                f"rank {self.rank}: {during} failed: {why}; which ranks are left is not known without a store to ask",
                ranks=list(known),
                during=during,
            )
        first = ""
        try:
            silent, first = within(2 * _ANSWER + _STORE, lambda stop: self._silent(store, stop, why))
        except (OSError, RuntimeError, RankSilent):
            # Whoever keeps the store takes it along: rank 0, unless the launcher keeps it.
            silent = [0] if self.rank else list(known)
            why = f"{why}; the store of the job is gone, too, or hangs, which rank 0 keeps, or the launcher"
        if not silent:
            return ProbeError(
                f"{first or f'{during} failed: {why}'}; all {world} ranks still answer", ranks=[], during=during
            )
        who = ", ".join(
            f"rank {rank} ({self._told.get(rank, 'where it ran is not known')})" for rank in silent[:_SHOWN]
        )
        more = f" and {len(silent) - _SHOWN} more" if len(silent) > _SHOWN else ""
        them = "it" if len(silent) == 1 else "them"
        # Where nobody can listen beside a collective, those that wait in one are silent, too: what failed says more.
        before = "" if store.threads or not first or f" failed on rank {self.rank}: " in first else f"; before, {first}"
        return ProbeError(
            f"{who}{more} died or hangs: {during} ended without {them} ({why}){before}", ranks=silent, during=during
        )

    def speaks(self, error: ProbeError) -> bool:
        """Whether this rank is the one that tells: the lowest of those that are left."""
        if self._store is None:
            return True  # nobody knows of the others
        left = [rank for rank in range(self.plan.layout.world_size) if rank not in error.ranks]
        return not left or self.rank == left[0]

    def _silent(self, store: Store, stop: Event, why: str) -> tuple[list[int], str]:
        """The ranks that do not say within a moment that they are left, or have left in order before.

        And what failed first, on which rank: the others hear only that its connections are closed.
        """
        world = self.plan.layout.world_size
        if store.count(f"{_PREFIX}/failures") == 1:
            store.set(f"{_PREFIX}/first", f"{self._during} failed on rank {self.rank}: {why}".encode())
        store.set(f"{_PREFIX}/roll", b"1")
        store.set(f"{_PREFIX}/left/{self.rank}", b"1")
        deadline = time.monotonic() + _ANSWER
        silent = list(range(world))
        # Who has asked has the answer for those that notice only because others have left already.
        if store.has(f"{_PREFIX}/silent"):
            silent = [rank for rank in json.loads(store.get(f"{_PREFIX}/silent")) if rank != self.rank]
            deadline = 0.0
        while silent and time.monotonic() < deadline and not stop.is_set():
            silent = [rank for rank in silent if not store.has(f"{_PREFIX}/left/{rank}")]
            time.sleep(_TICK)
        if deadline:
            store.set(f"{_PREFIX}/silent", json.dumps(silent).encode())
        for rank in silent[:_SHOWN]:
            if store.has(f"{_PREFIX}/who/{rank}"):
                self._told[rank] = store.get(f"{_PREFIX}/who/{rank}").decode()
        first = store.get(f"{_PREFIX}/first").decode() if store.has(f"{_PREFIX}/first") else ""
        if self.rank == 0:
            time.sleep(_ANSWER / 2)  # the others may still be asking the store, which mostly is here
        return silent, first

    def _answer_the_roll(self, store: Store) -> None:
        """Say that this rank is left as soon as somebody asks; a rank may notice a loss much later than another one."""
        while True:
            time.sleep(_LOOK)
            try:
                if time.monotonic() - self._moved > _LOOK and store.has(f"{_PREFIX}/roll"):
                    store.set(f"{_PREFIX}/left/{self.rank}", b"1")
                    return
            except (OSError, RuntimeError):
                return  # the store is gone; whoever asks it sees that

    def _at(self, during: str) -> None:
        self._during = during
        self._limit = self._timeout
        self._moved = time.monotonic()

    def _all(self) -> dict[str, Any]:
        engine, host = self._engine, socket.gethostname()
        self._store = store = engine.meet(self.rank, self.plan.layout.world_size, self._timeout)
        self._introduce(f"host {host}")
        self._at("the start of the job")
        engine.start(self._timeout)
        job = current_job(engine.name)
        self._store = store or job.store()
        place = {"rank": self.rank, "host": host, "local_rank": self._local, "device": job.device()}
        self._introduce(f"host {host}, device {place['device']}")
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
        if self._store is not None:
            self._store.set(f"{_PREFIX}/left/{self.rank}", b"1")  # in order: nobody may count this rank as dead
        return report(self.plan, engine.name, engine.backend(), everybody)

    def _introduce(self, who: str) -> None:
        """Say in the store, as soon as there is one, who this rank is, and listen from the first time on."""
        store = self._store
        if store is None:
            return
        if store.threads and not self._listens:
            self._listens = True
            Thread(target=self._answer_the_roll, args=(store,), name="rankatlas roll", daemon=True).start()
        store.set(f"{_PREFIX}/who/{self.rank}", who.encode())

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
