"""Checks against what a framework itself demands of its settings: sources as people write them, and their fixes."""

import pytest

from rankatlas.checks import Fix, Numbers, check_job
from rankatlas.dialects import read_config

FORMERS = {
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 8,
    "tensor_model_parallel_size": 4,
    "pipeline_model_parallel_size": 2,
    "sharding": "stage1",
    "use_expert_parallel": "true",
    "expert_model_parallel_size": 8,
    "max_seq_len": 8192,
}


def codes(findings, *severities):
    return [finding.code for finding in findings if not severities or finding.severity in severities]


def only(findings, code):
    (found,) = [finding for finding in findings if finding.code == code]
    return found


def written(path, settings):
    path.write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
    return str(path)


class TestPaddleFormers:
    """With experts, the data is split over moe_sharding × sharding."""

    @pytest.mark.parametrize("pipeline", [1, 2, 4])
    @pytest.mark.parametrize("expert", [4, 8, 16])
    def test_a_batch_that_follows_is_no_finding(self, tmp_path, pipeline, expert):
        settings = {**FORMERS, "pipeline_model_parallel_size": pipeline, "expert_model_parallel_size": expert}
        job = read_config(written(tmp_path / "run.yaml", settings), "paddleformers-1.2", world_size=64)
        assert Numbers.of(job)["dp"] == 64 // 4 // pipeline
        assert job.settings["global_batch"].value == 8 * 64 // 4 // pipeline
        assert codes(check_job(job), "error") == []

    def test_the_sharding_size_that_is_offered_is_the_whole_one(self, tmp_path):
        settings = {**FORMERS, "sharding_parallel_size": 8, "num_attention_heads": 6}
        path = tmp_path / "run.yaml"
        found = only(check_job(read_config(written(path, settings), "paddleformers-1.2", world_size=64)), "RA120")
        assert ("tensor_model_parallel_size: 2", "sharding_parallel_size: 16") in [fix.lines for fix in found.fixes]
        for fix in found.fixes:
            changed = {**settings, **dict(line.split(": ") for line in fix.lines)}
            assert "RA120" not in codes(
                check_job(read_config(written(path, changed), "paddleformers-1.2", world_size=64))
            )


def verl(**settings):
    """A command line of verl with the settings that these checks look at."""
    plain = {
        "trainer.n_gpus_per_node": 8,
        "trainer.nnodes": 2,
        "data.train_batch_size": 64,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 2,
        "actor_rollout_ref.rollout.n": 1,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 32,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 1,
    }
    return {**plain, **{name.replace("__", "."): value for name, value in settings.items()}}


ACTOR = "actor_rollout_ref__actor__"
OF_MEGATRON = {
    f"{ACTOR}strategy": "megatron",
    f"{ACTOR}megatron__tensor_model_parallel_size": 2,
    f"{ACTOR}megatron__pipeline_model_parallel_size": 2,
}


def accepted(settings):
    """What verl 0.9.1 demands: validate_config in utils/config.py, validate of ActorConfig; and whole data ranks."""
    at = {name.replace(".", "__"): value for name, value in settings.items()}
    gpus = at["trainer__n_gpus_per_node"] * at["trainer__nnodes"]
    prompts, responses = at["data__train_batch_size"], at["actor_rollout_ref__rollout__n"]
    micro, mini = at[f"{ACTOR}ppo_micro_batch_size_per_gpu"], at[f"{ACTOR}ppo_mini_batch_size"]
    data = gpus // at.get(f"{ACTOR}ulysses_sequence_parallel_size", 1)
    least = gpus
    if at.get(f"{ACTOR}strategy") == "megatron":
        data = gpus // 4
        least = data * micro
    return prompts * responses % least == 0, prompts >= mini, mini * responses % (data * micro) == 0


def checked(path, settings):
    path.write_text(
        "python3 -m verl.trainer.main_ppo " + " ".join(f"{name}={value}" for name, value in settings.items()) + "\n"
    )
    return check_job(read_config(str(path)))


