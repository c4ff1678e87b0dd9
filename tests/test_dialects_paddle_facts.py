"""Fleet's `hybrid_configs` and PaddleFormers' arguments against the groups that Paddle 3.3.1 itself makes of them.

The tables under tests/golden were frozen from the installed frameworks (tools/facts/paddle_fleet_facts.py).
"""

from __future__ import annotations

import pytest

from golden import facts
from rankatlas import Atlas, Mesh
from rankatlas.checks.numbers import Numbers
from rankatlas.derived import data_axes, data_rank
from rankatlas.dialects.given import Given
from rankatlas.dialects.paddle import read
from rankatlas.errors import ArgumentsError, AxisError, RankatlasError
from rankatlas.sampling import DataShard
from rankatlas.views.facts import rank_facts

# Fleet's name of a family → the axes that may make up its groups.
PLAIN = {
    "pipe": ["pp"], "data": ["dp"], "model": ["mp"], "sharding": ["sharding"], "sep": ["sep"],
    "data*sep": ["dp", "sep"], "pipe*model": ["pp", "mp"],
}  # fmt: skip
EXPERTS = {
    "pipe": ["pp"], "expert": ["ep"], "moe_sharding": ["moe_sharding"], "model": ["mp"],
    "sharding": ["moe_sharding", "sharding", "cp"], "context": ["cp"], "context_sharding": ["moe_sharding", "sharding"],
}  # fmt: skip
OF_EXPERTS = ("pipe", "expert", "moe_sharding")  # families that fleet takes from the topology of the experts
STOPS = "stops on the ranks that it leaves out"


def lists(groups):
    return sorted(map(sorted, groups))


def assert_same_groups(layout, answer):
    names = PLAIN if isinstance(layout, Mesh) else EXPERTS
    compared = 0
    for family, groups in answer.items():
        if family not in names:
            assert family in ("data", "sep", "context_model")  # of size 1 with experts, or a sum of two others
            continue
        mesh = layout if isinstance(layout, Mesh) else layout["expert" if family in OF_EXPERTS else "dense"]
        axes = [axis for axis in names[family] if axis in mesh.axes]
        assert lists(mesh.groups(*axes)) == lists(groups), family
        compared += 1
    assert compared >= 4


def configs(fact):
    return Given({"hybrid_configs": fact["given"]}, source="fact")


def of_fact(fact):
    return f"{fact['world']}-{fact['given']}"


FLEET = facts("paddle_fleet", "fleet")


class TestFleet:
    def test_there_are_dozens_of_every_kind(self):
        fine = [fact for fact in FLEET if "answer" in fact and "stopped" not in fact]
        assert sum("order" in fact["given"] for fact in fine) >= 24
        assert sum("order" not in fact["given"] for fact in fine) >= 12
        assert sum(fact["given"].get("ep_degree", 1) > 1 for fact in fine) >= 24
        assert sum("error" in fact for fact in FLEET) >= 24
        assert sum("stopped" in fact for fact in FLEET) >= 4

    @pytest.mark.parametrize("fact", [fact for fact in FLEET if "answer" in fact], ids=of_fact)
    def test_groups(self, fact):
        job = read(configs(fact), "fleet", fact["world"])
        assert any(STOPS in note for note in job.notes) == ("stopped" in fact)
        if "stopped" not in fact:
            assert_same_groups(job.layout, fact["answer"])

    @pytest.mark.parametrize("fact", [fact for fact in FLEET if "error" in fact], ids=of_fact)
    def test_what_fleet_refuses_is_refused_or_said(self, fact):
        try:
            job = read(configs(fact), "fleet", fact["world"])
        except RankatlasError:
            return
        said = " ".join(job.notes)
        assert (
            ("fleet 3.3 refuses an order without" in said)
            if "not in list" in fact["error"]["message"]
            else ("not understood" in said)
        ), (said, fact["error"])

    def test_the_world_is_needed_where_fleet_computes_dp(self):
        with pytest.raises(RankatlasError, match="give the world size"):
            read(Given({"hybrid_configs": {"mp_degree": 2}}, source="fact"), "fleet", None)

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({"sharding_degree": 2}, "set dp_degree"),
            ({"dp_degree": 2, "cp_degree": 4}, "sep_degree"),
            ({"dp_degree": 8, "pp_degree": -1}, "pp_degree"),
            ({"dp_degree": 1, "ep_degree": 4, "order": ["dp", "pp", "sharding", "sep", "ep", "mp"]}, "moe_sharding"),
        ],
    )
    def test_a_refusal_says_what_to_do(self, given, told):
        with pytest.raises(RankatlasError, match=told):
            read(Given({"hybrid_configs": given}, source="fact"), "fleet", 8)


TRAINER = facts("paddleformers_fleet", "trainer")
STARTED = [fact for fact in TRAINER if isinstance(fact.get("data"), list)]
CONTEXT_ALONE = [
    fact
    for fact in TRAINER
    if fact["given"].get("context_parallel_size", 1) > 1 and "expert_model_parallel_size" not in fact["given"]
]


