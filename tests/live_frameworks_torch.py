"""The layouts of frameworks on torch, in real processes; prints one JSON object, job → what every rank said.

    python live_frameworks_torch.py FOLDER accelerate|fsdp2|torchtitan|deepspeed

Every job asks the framework for a layout in its own words, agrees on them, lets the framework make its groups, and
records and verifies these.
"""

import datetime
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # torchtitan makes meshes of one with this backend

from forked import Ranks
from rankatlas import live
from rankatlas.errors import GroupMismatch, LayoutMismatch

FOLDER, FRAMEWORK = Path(sys.argv[1]), sys.argv[2]


def fault(work):
    """What is wrong, or None."""
    try:
        work()
    except (GroupMismatch, LayoutMismatch) as error:
        return {"text": str(error), **vars(error)}
    return None


def recorded(layout, wrong, axes):
    made = live.record()
    return {
        "notation": made.layout and str(made.layout),
        "unexplained": made.unexplained,
        "kinds": {kind.description: kind.axes for kind in made.kinds},
        "verified": fault(lambda: live.verify(layout, axes=axes)),
        "wrong": fault(lambda: live.verify(wrong)),
    }


def job(name, make):
    """One job in these processes: initialised, built, recorded, torn down."""

    def run(rank, world):
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo",
            init_method=f"file://{FOLDER}/{name}.store",
            rank=rank,
            world_size=world,
            timeout=datetime.timedelta(seconds=30),
        )
        try:
            return make(rank, world)
        finally:
            dist.barrier()
            dist.destroy_process_group()

    return run


def accelerate(sizes, other, layout, wrong, axes):
    from accelerate.parallelism_config import ParallelismConfig

    def make(rank, world):
        config = ParallelismConfig(**sizes)
        said = {"mismatch": fault(lambda: live.agree(ParallelismConfig(**other) if rank == 2 else config))}
        live.agree(config)
        config.build_device_mesh("cpu")
        return {**said, **recorded(layout, wrong, axes)}

    return make


def torchtitan(sizes, other, layout, wrong, axes):
    from torchtitan.distributed.parallel_dims import ParallelDims

    def make(rank, world):
        dims = ParallelDims(**sizes, world_size=world)
        differing = ParallelDims(**other, world_size=world) if rank == 2 else dims
        said = {"mismatch": fault(lambda: live.agree(differing))}
        live.agree(dims)
        dims.build_mesh()
        return {**said, **recorded(layout, wrong, axes)}

    return make


