"""A page is in one language: `--lang zh` over every kind of source leaves no English sentence."""

import json
import re
from pathlib import Path

import pytest

from launch_texts import STYLES
from rankatlas.catalogue import catalogue
from test_launches import CASES

EXAMPLES = Path(__file__, "../../examples/check").resolve()
# Words that make sentences, and no identifier, flag or file name.
ENGLISH = re.compile(
    r"(?<![\w-])(the|of|is|are|was|were|not|from|and|or|with|which|by|to|for|on|in|no|it|its|as|at|has|have|that|this|than"
    r"|given|default|inferred|inherited|line|ranks|sizes?|cannot|must|needs|more|all|each|one|would)(?![\w-])",
    re.ASCII,
)
MODEL = {
    "model_type": "qwen3_moe",
    "hidden_size": 4100,
    "intermediate_size": 11009,
    "num_attention_heads": 36,
    "num_hidden_layers": 29,
    "num_key_value_heads": 12,
    "vocab_size": 151937,
    "num_experts": 10,
    "moe_intermediate_size": 769,
}


def english_in(page):
    """The lines of a page with an English word that makes sentences, outside quotes and what is to be pasted."""
    found = []
    for line in page.splitlines():
        if re.match(r"\s+(修改|或者)：|\s{7}\S", line):
            line = line.partition("#")[2]  # what is to be pasted, and a comment behind it
        line = re.sub(r"'[^']*'|\S*[/.=_:]\S*|--\S+", " ", line)
        if ENGLISH.search(line):
            found.append(line)
    return found


def chinese(run, *arguments):
    answer = run("check", *arguments, "--lang", "zh")
    assert answer.code in (0, 1), answer.err
    assert english_in(answer.out) == []
    assert re.search("[\u4e00-\u9fff]", answer.out)
    return answer.out


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_public_launch(run, tmp_path, case):
    write, name = STYLES[case["style"]]
    path = tmp_path / name
    path.write_text(write(case["facts"]), encoding="utf-8")
    (tmp_path / "model.json").write_text(json.dumps(MODEL))
    world = ["-n", str(case["world"])] if case.get("world") else []
    chosen = ["--from", case["format"]] if case.get("format") else []
    page = chinese(run, str(path), *world, *chosen, "--model", str(tmp_path / "model.json"))
    assert "给出" in page


def megatron(*options):
    return " ".join(("--tensor-model-parallel-size 2 --num-layers 8 --micro-batch-size 1", *options))


