"""One page at a time: findings that do not contradict each other, and changes that somebody would make."""

import re

import pytest

from rankatlas.checks import Numbers, check_job, check_numbers
from rankatlas.dialects import read_config
from rankatlas.job import Fact

quiet = pytest.mark.filterwarnings("ignore::UserWarning")


def page(path, text, world=None, format=None):
    path.write_text(text)
    return check_job(read_config(str(path), format, world_size=world))


def codes(findings):
    return [finding.code for finding in findings]


def codes_of(answer):
    return [finding["code"] for finding in answer["findings"]]


def only(findings, code):
    (found,) = [finding for finding in findings if finding.code == code]
    return found


VERL = """
actor_rollout_ref:
  actor:
    strategy: {strategy}
    ppo_mini_batch_size: 256
    ppo_micro_batch_size_per_gpu: 4
    ulysses_sequence_parallel_size: {sp}
    megatron: {{tensor_model_parallel_size: 2, context_parallel_size: 2, sequence_parallel: true}}
  rollout: {{n: 4, tensor_model_parallel_size: 2}}
data: {{train_batch_size: 1024, max_prompt_length: 1024, max_response_length: 2047}}
trainer: {{n_gpus_per_node: 8, nnodes: 2}}
"""


class TestLengthsThatAreFilledUp:
    @pytest.mark.parametrize(("strategy", "sp"), [("fsdp", 4), ("megatron", 1)])
    def test_verl_fills_up_what_it_packs(self, tmp_path, strategy, sp):
        path = tmp_path / "verl.yaml"
        text = VERL.format(strategy=strategy, sp=sp)
        path.write_text(text)
        assert read_config(str(path)).settings["sequence_length"].value == 3071
        assert not {"RA140", "RA141", "RA145"} & {*codes(page(path, text))}


FORMERS = """
max_seq_len: 8192
sharding: stage1
per_device_train_batch_size: 1
gradient_accumulation_steps: {steps}
global_batch_size: {batch}
tensor_model_parallel_size: 2
pipeline_model_parallel_size: 4
virtual_pipeline_model_parallel_size: 2
"""


class TestMicroBatchesThatAreGiven:
    def test_they_are_what_a_pipeline_runs(self, tmp_path):
        found = page(tmp_path / "a.yaml", FORMERS.format(steps=4, batch=100), 32, "paddleformers")
        assert "RA132" not in codes(found)
        assert "RA150" in codes(found)

    def test_the_nearest_numbers_of_them_come_first(self, tmp_path):
        found = only(page(tmp_path / "a.yaml", FORMERS.format(steps=30, batch=120), 32, "paddleformers"), "RA132")
        assert found.message.endswith(
            "30 micro-batches do not fill the rounds of 4 on 4 stages: 2 are left over; "
            "accumulation steps that fit: 28, 32"
        )
        assert "梯度累积步数：28, 32" in found.told("message", "zh")


class TestGroupsOfQueries:
    MEGATRON = (
        "pretrain_gpt.py --tensor-model-parallel-size 1 --num-layers 8 --num-attention-heads 32"
        " --group-query-attention --num-query-groups "
    )

    def test_a_group_is_whole_whatever_the_layout(self):
        found = only(check_job(read_config(self.MEGATRON + "6", world_size=8)), "RA127")
        assert (found.severity, found.numbers["remainder"]) == ("error", 2)
        assert [fix.lines for fix in found.fixes] == [("--num-query-groups 4",), ("--num-query-groups 8",)]

    def test_whole_ones_and_more_than_heads(self):
        for groups in (1, 8, 32):
            assert "RA127" not in codes(check_job(read_config(f"{self.MEGATRON}{groups}", world_size=8)))
        assert "RA127" in codes(check_job(read_config(f"{self.MEGATRON}64", world_size=8)))


