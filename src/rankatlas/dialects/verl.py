"""verl's resolved configuration: the actor's meshes and the rollout engines over the same ranks.

Source: `_init_device_mesh` in verl/workers/engine/fsdp/transformer_impl.py, verl/workers/engine_workers.py (0.9):
FSDP lays ddp × fsdp, Ulysses dp × sp, and the rollout dp × infer_tp × infer_pp.
"""

from __future__ import annotations

from collections.abc import Mapping

from rankatlas.catalogue import said
from rankatlas.core import Atlas, Mesh
from rankatlas.dialects import megatron
from rankatlas.dialects.given import Given
from rankatlas.dialects.picking import (
    built_upon,
    divides,
    not_understood,
    numbers,
    refuse_open_references,
    refuse_unresolved,
    world_needed,
    world_of,
)
from rankatlas.dialects.rollouts import rollout_size, told_facts, with_rollout
from rankatlas.dialects.slips import with_slips
from rankatlas.errors import shown
from rankatlas.job import Fact, Job

DEFAULT = said("default.of", name="verl 0.9")
_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
# Axis of an engine → where its size stands, and verl's default.
_ENGINE = {
    "rollout_tp": (f"{_ROLLOUT}.tensor_model_parallel_size", 2),
    "rollout_dp": (f"{_ROLLOUT}.data_parallel_size", 1),
    "rollout_pp": (f"{_ROLLOUT}.pipeline_model_parallel_size", 1),
}
_WORLD = ("trainer.n_gpus_per_node", "trainer.nnodes")
_FSDP = f"{_ACTOR}.fsdp_config.fsdp_size"
_ULYSSES = (f"{_ACTOR}.ulysses_sequence_parallel_size", f"{_ACTOR}.fsdp_config.ulysses_sequence_parallel_size")
_MICRO, _TOKENS = f"{_ACTOR}.ppo_micro_batch_size_per_gpu", f"{_ACTOR}.ppo_max_token_len_per_gpu"
_DYNAMIC = f"{_ACTOR}.use_dynamic_bsz"
_STRATEGY = f"{_ACTOR}.strategy"
_MOST = 1 << 31
LAYOUT = (*_WORLD, _FSDP, *_ULYSSES, *(path for path, _ in _ENGINE.values()))
_HOW = "print it resolved: add --cfg job --resolve to the command that starts verl"


def evidence(given: Given) -> int:
    """2 with `actor_rollout_ref`, which nobody else has."""
    names = [*given, *(name.partition(".")[0] for name in given.unresolved)]
    return 2 if "actor_rollout_ref" in names else 0


def read(given: Given, release: str | None, world_size: int | None) -> Job:
    """The job of a verl configuration: charts `train`, `ulysses` where sequences are split, and `rollout`.

    Raises SourceError, SizeError, WorldSizeError, DegreeError (an engine that does not fit into the world).
    """
    refuse_open_references(given, LAYOUT, _HOW)
    refuse_unresolved(given, (*LAYOUT, _STRATEGY, *_megatron_names(given)))
    world, origin, notes = world_of(given, world_size, ("*".join(_WORLD),))
    if world is None and given.at("trainer.n_gpus_per_node") is not None and given.at("trainer.nnodes") is None:
        world, origin = given.size("trainer.n_gpus_per_node"), said("verl.one_node", key=_WORLD[0], default=DEFAULT)
    if world is None:
        raise world_needed(given, "settings of verl")
    train = _train(given, world)
    engine = {name: _size(given, name, path, default) for name, (path, default) in _ENGINE.items()}
    layout, more, facts = _layout(given, train, engine, world)
    settings, further = _settings(given, train)
    further += _left_out(given) + built_upon(given)
    return Job(
        layout,
        format=f"verl-{release or '0.9'}",
        source=given.source,
        facts=[*told_facts(train, "train"), *facts, *_batches(given), Fact("world", world, origin)],
        notes=with_slips(given, [*given.notes, *notes, *train.notes, *more, *further]),
        seed=train.seed,
        settings=settings,
    )


def _size(given: Given, name: str, path: str, default: int) -> Fact:
    size = given.size(path)
    if size is None:
        return Fact(name, default, DEFAULT)
    origin = given.origin(path)
    return Fact(name, size, said("verl.default", origin=origin) if size == default > 1 else origin)


def _strategy(given: Given) -> str:
    """What trains the actor; scripts say it by the name of the configuration that they begin with."""
    own, base = given.at(f"{_ACTOR}.megatron"), str(given.at("config_name") or "")
    begins = "megatron" if isinstance(own, Mapping) or "megatron" in base else "fsdp"
    return str(given.at(_STRATEGY) or given.at("model_engine") or begins)


def _megatron_names(given: Given) -> list[str]:
    """Where the sizes of Megatron stand that wait for something, unless something else trains the actor."""
    names = [f"{_ACTOR}.megatron.{name}" for name in megatron.LAYOUT]
    return [name for name in names if name in given.unresolved and given.at(_STRATEGY) in (None, "megatron")]


