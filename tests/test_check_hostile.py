"""`rankatlas check` and whatever people hand it: an answer or a refusal, never a defect, never endless."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankatlas.cluster import parse_hosts, parse_nodes
from rankatlas.errors import InputError

anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 70),
        st.sampled_from(
            [2**40, 2**63, -(2**40), 10**40, 0.5, 1e300, float("inf"), "", "8", "auto", "${x}", "\x1b[31m"]
        ),
        st.text(max_size=4),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)
KEYS = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
    "expert_tensor_parallel_size", "num_layers", "num_attention_heads", "num_query_groups", "group_query_attention",
    "hidden_size", "ffn_hidden_size", "vocab_size", "num_experts", "moe_ffn_hidden_size", "seq_length",
    "global_batch_size", "micro_batch_size", "num_virtual_stages_per_pipeline_rank", "pipeline_model_parallel_layout",
    "decoder_first_pipeline_num_layers", "account_for_loss_in_pipeline_split", "world_size",
    "tensor_parallel_degree", "pipeline_parallel_degree", "sharding", "sep_parallel_degree", "virtual_pp_degree",
    "gradient_accumulation_steps", "per_device_train_batch_size",
)  # fmt: skip
MODEL = (
    "model_type", "num_hidden_layers", "n_layer", "num_attention_heads", "num_key_value_heads", "hidden_size", "n_embd",
    "intermediate_size", "vocab_size", "num_experts", "n_routed_experts", "moe_intermediate_size", "text_config",
    "attn_config", "ffn_config", "multi_query", "multi_query_group_num", "multi_query_attention",
)  # fmt: skip
calm = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)


def answered(answer):
    assert answer.code in (0, 1, 2)
    assert "defect" not in answer.err
    assert bool(answer.out) == (answer.code < 2)
    assert "\x1b" not in answer.out + answer.err


@given(st.binary(max_size=400))
@calm
def test_bytes(run, tmp_path, data):
    path = tmp_path / "source"
    path.write_bytes(data)
    answered(run("check", str(path), "-n", "8"))
    answered(run("check", "dp=8", "--model", str(path)))


@given(st.dictionaries(st.sampled_from(KEYS), anything, max_size=12), st.sampled_from(["megatron", "paddlenlp", None]))
@calm
def test_settings_of_any_value(run, tmp_path, content, format):
    path = tmp_path / "args.json"
    path.write_text(json.dumps(content))
    answered(run("check", str(path), "-n", "16", *(["--from", format] if format else [])))


@given(st.dictionaries(st.sampled_from(KEYS), st.integers(1, 40), min_size=3, max_size=20))
@calm
def test_settings_that_are_numbers(run, tmp_path, content):
    path = tmp_path / "args.json"
    path.write_text(json.dumps(content))
    for lang in ("en", "zh"):
        answered(run("check", str(path), "-n", "48", "--from", "megatron", "--nodes", "6x8", "--lang", lang))


@given(st.dictionaries(st.sampled_from(MODEL), anything, max_size=12))
@calm
def test_models_of_any_value(run, tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content))
    answered(run("check", "pp=2 dp=2 cp=2 tp=2", "--model", str(path)))


@given(st.text(alphabet="abn0189[],-:x*. \t\n=", max_size=24))
@calm
def test_hosts_and_nodes(text):
    for read in (parse_nodes, lambda text: parse_hosts(text, 8), lambda text: parse_hosts(text, devices=8)):
        try:
            cluster = read(text)
        except InputError:
            continue
        assert cluster.slots >= cluster.nodes >= 1
        assert cluster.node(cluster.slots - 1) == cluster.nodes - 1


@pytest.mark.parametrize("hosts", ["a[0-1000000]", "a[1-999][1-999][1-999]", "[" * 500, "a[1-2]" * 200, "a," * 10**5])
def test_hosts_nobody_has(run, hosts):
    answer = run("check", "dp=8", "--hosts", hosts)
    assert answer.code == 2
    assert len(answer.err) < 3000
    assert "defect" not in answer.err
