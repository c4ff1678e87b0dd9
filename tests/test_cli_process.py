"""The command line as a process: pipes, signals, terminals, files, start-up."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "rankatlas"]
LARGE = "pp=16 dp=512 sharding=4 mp=8 sep=4"


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, **options)


def test_a_closed_pipe_ends_quietly():
    for verb in (["show", LARGE, "--format", "jsonl"], ["show", LARGE, "--format", "csv"]):
        process = subprocess.Popen([*COMMAND, *verb], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == b""
        process.stderr.close()


@pytest.mark.parametrize(
    "verb",
    [
        ["where", "1", "dp=2"],
        ["show", "pp=2 dp=4"],
        ["show", "pp=2 dp=4", "--json"],
        ["show", "pp=2 dp=4", "--axis", "dp"],
        ["show", "pp=2 dp=4", "--format", "flagscale"],
        ["diff", "pp=2 dp=4", "dp=4 pp=2"],
        ["groups", "pp=2 dp=4", "--axes", "dp"],
        ["seeds", "pp=2 dp=4"],
        ["batches", "dp=4", "--samples", "100", "--batch", "8", "--micro", "2"],
        ["--help"],
    ],
    ids=lambda verb: " ".join(verb[:1] + verb[2:]),
)
def test_a_reader_that_is_gone_before_the_first_line(verb):
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run([*COMMAND, *verb], stdout=write, stderr=subprocess.PIPE, timeout=60)
    os.close(write)
    assert (process.returncode, process.stderr) == (0, b"")


def test_a_full_disk_is_told():
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [*COMMAND, "show", "dp=2000", "--format", "csv"], stdout=full, stderr=subprocess.PIPE, timeout=60, text=True
        )
    assert process.returncode == 2
    assert "No space left" in process.stderr
    assert "Traceback" not in process.stderr


def test_interrupted_leaves_no_file(tmp_path):
    target = tmp_path / "ranks.jsonl"
    arguments = ["show", "dp=1048576 tp=64", "--format", "jsonl", "-o", str(target)]
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert process.stderr.read().strip() == "interrupted"
    process.stderr.close()
    assert list(tmp_path.iterdir()) == []


def test_standard_input_is_a_source(tmp_path):
    text = json.dumps({"mp_degree": 2, "pp_degree": 2})
    answer = run("show", "-", "-n", "8", "--json", input=text)
    assert json.loads(answer.stdout)["notation"] == "dp=2 pp=2 sharding=1 sep=1 mp=2"


def test_an_existing_file_keeps_its_mode_and_its_link(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("")
    real.chmod(0o640)
    link.symlink_to(real)
    assert run("show", "dp=2", "--format", "csv", "-o", str(link)).returncode == 0
    assert link.is_symlink()
    assert real.read_text() == "rank,dp\n0,0\n1,1\n"
    assert real.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("verb", [["where", "1"], ["show"]])
def test_a_terminal_without_arrows_gets_an_answer(verb):
    answer = run(*verb, "pp=2", env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert answer.returncode == 0
    assert "outer -> inner" in answer.stdout


def everything_on(controller: int) -> bytes:
    """What is written to a terminal until its last user closes it."""
    shown = b""
    with contextlib.suppress(OSError):
        while data := os.read(controller, 65536):
            shown += data
    os.close(controller)
    return shown


@pytest.mark.parametrize("no_color", [False, True])
def test_colour_only_on_a_terminal_that_wants_it(no_color):
    assert "\x1b" not in run("show", "dp=2").stdout
    controller, terminal = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    if no_color:
        env["NO_COLOR"] = "1"
    note = json.dumps({"mp_degree": 2, "odd_degree": 3})
    process = subprocess.Popen(
        [*COMMAND, "show", "-", "-n", "8"], stdin=subprocess.PIPE, stdout=terminal, stderr=terminal, env=env, text=True
    )
    process.stdin.write(note)
    process.stdin.close()
    os.close(terminal)
    shown = everything_on(controller)
    assert process.wait(timeout=60) == 0
    assert b"odd_degree=3 is not understood" in shown
    assert (b"\x1b[33m" in shown) is not no_color


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("more", [[], ["--axis", "tp,cp"], ["-n", "262144"]])
def test_names_and_counts_stay_on_a_narrow_terminal(width, more):
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [*COMMAND, "show", "pp=16 dp=512 cp=4 tp=8", *more]
    process = subprocess.Popen(command, stdout=terminal, stderr=terminal, env={**env, "TERM": "xterm", "NO_COLOR": "1"})
    os.close(terminal)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", everything_on(controller).decode()).replace("\r", "").splitlines()
    assert process.wait(timeout=60) == 0
    assert max(map(len, lines)) <= width
    starts = {line.split()[0]: line for line in reversed(lines) if line and not line.startswith("note")}
    assert starts["dp"].split()[1:5] == ["512", "32", "512", "512"]
    assert "first and last stage" in "\n".join(lines)
    assert " ".join(starts["model"].split()[:5]) == "model replica pp+cp+tp 512 512" or width >= 120
    for line in lines:
        if line.endswith("…"):
            assert line.endswith((" …", ",…")), line  # never inside a number


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_without_arrows_gets_stand_ins(encoding):
    how = {"env": {**os.environ, "PYTHONIOENCODING": encoding}, "encoding": encoding}
    out = run("show", "pp=2 dp=64", **how).stdout
    assert "outer -> inner" in out
    assert "-----" in out
    assert "7, ...]" in out
    assert "?" not in out
    where = run("where", "1", "dp=2 sharding=2", **how).stdout
    assert "outer -> inner" in where
    assert ("(dp*sharding" if encoding == "ascii" else "(dp·sharding") in where
    assert "must be a positive integer" in run("show", "dp=\u03b1", **how).stderr


def test_pipes_and_process_substitution_are_sources():
    for command in (
        "show <(echo dp=8) --format csv",
        "show /dev/stdin --format csv <<< dp=8",
        "show - --format csv <<< dp=8",
    ):
        answer = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m rankatlas {command}"], capture_output=True, text=True, timeout=60
        )
        assert (answer.returncode, answer.stdout.splitlines()[0]) == (0, "rank,dp"), answer.stderr


def test_a_group_of_any_size_is_written_in_constant_memory():
    limited = (
        f"ulimit -v 2000000; {sys.executable} -m rankatlas show dp=1099511627776 --axis dp --format csv | head -n 3"
    )
    answer = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, timeout=60)
    assert answer.stdout.splitlines() == ["index,group_rank,rank", "0,0,0", "0,1,1"]
    assert answer.stderr == ""


def test_progress_is_shown_on_a_terminal_only(tmp_path):
    arguments = ["show", "dp=65536", "--format", "csv", "-o", str(tmp_path / "ranks.csv")]
    assert run(*arguments).stderr == ""
    controller, terminal = pty.openpty()
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=terminal)
    os.close(terminal)
    shown = everything_on(controller)
    assert process.wait(timeout=60) == 0
    assert b"100%" in shown


def test_where_loads_nothing_heavy():
    program = (
        "import sys\n"
        "from rankatlas.cli.main import main\n"
        "try: main(['where', '3', 'dp=8'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'torch', 'paddle', 'rich', 'yaml', 'json', 'asyncio'} & set(sys.modules)))\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"


def test_the_installed_command():
    script = Path(sys.executable).with_name("rankatlas")
    answer = subprocess.run([script, "where", "1", "dp=2"], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0
    assert answer.stdout.startswith("rank 1 of dp=2")
