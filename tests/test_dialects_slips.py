"""What Megatron or fleet would refuse or ignore is said: misspelt names, settings without effect, wrong pipelines."""

from __future__ import annotations

import json
import re

import pytest

from rankatlas.checks import check_job
from rankatlas.dialects import read_config
from rankatlas.dialects.megatron_names import slips
from rankatlas.dialects.slips import near
from rankatlas.dialects.writing import write_config
from rankatlas.errors import ArgumentsError, SourceError

BASE = "torchrun --nproc_per_node 8 x.py --num-layers 32 --num-attention-heads 32 --tensor-model-parallel-size 2"


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--pipeline-model-parallel-siz 4", "pipeline_model_parallel_size"),
        ("--pp-size 2", "pipeline_model_parallel_size"),
        ("--expert-model-paralel-size 2", "expert_model_parallel_size"),
        ("--context-parallel 2", "context_parallel_size"),
    ],
)
def test_a_misspelt_option(option, meant):
    notes = read_config(f"{BASE} {option}").notes
    wanted = f"is no option of Megatron-LM, which stops at it; did you mean {meant}?"
    assert [note for note in notes if wanted in note], notes


def test_a_misspelt_key(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("model:\n  tensor_model_parallel_sze: 4\n  pipeline_model_parallel_size: 2\n  num_layers: 8\n")
    notes = read_config(str(path), world_size=8).notes
    assert any("did you mean tensor_model_parallel_size?" in note for note in notes), notes


def test_nothing_but_a_misspelt_option():
    with pytest.raises(SourceError, match="did you mean tensor_model_parallel_size"):
        read_config("torchrun --nproc_per_node 8 x.py --tensor-model-parallel-siz 4")


def test_a_misspelt_degree_of_fleet(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"hybrid_configs": {"dp_degree": 2, "mp_degree": 2, "pp_degre": 2}}))
    notes = read_config(str(path)).notes
    assert any("pp_degre=2 is not understood and was left out; did you mean pp_degree?" in note for note in notes)


VERL = {"actor": {"ulysses_sequence_parallel_size": 2}, "rollout": {"tensor_model_parallel_size": 2}}
TITAN: dict[str, object] = {"training": {}}
ENGINE = {"train_batch_size": 8, "zero_optimization": {}}
GPU = {"train_batch_size": 8, "steps_per_print": 1, "train_micro_batch_size_per_gpu": 1}
SLIPS = [
    (ENGINE, {"sequence_paralel_size": 3}, "sequence_parallel_size"),
    (GPU, {"zero_optimisation": {"stage": 3}}, "zero_optimization"),
    (ENGINE, {"gradient_acumulation_steps": 8}, "gradient_accumulation_steps"),
    ({"tensor_parallel_degree": 2}, {"virtual_pp_degre": 4}, "virtual_pp_degree"),
    ({"tensor_parallel_degree": 2}, {"sequence_paralel": 1}, "sequence_parallel"),
    ({"tensor_parallel_degree": 2}, {"gradient_acumulation_steps": 8}, "gradient_accumulation_steps"),
    ({"hybrid_configs": {"dp_degree": 8}}, {"hybrid_configs": {"dp_degree": 8, "pp_degre": 1}}, "pp_degree"),
    ({"actor_rollout_ref": VERL}, {"trainer": {"n_gpus_per_nod": 8}}, "trainer.n_gpus_per_node"),
    ({}, {"actor_rollout_ref": {"rollout": {"tensor_model_paralel_size": 2}}}, "rollout.tensor_model_parallel_size"),
    ({}, {"actor_rollout_ref": {"actor": {"ulysses_sequence_paralel_size": 1}}}, "ulysses_sequence_parallel_size"),
    (TITAN, {"parallelism": {"tensor_parallel_degree": 2, "expert_paralel_degree": 8}}, "expert_parallel_degree"),
    ({"distributed_type": "FSDP"}, {"mixed_precison": "bf16"}, "mixed_precision"),
    ({"distributed_type": "FSDP"}, {"gradient_acumulation_steps": 8}, "gradient_accumulation_steps"),
    ({"model": {"tensor_model_parallel_size": 2}}, {"train": {"global_batch_sise": 8}}, "global_batch_size"),
]  # fmt: skip


@pytest.mark.parametrize(("real", "slip", "meant"), SLIPS, ids=lambda part: part if isinstance(part, str) else "")
def test_a_misspelt_key_of_any_dialect(tmp_path, real, slip, meant):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({**real, **slip}))
    notes = [
        note for note in read_config(str(path), world_size=8).notes if re.search(rf"did you mean [\w.]*{meant}\?", note)
    ]
    assert len(notes) == 1, notes
    path.write_text(json.dumps(real))
    try:
        notes = read_config(str(path), world_size=8).notes
    except SourceError:  # nothing else sets a degree
        notes = ()
    assert not any("did you mean" in note for note in notes), notes


def test_a_misspelt_key_that_would_say_the_world(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"actor_rollout_ref": VERL, "trainer": {"n_gpus_per_nod": 8, "nnodes": 1}}))
    with pytest.raises(SourceError, match=r"did you mean trainer\.n_gpus_per_node\?"):
        read_config(str(path))


def test_an_option_that_megatron_refuses_is_an_error():
    def severities(words):
        found = [one for one in check_job(read_config(words)) if one.code == "RA104"]
        return [one.severity for one in found if "did you mean" in str(one.numbers["note"])]

    assert severities(f"{BASE} --sequence-paralel") == ["error"]
    assert severities(f"{BASE} --pipeline-model-parallel-siz 2") == ["error"]
    assert severities(BASE) == []


