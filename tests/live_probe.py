"""Ranks of `rankatlas probe`, forks of one process, to which something happens in the middle.

    python live_probe.py ENGINE FOLDER PORTS SCENARIO [ARGUMENT...]

Prints one JSON list: exit code (negative: the signal), stdout and stderr of every rank.
"""

import importlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from rankatlas.cli import probe as cli_probe
from rankatlas.cli.main import main
from rankatlas.live.probe import Probe
from test_live_groups import paddle_environments

ENGINE, FOLDER, PORTS, SCENARIO, *ARGUMENTS = sys.argv[1:]
WORLD = 4
VICTIM = 0 if SCENARIO.endswith("keeper") else 2


def before_the_job(rank):
    """What comes over this rank when its framework is there and nobody knows of it yet."""
    if SCENARIO.startswith("unborn") and rank == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    if SCENARIO == "unborn-ended":
        os.kill(os.getpid(), signal.SIGTERM)


def happens(rank, during):
    """What comes over this rank when it is about to do something; it never returns where that ends the process."""
    if SCENARIO == "absent" and rank == VICTIM and during == "the start of the job":
        os.kill(os.getpid(), signal.SIGKILL)
    if not during.startswith("all-reduce"):
        return
    if SCENARIO == "fails" and rank == VICTIM:
        raise MemoryError("no room\nfor this")
    if SCENARIO.startswith("killed") and rank == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    if SCENARIO == "stopped" and rank == VICTIM:
        os.kill(os.getpid(), signal.SIGSTOP)
    if SCENARIO == "stopped-turning" and rank == VICTIM:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGSTOP)).start()
    if SCENARIO == "interrupted":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    if SCENARIO == "ended" and rank == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    if SCENARIO == "ended":
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)


def rank_of_the_job(rank):
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{FOLDER}/{name}{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.update({"RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)})
    os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORTS.split(",")[0]})
    if ENGINE == "paddle":
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            del os.environ[name]
        os.environ.update(paddle_environments(PORTS.split(",")[0], PORTS.split(",")[1:])[rank])
    at = Probe._at

    def noticed(self, during):
        at(self, during)
        happens(rank, during)

    Probe._at = noticed
    run = Probe.run

    def begun(self, *given):
        before_the_job(rank)
        return run(self, *given)

    Probe.run = begun
    if SCENARIO == "refused" and rank == 0:
        time.sleep(1.5)  # it is the last to start
    if SCENARIO == "wrong" and rank == 1:
        probe = Probe._probe

        def other_group(self, family, communicator, said):
            real = self._engine.gather
            self._engine.gather = lambda group, numbers: (
                real(group, numbers)[::-1] if group is communicator else real(group, numbers)
            )
            probe(self, family, communicator, said)
            self._engine.gather = real

        Probe._probe = other_group
    if SCENARIO == "ended-late":
        say = cli_probe.say

        def ended_first(text, **options):
            os.kill(os.getpid(), signal.SIGTERM)
            say(text, **options)

        cli_probe.say = ended_first
    layout = "dp=2 tp=8" if SCENARIO == "refused" else "dp=2 tp=2"
    main(["probe", layout, "--engine", ENGINE, "--turns", "2", "--sizes", "64,4K", *ARGUMENTS])


importlib.import_module(ENGINE)
pids = []
for rank in range(WORLD):
    pid = os.fork()
    if pid == 0:
        try:
            rank_of_the_job(rank)
        except SystemExit as error:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(error.code or 0)
        finally:
            os._exit(99)
    pids.append(pid)
left, deadline, codes = list(pids), time.monotonic() + 100, {}
while left and time.monotonic() < deadline:
    for pid in list(left):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            left.remove(pid)
            codes[pid] = os.waitstatus_to_exitcode(status)
    if len(left) == 1 and SCENARIO.startswith("stopped"):
        os.kill(left[0], signal.SIGKILL)
    if len(left) < WORLD and SCENARIO == "refused":  # as launchers do
        for pid in left:
            os.kill(pid, signal.SIGTERM)
    time.sleep(0.02)
for pid in left:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
said = [
    {name: Path(f"{FOLDER}/{name}{rank}").read_text(errors="replace") for name in ("out", "err")}
    for rank in range(WORLD)
]
print(json.dumps([{"code": codes.get(pid), **one} for pid, one in zip(pids, said)]))
sys.stdout.flush()
os._exit(0)
