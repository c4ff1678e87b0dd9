"""Run one command and say how long it took and how much memory it held at most.

    python child.py OUT COMMAND ARGUMENT…

A process of its own, kept small on purpose: the kernel counts what the parent held when it forked as the child's, so
that a parent with arrays in it would hide how little a child needs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time


def main() -> int:
    out, *command = sys.argv[1:]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    unit = 1 if sys.platform == "darwin" else 1024
    with open(out, "w", encoding="utf-8") as handle:
        json.dump({"seconds": seconds, "peak_bytes": usage.ru_maxrss * unit}, handle)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
