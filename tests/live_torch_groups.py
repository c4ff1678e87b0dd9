"""What torch's groups are good for beyond the contract; prints one JSON list, what every rank said.

python live_torch_groups.py FOLDER [PEER]      PEER is a folder with megatron-core in it
"""

import datetime
import json
import os
import sys
import traceback

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from forked import Ranks
from rankatlas import Mesh
from rankatlas.adapters.torch import from_device_mesh, open_groups, to_device_mesh
from rankatlas.creation import CreationPlan
from rankatlas.errors import InputError, LayoutMismatch

FOLDER, *PEER = sys.argv[1:]
WORLD = 4
MESH = Mesh(dp=2, tp=2)


def ranks_of(device_mesh):
    return {name: dist.get_process_group_ranks(device_mesh.get_group(name)) for name in device_mesh.mesh_dim_names}


def device_meshes(rank):
    theirs = init_device_mesh("cpu", MESH.sizes, mesh_dim_names=MESH.axes)
    with open_groups(CreationPlan(MESH, MESH.axes)) as handles:
        ours = to_device_mesh(handles)
        said = {
            "same": ranks_of(ours) == ranks_of(theirs) == ranks_of(to_device_mesh(MESH)),
            "held": [ours.get_group(axis) is handles[axis] for axis in MESH.axes],
            "back": [repr(from_device_mesh(one)) for one in (ours, theirs)],
            "coordinate": list(ours.get_coordinate()) == list(MESH.coordinate(rank).values()),
            "slice": dist.get_process_group_ranks(ours["tp"].get_group()),
        }
        try:
            from_device_mesh(theirs["dp"])
        except InputError as error:
            said["refused"] = str(error)
        dist.barrier()
    line = Mesh(dp=WORLD)
    with open_groups(CreationPlan(line, ["dp"])) as handles:
        said["one axis"] = repr(from_device_mesh(to_device_mesh(handles)))
        dist.barrier()
    return said


def fsdp(rank):
    """Three steps of FSDP2 on our groups, against the same steps on one process."""
    torch.manual_seed(1)
    plain = torch.nn.Linear(8, 4)
    sharded = torch.nn.Linear(8, 4)
    sharded.load_state_dict(plain.state_dict())
    data = torch.randn(2 * 3, 5, 8)
    with open_groups(CreationPlan(MESH, MESH.axes)) as handles:
        fully_shard(sharded, mesh=to_device_mesh(handles)["dp"])
        steps = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (plain, sharded)]
        part = MESH.coordinate(rank)["dp"]
        for step in range(3):
            plain(data[2 * step : 2 * step + 2]).square().mean().backward()
            sharded(data[2 * step + part]).square().mean().backward()
            for optimizer in steps:
                optimizer.step()
                optimizer.zero_grad()
        whole = [parameter.full_tensor() for parameter in sharded.parameters()]
        same = all(torch.allclose(a, b, atol=1e-6) for a, b in zip(whole, plain.parameters()))
        dist.barrier()
    return same


def histories(rank):
    """Ranks in unequally many groups still open a plan; a call that only some ranks made is named."""
    plan = CreationPlan(MESH, MESH.axes)
    if rank < 2:
        extra = dist.new_group([0, 1], use_local_synchronization=True)
    with open_groups(plan) as handles:
        said = {"how": handles.how, "calls": handles.calls, "described": handles["tp"].group_desc}
        said["members"] = [dist.get_process_group_ranks(handles[axis]) for axis in MESH.axes]
        said["inside"] = len(dist.distributed_c10d._world.pg_names)
        dist.barrier()
    if rank < 2:
        dist.destroy_process_group(extra)
    said["after"] = len(dist.distributed_c10d._world.pg_names)
    dist.distributed_c10d._world.group_count += rank == 3  # as if rank 3 alone had called new_group
    try:
        open_groups(plan, wait=20)
    except LayoutMismatch as error:
        said["named"] = [error.odd_ranks, "extra.calls_so_far" in str(error)]
    dist.distributed_c10d._world.group_count -= rank == 3
    return said


def failing(rank):
    """Whatever fails inside, the groups are closed; the last error is the caller's."""
    before = len(dist.distributed_c10d._world.pg_names)
    try:
        with open_groups(CreationPlan(MESH, MESH.axes), backend="gloo", timeout=30):
            raise KeyError("mine")
    except KeyError:
        return len(dist.distributed_c10d._world.pg_names) == before
    return False


def megatron(rank):
    """Two layers of Megatron-core on our groups, against the same layers whole."""
    if not PEER:
        return None
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer import TransformerConfig

    with open_groups(CreationPlan(MESH, MESH.axes)) as handles:
        collection = ProcessGroupCollection(tp=handles["tp"], dp=handles["dp"])
        config = TransformerConfig(
            num_layers=1,
            hidden_size=8,
            num_attention_heads=2,
            use_cpu_initialization=True,
            tensor_model_parallel_size=2,
        )
        how = {"config": config, "init_method": torch.nn.init.ones_, "bias": False, "tp_group": collection.tp}
        layer = ColumnParallelLinear(8, 6, gather_output=False, **how)
        back = RowParallelLinear(6, 8, input_is_parallel=True, skip_bias_add=False, **how)
        data = torch.arange(16.0).reshape(2, 8)
        found, _ = back(layer(data)[0])  # an all-reduce over the group of tp
        right = bool(torch.equal(found, 6 * data.sum(1, keepdim=True).expand(2, 8)))
        said = [right, list(layer.weight.shape), dist.get_process_group_ranks(collection.dp)]
        dist.barrier()
    return said


def job(rank):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{FOLDER}/store",
        rank=rank,
        world_size=WORLD,
        timeout=datetime.timedelta(seconds=60),
    )
    said = {}
    for part in (device_meshes, fsdp, histories, failing, megatron):
        try:
            said[part.__name__] = part(rank)
        except Exception:
            traceback.print_exc()
            said[part.__name__] = "failed"
            break
    dist.barrier()
    return said


sys.path[:0] = PEER
print(json.dumps(Ranks(job, WORLD, FOLDER, 120).wait()), flush=True)
os._exit(0)
