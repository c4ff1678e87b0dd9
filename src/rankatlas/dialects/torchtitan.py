"""torchtitan: the configuration its manager prints, the `parallelism` part of it, and the TOML of older releases.

World = pp · dp_replicate · dp_shard · cp · tp, that order outer → inner; the sparse mesh lays pp, dp_replicate, efsdp
and ep over the same ranks.  Source: `ParallelDims` in torchtitan/distributed/parallel_dims.py (0.3).
"""

from __future__ import annotations

from types import MappingProxyType

from rankatlas.catalogue import said
from rankatlas.core import Atlas, Mesh
from rankatlas.core.sizes import resolve
from rankatlas.dialects.given import Given
from rankatlas.dialects.picking import divides, not_understood, numbers, refuse_unresolved, world_needed, world_of
from rankatlas.dialects.slips import with_slips
from rankatlas.job import Fact, Job

DEFAULT = said("default.of", name="torchtitan 0.3")
# Axis → where its degree stands, newest first.
_DEGREES = MappingProxyType(
    {
        "pp": ("parallelism.pipeline_parallel_degree", "experimental.pipeline_parallel_degree"),
        "dp_replicate": (
            "parallelism.data_parallel_replicate_degree",
            "training.data_parallel_replicate_degree",
        ),
        "dp_shard": (
            "parallelism.data_parallel_shard_degree",
            "training.data_parallel_shard_degree",
            "training.data_parallel_degree",
        ),
        "cp": ("parallelism.context_parallel_degree", "experimental.context_parallel_degree"),
        "tp": ("parallelism.tensor_parallel_degree", "training.tensor_parallel_degree"),
        "ep": ("parallelism.expert_parallel_degree",),
        "etp": ("parallelism.expert_tensor_parallel_degree",),
    }
)
_SETTINGS = MappingProxyType(
    {
        "micro_batch": ("training.local_batch_size", "training.batch_size"),
        "global_batch": ("training.global_batch_size",),
        "stage_micro_batch": ("parallelism.pipeline_parallel_microbatch_size",),
        "sequence_length": ("training.seq_len",),
        "layers": ("model_spec.model.n_layers", "model.n_layers"),
        "heads": ("model_spec.model.n_heads", "model.n_heads"),
        "hidden": ("model_spec.model.dim", "model.dim"),
        "vocab": ("model_spec.model.vocab_size", "model.vocab_size"),
    }
)
_AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
LAYOUT = tuple(path for paths in _DEGREES.values() for path in paths)


def evidence(given: Given) -> int:
    """2 with a degree under `parallelism`, or under `training` or `experimental` as it was in older releases."""
    return 2 if any(given.at(path) is not None or path in given.unresolved for path in LAYOUT) else 0


def read(given: Given, release: str | None, world_size: int | None) -> Job:
    """The job of a torchtitan configuration: one mesh, or charts `dense` and `sparse` where ep is above 1.

    Raises SourceError, SizeError, WorldSizeError, DegreeError (an expert degree that does not divide).
    """
    refuse_unresolved(given, LAYOUT)
    facts = {axis: _degree(given, axis) for axis in _DEGREES}
    world, _, notes = world_of(given, world_size, ("built.world_size",))
    sizes: dict[str, int | None] = {axis: facts[axis].value for axis in _AXES}
    if facts["dp_shard"].value == -1:
        sizes["dp_shard"] = None
    if world is None and sizes["dp_shard"] is not None:
        world = 1
        for axis in _AXES:
            world *= facts[axis].value
    if world is None:
        raise world_needed(given, "a torchtitan configuration, settings")
    settled = resolve(sizes, world, origins={axis: facts[axis].origin for axis in _AXES if sizes[axis]})
    if sizes["dp_shard"] is None:
        facts["dp_shard"] = Fact("dp_shard", settled["dp_shard"], said("inferred.world", world=world))
    dense = Mesh.from_axes([(axis, settled[axis]) for axis in _AXES])
    layout: Mesh | Atlas = dense
    used = list(_AXES)
    if facts["ep"].value > 1:
        layout = _with_sparse(given, dense, facts)
        used += ["efsdp", "ep"]
    settings, more = _settings(given, settled)
    seed = given.at("debug.seed")
    seed = given.at("training.seed") if seed is None else seed
    return Job(
        layout,
        format=f"torchtitan-{release or ('0.3' if given.at('parallelism') is not None else 'toml')}",
        source=given.source,
        facts=[*(facts[axis] for axis in used), *_fused(settled)],
        notes=with_slips(given, [*given.notes, *notes, *more, *_notes(given, facts)]),
        seed=seed if isinstance(seed, int) and not isinstance(seed, bool) else None,
        settings=settings,
    )