class TestSettingsThatAreIgnored:
    @pytest.mark.parametrize(("stage", "found"), [("", True), ("stage1", False)])
    def test_a_sharding_degree_without_sharding(self, tmp_path, stage, found):
        text = f'{{"sharding": "{stage}", "sharding_parallel_degree": 4, "tensor_parallel_degree": 2}}'
        findings = page(tmp_path / "a.json", text, 8)
        assert ("RA106" in codes(findings)) is found
        if found:
            assert only(findings, "RA106").message == 'sharding=4 has no effect: sharding=""'
            assert only(findings, "RA106").fixes[0].lines == ('"sharding": "stage1"',)

    @pytest.mark.parametrize(("size", "found"), [(1, True), (2, False)])
    def test_sequence_parallelism_without_tensor_ranks(self, size, found):
        line = f"pretrain_gpt.py --tensor-model-parallel-size {size} --num-layers 8 --sequence-parallel"
        findings = check_job(read_config(line, world_size=8))
        assert ("RA106" in codes(findings)) is found
        if found:
            assert only(findings, "RA106").message == "sequence_parallel=true has no effect: tp=1"

    @pytest.mark.parametrize(("more", "found"), [("", True), (" --num-virtual-stages-per-pipeline-rank 2", False)])
    def test_a_group_of_micro_batches_without_virtual_stages(self, more, found):
        line = "pretrain_gpt.py --pipeline-model-parallel-size 4 --num-layers 16"
        line += " --microbatch-group-size-per-virtual-pipeline-stage 4" + more
        assert ("RA106" in codes(check_job(read_config(line, world_size=8)))) is found


class TestWhereALauncherStarts:
    JOB = "torchrun --nproc-per-node 8 --nnodes 4 pretrain_gpt.py --tensor-model-parallel-size {tp} --num-layers 32"

    def test_its_command_says_which_groups_leave_a_node(self, run):
        out = run("check", self.JOB.format(tp=16)).out
        assert "on 4x8: 4 nodes, 32 devices (4 nodes × 8 processes of the launcher)" in out
        assert "RA172" in out
        assert "RA172" not in run("check", self.JOB.format(tp=8)).out
        assert "启动器的 4 个节点" in run("check", self.JOB.format(tp=8), "--lang", "zh").out

    def test_nodes_given_win_and_a_contradiction_is_found(self, run):
        line = self.JOB.replace("node 8", "node 4").format(tp=8)
        out = run("check", line, "--nodes", "16x8").out
        assert "RA174" in out
        assert "starts 4 processes on a node, and 16x8 has 8 devices on each" in out
        assert "RA172" in out
        assert "stay on one node: tp" not in out
        assert "RA174" not in run("check", line, "--nodes", "16x4").out
        assert "RA174" not in run("check", line, "--nodes", "16x8", "-n", "64").out
        where = run("where", "4", line, "--nodes", "16x8", "--json").out
        assert '"local_rank": 0' in where

    @pytest.mark.parametrize(
        ("asked", "before", "found"),
        [
            ("--nodes=16", "srun ", "#SBATCH asks for 16 nodes, and the launcher starts on 4"),
            ("--ntasks-per-node=8", "srun ", "Slurm starts 8 tasks on a node, and each of them is a launcher of 8"),
            ("--ntasks-per-node=8", "", None),
            ("--ntasks-per-node=1", "srun ", None),
            ("--nodes=4", "srun ", None),
        ],
    )
    def test_slurm_and_the_launcher_say_the_same(self, tmp_path, asked, before, found):
        text = f"#!/bin/bash\n#SBATCH {asked}\n{before}{self.JOB.format(tp=8)}\n"
        told = [one.message for one in page(tmp_path / "a.slurm", text) if one.code == "RA174"]
        assert told == [] if found is None else told[0].startswith(found)


