"""The job this process is part of: its rank, its world, and the store all its processes share."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import Event, Thread
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from rankatlas.core import Atlas, Mesh, parse_layout
from rankatlas.creation import CreationPlan
from rankatlas.errors import InputError, JobError, RankatlasError, RankSilent, shown

_T = TypeVar("_T")
_LONGEST = 1_000_000  # seconds; clocks of sockets and threads overflow far beyond


class Store(Protocol):
    """A key-value store that every process of the job reaches.  Waiting is bounded; nothing else blocks.

    `at_once` says whether `get_all` is one message.  Several threads may not ask at the same time (Paddle's cannot).
    """

    at_once: bool

    def set(self, key: str, value: bytes) -> None:
        """Publish `value` under `key`."""

    def get(self, key: str) -> bytes:
        """The value of a key that is there."""

    def get_all(self, keys: list[str]) -> list[bytes]:
        """The values of keys that are all there."""

    def count(self, key: str) -> int:
        """Add one to the counter `key` and return what it is now."""

    def has(self, key: str) -> bool:
        """Whether `key` has been published."""

    def wait(self, keys: list[str], seconds: float) -> bool:
        """Whether all keys are published within `seconds`."""


class JobAdapter(Protocol):
    """What a framework tells about the running job."""

    name: str
    rank: int
    world_size: int

    def store(self) -> Store | None:
        """The store of the default group, or None where it cannot be written (torch's fake backend)."""

    def groups(self) -> list[dict[str, Any]]:
        """Every group this process is a member of, in order of creation: `description` and `ranks`."""

    def device(self) -> str:
        """The device this process computes on."""


# Framework → the adapter of its jobs.
_ADAPTERS = MappingProxyType({"torch": "rankatlas.adapters.torch_job", "paddle": "rankatlas.adapters.paddle_job"})


def current_job(engine: str | None = None, *, groups: bool = True) -> JobAdapter:
    """The job of this process, told by the framework that has been initialised; `engine` names it where two are.

    Without `groups`, a process that was launched and has not initialised its framework yet will do, if the framework
    can give its store then (Paddle).  Raises JobError before `init_process_group` or `init_parallel_env`.
    """
    names = [engine] if engine else [name for name in _ADAPTERS if name in sys.modules]
    for name in names:
        if name not in _ADAPTERS:
            raise JobError(f"engine is one of {', '.join(_ADAPTERS)}, not {shown(name)}")
        adapter = import_module(_ADAPTERS[name])
        found: JobAdapter | None = adapter.current() or (None if groups else adapter.launched())
        if found is not None:
            return found
    raise JobError(
        "no distributed job is initialised in this process: call torch.distributed.init_process_group or"
        " paddle.distributed.init_parallel_env first"
    )


def seconds_given(timeout: object, name: str = "timeout") -> float:
    """A timeout in seconds, whose name is told.  Raises JobError unless it is a number above 0 and at most 10^6."""
    number = timeout.item() if hasattr(timeout, "item") and hasattr(timeout, "dtype") else timeout  # numpy's
    if isinstance(number, (int, float)) and not isinstance(number, bool) and 0 < number <= _LONGEST:
        return float(number)
    raise JobError(f"{name} is a number of seconds above 0 and at most {_LONGEST:,}, not {shown(timeout)}")


def expected_given(expect: Mesh | Atlas | CreationPlan | str | None) -> Mesh | Atlas | CreationPlan | None:
    """The layout, or the plan, that a job should have, None where none is given.  Raises InputError for others."""
    if isinstance(expect, str):
        return parse_layout(expect)
    if expect is None or isinstance(expect, (Mesh, Atlas, CreationPlan)):
        return expect
    raise InputError(f"expect is a Mesh, an Atlas, notation or a CreationPlan, not {shown(expect)}")


def is_of_world(layout: Mesh | Atlas | None, world_size: int) -> bool:
    """Whether a layout, where there is one, has the ranks 0 … world_size − 1."""
    return layout is None or (layout.first_rank, layout.world_size, _end_of(layout)) == (0, world_size, world_size)


def _end_of(layout: Mesh | Atlas) -> int:
    """One more than the last rank; the charts of an atlas may leave gaps."""
    charts = [layout] if isinstance(layout, Mesh) else layout.charts.values()
    return max(mesh.first_rank + mesh.world_size for mesh in charts)


def refuse_other_world(layout: object, world_size: int) -> None:
    """Raise JobError where a mesh, an atlas or notation has other ranks than 0 … world_size − 1."""
    if isinstance(layout, str):
        layout = parse_layout(layout)
    if isinstance(layout, (Mesh, Atlas)) and not is_of_world(layout, world_size):
        first, count = layout.first_rank, layout.world_size
        last = _end_of(layout) - 1
        raise JobError(f"{layout} has {count} ranks, {first} to {last}; this job has {world_size}, from 0")


@contextmanager
def store_may_go(rank: int) -> Iterator[None]:
    """Raise RankSilent, which blames rank 0, where the store of the job is lost inside the block."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if isinstance(error, RankatlasError):
            raise
        raise RankSilent(
            f"rank {rank} lost the store of the job ({error!s:.200}); rank 0, or whoever keeps it, is gone", ranks=[0]
        ) from None


def within(seconds: float, work: Callable[[Event], _T]) -> _T:
    """What `work` returns, or its error; RankSilent when it takes longer than `seconds`.

    A store whose keeper is stopped, not dead, answers nothing and refuses nothing: no timeout of its own ends that.  So
    it is asked in a thread that may be left behind; the event that `work` is given tells it so.
    """
    stop = Event()
    outcome: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            outcome.append((True, work(stop)))
        except BaseException as error:
            outcome.append((False, error))

    thread = Thread(target=run, name="rankatlas", daemon=True)
    thread.start()
    try:
        thread.join(seconds)
    finally:
        stop.set()
    if not outcome:
        raise RankSilent(
            f"the store of the job has not answered for {seconds:g} s; rank 0, or whoever keeps it, hangs", ranks=[0]
        )
    fine, found = outcome[0]
    if not fine:
        raise found
    answer: _T = found
    return answer


def identity() -> str:
    """This process and no other, also after its number is used again: host, process number and start time."""
    try:
        with open("/proc/self/stat", encoding="ascii") as file:
            started = file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        started = "?"  # not on this system; host and number still tell processes of one moment apart
    return f"{socket.gethostname()}:{os.getpid()}:{started}"
