"""A running Paddle job: its store, its groups, its device."""

from __future__ import annotations

import os
import time
from typing import Any

import paddle
from paddle.distributed import collective

from rankatlas.errors import JobError

# What the communicate group has a group for → its attribute; its getters are not there for every axis.
_FLEET = {
    "data_parallel": "_dp_comm_group",
    "model_parallel": "_mp_comm_group",
    "pipe_parallel": "_pp_comm_group",
    "sharding_parallel": "_sharding_comm_group",
    "sep_parallel": "_sep_comm_group",
    "context_parallel": "_cp_comm_group",
    "expert_parallel": "_ep_comm_group",
    "moe_sharding_parallel": "_moe_sharding_comm_group",
    "data_parallel_check": "_check_comm_group",
    "sharding_parallel_check": "sharding_check_comm_group",
    "data_sep_parallel": "_dp_sep_comm_group",
    "pipe_model_parallel": "_pp_mp_comm_group",
    "context_sharding_parallel": "_cp_sharding_comm_group",
    "context_model_parallel": "_cp_mp_comm_group",
}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.25  # seconds between two looks


class PaddleStore:
    """The store of the default group.

    Paddle's store waits without a bound of ours for a key that is absent, so each key has a counter beside it, which
    can be asked at any time.  One thread at a time: it mixes up answers, and with them the addresses of groups that are
    being made.
    """

    at_once = False

    def __init__(self, store: Any) -> None:
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        """Publish `value` under `key`."""
        _asked(self._store.set, key, value)
        _asked(self._store.add, f"{key}/there", 1)

    def get(self, key: str) -> bytes:
        """The value of a key that is there."""
        return bytes(_asked(self._store.get, key))

    def get_all(self, keys: list[str]) -> list[bytes]:
        """The values of keys that are all there; about 0.1 s each, since the store's messages wait for each other."""
        return [self.get(key) for key in keys]

    def count(self, key: str) -> int:
        """Add one to the counter `key` and return what it is now."""
        return int(_asked(self._store.add, key, 1))

    def has(self, key: str) -> bool:
        """Whether `key` has been published."""
        return int(_asked(self._store.add, f"{key}/there", 0)) > 0

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
        """Every group this process is a member of, in order of creation: those of fleet by name, others without."""
        names = _fleet_names()
        return [
            {"description": names.get(number, ""), "ranks": list(group.ranks), "number": number}
            for number, group in sorted(_all_groups().items())
            if self.rank in group.ranks
        ]

    def device(self) -> str:
        """The current device."""
        return str(paddle.device.get_device())


def _asked(ask: Any, *arguments: Any) -> Any:
    """The store's answer; a store that is gone raises SystemError in Paddle."""
    try:
        return ask(*arguments)
    except (SystemError, ValueError) as error:  # (TCP send error), (Broken pipe) and the like
        raise ConnectionError(str(error).strip().splitlines()[-1][:200]) from None


def _all_groups() -> dict[int, Any]:
    """Number → group of every group of this process, from a registry that is not public."""
    try:
        found: dict[int, Any] = collective._get_group_map()  # type: ignore[no-untyped-call]
    except AttributeError as error:
        raise JobError(
            f"Paddle {paddle.version.full_version} keeps its groups where nobody looks yet: {error}"
        ) from None
    return found


def _fleet_names() -> dict[int, str]:
    """Number of a group → what the communicate group that `fleet.init` made has it for."""
    from paddle.distributed import fleet

    hybrid = getattr(fleet.fleet, "_hcg", None)
    names = {0: "default_pg"}
    for name, attribute in _FLEET.items():
        number = getattr(getattr(hybrid, attribute, None), "id", None)  # None where the job has no such axis
        if number is not None:
            names.setdefault(int(number), name)
    return names


def current() -> PaddleJob | None:
    """The job of this process, or None before `init_parallel_env` or `fleet.init`."""
    return PaddleJob() if paddle.distributed.is_initialized() else None


class _LaunchedJob(PaddleJob):
    """The job of a process that Paddle's launcher started, before its groups: the store is the one they will use."""

    def store(self) -> PaddleStore | None:
        """The global store, made now if it is not there; `init_parallel_env` and `fleet.init` take the same."""
        return PaddleStore(paddle.base.core.create_or_get_global_tcp_store()) if self.world_size > 1 else None


def launched() -> PaddleJob | None:
    """The job that the launcher's variables speak of, or None without them."""
    return _LaunchedJob() if {"PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"} <= os.environ.keys() else None
