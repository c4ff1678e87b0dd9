"""The settings of a job as options of Megatron-LM.  How each is spelled stands with the checks' fixes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rankatlas.checks.numbers import Numbers
from rankatlas.checks.spelling import lines as spelled
from rankatlas.job import Job

_PLAIN = (
    "global_batch", "micro_batch", "sequence_length", "layers", "heads", "head_size", "hidden", "ffn", "vocab",
    "vocab_multiple",
    "experts", "expert_ffn", "virtual_stages", "virtual_stage_layers", "microbatch_group", "first_stage_layers",
    "last_stage_layers", "stage_layers", "layer_split",
)  # fmt: skip
_ENDS = ("first_stage_layers", "last_stage_layers")
# Policies that count an end as a layer → how many layers that adds.
_COUNTED = {"embedding": 1, "loss": 1, "embedding-and-loss": 2}


def option(name: str, value: Any) -> list[str]:
    """A number as Megatron's option, one per line; nothing where it has none.

    >>> option("tp", 2), option("stage_layers", [3, 2]), option("fsdp", "torch FSDP2")
    (['--tensor-model-parallel-size 2'], ['--pipeline-model-parallel-layout "Et*3|t*2L"'], [])
    """
    return spelled(Numbers([], format="megatron"), {name: value})


def options_of(job: Job, stages: int, data_size: int) -> tuple[list[str], dict[str, str]]:
    """The options, and setting → why it is left out where Megatron takes no two ways at once."""
    held = {name: fact.value for name, fact in job.settings.items()}
    reasons = _one_way(held, stages)
    if "global_batch" not in held and "micro_batch" in held and "accumulation" in held:
        held["global_batch"] = held["micro_batch"] * held["accumulation"] * data_size
    found = [line for name in _PLAIN if name in held for line in option(name, held[name])]
    groups = held.get("kv_heads")
    if groups is not None and groups != held.get("heads"):
        found.append(" ".join(["--group-query-attention", *option("kv_heads", groups)]))
    found += ["--sequence-parallel"] if held.get("sequence_parallel") else []
    found += ["--disable-bias-linear"] if held.get("linear_bias") is False else []
    if held.get("precision") in ("bf16", "fp16"):
        found.append(f"--{held['precision']}")
    if held.get("zero_stage") == 1:
        found.append("--use-distributed-optimizer")
    if held.get("recompute") in ("full", "selective"):
        found.append(f"--recompute-granularity {held['recompute']}")
    if job.seed is not None:
        found.append(f"--seed {job.seed}")
    return found, reasons


def _one_way(held: dict[str, Any], stages: int) -> dict[str, str]:
    """Take out of `held` what Megatron refuses beside the rest that says how layers are shared out; why, by name."""
    reasons: dict[str, str] = {}

    def drop(names: Iterable[str], reason: str) -> None:
        for name in names:
            if held.pop(name, None) is not None:
                reasons[name] = reason

    parts = len(held.get("stage_layers") or ())
    if parts % stages:
        drop(["stage_layers"], f"Megatron refuses a picture of {parts} parts on {stages} pipeline stages")
    if "stage_layers" in held:
        others = (*_ENDS, "layer_split", "virtual_stage_layers", "virtual_stages")
        drop(others, "Megatron does not take it beside stage_layers, a picture of the pipeline")
    counted = _COUNTED.get(held.get("layer_split", ""), 0)
    if counted:
        drop(_ENDS, "Megatron does not take it beside an end that counts as a layer")
    if any(end in held for end in _ENDS):
        drop(["virtual_stage_layers"], "Megatron does not take it beside the layers of the first or last stage")
    if "virtual_stage_layers" in held and "virtual_stages" in held:
        each, number = held["virtual_stage_layers"], held["virtual_stages"]
        if held.get("layers", 0) + counted == each * number * stages:
            held.pop("virtual_stages")  # it follows from the length
        else:
            drop(["virtual_stage_layers"], "Megatron does not take it beside virtual_stages")
    return reasons
