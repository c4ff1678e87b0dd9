"""Timing on a machine that other people use too: interleaved, repeated, and only the best counts.

Noise makes code slower and never faster, so the minimum is the estimate; and because calls take turns, a slow minute
of the machine hits all of them and not just one. Standard library only: the peers' environments import this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from timeit import Timer
from typing import TypeVar

Key = TypeVar("Key")
Call = Callable[[], object]


def interleaved(calls: Mapping[Key, Call], *, rounds: int = 40, slice_seconds: float = 0.004) -> dict[Key, float]:
    """Seconds per call, the best of `rounds` turns of about `slice_seconds` each.

    The garbage collector is off while a turn runs (`timeit` does that), for all calls alike.
    """
    timers = {key: Timer(call) for key, call in calls.items()}
    numbers = {key: max(1, int(slice_seconds / _once(timer))) for key, timer in timers.items()}
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for key, timer in timers.items():
            best[key] = min(best[key], timer.timeit(numbers[key]) / numbers[key])
    return best


def _once(timer: Timer) -> float:
    """A first estimate; the call is warm afterwards."""
    timer.timeit(1)
    return max(timer.timeit(1), 1e-7)


def nothing() -> None:
    """The default of `Prepared.before` and `.after`."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call that needs something made before and thrown away after it, neither of which is timed."""

    call: Call
    before: Call = nothing
    after: Call = nothing


def against_floor(prepared: Prepared, floor: Call, *, patience: float) -> tuple[float, float, int]:
    """Best seconds of a peer's call and of the floor, taking turns until `patience` seconds are over.

    Also how often the peer was timed: a call that takes seconds is timed once.
    """
    floor_timer = Timer(floor)
    number = max(1, int(0.002 / _once(floor_timer)))
    alone = prepared.before is nothing and prepared.after is nothing
    best = best_floor = float("inf")
    calls, repeat, turns = 0, 1, 0
    end = time.perf_counter() + patience
    while turns < 3 or time.perf_counter() < end:
        prepared.before()
        seconds = Timer(prepared.call).timeit(repeat) / repeat
        prepared.after()
        best = min(best, seconds)
        best_floor = min(best_floor, floor_timer.timeit(number) / number)
        calls += repeat
        turns += 1
        if seconds * repeat > patience / 3:
            break
        if alone:
            repeat = max(1, int(0.004 / max(best, 1e-7)))
    # A call timed once leaves the floor with a single turn too; it is cheap enough to be measured properly.
    for _ in range(20):
        best_floor = min(best_floor, floor_timer.timeit(number) / number)
    return best, best_floor, calls
