"""Arguments of Megatron-LM (core 0.16 and later), however given, as the dense and the expert mesh it builds.

Both rank generators write their order innermost first, tp-cp-ep-dp-pp unless `--use-tp-pp-dp-mapping` makes it
tp-cp-ep-pp-dp; the expert one has no cp, and an expert tensor size that is not given is the dense one.
Source: `initialize_model_parallel` in megatron/core/parallel_state.py, `validate_args` in
megatron/training/arguments.py.
"""

from __future__ import annotations

from rankatlas.catalogue import said
from rankatlas.core import Atlas, Mesh
from rankatlas.core.sizes import resolve
from rankatlas.dialects.given import Given
from rankatlas.dialects.megatron_names import slips
from rankatlas.dialects.megatron_settings import settings_of
from rankatlas.dialects.picking import not_understood, refuse_unresolved, world_needed, world_of
from rankatlas.dialects.slips import slip, with_slips
from rankatlas.dialects.whose import ALSO_MEGATRON, MEGATRON, SHARED, names_of, only_megatron
from rankatlas.errors import ArgumentsError, SourceError, shown
from rankatlas.job import Fact, Job

DEFAULT = said("default.of", name="Megatron-LM core 0.16")
_TP, _PP, _CP = "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"
_EP, _ETP, _DP = "expert_model_parallel_size", "expert_tensor_parallel_size", "data_parallel_size"
_SHARDS, _EXPERT_SHARDS = "tensor_parallel_num_weight_shards", "expert_tensor_parallel_num_weight_shards"
_REMAT, _EXPERT_REMAT = "gtp_weight_remat_size", "expert_gtp_weight_remat_size"
_OWN = (*MEGATRON, *ALSO_MEGATRON)
# Known, and without an axis of their own.
_OTHER = (
    _TP, _PP, _CP, _EP, _ETP, _DP, _SHARDS, _EXPERT_SHARDS, _REMAT, _EXPERT_REMAT,
    "transformer_pipeline_model_parallel_size",
    "rl_inference_tensor_model_parallel_size", "rl_inference_pipeline_model_parallel_size",
    "rl_inference_expert_model_parallel_size", "rl_inference_expert_tensor_model_parallel_size",
)  # fmt: skip
_SECTIONS = (
    "", "model", "model_parallel", "language_model", "trainer.strategy", "trainer", "train", "training",
    "training.model", "training.trainer", "dist", "ddp", "trainer.strategy.ddp", "optimizer", "dataset", "data",
    "mixed_precision", "rng",
)  # fmt: skip
LAYOUT = (_TP, _PP, _CP, _EP, _ETP, _SHARDS, _EXPERT_SHARDS, "num_experts", "nproc_per_node", "nnodes")


def evidence(given: Given) -> int:
    """2 where a name of Megatron's own stands beside a degree, or three of them alone; 1 for the shared names only."""
    flat = given.flat(_SECTIONS)
    names = names_of(flat)
    shared = [name for name in SHARED if name in names]
    own = [name for name in _OWN if name in names]
    nested = any(
        name in given.part(part) for name in SHARED for part in ("model", "trainer.strategy", "model_parallel")
    )
    if (shared and only_megatron(flat)) or len(own) >= 3 or nested:
        return 2
    return 1 if shared else 0


def read(given: Given, release: str | None, world_size: int | None) -> Job:
    """The job of Megatron's arguments: one mesh, or an atlas of `dense` and `expert` where there are experts.

    Raises SourceError (values that wait for variables, an unknown number of ranks), ArgumentsError (what Megatron
    itself refuses), WorldSizeError.  Cost: O(keys).
    """
    given = given.flat(_SECTIONS)
    refuse_unresolved(given, _needed(given, world_size))
    world, _, notes = world_of(given, world_size, ("world_size", "devices*num_nodes"))
    notes = [*given.notes, *notes]
    facts = {name: _size(given, path, name) for name, path in (("tp", _TP), ("pp", _PP), ("cp", _CP))}
    facts["gtp_remat"] = _remat(given, _SHARDS, _REMAT, "gtp_remat", facts["tp"])
    world = _implied(given, world, facts)
    if world is None:
        raise world_needed(given, "arguments of Megatron-LM")
    sizes: dict[str, int | None] = {name: fact.value for name, fact in facts.items()}
    origins = {name: fact.origin for name, fact in facts.items()}
    given_dp = given.size(_DP) if not notes_of_world(notes) else None
    if given_dp is not None:
        origins["dp"] = given.origin(_DP)
    settled = resolve({**sizes, "dp": given_dp}, world, origins=origins)
    facts["dp"] = Fact("dp", settled["dp"], origins.get("dp", said("inferred.world", world=world)))
    outer = ("dp", "pp") if given.flag("use_tp_pp_dp_mapping") else ("pp", "dp")
    remat = ("gtp_remat",) if settled["gtp_remat"] > 1 else ()
    dense = Mesh.from_axes([(axis, settled[axis]) for axis in (*outer, "cp", *remat, "tp")])
    layout: Mesh | Atlas = dense
    used = [*dense.axes]
    if _has_experts(given, facts["tp"].value):
        expert, more = _expert(given, facts, world, outer)
        facts |= more
        layout = Atlas(dense=dense, expert=expert, shared=("pp",))
        used += [axis for axis in expert.axes if axis not in used]
        notes += _expert_notes(given, facts, world)
    settings, more_notes = settings_of(given, facts, DEFAULT)
    notes += [*more_notes, *_left_out(given)]
    return Job(
        layout,
        format=f"megatron-{release or ('head' if remat or 'egtp_remat' in used else '0.16')}",
        source=given.source,
        facts=[facts[axis] for axis in used],
        notes=with_slips(given, notes, _refuses(given)),
        seed=_seed(given),
        settings=settings,
    )


