"""Readers against the frameworks: the groups of the mesh that is read are those the framework itself builds.

The tables under tests/golden were frozen from the installed frameworks (tools/freeze_facts.py).
"""

from __future__ import annotations

import json

import numpy
import pytest

from golden import facts
from rankatlas import Atlas, Mesh
from rankatlas.dialects import read_config
from rankatlas.errors import ArgumentsError, DegreeError, RankatlasError, WorldSizeError


@pytest.fixture
def read(tmp_path):
    def reader(content, format=None, world=None, name="config.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return read_config(str(path), format, world_size=world)

    return reader


def lists(groups):
    return sorted(map(list, groups))


def chart(layout, name):
    return layout if isinstance(layout, Mesh) else layout[name]


# Megatron's getter → the chart and the axes whose group it gives.
MEGATRON = {
    "tensor_model_parallel": ("dense", ["tp"]),
    "pipeline_model_parallel": ("dense", ["pp"]),
    "context_parallel": ("dense", ["cp"]),
    "data_parallel": ("dense", ["dp"]),
    "data_parallel with cp": ("dense", ["dp", "cp"]),
    "model_parallel": ("dense", ["pp", "tp"]),
    "tensor_and_context_parallel": ("dense", ["cp", "tp"]),
    "tensor_and_data_parallel": ("dense", ["dp", "tp"]),
    "tensor_and_data_parallel with cp": ("dense", ["dp", "cp", "tp"]),
    "expert_model_parallel": ("expert", ["ep"]),
    "expert_tensor_parallel": ("expert", ["etp"]),
    "expert_tensor_and_model_parallel": ("expert", ["ep", "etp"]),
    "expert_tensor_model_pipeline_parallel": ("expert", ["pp", "ep", "etp"]),
    "expert_data_parallel": ("expert", ["edp"]),
}
MAPPINGS = {None: False, "tp-cp-ep-dp-pp": False, "tp-cp-ep-pp-dp": True}


MEGATRON_ASKED = [fact for fact in facts("megatron_live", "live") if fact["given"].get("order") in MAPPINGS]


class TestMegatron:
    def test_there_are_dozens_with_experts_and_both_orders(self):
        assert len(MEGATRON_ASKED) >= 40
        assert sum("expert_model_parallel_size" in fact["given"] for fact in MEGATRON_ASKED) >= 15
        assert any(MAPPINGS[fact["given"].get("order")] for fact in MEGATRON_ASKED)

    @pytest.mark.parametrize(
        "fact", MEGATRON_ASKED, ids=lambda fact: f"{fact['world']}-{sorted(fact['given'].items())}"
    )
    def test_groups(self, read, fact):
        given = {name: value for name, value in fact["given"].items() if name != "order"}
        given |= {"use_tp_pp_dp_mapping": MAPPINGS[fact["given"].get("order")], "num_experts": 8, "num_layers": 12}
        if "error" in fact["seen"][0]:
            with pytest.raises(RankatlasError):
                read(given, "megatron", fact["world"])
            return
        layout = read(given, "megatron", fact["world"]).layout
        for seen in fact["seen"]:
            for name, ranks in seen["groups"].items():
                part, axes = MEGATRON[name]
                assert chart(layout, part).group(*axes, rank=seen["rank"]).ranks == ranks, (name, seen["rank"])

    @pytest.mark.parametrize("swapped", [False, True])
    def test_the_weight_shards_of_later_releases(self, read, swapped):
        """tp-gtp_remat-cp-ep-dp-pp for dense layers, tp-cp-ep-gtp_remat-dp-pp for experts, innermost first."""
        given = {
            "tensor_model_parallel_size": 2, "tensor_parallel_num_weight_shards": 4, "context_parallel_size": 2,
            "num_experts": 8, "expert_model_parallel_size": 2, "expert_tensor_parallel_size": 1,
            "expert_tensor_parallel_num_weight_shards": 2, "use_tp_pp_dp_mapping": swapped,
            "pipeline_model_parallel_size": 1 if swapped else 2,
        }  # fmt: skip
        job = read(given, None, 32)
        assert job.format == "megatron-head"
        dense = ("dp", "pp") if swapped else ("pp", "dp")
        assert chart(job.layout, "dense").axes == (*dense, "cp", "gtp_remat", "tp")
        expert = tuple({"dp": "edp"}.get(axis, axis) for axis in dense)
        assert chart(job.layout, "expert").axes == (*expert, "egtp_remat", "ep", "etp")
        assert chart(job.layout, "expert").sizes[2:] == (2, 2, 1)


# Fleet's name → the axes that may make up its group.
PADDLE = {
    "pipe": ["pp"], "expert": ["ep"], "moe_sharding": ["moe_sharding"], "model": ["mp"],
    "sharding": ["moe_sharding", "sharding", "cp"], "context": ["cp"], "context_sharding": ["moe_sharding", "sharding"],
}  # fmt: skip


class TestPaddleExperts:
    @pytest.mark.parametrize("fact", facts("paddle_experts"), ids=lambda fact: f"{fact['order']}-{fact['sizes']}")
    def test_groups(self, read, fact):
        sizes = fact["sizes"]
        world = sizes["pipe"] * sizes["sharding"] * sizes["model"]
        given = {
            "tensor_model_parallel_size": sizes["model"], "pipeline_model_parallel_size": sizes["pipe"],
            "sharding": "stage1", "context_parallel_size": sizes["context"], "use_expert_parallel": True,
            "expert_model_parallel_size": sizes["expert"],
            "reorder_pipeline_priority": fact["order"].startswith("reorder"),
        }  # fmt: skip
        if not given["reorder_pipeline_priority"]:
            given["hybrid_parallel_topo_order"] = fact["order"]
        try:
            job = read(given, None, world)
        except ArgumentsError as error:
            assert "would reach over the pipeline stages" in str(error)  # noqa: PT017
            assert (sizes["sharding"] // sizes["moe_sharding"]) % sizes["context"] != 0
            assert sizes["pipe"] > 1
            return
        broken = any("fleet 3.3 makes" in note for note in job.notes)
        assert broken == (fact["order"] == "pp_first" and min(sizes["pipe"], sizes["moe_sharding"]) > 1)
        for name, groups in fact["answer"].items():
            axes = PADDLE.get(name)
            if axes is None or (broken and name in ("sharding", "context", "context_sharding")):
                continue
            mesh = chart(job.layout, "expert" if name in ("expert", "moe_sharding") else "dense")
            there = [axis for axis in axes if axis in mesh.axes]
            assert lists(mesh.groups(*there)) == sorted(map(sorted, groups)), name

    def test_fleets_groups_do_overlap_where_it_is_noted(self):
        fact = next(
            fact
            for fact in facts("paddle_experts")
            if fact["order"] == "pp_first" and min(fact["sizes"]["pipe"], fact["sizes"]["moe_sharding"]) > 1
        )
        ranks = [rank for group in fact["answer"]["sharding"] for rank in group]
        assert len(set(ranks)) < len(ranks)


class TestDeepspeedExperts:
    @pytest.mark.parametrize("fact", facts("deepspeed_experts"), ids=lambda fact: f"{fact['world']}-{fact['given']}")
    def test_groups(self, read, fact):
        given = fact["given"]
        content = {
            "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1},
            "pipeline_parallel_size": given["pipeline_parallel_size_"], "ep_size": given["expert_parallel_size_"],
            "tensor_parallel": {"autotp_size": given["tensor_parallel_size_"]},
            "use_data_before_expert_parallelism": given["use_data_before_expert_parallel_"],
        }  # fmt: skip
        if "error" in fact:
            with pytest.raises(DegreeError):
                read(content, None, fact["world"])
            return
        expert = chart(read(content, None, fact["world"]).layout, "expert")
        groups, data_groups = fact["answer"]
        assert lists(expert.groups("ep")) == sorted(map(sorted, groups))
        assert lists(expert.groups("expert_data")) == sorted(map(sorted, data_groups))


class TestDeepspeedWorld:
    """`world_size` in a log are the ranks a batch is split over, not all of them."""

    @pytest.mark.parametrize("fact", facts("deepspeed_world"), ids=lambda fact: f"{fact['given']}-{fact['grid']}")
    def test_how_many_ranks_a_log_is_of(self, tmp_path, fact):
        path = tmp_path / "run.log"
        path.write_text(f"[INFO]   {fact['line']}\n[INFO]   json = {json.dumps(fact['given'], indent=4)}\n")
        names = {"pipe": "pipe_parallel_size", "model": "model_parallel_size"}
        sets = {names[axis]: str(size) for axis, size in (fact["grid"] or {}).items()}
        job = read_config(str(path), "deepspeed", sets=sets)
        assert job.layout.world_size == fact["world"]
        assert not any("ranks" in note for note in job.notes)


DENSE = facts("deepspeed", "dense")


class TestDeepspeed:
    def test_there_are_dozens(self):
        assert len(DENSE) >= 24

    @pytest.mark.parametrize("fact", DENSE, ids=lambda fact: str(fact["given"]))
    def test_groups(self, read, fact):
        content = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 1}}
        content["pipeline_parallel_size"] = fact["given"]["num_pp"]
        content["tensor_parallel"] = {"autotp_size": fact["given"]["num_mp"]}
        mesh = read(content, None, fact["world"]).layout
        for axis in ("pipe", "data", "model"):  # a family of one rank each has no list
            groups = fact["comm_lists"][axis] or [[rank] for rank in range(fact["world"])]
            assert lists(mesh.groups(axis)) == sorted(map(sorted, groups)), axis


