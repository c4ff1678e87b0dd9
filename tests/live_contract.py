"""The processes of a job that open plans and tell what they found; the same functions for every engine.

    python live_contract.py ENGINE WORLD FOLDER

Prints one JSON list, what every rank said.

An engine is a few lines: how to start, and three collectives.  Rank r adds 2**r, so a sum names the members of a group;
an all-gather tells their order.
"""

import contextlib
import datetime
import importlib
import json
import os
import random
import sys
import warnings
from pathlib import Path

from forked import Ranks
from rankatlas import Atlas, Mesh, audit, live
from rankatlas.creation import CreationPlan, first_and_last, neighbours
from rankatlas.errors import AuditError, GroupMismatch, HandleError, LayoutMismatch
from rankatlas.seeding import RngStateTracker
from rankatlas.tensors import TensorLayout
from test_live_groups import free_ports, paddle_environments

ENGINE, WORLD, FOLDER = sys.argv[1], int(sys.argv[2]), sys.argv[3]
MODULE = {"nccl": "torch"}.get(ENGINE, ENGINE)
RANK = -1  # of the parent; every rank has its own
MESH = {4: Mesh(pp=2, mp=2), 8: Mesh(pp=2, dp=2, mp=2)}[WORLD]


class Torch:
    backend, device = "gloo", "cpu"

    def __init__(self):
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        torch.set_num_threads(1)
        dist.init_process_group(
            self.backend,
            init_method="env://",
            rank=RANK,
            world_size=WORLD,
            timeout=datetime.timedelta(seconds=40),
            **self.bound(),
        )
        self.counted = 0
        for name in ("new_group", "split_group"):
            setattr(dist, name, self.counting(getattr(dist, name)))

    def bound(self):
        return {}

    def counting(self, make):
        def counted(*arguments, **options):
            self.counted += 1
            return make(*arguments, **options)

        return counted

    def open(self, plan, **options):
        from rankatlas.adapters.torch import open_groups

        return open_groups(plan, **options)

    def sum(self, number, group):
        held = self.torch.tensor([number], dtype=self.torch.int64, device=self.device)
        self.dist.all_reduce(held, group=group)
        return held.item()

    def gather(self, number, group):
        held = self.torch.tensor([number], device=self.device)
        parts = [self.torch.zeros_like(held) for _ in range(self.dist.get_world_size(group))]
        self.dist.all_gather(parts, held, group=group)
        return [part.item() for part in parts]

    def tensor(self, values):
        return self.torch.tensor(values, dtype=self.torch.float32, device=self.device)

    def barrier(self):
        self.dist.barrier()

    def end(self):
        self.dist.destroy_process_group()


class Nccl(Torch):
    """A device per rank, bound to its process group, so that groups are split from it."""

    backend = "nccl"

    def bound(self):
        self.device = self.torch.device("cuda", RANK)
        self.torch.cuda.set_device(self.device)
        return {"device_id": self.device}


class Paddle:
    def __init__(self):
        import paddle
        import paddle.distributed as dist

        warnings.simplefilter("ignore")  # it warns of every collective in a group of one
        self.paddle, self.dist = paddle, dist
        paddle.set_device("cpu")
        dist.init_parallel_env()
        self.counted = 0
        made = dist.new_group

        def counting(*arguments, **options):
            self.counted += 1
            return made(*arguments, **options)

        dist.new_group = paddle.distributed.new_group = counting

    def open(self, plan, **options):
        from rankatlas.adapters.paddle import open_groups

        return open_groups(plan, **options)

    def sum(self, number, group):
        held = self.paddle.to_tensor([number], dtype="int64")
        self.dist.all_reduce(held, group=group)
        return held.item()

    def gather(self, number, group):
        if group.nranks == 1:
            return [number]
        parts = []
        self.dist.all_gather(parts, self.paddle.to_tensor([number], dtype="int64"), group=group)
        return [part.item() for part in parts]

    def tensor(self, values):
        return self.paddle.to_tensor(values, dtype="float32")

    def barrier(self):
        self.dist.barrier()

    def end(self):
        pass


def members(engine, group):
    total = engine.sum(2**RANK, group)
    return [rank for rank in range(WORLD) if total >> rank & 1]


