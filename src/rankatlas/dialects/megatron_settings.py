"""The numbers of Megatron-LM's arguments that must fit the layout, with the defaults its own code fills in."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rankatlas.catalogue import said
from rankatlas.dialects.given import Given
from rankatlas.dialects.megatron_pipeline import shared_out
from rankatlas.dialects.picking import numbers
from rankatlas.errors import shown
from rankatlas.job import Fact

_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "global_batch": ("global_batch_size",),
        "micro_batch": ("micro_batch_size",),
        "sequence_length": ("seq_length", "encoder_seq_length", "sequence_length"),
        "layers": ("num_layers", "encoder_num_layers"),
        "heads": ("num_attention_heads",),
        "hidden": ("hidden_size",),
        "head_size": ("kv_channels",),
        "ffn": ("ffn_hidden_size",),
        "vocab": ("vocab_size", "padded_vocab_size"),
        "vocab_multiple": ("make_vocab_size_divisible_by",),
        "experts": ("num_experts", "num_moe_experts"),
        "expert_ffn": ("moe_ffn_hidden_size",),
        "virtual_stages": ("virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"),
        "virtual_stage_layers": ("num_layers_per_virtual_pipeline_stage",),
        "microbatch_group": (
            "microbatch_group_size_per_vp_stage",
            "microbatch_group_size_per_virtual_pipeline_stage",
        ),
        "first_stage_layers": ("decoder_first_pipeline_num_layers", "num_layers_in_first_pipeline_stage"),
        "last_stage_layers": ("decoder_last_pipeline_num_layers", "num_layers_in_last_pipeline_stage"),
    }
)
_SHARDED = MappingProxyType({"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3})
_PRECISIONS = ("fp4", "fp8", "bf16", "fp16")


def settings_of(given: Given, sizes: Mapping[str, Fact], default: str) -> tuple[list[Fact], list[str]]:
    """The settings of a job and notes on what could not be understood; `sizes` are the axes', `default` its origin."""
    facts, notes = numbers(given, _NAMES)
    found = {fact.name: fact for fact in facts}
    if _groups_off(given):
        notes.append(said("ignored.query_groups", value=shown(given.at("num_query_groups"))))
    _fill_heads(given, found, default)
    _fill_batch(found, sizes, default)
    _fill_stages(given, found, sizes)
    found |= shared_out(given, sizes["pp"].value)
    if "vocab_multiple" not in found and "vocab" in found:
        found["vocab_multiple"] = Fact("vocab_multiple", 128, default)
    if sizes["cp"].value > 1:
        found["cp_split"] = Fact("cp_split", "balanced", default)
    for fact in (
        _zero(given),
        _fsdp(given),
        _switch(given, "sequence_parallel", "sequence_parallel", default, False),
        _bias(given, default),
        _recompute(given),
        _precision(given),
    ):
        if fact is not None:
            found[fact.name] = fact
    notes += _exclusive(given)
    return list(found.values()), notes + ([] if "stage_layers" in found else _layout_note(given))


def _groups_off(given: Given) -> bool:
    """Whether the option of query groups stands without its flag; a configuration object has no flag and needs none."""
    if given.kind != "script" or "group_query_attention" in given.unresolved:
        return False
    return bool(given.at("num_query_groups")) and given.at("group_query_attention") is None


def _fill_heads(given: Given, found: dict[str, Fact], default: str) -> None:
    groups, _ = numbers(given, {"kv_heads": ("num_query_groups", "multi_query_group_num")})
    asked = given.at("group_query_attention")
    if groups and asked is not False and not _groups_off(given):
        found["kv_heads"] = groups[0]
    elif "heads" in found:
        found["kv_heads"] = Fact("kv_heads", found["heads"].value, said("default.heads", default=default))


def _fill_batch(found: dict[str, Fact], sizes: Mapping[str, Fact], default: str) -> None:
    data = sizes["dp"].value * sizes["gtp_remat"].value
    micro, whole = found.get("micro_batch"), found.get("global_batch")
    if whole is None and micro is not None:
        found["global_batch"] = Fact("global_batch", micro.value * data, said("default.batch", default=default))
    elif whole is not None and micro is not None and whole.value % (micro.value * data) == 0:
        steps = whole.value // (micro.value * data)
        found["accumulation"] = Fact("accumulation", steps, said("computed.accumulation"))


def _fill_stages(given: Given, found: dict[str, Fact], sizes: Mapping[str, Fact]) -> None:
    """Megatron's older way to say virtual stages: how many layers each has.  What counts as a layer is shared too."""
    each, layers, stages = found.get("virtual_stage_layers"), found.get("layers"), sizes["pp"].value
    if each is None or "virtual_stages" in found or layers is None:
        return
    whole = layers.value + sum(given.at(name) is True for name in _COUNTED)
    if whole % (stages * each.value) == 0:
        found["virtual_stages"] = Fact(
            "virtual_stages",
            whole // stages // each.value,
            said("computed.virtual", origin=each.origin, layers=each.value),
        )


