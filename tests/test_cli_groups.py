"""`rankatlas groups`, and what `rankatlas probe` says where there is no job."""

import json
import re

import pytest

from rankatlas import Mesh
from rankatlas.cli.main import _run
from rankatlas.creation import CreationPlan, first_and_last, neighbours


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


def listed(out):
    """The rows of the table of groups: order, group, members."""
    rows = out.partition("order   group")[2].splitlines()[1:]
    return [tuple(part.strip() for part in re.split(r"  +", row, maxsplit=2)) for row in rows]


def test_only_what_is_created_has_a_number(capsys):
    """So the last number is that of the last call, whatever is listed beside."""
    _, out, _ = run(capsys, "groups", "pp=2 cp=1 tp=2", "--axes", "cp", "tp", "pp+cp+tp", "pp", "--limit", "99")
    assert [order for order, *_ in listed(out)] == ["-", "-", "-", "-", "0", "1", "-", "2", "3"]
    assert "calls of every rank: 4 one by one" in out


def test_one_thing_is_told_as_one(capsys):
    _, out, _ = run(capsys, "groups", "dense: dp=2; other: dp=4", "--axes", "dense.dp", "--limit", "0")
    assert "1 new communicator\n" in out
    assert "memory of a rank: 1 communicator, about" in out
    _, out, _ = run(capsys, "groups", "dp=2 tp=2", "--limit", "3")
    assert "1 more group; --limit" in out


def test_partial_sets_are_counted_too(capsys):
    words = ("pp=4 tp=2", "--axes", "tp", "--ends", "pp", "--neighbours", "pp")
    mesh = Mesh(pp=4, tp=2)
    sets = {"ends of pp": first_and_last(mesh), "neighbours along pp": neighbours(mesh)}
    plan = CreationPlan(mesh, ["tp"], sets)
    code, out, _ = run(capsys, "groups", *words)
    assert (code, f"plan {plan.fingerprint()[:16]}, 12 new communicators" in out) == (0, True)
    assert re.search(r"^ends of pp +2 +2 +2 +2 +2$", out, re.MULTILINE)
    assert re.search(r"^neighbours along pp +6 +2 +6 +6 +6$", out, re.MULTILINE)
    assert listed(out)[4:6] == [("4", "ends of pp 0", "[0, 6]"), ("5", "ends of pp 1", "[1, 7]")]
    assert listed(out)[-1] == ("11", "neighbours along pp 5", "[5, 7]")
    code, out, _ = run(capsys, "groups", *words, "--json", "--limit", "2")
    facts = json.loads(out)
    assert facts["cost"] == json.loads(json.dumps(plan.cost().to_dict()))
    assert facts["cost"]["partial"] == 8
    _, out, _ = run(capsys, "groups", *words, "--limit", "2")
    assert "10 more groups" in out


def test_partial_sets_of_a_chart_and_those_that_are_there_already(capsys):
    _, out, _ = run(capsys, "groups", "a: pp=2 dp=2; b: pp=2 ep=2; shared: pp", "--axes", "pp", "--ends", "b.pp")
    assert re.search(r"^ends of b.pp +2 +2 +none: named above +0 +0$", out, re.MULTILINE)
    _, out, _ = run(capsys, "groups", "a: dp=4; b: pp=2 ep=2", "--axes", "a.dp", "--ends", "b.pp")
    assert listed(out)[1:] == [("0", "ends of b.pp 0", "[0, 2]"), ("1", "ends of b.pp 1", "[1, 3]")]


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
        (("dp=2 pp=2", "--ends", "ppp"), "Did you mean 'pp'"),
        (("dp=2 pp=1048576 tp=64", "--neighbours", "pp"), "too many to list"),
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
