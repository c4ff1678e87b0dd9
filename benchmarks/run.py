"""Every number that rankatlas promises, measured beside its floor and its peers in one run.

    python benchmarks/run.py --json results.json --markdown results.md
    python benchmarks/run.py --only one_rank tables
    python benchmarks/run.py --install --readme README.md

A benchmark measures and never fails a build: the exit code is 0 whether or not the targets are met.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import commands
import ours
import peer_runs
import rankatlas
import report
from layouts import LAYOUTS, MIDDLE, MILLION
from targets import verdicts

OURS = ("one_rank", "memory", "tables", "ranges", "import", "where", "show")
PEERS = tuple(framework.name for framework in peer_runs.FRAMEWORKS)


def measure(names: Sequence[str], *, quick: bool, budget: float, install: bool) -> dict[str, Any]:
    """Everything in `names`; what cannot be measured is skipped with a word on standard error."""
    few = 0.4 if quick else 1.0
    sections: dict[str, Callable[[], Any]] = {
        "one_rank": lambda: ours.one_rank(int(30 * few)),
        "memory": ours.memory,
        "tables": lambda: ours.tables(int(20 * few)),
        "ranges": lambda: ours.ranges(int(10 * few)),
        "import": lambda: commands.imports(int(30 * few)),
        "where": lambda: commands.where(int(20 * few)),
        "show": lambda: commands.show(1 if quick else 3),
    }
    results: dict[str, Any] = {
        "format": "rankatlas.benchmark",
        "version": 1,
        "machine": {
            "implementation": platform.python_implementation(),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "layouts": {str(layout.world_size): layout.notation for layout in LAYOUTS},
        "versions": {"rankatlas": rankatlas.__version__, **_numpy()},
    }
    for name in (name for name in OURS if name in names):
        print(f"measuring {name}", file=sys.stderr)
        try:
            results[name] = sections[name]()
        except (ImportError, subprocess.CalledProcessError, commands.CommandFailed) as error:
            print(f"skipped {name}: {error}", file=sys.stderr)
    results["peers"] = []
    worlds = [world for world in (layout.world_size for layout in LAYOUTS) if world <= MILLION.world_size]
    if quick:
        worlds = [world for world in worlds if world <= MIDDLE.world_size]
    for framework in (framework for framework in peer_runs.FRAMEWORKS if framework.name in names):
        try:
            rows = peer_runs.measure(framework, worlds, budget=budget, install=install)
        except peer_runs.PeerUnavailable as error:
            print(f"skipped {framework.name}: {error}", file=sys.stderr)
            continue
        results["peers"] += rows
        results["versions"].update((framework.peer, row["version"]) for row in rows if "version" in row)
    return results


def _numpy() -> dict[str, str]:
    try:
        return {"numpy": version("numpy")}
    except PackageNotFoundError:
        return {}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="rankatlas beside its floor and its peers, as ratios of one run")
    parser.add_argument("--only", nargs="+", choices=OURS + PEERS, metavar="NAME", help=", ".join(OURS + PEERS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="every number, as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the tables")
    parser.add_argument("--readme", type=Path, metavar="FILE", help="put the tables between the markers of this file")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, and no peers beyond 1,024 ranks")
    parser.add_argument("--install", action="store_true", help="make the peers' environments that are missing")
    parser.add_argument("--budget", type=float, default=60.0, metavar="SECONDS", help="per peer and world (60)")
    asked = parser.parse_args(arguments)
    if asked.readme and (asked.only or asked.quick):
        parser.error("--readme shows a whole run: leave out --only and --quick")
    if asked.readme:
        try:
            report.replaced(asked.readme.read_text(encoding="utf-8"), "")  # before minutes are spent, not after
        except (OSError, report.NoMarkers) as error:
            parser.error(f"{asked.readme}: {error}")
    results = measure(asked.only or OURS + PEERS, quick=asked.quick, budget=asked.budget, install=asked.install)
    found = verdicts(results)
    if asked.only:
        found = [verdict for verdict in found if verdict.met is not None]
    results["targets"] = [
        {"promise": v.promise, "target": v.target, "measured": v.measured, "met": v.met} for v in found
    ]
    page = report.markdown(results, found)
    if asked.json:
        report.write(asked.json, json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    if asked.markdown:
        report.write(asked.markdown, page)
    if asked.readme:
        report.write(asked.readme, report.replaced(asked.readme.read_text(encoding="utf-8"), page))
    print(page, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