class TestVerl:
    @pytest.mark.parametrize("actor", [{}, {f"{ACTOR}ulysses_sequence_parallel_size": 4}, OF_MEGATRON])
    @pytest.mark.parametrize(("prompts", "responses"), [(64, 1), (100, 1), (8, 2), (8, 1), (20, 5), (72, 1), (17, 3)])
    @pytest.mark.parametrize(("mini", "micro"), [(16, 1), (32, 2), (48, 4), (128, 1)])
    def test_what_verl_refuses_is_an_error_and_its_fixes_are_taken(
        self, tmp_path, actor, prompts, responses, mini, micro
    ):
        path = tmp_path / "run.sh"
        settings = verl(
            **actor,
            data__train_batch_size=prompts,
            actor_rollout_ref__rollout__n=responses,
            **{f"{ACTOR}ppo_mini_batch_size": mini, f"{ACTOR}ppo_micro_batch_size_per_gpu": micro},
        )
        shared, enough, _ = accepted(settings)
        findings = checked(path, settings)
        assert ("RA161" in codes(findings, "error")) is not shared
        assert ("RA162" in codes(findings, "error")) is not enough
        for finding in findings:
            if finding.code not in ("RA161", "RA162"):
                continue
            for fix in finding.fixes:
                changed = {**settings}
                for line in fix.lines:
                    name, _, value = line.partition("=")
                    assert name in settings
                    changed[name] = int(value)
                now = accepted(changed)
                assert now[0] if finding.code == "RA161" else now[1] and now[2], (finding, fix)
                assert finding.code not in codes(checked(path, changed))
                others = accepted(settings)[1:] if finding.code == "RA161" else [shared]
                if all(others):
                    assert all(now), (finding, fix)

    def test_ulysses_is_not_divided_out(self, tmp_path):
        settings = verl(data__train_batch_size=40, **{f"{ACTOR}ulysses_sequence_parallel_size": 2})
        found = only(checked(tmp_path / "run.sh", settings), "RA161")
        assert "40 prompts × 1 responses = 40 samples are no multiple of world=16: 8 are left over" in found.message
        assert found.numbers["legal"] == [32, 48]


PRETRAIN = "pretrain_gpt.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4"


def megatron(options, world=8):
    return read_config(f"torchrun --nproc-per-node {world} {PRETRAIN} {options}", "megatron", world_size=world)


class TestMegatronsRounds:
    """Megatron refuses 0 < M % N < pp, N > M and N < pp: schedules.py of megatron-core 0.16."""

    @pytest.mark.parametrize("group", [None, 2, 4, 5, 6, 8, 12])
    @pytest.mark.parametrize("micro_batches", [2, 4, 6, 8, 10, 11, 12, 13, 16])
    def test_a_round_may_be_longer_than_the_stages(self, group, micro_batches):
        options = "--num-layers 32 --num-virtual-stages-per-pipeline-rank 2 --micro-batch-size 1"
        if group:
            options += f" --microbatch-group-size-per-virtual-pipeline-stage {group}"

        def refused(micro_batches, group):
            return group > micro_batches or group < 4 or 0 < micro_batches % group < 4

        findings = check_job(megatron(f"{options} --global-batch-size {micro_batches}"))
        assert ("RA132" in codes(findings)) is refused(micro_batches, group or 4)
        for finding in findings:
            for fix in finding.fixes if finding.code == "RA132" else ():
                batch = fix.changes.get("global_batch", micro_batches)
                if fix.changes.get("virtual_stages") != 1:
                    assert not refused(batch, fix.changes.get("microbatch_group", group or 4))

    def test_the_reason_names_no_other_framework(self):
        assert (
            "Megatron"
            not in only(
                check_job(
                    megatron(
                        "--num-layers 32 --num-virtual-stages-per-pipeline-rank 2 --micro-batch-size 1"
                        " --global-batch-size 6"
                    )
                ),
                "RA132",
            ).why
        )


