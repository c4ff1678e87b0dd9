"""The four jobs that everything is measured on: five axes, from 64 ranks to 2^40.

Standard library only, because the peers' environments import it too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

AXES = ("pp", "dp", "sharding", "mp", "sep")  # outer to inner


@dataclass(frozen=True, slots=True)
class Layout:
    """Five sizes, outer to inner, and the one rank that asks where it stands."""

    sizes: tuple[int, ...]

    @property
    def world_size(self) -> int:
        return math.prod(self.sizes)

    @property
    def rank(self) -> int:
        # Two thirds of a power of two has the bits 1010…, so that it is at no edge of any axis.
        return self.world_size * 2 // 3

    @property
    def degrees(self) -> dict[str, int]:
        return dict(zip(AXES, self.sizes, strict=True))

    @property
    def notation(self) -> str:
        return " ".join(f"{axis}={size}" for axis, size in self.degrees.items())


SMALL = Layout((2, 4, 2, 2, 2))
MIDDLE = Layout((4, 8, 4, 4, 2))
MILLION = Layout((16, 512, 4, 8, 4))
HUGE = Layout((64, 1 << 20, 64, 8, 32))  # 2^40: nothing may grow with the world, so this costs what 64 ranks cost

LAYOUTS = (SMALL, MIDDLE, MILLION, HUGE)


def layout_of(world_size: int) -> Layout:
    """The layout of this many ranks."""
    return next(layout for layout in LAYOUTS if layout.world_size == world_size)
