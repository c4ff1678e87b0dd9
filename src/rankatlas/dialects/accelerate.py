"""accelerate: its YAML, a ParallelismConfig, FSDP; with Megatron-LM or DeepSpeed inside, the layout is theirs.

The mesh is dp_replicate, dp_shard, cp, sp, tp outer → inner.  Source: `ParallelismConfig` in
accelerate/parallelism_config.py (1.15).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rankatlas.catalogue import said
from rankatlas.core import Mesh
from rankatlas.core.sizes import resolve
from rankatlas.dialects import deepspeed, megatron
from rankatlas.dialects.given import Given
from rankatlas.dialects.picking import not_understood, refuse_unresolved, world_needed, world_of
from rankatlas.dialects.slips import with_slips
from rankatlas.errors import shown
from rankatlas.job import Fact, Job

DEFAULT = said("default.of", name="accelerate 1.15")
_AXES = ("dp_replicate", "dp_shard", "cp", "sp", "tp")
_KINDS = ("FSDP", "DEEPSPEED", "MULTI_GPU", "MULTI_CPU", "MULTI_NPU", "MULTI_XPU", "MEGATRON_LM", "NO", "TP", "XLA")
_MEGATRON = MappingProxyType(
    {
        "megatron_lm_tp_degree": "tensor_model_parallel_size",
        "megatron_lm_pp_degree": "pipeline_model_parallel_size",
        "megatron_lm_use_distributed_optimizer": "use_distributed_optimizer",
        "megatron_lm_recompute_activations": "recompute_activations",
    }
)
LAYOUT = tuple(f"parallelism_config_{axis}_size" for axis in _AXES)


def evidence(given: Given) -> int:
    """2 with `distributed_type` or accelerate's own prefixes, or two sizes of a ParallelismConfig."""
    if str(given.at("distributed_type")) in _KINDS or any(name in given or name in given.unresolved for name in LAYOUT):
        return 2
    if isinstance(given.at("parallelism_config"), Mapping):
        return 2
    sizes = [axis for axis in _AXES if f"{axis}_size" in given]
    return 2 if "dp_shard_size" in sizes or "dp_replicate_size" in sizes else 1 if len(sizes) > 1 else 0


def read(given: Given, release: str | None, world_size: int | None) -> Job:
    """The job of an accelerate configuration.  Raises SourceError, SizeError, WorldSizeError."""
    refuse_unresolved(given, LAYOUT)
    kind = str(given.at("distributed_type") or "")
    if kind == "MEGATRON_LM":
        return _inside(given, _megatron(given), world_size)
    world, _, notes = world_of(given, world_size, ("num_processes",))
    facts = {axis: _size(given, axis) for axis in _AXES}
    parallel = any(fact.origin != DEFAULT for fact in facts.values())
    if not parallel:
        if world is None:
            raise world_needed(given, "a configuration of accelerate, settings")
        if kind == "DEEPSPEED" and given.at("deepspeed_config") is not None:
            held = given.at("deepspeed_config")
            inner = dict(held) if isinstance(held, Mapping) else {}
            inner.setdefault("zero_optimization", {"stage": inner.get("zero_stage")})
            return _inside(given, Given(inner, source=given.source), world, deepspeed.read)
        facts |= _plain(given, kind, world)
    sizes: dict[str, int | None] = {axis: facts[axis].value for axis in _AXES}
    if world is not None:
        resolve(sizes, world, origins={axis: facts[axis].origin for axis in _AXES})
    axes = [axis for axis in _AXES if facts[axis].value > 1 or axis in ("dp_replicate", "dp_shard")]
    settings = _settings(given, kind, facts)
    return Job(
        Mesh.from_axes([(axis, facts[axis].value) for axis in axes]),
        format=f"accelerate-{release or '1.15'}",
        source=given.source,
        facts=[facts[axis] for axis in axes],
        notes=with_slips(given, [*given.notes, *notes, *_notes(given)]),
        settings=settings,
    )