class TestPaddleFormers:
    def test_there_are_dozens_of_every_kind(self):
        assert len(STARTED) >= 40
        assert sum("expert_model_parallel_size" in fact["given"] for fact in STARTED) >= 24
        assert sum(fact["given"].get("context_parallel_size", 1) > 1 for fact in STARTED) >= 6
        assert len(CONTEXT_ALONE) >= 12

    @pytest.mark.parametrize("fact", STARTED, ids=of_fact)
    def test_groups_and_data(self, fact):
        job = read(Given(fact["given"], source="fact"), "paddleformers-1.2", fact["world"])
        assert_same_groups(job.layout, fact["answer"])
        dense = job.layout["dense"] if isinstance(job.layout, Atlas) else job.layout
        assert [list(data_rank(dense, rank)) for rank in range(fact["world"])] == fact["data"]

    @pytest.mark.parametrize("fact", CONTEXT_ALONE, ids=of_fact)
    def test_a_context_axis_without_experts_stops_the_trainer(self, fact):
        """Fleet gets no context axis, and the trainer raises when it asks for its place in the data."""
        assert "cp" not in fact.get("order", [])
        assert "context" not in fact.get("answer", {})
        error = fact.get("error") or fact["data"]["error"]
        with pytest.raises(ArgumentsError) as refusal:
            read(Given(fact["given"], source="fact"), "paddleformers-1.2", fact["world"])
        told = str(refusal.value).splitlines()[0]
        if "data" in fact:
            words = ("requires 'get_context_parallel_world_size' in hcg", "is not divisible by")
            assert any(word in error["message"] for word in words)
            assert words[0] in told
            assert "not divisible" in told

    def test_what_fleet_stops_on_is_said(self):
        stopped = [fact for fact in TRAINER if "stopped" in fact]
        assert stopped
        for fact in stopped:
            job = read(Given(fact["given"], source="fact"), "paddleformers-1.2", fact["world"])
            assert any(STOPS in note for note in job.notes)

    @pytest.mark.parametrize("fact", [fact for fact in TRAINER if "error" in fact], ids=of_fact)
    def test_what_is_refused_is_refused(self, fact):
        with pytest.raises(RankatlasError):
            read(Given(fact["given"], source="fact"), "paddleformers-1.2", fact["world"])


NLP = facts("paddlenlp_fleet", "trainer")
NLP_STARTED = [fact for fact in NLP if isinstance(fact.get("data"), list)]


class TestPaddleNLP:
    def test_there_are_dozens_with_and_without_experts(self):
        assert sum("use_expert_parallel" in fact["given"] for fact in NLP_STARTED) >= 24
        assert sum("use_expert_parallel" not in fact["given"] for fact in NLP_STARTED) >= 24

    @pytest.mark.parametrize("fact", NLP_STARTED, ids=of_fact)
    def test_groups_and_data(self, fact):
        job = read(Given(fact["given"], source="fact"), "paddlenlp-2.8", fact["world"])
        assert_same_groups(job.layout, fact["answer"])
        assert [list(data_rank(job.layout, rank)) for rank in range(fact["world"])] == fact["data"]

    @pytest.mark.parametrize("fact", [fact for fact in NLP if "error" in fact], ids=of_fact)
    def test_what_is_refused_is_refused(self, fact):
        with pytest.raises(RankatlasError):
            read(Given(fact["given"], source="fact"), "paddlenlp-2.8", fact["world"])


WITH_OUTER = [
    fact
    for fact in STARTED
    if isinstance(fact["data"], list)
    and fact["given"].get("expert_model_parallel_size", 1) > 1
    and fact["given"]["pipeline_model_parallel_size"] > 1
]


@pytest.mark.parametrize("fact", WITH_OUTER, ids=of_fact)
def test_all_count_the_same_data_ranks(fact):
    """`where`, `check` and `batches` on a layout whose sharding has a part outside the pipeline."""
    job = read(Given(fact["given"], source="fact"), "paddleformers-1.2", fact["world"])
    size = fact["data"][0][1]
    last = fact["world"] - 1
    charts = rank_facts(job, last)["charts"]
    assert [charts["dense"]["data"]["data_rank"], charts["dense"]["data"]["data_size"]] == fact["data"][last]
    assert charts["dense"]["unknown_roles"] == []
    assert "data" not in charts["expert"]
    assert Numbers.of(job)["dp"] == size
    dense = job.layout["dense"]
    axes = data_axes(dense)
    shard = DataShard(job.layout, [f"dense.{axis}" for axis in axes])
    assert [[shard.data_rank(rank), shard.data_size] for rank in range(fact["world"])] == fact["data"]
    if "moe_sharding" in dense.axes:
        with pytest.raises(AxisError, match=r"axes=\('moe_sharding', 'sharding',\)"):
            DataShard(job.layout)


def test_an_axis_of_experts_claims_no_data():
    assert data_axes(Mesh(pp=2, moe_sharding=2, ep=4)) == ()
    assert data_axes(Mesh(moe_sharding=2, pp=2, sharding=2, mp=2)) == ("moe_sharding", "sharding")
    assert data_axes(Mesh(dp=2, gtp_remat=2, tp=2)) == ("dp", "gtp_remat")
