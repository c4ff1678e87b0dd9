"""NeMo-RL's resolved configuration: the policy's meshes, and the generation engines on the same or on other ranks.

Source: examples/run_grpo.py ("Final config:"), nemo_rl/algorithms/grpo.py (how a cluster is shared out),
nemo_rl/models/policy/workers/dtensor_policy_worker.py (dp, cp, tp).
"""

from __future__ import annotations

from collections.abc import Mapping

from rankatlas.catalogue import said
from rankatlas.core import Mesh
from rankatlas.core.sizes import resolve
from rankatlas.dialects import megatron
from rankatlas.dialects.given import Given
from rankatlas.dialects.picking import built_upon, not_understood, numbers, refuse_open_references, world_needed
from rankatlas.dialects.rollouts import rollout_size, told_facts, with_rollout
from rankatlas.dialects.slips import with_slips
from rankatlas.errors import ArgumentsError, shown
from rankatlas.job import Fact, Job

DEFAULT = said("default.of", name="NeMo-RL")
_DTENSOR, _MEGATRON, _GENERATION = "policy.dtensor_cfg", "policy.megatron_cfg", "policy.generation"
_ENGINE = {"rollout_pp": "pipeline_parallel_size", "rollout_tp": "tensor_parallel_size"}
_CLUSTER = "cluster"
_SPLIT = (f"{_CLUSTER}.gpus_per_node", f"{_CLUSTER}.num_nodes")
_OTHERS = f"{_GENERATION}.colocated.resources"
LAYOUT = (
    *_SPLIT,
    *(f"{_DTENSOR}.{axis}_parallel_size" for axis in ("tensor", "context")),
    *(f"{_GENERATION}.vllm_cfg.{name}" for name in _ENGINE.values()),
)
_HOW = "give the configuration that a run prints after 'Final config:', where they are resolved"


def evidence(given: Given) -> int:
    """2 with a policy that has a dtensor or Megatron part, or `policy` beside `cluster`."""
    parts = [given.at(path) for path in (_DTENSOR, _MEGATRON)]
    if any(isinstance(part, Mapping) for part in parts):
        return 2
    return 1 if given.at("policy.model_name") is not None and given.at("cluster.num_nodes") is not None else 0


def read(given: Given, release: str | None, world_size: int | None) -> Job:
    """The job of a NeMo-RL configuration: charts `train` and `rollout`.

    `world_size` is over both, as the cluster is.  Raises SourceError, ArgumentsError, WorldSizeError, DegreeError.
    """
    refuse_open_references(given, LAYOUT, _HOW)
    world, first, ranks, notes = _shares(given, world_size)
    train = _train(given, world)
    backend = (
        "vllm_cfg"
        if given.at(f"{_GENERATION}.backend") in (None, "vllm")
        else f"{given.at(f'{_GENERATION}.backend')}_cfg"
    )
    layout = train.layout
    facts = told_facts(train, "train")
    if isinstance(given.at(_GENERATION), Mapping):
        engine = {axis: _size(given, axis, f"{_GENERATION}.{backend}.{name}") for axis, name in _ENGINE.items()}
        count = rollout_size(f"{_GENERATION}.{backend}.tensor_parallel_size", engine, ranks)
        axes = [("dp", count), ("pp", engine["rollout_pp"].value), ("tp", engine["rollout_tp"].value)]
        layout = with_rollout(train.layout, Mesh.from_axes(axes, first_rank=first))
        facts += engine.values()
        inner = given.at(f"{_GENERATION}.{backend}")
        if isinstance(inner, Mapping):
            known = [*_ENGINE.values()]
            notes += not_understood(inner, known, before=f"{_GENERATION}.{backend}.")
    settings, more = _settings(given)
    own = {fact.name: fact for fact in (*train.settings.values(), *settings)}
    seed = given.at("grpo.seed")
    return Job(
        layout,
        format=f"nemo-rl-{release}" if release else "nemo-rl",
        source=given.source,
        facts=[*facts, *_batches(given)],
        notes=with_slips(given, [*given.notes, *notes, *train.notes, *more, *_elsewhere(given), *built_upon(given)]),
        seed=seed if isinstance(seed, int) and not isinstance(seed, bool) else train.seed,
        settings=own.values(),
    )


def _shares(given: Given, asked: int | None) -> tuple[int, int, int, list[str]]:
    """Training ranks, the first rank that generates, how many generate, and notes."""
    each, nodes = given.size(_SPLIT[0]), given.size(_SPLIT[1])
    if each is None or nodes is None:
        if asked is None:
            raise world_needed(given, "settings of NeMo-RL")
        return asked, 0, asked, []
    notes = []
    if asked is not None and asked != each * nodes:
        notes.append(said("world.other", found=each * nodes, origin="cluster", asked=asked))
    if given.at(f"{_GENERATION}.colocated.enabled") is not False:
        world = asked or each * nodes
        return world, 0, world, notes
    ranks = _engines_alone(given, each, nodes)
    world = (asked or each * nodes) - ranks
    if world < 1:
        raise ArgumentsError(said("refused.generation_all", ranks=ranks, world=asked), names=(_OTHERS,))
    return world, world, ranks, [*notes, said("noted.generation", ranks=ranks, first=world)]


