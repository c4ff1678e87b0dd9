"""One process of four: agrees, differs, falls silent, then makes the groups of fleet and records them; prints JSON.

python live_agree_paddle.py        (rank and world are in Paddle's own environment variables)
"""

import json
import os
import random
import time

import numpy
import paddle
import paddle.distributed as dist
from paddle.distributed import collective, fleet

from rankatlas import live
from rankatlas.adapters.paddle import separate_stores
from rankatlas.errors import GroupMismatch, LayoutMismatch, RankSilent

paddle.set_device("cpu")
said = {"launched": live.agree("dp=2 mp=2", timeout=30).world_size}
try:
    live.agree("dp=4" if os.environ["PADDLE_TRAINER_ID"] == "1" else "dp=2 mp=2", timeout=30)
except LayoutMismatch as error:
    said["different before"] = error.odd_ranks
dist.init_parallel_env()
rank = dist.get_rank()


def state():
    groups = {number: list(group.ranks) for number, group in collective._get_group_map().items()}
    generators = [paddle.get_rng_state()[0].current_seed(), random.getstate(), numpy.random.get_state()]
    return repr((groups, generators, sorted(os.environ.items())))


before = state()
said["agreed"] = live.agree("dp=2 mp=2").world_size
try:
    live.agree("dp=4" if rank == 3 else "dp=2 mp=2")
except LayoutMismatch as error:
    said["different"] = {"text": str(error), "odd_ranks": error.odd_ranks}
started = time.monotonic()
try:
    if rank == 2:
        time.sleep(3)
    live.agree("dp=2 mp=2", timeout=2)
except RankSilent as error:
    # Rank 2 slept for a part of that, and is told as the others are.
    said["silent"] = {"ranks": error.ranks, "seconds": time.monotonic() - started - (3 if rank == 2 else 0)}
said["nothing changed"] = state() == before

strategy = fleet.DistributedStrategy()
strategy.hybrid_configs = {"dp_degree": 2, "mp_degree": 2, "pp_degree": 1, "sharding_degree": 1, "sep_degree": 1}
with separate_stores():
    fleet.init(is_collective=True, strategy=strategy)
made = live.record()
said["notation"] = str(made.layout)
said["unexplained"] = made.unexplained
said["kinds"] = {kind.description: [kind.axes, kind.groups] for kind in made.kinds}
said["verified"] = live.verify("dp=2 mp=2", axes=["dp", "mp"]).world_size == 4
try:
    live.verify("mp=2 dp=2")
except GroupMismatch as error:
    said["wrong"] = str(error)
print(json.dumps(said), flush=True)
dist.barrier()  # rank 0 serves the store that others may still be asking
# Paddle's gloo threads may hang while the interpreter goes down; everything is said.
os._exit(0)
