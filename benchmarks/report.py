"""The results as a Markdown page, and the part of a README that shows them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ours
from layouts import LAYOUTS
from peer_runs import FRAMEWORKS
from targets import Verdict
from words import multiple_of, time_of

BEGIN, END = "<!-- benchmark:begin -->", "<!-- benchmark:end -->"

LABELS = {
    ours.FLOOR: "the loop written by hand (one question, no names, no checks)",
    ours.ASKED: "**rankatlas**, a mesh that exists",
    ours.ASKED_READ: "**rankatlas**, a mesh that exists, every `ranks` and `group_rank` read",
    ours.MADE: "**rankatlas**, mesh made and validated",
    ours.MADE_READ: "**rankatlas**, mesh made, every `ranks` and `group_rank` read",
    ours.TOPOLOGY: "**rankatlas** `Topology(…)`",
    ours.TOPOLOGY_READ: "**rankatlas** `Topology(…)`, five ranks and sizes read",
    ours.TOPOLOGY_LISTS: "**rankatlas** `Topology(…)`, five lists of ranks read",
}


class NoMarkers(ValueError):
    """A README without the two markers, so that there is no place for the tables."""


def markdown(results: Mapping[str, Any], found: Sequence[Verdict]) -> str:
    """The whole page: one rank's question, the targets, and on what they were measured."""
    parts = []
    if results.get("one_rank") or results.get("peers"):
        parts.append(_one_rank(results))
    if found:
        parts.append(
            _table(("what", "target", "measured", "met"), [(v.promise, v.target, v.measured, v.word) for v in found])
        )
    parts.append(_machine(results))
    return "\n\n".join(parts) + "\n"


def _one_rank(results: Mapping[str, Any]) -> str:
    cells: dict[tuple[str, int], str] = {}
    for row in results.get("one_rank", []):
        cells[row["who"], row["world"]] = _cell(row, floor=row["who"] == ours.FLOOR)
    for row in results.get("peers", []):
        cells[row["who"], row["world"]] = _cell(row) if "seconds" in row else row["reason"]
    measured = {who for who, _ in cells}
    worlds = [layout.world_size for layout in LAYOUTS]
    labels = LABELS | {framework.name: framework.label for framework in FRAMEWORKS}
    rows = [
        (label, *(cells.get((who, world), "—") for world in worlds)) for who, label in labels.items() if who in measured
    ]
    title = "One rank learns its coordinate and its five groups (time, and multiple of the loop in the same process):"
    return title + "\n\n" + _table(("ranks", *map(_world, worlds)), rows)


def _world(world: int) -> str:
    return "2^40" if world == 1 << 40 else f"{world:,}"


def _cell(row: Mapping[str, Any], *, floor: bool = False) -> str:
    return time_of(row["seconds"]) if floor else f"{time_of(row['seconds'])} ({multiple_of(row['ratio'])})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join([" --- "] * len(head)) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _machine(results: Mapping[str, Any]) -> str:
    facts = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in results.get("versions", {}).items())
    told = f"{facts['implementation']} {facts['python']}, {facts['cpus']} cores, {facts['system']}"
    return f"Measured in one run of `python benchmarks/run.py` ({told}; {versions})."


def write(path: Path, text: str) -> None:
    """Whole or not at all: written beside its place, then moved into it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as handle:
            handle.write(text)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def replaced(readme: str, page: str) -> str:
    """The README's text with the part between the markers being `page`.  Raises NoMarkers."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise NoMarkers(f"there is no {BEGIN} … {END}")
    return f"{before}{begin}\n\n{page.strip()}\n\n{end}{after}"
