"""Paddle's groups over gloo, each made to connect through a store of its own."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paddle
import paddle.distributed as dist
from paddle.distributed import collective

from rankatlas.adapters.paddle_job import PaddleStore
from rankatlas.errors import InputError, JobError, shown

_LONGEST = 1_000_000  # seconds


@contextmanager
def separate_stores(seconds: float = 60) -> Iterator[None]:
    """Inside, every gloo group that `new_group` or `fleet.init` makes connects through a store of its own.

    Paddle 3.3 writes the addresses of each gloo group into the one store of the job under the same keys, "0", "1", ….
    A rank that is early reads an address of a group before, and is refused, waits for ever, or is connected wrongly.
    Other backends are left as they are.  One thread at a time: Paddle's own function is replaced meanwhile.

    Cost: a socket per group in its first member, which serves the store, and two messages to the store of the job.

    Raises JobError where the first member of a group does not come within `seconds`, InputError for no such number.

        with separate_stores():
            fleet.init(is_collective=True, strategy=strategy)
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= _LONGEST:
        raise InputError(f"seconds to wait are a number above 0 and at most {_LONGEST:,}, not {shown(seconds)}")
    paddles = collective._new_process_group_impl

    def with_a_store(backend: str, store: Any, rank: int, world_size: int, *rest: Any, **options: Any) -> Any:
        if backend == "gloo":
            number = options["group_id"] if "group_id" in options else rest[2]
            store = _own_store(PaddleStore(store), number, rank == 0, seconds)
        return paddles(backend, store, rank, world_size, *rest, **options)  # type: ignore[no-untyped-call]

    collective._new_process_group_impl = with_a_store
    try:
        yield
    finally:
        collective._new_process_group_impl = paddles


def _own_store(job: PaddleStore, number: int, serves: bool, seconds: float) -> Any:
    """The store of group `number`, which its first member `serves`, at an address that the store of the job knows."""
    key = f"rankatlas/gloo/{number}"
    if serves:
        endpoint = str(dist.ParallelEnv().current_endpoint)  # type: ignore[no-untyped-call]
        host = endpoint.rpartition(":")[0] or "127.0.0.1"
        port, store = _served(host)
        job.set(key, f"{host}:{port}".encode())
        return store
    if not job.wait([key], seconds):
        raise JobError(f"the first member of group {number} did not come to make it within {seconds:g} s")
    there, _, at = job.get(key).decode().rpartition(":")
    return _store(there, int(at), serves=False)


def _served(host: str) -> tuple[int, Any]:
    """A port and the store that is served there.

    Paddle ends the process where the port is taken, so it is held until the store has it: a socket that only asks for
    its address to be reused lets the store listen there, and keeps everybody from being given it meanwhile.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        port = held.getsockname()[1]
        return port, _store(host, port, serves=True)


def _store(host: str, port: int, *, serves: bool) -> Any:
    return paddle.base.core.TCPStore(host, port, serves, 0)  # 0: waits for no workers