def _elsewhere(given: Given) -> list[str]:
    """Notes on what takes devices of the cluster, or sorts them, and is not counted here."""
    notes = []
    reward = given.at("env.reward_model.resources")
    if isinstance(reward, Mapping):
        told = ", ".join(f"{name}={shown(reward[name])}" for name in ("num_nodes", "gpus_per_node") if name in reward)
        notes.append(
            f"env.reward_model.resources ({told}) takes devices of the cluster where a reward model runs: not read"
        )
    segment = given.at(f"{_CLUSTER}.segment_size")
    if segment is not None:
        notes.append(
            f"{_CLUSTER}.segment_size={shown(segment)} sorts nodes by their network: where ranks stand is not read"
        )
    return notes


def _engines_alone(given: Given, each: int, nodes: int) -> int:
    """How many ranks of a cluster generate where training has the others.  Raises ArgumentsError as `setup` does."""
    gpus, count = given.size(f"{_OTHERS}.gpus_per_node"), given.size(f"{_OTHERS}.num_nodes")
    if nodes == 1:
        fits, ranks = gpus is not None and gpus < each and count in (None, 1), gpus or 0
        needed = said("needed.gpus", most=each - 1)
    else:
        fits, ranks = gpus == each and count is not None and count < nodes, (count or 0) * each
        needed = said("needed.nodes", each=each, most=nodes - 1)
    if fits:
        return ranks
    raise ArgumentsError(
        said(
            "refused.generation",
            path=_OTHERS,
            each=each,
            nodes=nodes,
            needed=needed,
            their_each=gpus,
            their_nodes=count,
        ),
        names=(_OTHERS,),
    )


def _size(given: Given, name: str, path: str) -> Fact:
    size = given.size(path)
    return Fact(name, size, given.origin(path)) if size else Fact(name, 1, DEFAULT)


def _train(given: Given, world: int) -> Job:
    if given.at(f"{_MEGATRON}.enabled") is True:
        held = given.at(_MEGATRON)
        inner = dict(held) if isinstance(held, Mapping) else {}
        origins = {name: given.origin(f"{_MEGATRON}.{name}") for name in inner}
        return megatron.read(Given(inner, source=given.source, origins=origins), None, world)
    facts = {
        axis: _size(given, axis, f"{_DTENSOR}.{name}")
        for axis, name in (
            ("dp_replicate", "dp_replicate_size"),
            ("cp", "context_parallel_size"),
            ("tp", "tensor_parallel_size"),
        )
    }
    sizes: dict[str, int | None] = {"dp_replicate": facts["dp_replicate"].value, "dp": None}
    sizes |= {axis: facts[axis].value for axis in ("cp", "tp")}
    settled = resolve(sizes, world, origins={axis: fact.origin for axis, fact in facts.items()})
    facts["dp"] = Fact("dp", settled["dp"], said("inferred.world", world=world))
    axes = [axis for axis in ("dp_replicate", "dp", "cp", "tp") if axis != "dp_replicate" or settled[axis] > 1]
    inner = given.at(_DTENSOR)
    known = ["tensor_parallel_size", "context_parallel_size"]
    return Job(
        Mesh.from_axes([(axis, settled[axis]) for axis in axes]),
        format="nemo-rl",
        source=given.source,
        facts=[facts[axis] for axis in axes],
        notes=not_understood(inner, known, before=f"{_DTENSOR}.") if isinstance(inner, Mapping) else [],
        settings=[Fact("zero_stage", 3, "FSDP2"), Fact("fsdp", "FSDP2", said("given.key", key=_DTENSOR))],
    )


def _batches(given: Given) -> list[Fact]:
    """What one step generates; nothing where a base that is not read says one of the two."""
    found = []
    for name, path in (("prompts", "grpo.num_prompts_per_step"), ("responses", "grpo.num_generations_per_prompt")):
        value = given.at(path)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            found.append(Fact(name, value, given.origin(path)))
    return found if len(found) > 1 or not built_upon(given) else []


def _settings(given: Given) -> tuple[list[Fact], list[str]]:
    facts, notes = numbers(
        given,
        {
            "global_batch": ("policy.train_global_batch_size",),
            "micro_batch": ("policy.train_micro_batch_size",),
            "sequence_length": ("policy.max_total_sequence_length",),
        },
    )
    precision = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(str(given.at("policy.precision")))
    if precision:
        facts.append(Fact("precision", precision, given.origin("policy.precision")))
    return facts, notes
