"""Python's own `random`."""

from __future__ import annotations

import random
from typing import Any

from rankatlas.errors import shown


class RandomState:
    """The global state of the `random` module.

    >>> keeper = RandomState()
    >>> keeper.seed(1)
    >>> state = keeper.get_state()
    >>> first = random.random()
    >>> keeper.set_state(keeper.unpack(keeper.pack(state)))
    >>> random.random() == first
    True
    """

    name = "python"

    def seed(self, seed: int) -> None:
        """Seed as `random.seed`."""
        random.seed(seed)

    def get_state(self) -> Any:
        """As `random.getstate`."""
        return random.getstate()

    def set_state(self, state: Any) -> None:
        """As `random.setstate`."""
        random.setstate(state)

    def pack(self, state: Any) -> list[Any]:
        """The state with its tuples as lists."""
        version, numbers, gauss = state
        return [version, list(numbers), gauss]

    def unpack(self, data: Any) -> Any:
        """The state of `pack`."""
        version, numbers, gauss = data
        if gauss is not None and not isinstance(gauss, float):
            raise ValueError(f"the second normal deviate is a float or None, not {shown(gauss)}")
        return version, tuple(numbers), gauss


def generator(seed: int) -> random.Random:
    """A new `random.Random`."""
    return random.Random(seed)