class TestTheFirstChange:
    def test_options_without_quotes_come_first(self, tmp_path):
        script = tmp_path / "train.sh"
        options = "--num-layers 30 --pipeline-model-parallel-size 4"
        script.write_text(f'ARGS="{options}"\ntorchrun --nproc-per-node 8 pretrain_gpt.py $ARGS\n')
        found = only(check_job(read_config(str(script))), "RA130")
        first = " ".join(found.fixes[0].lines)
        assert not set(first) & set("\"'|*")
        assert any("|" in line for fix in found.fixes for line in fix.lines)
        script.write_text(script.read_text().replace(options, f"{options} {first}"))
        assert "RA130" not in codes(check_job(read_config(str(script))))

    def test_of_two_findings_of_one_code_each_has_its_change(self):
        facts = {"pp": 1, "virtual_stages": 2, "tp": 1, "sequence_parallel": True}
        numbers = Numbers((Fact(name, value, "given") for name, value in facts.items()), format="paddlenlp-2.8")
        found = {one.numbers["name"]: one for one in check_numbers(numbers) if one.code == "RA106"}
        assert set(found) == {"virtual_stages", "sequence_parallel"}
        assert dict(found["virtual_stages"].fixes[0].changes) == {"virtual_stages": 1}

    def test_a_size_that_mends_other_findings_too_comes_first(self):
        facts = {"tp": 32, "heads": 40, "ffn": 13680, "dp": 1, "world": 32}
        numbers = Numbers((Fact(name, value, "given") for name, value in facts.items()), format="megatron-0.16")
        found = check_numbers(numbers)
        assert {"RA120", "RA123"} <= set(codes(found))
        assert dict(only(found, "RA123").fixes[0].changes) == {"tp": 8}

    def test_a_length_that_fits_every_cut_comes_first(self):
        options = "--tensor-model-parallel-size 8 --context-parallel-size 4 --sequence-parallel --num-layers 8"
        findings = check_job(read_config(f"pretrain_gpt.py {options} --seq-length 4100", world_size=64))
        assert only(findings, "RA140").fixes[0].lines == ("--seq-length 4096",)
        longer = check_job(read_config(f"pretrain_gpt.py {options} --seq-length 4072", world_size=64))
        for found in longer:
            for fix in found.fixes[:1] if found.code in ("RA140", "RA145") else ():
                assert fix.changes["sequence_length"] % 32 == 0

    @pytest.mark.parametrize(("mini", "prompts"), [(250, 1000), (7, 1000), (256, 1000), (100, 90)])
    def test_batches_of_a_step_that_fit_each_other_at_once(self, tmp_path, mini, prompts):
        text = VERL.format(strategy="fsdp", sp=2).replace("mini_batch_size: 256", f"mini_batch_size: {mini}")
        text = text.replace("train_batch_size: 1024", f"train_batch_size: {prompts}")
        text = text.replace("micro_batch_size_per_gpu: 4", "micro_batch_size_per_gpu: 3").replace("n: 4", "n: 5")
        batches = ("RA151", "RA161", "RA162")
        wrong = [one for one in page(tmp_path / "verl.yaml", text) if one.code in batches]
        assert wrong
        for line in wrong[0].fixes[0].lines:
            key, _, value = line.rpartition(".")[2].partition("=")
            text, count = re.subn(rf"{key}: \d+", f"{key}: {value}", text)
            assert count == 1
        assert not [one for one in page(tmp_path / "verl.yaml", text) if one.code in batches]

    def test_experts_that_inherit_their_tensor_size_may_stay_on_a_node_without_it(self, run):
        options = "--tensor-model-parallel-size 8 --num-layers 8 --num-experts 8 --expert-model-parallel-size 8"
        line = f"pretrain_gpt.py {options} --sequence-parallel"
        findings = run("check", line, "-n", "64", "--nodes", "8x8", "--json").json["findings"]
        (found,) = [one for one in findings if one["code"] == "RA172"]
        assert found["numbers"]["axis"] == "ep"
        assert found["fixes"][0]["lines"] == ["--expert-tensor-parallel-size 1"]
        whole = run("check", f"{line} --expert-tensor-parallel-size 1", "-n", "64", "--nodes", "8x8", "--json").json
        assert "RA172" not in codes_of(whole)
        given = run("check", f"{line} --expert-tensor-parallel-size 8", "-n", "64", "--nodes", "8x8", "--json").json
        assert "RA172" not in codes_of(given)  # somebody wants it so

    def test_two_processes_more_come_before_other_sizes(self, tmp_path, run):
        path = tmp_path / "accelerate.yaml"
        sizes = {"dp_shard": 4, "dp_replicate": 2, "tp": 4}
        lines = [f"  parallelism_config_{axis}_size: {size}" for axis, size in sizes.items()]
        path.write_text("num_processes: 30\nparallelism_config:\n" + "\n".join(lines) + "\n")
        found = run("check", str(path), "--json").json["findings"][0]
        assert found["fixes"][0]["lines"] == ["num_processes: 32"], found

    def test_a_pipeline_is_not_offered_as_none(self, run):
        found = run("check", "pp=16 dp=128 tp=1", "--json", "--model", self.model(61)).json["findings"]
        assert [one["code"] for one in found] == ["RA130"]
        assert found[0]["fixes"] == []

    @pytest.fixture(autouse=True)
    def _models(self, tmp_path):
        def model(layers):
            path = tmp_path / "model.json"
            path.write_text(f'{{"model_type": "llama", "num_hidden_layers": {layers}, "hidden_size": 64}}')
            return str(path)

        self.model = model


