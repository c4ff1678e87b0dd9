"""A running torch.distributed job: its store, its groups, its device."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from rankatlas.errors import JobError

_SHORTEST = 0.001  # seconds
_OWN_INDEX = re.compile(r" group \d+ of the plan$")  # of a group made from a plan, whose kind is what is before it


class TorchStore:
    """The store of the default process group."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.at_once = bool(store.has_extended_api())

    def set(self, key: str, value: bytes) -> None:
        """Publish `value` under `key`."""
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        """The value of a key that is there."""
        return bytes(self._store.get(key))

    def get_all(self, keys: list[str]) -> list[bytes]:
        """The values of keys that are all there, in one message where the store can."""
        if self.at_once:
            return [bytes(value) for value in self._store.multi_get(keys)]
        return [self.get(key) for key in keys]

    def count(self, key: str) -> int:
        """Add one to the counter `key` and return what it is now."""
        return int(self._store.add(key, 1))

    def has(self, key: str) -> bool:
        """Whether `key` has been published."""
        return bool(self._store.check([key]))

    def wait(self, keys: list[str], seconds: float) -> bool:
        """Whether all keys are published within `seconds`."""
        try:
            # Without any time left torch would wait for ever, and hold the store's lock all the while.
            self._store.wait(keys, timedelta(seconds=max(seconds, _SHORTEST)))
        except RuntimeError as error:
            # A file store says in words only that the time is over; a store that is gone is another matter.
            if isinstance(error, dist.DistNetworkError) or "timeout" not in str(error).lower():
                raise
            return bool(self._store.check(keys))
        return True


class TorchJob:
    """The job of the default process group."""

    name = "torch"

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()

    def store(self) -> TorchStore | None:
        """The default store, or None under the fake backend, which has one process only."""
        if dist.get_backend() == "fake":
            return None
        return TorchStore(distributed_c10d._get_default_store())

    def groups(self) -> list[dict[str, Any]]:
        """Every group this process is a member of, in order of creation, numbered as all ranks number them.

        torch keeps them in a registry that is not public; what is asked of it is checked here by name.
        """
        try:
            registry = distributed_c10d._world.pg_group_ranks
            found = [
                {
                    "description": _OWN_INDEX.sub("", str(group.group_desc)),
                    "ranks": list(dist.get_process_group_ranks(group)),
                    "number": _number(group.group_name),
                }
                for group in registry
                if isinstance(group, dist.ProcessGroup)  # a group this rank is no member of leaves a number there
            ]
        except AttributeError as error:
            raise JobError(f"torch {torch.__version__} keeps its groups where nobody looks yet: {error}") from None
        return found

    def device(self) -> str:
        """The current CUDA device where CUDA is in use, else cpu."""
        if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return f"cuda:{torch.cuda.current_device()}"
        return "cpu"


def _number(name: str) -> int | None:
    """The place of a group among all that were made; a group made by its members alone has a hash for a name."""
    return int(name) if name.isdecimal() else None


def current() -> TorchJob | None:
    """The job of this process, or None before `init_process_group`."""
    return TorchJob() if dist.is_available() and dist.is_initialized() else None


def launched() -> None:
    """None: before `init_process_group` torch has no store that all processes share."""
