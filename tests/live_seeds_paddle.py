"""One process of four: makes a real fleet, seeds itself from its live group, and sends what it drew as JSON.

python live_seeds_paddle.py DEGREE=2 DEGREE=2        (rank and world are in Paddle's own environment variables)
"""

import hashlib
import json
import os
import random
import sys

import numpy
import paddle
import paddle.distributed as dist
from paddle.distributed import fleet

from rankatlas import Mesh, get_rng_state_tracker, set_seed
from rankatlas.seeding import SeedPlan, distributed_seeds
from rankatlas.tensors import TensorLayout

paddle.set_device("cpu")
make_group = dist.new_group


def new_group(*given, **named):
    """One group after the other: Paddle's gloo loses connections when two that do not meet are made at once."""
    dist.barrier()
    group = make_group(*given, **named)
    dist.barrier()
    return group


dist.new_group = new_group
degrees = {name: int(size) for name, size in (word.split("=") for word in sys.argv[1:])}
strategy = fleet.DistributedStrategy()
strategy.hybrid_configs = {**dict.fromkeys(("dp_degree", "mp_degree", "pp_degree", "sharding_degree"), 1), **degrees}
fleet.init(is_collective=True, strategy=strategy)
rank, world = dist.get_rank(), dist.get_world_size()
group = fleet.get_hybrid_communicate_group()
# The mesh with the axes of fleet's own order, outer to inner, and the sizes that fleet has.
words = {"data": "dp", "pipe": "pp", "model": "mp", "context": "cp"}
topology = group.topology()
mesh = Mesh.from_axes([(words.get(name, name), topology.get_dim(name)) for name in topology.get_hybrid_group_names()])
said = {"rank": rank, "mesh": str(mesh)}

said["live"] = distributed_seeds(42, group)
said["set_seed"] = set_seed(42)
said["drawn"] = [paddle.rand([3]).tolist(), random.random(), numpy.random.random()]
for name in ("global_seed", "local_seed"):
    with get_rng_state_tracker().rng_state(name):
        said[name] = paddle.nn.functional.dropout(paddle.ones([64]), 0.5).tolist()


def checksum(tensor):
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()[:16]


def gathered(value):
    """Everybody's checksum, carried by Paddle."""
    number = paddle.to_tensor([int(value, 16) >> 1], dtype="int64")
    found = []
    dist.all_gather(found, number)
    return [one.item() for one in found]


plan = SeedPlan(1234, mesh)
model = tuple(axis for axis in mesh.axes if axis in ("mp", "pp"))
TENSORS = {
    "weight": TensorLayout(mesh, [axis for axis in mesh.axes if axis not in model], model),
    "norm": TensorLayout(mesh, [axis for axis in mesh.axes if axis != "pp"], "pp"),
    "moment": TensorLayout(mesh, sharded=mesh.axes),
}
tracker = get_rng_state_tracker()
for name, layout in TENSORS.items():
    tracker.add(name, plan.stream_for(name, layout).seed(rank))
    with tracker.rng_state(name):
        linear = paddle.nn.Linear(8, 4)
    said[f"{name} weights"] = gathered(checksum(linear.weight))

print(json.dumps(said), flush=True)
# Paddle's gloo threads may hang while the interpreter goes down; everything is said.
os._exit(0)
