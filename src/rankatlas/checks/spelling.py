"""How each dialect spells a number, so that a change can be pasted into what somebody launches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Any

from rankatlas.checks.numbers import ROLES, Numbers
from rankatlas.core import Atlas, Mesh

_MEGATRON = MappingProxyType(
    {
        "tp": "tensor-model-parallel-size",
        "pp": "pipeline-model-parallel-size",
        "cp": "context-parallel-size",
        "ep": "expert-model-parallel-size",
        "etp": "expert-tensor-parallel-size",
        "virtual_stages": "num-virtual-stages-per-pipeline-rank",
        "first_stage_layers": "decoder-first-pipeline-num-layers",
        "last_stage_layers": "decoder-last-pipeline-num-layers",
        "global_batch": "global-batch-size",
        "micro_batch": "micro-batch-size",
        "sequence_length": "seq-length",
        "layers": "num-layers",
        "heads": "num-attention-heads",
        "kv_heads": "num-query-groups",
        "experts": "num-experts",
        "vocab_multiple": "make-vocab-size-divisible-by",
    }
)
_NLP = MappingProxyType(
    {
        "tp": "tensor_parallel_degree",
        "pp": "pipeline_parallel_degree",
        "cp": "context_parallel_degree",
        "sep": "sep_parallel_degree",
        "ep": "expert_parallel_degree",
        "dp": "data_parallel_degree",
        "sharding": "sharding_parallel_degree",
        "virtual_stages": "virtual_pp_degree",
        "micro_batch": "per_device_train_batch_size",
        "accumulation": "gradient_accumulation_steps",
        "sequence_length": "max_seq_length",
        "layers": "num_hidden_layers",
        "etp": "expert_tensor_parallel_degree",
    }
)
_FORMERS = MappingProxyType(
    {
        **_NLP,
        "tp": "tensor_model_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "cp": "context_parallel_size",
        "sep": "sep_parallel_size",
        "ep": "expert_model_parallel_size",
        "dp": "data_parallel_size",
        "sharding": "sharding_parallel_size",
        "virtual_stages": "virtual_pipeline_model_parallel_size",
        "sequence_length": "max_seq_len",
        "etp": "expert_tensor_model_parallel_size",
    }
)
_TITAN = MappingProxyType(
    {
        "tp": "parallelism.tensor_parallel_degree",
        "pp": "parallelism.pipeline_parallel_degree",
        "cp": "parallelism.context_parallel_degree",
        "ep": "parallelism.expert_parallel_degree",
        "etp": "parallelism.expert_tensor_parallel_degree",
        "dp": "parallelism.data_parallel_shard_degree",
        "dp_shard": "parallelism.data_parallel_shard_degree",
        "fsdp": "parallelism.data_parallel_shard_degree",
        "dp_replicate": "parallelism.data_parallel_replicate_degree",
        "micro_batch": "training.local_batch_size",
        "global_batch": "training.global_batch_size",
        "sequence_length": "training.seq_len",
    }
)
_DEEPSPEED = MappingProxyType(
    {
        "global_batch": "train_batch_size",
        "micro_batch": "train_micro_batch_size_per_gpu",
        "accumulation": "gradient_accumulation_steps",
        "tp": "tensor_parallel.autotp_size",
        "sep": "sequence_parallel_size",
    }
)
_ACCELERATE = MappingProxyType(
    {
        "tp": "parallelism_config_tp_size",
        "cp": "parallelism_config_cp_size",
        "dp": "parallelism_config_dp_shard_size",
        "dp_shard": "parallelism_config_dp_shard_size",
        "dp_replicate": "parallelism_config_dp_replicate_size",
        "sep": "parallelism_config_sp_size",
        "accumulation": "gradient_accumulation_steps",
    }
)
_VERL = MappingProxyType(
    {
        "rollout_tp": "actor_rollout_ref.rollout.tensor_model_parallel_size",
        "tp": "actor_rollout_ref.actor.megatron.tensor_model_parallel_size",
        "pp": "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size",
        "cp": "actor_rollout_ref.actor.megatron.context_parallel_size",
        "ep": "actor_rollout_ref.actor.megatron.expert_model_parallel_size",
        "etp": "actor_rollout_ref.actor.megatron.expert_tensor_parallel_size",
        "sep": "actor_rollout_ref.actor.ulysses_sequence_parallel_size",
        "prompts": "data.train_batch_size",
        "responses": "actor_rollout_ref.rollout.n",
        "micro_batch": "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        "global_batch": "actor_rollout_ref.actor.ppo_mini_batch_size",
    }
)
_NEMO = MappingProxyType(
    {
        "tp": "policy.megatron_cfg.tensor_model_parallel_size",
        "pp": "policy.megatron_cfg.pipeline_model_parallel_size",
        "cp": "policy.megatron_cfg.context_parallel_size",
        "ep": "policy.megatron_cfg.expert_model_parallel_size",
        "etp": "policy.megatron_cfg.expert_tensor_parallel_size",
        "rollout_tp": "policy.generation.vllm_cfg.tensor_parallel_size",
        "prompts": "grpo.num_prompts_per_step",
        "responses": "grpo.num_generations_per_prompt",
        "global_batch": "policy.train_global_batch_size",
        "micro_batch": "policy.train_micro_batch_size",
    }
)
# Family of formats → name → the source's key, and how a key and its value are written.
KEYS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "megatron": _MEGATRON,
        "paddlenlp": _NLP,
        "paddleformers": _FORMERS,
        "torchtitan": _TITAN,
        "deepspeed": _DEEPSPEED,
        "accelerate": _ACCELERATE,
        "verl": _VERL,
        "nemo": _NEMO,
    }
)
_SAID = re.compile(r"given: ([A-Za-z_][\w.]*)")  # the origin of a number that stands under a key
_STYLES: Mapping[str, str] = MappingProxyType(
    {"deepspeed": "json", "accelerate": "yaml", "verl": "override", "nemo": "override", "rankatlas": "yaml"}
)
_BY_ENDING: Mapping[str, str] = MappingProxyType(
    {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".txt": "", ".log": ""}
)


def lines(numbers: Numbers, changes: Mapping[str, Any]) -> list[str]:
    """The changes as lines of the source's own dialect; empty where it cannot say one of them.

    >>> numbers = Numbers([], format="megatron-0.16", source="slurm.out")
    >>> lines(numbers, {"tp": 4, "stage_layers": [8, 8, 7, 7]})
    ['--tensor-model-parallel-size 4', '--pipeline-model-parallel-layout "Et*8|t*8|t*7|t*7L"']
    """
    if "+" in numbers.format:
        return []  # one framework inside another: which file says it is not known here
    family = numbers.format.partition("-")[0]
    world = [_world(numbers, changes["world"])] if "world" in changes else []
    rest = {name: value for name, value in changes.items() if name != "world"}
    if family not in KEYS:
        told = _own(numbers, rest)
        return [] if told is None else [*told, *world]
    found = []
    for name, value in rest.items():
        line = _line(numbers, family, name, value, changes.get("cp", numbers["cp"]))
        if line is None:
            return []
        found.append(line)
        if family == "megatron" and name == "stage_layers" and numbers["virtual_stages"] > 1:
            found.append("# in the place of --num-virtual-stages-per-pipeline-rank")
    return [*found, *world]


def says_data(numbers: Numbers) -> bool:
    """Whether the source says the data size itself, so that it must change along with the other axes."""
    family = numbers.format.partition("-")[0]
    if family not in KEYS:
        return True
    axes = [axis for axis in numbers.axes.get("dp", ()) if axis in KEYS[family]]
    return any(numbers.told(axis).startswith("given") for axis in axes)


def _line(numbers: Numbers, family: str, name: str, value: Any, cp: int) -> str | None:
    if family == "megatron" and name == "stage_layers":
        return _stage_layout(value)
    if family == "megatron" and name == "layer_split":
        flags = {"embedding": ["embedding"], "loss": ["loss"], "embedding-and-loss": ["embedding", "loss"]}
        parts = [f"--account-for-{end}-in-pipeline-split" for end in flags.get(str(value), [])]
        return " ".join(parts) or None
    if name == "zero_stage":
        return _written(numbers, family, "sharding", f"stage{value}") if family.startswith("paddle") else None
    if family == "verl" and name == "global_batch":  # which verl counts in prompts
        responses = numbers["responses"]
        if value % responses:
            return None
        value //= responses
    if name == "dp" and numbers.expert is not None and family == "paddleformers":
        name, value = "sharding", value * cp  # there it is the whole of moe_sharding × sharding × cp
    elif name == "dp" and len(numbers.axes.get("dp", ())) > 1:
        found = _data_axis(numbers, family, value)
        if found is None:
            return None
        name, value = found
    key = _key(numbers, family, name)
    return None if key is None else _written(numbers, family, key, value)


def _key(numbers: Numbers, family: str, name: str) -> str | None:
    """The key the source gives this number by, else the one its dialect has for it."""
    axes = numbers.axes.get(name) or (name,)
    for origin in (numbers.told(*axes), numbers.origin(name)):
        said = _SAID.fullmatch(origin)
        if said:
            return said[1]
    keys = KEYS[family]
    role = next((role for role, axes in ROLES.items() if name in axes), name)
    return keys.get(name) or keys.get(role)


def _data_axis(numbers: Numbers, family: str, size: int) -> tuple[str, int] | None:
    """The data axis to set, and its new size, so that all of them together are `size`; None where none can be.

    The innermost one that the source gives, else the innermost there is a key for; the others stay as they are.
    """
    mesh = numbers.mesh
    there = [axis for axis in numbers.axes.get("dp", ()) if axis in KEYS[family]]
    if mesh is None or not there:
        return ("dp", size) if "dp" in KEYS[family] else None
    given = [axis for axis in there if numbers.told(axis).startswith("given")]
    chosen = (given or there)[-1]
    others = prod(mesh.size(axis) for axis in numbers.axes["dp"] if axis != chosen)
    return (chosen, size // others) if size % others == 0 else None


def _written(numbers: Numbers, family: str, key: str, value: Any) -> str:
    style = next((style for end, style in _BY_ENDING.items() if numbers.source.endswith(end) and style), None)
    if family == "megatron" and style:
        key = key.replace("-", "_")
    style = style or _STYLES.get(family, "flag")
    if style == "override" or family in ("verl", "nemo"):
        return f"{key}={value}"
    section, _, name = key.rpartition(".")
    if style == "json":
        inner = f'"{name}": {_json(value)}'
        return f'"{section}": {{{inner}}}' if section else inner
    if style == "toml":
        return f"{name} = {_json(value)}" + (f"  # in [{section}]" if section else "")
    if style == "yaml":
        return f"{section}: {{{name}: {value}}}" if section else f"{name}: {value}"
    return f"--{key} {value}"


def _json(value: Any) -> str:
    from json import dumps

    return dumps(value)


def _stage_layout(sizes: list[int]) -> str:
    """Megatron's picture of a pipeline: E the embedding, t a layer, L the loss, a bar between chunks."""
    parts = [f"t*{size}" if size > 1 else "t" * size for size in sizes]
    parts[0] = f"E{parts[0]}"
    parts[-1] = f"{parts[-1]}L"
    return f'--pipeline-model-parallel-layout "{"|".join(parts)}"'