TITAN_AXES = {
    "pp": ["pp"], "batch": ["dp_replicate", "dp_shard"], "dp": ["dp_replicate", "dp_shard"],
    "loss": ["dp_replicate", "dp_shard", "cp"], "dp_replicate": ["dp_replicate"], "cp": ["cp"], "tp": ["tp"],
    "dp_shard": ["dp_shard"], "ep": ["ep"], "efsdp": ["efsdp"],
}  # fmt: skip
TITAN_NAMES = {
    "pp": "pipeline_parallel_degree", "dp_replicate": "data_parallel_replicate_degree",
    "dp_shard": "data_parallel_shard_degree", "cp": "context_parallel_degree", "tp": "tensor_parallel_degree",
    "ep": "expert_parallel_degree",
}  # fmt: skip


class TestTorchtitan:
    def test_there_are_dozens_with_experts(self):
        fine = [fact for fact in facts("torchtitan") if "answer" in fact]
        assert sum(fact["given"]["ep"] > 1 for fact in fine) >= 24
        assert sum(fact["given"]["ep"] == 1 for fact in fine) >= 24

    @pytest.mark.parametrize("fact", facts("torchtitan"), ids=lambda fact: f"{fact['world']}-{fact['given']}")
    def test_groups(self, read, fact):
        given = fact["given"]
        content = {"parallelism": {TITAN_NAMES[axis]: size for axis, size in given.items()}}
        if "error" in fact:
            with pytest.raises(DegreeError):
                read(content, None, fact["world"])
            return
        layout = read(content, None, fact["world"]).layout
        for name, ranks in fact["answer"].items():
            part = "sparse" if name in ("ep", "efsdp") else "dense"
            if part == "sparse" and given["ep"] == 1:
                continue
            assert sorted(chart(layout, part).group(*TITAN_AXES[name], rank=fact["rank"])) == ranks, name


