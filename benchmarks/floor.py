"""The floor: what somebody writes by hand for exactly one question, without names, checks or objects.

Every other time is a multiple of these. Standard library only (numpy where arrays are asked for), because the peers'
environments time the floor too: a ratio holds only between two times taken in one process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any


def one_rank(rank: int, sizes: Sequence[int]) -> tuple[list[int], list[range]]:
    """The coordinate of `rank` and its group along every axis (outer to inner)."""
    coordinate = []
    groups = []
    stride = 1
    for size in reversed(sizes):
        place = rank // stride % size
        first = rank - place * stride
        coordinate.append(place)
        groups.append(range(first, first + size * stride, stride))
        stride *= size
    coordinate.reverse()
    groups.reverse()
    return coordinate, groups


def all_groups(sizes: Sequence[int]) -> Iterator[Any]:
    """All groups of every axis, one (groups, size) int64 array each; numpy copies only where it must."""
    import numpy

    world = numpy.arange(math.prod(sizes), dtype=numpy.int64).reshape(sizes)
    for axis, size in enumerate(sizes):
        yield numpy.moveaxis(world, axis, -1).reshape(-1, size)


def all_ranges(sizes: Sequence[int], axis: int) -> Iterator[range]:
    """The members of every group along one axis, groups ascending by first rank."""
    stride = math.prod(sizes[axis + 1 :])
    span = stride * sizes[axis]
    for block in range(0, math.prod(sizes), span):
        for first in range(block, block + stride):
            yield range(first, first + span, stride)