def notes_of_world(notes: list[str]) -> bool:
    """Whether the world is another one than the source's own, so that what follows from it there does not hold."""
    return any(note.startswith("the source is of ") for note in notes)


def _needed(given: Given, world_size: int | None) -> tuple[str, ...]:
    if world_size is not None or given.size("world_size"):
        return tuple(name for name in LAYOUT if name not in ("nproc_per_node", "nnodes"))
    return LAYOUT


def _size(given: Given, path: str, axis: str) -> Fact:
    size = given.size(path)
    return Fact(axis, size, given.origin(path)) if size is not None else Fact(axis, 1, DEFAULT)


def _remat(given: Given, shards: str, resolved: str, axis: str, tensor: Fact) -> Fact:
    """The axis along which head's weight shards lie beside the tensor axis: shards ÷ tensor size."""
    count = given.size(shards)
    if count is None:
        size = given.size(resolved)
        return Fact(axis, size, given.origin(resolved)) if size else Fact(axis, 1, DEFAULT)
    if count % tensor.value:
        raise ArgumentsError(
            said("refused.shards", name=shards, count=count, size=tensor.value, origin=tensor.origin), names=(shards,)
        )
    return Fact(axis, count // tensor.value, said("megatron.remat", name=shards, count=count, size=tensor.value))


def _implied(given: Given, world: int | None, facts: dict[str, Fact]) -> int | None:
    """The world that the sizes multiply to, where the data size is given and the world is not."""
    data = given.size(_DP)
    if world is not None or data is None:
        return world
    for fact in facts.values():
        data *= fact.value
    return data


def _has_experts(given: Given, tensor: int) -> bool:
    experts = [given.at(name) for name in ("num_experts", "num_moe_experts")]
    etp = given.size(_ETP)
    return bool(any(experts) or (given.size(_EP) or 1) > 1 or (etp is not None and etp != tensor))


def _expert(given: Given, facts: dict[str, Fact], world: int, outer: tuple[str, str]) -> tuple[Mesh, dict[str, Fact]]:
    """The mesh of the expert layers and the facts about its own axes."""
    etp = given.size(_ETP)
    more = {
        "ep": _size(given, _EP, "ep"),
        "etp": Fact("etp", etp, given.origin(_ETP))
        if etp is not None
        else Fact("etp", facts["tp"].value, said("inherited.tp")),
    }
    more["egtp_remat"] = _remat(given, _EXPERT_SHARDS, _EXPERT_REMAT, "egtp_remat", more["etp"])
    pp = facts["pp"]
    sizes: dict[str, int | None] = {"pp": pp.value, "edp": None, **{axis: fact.value for axis, fact in more.items()}}
    origins = {"pp": pp.origin, **{axis: fact.origin for axis, fact in more.items()}}
    settled = resolve(sizes, world, origins=origins)
    more["edp"] = Fact("edp", settled["edp"], said("inferred.world", world=world))
    if outer[0] == "dp" and pp.value > 1 and settled["edp"] != facts["dp"].value:
        raise ArgumentsError(
            said(
                "refused.mapping",
                pp=pp.value,
                edp=settled["edp"],
                dp=facts["dp"].value,
                block=facts["cp"].value * facts["tp"].value,
            ),
            names=("use_tp_pp_dp_mapping", _EP, _ETP),
        )
    remat = ("egtp_remat",) if settled["egtp_remat"] > 1 else ()
    names = {"dp": "edp", "pp": "pp"}
    axes = (*(names[axis] for axis in outer), *remat, "ep", "etp")
    return Mesh.from_axes([(axis, settled[axis]) for axis in axes]), more


def _expert_notes(given: Given, facts: dict[str, Fact], world: int) -> list[str]:
    etp, ep, pp = facts["etp"], facts["ep"], facts["pp"]
    if etp.origin != "inherited from tp" or etp.value == 1:
        return []
    block, alone = etp.value * ep.value, ep.value
    instead = ""
    if world % (alone * pp.value) == 0:
        instead = said("noted.etp_one", ranks=alone, edp=world // (alone * pp.value))
    return [said("noted.etp", etp=etp.value, ranks=block, edp=facts["edp"].value, instead=instead)]


def _left_out(given: Given) -> list[str]:
    """Notes on what says something about groups and is no axis here."""
    near = slips(given, (*_OTHER, *_OWN))
    refused = _refuses(given)
    notes = [slip(name, given[name], meant, refused) for name, meant in near.items()][:20]
    notes += not_understood(given, (*_OTHER, *near))
    instances = given.at("num_distributed_optimizer_instances")
    if isinstance(instances, int) and instances > 1:
        notes.append(said("noted.instances", count=instances))
    levels = given.at("hierarchical_context_parallel_sizes")
    if levels:
        notes.append(said("noted.levels", levels=shown(levels), sizes=levels))
    return notes


def _refuses(given: Given) -> str | None:
    """Who stops at an option it does not know: Megatron's argument parser, which reads no file."""
    return "Megatron-LM" if given.kind == "script" else None


def _seed(given: Given) -> int | None:
    seed = given.at("seed")
    return seed if isinstance(seed, int) and not isinstance(seed, bool) else None


def no_layout(given: Given) -> SourceError:
    """The error for a log or script in which nothing of a launch was found."""
    return SourceError(f"nothing in {shown(given.source)} sets a parallel size", source=given.source)
