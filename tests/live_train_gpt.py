"""The training example in real processes; prints one JSON object, scenario → exit codes, what was said, results.

    python live_train_gpt.py FOLDER

Every rank is a fork of this process, so torch is imported once; ranks call what `examples/train_gpt.py` calls.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

from train_gpt.main import main

from test_live_groups import free_ports

FOLDER = Path(sys.argv[1])
STEPS = 5
SMALL = ["--layers", "2", "--sequence", "16", "--steps", str(STEPS)]
# Every axis above 1 somewhere, the same sizes in several orders, and both splits of the sequence.
LAYOUTS = [
    {"layout": "pp=2 dp=2 tp=2"},
    {"layout": "tp=2 dp=2 pp=2", "micro_batch": 2},
    {"layout": "cp=2 sep=2 mp=2"},
    {"layout": "pp=2 sharding=2 cp=2", "split": "balanced"},
    {"layout": "sep=4 sharding=2"},
    {"layout": "dp=4 tp=2"},
]
MISTAKES = [
    {"layout": "sharding=2 dp=2 tp=2", "mistake": "masks"},
    {"layout": "pp=2 dp=2 tp=2", "mistake": "norms"},
    {"layout": "cp=4 dp=2", "mistake": "labels"},
]


class World:
    """Ranks of one launch; what they say goes to files."""

    def __init__(self, name, world, arguments):
        self.name = name
        (port,) = free_ports(1)
        self.pids = []
        for rank in range(world):
            pid = os.fork()
            if pid == 0:
                self._rank(rank, world, port, arguments)
            self.pids.append(pid)

    def _rank(self, rank, world, port, arguments):
        code = 99
        try:
            # Ctrl-C reaches every rank; a fork in the background of a shell would ignore it.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with open(FOLDER / f"{self.name}-{rank}", "wb") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            there = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": world}
            os.environ.update({key: str(value) for key, value in there.items()} if world > 1 else {})
            code = main(arguments)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def said(self, rank):
        path = FOLDER / f"{self.name}-{rank}"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self, seconds):
        """Exit code of every rank, None for those that had to be stopped; and what each said."""
        left, codes, end = dict(enumerate(self.pids)), {}, time.monotonic() + seconds
        while left and time.monotonic() < end:
            for rank, pid in list(left.items()):
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    codes[rank] = os.waitstatus_to_exitcode(status)
                    del left[rank]
            time.sleep(0.02)
        for pid in left.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        ranks = range(len(self.pids))
        return {"codes": [codes.get(rank) for rank in ranks], "said": [self.said(rank) for rank in ranks]}


def trained(name, world, runs, *more):
    listed, told = FOLDER / f"{name}.runs.json", FOLDER / f"{name}.json"
    listed.write_text(json.dumps(runs))
    arguments = ["--runs", str(listed), "--json", str(told), "--dtype", "float64", *SMALL, *more]
    ended = World(name, world, arguments).wait(400)
    return {**ended, "results": json.loads(told.read_text()) if told.exists() else None}


def disturbed(name, disturb):
    """Four ranks that would train for ever, and what becomes of them when something happens after the first step."""
    world = World(name, 4, [*SMALL, "--layout", "pp=2 tp=2", "--steps", "1000000", "--every", "1"])
    end = time.monotonic() + 120
    while "step 1," not in world.said(0) and time.monotonic() < end:
        time.sleep(0.02)
    disturb(world.pids)
    return world.wait(60)


def interrupt(pids):
    for pid in pids:
        os.kill(pid, signal.SIGINT)


saved = [str(FOLDER / f"checkpoint-{world}") for world in (8, 4)]
half = {"layout": "pp=2 dp=2 tp=2", "steps": 2, "save": saved[0]}
said = {
    "alone": trained("alone", 1, [{"layout": "dp=1"}, {"layout": "dp=1", "dtype": "float32"}]),
    "eight": trained("eight", 8, [*LAYOUTS, {"layout": "sep=2 cp=2 tp=2", "dtype": "float32"}, half, *MISTAKES]),
    "four": trained("four", 4, [{"layout": "cp=2 sep=2", "steps": 3, "resume": saved[0], "save": saved[1]}]),
    "six": trained("six", 6, [{"layout": "dp=3 pp=2", "resume": saved[1]}]),
    "other": trained("other", 1, [{"layout": "dp=1", "resume": saved[1]}], "--hidden", "64"),
    "killed": disturbed("killed", lambda pids: os.kill(pids[2], signal.SIGKILL)),
    "interrupted": disturbed("interrupted", interrupt),
}
print(json.dumps(said))
