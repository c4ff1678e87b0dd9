"""A job written in another framework's words; every text is read again before it is given out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

from rankatlas.checks.keys import KEYS
from rankatlas.core import Atlas, Mesh
from rankatlas.dialects import megatron, own, paddle
from rankatlas.dialects.given import Given
from rankatlas.dialects.megatron_options import option, options_of
from rankatlas.dialects.roles import charts_of, in_roles, joined
from rankatlas.dialects.scripts import read_script
from rankatlas.errors import LayoutChangeError, RankatlasError, shown
from rankatlas.job import Job

TARGETS = ("rankatlas", "megatron", "paddle")


class Written(NamedTuple):
    """A text, and sentences about what of the job it does not say."""

    text: str
    losses: list[str]


def write_config(job: Job, to: str) -> Written:
    """`job` in the words of `to`: rankatlas (YAML), megatron (options) or paddle (arguments of PaddleFormers as JSON).

    The text is read again: its groups are those of `job`, and what it does not say of the settings is a loss.
    Cost: O(axes).
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
    lines = option("tp", sizes.get("tp", 1))
    lines += [line for axis in ("pp", "cp") if axis in sizes for line in option(axis, sizes[axis])]
    lines += ["--use-tp-pp-dp-mapping"] if order != straight else []
    if expert_mesh is not None:
        names = {"dp": "edp", "sharding": "edp", "tp": "etp"}
        expert = dict(joined(in_roles(expert_mesh, "megatron", ("pp", "dp", "edp", "ep", "etp", "tp")), names))
        lines += [line for axis in ("ep", "etp") for line in option(axis, expert.get(axis, 1))]
    told, reasons = options_of(job, sizes.get("pp", 1), sizes.get("dp", 1))
    lines += told
    again = megatron.read(read_script(" ".join(lines), "what was written", {}), None, job.layout.world_size)
    _prove(job, again, "megatron")
    return Written("\n".join(lines), _losses(job, again, reasons, "Megatron's options do not say it"))


_PADDLE = ("micro_batch", "accumulation", "sequence_length", "virtual_stages")


def _paddle(job: Job) -> Written:
    mesh, expert = charts_of(job.layout, "paddle")
    degrees = _dense_degrees(mesh) if expert is None else _expert_degrees(job.layout, mesh, expert)
    keys = KEYS["paddleformers"]
    settings = {name: fact.value for name, fact in job.settings.items()}
    stage, sharded = settings.get("zero_stage"), degrees[keys["sharding"]] > 1
    held: dict[str, Any] = {**degrees, "sharding": f"stage{stage or 1}" if sharded else ""}
    batch, micro = settings.get("global_batch"), settings.get("micro_batch")
    each = (micro or 1) * degrees[keys["dp"]] * degrees[keys["sharding"]] // degrees.get(keys["cp"], 1)
    if batch is not None and micro is not None and batch % each == 0:
        settings.setdefault("accumulation", batch // each)
    held.update({keys[name]: settings[name] for name in _PADDLE if name in settings})
    if settings.get("precision") in ("bf16", "fp16"):
        held[settings["precision"]] = True
    if settings.get("sequence_parallel"):
        held["sequence_parallel"] = True
    if job.seed is not None:
        held["seed"] = job.seed
    again = paddle.read(Given(held, source="what was written"), "paddleformers-1.2", job.layout.world_size)
    _prove(job, again, "paddle")
    reasons = {} if sharded else {"zero_stage": "without a sharding axis PaddleFormers shards nothing"}
    return Written(json.dumps(held, indent=2), _losses(job, again, reasons, "no training argument says it"))


def _dense_degrees(mesh: Mesh) -> dict[str, Any]:
    """The degrees of a layout without experts, and the order that has its axes."""
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
    keys = KEYS["paddleformers"]
    degrees = {keys[role]: sizes.get(role, 1) for role in ("tp", "pp", "sep", "sharding", "dp")}
    return {**degrees, "hybrid_parallel_topo_order": fits[-1]}


def _expert_degrees(layout: Mesh | Atlas, mesh: Mesh, expert: Mesh) -> dict[str, Any]:
    """The degrees of a layout with experts, from which the trainer settles the expert axes itself.

    All that splits data is sharding there, and cp divides it.
    """
    dense = in_roles(mesh, "paddle with experts", ("dp", "edp", "pp", "sharding", "cp", "tp"))
    sizes = dict(joined(dense, {}))
    inner = dict(in_roles(expert, "paddle with experts", ("dp", "edp", "pp", "sharding", "ep", "etp", "tp")))
    keys = KEYS["paddleformers"]
    degrees: dict[str, Any] = {keys[role]: sizes.get(role, 1) for role in ("tp", "pp", "cp")}
    degrees |= {keys["sep"]: 1, keys["dp"]: 1, keys["ep"]: inner.get("ep", 1), "use_expert_parallel": True}
    degrees[keys["sharding"]] = prod(size for role, size in dense if role in ("dp", "edp", "sharding", "cp"))
    for order in ("sharding_first", "pp_first"):
        degrees["hybrid_parallel_topo_order"] = order
        try:
            again = paddle.read(
                Given({**degrees, "sharding": "stage1"}, source="what was written"),
                "paddleformers-1.2",
                layout.world_size,
            )
        except RankatlasError:
            continue
        if _sizes(again.layout) == _sizes(layout):
            return degrees
    raise LayoutChangeError(
        "this layout cannot be written for paddle, whose trainer settles the expert axes itself: no order of it gives"
        f" these groups\n  layout: {layout}"
    )


def _losses(job: Job, again: Job, reasons: Mapping[str, str], else_: str) -> list[str]:
    """Every setting of a job that what was written does not say, or says otherwise."""
    losses = []
    for name, fact in job.settings.items():
        read = again.settings.get(name)
        if read is not None and read.value == fact.value:
            continue
        reason = reasons.get(name) or (else_ if read is None else f"it reads {shown(read.value)} ({read.origin})")
        losses.append(f"{name}={shown(fact.value)} is not written: {reason}")
    return losses


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
