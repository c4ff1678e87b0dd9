"""How each dialect spells a number, so that a change can be pasted into what somebody launches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Any

from rankatlas.catalogue import said
from rankatlas.checks.keys import BRIDGE, KEYS
from rankatlas.checks.numbers import ROLES, Numbers
from rankatlas.core import Atlas, Mesh

_ENDS = ("first_stage_layers", "last_stage_layers")
_SAID = re.compile(r"given: ([A-Za-z_][\w.]*)")  # the origin of a number that stands under a key
_NODES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "verl": ("trainer.n_gpus_per_node", "trainer.nnodes"),
        "nemo": ("cluster.gpus_per_node", "cluster.num_nodes"),
    }
)
_MEGATRON_SWITCHES: Mapping[str, str] = MappingProxyType(
    {"sequence_parallel": "sequence-parallel", "linear_bias": "disable-bias-linear"}
)
_WORD = re.compile(r"[a-z]\w*")
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
    family = numbers.format.partition("-")[0]
    world = _world(numbers, changes["world"]) if "world" in changes else []
    if "+" in numbers.format:  # one framework inside another: which file says it is not known here
        return world if set(changes) == {"world"} else []
    rest = {name: value for name, value in changes.items() if name != "world"}
    if family not in KEYS:
        told = _own(numbers, rest)
        return [] if told is None else [*told, *world]
    found = []
    for name, value in rest.items():
        told = _line(numbers, family, name, value, changes.get("cp", numbers["cp"]))
        if told is None:
            return []
        found += told
    return [*found, *world]


# Ways to share layers out of which Megatron takes one: what is set → what must go.
_REPLACED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "stage_layers": (*_ENDS, "layer_split", "virtual_stage_layers", "virtual_stages"),
        "first_stage_layers": ("stage_layers", "layer_split", "virtual_stage_layers"),
        "last_stage_layers": ("stage_layers", "layer_split", "virtual_stage_layers"),
        "layer_split": ("stage_layers", *_ENDS, "layer_split"),
        "virtual_stages": ("stage_layers", "virtual_stage_layers"),
        "virtual_stage_layers": ("virtual_stages",),
    }
)


def instead_of(numbers: Numbers, changes: Mapping[str, Any]) -> list[str]:
    """The keys of the source that must go when the changes come.

    >>> from rankatlas.job import Fact
    >>> numbers = Numbers([Fact("layer_split", "loss", "given")], format="megatron-0.16")
    >>> instead_of(numbers, {"stage_layers": [8, 7]})
    ['--account-for-loss-in-pipeline-split']
    """
    if not numbers.written("megatron"):
        return []
    names = [name for change in changes for name in _REPLACED.get(change, ()) if numbers.value(name) is not None]
    gone = []
    for name in dict.fromkeys(names):
        if name == "layer_split":
            kept = _ends_counted(changes.get(name))
            gone += [end for end in _ends_counted(numbers.value(name)) if end not in kept]
        elif name not in changes and (name != "virtual_stages" or _said_itself(numbers)):
            gone.append(name)
    keys = [_key(numbers, "megatron", name) for name in gone]
    flags = _style(numbers, "megatron") == "flag"
    return [f"--{key.replace('_', '-')}" if flags else key.rpartition(".")[2].replace("-", "_") for key in keys]


def _said_itself(numbers: Numbers) -> bool:
    """Whether the source gives the number of virtual stages, and not a picture or their length."""
    return numbers.value("virtual_stage_layers") is None and numbers.value("stage_layers") is None


def _ends_counted(policy: object) -> list[str]:
    """The ends that count as a layer."""
    return {"embedding": ["embedding"], "loss": ["loss"], "embedding-and-loss": ["embedding", "loss"]}.get(
        str(policy), []
    )


def says_data(numbers: Numbers) -> bool:
    """Whether the source says the data size itself, so that it must change along with the other axes.

    It does not where one of the data axes is left open, which then takes what the others leave.
    """
    family = numbers.format.partition("-")[0]
    if family not in KEYS:
        return True
    told = [numbers.told(axis) for axis in numbers.axes.get("dp", ()) if axis in KEYS[family]]
    return any(one.startswith("given") for one in told) and not any(one.startswith("inferred") for one in told)


def _line(numbers: Numbers, family: str, name: str, value: Any, cp: int) -> list[str] | None:
    if family == "megatron" and name == "stage_layers":
        picture = _picture(value)
        return [_written(numbers, family, _plain_key(numbers, family, name), picture)]
    if family == "megatron" and name == "layer_split":
        keys = [_plain_key(numbers, family, end) for end in _ends_counted(value)]
        flags = _style(numbers, family) == "flag"
        told = [f"--{key}" if flags else _written(numbers, family, key, True) for key in keys]
        return [" ".join(told)] if flags and told else told or None
    if name == "zero_stage" and family.startswith("paddle"):
        return [_written(numbers, family, "sharding", f"stage{value}")]
    if family == "megatron" and isinstance(value, bool):
        return _switched(numbers, name, value)
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
    return None if not key else [_written(numbers, family, key, value)]


def _switched(numbers: Numbers, name: str, on: bool) -> list[str] | None:
    """A setting that is on or off, as Megatron has it: an option says the one of them that is not the default."""
    if _style(numbers, "megatron") != "flag":
        key = _key(numbers, "megatron", name)
        opposite = key.rpartition(".")[2].replace("-", "_").startswith("disable")
        return [_written(numbers, "megatron", key, on != opposite)]
    said_by_option = on == (name == "sequence_parallel")
    return [f"--{_MEGATRON_SWITCHES[name]}"] if said_by_option and name in _MEGATRON_SWITCHES else None


def _key(numbers: Numbers, family: str, name: str) -> str:
    """The key the source gives this number by, else the one its dialect has for it."""
    axes = numbers.axes.get(name) or (name,)
    for origin in (numbers.told(*axes), numbers.origin(name)):
        said = _SAID.fullmatch(origin)
        if said and not said[1].endswith("pipeline_model_parallel_layout"):  # it says virtual stages as well
            return said[1]
    role = next((role for role, axes in ROLES.items() if name in axes), name)
    return _plain_key(numbers, family, name) or _plain_key(numbers, family, role)


def _plain_key(numbers: Numbers, family: str, name: str) -> str:
    """The key of a dialect, as this source has its like; "" where there is none."""
    sections = _sections(numbers)
    if family == "megatron" and "model" in sections:
        return BRIDGE.get(name, "")
    key = KEYS[family].get(name, "")
    if family == "accelerate" and key.startswith("parallelism_config."):
        axis = key.rpartition("parallelism_config_")[2]
        for said in _said(numbers):  # the other sizes of a ParallelismConfig stand where this one belongs
            for prefix in ("parallelism_config.parallelism_config_", "parallelism_config.", "parallelism_config_", ""):
                if said in [f"{prefix}{other}_size" for other in ("dp_replicate", "dp_shard", "cp", "sp", "tp")]:
                    return prefix + axis
    return key


def _said(numbers: Numbers) -> list[str]:
    """The keys that the source gives numbers under."""
    origins = [*numbers.origins.values(), *(fact.origin for fact in numbers.facts.values())]
    return [said[1] for said in map(_SAID.fullmatch, origins) if said]


def _sections(numbers: Numbers) -> list[str]:
    """The sections that the source has, as far as its numbers tell."""
    return [said.rpartition(".")[0] for said in _said(numbers) if "." in said]


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


def _style(numbers: Numbers, family: str) -> str:
    """How a setting is written: flag, json, yaml, toml or override."""
    if family in ("verl", "nemo"):
        return "override"
    ending = next((style for end, style in _BY_ENDING.items() if numbers.source.endswith(end) and style), None)
    return ending or _STYLES.get(family, "flag")


def _written(numbers: Numbers, family: str, key: str, value: Any) -> str:
    style = _style(numbers, family)
    if family == "megatron" and style != "flag":
        key = key.replace("-", "_")
    if style == "override":
        return f"{key}={value}"
    section, _, name = key.rpartition(".")
    there = section in _sections(numbers)  # a section that is there already must not be written twice
    if style == "json":
        inner = f'"{name}": {_json(value)}'
        return f'"{section}": {{{inner}}}' if section and not there else _placed(inner, section)
    if style == "toml":
        return _placed(f"{name} = {_json(value)}", f"[{section}]" if section else "")
    if style == "yaml":
        told = (
            f"{name}: {value}"
            if type(value) is int or (isinstance(value, str) and _WORD.fullmatch(str(value)))
            else f"{name}: {_json(value)}"
        )
        return f"{section}: {{{told}}}" if section and not there else _placed(told, section)
    return f'--{key} "{value}"' if isinstance(value, str) and not _WORD.fullmatch(value) else f"--{key} {value}"


def _placed(line: str, section: str) -> str:
    """A line with a comment that says which section it belongs in, if any."""
    return said("line.in_section", line=line, section=section) if section else line


def _json(value: Any) -> str:
    from json import dumps

    return dumps(value)


def _picture(sizes: list[int]) -> str:
    """Megatron's picture of a pipeline: E the embedding, t a layer, L the loss, a bar between chunks."""
    parts = [f"t*{size}" if size > 1 else "t" * size for size in sizes]
    parts[0] = f"E{parts[0]}"
    parts[-1] = f"{parts[-1]}L"
    return "|".join(parts)


def _world(numbers: Numbers, world: int) -> list[str]:
    family = numbers.format.partition("-")[0]
    each = next(size for size in range(8, 0, -1) if world % size == 0)
    if family.startswith("paddle"):
        return [f"python -m paddle.distributed.launch --nnodes {world // each} --nproc_per_node {each}"]
    if family == "accelerate":
        return [f"num_processes: {world}"]
    if family in _NODES:
        return [f"{key}={size}" for key, size in zip(_NODES[family], (each, world // each))]
    if family in KEYS:
        return [f"torchrun --nnodes {world // each} --nproc-per-node {each}"]
    return [f"world_size: {world}" if family == "rankatlas" else f"--world-size {world}"]


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
    return [
        *([f"layout: {new}"] if new else []),
        *(_placed(f"{name}: {value}", "settings") for name, value in rest.items()),
    ]


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
