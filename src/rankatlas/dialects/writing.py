"""A job written in another framework's words; every text is read again before it is given out."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any, NamedTuple

from rankatlas.checks.numbers import Numbers
from rankatlas.checks.spelling import lines as spelled
from rankatlas.core import Atlas, Mesh
from rankatlas.dialects import megatron, own, paddle
from rankatlas.dialects.given import Given
from rankatlas.dialects.roles import charts_of, in_roles, joined
from rankatlas.dialects.scripts import read_script
from rankatlas.errors import LayoutChangeError, shown
from rankatlas.job import Job

TARGETS = ("rankatlas", "megatron", "paddle")


class Written(NamedTuple):
    """A text, and sentences about what of the job it does not say."""

    text: str
    losses: list[str]


def write_config(job: Job, to: str) -> Written:
    """`job` in the words of `to`: rankatlas (YAML), megatron (options) or paddle (arguments of PaddleFormers as JSON).

    The text is read again, and its groups are those of `job`.  Cost: O(axes).
    Raises LayoutChangeError (a layout that the target cannot express; the message names the axis or the order).

    >>> print(write_config(Job(Mesh(pp=2, dp=2, tp=2), format="notation", source=""), "megatron").text)
    --tensor-model-parallel-size 2
    --pipeline-model-parallel-size 2
    """
    if to not in TARGETS:
        raise LayoutChangeError(f"a job is written for {', '.join(TARGETS)}, not {shown(to)}")
    return {"rankatlas": _own, "megatron": _megatron, "paddle": _paddle}[to](job)


def _own(job: Job) -> Written:
    held: dict[str, Any] = {"format": own.FORMAT, "version": own.VERSION, "layout": str(job.layout)}
    held["world_size"] = job.layout.world_size
    if job.seed is not None:
        held["seed"] = job.seed
    held["settings"] = {name: fact.value for name, fact in job.settings.items()}
    again = own.read(held, "what was written", None)
    if again.layout != job.layout:
        raise LayoutChangeError(f"{job.layout} was read again as {again.layout}")
    lines = [f"{name}: {json.dumps(value)}" for name, value in held.items() if name != "settings"]
    lines += ["settings:" if held["settings"] else "settings: {}"]
    lines += [f"  {name}: {json.dumps(value)}" for name, value in held["settings"].items()]
    # Sizes and numbers that are neither an axis of the layout nor a setting, as what a step of RL generates.
    # The world is written; torchtitan's batch and loss are products of axes.
    charts = [job.layout] if isinstance(job.layout, Mesh) else list(job.layout.charts.values())
    said = {"world", "batch", "loss", *held["settings"], *(axis for mesh in charts for axis in mesh.axes)}
    said |= {f"{name}.{axis}" for name in ("train",) for axis in said}
    return Written(
        "\n".join(lines),
        [
            f"{fact.name}={shown(fact.value)} is not written: the format has no place for it"
            for fact in job.facts
            if fact.name not in said and fact.value != 1
        ],
    )


_MEGATRON = MappingProxyType(
    {
        "global_batch": "global-batch-size", "micro_batch": "micro-batch-size", "sequence_length": "seq-length",
        "layers": "num-layers", "heads": "num-attention-heads", "hidden": "hidden-size", "ffn": "ffn-hidden-size",
        "head_size": "kv-channels",
        "vocab": "vocab-size", "vocab_multiple": "make-vocab-size-divisible-by", "experts": "num-experts",
        "expert_ffn": "moe-ffn-hidden-size", "virtual_stages": "num-virtual-stages-per-pipeline-rank",
        "first_stage_layers": "decoder-first-pipeline-num-layers",
        "last_stage_layers": "decoder-last-pipeline-num-layers",
    }
)  # fmt: skip
_DATA = MappingProxyType({"sharding": "dp"})


def _megatron(job: Job) -> Written:
    dense_mesh, expert_mesh = charts_of(job.layout, "megatron")
    dense = joined(in_roles(dense_mesh, "megatron", ("pp", "dp", "sharding", "cp", "tp")), _DATA)
    sizes = dict(dense)
    order = [axis for axis, _ in dense]
    straight = [axis for axis in ("pp", "dp", "cp", "tp") if axis in sizes]
    swapped = [axis for axis in ("dp", "pp", "cp", "tp") if axis in sizes]
    if order not in (straight, swapped) or len(sizes) < len(order):
        raise LayoutChangeError(
            "this order cannot be written for megatron, whose axes are pp, dp, cp, tp outer → inner, or dp, pp,"
            f" cp, tp with --use-tp-pp-dp-mapping\n  layout: {dense_mesh}"
        )
    lines = [f"--tensor-model-parallel-size {sizes.get('tp', 1)}"]
    lines += [f"--pipeline-model-parallel-size {sizes['pp']}"] if "pp" in sizes else []
    lines += [f"--context-parallel-size {sizes['cp']}"] if "cp" in sizes else []
    lines += ["--use-tp-pp-dp-mapping"] if order != straight else []
    if expert_mesh is not None:
        names = {"dp": "edp", "sharding": "edp", "tp": "etp"}
        expert = dict(joined(in_roles(expert_mesh, "megatron", ("pp", "dp", "edp", "ep", "etp", "tp")), names))
        lines.append(f"--expert-model-parallel-size {expert.get('ep', 1)}")
        lines.append(f"--expert-tensor-parallel-size {expert.get('etp', 1)}")
    settings, losses = _options(job)
    lines += settings
    again = megatron.read(read_script(" ".join(lines), "what was written", {}), None, job.layout.world_size)
    _prove(job, again, "megatron")
    return Written("\n".join(lines), losses)


def _options(job: Job) -> tuple[list[str], list[str]]:
    """The settings of a job as Megatron's options, and which have none."""
    held = {name: fact.value for name, fact in job.settings.items()}
    if "stage_layers" in held:
        held.pop("virtual_stages", None)  # the picture of the pipeline says it, and both together are refused
    lines = [f"--{option} {held.pop(name)}" for name, option in _MEGATRON.items() if name in held]
    for name in ("stage_layers", "layer_split"):
        told = spelled(Numbers([], format="megatron"), {name: held[name]}) if name in held else []
        if told:
            del held[name]
            lines += told
    groups = held.pop("kv_heads", None)
    if groups is not None and groups != job.settings["heads"].value if "heads" in job.settings else groups is not None:
        lines.append(f"--group-query-attention --num-query-groups {groups}")
    if held.get("precision") in ("bf16", "fp16"):
        lines.append(f"--{held.pop('precision')}")
    elif held.get("precision") == "fp32":
        del held["precision"]
    if held.get("zero_stage") == 1:
        lines.append("--use-distributed-optimizer")
        del held["zero_stage"]
    if held.get("recompute") in ("full", "selective"):
        lines.append(f"--recompute-granularity {held.pop('recompute')}")
    lines += ["--sequence-parallel"] if held.pop("sequence_parallel", False) else []
    lines += ["--disable-bias-linear"] if held.pop("linear_bias", True) is False else []
    if job.seed is not None:
        lines.append(f"--seed {job.seed}")
    held.pop("accumulation", None)  # follows from the batches
    if held.get("cp_split") == "balanced":
        del held["cp_split"]
    return lines, [
        f"{name}={shown(value)} is not written: Megatron's options do not say it" for name, value in held.items()
    ]


