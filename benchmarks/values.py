"""How fast layout-invariant values are drawn, beside numpy and torch drawing as many that are not.

    python benchmarks/values.py --json values.json --markdown values.md
    python benchmarks/values.py --quick

One rank draws its piece of a float64 array, or of a dropout mask, cut by rows (one run of elements) and by columns (a
short run in every row).  The others draw the same number of values into a new array, with one thread like ours.  A
rate is always divided by a rate of the same process, whose calls took turns.  The exit code is 0 in any case.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy

from rankatlas import Mesh
from rankatlas.seeding import SeedPlan, Stream
from rankatlas.seeding.values import sharded_dropout_mask, sharded_normal, sharded_uniform
from report import write
from timing import interleaved

KEEP = 0.9
LEAST = 0.5  # of the rate of numpy and torch
OURS = "rankatlas"

Question = Callable[[], object]
Spec = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class Piece:
    """One rank's part of a (rows, columns) array over `parts` ranks."""

    name: str
    shape: tuple[int, int]
    spec: Spec
    parts: int

    @property
    def stream(self) -> Stream:
        return SeedPlan(1234, Mesh(tp=self.parts)).stream("weight", same="tp")

    @property
    def count(self) -> int:
        return self.shape[0] * self.shape[1] // self.parts

    @property
    def rank(self) -> int:
        return self.parts // 2  # at no edge


PIECES = (
    Piece("rows", (4096, 4096), ("tp", None), 8),
    Piece("columns, 512 of 4,096", (4096, 4096), (None, "tp"), 8),
    Piece("columns, 128 of 1,024", (8192, 1024), (None, "tp"), 8),
    Piece("columns, 512 of 1,024", (4096, 1024), (None, "tp"), 2),
)

KINDS: dict[str, Callable[..., Any]] = {
    "uniform": sharded_uniform,
    "normal": sharded_normal,
    "dropout mask": lambda *given: sharded_dropout_mask(*given, keep=KEEP),
}


def drawn(kind: str, piece: Piece, rank: int) -> Any:
    return KINDS[kind](piece.stream, piece.shape, piece.spec, rank)


def questions(kind: str, piece: Piece) -> dict[str, Question]:
    """Ours and theirs: as many values of this kind."""
    stream, rank, count = piece.stream, piece.rank, piece.count
    make = KINDS[kind]
    return {
        OURS: lambda: make(stream, piece.shape, piece.spec, rank),
        **{f"numpy {name}": call for name, call in _numpy(kind, count)},
        **dict(_torch(kind, count)),
    }


def _numpy(kind: str, count: int) -> Iterator[tuple[str, Question]]:
    """numpy's default generator, and the one that ours is made of."""
    for bits in (numpy.random.PCG64, numpy.random.Philox):
        generator = numpy.random.Generator(bits(1))
        yield (
            bits.__name__,
            {
                "uniform": lambda g=generator: g.random(count),
                "normal": lambda g=generator: g.standard_normal(count),
                "dropout mask": lambda g=generator: g.random(count, dtype=numpy.float32) < KEEP,
            }[kind],
        )


def _torch(kind: str, count: int) -> Iterator[tuple[str, Question]]:
    if importlib.util.find_spec("torch") is None:
        print("skipped torch: not installed", file=sys.stderr)
        return
    import torch

    torch.set_num_threads(1)
    yield (
        "torch",
        {
            "uniform": lambda: torch.rand(count, dtype=torch.float64),
            "normal": lambda: torch.randn(count, dtype=torch.float64),
            "dropout mask": lambda: torch.rand(count) < KEEP,
        }[kind],
    )


def check(kind: str, piece: Piece) -> None:
    """A fast wrong piece is no piece: all of them put together must be the array of one rank."""
    alone = Piece(piece.name, piece.shape, (None, None), 1)
    axis = piece.spec.index("tp")
    together = numpy.concatenate([drawn(kind, piece, rank) for rank in range(piece.parts)], axis)
    if not numpy.array_equal(together, drawn(kind, alone, 0)):
        raise AssertionError(f"the {kind} pieces by {piece.name} are not the array")


def measure(rounds: int) -> list[dict[str, object]]:
    """Rows of kind, piece, who, values per second, and ours divided by theirs."""
    rows: list[dict[str, object]] = []
    for kind in KINDS:
        for piece in PIECES:
            print(f"measuring {kind}, {piece.name}", file=sys.stderr)
            check(kind, piece)
            seconds = interleaved(questions(kind, piece), rounds=rounds, slice_seconds=0.02)
            rows += [
                {
                    "kind": kind,
                    "piece": piece.name,
                    "count": piece.count,
                    "who": who,
                    "values_per_second": piece.count / spent,
                    "ratio": spent / seconds[OURS],
                }
                for who, spent in seconds.items()
            ]
    return rows


def markdown(rows: Sequence[Mapping[str, Any]], machine: str) -> str:
    """One line for each kind and piece: our rate, and it divided by each of theirs."""
    others = [who for who in dict.fromkeys(row["who"] for row in rows) if who != OURS]
    head = ("values", "piece", "rankatlas", *(f"of {who}'s rate" for who in others))
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    found = {(row["kind"], row["piece"], row["who"]): row for row in rows}
    for kind in dict.fromkeys(row["kind"] for row in rows):
        for piece in dict.fromkeys(row["piece"] for row in rows):
            rate = found[kind, piece, OURS]["values_per_second"] / 1e6
            cells = [kind, piece, f"{rate:.0f} M/s", *(f"{found[kind, piece, who]['ratio']:.2f}×" for who in others)]
            lines.append("| " + " | ".join(cells) + " |")
    least = min((row["ratio"] for row in rows if row["who"] != OURS), default=0.0)
    met = "met" if least >= LEAST else "not met everywhere"
    lines += ["", f"Target: at least {LEAST}× of every rate; the least is {least:.2f}×, {met}. {machine}"]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="the rate of layout-invariant values, as ratios of one run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every number, as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the table")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    asked = parser.parse_args(arguments)
    rows = measure(5 if asked.quick else 25)
    here = [name for name in ("rankatlas", "numpy", "torch") if importlib.util.find_spec(name)]
    versions = {name: version(name) for name in here}
    told = f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} {platform.machine()}"
    packages = ", ".join(f"{name} {number}" for name, number in versions.items())
    page = markdown(rows, f"Measured in one run of `python benchmarks/values.py` ({told}; {packages}).")
    if asked.json:
        facts = {"format": "rankatlas.benchmark-values", "version": 1, "versions": versions, "rows": rows}
        write(asked.json, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    if asked.markdown:
        write(asked.markdown, page)
    print(page, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