def _size(given: Given, axis: str) -> Fact:
    prefix = "parallelism_config."
    for path in (
        f"{prefix}parallelism_config_{axis}_size",
        f"{prefix}{axis}_size",
        f"parallelism_config_{axis}_size",
        f"{axis}_size",
    ):
        if given.at(path) is not None:
            return Fact(axis, given.size(path) or 1, given.origin(path))
    return Fact(axis, 1, DEFAULT)


def _plain(given: Given, kind: str, world: int) -> dict[str, Fact]:
    """Without a ParallelismConfig: FSDP shards over all ranks, or over those of a machine, and all else replicates."""
    strategy = str(given.at("fsdp_config.fsdp_sharding_strategy") or given.at("fsdp_sharding_strategy") or "")
    inferred = said("inferred.world", world=world)
    if kind != "FSDP":
        return {"dp_replicate": Fact("dp_replicate", world, inferred)}
    machines = given.at("num_machines")
    whole = isinstance(machines, int) and not isinstance(machines, bool) and machines > 0 and world % machines == 0
    if strategy in ("HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "4", "5") and whole:
        return {
            "dp_replicate": Fact("dp_replicate", machines, said("accelerate.copies", strategy=strategy)),
            "dp_shard": Fact("dp_shard", world // machines, said("accelerate.shards", strategy=strategy)),
        }
    if strategy in ("NO_SHARD", "3"):
        return {"dp_replicate": Fact("dp_replicate", world, inferred)}
    return {"dp_shard": Fact("dp_shard", world, inferred)}


def _megatron(given: Given) -> Given:
    held: Any = given.at("megatron_lm_config")
    held = held if isinstance(held, Mapping) else given
    values = {theirs: held[ours] for ours, theirs in _MEGATRON.items() if ours in held}
    return Given(
        {**values, "world_size": given.at("num_processes")},
        source=given.source,
        origins={theirs: said("given.key", key=f"megatron_lm_config.{ours}") for ours, theirs in _MEGATRON.items()},
    )


def _inside(given: Given, inner: Given, world: int | None, reader: Any = megatron.read) -> Job:
    """The job of the framework that accelerate starts."""
    job: Job = reader(inner, None, world)
    return Job(
        job.layout,
        format=f"accelerate-1.15+{job.format}",
        source=given.source,
        facts=job.facts,
        notes=with_slips(given, [*given.notes, *job.notes]),
        seed=job.seed,
        settings=job.settings.values(),
    )


def _settings(given: Given, kind: str, facts: Mapping[str, Fact]) -> list[Fact]:
    found = []
    precision = given.at("mixed_precision")
    if precision in ("bf16", "fp16", "fp8", "no"):
        found.append(Fact("precision", "fp32" if precision == "no" else precision, given.origin("mixed_precision")))
    steps = given.at("gradient_accumulation_steps")
    if isinstance(steps, int) and not isinstance(steps, bool) and steps > 0:
        found.append(Fact("accumulation", steps, given.origin("gradient_accumulation_steps")))
    if kind == "FSDP" or facts["dp_shard"].value > 1:
        version = given.at("fsdp_config.fsdp_version")
        words = f"FSDP{version}" if version in (1, 2) else "FSDP"
        found.append(
            Fact(
                "fsdp", words, given.origin("distributed_type") if kind else said("because.above_one", axis="dp_shard")
            )
        )
        if facts["dp_shard"].value > 1:
            found.append(Fact("zero_stage", 3, said("because.sharded", axis="dp_shard")))
    if given.at("fsdp_config.fsdp_activation_checkpointing") is True:
        found.append(Fact("recompute", "full", given.origin("fsdp_config.fsdp_activation_checkpointing")))
    return found


def _notes(given: Given) -> list[str]:
    known = [f"{axis}_size" for axis in _AXES]
    notes = not_understood(given, known)
    inner = given.at("parallelism_config")
    if isinstance(inner, Mapping):
        strange = [
            name
            for name, value in inner.items()
            if name.endswith("_size")
            and name.removeprefix("parallelism_config_") not in known
            and value not in (None, 1)
        ]
        notes += [
            said("unread.setting", name=f"parallelism_config.{name}", value=shown(inner[name])) for name in strange
        ]
    return notes
