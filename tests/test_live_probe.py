"""`rankatlas probe` in real processes: what it says when all is well, and when a rank dies, hangs or is interrupted."""

import json
import signal
import sys

import pytest

from rankatlas.cli.main import main
from rankatlas.creation import CreationPlan
from rankatlas.errors import JobError
from rankatlas.live.probe import Probe, report
from refusals import refused
from test_live_groups import HERE, environment, free_ports, run_all


def probed(folder, scenario, *arguments, engine="torch"):
    """(exit code, stdout, stderr) of every rank."""
    pytest.importorskip(engine)
    ports = ",".join(map(str, free_ports(5)))
    command = [sys.executable, str(HERE / "live_probe.py"), engine, str(folder), ports, scenario, *arguments]
    quiet = environment(GLOO_SOCKET_IFNAME="lo", TORCH_CPP_LOG_LEVEL="ERROR")
    said = run_all([command], [quiet], folder, seconds=150)[0]
    return [(one["code"], one["out"], one["err"]) for one in said]


@pytest.mark.live
@pytest.mark.parametrize("engine", ["torch", "paddle"])
def test_a_probe_that_finds_nothing(tmp_path, engine):
    said = probed(tmp_path, "fine", "--json", engine=engine)
    assert [code for code, _, _ in said] == [0] * 4, said
    facts = json.loads(said[0][1][said[0][1].index("{\n") :])
    assert (facts["ok"], facts["wrong"], facts["engine"], facts["backend"]) == (True, [], engine, "gloo")
    assert [(one["rank"], one["device"]) for one in facts["ranks"]] == [(rank, "cpu") for rank in range(4)]
    asked = [(one["axes"], one["collective"], one["bytes"]) for one in facts["timings"]]
    expected = [
        (axis, way, size) for axis in ("dp", "tp") for way in ("all_reduce", "all_gather") for size in (64, 4096)
    ]
    assert asked == expected
    for one in facts["timings"]:
        group = one["slowest_group"]
        assert 0 < one["median"] <= group["seconds"] == one["slowest_rank"]["seconds"]
        assert one["slowest_rank"]["rank"] in group["ranks"]
    assert facts["calls"] == (2 if engine == "torch" else 4)
    assert all(out.find("{\n") < 0 for _, out, _ in said[1:])


@pytest.mark.live
def test_a_group_with_other_members_is_a_finding(tmp_path):
    said = probed(tmp_path, "wrong")
    assert [code for code, _, _ in said] == [1] * 4
    assert "its group over dp is [3, 1], and [1, 3] was expected" in said[0][1]
    assert "rank 1" in said[0][1]


@pytest.mark.live
@pytest.mark.parametrize(
    ("scenario", "arguments", "victim"),
    [
        ("killed", (), 2),
        ("killed-keeper", (), 0),
        ("stopped", ("--timeout", "8"), 2),
        ("ended", (), 2),
    ],
)
def test_a_rank_that_dies_or_hangs_is_named_once(tmp_path, scenario, arguments, victim):
    said = probed(tmp_path, scenario, *arguments)
    assert said[victim][0] == -signal.SIGKILL  # a stopped one is killed when the others have ended
    left = [one for rank, one in enumerate(said) if rank != victim]
    assert [code for code, _, _ in left] == [1] * 3
    told = [err for _, _, err in left if "rankatlas:" in err]
    assert len(told) == 1
    assert f"rankatlas: rank {victim} (" in told[0]
    # Ranks that share no group with the keeper of the store miss it a little later.
    during = "" if victim == 0 else "all-reduce of 64 bytes along dp"
    assert f"died or hangs: {during}" in told[0]
    assert " ended without it (" in told[0]
    assert not any("Traceback" in err or out for _, out, err in left)


@pytest.mark.live
def test_a_rank_that_never_comes_is_named(tmp_path):
    said = probed(tmp_path, "absent", "--timeout", "5")
    assert [code for code, _, _ in said] == [1, 1, -signal.SIGKILL, 1]
    told = [err for _, _, err in said if "rankatlas:" in err]
    assert len(told) == 1
    assert "rankatlas: rank 2 (host " in told[0]
    assert "died or hangs: the start of the job ended without it (" in told[0]


