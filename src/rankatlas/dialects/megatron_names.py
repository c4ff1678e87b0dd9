"""Names that are nearly those of Megatron-LM's sizes, which Megatron refuses: it takes no abbreviations either."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

_MEANT = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size",
    "expert_model_parallel_size", "expert_tensor_parallel_size", "num_layers", "num_experts", "global_batch_size",
    "micro_batch_size", "num_attention_heads", "num_query_groups",
)  # fmt: skip
_SHORT: Mapping[str, str] = MappingProxyType(
    {
        f"{short}{end}": name
        for shorts, name in (
            (("tp", "mp", "tensor_parallel", "tensor_model_parallel", "model_parallel"), _MEANT[0]),
            (("pp", "pipeline_parallel", "pipeline_model_parallel"), _MEANT[1]),
            (("cp", "context_parallel"), _MEANT[2]),
            (("ep", "expert_parallel", "expert_model_parallel"), _MEANT[3]),
            (("etp", "expert_tensor_parallel"), _MEANT[4]),
        )
        for short in shorts
        for end in ("", "_size", "_degree")
    }
)
_CUTOFF = 0.9
_LONGEST = 60  # characters of a name that is compared
_MOST_KEYS = 1000
# Real names, of Megatron, NeMo and launchers, that are as near.
_OTHER = frozenset(
    (
        "virtual_pipeline_model_parallel_size", "pipeline_model_parallel_layout", "pipeline_model_parallel_split_rank",
        "encoder_num_layers", "decoder_num_layers", "mtp_num_layers", "num_layers_at_end_in_bf16", "num_moe_experts",
        "expert_tensor_model_parallel_size", "hierarchical_context_parallel_sizes", "max_batch_size",
        "train_batch_size", "micro_batch_size_per_gpu", "num_query_heads", "pipeline_model_parallel_comm_backend",
    )
)  # fmt: skip


def slips(given: Mapping[str, object], known: Iterable[str]) -> dict[str, str]:
    """Name → the name that is probably meant, for set names that are none of `known`.  Cost: O(names).

    >>> slips({"tensor_model_parallel_siz": 4, "tp_size": 2, "seq_length": 8}, ())
    {'tensor_model_parallel_siz': 'tensor_model_parallel_size', 'tp_size': 'tensor_model_parallel_size'}
    """
    kept = {*known, *_MEANT, *_OTHER}
    found: dict[str, str] = {}
    for name, _ in zip(given, range(_MOST_KEYS)):
        value = given[name]
        if name in kept or len(name) > _LONGEST or isinstance(value, Mapping) or value in (None, False, "", -1):
            continue
        plain = name.lower().replace("-", "_")
        if plain in _SHORT:
            if isinstance(value, int) and not isinstance(value, bool) and value > 1:
                found[name] = _SHORT[plain]
            continue
        if "_" in plain and (near := get_close_matches(plain, _MEANT, n=1, cutoff=_CUTOFF)):
            found[name] = near[0]
    return found
