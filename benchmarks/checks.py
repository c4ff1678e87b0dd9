"""What `rankatlas check` costs, beside the least that a command in Python which reads the same file must do.

    python benchmarks/checks.py --turns 9 --markdown

The lower bound starts Python, imports click and reads the file. Both run in fresh processes that take turns, and
processor time is measured, because the machine may be busy; the least of all turns counts. One source of every dialect
is checked, and one layout on worlds from 8 to 2^40 ranks, with nodes, a model and without. What the checks alone take
is measured in this process. The exit code is 0 in any case.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__, "../..").resolve()
sys.path.insert(0, str(ROOT / "tests"))

from commands import Installed, installed  # noqa: E402
from launch_texts import STYLES  # noqa: E402
from rankatlas import Mesh  # noqa: E402
from rankatlas.checks import check_job  # noqa: E402
from rankatlas.cluster import Cluster  # noqa: E402
from rankatlas.job import Fact, Job  # noqa: E402

CASES = ROOT / "tests" / "cases" / "launches.json"
# One of tests/cases/launches.json for every dialect.
SOURCES = {
    "Megatron-LM, a log": "megatron-llama3-8b",
    "Megatron-LM, a script": "megatron-mixtral-8x7b",
    "Megatron-Bridge": "bridge-llama32-1b",
    "PaddleNLP": "paddlenlp-llama-pretrain",
    "PaddleFormers, with experts": "formers-dsv3-128k",
    "torchtitan": "titan-llama3-405b",
    "DeepSpeed": "deepspeed-autotp",
    "accelerate": "accelerate-hybrid",
    "verl": "verl-qwen2-7b-megatron",
    "NeMo-RL": "nemo-rl-dsv3-megatron",
}
WORLDS = (8, 64, 1024, 2**20, 2**40)
FLOOR = "import sys, click; open(sys.argv[1], 'rb').read()"
MODEL = {"layers": 128, "heads": 128, "kv_heads": 8, "hidden": 16384, "ffn": 53248, "vocab": 128256}


def used(call: Callable[[], object]) -> float:
    """The processor time of the processes that a call starts and waits for, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def least(copy: Installed, programs: Mapping[str, Sequence[str]], turns: int) -> dict[str, float]:
    """The least processor time of every program; they take turns, and the first turn only warms the disk's cache."""
    found = dict.fromkeys(programs, float("inf"))
    for turn in range(turns + 1):
        for name, command in programs.items():
            seconds = used(lambda command=command: copy.run(command))  # type: ignore[misc]
            if turn:
                found[name] = min(found[name], seconds)
    return found


def sources(folder: Path) -> dict[str, list[str]]:
    """Dialect → the arguments that check its source, written into the folder."""
    cases = {case["id"]: case for case in json.loads(CASES.read_text(encoding="utf-8"))}
    found = {}
    for number, (dialect, name) in enumerate(SOURCES.items()):
        case = cases[name]
        write, ending = STYLES[case["style"]]
        path = folder / f"{number}-{ending}"
        path.write_text(write(case["facts"]), encoding="utf-8")
        world = ["-n", str(case["world"])] if case.get("world") else []
        form = ["--from", case["format"]] if case.get("format") else []
        found[dialect] = [str(path), *world, *form]
    return found


def layout(world: int) -> str:
    """A layout of that many ranks with a pipeline and tensor ranks as far as they fit."""
    pipeline = min(16, world // 8)
    return f"pp={pipeline} dp={world // 8 // pipeline} tp=8"


def alone(world: int, turns: int) -> float:
    """The least processor time of all checks of a job with a model on nodes of 8, in this process."""
    sizes = {axis: int(size) for axis, size in (item.split("=") for item in layout(world).split())}
    settings = [Fact(name, value, "given") for name, value in MODEL.items()]
    job = Job(Mesh.from_axes(sizes.items()), format="megatron-0.16", source="", settings=settings)
    cluster = Cluster.of(world // 8, 8)
    best = float("inf")
    for _ in range(turns * 20):
        begin = time.process_time()
        check_job(job, cluster)
        best = min(best, time.process_time() - begin)
    return best


def measured(turns: int) -> dict[str, dict[str, dict[str, float]]]:
    """Section → row → seconds, and their ratio to the lower bound where there is one."""
    with installed() as copy, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        checked = sources(folder)
        check = [sys.executable, "-m", "rankatlas", "check", "--fail-on", "never"]
        programs = {f"{dialect}: {what}": command for dialect, arguments in checked.items() for what, command in (
            ("floor", [sys.executable, "-c", FLOOR, arguments[0]]), ("check", [*check, *arguments]),
        )}  # fmt: skip
        empty = folder / "empty"
        empty.write_text("")
        programs["worlds: floor"] = [sys.executable, "-c", FLOOR, str(empty)]
        for world in WORLDS:
            programs[f"worlds: {world}"] = [*check, layout(world), "--nodes", f"{world // 8}x8"]
        seconds = least(copy, programs, turns)
    dialects = {
        dialect: {"floor": seconds[f"{dialect}: floor"], "check": seconds[f"{dialect}: check"]} for dialect in checked
    }
    worlds = {
        str(world): {
            "floor": seconds["worlds: floor"],
            "check": seconds[f"worlds: {world}"],
            "checks alone": alone(world, turns),
        }
        for world in WORLDS
    }
    for row in (*dialects.values(), *worlds.values()):
        row["ratio"] = row["check"] / row["floor"]
    return {"dialects": dialects, "worlds": worlds}


def tables(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[str]:
    """The same as two tables of a page."""
    lines = ["| source | lower bound | check | times |", "|---|---|---|---|"]
    for name, row in found["dialects"].items():
        lines.append(f"| {name} | {row['floor']:.3f} s | {row['check']:.3f} s | {row['ratio']:.1f} |")
    lines += ["", "| ranks | lower bound | check | times | the checks alone |", "|---|---|---|---|---|"]
    for name, row in found["worlds"].items():
        told = f"{int(name):,}"
        lines.append(
            f"| {told} | {row['floor']:.3f} s | {row['check']:.3f} s | {row['ratio']:.1f} |"
            f" {row['checks alone'] * 1e3:.2f} ms |"
        )
    return lines


def main() -> None:
    """Measure, and print one JSON object or two tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    os.environ.pop("RANKATLAS_TRACEBACK", None)
    found = measured(asked.turns)
    print("\n".join(tables(found)) if asked.markdown else json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