# Options that say how layers are shared out, of which Megatron takes those of one line only.  Source: validate_args in
# megatron/training/arguments.py, and __post_init__ in megatron/core/transformer/transformer_config.py (0.16).
_PICTURE = ("pipeline_model_parallel_layout",)
_FIRST_LAST = (
    "decoder_first_pipeline_num_layers",
    "decoder_last_pipeline_num_layers",
    "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage",
)
_COUNTED = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
_BY_LENGTH = ("num_layers_per_virtual_pipeline_stage",)
_BY_NUMBER = ("num_virtual_stages_per_pipeline_rank",)
_EXCLUSIVE = (
    (_PICTURE, _FIRST_LAST),
    (_PICTURE, _COUNTED),
    (_PICTURE, _BY_LENGTH),
    (_PICTURE, _BY_NUMBER),
    (_FIRST_LAST, _COUNTED),
    (_FIRST_LAST, _BY_LENGTH),
    (_BY_LENGTH, _BY_NUMBER),
)


def _exclusive(given: Given) -> list[str]:
    """Notes on options that Megatron does not take together.  An arguments block is of a job that it did take."""
    if given.kind == "arguments block":
        return []

    def set_of(names: tuple[str, ...]) -> list[str]:
        return [name for name in names if given.at(name) not in (None, False, "None", "")]

    return [
        said("exclude.options", names=left + right)
        for left, right in ((set_of(one), set_of(other)) for one, other in _EXCLUSIVE)
        if left and right
    ]


def _switch(given: Given, name: str, option: str, default: str, usual: bool) -> Fact | None:
    """A setting that is on or off; one that a command line leaves out has its default, which a file may not say."""
    on = given.flag(option)
    if on is not None:
        return Fact(name, on, given.origin(option))
    return Fact(name, usual, default) if given.kind == "script" else None


def _bias(given: Given, default: str) -> Fact | None:
    if given.flag("disable_bias_linear"):
        return Fact("linear_bias", False, given.origin("disable_bias_linear"))
    return _switch(given, "linear_bias", "add_bias_linear", default, True)


def _zero(given: Given) -> Fact | None:
    strategy = given.at("data_parallel_sharding_strategy")
    if any(given.flag(name) for name in ("use_megatron_fsdp", "use_custom_fsdp")) and strategy in _SHARDED:
        return Fact("zero_stage", _SHARDED[str(strategy)], given.origin("data_parallel_sharding_strategy"))
    if given.flag("use_distributed_optimizer"):
        return Fact("zero_stage", 1, given.origin("use_distributed_optimizer"))
    return None


def _fsdp(given: Given) -> Fact | None:
    for name, words in (
        ("use_torch_fsdp2", "torch FSDP2"),
        ("use_megatron_fsdp", "Megatron FSDP"),
        ("use_custom_fsdp", "Megatron FSDP"),
    ):
        if given.flag(name):
            return Fact("fsdp", words, given.origin(name))
    return None


def _recompute(given: Given) -> Fact | None:
    for name in ("recompute_granularity", "activations_checkpoint_granularity"):
        value = given.at(name)
        if isinstance(value, str) and value:
            return Fact("recompute", value, given.origin(name))
    if given.at("recompute_activations") is True:
        return Fact("recompute", "selective", given.origin("recompute_activations"))
    return None


def _precision(given: Given) -> Fact | None:
    for name in _PRECISIONS:
        value = given.at(name)
        if value not in (None, False, "", "None") and name not in given.unresolved:
            return Fact("precision", name, given.origin(name))
    for name in ("precision", "mixed_precision"):
        value = str(given.at(name) or "").lower()
        for precision in _PRECISIONS:
            if precision in value:
                return Fact("precision", precision, given.origin(name))
    if given.kind == "arguments block" and "bf16" in given:
        return Fact("precision", "fp32", given.origin("bf16"))
    return None


def _layout_note(given: Given) -> list[str]:
    """What shares the layers out in a way that is not read: a picture, or the pipeline of DeepSpeed."""
    value = given.at("pipeline_model_parallel_layout")
    notes = [] if value in (None, "None") else [said("noted.picture", picture=shown(value))]
    method = given.at("pp_partition_method")
    if method is not None or given.at("deepspeed") is True:
        notes.append(said("noted.deepspeed_pipeline", method=shown(method or "parameters")))
    return notes