def _degree(given: Given, axis: str) -> Fact:
    for path in _DEGREES[axis]:
        if given.at(path) is not None:
            size = given.size(path)
            if size is None and axis != "dp_shard":
                break
            return Fact(axis, -1 if size is None else size, given.origin(path))
    return Fact(axis, -1 if axis == "dp_shard" else 1, DEFAULT)


def _with_sparse(given: Given, dense: Mesh, facts: dict[str, Fact]) -> Atlas:
    """The sparse mesh beside the dense one: ep takes its ranks out of dp_shard · cp · tp."""
    ranks = dense.size("dp_shard") * dense.size("cp") * dense.size("tp")
    ep, experts = facts["ep"].value, given.at("model_spec.model.num_experts")
    told = " ".join(f"{axis}={dense.size(axis)}" for axis in ("dp_shard", "cp", "tp"))
    also = experts if isinstance(experts, int) and not isinstance(experts, bool) and experts > 0 else None
    divides("ep", ep, ranks, f"dp_shard*cp*tp ({told})", also, facts["ep"].origin)
    facts["efsdp"] = Fact("efsdp", ranks // ep, "dp_shard*cp*tp ÷ ep")
    sparse = Mesh(pp=dense.size("pp"), dp_replicate=dense.size("dp_replicate"), efsdp=facts["efsdp"].value, ep=ep)
    return Atlas(dense=dense, sparse=sparse, shared=("pp", "dp_replicate"))


def _fused(sizes: dict[str, int]) -> list[Fact]:
    """The meshes torchtitan names that are several of these axes together."""
    batch = sizes["dp_replicate"] * sizes["dp_shard"]
    return [
        Fact("batch", batch, said("group.over", axes=("dp_replicate", "dp_shard"))),
        Fact("loss", batch * sizes["cp"], said("group.over", axes=("dp_replicate", "dp_shard", "cp"))),
        Fact("fsdp", sizes["dp_shard"] * sizes["cp"], said("group.over", axes=("dp_shard", "cp"))),
    ]


def _settings(given: Given, sizes: dict[str, int]) -> tuple[list[Fact], list[str]]:
    facts, notes = numbers(given, _SETTINGS)
    found = {fact.name: fact for fact in facts}
    batch = sizes["dp_replicate"] * sizes["dp_shard"]
    micro, whole = found.get("micro_batch"), found.get("global_batch")
    if whole is None and micro is not None:
        found["global_batch"] = Fact("global_batch", micro.value * batch, said("default.local_batch", default=DEFAULT))
    elif whole is not None and micro is not None and whole.value % (micro.value * batch) == 0:
        steps = whole.value // (micro.value * batch)
        found["accumulation"] = Fact("accumulation", steps, said("computed.local_accumulation"))
    if sizes["dp_shard"] * sizes["cp"] > 1:
        found["zero_stage"] = Fact("zero_stage", 3, said("because.fsdp_mesh"))
        found["fsdp"] = Fact("fsdp", "FSDP2" if sizes["dp_replicate"] == 1 else "HSDP", said("because.fsdp_mesh"))
    if sizes["cp"] > 1:
        path = "parallelism.context_parallel_load_balancer"
        told = "context_parallel_load_balancer" in given.part("parallelism")
        split = "contiguous" if told and given.at(path) is None else "balanced"
        found["cp_split"] = Fact("cp_split", split, given.origin(path) if told else DEFAULT)
    if given.at("parallelism") is not None:
        path = "parallelism.enable_sequence_parallel"
        on = given.flag(path)
        found["sequence_parallel"] = Fact(
            "sequence_parallel", on is not False, DEFAULT if on is None else given.origin(path)
        )
    precision = given.at("training.mixed_precision_param")
    if precision in ("bfloat16", "float32", "float16"):
        short = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}[precision]
        found["precision"] = Fact("precision", short, given.origin("training.mixed_precision_param"))
    recompute = given.at("activation_checkpoint.mode")
    if isinstance(recompute, str) and recompute != "none":
        found["recompute"] = Fact("recompute", recompute, given.origin("activation_checkpoint.mode"))
    return list(found.values()), notes


def _notes(given: Given, facts: dict[str, Fact]) -> list[str]:
    notes = []
    for section in ("parallelism", "training", "experimental"):
        inner = given.part(section)
        known = [path.partition(".")[2] for path in LAYOUT if path.startswith(f"{section}.")]
        notes += not_understood(inner, known, before=f"{section}.")
    if facts["etp"].value > 1 and facts["ep"].value > 1:
        notes.append(said("unread.etp", etp=facts["etp"].value))
    return notes
