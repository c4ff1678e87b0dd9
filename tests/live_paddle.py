"""One process of four: makes groups with paddle.distributed and sends the results of all_reduce as JSON.

    python live_paddle.py        (rank and world are in Paddle's own environment variables)

Rank r adds 2**r, so a sum names the members of its group.
"""

import json
import os

import paddle
import paddle.distributed as dist

from rankatlas import Mesh, Topology

paddle.set_device("cpu")
dist.init_parallel_env()
rank, world = dist.get_rank(), dist.get_world_size()
mesh = Mesh(pp=2, mp=2)
said = {}


def members(handle):
    number = paddle.to_tensor([2**rank], dtype="int64")
    dist.all_reduce(number, group=handle)
    return [place for place in range(world) if number.item() >> place & 1]


def new_group(ranks):
    dist.barrier()  # Paddle 3.3's gloo refuses connections when two groups are made at the same time
    return dist.new_group(ranks, backend="gloo")


for axis in mesh.axes:
    for first in range(world):
        info = getattr(Topology(first, world, pp_degree=2, mp_degree=2), f"{axis}_info")
        if info.rank == 0:
            handle = new_group(info.world)
            if rank in info.world:
                said[f"{axis} by topology"] = [members(handle), handle.rank, handle.nranks]

for name, way in {"a Ranks": lambda group: group.ranks, "a list": list}.items():
    for axis in mesh.axes:
        for group in mesh.groups(axis):
            handle = new_group(way(group))
            if rank in group:
                said[f"{axis} by {name}"] = [members(handle), handle.rank, handle.nranks]

print(json.dumps(said), flush=True)
dist.barrier()  # rank 0 serves the store that others may still be asking
# Paddle's gloo threads may hang while the interpreter goes down; everything is said.
os._exit(0)
