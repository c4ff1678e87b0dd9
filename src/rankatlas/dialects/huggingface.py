"""A model's `config.json` as the Hugging Face libraries write it: the numbers a launch often lacks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rankatlas.catalogue import said
from rankatlas.dialects.content import keys_in, parse, settings
from rankatlas.dialects.sources import read_text
from rankatlas.errors import SourceError, shown
from rankatlas.job import Fact

# Setting → the keys that hold it, family by family; the first that is there counts.
KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
        "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
        "kv_heads": ("num_key_value_heads", "num_kv_heads", "multi_query_group_num", "kv_n_heads"),
        "hidden": ("hidden_size", "n_embd", "d_model"),
        "head_size": ("head_dim",),
        "ffn": ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", "d_ff"),
        "vocab": ("vocab_size", "padded_vocab_size"),
        "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
        "expert_ffn": ("moe_intermediate_size",),
    }
)
_INNER = ("text_config", "llm_config", "language_config")  # of models that also see or hear
_PARTS = ("attn_config", "ffn_config")  # of MPT and DBRX
_ONLY_EXPERTS = ("mixtral", "phimoe", "gpt_oss", "dbrx")  # every feed-forward layer is one of experts


def read_model(source: str) -> list[Fact]:
    """The settings in a model's `config.json` (or in the folder that holds one), each with the key it came from.

    Llama, Qwen, Mistral and Mixtral, DeepSeek, Gemma, Phi, GPT-2, Falcon, MPT, DBRX and others that use their names.
    Cost: O(bytes).  Raises SourceError (unreadable, no mapping, or none of the numbers in it).
    """
    if os.path.isdir(source):
        source = os.path.join(source, "config.json")
    content = settings(parse(read_text(source).strip(), source), source)
    return facts(content, source)


def facts(content: Mapping[str, Any], source: str) -> list[Fact]:
    """The same from what the file holds.  Raises SourceError.

    >>> [(fact.name, fact.value) for fact in facts({"n_layer": 12, "n_head": 12, "n_embd": 768}, "gpt2")]
    [('layers', 12), ('heads', 12), ('hidden', 768), ('ffn', 3072)]
    """
    inner: Mapping[str, Any] = next((content[key] for key in _INNER if isinstance(content.get(key), Mapping)), {})
    flat = {**content, **inner}
    for part in _PARTS:
        if isinstance(flat.get(part), Mapping):
            flat = {**flat[part], **flat}
    found: dict[str, Fact] = {}
    for name, keys in KEYS.items():
        key = next((key for key in keys if flat.get(key) is not None), None)
        if key is not None:
            found[name] = Fact(name, _number(flat[key], key, source), said("model.key", key=key, source=source))
    if not found:
        raise SourceError(
            f"{shown(source)} holds no number of a model (num_hidden_layers …); {keys_in(content)}",
            source=source,
        )
    _implied(found, flat, source)
    return list(found.values())


def _implied(found: dict[str, Fact], flat: Mapping[str, Any], source: str) -> None:
    """What families leave unsaid."""
    family = str(flat.get("model_type", ""))
    one = flat.get("multi_query") is True and not flat.get("new_decoder_architecture")
    if one and family in ("falcon", "gpt_bigcode", "RefinedWebModel"):
        found["kv_heads"] = Fact("kv_heads", 1, said("model.key", key="multi_query", source=source))
    if "multi_query_group_num" in flat and flat.get("multi_query_attention") is not True:
        found.pop("kv_heads", None)  # of ChatGLM, where it is off
    if "ffn" not in found and "n_embd" in flat and "hidden" in found:
        found["ffn"] = Fact("ffn", 4 * found["hidden"].value, said("model.four_times", key="n_embd", family="GPT-2"))
    if "experts" in found and found["experts"].value in (0, 1):
        del found["experts"]
    if family in _ONLY_EXPERTS and "ffn" in found and "experts" in found:
        width = found.pop("ffn")
        found.setdefault("expert_ffn", Fact("expert_ffn", width.value, width.origin))


def _number(value: Any, key: str, source: str) -> int:
    if isinstance(value, list) and value and all(item == value[0] for item in value):
        value = value[0]  # one number per layer, all the same
    if isinstance(value, list) and value and all(type(item) is int for item in value):
        value = max(value)
    if type(value) is not int or not (0 <= value < 1 << 40):
        raise SourceError(f"{key} in {shown(source)} is no number of a model: {shown(value)}", source=source)
    return value
