"""Jobs written down in another framework's words: what is read again is the job, or the loss is named."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from launch_texts import STYLES, megatron_log
from rankatlas import Atlas, Mesh
from rankatlas.dialects import megatron, own, paddle, read_config
from rankatlas.dialects.given import Given
from rankatlas.dialects.scripts import read_script
from rankatlas.dialects.writing import write_config
from rankatlas.errors import LayoutChangeError, RankatlasError
from rankatlas.job import SETTINGS, Fact, Job
from rankatlas.pipeline import POLICIES
from refusals import refused

CASES = json.loads(Path(__file__, "../cases/launches.json").resolve().read_text(encoding="utf-8"))

sizes = st.sampled_from([1, 1, 2, 3, 4])
numbers = st.one_of(st.integers(1, 64), st.integers(1, 10**6))
OF_WORDS = {
    "stage_layers": st.lists(st.integers(1, 9), min_size=1, max_size=12),
    "layer_split": st.sampled_from(list(POLICIES)),
    "zero_stage": st.integers(0, 3),
    "sequence_parallel": st.booleans(),
    "linear_bias": st.booleans(),
    "fsdp": st.sampled_from(["torch FSDP2", "fsdp2"]),
    "cp_split": st.sampled_from(["contiguous", "balanced"]),
    "recompute": st.sampled_from(["full", "selective", "block"]),
    "precision": st.sampled_from(["bf16", "fp16", "fp32", "fp8"]),
}
every_setting = st.fixed_dictionaries({}, optional={name: OF_WORDS.get(name, numbers) for name in SETTINGS})


def job_of(layout, held=None, seed=None):
    return Job(
        layout, format="notation", source="", seed=seed, settings=[Fact(*item, "x") for item in (held or {}).items()]
    )


def read_again(text, to, world):
    if to == "rankatlas":
        return own.read(yaml.safe_load(text), "again", None)
    if to == "megatron":
        return megatron.read(read_script(text.replace("\n", " "), "again", {}), None, world)
    return paddle.read(Given(json.loads(text), source="again"), "paddleformers-1.2", world)


def groups_of(job):
    """Chart and axis of size > 1 → its groups."""
    return {
        (name, axis): [list(ranks) for ranks in mesh.groups(axis).ranges()]
        for name, mesh in job.layout.charts.items()
        for axis in mesh.axes
        if mesh.size(axis) > 1
    }


class TestWriting:
    @settings(max_examples=300, deadline=None)
    @given(pp=sizes, dp=sizes, cp=sizes, tp=sizes, held=every_setting, seed=st.none() | st.integers(0, 2**31))
    def test_what_is_written_is_read_as_it_was_or_named(self, pp, dp, cp, tp, held, seed):
        """Every setting there is, contradictory ones included: read again with its value, or told as a loss."""
        for to, layout in (
            ("rankatlas", Mesh(pp=pp, dp=dp, cp=cp, tp=tp)),
            ("megatron", Mesh(pp=pp, dp=dp, cp=cp, tp=tp)),
            ("paddle", Mesh(dp=dp, pp=pp, sharding=cp, sep=1, mp=tp)),
            ("paddle", Mesh(dp=dp, sharding=cp, pp=pp, sep=2, mp=tp)),
        ):
            written = write_config(job_of(layout, held, seed), to)
            again = read_again(written.text, to, layout.world_size)
            dense = again.layout if isinstance(again.layout, Mesh) else again.layout["dense"]
            assert [item for item in zip(dense.axes, dense.sizes) if item[1] > 1] == [
                item for item in zip(layout.axes, layout.sizes) if item[1] > 1
            ]
            assert again.seed == seed
            assert not any("exclude each other" in note for note in again.notes)
            for name, value in held.items():
                lost = [loss for loss in written.losses if loss.startswith(f"{name}=")]
                kept = name in again.settings and again.settings[name].value == value
                assert kept != bool(lost), (to, name, lost)
                assert not lost or to != "rankatlas"

    @pytest.mark.parametrize(
        ("held", "options"),
        [
            ({"microbatch_group": 6}, ["--microbatch-group-size-per-virtual-pipeline-stage 6"]),
            ({"virtual_stage_layers": 3}, ["--num-layers-per-virtual-pipeline-stage 3"]),
            (
                {"virtual_stage_layers": 3, "virtual_stages": 4, "layers": 24},
                ["--num-layers 24", "--num-layers-per-virtual-pipeline-stage 3"],
            ),
            ({"virtual_stages": 4, "microbatch_group": 2}, ["--num-virtual-stages-per-pipeline-rank 4", "stage 2"]),
            ({"first_stage_layers": 3, "last_stage_layers": 5}, ["first-pipeline-num-layers 3", "num-layers 5"]),
            ({"stage_layers": [3, 2]}, ["--pipeline-model-parallel-layout"]),
            ({"layer_split": "embedding-and-loss"}, ["account-for-embedding", "account-for-loss"]),
            ({"heads": 8, "kv_heads": 2}, ["--num-attention-heads 8", "--group-query-attention --num-query-groups 2"]),
            ({"micro_batch": 2, "accumulation": 3}, ["--global-batch-size 12", "--micro-batch-size 2"]),
            (
                {"hidden": 8, "ffn": 32, "vocab": 100, "vocab_multiple": 4, "experts": 4, "expert_ffn": 16},
                ["--hidden-size 8", "--ffn-hidden-size 32", "--vocab-size 100", "--moe-ffn-hidden-size 16"],
            ),
        ],
    )
    def test_megatron_says_all_of_it(self, held, options):
        written = write_config(job_of(Mesh(pp=2, dp=2, cp=1, tp=2), held), "megatron")
        assert written.losses == []
        assert [option for option in options if option not in written.text] == []
        assert not any("exclude" in note for note in read_again(written.text, "megatron", 8).notes)

    @pytest.mark.parametrize(
        ("held", "lost"),
        [
            ({"stage_layers": [2, 2], "first_stage_layers": 2}, "first_stage_layers=2"),
            ({"stage_layers": [2, 2], "virtual_stage_layers": 2}, "virtual_stage_layers=2"),
            ({"stage_layers": [2, 2, 2]}, r"stage_layers=\[2, 2, 2\]"),
            ({"layer_split": "loss", "last_stage_layers": 2}, "last_stage_layers=2"),
            ({"first_stage_layers": 2, "virtual_stage_layers": 2}, "virtual_stage_layers=2"),
            ({"virtual_stages": 2, "virtual_stage_layers": 2, "layers": 16}, "virtual_stage_layers=2"),
        ],
    )
    def test_of_two_ways_megatron_gets_one_and_the_other_is_named(self, held, lost):
        written = write_config(job_of(Mesh(pp=2, dp=2, cp=1, tp=2), held), "megatron")
        (loss,) = written.losses
        assert re.match(lost, loss)
        assert "Megatron" in loss
        assert not any("exclude" in note for note in read_again(written.text, "megatron", 8).notes)

    def test_paddle_gets_the_accumulation_that_a_global_batch_needs(self):
        held = {"global_batch": 48, "micro_batch": 2}
        written = write_config(job_of(Mesh(dp=2, pp=2, sharding=2, mp=2), held), "paddle")
        assert json.loads(written.text)["gradient_accumulation_steps"] == 6
        assert written.losses == []

    def test_experts(self):
        atlas = Atlas(dense=Mesh(pp=2, dp=4, tp=2), expert=Mesh(pp=2, edp=2, ep=4, etp=1), shared=("pp",))
        assert "--expert-model-parallel-size 4" in write_config(job_of(atlas), "megatron").text

    @settings(max_examples=100, deadline=None)
    @given(
        pp=st.sampled_from([1, 2, 4]),
        tp=st.sampled_from([1, 2]),
        ep=st.sampled_from([2, 4, 8]),
        more=st.sampled_from([1, 2, 4]),
        cp=st.sampled_from([1, 1, 2]),
        order=st.sampled_from(["pp_first", "sharding_first"]),
    )
    def test_experts_of_paddleformers_are_written_and_read_again(self, pp, tp, ep, more, cp, order):
        arguments = {
            "tensor_model_parallel_size": tp, "pipeline_model_parallel_size": pp, "expert_model_parallel_size": ep,
            "use_expert_parallel": True, "sharding": "stage1", "sharding_parallel_size": ep * more * cp,
            "context_parallel_size": cp, "hybrid_parallel_topo_order": order,
        }  # fmt: skip
        world = tp * pp * ep * more * cp
        try:
            job = paddle.read(Given(arguments, source="x"), "paddleformers-1.2", world)
        except RankatlasError:
            assume(False)
        assert groups_of(read_again(write_config(job, "paddle").text, "paddle", world)) == groups_of(job)

    def test_experts_of_megatron_that_paddle_can_have(self):
        lines = "x.py --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --expert-model-parallel-size 4"
        job = read_config(f"{lines} --expert-tensor-parallel-size 1", "megatron", world_size=16)
        again = read_again(write_config(job, "paddle").text, "paddle", 16)
        for axis in ("ep", "pp"):
            assert groups_of(again)["expert", axis] == groups_of(job)["expert", axis]
        job = read_config(f"{lines} --expert-tensor-parallel-size 2", "megatron", world_size=16)
        with refused(LayoutChangeError, "paddle", "expert axes"):
            write_config(job, "paddle")

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
    def test_every_launch_is_written_for_rankatlas(self, tmp_path, case):
        write, name = STYLES[case["style"]]
        path = tmp_path / name
        path.write_text(write(case["facts"]), encoding="utf-8")
        job = read_config(str(path), world_size=case.get("world"))
        written = tmp_path / "job.yaml"
        written.write_text(write_config(job, "rankatlas").text, encoding="utf-8")
        again = read_config(str(written))
        assert (again.layout, again.seed) == (job.layout, job.seed)
        assert {name: fact.value for name, fact in again.settings.items()} == {
            name: fact.value for name, fact in job.settings.items()
        }

    @pytest.mark.parametrize(
        ("layout", "to", "words"),
        [
            (Mesh(dp=2, sep=2), "megatron", "'sep' of size 2 has no place in megatron"),
            (Mesh(rows=2), "megatron", "no axis whose purpose is known"),
            (Mesh(tp=2, dp=2), "megatron", "order cannot be written"),
            (Mesh(dp=2, cp=2), "paddle", "'cp' of size 2 has no place in paddle"),
            (Mesh(pp=2, dp=2), "paddle", "order cannot be written"),
            (Mesh(dp=2, first_rank=4), "megatron", "begins at rank 4"),
            (Atlas(train=Mesh(dp=2), rollout=Mesh(tp=2)), "megatron", "train, rollout"),
            (Atlas(dense=Mesh(dp=2, tp=2), expert=Mesh(ep=2, etp=2)), "paddle", "no order of it gives these groups"),
            (Atlas(dense=Mesh(dp=2, sep=2), expert=Mesh(edp=2, ep=2)), "paddle", "no place in paddle with experts"),
            (Mesh(dp=2), "deepspeed", "rankatlas, megatron, paddle"),
        ],
    )
    def test_what_a_target_cannot_express_is_named(self, layout, to, words):
        with pytest.raises(LayoutChangeError, match=words):
            write_config(job_of(layout), to)

    def test_the_verb(self, tmp_path):
        case = next(case for case in CASES if case["id"] == "megatron21_t1_39.1B")
        path = tmp_path / "train.log"
        path.write_text(megatron_log(case["facts"]), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "rankatlas", "convert", str(path), "--to", "megatron"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        assert "--pipeline-model-parallel-size 2" in done.stdout