_PADDLE = MappingProxyType(
    {
        "micro_batch": "per_device_train_batch_size", "accumulation": "gradient_accumulation_steps",
        "sequence_length": "max_seq_len", "virtual_stages": "virtual_pipeline_model_parallel_size",
    }
)  # fmt: skip
_PADDLE_SIZES = MappingProxyType(
    {
        "tp": "tensor_model_parallel_size", "pp": "pipeline_model_parallel_size", "sep": "sep_parallel_size",
        "sharding": "sharding_parallel_size", "dp": "data_parallel_size",
    }
)  # fmt: skip


def _paddle(job: Job) -> Written:
    mesh, expert = charts_of(job.layout, "paddle")
    if expert is not None:
        raise LayoutChangeError(
            f"an expert layout is not written for paddle, whose trainer settles it itself\n  layout: {job.layout}"
        )
    axes = in_roles(mesh, "paddle", ("dp", "pp", "sharding", "sep", "tp"))
    sizes = dict(axes)
    order = [axis for axis, _ in axes]
    orders = {
        "pp_first": ("dp", "pp", "sharding", "sep", "tp"),
        "sharding_first": ("dp", "sharding", "pp", "sep", "tp"),
    }
    fits = [name for name, whole in orders.items() if order == [axis for axis in whole if axis in sizes]]
    if not fits:
        raise LayoutChangeError(
            "this order cannot be written for paddle, whose axes are dp, pp, sharding, sep, mp outer → inner (pp_first)"
            f" or dp, sharding, pp, sep, mp (sharding_first)\n  layout: {mesh}"
        )
    held: dict[str, Any] = {name: sizes.get(role, 1) for role, name in _PADDLE_SIZES.items()}
    losses = []
    settings = {name: fact.value for name, fact in job.settings.items()}
    stage = settings.pop("zero_stage", None)
    held["sharding"] = f"stage{stage or 1}" if sizes.get("sharding", 1) > 1 else ""
    if stage and not held["sharding"]:
        losses.append(f"zero_stage={stage} is not written: without a sharding axis PaddleFormers shards nothing")
    held["hybrid_parallel_topo_order"] = fits[-1]
    held.update({key: settings.pop(name) for name, key in _PADDLE.items() if name in settings})
    if settings.get("precision") in ("bf16", "fp16"):
        held[settings.pop("precision")] = True
    if settings.pop("sequence_parallel", False):
        held["sequence_parallel"] = True
    if job.seed is not None:
        held["seed"] = job.seed
    settings.pop("global_batch", None)  # follows from the others
    losses += [
        f"{name}={shown(value)} is not written: no training argument says it" for name, value in settings.items()
    ]
    again = paddle.read(Given(held, source="what was written"), "paddleformers-1.2", job.layout.world_size)
    _prove(job, again, "paddle")
    return Written(json.dumps(held, indent=2), losses)


def _prove(job: Job, again: Job, target: str) -> None:
    """Raise LayoutChangeError unless what was read again has the groups of the job, and perhaps those of experts.

    Meshes have the same groups where their axes of size > 1 have the same sizes in the same order: the same strides.
    """
    mine = _sizes(job.layout)
    if mine != _sizes(again.layout)[: len(mine)]:
        raise LayoutChangeError(
            f"this layout cannot be written for {target}\n  layout: {job.layout}\n  read again: {again.layout}"
        )


def _sizes(layout: Mesh | Atlas) -> list[list[tuple[str, int]]]:
    charts = [layout] if isinstance(layout, Mesh) else list(layout.charts.values())
    every = ("pp", "dp", "sharding", "cp", "tp", "sep", "edp", "ep", "etp")
    names = {"sharding": "dp", "edp": "dp", "etp": "tp"}
    return [joined(in_roles(mesh, "comparison", every), names) for mesh in charts]
