"""Records of real torch jobs; prints one JSON object, job → what rank 0 says.

    python live_record_torch.py FOLDER mesh        DeviceMesh with HSDP, and groups that nobody named
    python live_record_torch.py FOLDER megatron    the groups of the installed megatron-core, several layouts

Each layout is a job of its own in the same eight processes.
"""

import datetime
import json
import sys
from itertools import permutations
from pathlib import Path

import torch
import torch.distributed as dist

from forked import Ranks
from rankatlas import live, parse_mesh
from rankatlas.core import parse_layout
from rankatlas.errors import GroupMismatch

FOLDER, JOB = Path(sys.argv[1]), sys.argv[2]
WORLD = 8

# Megatron's arguments → the layout they mean.
MEGATRON = [
    ({"tp": 2, "cp": 2, "pp": 2, "ep": 2}, "dense: pp=2 dp=1 cp=2 tp=2; expert: pp=2 edp=1 ep=2 etp=2; shared: pp"),
    ({"tp": 2, "pp": 2, "ep": 2, "etp": 1}, "dense: pp=2 dp=2 tp=2; expert: pp=2 edp=2 ep=2 etp=1; shared: pp"),
    ({"tp": 2, "pp": 2}, "pp=2 dp=2 tp=2"),
    ({"tp": 4}, "dp=2 tp=4"),
    ({"cp": 2, "tp": 2}, "dp=2 cp=2 tp=2"),
    ({"pp": 4}, "pp=4 dp=2"),
    ({"tp": 2, "pp": 2, "order": "tp-cp-ep-pp-dp"}, "dp=2 pp=2 tp=2"),
    ({"ep": 4, "pp": 2, "etp": 1}, "dense: pp=2 dp=4; expert: pp=2 ep=4; shared: pp"),
]
WRONG = {"pp=2 dp=2 tp=2": "pp=2 tp=2 dp=2", "dp=2 cp=2 tp=2": "cp=2 dp=2 tp=2", "pp=4 dp=2": "dp=2 pp=4"}
LONG = {
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "cp": "context_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
    "order": "order",
}


def fault(work):
    try:
        work()
    except GroupMismatch as error:
        return {"text": str(error), **vars(error)}
    return None


def said_of(made):
    return {
        "notation": made.layout and str(made.layout),
        "inferred": made.inferred,
        "unexplained": made.unexplained,
        "kinds": {kind.description: [kind.axes, kind.groups] for kind in made.kinds},
    }


def start(rank, name):
    dist.init_process_group(
        "gloo",
        init_method=f"file://{FOLDER}/{name}.store",
        rank=rank,
        world_size=WORLD,
        timeout=datetime.timedelta(seconds=30),
    )


def job(name, make):
    """One job in these processes: initialised, built, recorded, torn down."""

    def run(rank):
        torch.set_num_threads(1)
        start(rank, name)
        try:
            return make(rank)
        finally:
            dist.barrier()
            dist.destroy_process_group()

    return run


def megatron_job(sizes, notation):
    from megatron.core import parallel_state

    arguments = {LONG[name]: value for name, value in sizes.items()}

    def make(rank):
        live.agree(arguments)
        parallel_state.initialize_model_parallel(**arguments)
        made = live.record()
        said = said_of(made)
        expected = parse_layout(notation)
        axes = ["dense.tp", "dense.dp", "expert.ep"] if notation.startswith("dense") else list(expected.axes)
        said["verified"] = fault(lambda: live.verify(expected, axes=[axis for axis in axes if has(expected, axis)]))
        wrong = WRONG.get(notation)
        said["wrong"] = wrong and fault(lambda: live.verify(wrong))
        # Every member of the framework's own groups, by its own getters.
        said["real"] = {
            "tp": dist.get_process_group_ranks(parallel_state.get_tensor_model_parallel_group()),
            "pp": dist.get_process_group_ranks(parallel_state.get_pipeline_model_parallel_group()),
            "dp": dist.get_process_group_ranks(parallel_state.get_data_parallel_group()),
            "cp": dist.get_process_group_ranks(parallel_state.get_context_parallel_group()),
            "ep": dist.get_process_group_ranks(parallel_state.get_expert_model_parallel_group()),
        }
        parallel_state.destroy_model_parallel()
        return said

    return make


def has(layout, address):
    chart, _, axis = address.rpartition(".")
    return axis in (layout[chart] if chart else layout).axes


def hsdp(rank):
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp_replicate", "dp_shard", "tp"))
    mesh["dp_replicate", "dp_shard"]._flatten("dp")
    said = said_of(live.record(str(FOLDER / "hsdp.json")))
    said["verified"] = fault(
        lambda: live.verify("dp_replicate=2 dp_shard=2 tp=2", axes=["tp", "dp_replicate+dp_shard"])
    )
    said["wrong"] = fault(lambda: live.verify("dp_shard=2 dp_replicate=2 tp=2"))
    said["absent"] = fault(lambda: live.verify("dp_replicate=2 dp_shard=2 tp=2", axes=["dp_replicate+tp"]))
    return said


def orders(rank):
    """Two dozen layouts of three axes, a dozen of two, one after the other: notation → what was inferred."""
    from torch.distributed.device_mesh import init_device_mesh

    found = {}
    cubes = [list(zip(axes, (2, 2, 2))) for axes in permutations(("pp", "dp", "cp", "tp"), 3)]
    planes = [list(zip(axes, (4, 2))) for axes in permutations(("pp", "dp", "cp", "tp"), 2)]
    for number, axes in enumerate(cubes + planes):
        if number:
            dist.barrier()
            dist.destroy_process_group()
            start(rank, f"orders{number}")
        names, sizes = zip(*axes)
        init_device_mesh("cpu", sizes, mesh_dim_names=names)
        made = live.record()
        found[" ".join(f"{name}={size}" for name, size in axes)] = [str(made.layout), made.unexplained]
    return found


def nameless(rank):
    """Groups along two axes, made by new_group with no word about them, and ends of the pipeline for some ranks."""
    mesh = parse_mesh("pp=4 tp=2")
    for axis in ("tp", "pp"):
        for group in mesh.groups(axis):
            dist.new_group(list(group))
    for tp in range(2):
        dist.new_group([tp, 6 + tp])
    said = said_of(live.record())
    said["verified"] = fault(lambda: live.verify(mesh, axes=["tp", "pp"]))
    said["wrong"] = fault(lambda: live.verify("pp=2 dp=2 tp=2"))
    return said


def irregular(rank):
    """Groups that no row-major layout has."""
    for ranks in ([0, 3, 5], [1, 2, 4, 6, 7]):
        dist.new_group(ranks, group_desc="odd")
    said = said_of(live.record())
    said["wrong"] = fault(lambda: live.verify("dp=8"))
    return said


def main():
    if JOB == "megatron":
        jobs = {f"{sizes}": megatron_job(sizes, notation) for sizes, notation in MEGATRON}
    else:
        jobs = {"hsdp": hsdp, "nameless": nameless, "irregular": irregular, "orders": orders}
    runs = [job(f"job{number}", make) for number, make in enumerate(jobs.values())]
    said = Ranks(lambda rank: [run(rank) for run in runs], WORLD, FOLDER, 80).wait()
    answers = {name: [one and one[number] for one in said] for number, name in enumerate(jobs)}
    print(json.dumps({"megatron": MEGATRON, "answers": answers}))


if __name__ == "__main__":
    main()
