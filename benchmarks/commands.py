"""rankatlas in fresh processes: what an import costs, how soon `where` answers, how `show` streams a million ranks."""

from __future__ import annotations

import compileall
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from layouts import MIDDLE, MILLION, Layout

HEAVY = ("numpy", "torch", "paddle", "jax", "rich", "click", "yaml", "mpi4py")
BOTH = "from rankatlas import Mesh, Topology"  # `import rankatlas` puts off what no name has been used of


class CommandFailed(RuntimeError):
    """A command that should have been timed did not do its work; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A folder with a compiled copy of the package: an import that also compiles is not what users see."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        return kept | {"PYTHONPATH": str(self.folder)}

    def run(self, command: Sequence[str], *, quiet: bool = True) -> str:
        """Run to the end; its output unless `quiet`.  Raises CommandFailed."""
        stdout = subprocess.DEVNULL if quiet else subprocess.PIPE
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise CommandFailed((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
        return done.stdout or ""


@contextmanager
def installed() -> Iterator[Installed]:
    """The compiled copy of whichever rankatlas this python imports; gone afterwards."""
    found = importlib.util.find_spec("rankatlas")
    if found is None or found.origin is None:
        raise CommandFailed("rankatlas is not installed for this python")
    with tempfile.TemporaryDirectory() as name:
        package = Path(name) / "rankatlas"
        shutil.copytree(Path(found.origin).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(package, quiet=1)
        yield Installed(Path(name))


def _fresh(copy: Installed, programs: Mapping[str, Sequence[str]], times: int) -> dict[str, list[float]]:
    """Wall seconds of fresh processes, the programs taking turns; the first turn only warms the disk's cache."""
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(times + 1):
        for name, command in programs.items():
            start = time.perf_counter()
            copy.run(command)
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def imports(times: int) -> dict[str, object]:
    """Milliseconds of an import beyond a bare interpreter, and the heavy modules it brought along."""
    statements = {"bare": "pass", "import rankatlas": "import rankatlas", BOTH: BOTH}
    with installed() as copy:
        spent = _fresh(copy, {name: [sys.executable, "-c", code] for name, code in statements.items()}, times)
        show = f"import json, sys; print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
        return {
            name: {
                "milliseconds": 1000 * (min(spent[name]) - min(spent["bare"])),
                "milliseconds_median": 1000 * (statistics.median(spent[name]) - statistics.median(spent["bare"])),
                "heavy": json.loads(copy.run([sys.executable, "-c", f"{code}; {show}"], quiet=False)),
            }
            for name, code in list(statements.items())[1:]
        }


def where(times: int) -> dict[str, object]:
    """`rankatlas where` as a multiple of a python that only imports click."""
    with installed() as copy:
        programs = {
            "click": [sys.executable, "-c", "import click"],
            "where": [sys.executable, "-m", "rankatlas", "where", "37", "pp=4 dp=2 tp=8"],
        }
        spent = _fresh(copy, programs, times)
        best = {name: min(seconds) for name, seconds in spent.items()}
        return {
            "seconds": best["where"],
            "click_seconds": best["click"],
            "ratio": best["where"] / best["click"],
            "ratio_median": statistics.median(spent["where"]) / statistics.median(spent["click"]),
        }


def show(times: int) -> dict[str, object]:
    """A million ranks to JSONL: rows per second with everything counted, and memory beside a thousand ranks."""
    with installed() as copy:
        small = min((_show(copy, MIDDLE) for _ in range(times)), key=lambda run: run["peak_bytes"])
        million = min((_show(copy, MILLION) for _ in range(times)), key=lambda run: run["seconds"])
        return {
            "world": MILLION.world_size,
            "seconds": million["seconds"],
            "rows_per_second": MILLION.world_size / million["seconds"],
            "peak_bytes": million["peak_bytes"],
            "small_world": MIDDLE.world_size,
            "small_peak_bytes": small["peak_bytes"],
            "memory_ratio": million["peak_bytes"] / small["peak_bytes"],
        }


def _show(copy: Installed, layout: Layout) -> dict[str, float]:
    table, measured = copy.folder / "ranks.jsonl", copy.folder / "measured.json"
    verb = [sys.executable, "-m", "rankatlas", "show", layout.notation, "--format", "jsonl", "-o", str(table)]
    child = [sys.executable, str(Path(__file__).with_name("child.py")), str(measured), *verb]
    copy.run(child)
    with table.open(encoding="utf-8") as lines:
        (rows, last), *_ = deque(enumerate(lines, 1), maxlen=1) or [(0, "")]
    if rows != layout.world_size or json.loads(last)["rank"] != rows - 1:
        raise CommandFailed(f"{rows} rows for {layout.world_size} ranks, the last {last!r}")
    found: dict[str, float] = json.loads(measured.read_text(encoding="utf-8"))
    return found
