"""`rankatlas probe` in real processes: what it says when all is well, and when a rank dies, hangs or is interrupted."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rankatlas.cli.main import main
from rankatlas.cli.probe import _lines
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
    ("engine", "scenario", "arguments", "victim"),
    [
        ("torch", "killed", (), 2),
        ("torch", "killed-keeper", (), 0),
        ("torch", "stopped", ("--timeout", "8"), 2),
        ("torch", "stopped-turning", ("--timeout", "3", "--turns", "4000", "--sizes", "64,4M"), 2),
        ("torch", "ended", (), 2),
        ("paddle", "killed", (), 2),
        ("paddle", "stopped-turning", ("--timeout", "3", "--turns", "4000", "--sizes", "64,4M"), 2),
        ("paddle", "ended", (), 2),
    ],
)
def test_a_rank_that_dies_or_hangs_is_named_once(tmp_path, engine, scenario, arguments, victim):
    said = probed(tmp_path, scenario, *arguments, engine=engine)
    assert said[victim][0] == -signal.SIGKILL  # a stopped one is killed when the others have ended
    left = [one for rank, one in enumerate(said) if rank != victim]
    assert [code for code, _, _ in left] == [1] * 3
    told = [err for _, _, err in left if "rankatlas:" in err]
    assert len(told) == 1
    # Whoever keeps the store takes along what it said of itself.
    assert f"rankatlas: rank {victim} {'died' if victim == 0 else '('}" in told[0]
    # Ranks that share no group with it miss it a little later, or first, where they are ahead.
    steps = ("checking the members along tp", "all-reduce of 64 bytes along dp", "waiting for all ranks after dp")
    assert any(f"died or hangs: {during} ended without it (" in told[0] for during in steps), told[0]
    assert not any("Traceback" in err or "{" in out for _, out, err in left)


@pytest.mark.live
@pytest.mark.parametrize("engine", ["torch", "paddle"])
@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ("absent", (" (host ", "died or hangs: the start of the job ended without it (")),
        ("unborn", (" has not come: the start of the job ended without it (",)),
        ("unborn-ended", (" has not come: ", " ended without it (the launcher ended this process)")),
    ],
)
def test_a_rank_that_never_comes_is_named(tmp_path, engine, scenario, words):
    """Paddle's rank 0 waits for it with Python's lock held: it can neither say anything nor be blamed."""
    said = probed(tmp_path, scenario, "--timeout", "5", engine=engine)
    assert [code for code, _, _ in said] == [1, 1, -signal.SIGKILL, 1]
    told = [err for _, _, err in said if "rankatlas:" in err]
    assert len(told) == 1
    assert "rankatlas: rank 2 " in told[0]
    assert all(word in told[0] for word in words), told[0]
    assert not any("Traceback" in err for _, _, err in said)


@pytest.mark.live
def test_what_every_rank_refuses_is_told_though_the_rank_that_tells_it_is_the_last_to_start(tmp_path):
    said = probed(tmp_path, "refused")
    assert [code for code, _, _ in said] == [2] * 4
    assert [err.count("is more than the world size 4") for _, _, err in said] == [1, 0, 0, 0]


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
    assert "tp=2\n2 ranks on 1 host, torch over gloo, 0 creation calls a rank" in out
    assert "all groups have the right members in the right order: tp (1 group of 2)" in out


@pytest.mark.live
def test_the_launcher_of_paddle_starts_the_command(tmp_path):
    pytest.importorskip("paddle")
    installed = Path(sys.executable).parent / "rankatlas"
    if not installed.exists():
        pytest.skip("the command is not installed beside this Python")
    command = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--log_dir", "logs"]
    command += [str(installed), "probe", "mp=?", "--engine", "paddle", "--sizes", "64", "--turns", "1"]
    inherited = {name: value for name, value in environment().items() if name != "CUDA_VISIBLE_DEVICES"}
    subprocess.run(command, env=inherited, cwd=tmp_path, capture_output=True, timeout=120, check=True)
    assert "mp=2\n2 ranks on 1 host, paddle over gloo, " in (tmp_path / "logs" / "workerlog.0").read_text()


def test_a_report_says_how_many_groups_there_are_and_where_there_is_nothing_to_probe():
    said = [
        {"rank": rank, "wrong": {}, "calls": 1, "host": "a", "local_rank": rank, "device": "cpu"} for rank in (0, 1)
    ]
    timed = [{**one, "seconds": {"tp/all_reduce/8": 0.1}} for one in said]
    lines = _lines(report(CreationPlan("dp=1 tp=2", ["dp", "tp"]), "torch", "gloo", timed))
    assert lines[1:3] == [
        "2 ranks on 1 host, torch over gloo, 1 creation call a rank",
        "all groups have the right members in the right order: dp (2 groups of 1), tp (1 group of 2)",
    ]
    untimed = [{**one, "seconds": {}} for one in said]
    lines = _lines(report(CreationPlan("dp=1 tp=2", ["dp"]), "torch", "gloo", untimed))
    assert lines[2] == "nothing to probe: no group has more than one rank"
    assert not any("median" in line for line in lines)


def test_a_probe_without_its_framework_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "rankatlas.adapters.torch_probe", None)
    with refused(JobError, "needs torch", sys.executable, "--engine"):
        Probe(CreationPlan("dp=2", ["dp"]), "torch", sizes=[64], turns=1, timeout=5, rank=0, local=0)


@pytest.mark.parametrize(
    ("environ", "arguments", "words"),
    [
        ({}, [], "torchrun --nproc-per-node 8 -m rankatlas probe LAYOUT"),
        ({}, [], "paddle.distributed.launch --nproc_per_node 8 $(command -v rankatlas) probe LAYOUT --engine paddle"),
        ({"RANK": "0", "WORLD_SIZE": "1"}, ["--timeout", "nan"], "not nan"),
        # The first rank of each host tells what may be missing on that host alone.
        ({"RANK": "8", "WORLD_SIZE": "16", "LOCAL_RANK": "0"}, ["--engine", "torch", "--axes", "x"], "needs torch"),
    ],
)
def test_a_probe_that_cannot_be_started(monkeypatch, capsys, environ, arguments, words):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", "ERROR")  # or the command sets it
    monkeypatch.setitem(sys.modules, "rankatlas.adapters.torch_probe", None)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    layout = f"x={environ.get('WORLD_SIZE', 1)}"
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as left:
            main(["probe", layout, *arguments])
    finally:
        signal.signal(signal.SIGTERM, before)
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
