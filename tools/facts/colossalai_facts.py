"""What Colossal-AI's ProcessGroupMesh answers, over torch's fake backend.

    python colossalai_facts.py OUT

The package imports half of a training stack, so only its one file is loaded. A fact's `kind` is "layout" (one mesh,
seen from a few ranks) or "special" (one call, with its answer or error). Axes have no names there: they are numbers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch.distributed as dist
from facts_io import answer, deliver, installed_file, load_file, plain
from torch.testing._internal.distributed.fake_pg import FakeStore


@contextmanager
def as_rank(rank: int, world: int) -> Iterator[None]:
    """Be this rank of a fake world; the process groups are gone afterwards."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()


def seen_by(peer: Any, rank: int, sizes: list[int], pair: list[int]) -> dict[str, Any]:
    with as_rank(rank, math.prod(sizes)):
        mesh = peer.ProcessGroupMesh(*sizes)
        along = [mesh.get_ranks_in_group(mesh.get_group_along_axis(axis)) for axis in range(len(sizes))]
        both = mesh.get_ranks_in_group(mesh.get_group_along_axis(pair)) if len(pair) > 1 else None
        return {"rank": rank, "coordinate": plain(mesh.coordinate()), "groups": along, "pair": pair, "pair_group": both}


def layout_facts(peer: Any, dice: random.Random, count: int) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = []
    while len(facts) < count:
        sizes = [dice.choice((1, 2, 2, 3, 4, 5, 8)) for _ in range(dice.choice((1, 2, 3, 4, 5)))]
        world = math.prod(sizes)
        if not 1 < world <= 48:
            continue
        ranks = sorted(dice.sample(range(world), k=min(world, 6)))
        coords = [[rank, plain(peer.ProcessGroupMesh.unravel(rank, tuple(sizes)))] for rank in ranks]
        back = [peer.ProcessGroupMesh.ravel(tuple(coord), tuple(sizes)) for _, coord in coords]
        # axes in the order asked, ascending or not: the members come back sorted by rank either way
        pair = dice.sample(range(len(sizes)), k=min(2, len(sizes)))
        seen = [seen_by(peer, rank, sizes, pair) for rank in ranks[:3]]
        facts.append({"kind": "layout", "sizes": sizes, "coords": coords, "ranks": back, "seen": seen})
    return facts


def special_facts(peer: Any) -> list[dict[str, Any]]:
    mesh = peer.ProcessGroupMesh
    cases: list[tuple[str, int, int, Callable[[], Any]]] = [
        ("ProcessGroupMesh(2, 2) in a world of 8", 0, 8, lambda: mesh(2, 2).shape),
        ("ProcessGroupMesh(2, 8) in a world of 8", 0, 8, lambda: mesh(2, 8).shape),
        ("ProcessGroupMesh(-2, -4) in a world of 8", 0, 8, lambda: mesh(-2, -4).coordinate()),
        ("ProcessGroupMesh() in a world of 1", 0, 1, lambda: mesh().shape),
        ("unravel(8, (2, 4))", 0, 1, lambda: mesh.unravel(8, (2, 4))),
        ("unravel(-1, (2, 4))", 0, 1, lambda: mesh.unravel(-1, (2, 4))),
        ("ravel((0, 4), (2, 4))", 0, 1, lambda: mesh.ravel((0, 4), (2, 4))),
        ("ravel((0, 5), (2, 4), 'wrap')", 0, 1, lambda: mesh.ravel((0, 5), (2, 4), "wrap")),
        ("ravel((0, -1), (2, 4), 'wrap')", 0, 1, lambda: mesh.ravel((0, -1), (2, 4), "wrap")),
        ("ravel((0, 5), (2, 4), 'clip')", 0, 1, lambda: mesh.ravel((0, 5), (2, 4), "clip")),
        ("ravel((0,), (2, 4))", 0, 1, lambda: mesh.ravel((0,), (2, 4))),
        (
            "get_coords_along_axis((0, 1), [1, 0], [[0, 1], [0, 1]])",
            0,
            1,
            lambda: mesh.get_coords_along_axis((0, 1), [1, 0], [[0, 1], [0, 1]]),
        ),
        ("ProcessGroupMesh(2, 4): get_group_along_axis(2)", 0, 8, lambda: ranks_along(mesh(2, 4), 2)),
        ("ProcessGroupMesh(2, 4): get_group_along_axis(-1)", 0, 8, lambda: ranks_along(mesh(2, 4), -1)),
        ("ProcessGroupMesh(2, 4): get_group_along_axis([1, 1])", 0, 8, lambda: ranks_along(mesh(2, 4), [1, 1])),
    ]
    facts = []
    for call, rank, world, function in cases:
        with as_rank(rank, world):
            facts.append({"kind": "special", "call": call, "rank": rank, "world": world} | answer(function))
    return facts


def ranks_along(mesh: Any, axis: Any) -> list[int]:
    return list(mesh.get_ranks_in_group(mesh.get_group_along_axis(axis)))


def main() -> None:
    path = installed_file("colossalai", "colossalai/cluster/process_group_mesh.py")
    peer = load_file(path, "process_group_mesh")
    deliver(layout_facts(peer, random.Random(1), 40) + special_facts(peer), numpy=np.__version__)


if __name__ == "__main__":
    main()