class TestListsThatAreCut:
    def test_they_end_with_an_ellipsis(self):
        facts = {"tp": 3, "heads": 40, "dp": 1, "world": 3}
        found = only(check_numbers(Numbers(Fact(name, value, "given") for name, value in facts.items())), "RA120")
        assert found.message.endswith("1, 2, 4, 5, …")
        assert found.to_dict()["numbers"]["legal"] == [1, 2, 4, 5]
        facts["heads"] = 5
        found = only(check_numbers(Numbers(Fact(name, value, "given") for name, value in facts.items())), "RA120")
        assert found.message.endswith("1, 5")

    def test_sizes_that_other_numbers_rule_out_are_not_said_to_be_all(self):
        facts = {"tp": 1, "ep": 3, "experts": 128, "dp": 12, "world": 12}
        found = only(check_numbers(Numbers(Fact(name, value, "given") for name, value in facts.items())), "RA111")
        assert found.message.endswith("sizes of ep that fit: 1, 2, 4")


class TestWhatWasNotRead:
    @pytest.mark.parametrize(
        ("options", "code"),
        [
            ("--group-query-attention --num-query-groups 4", None),
            ("--num-attention-heads 32 --num-query-groups 4", "RA105"),
            ("--foo-parallel-size 4", "RA104"),
        ],
    )
    def test_only_a_name_that_may_be_misspelt_is_called_so(self, options, code):
        line = f"pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 8 {options}"
        found = [one for one in check_job(read_config(line, world_size=8)) if one.code in ("RA104", "RA105")]
        assert [(one.code, one.severity) for one in found] == ([] if code is None else [(code, "warning")])


class TestSeveralFiles:
    @pytest.fixture
    def files(self, tmp_path):
        texts = {
            "good.yaml": "format: rankatlas.job\nversion: 1\nlayout: pp=2 dp=4\n",
            "other.yaml": "services:\n  web: {image: nginx}\n",
            "slip.yaml": "tensor_parallel_degre: 4\n",
        }
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        return lambda *names: [str(tmp_path / name) for name in names]

    def test_one_that_is_missing_hides_no_other(self, run, files):
        answer = run("check", *files("good.yaml", "nope.yaml"))
        assert answer.code == 2
        assert "pp=2 dp=4" in answer.out
        assert "nope.yaml" in answer.err

    def test_one_about_something_else_is_skipped(self, run, files):
        answer = run("check", *files("good.yaml", "other.yaml"))
        assert answer.code == 0
        assert answer.err.startswith("skipped: ")
        assert "other.yaml" in answer.err
        assert run("check", *files("other.yaml", "other.yaml")).code == 0

    def test_one_alone_or_with_a_slip_is_not(self, run, files):
        assert run("check", *files("other.yaml")).code == 2
        answer = run("check", *files("good.yaml", "slip.yaml"))
        assert answer.code == 2
        assert "tensor_parallel_degree" in answer.err


