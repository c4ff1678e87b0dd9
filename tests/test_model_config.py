"""config.json of model families: the numbers in them, whatever the family calls them."""

import json

import pytest

from rankatlas.dialects.huggingface import facts, read_model
from rankatlas.errors import SourceError

# The relevant part of each family's published config.json, and the numbers it means.
FAMILIES = {
    "llama-3.1-8b": (
        {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
         "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256},
        {"layers": 32, "heads": 32, "kv_heads": 8, "hidden": 4096, "ffn": 14336, "vocab": 128256},
    ),
    "qwen3-30b-a3b": (
        {"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
         "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
         "num_key_value_heads": 4, "vocab_size": 151936},
        {"layers": 48, "heads": 32, "kv_heads": 4, "hidden": 2048, "ffn": 6144, "expert_ffn": 768, "experts": 128,
         "vocab": 151936},
    ),
    "mixtral-8x7b": (
        {"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
         "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "vocab_size": 32000},
        {"layers": 32, "heads": 32, "kv_heads": 8, "hidden": 4096, "expert_ffn": 14336, "experts": 8, "vocab": 32000},
    ),
    "deepseek-v3": (
        {"model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
         "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128, "num_hidden_layers": 61,
         "num_key_value_heads": 128, "vocab_size": 129280},
        {"layers": 61, "heads": 128, "kv_heads": 128, "hidden": 7168, "ffn": 18432, "expert_ffn": 2048,
         "experts": 256, "vocab": 129280},
    ),
    "gpt2": (
        {"model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257},
        {"layers": 12, "heads": 12, "hidden": 768, "ffn": 3072, "vocab": 50257},
    ),
    "gemma-3-4b": (
        {"model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
         "num_hidden_layers": 34, "num_attention_heads": 8, "num_key_value_heads": 4}, "vision_config":
         {"hidden_size": 1152, "num_hidden_layers": 27}},
        {"layers": 34, "heads": 8, "kv_heads": 4, "hidden": 2560, "ffn": 10240},
    ),
    "phi-4": (
        {"model_type": "phi3", "hidden_size": 5120, "intermediate_size": 17920, "num_attention_heads": 40,
         "num_hidden_layers": 40, "num_key_value_heads": 10, "vocab_size": 100352},
        {"layers": 40, "heads": 40, "kv_heads": 10, "hidden": 5120, "ffn": 17920, "vocab": 100352},
    ),
    "falcon-7b": (
        {"model_type": "falcon", "hidden_size": 4544, "multi_query": True, "new_decoder_architecture": False,
         "num_attention_heads": 71, "num_hidden_layers": 32, "vocab_size": 65024},
        {"layers": 32, "heads": 71, "kv_heads": 1, "hidden": 4544, "vocab": 65024},
    ),
    "chatglm3-6b": (
        {"model_type": "chatglm", "hidden_size": 4096, "ffn_hidden_size": 13696, "multi_query_attention": True,
         "multi_query_group_num": 2, "num_attention_heads": 32, "num_layers": 28, "padded_vocab_size": 65024},
        {"layers": 28, "heads": 32, "kv_heads": 2, "hidden": 4096, "ffn": 13696, "vocab": 65024},
    ),
    "dbrx": (
        {"model_type": "dbrx", "attn_config": {"kv_n_heads": 8}, "d_model": 6144, "n_heads": 48, "n_layers": 40,
         "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16}, "vocab_size": 100352},
        {"layers": 40, "heads": 48, "kv_heads": 8, "hidden": 6144, "expert_ffn": 10752, "experts": 16,
         "vocab": 100352},
    ),
    "t5-small": (
        {"model_type": "t5", "d_ff": 2048, "d_model": 512, "num_heads": 8, "num_layers": 6, "vocab_size": 32128},
        {"layers": 6, "heads": 8, "hidden": 512, "ffn": 2048, "vocab": 32128},
    ),
    "dense-qwen-moe-off": (
        {"model_type": "qwen2", "num_hidden_layers": 2, "num_experts": 0},
        {"layers": 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family(name, tmp_path):
    content, expected = FAMILIES[name]
    (tmp_path / "config.json").write_text(json.dumps(content))
    for source in (tmp_path, tmp_path / "config.json"):  # the folder of a checkpoint will do
        assert {fact.name: fact.value for fact in read_model(str(source))} == expected
    assert all("config.json" in fact.origin or "GPT-2" in fact.origin for fact in read_model(str(tmp_path)))


@pytest.mark.parametrize(
    "content",
    [{}, {"model_type": "llama"}, {"num_hidden_layers": "many"}, {"hidden_size": 1.5}, {"n_head": True},
     {"n_layer": -1}, {"n_layer": 1 << 50}, {"n_layer": [1, "x"]}, {"text_config": {"n_layer": {}}}],
)  # fmt: skip
def test_what_holds_no_number_of_a_model(content):
    with pytest.raises(SourceError):
        facts(content, "config.json")


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "\x00\xff", "{'a': 1}"])
def test_what_is_no_configuration(text, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(SourceError):
        read_model(str(path))


def test_one_number_per_layer():
    told = {fact.name: fact.value for fact in facts({"intermediate_size": [8, 8, 16], "num_heads": [4, 4]}, "x")}
    assert told == {"ffn": 16, "heads": 4}
