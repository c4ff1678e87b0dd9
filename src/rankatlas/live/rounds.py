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
# Seconds of one wait: a store answers one question at a time, and whoever gave up must not hold it for long.
_SLICE = 2.0
# Then seconds between two looks, growing: torch prints a trace of its own stack whenever a wait ends without the key.
# Thousands of ranks look less often, for the store has other work; all of them within _HEARD, for rank 0 may go then.
_FIRST_PAUSE, _LONGEST_PAUSE, _LONGEST_OF_MANY = 0.05, 0.25, 0.5
_MANY = 4096  # ranks
_FEW = 16  # ranks that rank 0 reads by itself where reading is slow


class Round:
    """The round that the ranks of a job are in, about one `topic`.

    A process keeps in the store how many of its rounds have ended.  One that was given up from outside (Ctrl-C) has not
    ended, so whoever tries again comes back to it.  Where the round has ended for the others, and whoever ended it has
    gone on to the next, a process follows: so ranks that try again after a silence meet again.  `stop` ends every wait
    from outside, and nothing is published after it.
    """

    def __init__(
        self, store: Store, topic: str, rank: int, world_size: int, *, stop: Event | None = None, me: str | None = None
    ) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._stop = stop or Event()
        self._me = me or identity()
        self._ended = f"{topic}/ended/{self._me}"
        number = 1 + (int(store.get(self._ended)) if store.has(self._ended) else 0)
        while store.has(f"{topic}/{number}/closed"):
            closer = int(store.get(f"{topic}/{number}/closed"))
            if not store.has(f"{topic}/{number + 1}/rank/{closer}"):
                break
            if closer == 0 and self._is_ours(f"{topic}/{number}/rank/{rank}"):
                break  # what this process said was counted, and the answer holds for it
            number += 1
        self._number = number
        self._topic = topic

    def say(self, text: bytes, mark: str = "") -> None:
        """Publish what this rank has to say, once, and count it among those with the same `mark`.

        Raises JobError where another process has spoken for this rank in this round.
        """
        store, rank, said = self._store, self._rank, self._me.encode() + b"\n" + text
        if store.has(self._key(f"rank/{rank}")):
            before = store.get(self._key(f"rank/{rank}"))
            if before == said:
                return  # a call that was interrupted, made again
            if self._is_ours(self._key(f"rank/{rank}")):
                self._close(rank)  # and made otherwise: what was said before holds no more
                self._number += 1
        if store.count(self._key(f"claims/{rank}")) > 1:
            found = store.wait([self._key(f"rank/{rank}")], 1.0)
            if found and store.get(self._key(f"rank/{rank}")) == said:
                return  # the interrupted call was still saying it
            other = store.get(self._key(f"rank/{rank}")).partition(b"\n")[0].decode() if found else "a process"
            conflict = (
                f"rank {rank} was announced before, by {other}, and now by {self._me}: a second job uses the same"
                " store, or a restarted one kept it; give each job a port, or each restart a prefix, of its own"
            )
            store.set(self._key("conflict"), conflict.encode())
            raise JobError(conflict)
        # Whoever is counted among all must have been counted among the same: rank 0 compares both when all have come.
        store.count(self._key(f"same/{mark}"))
        store.set(self._key(f"rank/{rank}"), said)
        if store.count(self._key("arrived")) == self._world_size:
            store.set(self._key("full"), b"1")

    def end(self) -> None:
        """This rank is done with the round, whatever came of it, unless it was given up from outside."""
        if not self._stop.is_set():
            self._store.set(self._ended, str(self._number).encode())

    def how_many(self, mark: str) -> int:
        """How many ranks have said something with this `mark`."""
        return self._store.count(self._key(f"same/{mark}")) - 1  # asking counts, too

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
        self._go_on()
        self._store.set(self._key("answer"), f"{readers} ".encode() + text)
        self._close(0)
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
            self._close(self._rank)  # who comes later must not count on us
            came = self._store.has(self._key("rank/0"))
            raise RankSilent(
                f"rank 0 gave no answer within {time.monotonic() - started:.1f} s: "
                + ("it came, and then fell silent" if came else "it never came"),
                ranks=[0],
            )
        readers, _, text = self._store.get(self._key("answer")).partition(b" ")
        if int(readers) and self._store.count(self._key("read")) == int(readers):
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
        """Whether a key is published in time: told by the store for the first moments, then looked for."""
        deadline = time.monotonic() + seconds
        self._go_on()
        found = self._store.wait([self._key(name)], min(max(seconds, 0), _SLICE))
        pause, longest = _FIRST_PAUSE, _LONGEST_PAUSE if self._world_size < _MANY else _LONGEST_OF_MANY
        while not found and (left := deadline - time.monotonic()) > 0:
            self._stop.wait(min(pause, left))
            self._go_on()
            found = self._store.has(self._key(name))
            pause = min(longest, pause * 2)
        self._go_on()
        return found

    def _is_ours(self, key: str) -> bool:
        """Whether this very process has said what is under `key`."""
        return self._store.has(key) and self._store.get(key).startswith(self._me.encode() + b"\n")

    def _go_on(self) -> None:
        if self._stop.is_set():
            raise RankSilent("the call was given up", ranks=[])

    def _close(self, by: int) -> None:
        self._store.set(self._key("closed"), str(by).encode())

    def _key(self, name: str) -> str:
        return f"{self._topic}/{self._number}/{name}"


def _packed(texts: list[bytes]) -> bytes:
    return zlib.compress(json.dumps([text.decode("latin-1") for text in texts]).encode(), 1)


def _unpacked(packed: bytes) -> list[bytes]:
    return [text.encode("latin-1") for text in json.loads(zlib.decompress(packed))]
