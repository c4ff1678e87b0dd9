"""Eight local processes of a job on Megatron-core, one of which was started with another order.

    python examples/catch_a_mismatch/run.py [--seconds 60] [--install] [--output FILE]

Runs the job three times: as it is, with `live.agree`, and mended.  Megatron-core must be installed in this
environment, or in the one that `python tools/peers.py install megatron` makes (about 1 GB; `--install` does that).
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PEER = ROOT / ".peers" / "torch" / "bin" / "python"
WORLD = 8
RIGHT, WRONG = "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"
ODD = 5


class Teller:
    """Prints, and keeps what it printed."""

    def __init__(self):
        self.lines = []

    def __call__(self, text=""):
        """Say one line."""
        self.lines.append(text)
        try:
            print(text, flush=True)
        except BrokenPipeError:  # nobody reads on; what was printed is kept all the same
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(orders, seconds, *, agree, record=None):
    """Start all ranks, wait for them at most `seconds`; rank → (exit code or None, seconds, what it wrote)."""
    import job  # once; every rank is a fork of this process, so that eight imports of torch are not waited for

    port, started = free_port(), time.monotonic()
    folder = Path(tempfile.mkdtemp())
    pids = {}
    for rank, order in enumerate(orders):
        pid = os.fork()
        if pid == 0:
            with open(folder / str(rank), "wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            code = 1
            try:
                job.main(rank, WORLD, port, order, agree=agree, record=record)
                code = 0
            except Exception as error:
                print(f"{type(error).__name__}: {error}")
            finally:
                sys.stdout.flush()
                os._exit(code)
        pids[pid] = rank
    ended = {}
    while len(ended) < WORLD and time.monotonic() - started < seconds:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            ended[pids[pid]] = (os.waitstatus_to_exitcode(status), time.monotonic() - started)
        time.sleep(0.01)
    # Before anyone is stopped: whoever then loses a neighbour complains about that.
    said = {rank: (folder / str(rank)).read_text(errors="replace").strip() for rank in range(WORLD)}
    for pid, rank in pids.items():
        if rank not in ended:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    shutil.rmtree(folder)
    return {rank: (*ended.get(rank, (None, seconds)), said[rank]) for rank in range(WORLD)}


def inside(seconds, folder):
    """The three runs, in an environment that has megatron-core; what they came to, as JSON."""
    sys.path.insert(0, str(HERE))
    mixed = [WRONG if rank == ODD else RIGHT for rank in range(WORLD)]
    results = [
        run(mixed, seconds, agree=False),
        run(mixed, seconds, agree=True),
        run([RIGHT] * WORLD, seconds, agree=True, record=f"{folder}/record.json"),
    ]
    Path(folder, "results.json").write_text(json.dumps(results))


def python_with_megatron(install):
    """An interpreter that has megatron-core and torch."""
    if install:
        subprocess.run([sys.executable, str(ROOT / "tools" / "peers.py"), "install", "megatron"], check=True)
    for python in (sys.executable, str(PEER)):
        if Path(python).exists():
            found = subprocess.run([python, "-c", "import megatron.core, torch"], capture_output=True, check=False)
            if found.returncode == 0:
                return python
    sys.exit("megatron-core is not installed; --install makes an environment that has it (about 1 GB)")


def tell(results, folder, seconds, say):
    """The three runs in words, and the record on the command line."""
    first, second, third = results
    running = [rank for rank, (code, _, _) in first.items() if code is None]
    say(f"1. Eight processes on Megatron-core; rank {ODD} was started with --order {WRONG}, the others with {RIGHT}.")
    say(f"   After {seconds:g} s, {len(running)} of {WORLD} processes still wait for each other. What they said:")
    words = [f"   rank {rank}: {text.splitlines()[-1][:150]}" for rank, (_, _, text) in first.items() if text]
    for line in words or ["   nothing"]:
        say(line)
    say()
    say("2. The same start, with one line before the groups are made: live.agree(layout)")
    slowest = max(taken for _, taken, _ in second.values())
    ended = sum(code is not None for code, _, _ in second.values())
    say(f"   {ended} of {WORLD} processes ended {slowest:.1f} s after the start, torch being loaded. Every one says:")
    for line in second["0"][2].splitlines():
        say(f"   {line}")
    say()
    say(f"3. Rank {ODD} mended, live.record(path) after the groups are made")
    say(f"   {third['0'][2].splitlines()[-1]}; {max(taken for _, taken, _ in third.values()):.1f} s after the start")
    say()
    commands = ["where", str(ODD), "record.json"], ["check-groups", "record.json", "pp=2 dp=2 tp=2"]
    for number, arguments in enumerate(commands, 4):
        shown = " ".join(f"'{word}'" if " " in word else word for word in arguments)
        say(f"{number}. rankatlas {shown}")
        done = subprocess.run(
            [sys.executable, "-m", "rankatlas", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
        for line in (done.stdout + done.stderr).splitlines():
            say(f"   {line}".rstrip())
        say()


def main():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long the job may hang")
    parser.add_argument("--install", action="store_true", help="make the environment with megatron-core if need be")
    parser.add_argument(
        "--output", type=Path, default=HERE / "output.txt", help="where the output is kept; the record goes beside it"
    )
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        inside(asked.seconds, asked.inside)
        return
    python = python_with_megatron(asked.install)
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    quiet = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore", "PYTHONPATH": path}
    with tempfile.TemporaryDirectory() as folder:
        command = [python, str(Path(__file__).resolve()), "--seconds", str(asked.seconds), "--inside", folder]
        subprocess.run(command, env={**os.environ, **quiet}, check=True, timeout=4 * asked.seconds + 120)
        say = Teller()
        tell(json.loads(Path(folder, "results.json").read_text()), folder, asked.seconds, say)
        record = Path(folder, "record.json").read_text()
    asked.output.write_text("\n".join(say.lines).rstrip() + "\n")
    (asked.output.parent / "record.json").write_text(record)


if __name__ == "__main__":
    main()