class TestBatchesOfOtherNames:
    def test_the_data_axis_of_a_framework_is_known(self, run, tmp_path):
        path = tmp_path / "ds.json"
        path.write_text(
            '{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}}'
        )
        answer = run("batches", str(path), "-n", "8", "--samples", "100")
        assert answer.code == 0, answer.err

    def test_notation_is_told_which_option_names_it(self, run):
        answer = run("batches", "data=8", "--samples", "100", "--batch", "32", "--micro", "4")
        assert answer.code == 2
        assert "--data data of rankatlas batches" in answer.err


class TestMoreToTell:
    def test_an_explanation_with_an_example_is_pointed_at(self, run):
        out = run("check", "pp=2 dp=2 tp=8", "--nodes", "8x4").out
        assert "--explain RA172 tells more" in out
        for lang, words in (("en", "ranks 0 to 7"), ("zh", "进程 0 到 7")):
            assert words in run("check", "--explain", "RA172", "--lang", lang).out

    def test_one_that_says_no_more_is_not(self, run):
        out = run("check", "pp=2 dp=2 tp=2", "--nodes", "16x1").out
        assert "RA171" in out
        out = run("check", "dp=4", "--nodes", "8x1").out
        assert "RA171" in out
        assert "explain" not in out


class TestTorchtitansPipeline:
    TEXT = (
        "[parallelism]\npipeline_parallel_degree = 4\npipeline_parallel_microbatch_size = {size}\n"
        "[training]\nlocal_batch_size = {batch}\n"
    )

    @pytest.mark.parametrize(("batch", "size", "found"), [(8, 4, ["RA133"]), (8, 2, []), (8, 3, ["RA136"])])
    def test_the_local_batch_is_cut_for_it(self, tmp_path, batch, size, found):
        findings = page(tmp_path / "run.toml", self.TEXT.format(batch=batch, size=size), 8)
        assert [code for code in codes(findings) if code.startswith("RA13")] == found
        if found == ["RA136"]:
            lines = [fix.lines[0] for fix in findings[0].fixes]
            assert lines[0].startswith("pipeline_parallel_microbatch_size = 2")
            assert lines[1].startswith("local_batch_size = 9")


class TestHeadsOfRollout:
    @pytest.mark.parametrize(
        ("size", "heads", "shared", "found"), [(3, 32, 8, True), (4, 32, 8, False), (6, 36, 4, True), (8, 32, 4, False)]
    )
    def test_the_engines_cut_the_same_heads(self, tmp_path, size, heads, shared, found):
        path = tmp_path / "verl.yaml"
        path.write_text(
            VERL.format(strategy="fsdp", sp=1).replace("parallel_size: 2}\ndata", f"parallel_size: {size}}}\ndata")
        )
        job = read_config(str(path), sets={"trainer.nnodes": "3"})
        model = [Fact("heads", heads, "model"), Fact("kv_heads", shared, "model")]
        findings = check_job(job, extra=model)
        assert ("RA163" in codes(findings)) is found
        if found:
            for fix in only(findings, "RA163").fixes:
                one = fix.changes["rollout_tp"]
                assert heads % one == 0
                assert 0 in (shared % one, one % shared)
                assert fix.lines[0].startswith("actor_rollout_ref.rollout.tensor_model_parallel_size=")
        assert "RA163" not in codes(check_job(job))
