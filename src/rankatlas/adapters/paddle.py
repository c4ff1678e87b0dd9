"""Paddle: the default generators of the current device, on CPU the only one; groups from a plan."""

from __future__ import annotations

from typing import Any

import paddle

from rankatlas.adapters.paddle_gloo import separate_stores
from rankatlas.adapters.paddle_groups import hybrid_configs, open_groups, to_process_mesh
from rankatlas.errors import RandomStateError

__all__ = [
    "RandomState",
    "generator",
    "hybrid_configs",
    "live_group",
    "open_groups",
    "separate_stores",
    "to_process_mesh",
    "world_size",
]


class RandomState:
    """The global state of Paddle, as `paddle.seed` and `paddle.get_rng_state` see it.

    Paddle's CPU generator starts from the low 32 bits of a seed, and its state cannot be set, so no more count there.
    """

    name = "paddle"

    def seed(self, seed: int) -> None:
        """Seed as `paddle.seed`, which seeds every device."""
        paddle.seed(seed)

    def get_state(self) -> Any:
        """One state per generator of the current device."""
        return paddle.get_rng_state()

    def set_state(self, state: Any) -> None:
        """As `paddle.set_rng_state`."""
        paddle.set_rng_state(state)

    def pack(self, state: Any) -> Any:
        """Refused: Paddle gives its states out as handles whose content cannot be set again.

        Its own Trainer stores the seed alone, which restarts every stream.
        """
        raise RandomStateError(
            "Paddle 3.3 has no way to store a random state: its states are handles, not data.  Keep the other backends"
            " in the checkpoint, or seed Paddle anew from a plan",
            axes=(),
            ranks=[],
        )

    def unpack(self, data: Any) -> Any:
        """Refused as `pack`."""
        return self.pack(data)


def generator(seed: int) -> Any:
    """A new CPU generator."""
    made = paddle.base.core.Generator()
    made.manual_seed(seed)
    return made


def live_group() -> Any:
    """The communicate group that `fleet.init` made, or None before that."""
    from paddle.distributed import fleet

    return getattr(fleet.fleet, "_hcg", None)


def world_size() -> int:
    """The number of processes Paddle was started with."""
    return int(paddle.distributed.get_world_size())