def _world(numbers: Numbers, world: int) -> str:
    family = numbers.format.partition("-")[0]
    each = next(size for size in range(8, 0, -1) if world % size == 0)
    if family.startswith("paddle"):
        return f"python -m paddle.distributed.launch --nnodes {world // each} --nproc_per_node {each}"
    if family in KEYS:
        return f"torchrun --nnodes {world // each} --nproc-per-node {each}"
    return f"world_size: {world}" if family == "rankatlas" else f"--world-size {world}"


def _own(numbers: Numbers, changes: Mapping[str, Any]) -> list[str] | None:
    """Changes in notation, and settings as the rankatlas format names them; None where neither can say one."""
    sizes = {name: value for name, value in changes.items() if name in (*numbers.axes, "dp") or _has(numbers, name)}
    rest = {name: value for name, value in changes.items() if name not in sizes}
    layout = numbers.layout
    if isinstance(layout, Atlas) and sizes:
        return None  # the charts move together; no single line says how
    if rest and numbers.format == "notation" and layout is not None:
        return None  # notation has no settings
    new = None
    if sizes:
        plain = " ".join(f"{name}={value}" for name, value in sizes.items())
        new = plain if not isinstance(layout, Mesh) else resized(layout, sizes, numbers.axes)
        if new is None:
            return None
    if numbers.format != "rankatlas":
        return [*([new] if new else []), *(f"{name}: {value}" for name, value in rest.items())]
    if numbers.source.endswith(".json"):
        told = [f'"layout": {_json(new)}'] if new else []
        return [*told, *(f'"{name}": {_json(value)}' for name, value in rest.items())]
    return [*([f"layout: {new}"] if new else []), *(f"{name}: {value}  # in settings" for name, value in rest.items())]


def _has(numbers: Numbers, name: str) -> bool:
    return isinstance(numbers.layout, Mesh) and name in numbers.layout.axes


def resized(mesh: Mesh, sizes: Mapping[str, int], axes: Mapping[str, tuple[str, ...]]) -> str | None:
    """The notation of `mesh` with other sizes, given by axis or by role; None where a role has no axis to change.

    >>> resized(Mesh(pp=4, dp=2, mp=8), {"tp": 4, "dp": 4}, {"tp": ("mp",), "dp": ("dp",)})
    'pp=4 dp=4 mp=4'
    """
    new = dict(zip(mesh.axes, mesh.sizes))
    for name, size in sizes.items():
        if name in new and len(axes.get(name, (name,))) == 1:
            new[name] = size
            continue
        there = axes.get(name, ())
        if not there:
            if size != 1:
                return None
            continue
        rest = 1
        for axis in there[:-1]:
            rest *= new[axis]
        if size % rest:
            return None
        new[there[-1]] = size // rest
    first = f" first_rank={mesh.first_rank}" if mesh.first_rank else ""
    return " ".join(f"{axis}={size}" for axis, size in new.items()) + first
