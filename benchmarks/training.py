"""The proof: every layout against one process, step by step, in both precisions; as a table, a plot and a result file.

    python benchmarks/training.py --folder FOLDER

A launch of torchrun trains under many layouts.  A run that is done stays in the folder and is not done again, so an
interrupted table goes on where it was.  `--part mistakes` makes only the second table, of runs that must differ.
`--write` puts tables and plot into docs/.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(EXAMPLES))

from train_gpt.mistakes import MISTAKES  # noqa: E402

from training_plot import drawn  # noqa: E402

TOLERANCE = {"float64": 1e-9, "float32": 1e-5}
STEPS = 300
ALONE = "alone"
WRONG_STEPS = 30
SECONDS = 3600  # that one launch may take

Run = dict[str, Any]

# By world size; the order of axes is outer → inner, so these are different placements of the same sizes, too.
LAYOUTS: dict[int, list[Run]] = {
    8: [
        {"layout": "pp=2 dp=2 tp=2"},
        {"layout": "tp=2 dp=2 pp=2"},
        {"layout": "sharding=2 dp=2 tp=2"},
        {"layout": "cp=2 sep=2 tp=2"},
        {"layout": "pp=2 sharding=2 cp=2", "split": "balanced"},
        {"layout": "dp=2 sep=2 sharding=2"},
        {"layout": "pp=4 dp=2"},
        {"layout": "sep=4 mp=2"},
    ],
    4: [
        {"layout": "dp=4"},
        {"layout": "sharding=4"},
        {"layout": "tp=4"},
        {"layout": "cp=4", "split": "balanced"},
        {"layout": "pp=2 sep=2"},
        {"layout": "sep=2 pp=2", "micro_batch": 4},
    ],
    6: [{"layout": "sharding=3 tp=2"}],
}
CHAIN = [(8, "pp=2 dp=2 tp=2"), (4, "cp=2 sep=2"), (6, "dp=3 pp=2")]  # each goes on from the one before
WRONG: list[Run] = [
    {"layout": "pp=2 dp=2 tp=2", "mistake": "masks"},
    {"layout": "pp=2 dp=2 tp=2", "mistake": "norms"},
    {"layout": "pp=2 sharding=2 cp=2", "mistake": "labels"},
]


def launches(folder: Path, dtype: str, steps: int) -> list[tuple[str, int, list[Run]]]:
    """(name, processes, runs) of every launch of one precision, in an order in which each finds its checkpoint."""
    rest = [(f"{world}", world, runs) for world, runs in LAYOUTS.items()]
    chain = []
    for number, (world, layout) in enumerate(CHAIN):
        end = steps * (number + 1) // len(CHAIN)
        run: Run = {"layout": layout, "steps": end, "save": str(folder / f"{dtype}-checkpoint-{end}")}
        if number:
            run["resume"] = str(folder / f"{dtype}-checkpoint-{steps * number // len(CHAIN)}")
        chain.append((f"chain-{number}", world, [run]))
    return [(ALONE, 1, [{"layout": "dp=1"}]), *rest, *chain]


def launched(folder: Path, name: str, world: int, runs: list[Run], dtype: str, steps: int) -> list[Run]:
    """What a launch has told; of runs that it has told already, the folder."""
    found = taken_in(folder, name)
    left = runs[len(found) :]
    if left:
        listed = folder / f"{name}.runs.json"
        listed.write_text(json.dumps(left))
        script = [str(EXAMPLES / "train_gpt.py"), "--runs", str(listed), "--json", str(folder / f"{name}.rest.json")]
        script += ["--dtype", dtype, "--steps", str(steps), "--every", str(steps)]
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)] if world > 1 else []
        path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, *torchrun, *script], env=environment, check=True, timeout=SECONDS)
        found = taken_in(folder, name)
    return found


def taken_in(folder: Path, name: str) -> list[Run]:
    """The runs a launch has told, those of one that was interrupted included."""
    told, rest = folder / f"{name}.json", folder / f"{name}.rest.json"
    found: list[Run] = json.loads(told.read_text()) if told.exists() else []
    if rest.exists():
        found += json.loads(rest.read_text())
        told.write_text(json.dumps(found, indent=1))
        rest.unlink()
    return found


def compared(run: Run, reference: Run) -> Run:
    """A run beside that of one process: the largest relative difference of a loss, and where it was."""
    whole = reference["losses"][run["first"] : run["first"] + len(run["losses"])]
    apart = [abs(loss / right - 1) for loss, right in zip(run["losses"], whole)]
    bound = TOLERANCE[run["settings"]["dtype"]]
    beyond = next((run["first"] + step for step, one in enumerate(apart) if one > bound), None)
    kept = {name: run[name] for name in ("layout", "split", "micro_batch", "resume", "mistake", "first", "seconds")}
    samples = run["samples"] == reference["samples"][run["first"] : run["first"] + len(run["losses"])]
    return {
        **kept,
        "world": world_of(run["mesh"]),
        "steps": run["first"] + len(run["losses"]),
        "apart": apart,
        "largest": max(apart),
        "beyond": beyond,
        "same_samples": samples,
    }


def world_of(mesh: str) -> int:
    """The world size of a mesh in notation."""
    product = 1
    for item in mesh.split():
        product *= int(item.split("=")[1])
    return product


def label(run: Run) -> str:
    """A run in a few words."""
    words = [f"`{run['layout']}`"]
    words += [run["split"]] if run["split"] == "balanced" else []
    words += [f"micro-batches of {run['micro_batch']}"] if run["micro_batch"] else []
    words += [f"resumed at step {run['first']}"] if run["first"] else []
    words += [MISTAKES[run["mistake"]]] if run["mistake"] else []
    return ", ".join(words)


def of_layouts(told: dict[str, list[Run]]) -> str:
    """The table of runs that must be alike, a line per run; a dash where a run is not done yet."""
    rows: dict[tuple[str, int], dict[str, Run]] = {}
    for dtype, runs in told.items():
        for run in runs:
            rows.setdefault((label(run), run["steps"]), {})[dtype] = run
    lines = ["| layout | processes | steps | float64, ≤ 1e-9 | float32, ≤ 1e-5 |", "| --- | --- | --- | --- | --- |"]
    for (words, _), both in rows.items():
        one = next(iter(both.values()))
        cells = " | ".join(_largest(both.get(dtype)) for dtype in TOLERANCE)
        lines.append(f"| {words} | {one['world']} | {one['first'] + 1}–{one['steps']} | {cells} |")
    every = [run for runs in told.values() for run in runs]
    so_far = "" if len(every) == len(TOLERANCE) * len(rows) else " so far, a dash where one is not done yet"
    same = "yes" if all(run["same_samples"] for run in every) else "**no**"
    lines += ["", f"{len(every)} runs{so_far}; the same samples in the same order in every one of them: {same}."]
    return "\n".join(lines)


def of_mistakes(runs: list[Run]) -> str:
    """The table of runs that must differ."""
    lines = ["| mistake | layout | largest difference, float64 | first step beyond 1e-9 |", "| --- | --- | --- | --- |"]
    for run in runs:
        step = "**none**" if run["beyond"] is None else run["beyond"] + 1
        lines.append(f"| {MISTAKES[run['mistake']]} | `{run['layout']}` | {run['largest']:.1e} | {step} |")
    return "\n".join(lines)


def _largest(run: Run | None) -> str:
    if run is None:
        return "—"
    return f"{run['largest']:.1e}" if run["beyond"] is None else f"**{run['largest']:.1e}**"


def written(page: Path, name: str, table: str) -> None:
    """Put a table between its two marks."""
    before, rest = page.read_text().split(f"<!-- {name}:begin -->")
    _, after = rest.split(f"<!-- {name}:end -->")
    page.write_text(f"{before}<!-- {name}:begin -->\n\n{table}\n\n<!-- {name}:end -->{after}")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="for checkpoints and what launches have told")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--so-far", action="store_true", help="start nothing; only what the folder has already")
    parser.add_argument("--part", choices=["all", "mistakes"], default="all")
    parser.add_argument("--write", action="store_true", help="tables and plot into docs/")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    if asked.so_far and not (asked.folder / f"float64-{ALONE}.json").exists():
        parser.error(f"{asked.folder} has no run of one process in float64 yet, beside which others are held")

    def runs(name: str, world: int, wanted: list[Run], dtype: str, steps: int) -> list[Run]:
        name = f"{dtype}-{name}"
        return (
            taken_in(asked.folder, name) if asked.so_far else launched(asked.folder, name, world, wanted, dtype, steps)
        )

    tables: dict[str, str] = {}
    result: dict[str, Any] = {"steps": asked.steps}
    right = True
    if asked.part == "all":
        told: dict[tuple[str, str], list[Run]] = {}
        for both in zip(*(launches(asked.folder, dtype, asked.steps) for dtype in TOLERANCE)):
            for dtype, (name, world, wanted) in zip(TOLERANCE, both):
                told[name, dtype] = runs(name, world, wanted, dtype, asked.steps)
        for dtype in TOLERANCE:
            (reference,) = told[ALONE, dtype]
            others = [found for (name, of), found in told.items() if of == dtype and name != ALONE]
            alike = [compared(run, reference) for found in others for run in found]
            result[dtype] = {"losses": reference["losses"], "runs": alike}
            right = right and all(run["beyond"] is None for run in alike)
        tables["layouts"] = of_layouts({dtype: result[dtype]["runs"] for dtype in TOLERANCE})
    (reference,) = runs(ALONE, 1, [{"layout": "dp=1"}], "float64", asked.steps)
    wrong = runs("wrong", 8, WRONG, "float64", min(WRONG_STEPS, asked.steps))
    seen = [compared(run, reference) for run in wrong]
    tables["mistakes"] = of_mistakes(seen)
    print("\n\n".join(tables.values()))
    if asked.part == "all":
        result["float64"]["wrong"] = seen
        (asked.folder / "result.json").write_text(json.dumps(result, indent=1))
        if asked.write:
            (ROOT / "docs" / "img" / "training.svg").write_text(drawn(result))
    if asked.write:
        for name, table in tables.items():
            written(ROOT / "docs" / "training.md", name, table)
    return int(not right or any(run["beyond"] is None for run in seen))


if __name__ == "__main__":
    sys.exit(main())