def fsdp2(sizes, other, layout, wrong, axes):
    """A step of training with `fully_shard`, before the groups are looked at."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def make(rank, world):
        said = {"mismatch": fault(lambda: live.agree(other if rank == 2 else sizes))}
        live.agree(sizes)
        mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        data = tuple(axis for axis in sizes if axis.startswith("dp"))
        model = torch.nn.Linear(8, 8)
        fully_shard(model, mesh=mesh[data if len(data) > 1 else data[0]])
        model(torch.ones(2, 8)).sum().backward()
        return {**said, **recorded(layout, wrong, axes)}

    return make


def deepspeed(sizes, other, layout, wrong, axes):
    """The grid of its pipeline engine, which makes the groups of a ProcessTopology."""
    from deepspeed import comm, ops
    from deepspeed.runtime.pipe.topology import PipelineParallelGrid, ProcessTopology

    # Its operator for shared memory would be compiled now, and waits for ever for a build that was stopped.
    ops.__compatible_ops__.clear()

    def make(rank, world):
        comm.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
        topology = ProcessTopology(list(sizes), list(sizes.values()))
        differing = ProcessTopology(list(other), list(other.values())) if rank == 2 else topology
        said = {"mismatch": fault(lambda: live.agree(differing))}
        live.agree(topology)
        PipelineParallelGrid(topology=topology)
        return {**said, **recorded(layout, wrong, axes)}

    return make


def titan(**sizes):
    return {**dict.fromkeys(("dp_replicate", "dp_shard", "cp", "tp", "pp", "ep"), 1), **sizes}


# Framework → how it makes a job, and jobs: ranks, what they say, what rank 2 says instead, the layout, one that is
# wrong, and the axes that must be there.
JOBS = {
    "accelerate": (
        accelerate,
        {
            "fsdp and tp": (
                4,
                {"dp_shard_size": 2, "tp_size": 2},
                {"dp_shard_size": 4},
                "dp_shard=2 tp=2",
                "tp=2 dp_shard=2",
                ["dp_shard", "tp"],
            ),
            "hsdp and tp": (
                8,
                {"dp_replicate_size": 2, "dp_shard_size": 2, "tp_size": 2},
                {"dp_shard_size": 4, "tp_size": 2},
                "dp_replicate=2 dp_shard=2 tp=2",
                "dp_shard=2 dp_replicate=2 tp=2",
                ["dp_replicate+dp_shard", "tp"],
            ),
            "hsdp and cp": (
                8,
                {"dp_replicate_size": 2, "dp_shard_size": 2, "cp_size": 2},
                {"dp_shard_size": 4, "cp_size": 2},
                "dp_replicate=2 dp_shard=2 cp=2",
                "dp_replicate=2 cp=2 dp_shard=2",
                ["dp_replicate+dp_shard", "dp_shard+cp", "cp"],
            ),
        },
    ),
    "torchtitan": (
        torchtitan,
        {
            "dense": (
                8,
                titan(pp=2, dp_shard=-1, tp=2),
                titan(pp=2, dp_shard=4),
                "pp=2 dp_shard=2 tp=2",
                "pp=2 tp=2 dp_shard=2",
                ["pp", "dp_shard", "tp"],
            ),
            "experts": (
                8,
                titan(pp=2, dp_shard=2, tp=2, ep=2),
                titan(pp=2, dp_shard=2, tp=2, ep=4),
                "dense: pp=2 dp_shard=2 tp=2; expert: pp=2 efsdp=2 ep=2; shared: pp",
                "dense: pp=2 dp_shard=2 tp=2; expert: pp=2 ep=2 efsdp=2; shared: pp",
                ["pp", "dense.tp", "expert.ep", "expert.efsdp"],
            ),
            "replicated experts": (
                8,
                titan(dp_replicate=2, dp_shard=2, cp=2, ep=2),
                titan(dp_replicate=1, dp_shard=4, cp=2, ep=2),
                "dense: dp_replicate=2 dp_shard=2 cp=2; expert: dp_replicate=2 efsdp=2 ep=2; shared: dp_replicate",
                "dp_shard=2 dp_replicate=2 cp=2",
                ["dp_replicate", "dense.dp_replicate+dp_shard", "expert.ep"],
            ),
            "experts across": (
                8,
                titan(dp_shard=2, cp=2, tp=2, ep=4),
                {**titan(dp_shard=2, cp=2, tp=2, ep=4), "spmd_backend": "full_dtensor"},
                "dense: dp_shard=2 cp=2 tp=2; expert: efsdp=2 ep=4",
                "dense: cp=2 dp_shard=2 tp=2; expert: efsdp=2 ep=4",
                ["dense.dp_shard+cp", "expert.ep"],
            ),
        },
    ),
    "fsdp2": (
        fsdp2,
        {
            "sharded": (
                4,
                {"dp_shard": 2, "tp": 2},
                {"dp_shard": 4, "tp": 1},
                "dp_shard=2 tp=2",
                "tp=2 dp_shard=2",
                ["dp_shard"],
            ),
            "hybrid": (
                8,
                {"dp_replicate": 2, "dp_shard": 2, "tp": 2},
                {"dp_replicate": 2, "dp_shard": 4, "tp": 1},
                "dp_replicate=2 dp_shard=2 tp=2",
                "dp_shard=2 dp_replicate=2 tp=2",
                ["dp_replicate", "dp_shard", "tp"],
            ),
        },
    ),
    "deepspeed": (
        deepspeed,
        {
            "pipe, data, model": (
                8,
                {"pipe": 2, "data": 2, "model": 2},
                {"pipe": 2, "model": 2, "data": 2},
                "pipe=2 data=2 model=2",
                "pipe=4 data=2",
                ["data", "pipe", "model"],
            ),
        },
    ),
}


def main():
    build, jobs = JOBS[FRAMEWORK]
    said = {}
    for number, (name, (world, *how)) in enumerate(jobs.items()):
        folder = FOLDER / str(number)
        folder.mkdir()
        run = job(f"job{number}", build(*how))
        said[name] = Ranks(lambda rank, run=run, world=world: run(rank, world), world, folder, 40).wait()
    layouts = {name: layout for name, (_, _, _, layout, *_) in jobs.items()}
    print(json.dumps({"layouts": layouts, "answers": said}))


if __name__ == "__main__":
    main()
