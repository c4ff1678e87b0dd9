"""What creating groups costs: on one rank of many thousands without any handshake, and in eight real processes.

    python benchmarks/creation.py [--world 16384] [--turns 5] [--json FILE] [--markdown FILE]

The thousands are torch's fake backend.  Four ways make the same groups: `open_groups`, torch's own `init_device_mesh`, a
loop over all groups on every rank as Megatron-LM and Paddle have it, and a bare `new_group` per set of axes for the
rank's own group, which is the least there is to do.  Each turn is a process group of its own; the fastest turn counts,
and ratios are of those.  The eight processes talk over gloo, the agreement before the groups included; there an audit
of 64 MiB is timed, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from agree import answers, fork
from rankatlas import Mesh
from rankatlas.adapters.torch import open_groups
from rankatlas.audit import audit_replicas
from rankatlas.creation import CreationPlan
from rankatlas.tensors import TensorLayout

RANK = 4321  # any rank does the same work
TURNS = 5  # of the eight processes
LEAST = {"the loop over all groups": 50.0, "init_device_mesh": 1.0}  # times our own, at least


def ours(mesh: Mesh) -> Callable[[], Any]:
    return lambda: open_groups(CreationPlan(mesh, mesh.axes))


def torchs(mesh: Mesh) -> Callable[[], Any]:
    return lambda: init_device_mesh("cpu", mesh.sizes, mesh_dim_names=mesh.axes)


def loop(mesh: Mesh) -> Callable[[], Any]:
    def work() -> None:
        for axis in mesh.axes:
            for ranks in mesh.groups(axis).ranges():
                dist.new_group(list(ranks), group_desc=axis)

    return work


def bare(mesh: Mesh) -> Callable[[], Any]:
    def work() -> None:
        for axis in mesh.axes:
            dist.new_group(list(mesh.group(axis, rank=RANK)), use_local_synchronization=True, group_desc=axis)

    return work


WAYS = {
    "open_groups": ours,
    "init_device_mesh": torchs,
    "the loop over all groups": loop,
    "a bare new_group per axis": bare,
}


def seconds(mesh: Mesh, way: Callable[[Mesh], Callable[[], Any]]) -> float:
    """One turn in a fresh job of one process that stands for all."""
    dist.init_process_group("fake", store=FakeStore(), rank=RANK, world_size=mesh.world_size)
    try:
        work = way(mesh)
        started = time.perf_counter()
        work()
        return time.perf_counter() - started
    finally:
        dist.destroy_process_group()


def measure(mesh: Mesh, turns: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for turn in range(turns + 1):
        for name, way in WAYS.items():
            taken = seconds(mesh, way)
            if turn:  # the first turn warms what is loaded late
                found[name] = min(found.get(name, taken), taken)
    return found


def eight(folder: Path) -> dict[str, float]:
    """Seconds of the slowest of eight processes, median of turns; all start together."""
    mesh = Mesh(pp=2, dp=2, tp=2)

    def work(rank: int) -> dict[str, list[float]]:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=8)
        found: dict[str, list[float]] = {name: [] for name in (*WAYS, "an audit of 64 MiB")}
        copied = TensorLayout(mesh, mesh.axes)
        tensors = {f"w{number}": torch.ones(1 << 20) for number in range(16)}
        for _ in range(TURNS):
            for name in ("open_groups", "init_device_mesh", "the loop over all groups"):
                one = WAYS[name](mesh)
                dist.barrier()
                started = time.perf_counter()
                made = one()
                found[name].append(time.perf_counter() - started)
                dist.barrier()
                if name == "open_groups":
                    made.close()
            with open_groups(CreationPlan(mesh, ["+".join(mesh.axes)])) as handles:
                started = time.perf_counter()
                audit_replicas(tensors, copied, handles).raise_if_bad()
                found["an audit of 64 MiB"].append(time.perf_counter() - started)
                dist.barrier()
        return found

    paths = [folder / f"said{rank}" for rank in range(8)]
    said = answers([fork(lambda rank=rank: work(rank), paths[rank]) for rank in range(8)], paths)
    return {
        name: statistics.median(max(turn) for turn in zip(*(one[name] for one in said)))
        for name in said[0]
        if said[0][name]
    }


def rows(results: dict[str, Any]) -> str:
    """The numbers as Markdown."""
    mesh, found = results["layout"], results["seconds"]
    lines = [
        f"Groups of `{mesh}` ({results['world']:,} ranks) on one rank, torch {results['torch']}, fake backend:",
        "",
        "| way | time | times ours | asked: at least |",
        "|---|---:|---:|---:|",
    ]
    for name, taken in found.items():
        least = f"{LEAST[name]:g}" if name in LEAST else ""
        lines.append(f"| {name} | {taken * 1000:,.2f} ms | {taken / found['open_groups']:,.1f} | {least} |")
    lines += ["", "Eight real processes over gloo, `pp=2 dp=2 tp=2`:", "", "| what | time |", "|---|---:|"]
    lines += [f"| {name} | {taken * 1000:,.1f} ms |" for name, taken in results["eight"].items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--world", type=int, default=16384, help="ranks, a multiple of 256")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    mesh = Mesh(pp=8, dp=asked.world // 256, cp=4, tp=8)
    results = {
        "torch": torch.__version__,
        "processors": os.cpu_count(),
        "layout": str(mesh),
        "world": mesh.world_size,
        "seconds": measure(mesh, asked.turns),
    }
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        results["eight"] = eight(Path(folder))
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1) + "\n")
    if asked.markdown:
        asked.markdown.write_text(rows(results))
    print(rows(results), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
