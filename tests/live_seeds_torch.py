"""One process of eight: initialises weights from streams, and sends their checksums as JSON.

    python live_seeds_torch.py RANK WORLD STORE_FILE

Every process knows its rank and the mesh, nothing else; the checksums are gathered by torch.distributed.
"""

import datetime
import hashlib
import json
import random
import sys

import torch
import torch.distributed as dist

from rankatlas import Mesh
from rankatlas.seeding import RngStateTracker, SeedPlan
from rankatlas.seeding.checkpoint import join_states, load_states, save_states
from rankatlas.seeding.values import sharded_normal
from rankatlas.tensors import TensorLayout

rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group(
    "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=60)
)
torch.set_num_threads(1)
mesh = Mesh(pp=2, dp=2, tp=2)
plan = SeedPlan(1234, mesh)
TENSORS = {
    "weight": TensorLayout(mesh, replicated="dp", sharded=("pp", "tp")),
    "norm": TensorLayout(mesh, replicated=("dp", "tp"), sharded="pp"),
    "moment": TensorLayout(mesh, sharded=("tp", "pp", "dp")),
    "embedding": TensorLayout(mesh, replicated=("pp", "dp"), sharded="tp"),
}
said = {}


def checksum(tensor):
    return hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest()[:16]


def gathered(value):
    found = [None] * world
    dist.all_gather_object(found, value)
    return found


def drawn(make):
    """The same module made inside a stream."""
    linear = make()
    return checksum(torch.cat([linear.weight.detach().ravel(), linear.bias.detach()]))


for name, layout in TENSORS.items():
    stream = plan.stream_for(name, layout)
    said[f"{name} by generator"] = gathered(checksum(torch.randn(4, 8, generator=stream.torch(rank))))
    tracker = RngStateTracker(["torch"])
    tracker.add(name, stream.seed(rank))
    before = torch.get_rng_state()
    with tracker.rng_state(name):
        said[f"{name} by tracker"] = gathered(drawn(lambda: torch.nn.Linear(8, 4)))
    said[f"{name} left the rest alone"] = gathered(torch.equal(before, torch.get_rng_state()))

plan.seed_everything(rank, backends=["torch", "python"])
said["everything"] = gathered([checksum(torch.rand(5)), random.random()])

# A layout-invariant weight: gathered along tp it is one array, the same in every group.
stream = plan.stream("invariant", same=("dp", "tp", "pp"))
piece = sharded_normal(stream, (6, 8), (None, "tp"), rank, framework="torch")
for group in mesh.groups("tp"):
    handle = dist.new_group(list(group))
    if rank in group:
        pieces = [torch.empty_like(piece) for _ in group]
        dist.all_gather(pieces, piece.contiguous(), group=handle)
        mine = checksum(torch.cat(pieces, dim=1))
said["invariant"] = gathered(mine)
said["invariant alone"] = checksum(sharded_normal(stream, (6, 8), (None, None), rank, framework="torch"))

# A checkpoint: the writers' states gathered, joined, and loaded by everybody.
stream = plan.stream("dropout", same="tp", differ=("pp", "dp"))
tracker = RngStateTracker(["torch"])
tracker.add("dropout", stream.seed(rank))
with tracker.rng_state("dropout"):
    torch.rand(rank // 2 + 1)
parts = gathered(save_states(tracker, [stream], rank))
with tracker.rng_state("dropout"):
    goes_on = torch.rand(3).tolist()
saved = json.loads(json.dumps(join_states(plan, [stream], parts)))
load_states(saved, tracker, [stream], rank)
with tracker.rng_state("dropout"):
    said["resumed"] = gathered(torch.rand(3).tolist() == goes_on)
said["states"] = gathered(len(parts[rank]["streams"]))

dist.barrier()
dist.destroy_process_group()
print(json.dumps(said))