def every_family(engine):
    """All sets of axes: membership by a sum, order by a gather, calls as planned."""
    sets = [*MESH.axes, "+".join(MESH.axes[:2]), "+".join(MESH.axes[1:]), "+".join(MESH.axes)]
    plan = CreationPlan(MESH, sets)
    before = engine.counted
    with engine.open(plan) as handles:
        found = {name: [members(engine, handles[name]), engine.gather(RANK, handles[name])] for name in handles}
        reordered = handles[tuple(reversed(MESH.axes[:2]))] is handles["+".join(MESH.axes[:2])]
        verified = live.verify(MESH, axes=[one for one in sets if one != "+".join(MESH.axes)]).world_size
        engine.barrier()
    return {
        "found": found,
        "calls": [handles.calls, engine.counted - before],
        "planned": [plan.calls_of(RANK), plan.cost().one_by_one],
        "how": handles.how,
        "reordered": reordered,
        "verified": verified,
        "value": list(handles.group("pp").ranks),
    }


def again(engine):
    """Closed and opened again, several times, other layouts in between: no group meets addresses of an earlier one."""
    found = []
    for mesh in (MESH, MESH.reorder(*reversed(MESH.axes)), MESH, Mesh(x=WORLD // 2, y=2)):
        with engine.open(CreationPlan(mesh, mesh.axes)) as handles:
            right = [members(engine, handles[axis]) == list(mesh.group(axis, rank=RANK)) for axis in mesh.axes]
            found.append(all(right))
            engine.barrier()
    return found


def ranks_alone(engine):
    """Axes of size 1 have a group, too: of the rank itself."""
    mesh = Mesh(cp=1, dp=WORLD, mp=1)
    before = engine.counted
    with engine.open(CreationPlan(mesh, mesh.axes)) as handles:
        found = {axis: members(engine, handles[axis]) for axis in mesh.axes}
        engine.barrier()
    return {"found": found, "calls": engine.counted - before}


def uneven(engine):
    """Sets that do not cover every rank; and after them, when ranks are in unequally many groups, another plan."""
    pairs = neighbours(Mesh(pp=WORLD // 2, mp=2))
    partial = {"ends": [[0, WORLD - 1]], "pairs": pairs, "one": [[1]]}
    plan = CreationPlan(MESH, ["mp"], partial)
    with engine.open(plan) as handles:
        said = {
            "ends": members(engine, handles["ends"]) if "ends" in handles else None,
            "one": members(engine, handles["one"]) if "one" in handles else None,
            "pairs": [members(engine, pair) for pair in handles.all("pairs")],
            "expected pairs": [pair for pair in pairs if RANK in pair],
            "verified": live.verify(plan).unexplained,
        }
        try:
            live.verify(CreationPlan(MESH, ["mp"], {**partial, "ends": [[1, WORLD - 1]]}))
        except GroupMismatch as error:
            said["strange"] = [error.given, error.expected]
        try:
            handles["ends"]
        except HandleError as error:
            said["refused"] = str(error)
        with engine.open(CreationPlan(MESH, MESH.axes)) as later:
            said["later"] = [members(engine, later[axis]) for axis in MESH.axes]
            said["how"] = later.how
            engine.barrier()
        engine.barrier()
    return said


def charts(engine):
    """An atlas: names by chart, groups that two charts have in common made once."""
    half = WORLD // 2
    atlas = Atlas(dense=Mesh(pp=2, tp=half), expert=Mesh(pp=2, ep=half), pool=Mesh(t=2, first_rank=0), shared=("pp",))
    plan = CreationPlan(atlas, ["pp", "dense.tp", "expert.ep", "pool.t"])
    with engine.open(plan) as handles:
        same = handles["expert.ep"] is handles["dense.tp"]
        found = {name: members(engine, handles[name]) for name in handles if name in handles}
        engine.barrier()
    return {"same": same, "found": found, "how": [family.how for family in plan.families]}


def disagreement(engine):
    """One rank has another plan: all of them hear which, and no group is made."""
    before = engine.counted
    plan = CreationPlan(MESH, ["mp", "pp"] if RANK else ["pp", "mp"])
    said = {}
    try:
        engine.open(plan, wait=20)
    except LayoutMismatch as error:
        said = {"odd": error.odd_ranks, "text": str(error), "calls": engine.counted - before}
    try:
        engine.open(CreationPlan(MESH, ["mp"], {"pairs": [[0, 3]], "ends": [[0, 2 if RANK else 1]]}), wait=20)
    except LayoutMismatch as error:
        said["partial"] = str(error)
    return said


def outcome(report):
    findings = sorted((one.to_dict() for one in report.findings), key=lambda one: (one["name"], one["kind"]))
    return {"ok": report.ok, "findings": findings, "notes": list(report.notes), "line": report.line}


def audits(engine):
    """Copies and shards as they should be and not; the same with groups of a plan, and over all ranks at once."""
    copied = TensorLayout(MESH, [axis for axis in MESH.axes if axis not in ("mp", "pp")], ("mp", "pp"))
    norm = TensorLayout(MESH, [axis for axis in MESH.axes if axis != "pp"], "pp")
    everywhere = TensorLayout(MESH, MESH.axes)
    said = {}
    place = MESH.coordinate(RANK)
    shard = 2 * place["pp"] + place["mp"]
    sets = [*MESH.axes, "pp+mp", "+".join(MESH.axes[1:]), "+".join(MESH.axes)]
    plan = CreationPlan(MESH, sets, partial={"ends": first_and_last(MESH)})

    def tensors(**changed):
        made = {
            "weight": engine.tensor([1.0 + shard, 2.0, -3.0]),
            "norm": engine.tensor([5.0 + place["pp"], float("nan"), 0.0]),
            "scale": engine.tensor([0.5]),
            f"stage {place['pp']}": engine.tensor([1.0, 2.0] * (1 + place["pp"])),  # stages hold different tensors
        }
        return {**made, **changed}

    layouts = {"weight": copied, "norm": norm, "scale": everywhere, "stage 0": norm, "stage 1": norm, "more": norm}
    with engine.open(plan) as handles:
        for way, groups in (("groups", handles), ("world", None)):

            def report(groups=groups, **changed):
                return outcome(audit.audit_replicas(tensors(**changed), layouts, groups))

            odd = RANK == 1
            said[f"fine, {way}"] = report()
            norm_ = [5.0 + place["pp"], float("nan"), 0.0]
            said[f"differs, {way}"] = report(norm=engine.tensor([norm_[0] + 0.25 * odd, *norm_[1:]]))
            said[f"sign of zero, {way}"] = report(norm=engine.tensor([*norm_[:2], -0.0 if odd else 0.0]))
            said[f"shape, {way}"] = report(norm=engine.tensor(norm_[:2] if odd else norm_))
            said[f"missing, {way}"] = report(**({} if odd else {"more": engine.tensor([1.0 + place["pp"]])}))
            said[f"equal shards, {way}"] = report(weight=engine.tensor([7.0 if place["mp"] else 1.0 + shard]))
        for way, groups in (("groups", handles), ("world", None)):
            for name, value in (("tied fine", 7.0), ("tied differs", 7.0 + place["pp"])):
                tensors_ = {"table": engine.tensor([value])}
                tied = {"table": first_and_last(MESH)}
                said[f"{name}, {way}"] = outcome(audit.audit_replicas(tensors_, norm, groups, tied=tied))
        try:
            audit.audit_replicas({"scale": engine.tensor([float(RANK)])}, everywhere).raise_if_bad()
        except AuditError as error:
            said["raised"] = [str(error), len(error.findings)]
        said["batches"] = [
            outcome(audit.audit_batches({"ids": engine.tensor([float(one)]), "length": 3}, MESH, handles))
            for one in (place.get("dp", 0), 9 if RANK == 2 else place.get("dp", 0))
        ]
        engine.barrier()
    return said


def random_states(engine):
    """Streams equal and different as their layouts say; one rank that drew once more; two streams at one place."""
    streams = {
        "global": TensorLayout(MESH, "mp", [axis for axis in MESH.axes if axis != "mp"]),
        "local": TensorLayout(MESH, (), MESH.axes),
    }
    seeds = {"global": 100 + RANK // 2, "local": 200 + RANK}
    tracker = RngStateTracker(backends=["python", MODULE])
    tracker.restart(seeds)
    said = {"fine": outcome(audit.audit_rng(tracker, streams)), "no layout": outcome(audit.audit_rng(tracker))}
    with tracker.rng_state("global"):
        if RANK == 1:
            random.random()
    said["drew"] = outcome(audit.audit_rng(tracker, streams))
    tracker.restart({"global": 300, "local": 301 if RANK else 302})
    tracker.add("third", 301 if RANK == 0 else 400 + RANK)
    said["met"] = outcome(audit.audit_rng(tracker))
    return said


PARTS = [every_family, again, ranks_alone, uneven, charts, disagreement, audits, random_states]


def job(parts, ports):
    """What a rank does: start, the parts one after the other, end."""

    def work(rank):
        global RANK
        RANK = rank
        os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ports[0])})
        if ENGINE == "paddle":
            os.environ.update(paddle_environments(ports[0], ports[1:])[rank])
        engine = {"torch": Torch, "nccl": Nccl, "paddle": Paddle}[ENGINE]()
        said = {part.__name__: part(engine) for part in parts}
        engine.barrier()  # rank 0 serves the store that others may still be asking
        with contextlib.suppress(Exception):
            engine.end()
        return said

    return work


importlib.import_module(MODULE)  # once for all ranks
said = Ranks(job(PARTS, free_ports(WORLD + 1)), WORLD, Path(FOLDER), 150).wait()
print(json.dumps(said), flush=True)
os._exit(0)
