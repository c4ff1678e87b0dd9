"""`live.agree` in real processes: whatever goes wrong, every live rank says the same, in bounded time."""

import argparse
import functools
import json
import subprocess
import sys
import time
from enum import Enum

import numpy
import pytest
import torch

from rankatlas import Atlas, Mesh, live
from rankatlas.errors import InputError, JobError, RankSilent
from rankatlas.live.agree import _camps
from rankatlas.live.fields import flat, layout_fields, plain
from rankatlas.live.jobs import current_job, identity, refuse_other_world, within
from test_live_groups import HERE, environment, free_ports, paddle_environments, run_all

TIMEOUT = 1.5  # of live_agree_torch.py
MOST = TIMEOUT + 5


@functools.cache
def matrix():
    """Every scenario in one go: torch is imported once, and the ranks are forks of that process."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(HERE / "live_agree_torch.py"), folder],
            env=environment(GLOO_SOCKET_IFNAME="lo"),
            capture_output=True,
            text=True,
            timeout=100,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture
def said():
    pytest.importorskip("torch")
    return matrix()


def all_told(answers, error, *words):
    """Every one of these ranks raised `error`, in time, with these words."""
    for answer in answers:
        assert answer is not None
        assert answer["error"] == error, answer
        assert answer["seconds"] < MOST
        for word in words:
            assert word in answer["text"]


@pytest.mark.live
class TestEightLiveRanks:
    @pytest.mark.parametrize(
        "form", ["mesh", "atlas", "notation", "dict", "megatron", "torchtitan", "accelerate", "trainer"]
    )
    def test_the_same_in_every_form(self, said, form):
        assert [answers[f"as {form}"]["error"] for answers in said["healthy"]] == [None] * 8

    @pytest.mark.parametrize("step", ["again", "extra", "after all that", "verify"])
    def test_they_agree(self, said, step):
        assert [answers[step]["error"] for answers in said["healthy"]] == [None] * 8

    @pytest.mark.parametrize(
        ("step", "odd", "line"),
        [
            ("another order", [5], "order is 'pp tp dp', elsewhere 'pp dp tp'"),
            ("half another order", [4, 5, 6, 7], "order is 'pp tp dp', elsewhere 'pp dp tp'"),
            ("another size", [5], "tp is 4, elsewhere 2"),
            ("another extra", [5], "extra.batch.global is 500, elsewhere 512"),
            ("another argument", [5], "tensor_model_parallel_size is 4, elsewhere 2"),
            ("field only there", [5], "extra.seed is 1, elsewhere not given"),
            ("all different", [1, 2, 3, 4, 5, 6, 7], "extra.rank is 6, elsewhere 0"),
        ],
    )
    def test_a_difference_is_named_on_every_rank(self, said, step, odd, line):
        answers = [answers[step] for answers in said["healthy"]]
        all_told(answers, "LayoutMismatch", line, f"{8 - len(odd)} of 8 agree")
        assert [answer["odd_ranks"] for answer in answers] == [odd] * 8
        assert [answer["rank"] for answer in answers] == list(range(8))
        assert sorted(rank for camp in answers[0]["camps"] for rank in camp["ranks"]) == odd
        assert all(len(camp["hosts"]) == 1 for camp in answers[0]["camps"])
        assert max(answer["seconds"] for answer in answers) < MOST

    def test_no_state_of_the_job_changes(self, said):
        assert [answers["nothing changed"] for answers in said["healthy"]] == [True] * 8


GAP = Atlas(a=Mesh(x=2), b=Mesh(y=2, first_rank=3))  # as many ranks as the job has, and not the same


@pytest.mark.live
class TestSilence:
    def test_a_rank_that_comes_too_late(self, said):
        all_told(said["late"], "RankSilent", "rank 3 of 4 did not come to the agreement within 1.5 s")
        assert [answer["ranks"] for answer in said["late"]] == [[3]] * 4

    def test_rank_0_comes_too_late(self, said):
        assert [answer["error"] for answer in said["rank 0 late"]] == ["RankSilent"] * 4
        first, *others = said["rank 0 late"]
        assert first["ranks"][0] in (1, 2, 3)
        assert [answer["ranks"] for answer in others] == [[0]] * 3

    def test_rank_0_tells_before_it_takes_the_store_away(self, said):
        all_told(said["differs and goes"], "LayoutMismatch", "rank 3 on", "3 of 4 agree")
        *there, absent = said["absent and goes"]
        assert absent is None
        all_told(there, "RankSilent", "rank 3 of 4 did not come")

    def test_a_rank_that_is_dead(self, said):
        *living, dead = said["dies before"]
        assert dead is None
        all_told(living, "RankSilent", "rank 3 of 4 did not come")

    def test_a_rank_that_dies_after_its_word(self, said):
        living = [answer for rank, answer in enumerate(said["dies after"]) if rank != 2]
        assert said["dies after"][2] is None
        assert [answer["error"] for answer in living] == [None] * 3

    def test_rank_0_never_comes(self, said):
        dead, *living = said["rank 0 dies before"]
        assert dead is None
        all_told(living, "RankSilent", "rank 0 gave no answer", "it never came")
        assert [answer["ranks"] for answer in living] == [[0]] * 3

    def test_rank_0_dies_after_its_word(self, said):
        dead, *living = said["rank 0 dies after"]
        assert dead is None
        all_told(living, "RankSilent", "rank 0 gave no answer", "fell silent")

    def test_rank_0_is_killed_and_the_store_with_it(self, said):
        dead, *living = said["keeper killed"]
        assert dead is None
        all_told(living, "RankSilent", "lost the store of the job", "rank 0, or whoever keeps it, is gone")
        assert max(answer["seconds"] for answer in living) < TIMEOUT

    def test_rank_0_is_stopped_and_the_store_with_it(self, said):
        dead, *living = said["keeper stopped"]
        assert dead is None
        all_told(living, "RankSilent", "has not answered", "rank 0")


@pytest.mark.live
def test_a_second_job_on_the_same_store(said):
    assert [answer["error"] for answer in said["first job"]] == [None] * 4
    all_told(said["second job"], "JobError", "a second job uses the same store", "was announced before, by")


@pytest.mark.live
def test_the_fake_backend_is_skipped(said):
    (answer,) = said["fake"]
    assert answer["error"] is None
    assert "cannot be written" in answer["skipped"]


@pytest.mark.live
def test_paddle(tmp_path):
    pytest.importorskip("paddle")
    world = 4
    master, *ports = free_ports(world + 1)
    environments = paddle_environments(master, ports)
    said = run_all([[sys.executable, str(HERE / "live_agree_paddle.py")]] * world, environments, tmp_path)
    for answers in said:
        assert (answers["launched"], answers["different before"]) == (4, [1])  # before init_parallel_env
        assert answers["agreed"] == 4
        assert answers["different"]["odd_ranks"] == [3]
        assert "dp is 4, elsewhere 2" in answers["different"]["text"]
        assert answers["silent"]["ranks"] == [2]
        assert answers["silent"]["seconds"] < 2 + 5
        assert answers["nothing changed"]
        assert answers["notation"] == "dp=2 mp=2"
        assert answers["unexplained"] == []
        kinds = answers["kinds"]
        assert kinds["data_parallel"] == ["dp", [[0, 2], [1, 3]]]
        assert kinds["model_parallel"] == ["mp", [[0, 1], [2, 3]]]
        assert kinds["data_parallel_check"] == ["mp", [[0, 1], [2, 3]]]
        assert kinds["pipe_parallel"] == ["each rank alone", [[0], [1], [2], [3]]]
        assert kinds["default_pg"] == ["world", [[0, 1, 2, 3]]]
        assert answers["verified"]
        assert "data_parallel" in answers["wrong"]


class Words(Enum):
    ONE = "one"


class Stranger:
    """Something whose `repr` is another one in every process."""


class TestFields:
    def test_what_concerns_a_layout(self):
        arguments = argparse.Namespace(
            tensor_model_parallel_size=2, rank=3, local_rank=3, data_parallel_rank=1, data_path="/x", lr=0.1, seed=1
        )
        assert layout_fields(arguments) == {"tensor_model_parallel_size": 2, "seed": 1}

    def test_an_order_is_a_field(self):
        assert layout_fields(Mesh(pp=2, tp=4)) == {"order": "pp tp", "pp": 2, "tp": 4, "first_rank": 0}
        assert layout_fields("pp=2 tp=4") == layout_fields(Mesh(pp=2, tp=4))
        assert layout_fields(Mesh(tp=4, pp=2)) != layout_fields(Mesh(pp=2, tp=4))

    def test_an_atlas(self):
        atlas = Atlas(dense=Mesh(pp=2, dp=4), expert=Mesh(pp=2, ep=4), shared=("pp",))
        fields = layout_fields(atlas)
        assert fields["shared"] == "pp"
        assert fields["expert.ep"] == 4

    @pytest.mark.parametrize("nothing", [{}, argparse.Namespace(lr=0.1), argparse.Namespace()])
    def test_nothing_about_a_layout(self, nothing):
        with pytest.raises(InputError, match="says anything about a layout"):
            layout_fields(nothing)

    @pytest.mark.parametrize("nothing", [3, None, [1, 2]])
    def test_no_layout(self, nothing):
        with pytest.raises(InputError, match="a layout to agree on is"):
            layout_fields(nothing)

    def test_the_order_of_a_dict_of_axes(self):
        assert layout_fields({"pp": 2, "tp": 4})["order"] == "pp tp"
        assert layout_fields({"pp": 2, "tp": 4}) != layout_fields({"tp": 4, "pp": 2})
        assert "order" not in layout_fields({"tensor_model_parallel_size": 2, "seed": 1})

    def test_lists_of_a_namespace(self):
        def fields(split):
            return layout_fields(argparse.Namespace(pipeline_parallel_layout=split, tp=2))

        assert fields([[1, 2], [3]]) != fields([[1], [2, 3]])
        assert fields([0.5, 0.25]) != fields([0.25, 0.5])
        long = list(range(500))
        assert fields(long) == fields(list(long)) != fields([*long[:-1], 0])
        assert len(fields(long)["pipeline_parallel_layout"]) < 100
        assert fields([Stranger()]) == fields([Stranger()])

    def test_what_differs_is_always_told(self):
        for one, other, told in [
            (None, "None", "['None', {}]"),
            ("a" * 300 + "b", "a" * 300 + "c", "...'"),
            (1, True, "[True, 1]"),
        ]:
            said = [{"host": "h", "fields": {"extra.a": value}} for value in (other, other, one)]
            texts = [json.dumps(each["fields"], sort_keys=True) for each in said]
            (camp,) = _camps(said, texts, texts[0])
            expected, given = camp["fields"]["extra.a"]
            assert repr(expected) != repr(given), told

    def test_the_same_dicts_in_another_order(self):
        assert plain([{"x": 1, "y": 2}]) == plain([{"y": 2, "x": 1}])

    def test_two_keys_that_read_the_same(self):
        with pytest.raises(InputError, match="two keys to agree on read the same"):
            flat({1: "a", "1": "b"})
        with pytest.raises(InputError, match="read the same"):
            flat({"a": {"b": 1}, "a.b": 2})
        with pytest.raises(InputError, match="read the same"):
            flat({"a.b": 2, "a": {"b": 1}})

    def test_too_many(self):
        with pytest.raises(InputError, match="more than 2000 fields"):
            flat({str(number): number for number in range(3000)})

    def test_plain_values_are_the_same_in_every_process(self):
        assert plain(Stranger()) == "<test_agree.Stranger object>"
        assert plain({"b", "a"}) == ["a", "b"]
        assert plain([Words.ONE, (1, 2.5)]) == ["one", [1, 2.5]]
        assert plain(float("nan")) == "nan"
        assert plain(Mesh(dp=2)) == "dp=2"
        assert plain([{"a": 1}]) == [[["a", 1]]]
        assert plain(10**5000).startswith("0x")

    def test_numpy_numbers(self):
        assert plain(numpy.int64(3)) == 3
        assert plain(numpy.float64(1.5)) == 1.5
        assert plain(numpy.array(float("nan"))) == "nan"

    @pytest.mark.parametrize("make", [numpy.array, torch.tensor])
    def test_arrays_are_told_exactly(self, make):
        assert plain(make(1.5)) == 1.5
        assert plain(make([1.5, 2.5])) == [1.5, 2.5]
        assert plain(make([1.00001])) != plain(make([1.00002]))
        one, other = list(range(5000)), list(range(5000))
        other[2500] = 0
        assert plain(make(one)) == plain(make(one)) != plain(make(other))
        assert len(plain(make(one))) < 100

    def test_what_cannot_be_told(self):
        endless = []
        endless.append(endless)
        around = {}
        around["again"] = around

        class Broken:
            def __repr__(self):
                raise RuntimeError("no words")

        for extra in ({"a": endless}, around, {"a": torch.empty(2, device="meta")}, {"a": Broken()}):
            with pytest.raises(InputError):
                flat(extra)

    def test_an_empty_mapping_is_a_field(self):
        assert flat({"a": {}}) != flat({})


class TestWithout:
    def test_a_job(self):
        with pytest.raises(JobError, match="no distributed job is initialised"):
            live.agree("dp=2")
        with pytest.raises(JobError, match="no distributed job is initialised"):
            live.record()

    @pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e10, None, "3", True])
    def test_a_timeout(self, seconds):
        for call in (lambda: live.agree("dp=2", timeout=seconds), lambda: live.record(timeout=seconds)):
            with pytest.raises(JobError, match="above 0"):
                call()

    @pytest.mark.parametrize(
        "call",
        [
            lambda: live.agree("dp=2", extra=[1]),
            lambda: live.agree("dp=2", extra={"config": "a" * 9_000_000}),
            lambda: live.record(expect=5),
            lambda: live.verify(None),
            lambda: live.verify("dp=2", axes=5),
        ],
    )
    def test_what_no_store_should_hear(self, call):
        with pytest.raises(InputError):
            call()

    @pytest.mark.parametrize("layout", [Mesh(dp=4, tp=2), Mesh(dp=4, first_rank=2), "dp=2", Atlas(a=Mesh(dp=8)), GAP])
    def test_another_world(self, layout):
        refuse_other_world(Mesh(dp=2, tp=2), 4)
        refuse_other_world({"dp": 8}, 4)
        with pytest.raises(JobError, match="this job has 4"):
            refuse_other_world(layout, 4)


class TestCamps:
    """What rank 0 tells of the others' words: told apart as they look, and bounded."""

    def camps(self, *fields):
        said = [{"host": "a", "fields": one} for one in fields]
        texts = [json.dumps(one, sort_keys=True) for one in fields]
        return _camps(said, texts, texts[0])

    @pytest.mark.parametrize(("one", "other"), [(1, 1.0), (True, 1), (None, "None "), ("1", 1)])
    def test_alike_and_not_equal(self, one, other):
        (camp,) = self.camps({"x": one}, {"x": other})
        assert list(camp["fields"]) == ["x"]

    def test_none_is_not_missing(self):
        (camp,) = self.camps({"x": None}, {})
        assert camp["fields"] == {"x": [{}, None]}

    def test_long_values(self):
        (camp,) = self.camps({"x": "a" * 10**5}, {"x": "a" * 10**5 + "b"})
        assert len(json.dumps(camp)) < 2000
        assert camp["fields"]["x"][0] != camp["fields"]["x"][1]

    def test_many(self):
        assert len(self.camps(*({"x": number} for number in range(1000)))) == 64

    def test_an_engine(self):
        with pytest.raises(JobError, match="engine is one of torch, paddle, not 'jax'"):
            current_job("jax")


class TestWithin:
    def test_an_answer(self):
        assert within(5, lambda stop: 7) == 7

    def test_an_error(self):
        with pytest.raises(ZeroDivisionError):
            within(5, lambda stop: 1 // 0)

    def test_no_answer(self):
        with pytest.raises(RankSilent, match="has not answered") as caught:
            within(0.05, lambda stop: time.sleep(0.5))
        assert caught.value.ranks == [0]

    def test_who_this_process_is(self):
        assert identity() == identity()
