"""How an epoch begins, beside torch's DistributedSampler and Megatron-LM's sampler, and what a shuffled index costs.

    python benchmarks/data.py --megatron data_samplers.py --json data.json --docs docs/data.md
    python benchmarks/data.py --quick

Each sampler is asked, in a process of its own, for the first micro-batch of an epoch as data rank 5 of 8; what is
counted is the processor time until it is there and the memory the process needs beyond its imports.  The others hold n
indexes, so they are run up to 10^7 and told per sample.  The price of an index is measured beside numpy making its
permutation, in processor time and in calls that take turns.

Megatron-LM's sampler is in no package: give its file megatron/training/datasets/data_samplers.py.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy

from rankatlas.sampling import Order
from report import write

BEGIN, END = "<!-- data:begin -->", "<!-- data:end -->"
MOST_NANOSECONDS, MOST_OF_NUMPY = 60, 2
CALLS = 1 << 18  # indexes of one call

_MEASURE = """
import json, resource, sys, time
{imports}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
{start}
seconds = time.process_time() - start
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({{"seconds": seconds, "bytes": (after - before) * 1024}}))
"""
_OURS = (
    "import numpy\nfrom rankatlas import Mesh\nfrom rankatlas.sampling import DataShard, ShardedSampler",
    "next(iter(ShardedSampler({n}, DataShard(Mesh(dp=8)), 5, global_batch=512, micro_batch=8)))",
)
_TORCH = (
    "from torch.utils.data import DistributedSampler\n"
    "class Data:\n    def __init__(self, n): self.n = n\n    def __len__(self): return self.n",
    "it = iter(DistributedSampler(Data({n}), 8, 5))\n[next(it) for _ in range(8)]",
)
# What its file imports besides torch and numpy is not needed by its samplers.
_MEGATRON = (
    "from unittest.mock import MagicMock\n"
    "for name in ('core', 'core.datasets', 'core.datasets.utils', 'training', 'training.dist_signal_handler'):\n"
    "    sys.modules['megatron.' + name] = MagicMock()\n"
    "sys.modules['megatron'] = MagicMock()\n"
    "import importlib.util\n"
    "spec = importlib.util.spec_from_file_location('data_samplers', {path!r})\n"
    "theirs = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(theirs)",
    "next(iter(theirs.MegatronPretrainingRandomSampler(None, {n}, 0, 8, 5, 8, data_sharding={sharding})))",
)


def started(code: tuple[str, str], n: int, **more: object) -> dict[str, float]:
    """Seconds and bytes until the first micro-batch of an epoch of n samples."""
    imports, start = (part.format(n=n, **more) for part in code)
    script = _MEASURE.format(imports=imports, start=start)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def starts(megatron: Path | None, most: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def add(who: str, code: tuple[str, str], sizes: Sequence[int], **more: object) -> None:
        for n in sizes:
            print(f"measuring the start of {who}, {n:,} samples", file=sys.stderr)
            rows.append({"who": who, "n": n, **started(code, n, **more)})

    add("rankatlas", _OURS, (10**7, 10**9, 10**12))
    add("torch DistributedSampler", _TORCH, (most,))
    if megatron is None:
        print("skipped Megatron-LM: no --megatron given", file=sys.stderr)
        return rows
    path = str(megatron.resolve())
    add("Megatron-LM, random", _MEGATRON, (most,), path=path, sharding=False)
    add("Megatron-LM, random, data sharding", _MEGATRON, (most,), path=path, sharding=True)
    return rows


def least(calls: dict[str, Any], rounds: int) -> dict[str, float]:
    """The least processor seconds of each call: they take turns, and what others do on the machine does not count."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.thread_time()
            call()
            found[name] = min(found[name], time.thread_time() - start)
    return found


