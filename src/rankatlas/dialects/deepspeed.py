"""A DeepSpeed configuration as JSON, or as its engine prints it into a log.

The file knows ZeRO, AutoTP and Ulysses; the sizes of a pipeline, of model and expert ranks are arguments of the
program, so they come by `--set`.  Ranks are laid out pipe, data, model; a sequence axis lies inside data.
Source: `PipeModelDataParallelTopology` in deepspeed/runtime/pipe/topology.py, deepspeed/utils/groups.py (0.19).
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

DEFAULT = said("default.of", name="DeepSpeed 0.19")
_SIZES = MappingProxyType(
    {
        "pipe": ("pipe_parallel_size", "pipeline_parallel_size", "pipeline.stages", "pipeline.num_stages"),
        "data": ("data_parallel_size",),
        "sp": ("sequence_parallel_size",),
        "model": (
            "tensor_parallel.autotp_size",
            "tensor_parallel.tp_size",
            "tensor_parallel.tp.tp_size",
            "tensor_parallel_size",
            "model_parallel_size",
        ),
        "ep": ("ep_size", "expert_parallel_size", "moe.ep_size"),
    }
)
_SETTINGS = MappingProxyType(
    {
        "global_batch": ("train_batch_size",),
        "micro_batch": ("train_micro_batch_size_per_gpu",),
        "accumulation": ("gradient_accumulation_steps",),
    }
)
_OWN = (
    "zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer",
    "tensor_parallel", "steps_per_print", "wall_clock_breakdown", "gradient_accumulation_steps", "gradient_clipping",
)  # fmt: skip
LAYOUT = tuple(name for names in _SIZES.values() for name in names if "." not in name)


def evidence(given: Given) -> int:
    """2 with `zero_optimization` or a per-GPU micro-batch beside another name of its own."""
    own = [name for name in _OWN if name in given]
    sure = [name for name in ("zero_optimization", "train_micro_batch_size_per_gpu") if name in given]
    return 2 if sure and len(own) >= 2 else 1 if sure else 0


def read(given: Given, release: str | None, world_size: int | None) -> Job:
    """The job of a DeepSpeed configuration.  Raises SourceError, SizeError, WorldSizeError, DegreeError."""
    refuse_unresolved(given, LAYOUT)
    facts: dict[str, Fact] = {}
    beside = ["engine.data_size"]
    for axis, paths in _SIZES.items():
        path = next((path for path in paths if _size(given, path)), None)
        size = _size(given, path) if path else None
        facts[axis] = Fact(axis, size, given.origin(path)) if path and size else Fact(axis, 1, DEFAULT)
        # What the engine prints as its world are the ranks that batches are split over; AutoTP does not know yet that
        # it will split them.
        if path and axis in ("pipe", "sp", "model") and not path.startswith("tensor_parallel."):
            beside.append(path)
    world, _, notes = world_of(given, world_size, ("*".join(beside), "world_size"))
    sizes: dict[str, int | None] = {axis: facts[axis].value for axis in ("pipe", "data", "sp", "model")}
    if facts["data"].origin == DEFAULT:
        sizes["data"] = None
    if world is None and sizes["data"] is not None:
        world = facts["pipe"].value * facts["data"].value * facts["sp"].value * facts["model"].value
    if world is None:
        raise world_needed(given, "a DeepSpeed configuration, settings")
    settled = resolve(sizes, world, origins={axis: facts[axis].origin for axis in sizes if sizes[axis]})
    if sizes["data"] is None:
        facts["data"] = Fact("data", settled["data"], said("inferred.world", world=world))
    axes = [axis for axis in ("pipe", "data", "sp", "model") if settled[axis] > 1 or axis in ("pipe", "data", "model")]
    dense = Mesh.from_axes([(axis, settled[axis]) for axis in axes])
    layout: Mesh | Atlas = dense
    if facts["ep"].value > 1:
        layout = _with_experts(given, dense, facts)
    settings, more = numbers(_without_auto(given), _SETTINGS)
    stage = given.at("zero_optimization.stage")
    if isinstance(stage, int) and not isinstance(stage, bool) and 0 <= stage <= 3:
        settings.append(Fact("zero_stage", stage, given.origin("zero_optimization.stage")))
    settings += _precision(given)
    return Job(
        layout,
        format=f"deepspeed-{release or '0.19'}",
        source=given.source,
        facts=[facts[axis] for axis in [*axes, *(["ep", "expert_data"] if "expert_data" in facts else [])]],
        notes=with_slips(given, [*given.notes, *notes, *more, *_notes(given)]),
        settings=settings,
    )


def _size(given: Given, path: str | None) -> int | None:
    value = given.at(path) if path else None
    return None if value in (None, 0, "auto") else given.size(path or "")


def _with_experts(given: Given, dense: Mesh, facts: dict[str, Fact]) -> Atlas:
    """The expert chart: over the data ranks of every stage, beside the model axis."""
    size, ranks = facts["ep"].value, dense.world_size // facts["pipe"].value // facts["model"].value
    divides("ep", size, ranks, said("ranks.data_of_stage"), origin=facts["ep"].origin)
    facts["expert_data"] = Fact("expert_data", ranks // size, said("inferred.world", world=dense.world_size))
    swapped = given.flag("use_data_before_expert_parallelism")
    inner = ("ep", "expert_data") if swapped else ("expert_data", "ep")
    sizes = {"pipe": facts["pipe"].value, **{axis: facts[axis].value for axis in inner}, "model": facts["model"].value}
    return Atlas(dense=dense, expert=Mesh.from_axes(list(sizes.items())), shared=("pipe", "model"))


def _without_auto(given: Given) -> Given:
    """`auto` is what transformers fills in; here it is the same as not given."""
    told = Given({name: value for name, value in given.items() if value != "auto"}, source=given.source)
    told.asked = given.asked
    return told


def _precision(given: Given) -> list[Fact]:
    for name in ("bf16", "fp16", "bfloat16"):
        if given.at(f"{name}.enabled") is True:
            return [Fact("precision", "bf16" if name == "bfloat16" else name, given.origin(f"{name}.enabled"))]
    return []


def _notes(given: Given) -> list[str]:
    notes = not_understood(given, LAYOUT)
    for name in ("zero_hpz_partition_size", "mics_shard_size"):
        value = given.at(f"zero_optimization.{name}")
        value = given.at(name) if value is None else value
        if isinstance(value, int) and value > 1:
            notes.append(said(f"noted.{name}", name=name, value=value))
    waiting = [name for name in _SETTINGS["micro_batch"] + _SETTINGS["accumulation"] if given.at(name) == "auto"]
    if waiting:
        notes.append(said("noted.auto", names=waiting))
    return notes
