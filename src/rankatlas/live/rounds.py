"""One exchange of all ranks through the store: every rank says something, rank 0 answers, the others hear it.

A rank sends and receives a handful of messages, whatever the world.  Nothing is kept in this process between two
rounds: the store counts them.
"""

from __future__ import annotations

import json
import math
import time
import zlib
from threading import Event

from rankatlas.errors import JobError, RankSilent
from rankatlas.live.jobs import Store, identity

GRACE = 3.0  # seconds the others give rank 0 beyond the timeout, for its answer to arrive
_HEARD = 1.0  # seconds rank 0 waits for the others to read its answer
_SLICE = 2.0  # seconds of one wait: a store answers one question at a time, and whoever gave up must not hold it
_FEW = 16  # ranks that rank 0 reads by itself where reading is slow


class Round:
    """The round that the ranks of a job are in, about one `topic`.

    A process counts its own rounds in the store.  Where it comes to one that is over, and whoever ended it has gone on
    to the next, it follows: so ranks that try again after a silence meet again.  `stop` ends every wait from outside.
    """

    def __init__(
        self, store: Store, topic: str, rank: int, world_size: int, *, stop: Event | None = None, me: str | None = None
    ) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._stop = stop or Event()
        self._me = me or identity()
        number = store.count(f"{topic}/calls/{self._me}")
        while store.has(f"{topic}/{number}/closed"):
            closer = int(store.get(f"{topic}/{number}/closed"))
            if not store.has(f"{topic}/{number + 1}/rank/{closer}"):
                break
            number = store.count(f"{topic}/calls/{self._me}")
        self._prefix = f"{topic}/{number}"

    def say(self, text: bytes) -> None:
        """Publish what this rank has to say, once.

        Raises JobError where another process has spoken for this rank in this round.
        """
        store, rank = self._store, self._rank
        if store.count(self._key(f"claims/{rank}")) > 1:
            found = store.wait([self._key(f"rank/{rank}")], 1.0)
            other = store.get(self._key(f"rank/{rank}")).partition(b"\n")[0].decode() if found else "a process"
            conflict = (
                f"rank {rank} was announced before, by {other}, and now by {self._me}: a second job uses the same"
                " store, or a restarted one kept it; give each job a port, or each restart a prefix, of its own"
            )
            store.set(self._key("conflict"), conflict.encode())
            raise JobError(conflict)
        store.set(self._key(f"rank/{rank}"), self._me.encode() + b"\n" + text)
        if store.count(self._key("arrived")) == self._world_size:
            store.set(self._key("full"), b"1")

    def count(self, name: str) -> int:
        """Add one to a counter of this round, and return what it is now."""
        return self._store.count(self._key(name))

    # What rank 0 does.

    def full(self, seconds: float) -> bool:
        """Whether every rank has spoken within `seconds`."""
        return self._wait("full", seconds)

    def conflict(self) -> str | None:
        """What a second process said that spoke for one of the ranks, or None."""
        return self._store.get(self._key("conflict")).decode() if self._store.has(self._key("conflict")) else None

    def gave_up(self) -> int | None:
        """A rank that has left this round already, or None."""
        return int(self._store.get(self._key("closed"))) if self._store.has(self._key("closed")) else None

    def missing(self, deadline: float) -> tuple[list[int], int]:
        """The ranks that have not spoken, of so many first ones as there was time to ask about, and how many."""
        missing = []
        for rank in range(self._world_size):
            if not self._store.has(self._key(f"rank/{rank}")):
                missing.append(rank)
            if time.monotonic() > deadline:
                return missing, rank + 1
        return missing, self._world_size

    def said(self, deadline: float) -> list[bytes]:
        """What every rank said, all having spoken; less at the end where time runs out before it is read."""
        if self._led():
            self._store.set(self._key("call"), b"read")
        found: list[bytes] = []
        for block in self._blocks():
            left = deadline - time.monotonic()
            if block[0] and self._led() and self._wait(f"block/{block[0]}", min(left, _SLICE + len(block) / 5)):
                found += _unpacked(self._store.get(self._key(f"block/{block[0]}")))
            else:
                found += self._read(block)
            if time.monotonic() > deadline:
                break
        return found

    def answer(self, text: bytes, readers: int) -> None:
        """Tell the others, and wait a moment until `readers` of them have read it.

        This process may be about to fail, or to end, and may be the one that keeps the store.
        """
        self._store.set(self._key("answer"), f"{readers} ".encode() + text)
        self._store.set(self._key("closed"), b"0")
        if self._led():
            self._store.set(self._key("call"), b"answer")
        if readers:
            self._wait("heard", _HEARD)

    # What the others do.

    def hear(self, seconds: float) -> bytes:
        """What rank 0 answers.  Raises RankSilent, which blames it, after `seconds`."""
        started = time.monotonic()
        self._lead(seconds)
        if not self._wait("answer", seconds - (time.monotonic() - started)):
            self._store.set(self._key("closed"), str(self._rank).encode())  # who comes later must not count on us
            came = self._store.has(self._key("rank/0"))
            raise RankSilent(
                f"rank 0 gave no answer within {time.monotonic() - started:.1f} s: "
                + ("it came, and then fell silent" if came else "it never came"),
                ranks=[0],
            )
        readers, _, text = self._store.get(self._key("answer")).partition(b" ")
        if int(readers) and self.count("read") == int(readers):
            self._store.set(self._key("heard"), b"1")
        return text

    def _lead(self, seconds: float) -> None:
        """Read for rank 0 what the ranks of this one's block said, if it asks for that before it answers."""
        block = next((block for block in self._blocks() if block[0] == self._rank), None)
        if self._led() and block and self._wait("call", seconds) and self._store.get(self._key("call")) == b"read":
            self._store.set(self._key(f"block/{self._rank}"), _packed(self._read(block)))

    def _led(self) -> bool:
        """Whether the first rank of a block reads for all of it: where the store gives one key at a time."""
        return not self._store.at_once and self._world_size > _FEW

    def _blocks(self) -> list[range]:
        """The ranks in blocks of about √N, so that nobody reads more than 2·√N messages."""
        size = math.isqrt(self._world_size - 1) + 1
        return [range(first, min(first + size, self._world_size)) for first in range(0, self._world_size, size)]

    def _read(self, ranks: range) -> list[bytes]:
        texts = self._store.get_all([self._key(f"rank/{rank}") for rank in ranks])
        return [text.partition(b"\n")[2] for text in texts]

    def _wait(self, name: str, seconds: float) -> bool:
        """Whether a key is published in time; in slices, so that the store is free for others in between."""
        deadline = time.monotonic() + seconds
        while True:
            left = deadline - time.monotonic()
            if self._store.wait([self._key(name)], min(max(left, 0), _SLICE)):
                return True
            if left <= _SLICE:
                return False
            if self._stop.is_set():
                raise RankSilent("the wait was given up", ranks=[])

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}"


def _packed(texts: list[bytes]) -> bytes:
    return zlib.compress(json.dumps([text.decode("latin-1") for text in texts]).encode(), 1)


def _unpacked(packed: bytes) -> list[bytes]:
    return [text.encode("latin-1") for text in json.loads(zlib.decompress(packed))]
