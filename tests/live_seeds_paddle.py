"""One process of four: makes a real fleet, seeds itself from its live group, and sends what it drew as JSON.

python live_seeds_paddle.py DEGREE=2 DEGREE=2        (rank and world are in Paddle's own environment variables)
"""

import hashlib
import json
import os
import random
import sys
import time

import numpy
import paddle
import paddle.distributed as dist
from paddle.distributed import collective, fleet

from rankatlas import Mesh, get_rng_state_tracker, set_seed
from rankatlas.seeding import SeedPlan, distributed_seeds
from rankatlas.tensors import TensorLayout

paddle.set_device("cpu")
make_group = collective._new_process_group_impl
PORTS = os.environ["STORE_PORTS"].split(",")
stores = []


def with_a_store_of_its_own(backend, _, rank, size, *given, group_id, **named):
    """A group whose members meet in a store of their own.

    In the common store groups of Paddle 3.3.1's gloo read each other's addresses: two that are made at once fail.
    """
    port = int(PORTS[group_id % len(PORTS)])
    stores.append(paddle.base.core.TCPStore("127.0.0.1", port, rank == 0, size, 60))
    return make_group(backend, stores[-1], rank, size, *given, group_id=group_id, **named)


collective._new_process_group_impl = with_a_store_of_its_own
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
# Nobody leaves before all have said everything, and rank 0, which holds the store, is the last.
store = collective._default_store
for word in ("said", "left"):
    store.add(word, 1)
    while (word == "said" or rank == 0) and store.add(word, 0) < world:
        time.sleep(0.01)
# Paddle's gloo threads may hang while the interpreter goes down.
os._exit(0)