class TestMegatronsStages:
    PICTURE = "--pipeline-model-parallel-layout 'Et*8|t*8|t*8|t*8L'"

    @pytest.mark.parametrize(
        "options",
        [
            f"{PICTURE} --account-for-loss-in-pipeline-split",
            f"{PICTURE} --decoder-first-pipeline-num-layers 8",
            f"{PICTURE} --decoder-last-pipeline-num-layers 8",
            f"{PICTURE} --num-virtual-stages-per-pipeline-rank 2",
            f"{PICTURE} --num-layers-per-virtual-pipeline-stage 4",
            "--decoder-last-pipeline-num-layers 8 --account-for-embedding-in-pipeline-split",
            "--decoder-last-pipeline-num-layers 8 --num-layers-per-virtual-pipeline-stage 4",
            "--num-layers-per-virtual-pipeline-stage 4 --num-virtual-stages-per-pipeline-rank 2",
        ],
    )
    def test_options_that_exclude_each_other(self, options):
        found = [one for one in check_job(megatron(f"--num-layers 32 {options}")) if one.code == "RA109"]
        assert found
        names = [word[2:].replace("-", "_") for word in options.split() if word.startswith("--")]
        assert [name for one in found for name in one.numbers["names"]] == names
        assert all(name in found[0].told("message", "zh") for name in names)

    @pytest.mark.parametrize(
        "options",
        [
            PICTURE,
            "--decoder-last-pipeline-num-layers 8 --decoder-first-pipeline-num-layers 8",
            "--num-virtual-stages-per-pipeline-rank 2 --decoder-last-pipeline-num-layers 8",
            "--num-layers-per-virtual-pipeline-stage 4",
        ],
    )
    def test_options_that_go_together(self, options):
        assert codes(check_job(megatron(f"--num-layers 32 {options}"))) == []

    def test_virtual_stages_that_do_not_divide_a_stage(self):
        found = only(check_job(megatron("--num-layers 32 --num-layers-per-virtual-pipeline-stage 3")), "RA134")
        assert "8 layers of a stage (32 / pp=4) cannot be cut into virtual stages of 3 layers" in found.message
        lines = [fix.lines for fix in found.fixes]
        assert lines == [(f"--num-layers-per-virtual-pipeline-stage {size}",) for size in (2, 4)]
        counted = "--num-layers 30 --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
        assert codes(check_job(megatron(f"{counted} --num-layers-per-virtual-pipeline-stage 4"))) == []
        assert codes(check_job(megatron(f"{counted} --num-layers-per-virtual-pipeline-stage 3"))) == ["RA134"]

    @pytest.mark.parametrize(
        "options",
        [
            "--num-layers 32 --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split",
            "--num-layers 32 --account-for-loss-in-pipeline-split",
            "--num-layers 30 --decoder-first-pipeline-num-layers 7",
            "--num-layers 30 --num-layers-per-virtual-pipeline-stage 4",
            "--num-layers 30 --num-virtual-stages-per-pipeline-rank 2",
            "--num-layers 32 --num-layers-per-virtual-pipeline-stage 3",
            "--num-layers 31 --decoder-last-pipeline-num-layers 8 --num-virtual-stages-per-pipeline-rank 2",
        ],
    )
    def test_fixes_say_what_they_stand_in_the_place_of_and_pass(self, options):
        findings = check_job(megatron(options, world=64))
        assert codes(findings, "error")
        for finding in findings:
            assert finding.fixes
            for fix in finding.fixes:
                left = options
                for name in fix.instead:
                    kept = [part for part in f" {left}".split(" --")[1:] if part.split()[0] != name[2:]]
                    assert len(kept) < len(left.split("--")) - 1, name  # it was there
                    left = " ".join(f"--{part}" for part in kept)
                after = check_job(megatron(f"{left} {' '.join(fix.lines)}", world=64))
                assert codes(after, "error") == [], fix
                told = finding.to_dict("zh")["fixes"][finding.fixes.index(fix)]["lines"]
                assert told[-1].startswith("# 代替 --") or not fix.instead

    def test_what_counts_as_a_layer_is_counted(self):
        options = "--num-layers 32 --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
        found = only(check_job(megatron(options)), "RA130")
        assert "32 + 2 layers cannot be shared evenly by 4 chunks" in found.message
        assert "8 each make 32, so 2 would be lost" in found.message
        assert found.numbers["legal"] == [1, 2, 17]


BRIDGE = """\
model:
  _target_: megatron.bridge.models.llama.Llama3Provider
  tensor_model_parallel_size: 8
  pipeline_model_parallel_size: 4
  context_parallel_size: 1
  num_layers: 126
train:
  global_batch_size: 513
  micro_batch_size: 1
"""
PARALLELISM = "parallelism_config:\n  parallelism_config_dp_shard_size: 2\n  parallelism_config_tp_size: 2\n"


def pasted(content, fix):
    """The content of a file with lines put where they say."""
    import yaml

    changed = yaml.safe_load(content)
    for line in fix.lines:
        setting, _, section = line.partition("  # in ")
        place = changed[section] if section else changed
        (key,) = yaml.safe_load(setting)
        assert not section or key not in changed
        place.update(yaml.safe_load(setting))
    return yaml.safe_dump(changed)


