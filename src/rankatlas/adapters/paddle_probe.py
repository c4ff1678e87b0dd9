"""Paddle: a job started as the launcher said, and collectives to be timed."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paddle
import paddle.distributed as dist
from paddle.distributed import collective as groups

from rankatlas.adapters.opening import Handles
from rankatlas.adapters.paddle_audit import PaddleReader
from rankatlas.adapters.paddle_groups import open_groups
from rankatlas.creation import CreationPlan
from rankatlas.errors import JobError

_LATER = 2.0  # seconds beyond the timeout, at which the others have told of it


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

    def meet(self, rank: int, world_size: int, timeout: float) -> None:
        """None: Paddle's store is there once all ranks have come."""

    def start(self, timeout: float) -> None:
        """By the variables of Paddle's launcher."""
        if not paddle.device.is_compiled_with_cuda():
            paddle.device.set_device("cpu")
        with _ended_after(timeout + _LATER):
            dist.init_parallel_env()
        if not dist.is_initialized():
            raise JobError(
                "Paddle makes no job of one process, nor of processes that another launcher started; start 2 or more by"
                " python -m paddle.distributed.launch --nproc_per_node 8 -m rankatlas probe LAYOUT --engine paddle"
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
