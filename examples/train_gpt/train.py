"""One run: a layout, its groups, the steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from rankatlas import Mesh
from rankatlas.adapters.torch_groups import open_groups
from rankatlas.audit import AuditReport, audit_replicas
from rankatlas.creation import CreationPlan, first_and_last
from rankatlas.errors import InputError
from rankatlas.sampling import DataShard
from rankatlas.seeding import SeedPlan
from train_gpt.checkpoint import load, save
from train_gpt.data import Data
from train_gpt.masks import Masks
from train_gpt.model import Stage, as_dtype
from train_gpt.pipeline import Pipeline
from train_gpt.place import TIED, Place
from train_gpt.settings import DATA, SEQUENCE, Settings, check
from train_gpt.weights import Weight, my_weights
from train_gpt.zero import Optimizer


@dataclass(frozen=True)
class Run:
    """What one run is asked to do; `steps` counts from the very beginning, also where it resumes."""

    layout: str
    steps: int = 300
    micro_batch: int | None = None
    split: str = "contiguous"  # of the sequence, along cp
    save: str | None = None
    resume: str | None = None
    mistake: str | None = None  # one of MISTAKES


@dataclass
class Result:
    """The losses and gradient norms of the steps from `first` on, and the samples this rank read, by micro-batch."""

    run: Run
    settings: Settings
    mesh: Mesh
    first: int
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    samples: list[list[list[int]]] = field(default_factory=list)
    seconds: float = 0.0
    audit: AuditReport | None = None  # of the weights after the last step

    def all_samples(self, rank: int) -> list[list[int]]:
        """The samples of every step in the order of the whole batch, put together from all ranks.  All call it.

        Raises RuntimeError where ranks that must agree have read different ones.
        """
        shard = DataShard(self.mesh, DATA)
        read: list[list[list[list[int]]]] = [self.samples] * self.mesh.world_size
        if self.mesh.world_size > 1:
            dist.all_gather_object(read, self.samples)
        if any(read[other] != self.samples for other in shard.agreement_group(rank)):
            raise RuntimeError(f"rank {rank} has read other samples than the ranks with its data rank")
        readers = [read[other] for other in sorted(shard.data_group(rank), key=shard.data_rank)]
        return [[sample for micro in zip(*shares) for share in micro for sample in share] for shares in zip(*readers)]

    def told(self, samples: list[list[int]]) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            **asdict(self.run),
            "settings": asdict(self.settings),
            "mesh": str(self.mesh),
            "first": self.first,
            "losses": self.losses,
            "norms": self.norms,
            "samples": samples,
            "seconds": self.seconds,
            "audit": self.audit.to_dict() if self.audit else None,
        }


def train(
    run: Run, mesh: Mesh, settings: Settings, rank: int, tell: Callable[[int, float], None] = lambda step, loss: None
) -> Result:
    """Make the groups of the layout, train, close them.  `tell` hears of every step."""
    micro_batch = check(settings, mesh, run.micro_batch, run.split)
    if mesh.world_size == 1:
        return _train(run, settings, Place(mesh, rank), micro_batch, tell)
    with open_groups(creation_plan(run, settings, mesh)) as handles:
        return _train(run, settings, Place(mesh, rank, handles), micro_batch, tell)


def creation_plan(run: Run, settings: Settings, mesh: Mesh) -> CreationPlan:
    """The groups that training needs: along each axis, those of the gradients, and the stages that share a table.

    The same on every rank, though stages hold different weights.
    """
    stages = [Place(mesh, mesh.select(pp=stage)[0]) for stage in range(mesh.size("pp"))]
    gradients = {
        tuple(axis for axis in weight.gradient_axes if axis != "sharding")
        for place in stages
        for weight in my_weights(settings, place, run.mistake)
    }
    wanted = [(stages[0].tensor,), ("cp",), ("sep",), ("pp",), ("sharding",), *sorted(gradients)]
    return CreationPlan(
        mesh, [axes for axes in wanted if stages[0].size(*axes) > 1], partial={TIED: first_and_last(mesh, "pp")}
    )


def _train(run: Run, settings: Settings, place: Place, micro_batch: int, tell: Callable[[int, float], None]) -> Result:
    plan = SeedPlan(settings.seed, place.mesh)
    data = Data(settings, place, micro_batch, run.split, run.mistake)
    weights = my_weights(settings, place, run.mistake)
    optimizer = Optimizer(place, weights)
    first = 0
    if run.resume:
        state = load(Path(run.resume), settings, optimizer)
        data.load_state_dict(state["data"])
        first = state["step"]
        if first > run.steps:
            raise InputError(f"{run.resume} stands at step {first}, beyond the {run.steps} that are asked for")
    else:
        _begin(optimizer, plan)
    model = _parameters(weights, optimizer, settings)
    picked = None if run.split == "contiguous" else (data.positions[place.index("cp")], data.here)
    own = place.rank if run.mistake == "masks" else 0
    masks = Masks(settings, place, SeedPlan(settings.seed + own, place.mesh), micro_batch, picked)
    stage = Stage(settings, place, model, masks, data.positions, data.here)
    positions = settings.sequence // place.size(*SEQUENCE, place.tensor)
    pipeline = Pipeline(stage, (micro_batch, positions, settings.hidden), as_dtype(settings.dtype))
    count = settings.batch * settings.sequence
    result = Result(run, settings, place.mesh, first)
    began = time.perf_counter()
    for step, samples in zip(range(first, run.steps), data.steps()):
        masks.begin(step)
        batches = [data.batch(micro) for micro in samples]
        loss = pipeline.run(batches, 1 / count, lambda: optimizer.take_gradients(model))
        # The ranks of a tensor group have computed the same loss: one of them tells it.
        mine = loss / count if place.index(place.tensor) == 0 else 0.0
        loss, norm = optimizer.step(step, settings.learning_rate, settings.clip, mine, model)
        result.losses.append(loss)
        result.norms.append(norm)
        result.samples.append([micro.tolist() for micro in samples])
        tell(step, loss)
    result.seconds = time.perf_counter() - began
    if place.mesh.world_size > 1:
        result.audit = _audited(model, weights, place.mesh)
    if run.save:
        save(Path(run.save), settings, optimizer, place.rank, {"step": run.steps, "data": data.state_dict()})
    return result


def _audited(model: dict[str, Tensor], weights: list[Weight], mesh: Mesh) -> AuditReport:
    layouts = {weight.name: weight.layout for weight in weights}
    return audit_replicas(model, layouts, tied={"embedding": first_and_last(mesh, "pp")})


def _begin(optimizer: Optimizer, plan: SeedPlan) -> None:
    for bucket in optimizer.buckets:
        flat = bucket.empty()
        for weight, view in zip(bucket.weights, bucket.views(flat)):
            view.copy_(weight.first_values(plan))
        bucket.keep("weight", flat)


def _parameters(weights: list[Weight], optimizer: Optimizer, settings: Settings) -> dict[str, Tensor]:
    kept = optimizer.by_name([bucket.whole("weight") for bucket in optimizer.buckets])
    dtype = as_dtype(settings.dtype)
    return {weight.name: kept[weight.name].to(dtype, copy=True).requires_grad_() for weight in weights}