class TestFiles:
    """Lines belong into the source that they are offered for."""

    def test_of_megatron_bridge(self, tmp_path):
        path = tmp_path / "run.yaml"
        path.write_text(BRIDGE)
        findings = check_job(read_config(str(path), world_size=64))
        assert codes(findings, "error") == ["RA130", "RA151"]
        lines = [fix.lines for fix in findings[0].fixes]
        assert ("num_layers_in_first_pipeline_stage: 31  # in model",) in [line[:1] for line in lines]
        assert not any(line.startswith("--") for line in sum(lines, ()))
        for finding in findings:
            assert finding.fixes
            for fix in finding.fixes:
                path.write_text(pasted(BRIDGE, fix))
                assert finding.code not in codes(check_job(read_config(str(path), world_size=64))), fix

    @pytest.mark.parametrize(
        "content",
        [PARALLELISM, "parallelism_config_dp_shard_size: 2\nparallelism_config_tp_size: 2\n"],
    )
    def test_of_accelerate(self, run, tmp_path, content):
        path = tmp_path / "run.yaml"
        content = f"distributed_type: FSDP\nnum_processes: 16\n{content}"
        path.write_text(content)
        (finding,) = run("check", str(path), "--json").json["findings"]
        assert finding["code"] == "RA101"
        assert len(finding["fixes"]) == 5
        for fix in finding["fixes"]:
            assert not any("torchrun" in line for line in fix["lines"])
            path.write_text(pasted(content, Fix(fix["changes"], fix["lines"])))
            assert run("check", str(path), "--json").json["findings"] == [], fix

    def test_of_accelerate_with_megatron_inside(self, run, tmp_path):
        path = tmp_path / "run.yaml"
        path.write_text(
            "distributed_type: MEGATRON_LM\nnum_processes: 12\nmegatron_lm_config:\n"
            "  megatron_lm_tp_degree: 4\n  megatron_lm_pp_degree: 2\n"
        )
        answer = run("check", str(path))
        assert "fix: num_processes: 8\n" in answer.out


class TestPage:
    def test_a_size_that_no_world_has(self, run, tmp_path):
        path = tmp_path / "args.json"
        path.write_text(f'{{"tensor_parallel_degree": {2**70}, "sharding": "stage1", "pipeline_parallel_degree": 2}}')
        answer = run("check", str(path), "-n", "8")
        assert answer.code == 1
        assert "read as paddlenlp" in answer.out
        assert "fix: \n" not in answer.out
        assert "do:  " in answer.out
        told = run("check", str(path), "-n", "8", "--json").json
        assert all(fix["lines"] for finding in told["findings"] for fix in finding["fixes"])

    def test_one_factor_is_told_once(self, run):
        assert (
            "  tp=3 does not divide the world of 8 ranks: 2 are left over" in run("check", "dp=? tp=3", "-n", "8").out
        )
        assert "  tp=3, the world has 8 ranks" in run("check", "tp=3", "-n", "8").out
        assert "  pp=3 × tp=2 = 6 does not divide" in run("check", "dp=? pp=3 tp=2", "-n", "8").out

    def test_an_empty_list_is_not_told(self):
        findings = check_job(read_config(f"{PRETRAIN} --num-layers 3", "megatron", world_size=8))
        found = only(findings, "RA130")
        assert found.numbers["offered"] == []
        for lang in ("en", "zh"):
            assert " -" not in found.told("message", lang)
            assert "是 -" not in found.told("message", lang)
        assert "an exact split" not in found.message

    def test_what_follows_from_a_layout_is_not_told_where_none_does(self, run, tmp_path):
        path = tmp_path / "run.sh"
        path.write_text(
            "torchrun --nnodes 1 --nproc-per-node 9 pretrain_gpt.py --tensor-model-parallel-size 2"
            " --micro-batch-size 1 --global-batch-size 64\n"
        )
        facts = run("check", str(path), "--json").json
        assert facts["notation"] is None
        names = [row["name"] for row in facts["understood"]]
        assert "global_batch" in names
        assert "accumulation" not in names

    def test_chinese(self, run):
        command = f"torchrun --nproc-per-node 8 {PRETRAIN} --num-layers 30 --account-for-loss-in-pipeline-split"
        answer = run("check", command, "--from", "megatron", "--lang", "zh")
        assert answer.out.startswith("命令行，")
        assert "# 代替 --account-for-loss-in-pipeline-split" in answer.out
        assert "the command line" not in answer.out
        assert "in the place of" not in answer.out

    def test_seeds_in_chinese(self, run, tmp_path):
        path = tmp_path / "args.json"
        path.write_text('{"enable_auto_parallel": true, "tensor_parallel_degree": 2, "sep_parallel_degree": 2}')
        (finding,) = run("check", str(path), "-n", "8", "--lang", "zh", "--json").json["findings"]
        assert finding["code"] == "RA181"
        assert "seeds" not in finding["message"]
        assert "mp=2" in finding["message"]