def test_a_name_that_stands_beside_the_right_one_is_another():
    assert near({"train_iters": 1, "train_iter": 2}, ["train_iters"]) == {}
    assert near({"global_batch_size": 8}, ["local_batch_size", "global_batch_size"]) == {}
    assert near({"tp_size": 2, "dp_degree": 2}, ["ep_size", "pp_degree"]) == {}


def test_real_names_are_no_slips():
    names = [
        "virtual_pipeline_model_parallel_size",
        "sequence_parallel",
        "pipeline_model_parallel_layout",
        "ffn_hidden_size",
    ]
    assert slips(dict.fromkeys(names, 2), ()) == {}


def test_groups_of_queries_need_their_flag():
    job = read_config(f"{BASE} --num-query-groups 8")
    assert job.settings["kv_heads"].value == 32
    assert any("no effect without --group-query-attention" in note for note in job.notes)
    assert read_config(f"{BASE} --num-query-groups 8 --group-query-attention").settings["kv_heads"].value == 8


def test_layers_of_a_virtual_stage():
    words = f"{BASE} --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage"
    assert read_config(f"{words} 4").settings["virtual_stages"].value == 2
    uneven = read_config(f"{words} 3")  # a finding of the checks, RA134
    assert "virtual_stages" not in uneven.settings
    assert uneven.settings["virtual_stage_layers"].value == 3


@pytest.mark.parametrize("picture", ["Et*8|t*8|t*8|t*8|L", "Et*4|(t*4|)*7L"])
def test_parts_that_the_stages_do_not_divide(picture):
    with pytest.raises(ArgumentsError, match=r"has [59] parts, which 4 pipeline stages do not divide"):
        read_config(f'{BASE} --pipeline-model-parallel-size 4 --pipeline-model-parallel-layout "{picture}"')


@pytest.mark.parametrize("lines", [3, 100, 20_000, 500_000])
def test_a_log_without_a_configuration(tmp_path, lines):
    path = tmp_path / "x.log"
    path.write_text("iteration 100 loss 3.3 | lm loss: 1.0\n" * lines)
    with pytest.raises(SourceError, match="no framework's arguments are printed in it"):
        read_config(str(path), world_size=8)


def test_what_the_own_format_does_not_say():
    words = "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.tensor_model_parallel_size=2"
    words += " trainer.n_gpus_per_node=8 trainer.nnodes=1 actor_rollout_ref.actor.strategy=fsdp"
    words += " actor_rollout_ref.rollout.n=5 data.train_batch_size=64"
    losses = write_config(read_config(words), "rankatlas").losses
    assert any(loss.startswith("prompts=64 is not written") for loss in losses), losses
    assert any(loss.startswith("responses=5 is not written") for loss in losses), losses
    assert write_config(read_config("dp=2 tp=2"), "rankatlas").losses == []


class TestDynamicBatchesOfVerl:
    """With use_dynamic_bsz verl fills micro-batches up to a number of tokens, and asks for no size of them."""

    def job(self, tmp_path, **actor):
        content = {"data": {"train_batch_size": 12}, "trainer": {"n_gpus_per_node": 4, "nnodes": 1}}
        content["actor_rollout_ref"] = {
            "actor": {"strategy": "fsdp", "ppo_mini_batch_size": 12, "ppo_micro_batch_size_per_gpu": 5, **actor},
            "rollout": {"tensor_model_parallel_size": 1, "n": 1},
        }
        path = tmp_path / "verl.json"
        path.write_text(json.dumps(content))
        return read_config(str(path))

    def test_the_size_is_no_fact_and_the_note_says_why(self, tmp_path):
        job = self.job(tmp_path, use_dynamic_bsz=True, ppo_max_token_len_per_gpu=8192)
        assert "micro_batch" not in job.settings
        (note,) = [note for note in job.notes if "ppo_micro_batch_size_per_gpu=5" in note]
        assert "no effect with use_dynamic_bsz" in note
        assert "ppo_max_token_len_per_gpu=8192" in note
        assert any("16384" in note for note in self.job(tmp_path, use_dynamic_bsz=True).notes)

    def test_nothing_is_found_wrong_with_it(self, tmp_path):
        assert "RA151" in {finding.code for finding in check_job(self.job(tmp_path))}
        found = check_job(self.job(tmp_path, use_dynamic_bsz=True))
        assert not [finding for finding in found if "micro_batch" in finding.numbers]

    def test_a_batch_larger_than_the_step_is_no_error_then(self, tmp_path):
        severities = {
            on: [
                finding.severity
                for finding in check_job(self.job(tmp_path, ppo_mini_batch_size=24, use_dynamic_bsz=on))
                if finding.code == "RA162"
            ]
            for on in (True, False)
        }
        assert severities == {True: ["warning"], False: ["error"]}

    def test_off_it_counts(self, tmp_path):
        job = self.job(tmp_path, use_dynamic_bsz=False)
        assert job.settings["micro_batch"].value == 5
        assert not any("use_dynamic_bsz" in note for note in job.notes)

    def test_a_flag_that_waits(self):
        words = "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.tensor_model_parallel_size=1"
        words += " trainer.n_gpus_per_node=8 trainer.nnodes=1 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=5"
        job = read_config(f"{words} actor_rollout_ref.actor.use_dynamic_bsz=$DYN")
        assert "micro_batch" not in job.settings
        assert any("waits for DYN" in note for note in job.notes)