PIPELINE = "--pipeline-model-parallel-size 2"
# What is noted, refused or contradicts itself → the source.
SOURCES = {
    "a misspelt size": megatron("--pp-size 4"),
    "an open product": megatron("--context-parallel-size 3"),
    "a default of a variable": "TP=${TP:-4}\ntorchrun pretrain_gpt.py " + megatron("--expert-tensor-parallel-size $TP"),
    "a lost variable": "read N\ntorchrun pretrain_gpt.py " + megatron("--seq-length $N $MORE"),
    "options that exclude each other": megatron(
        PIPELINE, "--decoder-first-pipeline-num-layers 3 --account-for-loss-in-pipeline-split"
    ),
    "a picture that does not fit": megatron(PIPELINE, "--pipeline-model-parallel-layout Et|tt|tL"),
    "ends that do not add up": megatron("--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 3"),
    "one end too many": megatron(
        PIPELINE, "--decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 9"
    ),
    "an inherited size": megatron("--expert-model-parallel-size 3 --num-experts 8"),
    "a mapping": megatron(PIPELINE, "--expert-model-parallel-size 4 --num-experts 8 --use-tp-pp-dp-mapping"),
    "query groups without their flag": megatron("--num-attention-heads 8 --num-query-groups 2"),
    "training arguments": {"tensor_parallel_degree": 2, "sharding": "stage1", "data_parallel_degree": 2},
    "two keys for a size": {"tensor_parallel_degree": 2, "mp_degree": 4},
    "no flag": {"tensor_parallel_degree": 2, "enable_auto_parallel": "perhaps"},
    "an order nobody has": {"tensor_parallel_degree": 2, "hybrid_parallel_topo_order": "mp_first"},
    "no stage of sharding": {"tensor_parallel_degree": 2, "sharding": "stage7"},
    "auto-parallel": {"tensor_parallel_degree": 2, "sep_parallel_degree": 2, "enable_auto_parallel": True},
    "experts that are off": {"expert_model_parallel_size": 2, "sharding_parallel_size": 2, "sharding": "stage1"},
    "experts beside dp": {
        "expert_model_parallel_size": 2,
        "use_expert_parallel": True,
        "data_parallel_size": 4,
        "sharding": "",
    },
    "fleet": {"hybrid_configs": {"dp_degree": -1, "mp_degree": 2, "mp_degre": 2, "order": ["dp", "mp"]}},
    "an order of fleet": {"hybrid_configs": {"dp_degree": 2, "mp_degree": 4, "order": ["dp"]}},
    "deepspeed": {
        "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8},
        "train_batch_size": 15,
        "train_micro_batch_size_per_gpu": "auto",
        "ep_size": 3,
    },
    "torchtitan": "[parallelism]\ntensor_parallel_degree = 2\nring_degree = 3\nexpert_parallel_degree = 3\n",
    "accelerate": "distributed_type: FSDP\nnum_machines: 2\nfsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}\n",
    "verl": {
        "actor_rollout_ref": {"actor": {"fsdp_config": {"fsdp_size": 3}, "strategy": "fsdp"}},
        "trainer": {"n_gpus_per_node": 8, "nnodes": 1},
    },
    "a rollout too large": {"actor_rollout_ref": {"rollout": {"tensor_model_parallel_size": 16}}},
    "our own": "format: rankatlas.job\nversion: 1\nlayout: pp=4 dp=2\n"
    "settings: {layers: 30, first_stage_layers: 9, global_batch: 9, micro_batch: 2}\n",
    "another world": "------- arguments -------\n  world_size ...... 16\n  tensor_model_parallel_size ...... 2\n"
    "  num_layers ...... 7\n  micro_batch_size ...... 1\n",
}


def text_of(source):
    return source if isinstance(source, str) else json.dumps(source)


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_noted_or_refused(run, tmp_path, name):
    path = tmp_path / "source"
    path.write_text(text_of(SOURCES[name]), encoding="utf-8")
    chinese(run, str(path), "-n", "8")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.log")), ids=lambda path: path.name)
def test_examples(run, path):
    chinese(run, str(path), "--nodes", "3x8")


@pytest.mark.parametrize("layout", ["tp=8 pp=2 dp=4", "pp=4 dp=3 tp=8"])
def test_notation(run, layout):
    chinese(run, layout, "-n", "64", "--hosts", "n1,n10,n2,n3,n4,n5,n6,n7")


def test_json_keeps_its_form(run, tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(SOURCES["a misspelt size"])
    english, chinese = (run("check", str(path), "-n", "8", "--json", "--lang", lang).json for lang in ("en", "zh"))

    def form(value):
        if isinstance(value, dict):
            return {key: form(inner) for key, inner in value.items()}
        return [form(inner) for inner in value] if isinstance(value, list) else type(value).__name__

    assert form(english) == form(chinese)
    (english_origin,) = [row["origin"] for row in english["understood"] if row["name"] == "tp"]
    (chinese_origin,) = [row["origin"] for row in chinese["understood"] if row["name"] == "tp"]
    assert (english_origin, chinese_origin) == ("given, line 1", "给出，第 1 行")
    assert [finding["numbers"] for finding in english["findings"]] == [
        finding["numbers"] for finding in chinese["findings"]
    ]


def test_the_detector_would_see_english():
    for told in catalogue("findings").values():
        assert english_in(f"  {told['en']['why']}")
        assert not english_in(f"  {told['zh']['why']}")