MEANT = [fact for fact in facts("accelerate") if "answer" in fact]


class TestAccelerate:
    @pytest.mark.parametrize("fact", MEANT, ids=lambda fact: str(fact["given"]))
    def test_the_mesh(self, read, fact):
        layout = read(fact["given"], "accelerate").layout
        names, shape = fact["answer"]
        assert [(axis, size) for axis, size in zip(layout.axes, layout.sizes) if size > 1] == list(zip(names, shape))


class TestVerl:
    @pytest.mark.parametrize("fact", facts("verl", "fsdp"), ids=lambda fact: f"{fact['world']}-{fact['fsdp_size']}")
    def test_the_trainer(self, read, fact):
        size = fact["fsdp_size"]
        content = {"actor_rollout_ref": {"actor": {"strategy": "fsdp", "fsdp_config": {"fsdp_size": size}}}}
        content["actor_rollout_ref"]["rollout"] = {"tensor_model_parallel_size": 1}
        train = read(content, None, fact["world"]).layout["train"]
        names, shape = fact["answer"]
        assert list(train.sizes) == shape
        assert [{"dp_replicate": "ddp"}.get(axis, axis) for axis in train.axes] == names

    @pytest.mark.parametrize("fact", facts("verl", "ulysses"), ids=lambda fact: f"{fact['world']}-{fact['size']}")
    def test_the_parts_of_sequences(self, read, fact):
        content = {"actor_rollout_ref": {"actor": {"strategy": "fsdp", "ulysses_sequence_parallel_size": fact["size"]}}}
        content["actor_rollout_ref"]["rollout"] = {"tensor_model_parallel_size": 1}
        layout = read(content, None, fact["world"]).layout
        if fact["answer"] is None:
            assert "ulysses" not in layout.charts
            return
        names, shape = fact["answer"]
        assert (list(layout["ulysses"].axes), list(layout["ulysses"].sizes)) == (names, shape)

    @pytest.mark.parametrize("fact", facts("verl", "rollout"), ids=lambda fact: f"{fact['world']}-{fact['given']}")
    def test_the_engines(self, read, fact):
        content = {"actor_rollout_ref": {"actor": {}, "rollout": fact["given"]}}
        if "error" in fact:
            with pytest.raises(DegreeError):
                read(content, None, fact["world"])
            return
        rollout = read(content, None, fact["world"]).layout["rollout"]
        names, shape = fact["answer"]
        assert list(rollout.sizes) == shape
        assert [{"tp": "infer_tp", "pp": "infer_pp"}.get(axis, axis) for axis in rollout.axes] == names


NEMO = {"pipeline_parallel": "pp", "data_parallel": "dp", "context_parallel": "cp", "tensor_parallel": "tp"}


