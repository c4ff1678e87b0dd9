"""Paddle: a job started as the launcher said, and collectives to be timed."""

from __future__ import annotations

import faulthandler
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paddle
import paddle.distributed as dist
from paddle.distributed import collective as groups

from rankatlas.adapters.opening import Handles
from rankatlas.adapters.paddle_audit import PaddleReader
from rankatlas.adapters.paddle_groups import open_groups
from rankatlas.adapters.paddle_job import PaddleStore
from rankatlas.creation import CreationPlan
from rankatlas.errors import JobError, shown

_LATER = 12.0  # seconds beyond the timeout, at which the others have told of it
_PAUSE = 0.1  # seconds between two attempts to reach the store


def _master() -> tuple[str, int]:
    """Where rank 0 keeps the store, as Paddle finds it."""
    found = os.environ.get("PADDLE_MASTER") or os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").partition(",")[0]
    host, _, port = found.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal() and 0 < int(port) < 2**16):
        raise JobError(
            f"Paddle's store is at PADDLE_MASTER, which is {shown(found)} and not HOST:PORT; start by"
            " python -m paddle.distributed.launch, which sets it"
        )
    return host, int(port)


def _reach(host: str, port: int, timeout: float) -> None:
    """Wait until somebody listens there: Paddle would wait with Python's lock held, and hear no signal.

    Raises JobError after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            with socket.create_connection((host, port), timeout=timeout):
                return
        except OSError as error:
            if time.monotonic() > deadline:
                raise JobError(
                    f"nobody keeps Paddle's store at {host}:{port} after {timeout:g} s ({error}); rank 0 has not come"
                ) from None
        time.sleep(_PAUSE)


@contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """End the process, with code 1, if the block takes longer.

    While Paddle's rank 0 waits for the others to reach its store, no other thread of Python runs there, nor a signal's
    handler.  Whoever has reached the store tells that the start failed.
    """
    with open(os.devnull, "w") as nowhere:
        faulthandler.dump_traceback_later(seconds, exit=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


class Engine:
    """A probe's job, on devices where Paddle was built for them."""

    name = "paddle"
    patience = 1.0  # Paddle's launcher gives between 3 and 6, of which the import may have taken some

    def meet(self, rank: int, world_size: int, timeout: float) -> tuple[PaddleStore | None, int | None]:
        """Paddle's store, which rank 0 keeps; a job of one process has none."""
        if not paddle.device.is_compiled_with_cuda():
            paddle.device.set_device("cpu")
        if world_size < 2:
            return None, None
        host, port = _master()
        if rank:
            _reach(host, port, timeout)
        with _ended_after(timeout + _LATER):
            paddle.base.core.create_or_get_global_tcp_store()
        # Its client mixes up the answers of two threads, and with them the addresses of groups that are being made.
        return PaddleStore(paddle.base.core.TCPStore(host, port, False, 0)), 0  # 0: waits for no workers

    def start(self, timeout: float) -> None:
        """By the variables of Paddle's launcher."""
        with _ended_after(timeout + _LATER):
            dist.init_parallel_env()
        if not dist.is_initialized():
            raise JobError(
                "Paddle makes no job of one process, nor of processes that another launcher started; start 2 or more by"
                " python -m paddle.distributed.launch --nproc_per_node 8 $(command -v rankatlas) probe LAYOUT"
                " --engine paddle"
            )
        self._reader = PaddleReader()

    def open(self, plan: CreationPlan, timeout: float, wait: float) -> Handles:
        """The groups of `plan`."""
        return open_groups(plan, wait=wait)

    def world(self) -> Any:
        """The default group."""
        return self._reader.world()

    def backend(self) -> str:
        """gloo, nccl or another."""
        return str(getattr(groups, "_default_backend", "unknown"))

    def gather(self, communicator: Any, numbers: list[int]) -> list[list[int]]:
        """The numbers of every member."""
        return self._reader.gather(communicator, numbers)

    def prepare(self, communicator: Any, collective: str, size: int) -> Callable[[], None]:
        """One all-reduce or all-gather of `size` bytes of float32 on this rank."""
        mine = paddle.zeros([max(1, size // 4)], dtype="float32")

        def once() -> None:
            if collective == "all_gather":
                parts: list[Any] = []
                dist.all_gather(parts, mine, group=communicator)
                parts[0].numpy()
            else:
                dist.all_reduce(mine, group=communicator)
                mine.numpy()  # waits for the device

        return once