def _train(given: Given, world: int) -> Job:
    """The actor's job."""
    strategy = _strategy(given)
    if strategy == "megatron":
        held = given.at(f"{_ACTOR}.megatron")
        inner = dict(held) if isinstance(held, Mapping) else {}
        origins = {name: given.origin(f"{_ACTOR}.megatron.{name}") for name in inner}
        return megatron.read(Given(inner, source=given.source, origins=origins), None, world)
    size = given.size(_FSDP)
    whole = size is None or size >= world
    shard = world if whole or size is None else size
    divides("fsdp_size", shard, world, said("ranks.world"), origin=given.origin(_FSDP))
    told = given.origin(_FSDP) if not whole else said("inferred.world", world=world)
    facts = [Fact("ddp", world // shard, said("inferred.world", world=world)), Fact("fsdp", shard, told)]
    mesh = Mesh(fsdp=world) if whole else Mesh(dp_replicate=world // shard, fsdp=shard)
    facts = (
        facts[1:]
        if whole
        else [Fact("dp_replicate", facts[0].value, said("verl.ddp", origin=facts[0].origin)), facts[1]]
    )
    return Job(
        mesh,
        format="verl",
        source=given.source,
        facts=facts,
        settings=[Fact("fsdp", strategy, given.origin(f"{_ACTOR}.strategy")), Fact("zero_stage", 3, "FSDP")],
    )


def _layout(given: Given, train: Job, engine: dict[str, Fact], world: int) -> tuple[Atlas, list[str], list[Fact]]:
    """The charts, notes and the facts about the engines."""
    notes, facts = [], [*engine.values()]
    separate = given.at("rollout.n_gpus_per_node"), given.at("rollout.nnodes")
    ranks, first = world, 0
    if given.at("actor_rollout_ref.hybrid_engine") is False and all(
        isinstance(size, int) and not isinstance(size, bool) and 0 < size < _MOST for size in separate
    ):
        ranks, first = separate[0] * separate[1], world
        notes.append(said("noted.rollout", ranks=ranks, first=first))
    path = _ENGINE["rollout_tp"][0]
    count = rollout_size(path, engine, ranks)
    tensor = engine["rollout_tp"].value * engine["rollout_dp"].value
    rollout = Mesh.from_axes([("dp", count), ("tp", tensor), ("pp", engine["rollout_pp"].value)], first_rank=first)
    atlas = with_rollout(train.layout, rollout)
    sequence = next((given.size(path) for path in _ULYSSES if given.size(path)), None) or 1
    if sequence > 1 and isinstance(train.layout, Mesh):
        name = next(path for path in _ULYSSES if given.size(path))
        divides("sp", sequence, world, said("ranks.world"), origin=given.origin(name))
        facts.append(Fact("sp", sequence, given.origin(name)))
        charts = {"train": train.layout, "ulysses": Mesh(dp=world // sequence, sp=sequence), "rollout": rollout}
        atlas = Atlas.from_charts(charts)
    if engine["rollout_dp"].value > 1:
        notes.append(said("noted.rollout_tp"))
    return atlas, notes, facts


def _left_out(given: Given) -> list[str]:
    """Notes on sizes of an engine or a trainer that are no axis of these charts."""
    notes = []
    for part in (_ROLLOUT, _ACTOR, f"{_ACTOR}.fsdp_config"):
        known = [path.rpartition(".")[2] for path in LAYOUT if path.startswith(f"{part}.")]
        notes += not_understood(given.part(part), known, before=f"{part}.")
    return notes


def _batches(given: Given) -> list[Fact]:
    """What one step generates: prompts, and responses to each."""
    found = []
    for name, path in (("prompts", "data.train_batch_size"), ("responses", f"{_ROLLOUT}.n")):
        value = given.at(path)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            found.append(Fact(name, value, given.origin(path)))
    return found


def _dynamic(given: Given) -> bool:
    """Whether micro-batches are filled up to a number of tokens, or may be: then none has a size in samples."""
    return _DYNAMIC in given.unresolved or bool(given.flag(_DYNAMIC))


def _without_effect(given: Given) -> list[str]:
    """A note on a micro-batch that is given and not taken."""
    size = given.at(_MICRO)
    if size is None or not _dynamic(given):
        return []
    if _DYNAMIC in given.unresolved:
        waits = ", ".join(given.unresolved[_DYNAMIC])
        return [f"whether {_MICRO}={shown(size)} counts depends on {_DYNAMIC}, which waits for {waits}"]
    tokens = given.at(_TOKENS)
    most = f"{_TOKENS}={shown(tokens)}" if tokens is not None else f"ppo_max_token_len_per_gpu=16384 ({DEFAULT})"
    return [f"{_MICRO}={shown(size)} has no effect with use_dynamic_bsz: a micro-batch holds what fits into {most}"]


def _settings(given: Given, train: Job) -> tuple[list[Fact], list[str]]:
    facts, notes = numbers(given, {} if _dynamic(given) else {"micro_batch": (_MICRO,)})
    notes += _without_effect(given)
    mini, each = given.at(f"{_ACTOR}.ppo_mini_batch_size"), given.at(f"{_ROLLOUT}.n")
    if all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in (mini, each)):
        facts.append(Fact("global_batch", mini * each, "ppo_mini_batch_size × rollout.n"))
    lengths = given.at("data.max_prompt_length"), given.at("data.max_response_length")
    if all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in lengths):
        facts.append(Fact("sequence_length", sum(lengths), "max_prompt_length + max_response_length"))
    own = {fact.name: fact for fact in (*train.settings.values(), *facts)}
    return list(own.values()), notes