def along(names, ranks, axis):
    """The groups along one of the named dimensions of nested lists of ranks."""
    moved = numpy.moveaxis(numpy.asarray(ranks), names.index(axis), -1)
    return sorted(map(sorted, moved.reshape(-1, moved.shape[-1]).tolist()))


class TestNemoRl:
    def test_there_are_dozens_of_every_kind(self):
        for kind in ("policy", "engines", "cluster"):
            assert sum("answer" in fact for fact in facts("nemo_rl", kind)) >= 24, kind

    def read(self, read, world, policy, generation=None, nodes=1):
        content = {"policy": {**policy, **({"generation": generation} if generation else {})}}
        content["cluster"] = {"gpus_per_node": world // nodes, "num_nodes": nodes}
        return read(content, "nemo-rl")

    @pytest.mark.parametrize("fact", facts("nemo_rl", "policy"), ids=lambda fact: f"{fact['world']}-{fact['given']}")
    def test_the_policy(self, read, fact):
        if "error" in fact:
            with pytest.raises(WorldSizeError):
                self.read(read, fact["world"], fact["given"])
            return
        layout = self.read(read, fact["world"], fact["given"]).layout
        names, ranks = fact["answer"]
        for name in names:
            axes = [axis for axis in (NEMO[name],) if axis in layout.axes]
            assert lists(layout.groups(*axes)) == along(names, ranks, name), name

    @pytest.mark.parametrize("fact", facts("nemo_rl", "worker"), ids=lambda fact: f"{fact['world']}-{fact['given']}")
    def test_the_mesh_of_a_worker(self, read, fact):
        layout = self.read(read, fact["world"], fact["given"]).layout
        assert [list(layout.axes), list(layout.sizes)] == fact["answer"]

    @pytest.mark.parametrize("fact", facts("nemo_rl", "engines"), ids=lambda fact: f"{fact['world']}-{fact['given']}")
    def test_the_engines(self, read, fact):
        asked = {"backend": "vllm", "vllm_cfg": fact["given"]}
        policy = {"dtensor_cfg": {"enabled": True, "tensor_parallel_size": 1, "context_parallel_size": 1}}
        if "error" in fact:
            with pytest.raises(DegreeError):
                self.read(read, fact["world"], policy, asked)
            return
        rollout = self.read(read, fact["world"], policy, asked).layout["rollout"]
        names, ranks = fact["answer"]
        for name in names:
            assert lists(rollout.groups(NEMO[name])) == along(names, ranks, name), name

    @pytest.mark.parametrize("fact", facts("nemo_rl", "cluster"), ids=lambda fact: str(fact["given"]))
    def test_who_trains_and_who_generates(self, read, fact):
        cluster, asked = fact["given"]["cluster"], fact["given"]["generation"]
        asked = {**asked, "vllm_cfg": {"tensor_parallel_size": 1, "pipeline_parallel_size": 1}}
        policy = {"dtensor_cfg": {"enabled": True, "tensor_parallel_size": 1, "context_parallel_size": 1}}
        world = cluster["gpus_per_node"] * cluster["num_nodes"]
        if "error" in fact:
            with pytest.raises(RankatlasError):
                self.read(read, world, policy, asked, cluster["num_nodes"])
            return
        layout = self.read(read, world, policy, asked, cluster["num_nodes"]).layout
        (train_each, train_nodes), (each, nodes) = fact["answer"]
        assert layout["train"].world_size == train_each * train_nodes
        assert layout["rollout"].world_size == each * nodes
        apart = not asked["colocated"]["enabled"]
        assert layout["rollout"].first_rank == (layout["train"].world_size if apart else 0)


def test_what_nemo_rl_places_elsewhere_is_said(read):
    policy = {"dtensor_cfg": {"enabled": True, "tensor_parallel_size": 1, "context_parallel_size": 1}}
    content = {"policy": policy, "cluster": {"gpus_per_node": 8, "num_nodes": 4, "segment_size": 2}}
    content["env"] = {"reward_model": {"resources": {"num_nodes": 1, "gpus_per_node": 8}}}
    notes = " ".join(read(content, "nemo-rl").notes)
    assert "env.reward_model.resources (num_nodes=1, gpus_per_node=8)" in notes
    assert "cluster.segment_size=2" in notes


def test_nothing_is_an_atlas_that_has_one_layout(read):
    assert isinstance(read({"num_layers": 2, "micro_batch_size": 1, "hidden_size": 8}, "megatron", 4).layout, Mesh)
    assert isinstance(read({"num_experts": 4}, "megatron", 4).layout, Atlas)


def test_a_world_that_does_not_fit_names_the_origins(read):
    with pytest.raises(WorldSizeError, match=r"tp=3 \(given: tensor_model_parallel_size\)"):
        read({"tensor_model_parallel_size": 3, "num_layers": 2}, "megatron", 8)