@pytest.mark.live
def test_rank_0_of_paddle_does_not_wait_for_ever_for_one_that_never_comes(tmp_path):
    said = probed(tmp_path, "absent", "--timeout", "5", engine="paddle")
    assert [code for code, _, _ in said] == [1, 1, -signal.SIGKILL, 1]
    assert any("the start of the job failed: took longer than 5 s" in err for _, _, err in said)
    assert not any("Traceback" in err for _, _, err in said)


@pytest.mark.live
def test_what_fails_on_one_rank_is_told_though_the_others_hear_of_closed_connections_only(tmp_path):
    said = probed(tmp_path, "fails", "--timeout", "20")
    assert [code for code, _, _ in said] == [1] * 4
    told = [err for _, _, err in said if "rankatlas:" in err]
    expected = "rankatlas: all-reduce of 64 bytes along dp failed on rank 2: no room; all 4 ranks still answer\n"
    assert told == [expected]


@pytest.mark.live
def test_a_launcher_that_ends_the_last_rank_gets_its_report_first(tmp_path):
    code, out, err = probed(tmp_path, "ended-late")[0]
    assert (code, "Traceback" in err) == (0, False)
    assert "all groups have the right members" in out


@pytest.mark.live
def test_an_interrupt_ends_every_rank_and_is_told_once(tmp_path):
    said = probed(tmp_path, "interrupted")
    assert [code for code, _, _ in said] == [130] * 4
    assert [err.count("interrupted") for _, _, err in said] == [1, 0, 0, 0]


@pytest.mark.live
def test_torchrun_starts_it_as_a_module(tmp_path):
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port"]
    command += [str(free_ports(1)[0]), "-m", "rankatlas", "probe", "tp=?", "--sizes", "64", "--turns", "1"]
    # A JSON list stands for what the helper wants of the last line.
    run = f"subprocess.run({command!r}, capture_output=True, text=True)"
    script = f"import json, subprocess; print(json.dumps({run}.stdout))"
    out = run_all([[sys.executable, "-c", script]], [environment(GLOO_SOCKET_IFNAME="lo")], tmp_path, seconds=120)[0]
    assert "tp=2\n2 ranks on 1 host(s), torch over gloo, 0 creation calls a rank" in out
    assert "all groups have the right members in the right order: tp (1 of 2)" in out


def test_a_probe_without_its_framework_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "rankatlas.adapters.torch_probe", None)
    with refused(JobError, "needs torch", sys.executable, "--engine"):
        Probe(CreationPlan("dp=2", ["dp"]), "torch", sizes=[64], turns=1, timeout=5, rank=0, local=0)


@pytest.mark.parametrize(
    ("environ", "arguments", "words"),
    [
        ({}, [], "torchrun --nproc-per-node 8 -m rankatlas probe LAYOUT"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, ["--timeout", "nan"], "not nan"),
    ],
)
def test_a_probe_that_cannot_be_started(monkeypatch, capsys, environ, arguments, words):
    for name in ("RANK", "WORLD_SIZE", "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as left:
        main(["probe", "dp=1", *arguments])
    assert left.value.code == 2
    assert words in capsys.readouterr().err


def test_the_slowest_group_and_rank_are_those_with_the_longest_median():
    plan = CreationPlan("dp=2 tp=4", ["tp", "dp"])
    seconds = {rank: {"tp/all_reduce/8": 1.0 + (rank == 2), "dp/all_reduce/8": 1.0 + rank / 10} for rank in range(8)}
    base = {"wrong": {}, "calls": 2, "host": "a", "local_rank": 0, "device": "cpu"}
    facts = report(plan, "torch", "gloo", [{**base, "rank": rank, "seconds": seconds[rank]} for rank in range(8)])
    tp, dp = facts["timings"]
    assert tp["slowest_group"] == {"index": 0, "ranks": [0, 1, 2, 3], "seconds": 2.0}
    assert (tp["slowest_rank"]["rank"], tp["median"]) == (2, 1.5)
    assert dp["slowest_group"] == {"index": 3, "ranks": [3, 7], "seconds": 1.7}
    assert dp["slowest_rank"] == {"rank": 7, "seconds": 1.7}
