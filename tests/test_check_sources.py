"""`check` on sources that nobody would hand it: an answer or a refusal, quickly and briefly."""

import json
import os
import subprocess
import sys
import threading

import pytest

ARGUMENTS = {
    "tensor_model_parallel_size": 8,
    "pipeline_model_parallel_size": 4,
    "micro_batch_size": 1,
    "num_layers": 30,
}


def rankatlas(*arguments, stdin=None):
    command = [sys.executable, "-m", "rankatlas", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("world", ["7", "64"])
def test_a_pipe_is_read_once(tmp_path, world):
    """What a reader refuses is looked at again with other sizes, and a pipe that was read is empty."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(json.dumps(ARGUMENTS),), daemon=True)
    writer.start()
    told = rankatlas("check", str(path), "--from", "megatron", "-n", world, "--json")
    writer.join(10)
    facts = json.loads(told.stdout)
    assert facts["format"] == "megatron-0.16"
    assert {"name": "layers", "value": 30, "origin": "given: num_layers"} in facts["understood"]
    assert ("RA102" in [finding["code"] for finding in facts["findings"]]) == (world == "7")


def test_standard_input_is_read_once():
    told = rankatlas("check", "-", "--from", "megatron", "-n", "7", "--json", stdin=json.dumps(ARGUMENTS))
    facts = json.loads(told.stdout)
    assert (facts["format"], [finding["code"] for finding in facts["findings"]][:2]) == (
        "megatron-0.16",
        ["RA102", "RA130"],
    )


@pytest.mark.parametrize("format", ["rankatlas", "notation"])
@pytest.mark.parametrize("source", ["train.py --tensor-model-parallel-size 2", "run.sh"])
def test_options_are_no_notation_and_no_format_of_ours(run, tmp_path, format, source):
    if source == "run.sh":
        path = tmp_path / source
        path.write_text("torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2\n")
        source = str(path)
    answer = run("check", source, "--from", format, "-n", "8")
    assert answer.code == 2
    assert "defect" not in answer.err
    assert f"--from {format}" in answer.err or "this notation cannot be read" in answer.err


def test_a_page_does_not_grow_with_what_was_given(run, tmp_path):
    path = tmp_path / "run.sh"
    picture = "'Et|" + "(t|)*9999" + "L'"
    path.write_text(
        "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 --num-layers 9"
        f" --pipeline-model-parallel-layout {picture}\n"
    )
    for lang in ("en", "zh"):
        answer = run("check", str(path), "-n", "8", "--lang", lang)
        assert answer.code == 1
        assert len(answer.out) < 6000


@pytest.mark.parametrize("nodes", ["137438953472x8", "1099511627776x1", "274877906944x4"])
def test_nodes_of_an_enormous_world(nodes):
    told = rankatlas("check", "pp=16 dp=? tp=8", "--nodes", nodes, "--json")
    facts = json.loads(told.stdout)
    assert facts["world_size"] == 2**40
    assert [one["first"][:3] for one in facts["cluster"]["crossing"] if one["axis"] == "pp"] == [[0, 1, 2]]


def test_of_several_files_those_that_can_be_read_are_checked(run, tmp_path):
    """As a hook before a commit gives them."""
    paths = [tmp_path / name for name in ("good.json", "broken.json", "bad.json")]
    for path, text in zip(paths, ('{"tensor_parallel_degree": 4}', "{", '{"tensor_parallel_degree": 3}')):
        path.write_text(text)
    arguments = ["check", *map(str, paths), "-n", "8"]
    answer = run(*arguments)
    assert answer.code == 2
    assert answer.out.index("good.json, read as") < answer.out.index("no findings") < answer.out.index("error RA102")
    assert "broken.json' is not valid JSON" in answer.err
    told = json.loads(run(*arguments, "--json").out)
    assert [(one["ok"], "error" in one) for one in told["sources"]] == [(True, False), (False, False), (False, True)]
    assert run("check", str(paths[1]), "-n", "8").code == 2


class TestSeveralMistakesOfVerl:
    CONFIG = """\
actor_rollout_ref:
  actor: {strategy: fsdp, ppo_mini_batch_size: 250, ppo_micro_batch_size_per_gpu: 3, ulysses_sequence_parallel_size: 3}
  rollout: {name: vllm, n: 5, tensor_model_parallel_size: 6}
data: {train_batch_size: 1000, max_prompt_length: 1024, max_response_length: 2047}
trainer: {n_gpus_per_node: 8, nnodes: 4}
"""

    def told(self, run, tmp_path, config):
        path = tmp_path / "verl.yaml"
        path.write_text(config)
        answer = run("check", str(path), "--json")
        assert answer.code == 1
        return answer.json

    def test_the_first_refusal_hides_nothing(self, run, tmp_path):
        told = self.told(run, tmp_path, self.CONFIG)
        assert told["format"] == "verl-0.9"
        assert {"RA107", "RA160", "RA161", "RA151"} <= {one["code"] for one in told["findings"]}
        rows = {row["name"]: (row["value"], row["origin"]) for row in told["understood"]}
        keys = "actor_rollout_ref.rollout.tensor_model", "actor_rollout_ref.actor.ulysses_sequence"
        assert rows["rollout_tp"] == (6, f"given: {keys[0]}_parallel_size")
        assert rows["sp"] == (3, f"given: {keys[1]}_parallel_size")
        fixes = json.dumps([one["fixes"] for one in told["findings"] if one["code"] in ("RA107", "RA160")])
        assert all(f"{key}_parallel_size=" in fixes for key in keys), fixes

    def test_one_of_them(self, run, tmp_path):
        told = self.told(run, tmp_path, self.CONFIG.replace("ulysses_sequence_parallel_size: 3", "strategy2: x"))
        assert told["format"] == "verl-0.9"
        assert "RA160" in {one["code"] for one in told["findings"]}

    def test_a_size_without_a_key_here(self, run, tmp_path):
        config = self.CONFIG.replace("{strategy: fsdp,", "{strategy: fsdp, fsdp_config: {fsdp_size: 5},")
        assert self.told(run, tmp_path, config)["format"].startswith("verl")


def test_that_a_log_is_cut_off_stands_before_what_follows_from_it(run, tmp_path):
    values = {"expert_model_parallel_size": 4, "expert_tensor_parallel_size": 8, "global_batch_size": 64}
    values |= {"context_parallel_size": 2, "data_parallel_size": 2, "micro_batch_size": 1, "num_experts": 8}
    lines = [f"  {name} ................ {value}" for name, value in values.items()]
    path = tmp_path / "cut.log"
    path.write_text("\n".join(["------------------------ arguments ------------------------", *lines]))
    told = run("check", str(path), "--json").json
    assert [one["severity"] for one in told["findings"]][:2] == ["note", "error"]
    assert "has no end" in told["findings"][0]["message"]
