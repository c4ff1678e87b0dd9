"""The numbers of PaddleNLP's and PaddleFormers' arguments that must fit the layout."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rankatlas.catalogue import said
from rankatlas.dialects.given import Given
from rankatlas.dialects.picking import numbers
from rankatlas.job import Fact
from rankatlas.topology.training_args import DEFAULT_SHARDING

_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "micro_batch": ("per_device_train_batch_size", "micro_batch_size"),
        "accumulation": ("gradient_accumulation_steps", "accumulate_steps"),
        "global_batch": ("global_batch_size",),
        "sequence_length": ("max_seq_length", "max_seq_len", "seq_length", "seq_len"),
        "layers": ("num_hidden_layers", "num_layers"),
        "heads": ("num_attention_heads",),
        "kv_heads": ("num_key_value_heads",),
        "hidden": ("hidden_size",),
        "ffn": ("intermediate_size",),
        "vocab": ("vocab_size",),
        "experts": ("num_experts", "moe_num_experts", "n_routed_experts"),
        "virtual_stages": ("virtual_pp_degree", "virtual_pipeline_model_parallel_size"),
    }
)
_STAGES = {"stage1": 1, "stage2": 2, "stage3": 3}


def settings_of(given: Given, release: str, data_size: int) -> tuple[list[Fact], list[str]]:
    """The settings of a job and notes; `data_size` is over how many ranks the data is split."""
    facts, notes = numbers(given, _NAMES)
    found = {fact.name: fact for fact in facts}
    if "micro_batch" in found and "accumulation" not in found:
        found["accumulation"] = Fact("accumulation", 1, said("default.of", name=release))
    micro, steps = found.get("micro_batch"), found.get("accumulation")
    if micro is not None and steps is not None and "global_batch" not in found:
        product = micro.value * steps.value * data_size
        found["global_batch"] = Fact("global_batch", product, said("computed.batch"))
    if given.at("sequence_parallel") in (True, "true", "True", 1):
        found["sequence_parallel"] = Fact("sequence_parallel", True, given.origin("sequence_parallel"))
    for fact in (_zero(given, release), _recompute(given), _precision(given)):
        if fact is not None:
            found[fact.name] = fact
    return list(found.values()), notes


def _zero(given: Given, release: str) -> Fact | None:
    asked = given.at("sharding")
    origin = given.origin("sharding") if asked is not None else said("default.of", name=release)
    asked = DEFAULT_SHARDING[release] if asked is None else asked
    words = asked.split() if isinstance(asked, str) else asked if isinstance(asked, list) else []
    stage = next((_STAGES[word] for word in words if isinstance(word, str) and word in _STAGES), None)
    return Fact("zero_stage", stage, origin) if stage else None


def _recompute(given: Given) -> Fact | None:
    on = given.at("recompute")
    if on not in (True, "true", "True", 1):
        return None
    return Fact("recompute", str(given.at("recompute_granularity") or "full"), given.origin("recompute"))


def _precision(given: Given) -> Fact | None:
    for name in ("fp8", "bf16", "fp16"):
        if given.at(name) in (True, "true", "True", 1):
            return Fact("precision", name, given.origin(name))
    return None
