"""What torch's groups are good for beyond the contract; prints one JSON list, what every rank said.

python live_torch_groups.py FOLDER
"""

import datetime
import importlib
import json
import os
import sys
import traceback
from importlib.util import find_spec

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from forked import Ranks
from rankatlas import Atlas, Mesh
from rankatlas.adapters.torch import from_device_mesh, open_groups, to_device_mesh
from rankatlas.creation import CreationPlan
from rankatlas.errors import InputError, LayoutMismatch
from rankatlas.seeding import SeedPlan
from rankatlas.seeding.values import sharded_normal
from test_live_groups import free_ports

(FOLDER,) = sys.argv[1:]
(PORT,) = free_ports(1)
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
    atlas = Atlas(dense=Mesh(pp=2, tp=2), expert=Mesh(pp=2, ep=2, x=1), shared=("pp",))
    with open_groups(CreationPlan(atlas, ["pp", "dense.tp", "expert.ep", "expert.x"])) as handles:
        charts = {chart: to_device_mesh(handles, chart=chart) for chart in atlas.charts}
        said["charts"] = {chart: [repr(from_device_mesh(one)), one.device_type] for chart, one in charts.items()}
        said["chart held"] = charts["expert"].get_group("ep") is handles["expert.ep"]
        said["chart members"] = ranks_of(charts["expert"])
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
        with open_groups(CreationPlan(MESH, MESH.axes), backend="gloo", timeout=31) as handles:
            options = handles["dp"]._get_backend(torch.device("cpu")).options
            timeout = options._timeout.total_seconds()
            raise KeyError("mine")
    except KeyError:
        return [len(dist.distributed_c10d._world.pg_names) == before, timeout]
    return None


def megatron(rank):
    """A whole GPT of Megatron-core on our groups and none of its own, against the same model in one process."""
    if find_spec("megatron") is None:
        return None
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.transformer import TransformerConfig

    class Attention(torch.nn.Module):
        """Megatron's own keeps a buffer on a CUDA device; (positions, batch, heads, head size) as there."""

        def __init__(self, config, layer_number, attn_mask_type, attention_type, **options):
            super().__init__()

        def forward(self, query, key, value, attention_mask, **options):
            heads = (one.permute(1, 2, 0, 3) for one in (query, key, value))
            found = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            return found.permute(2, 0, 1, 3).flatten(2)

    def model(mesh, handles):
        names = {"dp_cp": ("dp", "cp"), "mp": ("pp", "tp"), "tp_dp_cp": ("dp", "cp", "tp")}
        groups = {axis: handles[axis] for axis in mesh.axes} | {name: handles[axes] for name, axes in names.items()}
        config = TransformerConfig(
            num_layers=2,
            hidden_size=16,
            num_attention_heads=4,
            use_cpu_initialization=True,
            tensor_model_parallel_size=mesh.size("tp"),
            attention_dropout=0.0,
            hidden_dropout=0.0,
            bias_dropout_fusion=False,
            gradient_accumulation_fusion=False,
            persist_layer_norm=False,
        )
        spec = get_gpt_layer_local_spec(normalization="LayerNorm")
        spec.submodules.self_attention.submodules.core_attention = Attention
        collection = ProcessGroupCollection(**groups, embd=handles["pp"], pos_embd=handles["pp"])
        made = GPTModel(
            config,
            spec,
            vocab_size=32,
            max_sequence_length=8,
            pg_collection=collection,
            share_embeddings_and_output_weights=False,
        )
        plan = SeedPlan(7, mesh)
        for name, weight in made.named_parameters():
            dimension = weight.partition_dim if getattr(weight, "tensor_model_parallel", False) else None
            spec = ["tp" if one == dimension else None for one in range(weight.dim())]
            shape = [size * mesh.size("tp") if axis else size for axis, size in zip(spec, weight.shape)]
            stream = plan.stream(name, same=mesh.axes)
            place = rank if mesh.world_size > 1 else 0
            weight.data.copy_(0.1 * sharded_normal(stream, shape, spec, place, framework="torch"))
        ids = (torch.arange(8) * 5 % 32)[None]
        logits = made(ids, torch.arange(8)[None], None)
        # Megatron's loss and its gather ask the global state for groups, or CUDA for a device.
        parts = [torch.empty_like(logits) for _ in range(mesh.size("tp"))]
        dist.all_gather(parts, logits.detach(), group=handles["tp"])
        parts[dist.get_group_rank(handles["tp"], dist.get_rank())] = logits
        loss = torch.nn.functional.cross_entropy(torch.cat(parts, -1)[0], ids[0].roll(-1))
        loss.backward()
        norm = made.decoder.final_layernorm.weight.grad.norm()
        return loss.item(), norm.item(), list(made.output_layer.weight.shape)

    mesh = Mesh(pp=1, dp=2, cp=1, tp=2)
    axes = [*mesh.axes, "dp+cp", "pp+tp", "dp+cp+tp"]
    with open_groups(CreationPlan(mesh, axes)) as handles:
        alone = dict.fromkeys(
            [*mesh.axes, ("dp", "cp"), ("pp", "tp"), ("dp", "cp", "tp")], handles["cp"]
        )  # of one rank
        said = [model(mesh, handles), model(Mesh(pp=1, dp=1, cp=1, tp=1), alone)]
        dist.barrier()
    return said


def job(rank):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{PORT}",  # a store in a file is locked by whoever looks, and may keep others out
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


if find_spec("megatron") is not None:
    importlib.import_module("megatron.core.models.gpt.gpt_model")  # once for all ranks: it takes many seconds
print(json.dumps(Ranks(job, WORLD, FOLDER, 120).wait()), flush=True)
os._exit(0)
