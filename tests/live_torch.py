"""One process of four: makes groups with torch.distributed and sends the results of all_reduce as JSON.

    python live_torch.py RANK WORLD STORE_FILE

Rank r adds 2**r, so a sum names the members of its group.
"""

import datetime
import json
import sys

import torch
import torch.distributed as dist

from rankatlas import Mesh, Topology

rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group(
    "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60)
)
torch.set_num_threads(1)
mesh = Mesh(pp=2, mp=2)
ways = {
    "a Ranks": lambda group: group.ranks,
    "a list": lambda group: list(group),
    "a range": lambda group: group.ranks.as_range(),
}
said = {}


def members(handle):
    number = torch.tensor([2**rank], dtype=torch.int64)
    dist.all_reduce(number, group=handle)
    return [place for place in range(world) if number.item() >> place & 1]


# Every process makes every group, in the same order, and keeps its own.
for name, way in ways.items():
    for axis in mesh.axes:
        for group in mesh.groups(axis):
            handle = dist.new_group(way(group))
            if rank in group:
                said[f"{axis} by {name}"] = [members(handle), dist.get_rank(handle), dist.get_world_size(handle)]

for axis in ("pp", "mp"):
    for first in range(world):
        info = getattr(Topology(first, world, pp_degree=2, mp_degree=2), f"{axis}_info")
        if info.rank == 0:
            handle = dist.new_group(info.world)
            if rank in info.world:
                said[f"{axis} by topology"] = [members(handle), dist.get_rank(handle), dist.get_world_size(handle)]

said["world by topology"] = members(dist.new_group(Topology(rank, world).world.world))
said["world"] = members(dist.group.WORLD)
dist.barrier()
dist.destroy_process_group()
print(json.dumps(said))
