"""Many processes from one: the framework is imported once, and every rank is a fork of that process.

Ranks are real processes with numbers of their own; only the second or two of `import torch` are saved.  Each tells
what it has found as JSON in a file; whoever is still there at the end of the time is stopped.
"""

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path


def _run(work, rank, path):
    try:
        said = work(rank)
        Path(f"{path}.part").write_text(json.dumps(said))
        os.replace(f"{path}.part", path)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


class Ranks:
    """`count` processes that run `work(rank)`; `wait` returns what each said, None for those that died or hung.

    It does not wait for ranks in `hang`, which are meant to stop; they are killed when the others have ended.
    """

    def __init__(self, work, count, folder, seconds=40.0, hang=()):
        self.paths = [Path(folder) / f"said{rank}" for rank in range(count)]
        self.deadline = time.monotonic() + seconds
        self.pids = []
        for rank, path in enumerate(self.paths):
            pid = os.fork()
            if pid == 0:
                _run(work, rank, path)
            self.pids.append(pid)
        self.hang = {self.pids[rank] for rank in hang}

    def wait(self):
        left = dict.fromkeys(self.pids)
        while left.keys() - self.hang and time.monotonic() < self.deadline:
            for pid in list(left):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    del left[pid]
            time.sleep(0.01)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return [json.loads(path.read_text()) if path.exists() else None for path in self.paths]