def prices(rounds: int) -> list[dict[str, Any]]:
    """Nanoseconds of a shuffled index, and of numpy's permutation of as many, where that can be made."""
    rows = []
    for n in (10**6, 2**20 + 1, 10**7, 10**9, 2**30 + 1, 10**12):
        print(f"measuring an index of {n:,}", file=sys.stderr)
        places, order = numpy.arange(CALLS) + (n - CALLS) // 2, Order(n, seed=1)
        calls = {"ours": lambda order=order, places=places: order(places)}
        if n <= 10**7:
            generator = numpy.random.default_rng(1)
            calls["numpy"] = lambda generator=generator, n=n: generator.permutation(n)
        best = least(calls, rounds)
        row = {"n": n, "nanoseconds": best["ours"] / CALLS * 1e9}
        if "numpy" in best:
            row["numpy"] = best["numpy"] / n * 1e9
        rows.append(row)
    return rows


def _size(count: float) -> str:
    for unit in ("kB", "MB", "GB"):
        count /= 1024
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if count >= 10 else f"{count:.1f} {unit}"
    raise AssertionError


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def markdown(begun: list[dict[str, Any]], cost: list[dict[str, Any]], machine: str) -> str:
    lines = [
        "| sampler | samples | processor time to the first micro-batch | memory | at 10^9 samples |",
        "|" + " --- |" * 5,
    ]
    for row in begun:
        grows = row["who"] != "rankatlas"
        share = 10**9 / row["n"]
        whole = (
            f"about {_time(row['seconds'] * share)}, {_size(row['bytes'] * share)} (in proportion)"
            if grows
            else "the same"
        )
        used = _size(row["bytes"]) if row["bytes"] > 1 << 20 else "less than 1 MB"
        lines.append(f"| {row['who']} | {row['n']:,} | {_time(row['seconds'])} | {used} | {whole} |")
    lines += ["", "| samples | ns per shuffled index | numpy's permutation, ns per index | ratio |", "|" + " --- |" * 4]
    for row in cost:
        numpys = f"{row['numpy']:.0f} | {row['nanoseconds'] / row['numpy']:.2f}×" if "numpy" in row else "— | —"
        lines.append(f"| {row['n']:,} | {row['nanoseconds']:.0f} | {numpys} |")
    dearest = max(row["nanoseconds"] for row in cost)
    ratio = max(row["nanoseconds"] / row["numpy"] for row in cost if "numpy" in row)
    met = "met" if dearest <= MOST_NANOSECONDS and ratio <= MOST_OF_NUMPY else "not met"
    lines += [
        "",
        f"Target: at most {MOST_NANOSECONDS} ns per index and {MOST_OF_NUMPY}× numpy's permutation; the most are"
        f" {dearest:.0f} ns and {ratio:.2f}×, {met}. {machine}",
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="the start of an epoch, and the price of a shuffled index")
    parser.add_argument("--megatron", type=Path, metavar="FILE", help="Megatron-LM's data_samplers.py")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every number, as JSON")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="the page that gets the tables, between its markers")
    parser.add_argument("--quick", action="store_true", help="fewer repeats, fewer samples")
    asked = parser.parse_args(arguments)
    begun = starts(asked.megatron, 10**6 if asked.quick else 10**7)
    cost = prices(3 if asked.quick else 20)
    versions = {name: version(name) for name in ("rankatlas", "numpy", "torch")}
    told = f"{platform.python_implementation()} {platform.python_version()}, {platform.system()} {platform.machine()}"
    packages = ", ".join(f"{name} {number}" for name, number in versions.items())
    page = markdown(begun, cost, f"Measured in one run of `python benchmarks/data.py` ({told}; {packages}).")
    if asked.json:
        facts = {
            "format": "rankatlas.benchmark-data",
            "version": 1,
            "versions": versions,
            "starts": begun,
            "prices": cost,
        }
        write(asked.json, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    if asked.docs:
        text = asked.docs.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        write(asked.docs, f"{before}{BEGIN}\n\n{page}\n{END}{rest.partition(END)[2]}")
    print(page, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
