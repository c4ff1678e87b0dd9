"""A running Paddle job: its store, its groups, its device."""

from __future__ import annotations

import time
from typing import Any

import paddle
from paddle.distributed import collective

from rankatlas.errors import JobError

_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.25  # seconds between two looks


class PaddleStore:
    """The store of the default group.

    Paddle's store waits without a bound of ours for a key that is absent, so each key has a counter beside it, which
    can be asked at any time.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        """Publish `value` under `key`."""
        self._store.set(key, value)
        self._store.add(f"{key}/there", 1)

    def get(self, key: str) -> bytes:
        """The value of a key that is there."""
        return bytes(self._store.get(key))

    def get_all(self, keys: list[str]) -> list[bytes]:
        """The values of keys that are all there."""
        return [self.get(key) for key in keys]

    def count(self, key: str) -> int:
        """Add one to the counter `key` and return what it is now."""
        return int(self._store.add(key, 1))

    def has(self, key: str) -> bool:
        """Whether `key` has been published."""
        return int(self._store.add(f"{key}/there", 0)) > 0

    def wait(self, keys: list[str], seconds: float) -> bool:
        """Whether all keys are published within `seconds`; looks less and less often."""
        deadline = time.monotonic() + seconds
        pause = _FIRST_PAUSE
        for key in keys:
            while not self.has(key):
                if time.monotonic() > deadline:
                    return False
                time.sleep(pause)
                pause = min(_LONGEST_PAUSE, pause * 2)
        return True


class PaddleJob:
    """The job of the default group."""

    name = "paddle"

    def __init__(self) -> None:
        self.rank = int(paddle.distributed.get_rank())
        self.world_size = int(paddle.distributed.get_world_size())

    def store(self) -> PaddleStore | None:
        """The default store, or None in a job of one process, which has none."""
        store = getattr(collective, "_default_store", None)
        if store is None and self.world_size > 1:
            raise JobError(f"Paddle {paddle.version.full_version} keeps its store where nobody looks yet")
        return None if store is None else PaddleStore(store)

    def groups(self) -> list[dict[str, Any]]:
        """Every group this process is a member of: those of the live fleet group by name, then the others."""
        found = [
            {"description": name, "ranks": list(group.ranks)}
            for name, group in _fleet_groups()
            if self.rank in group.ranks
        ]
        known = [tuple(one["ranks"]) for one in found]
        for number, group in sorted(_all_groups().items()):
            ranks = list(group.ranks)
            if self.rank in ranks and tuple(ranks) not in known:
                found.append({"description": "default_pg" if number == 0 else "", "ranks": ranks})
        return found

    def device(self) -> str:
        """The current device."""
        return str(paddle.device.get_device())


def _all_groups() -> dict[int, Any]:
    """Number → group of every group of this process, from a registry that is not public."""
    try:
        found: dict[int, Any] = collective._get_group_map()  # type: ignore[no-untyped-call]
    except AttributeError as error:
        raise JobError(
            f"Paddle {paddle.version.full_version} keeps its groups where nobody looks yet: {error}"
        ) from None
    return found


def _fleet_groups() -> list[tuple[str, Any]]:
    """The axis groups of the communicate group that `fleet.init` made."""
    from paddle.distributed import fleet

    hybrid = getattr(fleet.fleet, "_hcg", None)
    if hybrid is None:
        return []
    getters = {
        "data_parallel": "get_data_parallel_group",
        "model_parallel": "get_model_parallel_group",
        "pipe_parallel": "get_pipe_parallel_group",
        "sharding_parallel": "get_sharding_parallel_group",
        "sep_parallel": "get_sep_parallel_group",
    }
    found = [(name, getattr(hybrid, getter)()) for name, getter in getters.items() if hasattr(hybrid, getter)]
    return [(name, group) for name, group in found if group is not None]


def current() -> PaddleJob | None:
    """The job of this process, or None before `init_parallel_env` or `fleet.init`."""
    return PaddleJob() if paddle.distributed.is_initialized() else None
