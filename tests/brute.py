"""The slow truth: what a mesh must answer, found by walking every coordinate with itertools.product."""

from collections.abc import Collection
from itertools import product

from rankatlas import Mesh


def places(mesh: Mesh) -> dict[int, dict[str, int]]:
    """Rank → axis → place, ranks counted off in the order in which product yields the coordinates."""
    walk = product(*(range(size) for size in mesh.sizes))
    return {mesh.first_rank + count: dict(zip(mesh.axes, found)) for count, found in enumerate(walk)}


def groups(mesh: Mesh, axes: Collection[str]) -> list[list[int]]:
    """Ranks whose coordinates agree on every other axis, in the order in which they are met."""
    found: dict[tuple[int, ...], list[int]] = {}
    for rank, place in places(mesh).items():
        found.setdefault(tuple(place[axis] for axis in mesh.axes if axis not in axes), []).append(rank)
    return list(found.values())
