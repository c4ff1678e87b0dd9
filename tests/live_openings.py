"""Openings that fail on some ranks, audits of ranks that disagree, closed handles; one JSON list, what each rank said.

python live_openings.py FOLDER
"""

import datetime
import json
import os
import sys
import time
import traceback

import torch
import torch.distributed as dist

from forked import Ranks
from rankatlas import Mesh
from rankatlas.adapters.torch import from_device_mesh, open_groups, to_device_mesh
from rankatlas.audit import audit_batches, audit_replicas, audit_rng
from rankatlas.creation import CreationPlan
from rankatlas.errors import RankatlasError
from rankatlas.seeding import RngStateTracker
from rankatlas.tensors import TensorLayout

FOLDER = sys.argv[1]
WORLD = 4
MESH = Mesh(dp=2, tp=2)
COPIED = TensorLayout(MESH, replicated=("dp", "tp"))
CUT = TensorLayout(MESH, sharded=("dp", "tp"))


def told(work):
    """What `work` returns, or the error of ours it raises."""
    try:
        return work()
    except RankatlasError as error:
        return [type(error).__name__, str(error)]


def summed(group):
    numbers = torch.tensor([2 ** dist.get_rank()])
    dist.all_reduce(numbers, group=group)
    return [rank for rank in range(WORLD) if numbers.item() >> rank & 1]


def retries(rank):
    plan = CreationPlan(MESH, ["tp", "dp"])
    if rank == 0:
        told(lambda: open_groups(None))
    late = None
    if rank != 2:
        late = told(lambda: open_groups(plan, wait=2).how)
    dist.barrier()
    said = []
    for _ in range(2):
        with open_groups(plan, wait=20) as handles:
            said.append([handles.how, summed(handles["tp"]), summed(handles["dp"])])
            dist.barrier()
    return {"late": late, "then": said}


def closed(rank):
    handles = open_groups(CreationPlan(MESH, ["tp", "dp", "dp+tp"]), wait=20)
    dist.barrier()
    handles.close()
    return [
        told(work)
        for work in (
            lambda: handles["tp"],
            lambda: handles["dp+tp"],
            lambda: handles.all("tp"),
            lambda: to_device_mesh(handles),
            handles.__enter__,
            lambda: audit_replicas({"a": torch.ones(1)}, COPIED, handles),
        )
    ]


def audits(rank):
    streams = RngStateTracker()
    streams.add("a", 1)
    if rank != 1:
        streams.add("b", rank + 5)
    odd = COPIED if rank < 2 else CUT
    sparse = torch.ones(3).to_sparse() if rank == 2 else torch.ones(3)

    def line(tensors, layout, handles=None):
        report = audit_replicas(tensors, layout, handles)
        return [report.ok, [one.kind for one in report.findings], report.line]

    def rng():
        report = audit_rng(streams)
        return [report.ok, [one.kind for one in report.findings], report.line]

    def batches():
        report = audit_batches({1: 2} if rank == 1 else {"x": torch.ones(2) * (rank // 2), 1: 2}, MESH)
        return [report.ok, [one.kind for one in report.findings], report.line]

    said = {}
    with open_groups(CreationPlan(MESH, ["dp+tp", "dp", "tp"]), wait=20) as handles:
        for name, more in (("world", []), ("groups", [handles])):
            said[f"missing {name}"] = line({} if rank == 1 else {"w": torch.ones(3)}, COPIED, *more)
            said[f"layouts {name}"] = line({"w": torch.ones(3) * rank, "v": torch.ones(2) * rank}, odd, *more)
            said[f"sparse {name}"] = told(lambda more=more: line({"w": sparse}, COPIED, *more))
        said["streams"] = rng()
        said["batches"] = batches()
        said["a set"] = told(lambda: audit_batches({1} if rank == 1 else torch.ones(1), MESH).line)
        one_sided = handles if rank else None
        said["handles on some"] = told(lambda: line({"w": torch.ones(3)}, COPIED, one_sided))
        dist.barrier()
    with open_groups(CreationPlan(MESH, ["tp"]), wait=20) as handles:
        layouts = {"a": TensorLayout(MESH, "tp", "dp"), "b": TensorLayout(MESH, "dp", "tp")}
        held = {"a": torch.ones(2), "b": torch.ones(2)} if rank == 0 else {"a": torch.ones(2)}
        said["no group"] = told(lambda: line(held, layouts, handles))
        dist.barrier()
    return said


def kinds(rank):
    """By how much values differ that have no difference as floats."""

    def found(tensor):
        return told(lambda: "; ".join(map(str, audit_replicas({"t": tensor}, COPIED).findings)))

    odd = rank == 1
    packed = torch.full((2,), int(odd), dtype=torch.uint8)
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3) + odd])
    return {
        "zero": found(torch.tensor([-0.0 if odd else 0.0])),
        "nan": found(torch.tensor([0x7FC00000 + odd], dtype=torch.int32).view(torch.float32)),
        "phase": found(torch.tensor([1j if odd else 1 + 0j])),
        "int64": found(torch.tensor([2**62 + odd])),
        "uint64": found(torch.tensor([2**63 + odd], dtype=torch.uint64)),
        "bool": found(torch.tensor([odd])),
        "float": found(torch.tensor([1.0 + odd])),
        "float4": found(packed.view(torch.float4_e2m1fn_x2)),
        "nested": found(ragged),
        "quantized": found(torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)),
    }


def refusals(rank):
    plan = CreationPlan(MESH, ["tp"])
    return [
        told(work)
        for work in (
            lambda: from_device_mesh(None),
            lambda: open_groups(plan, timeout=0),
            lambda: open_groups(plan, timeout=datetime.timedelta(0)),
            lambda: open_groups(plan, options={"zz": 5}),
            lambda: open_groups(plan, backend="zz"),
            lambda: open_groups(plan, backend="cpu:zz"),
        )
    ]


def torn_down(rank):
    handles = open_groups(CreationPlan(MESH, ["tp"]), wait=20)
    dist.barrier()
    time.sleep(0.2)
    dist.destroy_process_group()
    return told(lambda: handles["tp"])


def job(rank):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{FOLDER}/store",
        rank=rank,
        world_size=WORLD,
        timeout=datetime.timedelta(seconds=20),
    )
    said = {}
    for part in (retries, closed, audits, kinds, refusals, torn_down):
        try:
            said[part.__name__] = part(rank)
        except Exception:
            traceback.print_exc()
            said[part.__name__] = "failed"
            break
    return said


print(json.dumps(Ranks(job, WORLD, FOLDER, 110).wait()), flush=True)
os._exit(0)
