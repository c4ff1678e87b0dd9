"""The roll of a job: every rank says that it is left when one asks; one judges, one tells, all end by one verdict.

A thread of each rank looks, whatever the rank is busy with, whether the roll is called.  All of them together look no
more often than the store answers easily.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event, RLock, Thread
from typing import NamedTuple

from rankatlas.errors import RankSilent
from rankatlas.live.jobs import Store, within

_TICK = 0.05  # seconds between two looks of whoever waits for something
_LOOK = 0.5  # seconds between two looks whether somebody calls the roll, in a small world
_ANSWER = 2.5  # seconds that an answer may take beyond two looks, on a machine that is busy
_STORE = 3.0  # seconds more until the store counts as hung
_JUDGES = 2  # whoever judges may be ended meanwhile, so another one can
_SHOWN = 8
_GONE = "gone"  # of a rank that ended in order
# What a store can do: looks of all ranks in a second, and seconds that one question of one rank takes.
_FAST, _SLOW = (2_000, 0.0005), (300, 0.05)


class Verdict(NamedTuple):
    """What all ranks are told: `ranks` are lost, `during` what; `speaker` tells it to whoever reads the logs."""

    text: str
    ranks: list[int]
    during: str
    speaker: int
    left: int


class Roll:
    """One rank's part in it, over a connection to the store that nothing else uses.

    `keeper` is the rank whose process keeps the store, None where the launcher or somebody unknown does.
    """

    def __init__(self, store: Store, prefix: str, rank: int, world_size: int, *, keeper: int | None) -> None:
        rate, message = _FAST if store.at_once else _SLOW
        self._store, self._prefix, self._rank, self._world_size = store, prefix, rank, world_size
        self._keeper = keeper
        self._lock = RLock()  # some clients mix up the answers of two threads
        self._listens = self._answered = self._judged = False
        self.pause = max(_LOOK, world_size / rate)
        self._window = _ANSWER + 2 * self.pause
        self._reading = 3 * world_size * message
        self.verdict: Verdict | None = None

    def introduce(self, who: str) -> None:
        """Say who this rank is, and listen from the first time on."""
        self._set(f"who/{self._rank}", who)
        if not self._listens:
            self._listens = True
            Thread(target=self._listen, name="rankatlas roll", daemon=True).start()

    def leave(self) -> None:
        """Say that this rank ends in order: nobody may count it as dead, nor expect it to tell anything.

        All ranks have what they need, so whoever keeps the store may have left with it before.
        """
        self._answered = True
        with suppress(OSError, RuntimeError):
            self._set(f"here/{self._rank}", _GONE)

    def ask(self, during: str, why: str, patience: float = 0) -> Verdict:
        """Call the roll because `during` failed here, and return the verdict, which may be there already.

        Ranks that have never spoken may still be starting: they are given up after `patience` seconds.

        Raises OSError, RuntimeError or RankSilent where the store is gone or hangs.
        """
        within(_STORE + self.pause, lambda stop: self._call())
        failed = json.dumps({"during": during, "why": why, "rank": self._rank})
        longest = max(self._window, patience) + self._reading
        return within(_JUDGES * longest + _STORE, lambda stop: self._asked(failed, patience, longest, stop))

    def tell(self, verdict: Verdict, say: Callable[[], None]) -> None:
        """Have the verdict told once: by its speaker or, where that one does not in time, by whoever judged.

        Returns when it is told, so that no rank which leaves makes a launcher end the one that speaks.
        """
        if self._rank == verdict.speaker:
            say()
        try:
            bound = 2 * self.pause + _ANSWER
            told = within(2 * bound + _STORE, lambda stop: self._told(verdict, bound, stop))
        except (OSError, RuntimeError, RankSilent):
            told = False
        if not told and self._judged and self._rank != verdict.speaker:
            say()

    def _told(self, verdict: Verdict, bound: float, stop: Event) -> bool:
        deadline = time.monotonic() + bound
        if self._rank == verdict.speaker:
            self._set("told", "1")
        while not self._has("told"):
            if stop.is_set() or time.monotonic() > deadline:
                return False
            time.sleep(self.pause / 5)
        self._set(f"heard/{self._rank}", "1")
        if self._rank == self._keeper:  # the store goes along with this process, and the others may not have heard yet
            deadline = time.monotonic() + bound
            while not stop.is_set() and time.monotonic() < deadline and self._heard() < verdict.left:
                time.sleep(self.pause / 5)
        return True

    def _heard(self) -> int:
        return sum(self._has(f"heard/{rank}") for rank in range(self._world_size))

    def _listen(self) -> None:
        while self.verdict is None:
            try:
                if not self._answered and self._has("roll"):
                    self._set(f"here/{self._rank}", "1")
                    self._answered = True
                if self._answered:
                    self._hear()
            except (OSError, RuntimeError):
                return  # the store is gone; whoever asks it sees that
            time.sleep(self.pause)

    def _call(self) -> None:
        self._set("roll", "1")
        self._set(f"here/{self._rank}", "1")
        self._answered = True

    def _asked(self, failed: str, patience: float, longest: float, stop: Event) -> Verdict:
        for turn in range(_JUDGES):
            if self._count(f"judge/{turn}") == 1:
                if turn == 0 or not self._has("failed"):
                    self._set("failed", failed)
                if self._hear() is None:
                    self._set("verdict", json.dumps(self._judge(patience, stop)))
                    self._judged = True
            deadline = time.monotonic() + longest
            while not stop.is_set() and time.monotonic() < deadline:
                found = self._hear()
                if found:
                    return found
                time.sleep(self.pause / 5)
        raise RankSilent("the ranks that were about to say who is left have ended themselves", ranks=[])

    def _hear(self) -> Verdict | None:
        with self._lock:
            if self.verdict is None and self._has("verdict"):
                self.verdict = Verdict(*json.loads(self._get("verdict")))
            return self.verdict

    def _judge(self, patience: float, stop: Event) -> Verdict:
        began = time.monotonic()
        silent = list(range(self._world_size))
        absent: list[int] = []
        while silent and not stop.is_set():
            silent = [rank for rank in silent if not self._has(f"here/{rank}")]
            passed = time.monotonic() - began
            absent = [rank for rank in silent if not self._has(f"who/{rank}")]
            if (passed > patience or not absent) and (passed > self._window or len(absent) == len(silent)):
                break
            time.sleep(_TICK)
        gone = {*silent}
        speaker = next(
            (rank for rank in range(self._rank) if rank not in gone and self._get(f"here/{rank}") != _GONE), self._rank
        )
        failed = json.loads(self._get("failed"))
        during, why = failed["during"], failed["why"]
        # Who has said nothing at all, and keeps a store that answers, waits for others to come.
        silent = [rank for rank in silent if not (rank == self._keeper and rank in absent)]
        dead = [rank for rank in silent if rank not in absent]
        who = {rank: self._get(f"who/{rank}") for rank in dead[:_SHOWN]}
        if silent:
            text = sentence(
                [(rank, who.get(rank, "")) for rank in dead],
                [rank for rank in silent if rank in absent],
                during=during,
                why=why,
            )
        else:
            text = f"{during} failed on rank {failed['rank']}: {why}; all {self._world_size} ranks still answer"
        return Verdict(text, silent, during, speaker, self._world_size - len(gone))

    def _set(self, key: str, value: str) -> None:
        with self._lock:
            self._store.set(f"{self._prefix}/{key}", value.encode())

    def _get(self, key: str) -> str:
        with self._lock:
            return self._store.get(f"{self._prefix}/{key}").decode()

    def _has(self, key: str) -> bool:
        with self._lock:
            return self._store.has(f"{self._prefix}/{key}")

    def _count(self, key: str) -> int:
        with self._lock:
            return self._store.count(f"{self._prefix}/{key}")


def sentence(dead: Sequence[tuple[int, str]], absent: Sequence[int], *, during: str, why: str) -> str:
    """What a roll has shown: `dead` have said who they are and do not answer, `absent` have never said anything.

    >>> sentence([(2, "host a")], [], during="all-reduce", why="took longer than 6 s")
    'rank 2 (host a) died or hangs: all-reduce ended without it (took longer than 6 s)'
    >>> sentence([], [1, 3], during="the start", why="took longer than 6 s")
    'rank 1, rank 3 have not come: the start ended without them (took longer than 6 s)'
    """
    parts = []
    if dead:
        named = [f"rank {one} ({who})" if who else f"rank {one}" for one, who in dead[:_SHOWN]]
        parts.append(f"{_listed(named, len(dead))} {'died or hangs' if len(dead) == 1 else 'died or hang'}")
    if absent:
        named = [f"rank {one}" for one in absent[:_SHOWN]]
        parts.append(f"{_listed(named, len(absent))} {'has' if len(absent) == 1 else 'have'} not come")
    them = "it" if len(dead) + len(absent) == 1 else "them"
    return f"{', and '.join(parts)}: {during} ended without {them} ({why})"


def _listed(named: Sequence[str], count: int) -> str:
    return ", ".join(named) + (f" and {count - len(named)} more" if count > len(named) else "")
