"""Checks against what a framework itself demands of its settings: sources as people write them, and their fixes."""

import pytest

from rankatlas.checks import Numbers, check_job
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
            assert "RA120" not in codes(check_job(read_config(written(path, changed), "paddleformers-1.2", world_size=64)))


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
