"""The meshes torchtitan builds from its degrees, over torch's fake backend.

    python torchtitan_facts.py OUT

A fact has the degrees (`given`, of `world` ranks) and what one rank sees (`answer`): the ranks of its group in each
mesh, by torchtitan's name; or `error`. `ParallelDims` is torchtitan's own; the "loss" mesh is its flattened one.
"""

from __future__ import annotations

import math
import random
from typing import Any

import torch
import torch.distributed as dist
from facts_io import answer, deliver
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchtitan.distributed import parallel_dims
from torchtitan.distributed.parallel_dims import ParallelDims

parallel_dims.device_type = "cpu"


def groups(mesh: Any, rank: int, world: int) -> Any:
    """The ranks of this process's group along a mesh of one axis."""
    return sorted(mesh.mesh.flatten().tolist())


def ask(given: dict[str, int], world: int, rank: int) -> dict[str, Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        dims = ParallelDims(world_size=world, **given)
        dims.build_mesh()
        return {name: groups(mesh, rank, world) for name, mesh in dims._single_axis_meshes.items()}
    finally:
        dist.destroy_process_group()


def main() -> None:
    torch.manual_seed(0)
    dice = random.Random(8)
    facts: list[dict[str, Any]] = []
    while len(facts) < 72:
        given = {
            "pp": dice.choice((1, 1, 2)),
            "dp_replicate": dice.choice((1, 1, 2)),
            "dp_shard": dice.choice((1, 2, 3, 4)),
            "cp": dice.choice((1, 1, 2)),
            "tp": dice.choice((1, 2, 4)),
        }
        world = math.prod(given.values())
        if not 2 <= world <= 48:
            continue
        if dice.random() < 0.5:
            given["dp_shard"] = -1
        given["ep"] = dice.choice((1, 1, 2, 2, 4, 8))
        rank = dice.randrange(world)
        facts.append({"kind": "meshes", "world": world, "rank": rank, "given": given} | answer(ask, given, world, rank))
    deliver(facts, torch=torch.__version__.split("+")[0])


if __name__ == "__main__":
    main()
