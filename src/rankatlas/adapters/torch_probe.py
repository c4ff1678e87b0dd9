"""torch: a job started as the launcher said, and collectives to be timed."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from rankatlas.adapters.opening import Handles
from rankatlas.adapters.torch_audit import TorchReader
from rankatlas.adapters.torch_groups import open_groups
from rankatlas.adapters.torch_job import TorchStore
from rankatlas.creation import CreationPlan
from rankatlas.errors import JobError, shown


class Engine:
    """A probe's job: NCCL where there are devices, else gloo."""

    name = "torch"
    patience = 10.0  # torchrun gives 30

    def meet(self, rank: int, world_size: int, timeout: float) -> tuple[TorchStore, int | None]:
        """The store that MASTER_ADDR and MASTER_PORT name; rank 0 keeps it, unless the launcher does.

        torch would wait here for all ranks, and nobody could ask who is missing.
        """
        host, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
        if not host or not (port.isascii() and port.isdecimal() and int(port) < 2**16):
            raise JobError(
                f"torch's store is at MASTER_ADDR and MASTER_PORT, which are {shown(host)} and {shown(port)}; start by"
                " torchrun, or set both, on every rank those of rank 0"
            )
        self._rank, self._world_size = rank, world_size
        keeper = None if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True) else 0

        def connected(keeps: bool) -> Any:
            store = dist.TCPStore(  # type: ignore[attr-defined]
                host,
                int(port),
                world_size,
                keeps,
                timeout=timedelta(seconds=timeout),
                wait_for_workers=False,
                multi_tenant=True,
            )
            # A launcher that starts the job again keeps its store, and what ranks have said in it.
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            return dist.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]

        self._store = connected(rank == keeper)
        # A connection that waits for a key answers nobody else: torch has one, and whoever calls the roll another.
        return TorchStore(connected(False)), keeper

    def start(self, timeout: float) -> None:
        """Over the store."""
        torch.set_num_threads(1)
        self._device = "cpu"
        if torch.cuda.is_available():
            self._device = f"cuda:{int(os.environ.get('LOCAL_RANK', '0'))}"
            torch.cuda.set_device(self._device)
        backend = "gloo" if self._device == "cpu" else "nccl"
        dist.init_process_group(
            backend,
            timeout=timedelta(seconds=timeout),
            store=self._store,
            rank=self._rank,
            world_size=self._world_size,
        )
        self._reader = TorchReader()

    def open(self, plan: CreationPlan, timeout: float, wait: float) -> Handles:
        """The groups of `plan`."""
        return open_groups(plan, timeout=timeout, wait=wait)

    def world(self) -> Any:
        """The default process group."""
        return dist.group.WORLD

    def backend(self) -> str:
        """gloo or nccl."""
        return str(dist.get_backend())

    def gather(self, communicator: Any, numbers: list[int]) -> list[list[int]]:
        """The numbers of every member."""
        return self._reader.gather(communicator, numbers)

    def prepare(self, communicator: Any, collective: str, size: int) -> Callable[[], None]:
        """One all-reduce or all-gather of `size` bytes of float32 on this rank."""
        mine = torch.zeros(max(1, size // 4), dtype=torch.float32, device=self._device)
        count = dist.get_world_size(communicator)
        parts = [torch.empty_like(mine) for _ in range(count)] if collective == "all_gather" else []

        def once() -> None:
            if parts:
                dist.all_gather(parts, mine, group=communicator)
            else:
                dist.all_reduce(mine, group=communicator)
            if self._device != "cpu":
                torch.cuda.synchronize()

        return once
