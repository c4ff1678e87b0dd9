"""`rankatlas groups`, and what `rankatlas probe` says where there is no job."""

import json

import pytest

from rankatlas import Mesh
from rankatlas.cli.main import _run
from rankatlas.creation import CreationPlan


def run(capsys, *words):
    code = _run(list(words))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_plan_and_its_cost(capsys):
    code, out, err = run(capsys, "groups", "pp=2 dp=2 tp=2", "--axes", "tp", "dp+tp", "pp", "--limit", "5")
    plan = CreationPlan(Mesh(pp=2, dp=2, tp=2), ["tp", "dp+tp", "pp"])
    assert (code, err) == (0, "")
    assert f"plan {plan.fingerprint()[:16]}, 10 new communicators" in out
    assert (
        "calls of every rank: 10 one by one, of which 7 for groups it is not in; 3 when each rank makes its own" in out
    )
    assert "memory of a rank: 3 communicators, about 384 MiB" in out
    assert "4       dp+tp 0   [0, 1, 2, 3]" in out
    assert "5 more groups" in out


@pytest.mark.parametrize(
    "words",
    [
        ("pp=2 dp=2 tp=2", "--axes", "tp", "dp,tp", "--json"),
        ("--axes", "tp", "dp+tp", "pp=2", "dp=2", "tp=2", "--json"),
        ("--json", "--axes", "tp", "--axes", "dp+tp", "pp=2 dp=2 tp=2"),
        ("pp=2 dp=2 tp=?", "-n", "8", "--axes", "tp", "dp+tp", "--json"),
    ],
)
def test_axes_are_several_words_wherever_they_stand(capsys, words):
    code, out, _ = run(capsys, "groups", *words)
    facts = json.loads(out)
    plan = CreationPlan(Mesh(pp=2, dp=2, tp=2), ["tp", "dp+tp"])
    assert code == 0
    assert (facts["fingerprint"], facts["notation"]) == (plan.fingerprint(), "pp=2 dp=2 tp=2")
    assert facts["cost"] == json.loads(json.dumps(plan.cost().to_dict()))
    assert [group["ranks"] for group in facts["groups"]] == [list(group.ranks) for group in plan.groups()]


def test_without_axes_each_is_taken_by_itself(capsys):
    _, out, _ = run(capsys, "groups", "dense: pp=2 dp=2; expert: pp=2 ep=2 x=1; shared: pp", "--json")
    assert [one["names"] for one in json.loads(out)["cost"]["families"]] == [["pp"], ["dense.dp", "expert.ep"]]


def test_a_world_beyond_counting_takes_no_time(capsys):
    code, out, _ = run(capsys, "groups", "dp=1048576 tp=1048576", "--axes", "dp", "tp", "--limit", "1")
    assert code == 0
    assert "2,097,152 new communicators" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("dp=2 tp=2", "--axes", "tpp"), "Did you mean 'tp'?"),
        (("dp=2 tp=2", "--axes"), "--axes needs sets of axes"),
        (("dp=2", "--limit", "-1"), "--limit"),
        (("dp=2", "--axes", "dp+dp"), "twice"),
        (("nothing.json",), "nothing.json"),
        (("dp=0",), "size must be a positive integer"),
        ((), "Missing argument"),
    ],
)
def test_what_cannot_be_used_ends_with_2(capsys, words, told):
    code, out, err = run(capsys, "groups", *words)
    assert (code, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) <= 6


LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "TORCHELASTIC_RUN_ID")


def test_a_probe_without_a_launcher_says_how_to_start_it(capsys, monkeypatch):
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    code, out, err = run(capsys, "probe", "dp=2")
    assert (code, out) == (2, "")
    assert "no launcher said which rank this process is" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("dp=3",), "dp=3 = 3 is more than the world size 1"),
        (("dp=1", "first_rank=4"), "has 1 ranks from 4, and this job has 1 from 0; start as many processes"),
        (("dp=1", "--sizes", "3K,x"), "sizes are bytes from 4 to 4G"),
        (("dp=1", "--sizes", "1"), "sizes are bytes from 4 to 4G"),
        (("dp=1", "--axes", "tp"), "'tp'"),
        (("dp=1", "--timeout", "0"), "--timeout"),
        (("dp=1", "--engine", "mpi"), "--engine"),
    ],
)
def test_a_probe_that_cannot_be_ends_before_any_framework_is_asked(capsys, monkeypatch, words, told):
    import signal

    before = signal.getsignal(signal.SIGTERM)
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    try:
        code, out, err = run(capsys, "probe", *words)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (code, out) == (2, "")
    assert told in err
