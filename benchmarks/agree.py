"""What `live.agree` and `live.record` cost: eight real processes, and rank 0's part among thousands.

    python benchmarks/agree.py [--world 4096] [--json FILE] [--markdown FILE]

The thousands are simulated by a few processes that speak for many ranks each, through the same code and the same kind
of store, a real TCPStore.  They have all spoken before rank 0 begins, so that its time is its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rankatlas import Mesh, live
from rankatlas.adapters.torch_job import TorchStore
from rankatlas.live.rounds import Round
from rankatlas.records.kinds import sort_kinds
from rankatlas.records.record import made_of

agreeing = sys.modules["rankatlas.live.agree"]  # the name in the package is the function
recording = sys.modules["rankatlas.live.record"]

LONG = datetime.timedelta(seconds=300)
TURNS = 20
SPEAKERS = 4
TARGETS = {"agree": ("eight processes, agree", 0.1), "rank 0": ("rank 0, all agree", 5.0)}


def fork(work: Callable[[], Any], path: Path) -> int:
    """A process that writes what `work` returns to `path`."""
    pid = os.fork()
    if pid == 0:
        try:
            path.write_text(json.dumps(work()))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    return pid


def answers(pids: list[int], paths: list[Path]) -> list[Any]:
    for pid in pids:
        os.waitpid(pid, 0)
    return [json.loads(path.read_text()) for path in paths]


def eight(folder: Path) -> dict[str, float]:
    """Seconds of the slowest rank, median of many turns; all ranks start together."""

    def work(rank: int) -> dict[str, list[float]]:
        torch.set_num_threads(1)
        started = time.perf_counter()
        dist.init_process_group("gloo", init_method=f"file://{folder}/store8", rank=rank, world_size=8, timeout=LONG)
        found: dict[str, list[float]] = {"init_process_group": [time.perf_counter() - started]}
        mesh = Mesh(pp=2, dp=2, tp=2)
        for axis in mesh.axes:
            for group in mesh.groups(axis):
                dist.new_group(list(group))
        for name, one in (("agree", lambda: live.agree(mesh, extra={"seed": 1})), ("record", live.record)):
            times = found[name] = []
            for _ in range(TURNS):
                dist.barrier()
                started = time.perf_counter()
                one()
                times.append(time.perf_counter() - started)
        dist.barrier()
        return found

    paths = [folder / f"eight{rank}" for rank in range(8)]
    said = answers([fork(lambda rank=rank: work(rank), paths[rank]) for rank in range(8)], paths)
    return {
        f"eight processes, {name}": statistics.median(max(turn) for turn in zip(*(one[name] for one in said)))
        for name in said[0]
    }


class Crowd:
    """Thousands of ranks in a few processes, on one store that this process keeps."""

    def __init__(self, world: int, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.server = dist.TCPStore("127.0.0.1", 0, None, is_master=True, timeout=LONG, wait_for_workers=False)

    def store(self) -> TorchStore:
        return TorchStore(dist.TCPStore("127.0.0.1", self.server.port, None, is_master=False, timeout=LONG))

    def agree(self, name: str, layout_of: Callable[[int], dict[str, Any]], silent: int | None = None) -> dict[str, Any]:
        """Rank 0's seconds, from its first word to the verdict, after everybody else has spoken."""

        def speak(store: TorchStore, rank: int) -> tuple[Round, str]:
            fields = layout_of(rank)
            digest = agreeing.digest_of(fields)
            round_ = self.round(store, name, rank)
            round_.say(json.dumps({"host": f"gpu-{rank // 8}", "fields": fields}).encode(), digest)
            return round_, digest

        def crowd(first: int) -> float:
            store = self.store()
            started = time.perf_counter()
            ranks = [rank for rank in range(first or SPEAKERS, self.world, SPEAKERS) if rank != silent]
            rounds = [speak(store, rank)[0] for rank in ranks]
            taken = time.perf_counter() - started
            store.set(f"{name}/ready/{first}", b"1")
            rounds[0].hear(100)
            return taken / len(ranks)

        paths = [self.folder / f"{name}{first}" for first in range(SPEAKERS)]
        pids = [fork(lambda first=first: crowd(first), paths[first]) for first in range(SPEAKERS)]
        store = self.store()
        store.wait([f"{name}/ready/{first}" for first in range(SPEAKERS)], 200)
        started = time.perf_counter()
        round_, digest = speak(store, 0)
        verdict = agreeing.judge(round_, self.world, digest, time.monotonic() + (0.1 if silent else 60))
        round_.answer(json.dumps(verdict).encode(), 0)
        taken = time.perf_counter() - started
        each = answers(pids, paths)
        return {"seconds": taken, "announcing": statistics.median(each), "verdict": verdict}

    def round(self, store: TorchStore, topic: str, rank: int) -> Round:
        """The round of one simulated rank: each needs a name of its own, where processes speak for many."""
        return Round(store, topic, rank, self.world, me=f"rank {rank} of {topic}")

    def record(self) -> dict[str, float]:
        """Rank 0's seconds to gather, sort, infer and publish what every rank sees of its eleven kinds of groups."""
        mesh = Mesh(pp=8, dp=self.world // 64, cp=2, tp=4)
        named = [("TENSOR_MODEL_PARALLEL_GROUP", "tp"), ("PIPELINE_MODEL_PARALLEL_GROUP", "pp")]
        named += [("DATA_PARALLEL_GROUP", "dp"), ("CONTEXT_PARALLEL_GROUP", "cp")]
        sets = [("default_pg", mesh.axes), *((text, (axis,)) for text, axis in named)]
        sets += [("DATA_PARALLEL_GROUP_WITH_CP", ("dp", "cp")), ("MODEL_PARALLEL_GROUP", ("pp", "tp"))]
        sets += [("TENSOR_AND_DATA_PARALLEL_GROUP", ("dp", "tp")), ("mesh_loss", ("dp", "cp"))]
        sets += [("TENSOR_AND_CONTEXT_PARALLEL_GROUP", ("cp", "tp")), ("EVERYTHING", mesh.axes)]

        def own(rank: int) -> dict[str, Any]:
            groups = [
                {"description": text, "ranks": list(mesh.group(*axes, rank=rank)), "number": None}
                for text, axes in sets
            ]
            return {"rank": rank, "host": f"gpu-{rank // 8}", "local_rank": rank % 8, "device": "cpu", "groups": groups}

        def put_together(gathered: list[dict[str, Any]]) -> Any:
            kinds = sort_kinds({one["rank"]: one["groups"] for one in gathered})
            ranks = [{key: one[key] for key in ("rank", "host", "local_rank", "device")} for one in gathered]
            return made_of(ranks, kinds, None, "torch")

        def packed(rank: int) -> bytes:
            said = own(rank)
            return recording._packed({**said, "groups": [recording._short(one) for one in said["groups"]]})

        def crowd(first: int) -> int:
            store = self.store()
            size = 0
            for rank in range(first or SPEAKERS, self.world, SPEAKERS):
                size = max(size, len(packed(rank)))
                self.round(store, "record", rank).say(packed(rank))
            store.set(f"record/ready/{first}", b"1")
            return size

        paths = [self.folder / f"record{first}" for first in range(SPEAKERS)]
        pids = [fork(lambda first=first: crowd(first), paths[first]) for first in range(SPEAKERS)]
        store = self.store()
        store.wait([f"record/ready/{first}" for first in range(SPEAKERS)], 200)
        started = time.perf_counter()
        round_ = self.round(store, "record", 0)
        round_.say(packed(0))
        made = put_together(recording._everyone(round_, self.world, 60))
        answer = recording._packed({"record": made.to_dict(), "silent": None, "refused": None})
        round_.answer(answer, 0)
        taken = time.perf_counter() - started
        if str(made.layout) != str(mesh) or made.unexplained:
            raise RuntimeError(f"{made.layout} was found instead of {mesh}; unexplained: {made.unexplained}")
        size = max(answers(pids, paths))
        return {"seconds": taken, "bytes_from_a_rank": size, "bytes_of_the_record": len(answer)}


def thousands(world: int, folder: Path) -> dict[str, float]:
    crowd = Crowd(world, folder)
    same = {"order": "pp dp cp tp", "pp": 8, "dp": world // 64, "cp": 2, "tp": 4}
    other = {**same, "order": "dp pp cp tp"}
    fine = crowd.agree("fine", lambda rank: same)
    one = crowd.agree("one", lambda rank: other if rank == 5 else same)
    half = crowd.agree("half", lambda rank: other if rank >= world // 2 else same)
    silent = crowd.agree("silent", lambda rank: same, silent=world // 2 + 1)
    if fine["verdict"] or one["verdict"]["camps"][0]["ranks"] != [5]:
        raise RuntimeError(f"wrong verdicts: {fine['verdict']}, {one['verdict']}")
    if len(half["verdict"]["camps"][0]["ranks"]) != world // 2 or silent["verdict"]["missing"] != [world // 2 + 1]:
        raise RuntimeError("wrong verdicts")
    made = crowd.record()
    return {
        "rank 0, all agree": fine["seconds"],
        "rank 0, one rank differs": one["seconds"],
        "rank 0, half of the ranks differ": half["seconds"],
        "rank 0, one rank is silent (0.1 s of it waiting)": silent["seconds"],
        "any other rank, announcing": fine["announcing"],
        "rank 0, record": made["seconds"],
        "record, bytes a rank sends": made["bytes_from_a_rank"],
        "record, bytes a rank receives": made["bytes_of_the_record"],
    }


def rows(results: dict[str, Any]) -> str:
    """The numbers as Markdown."""
    lines = ["| what | measured | target |", "|---|---:|---:|"]
    targets = dict(TARGETS.values())
    for world, found in results["worlds"].items():
        for name, value in found.items():
            told = f"{value:,.0f} bytes" if "bytes" in name else f"{value * 1000:,.1f} ms"
            target = f"< {targets[name]:g} s" if name in targets else ""
            lines.append(f"| {int(world):,} ranks: {name} | {told} | {target} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--world", type=int, default=4096, help="simulated ranks, a multiple of 64")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    asked = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        worlds = {"8": eight(Path(folder)), str(asked.world): thousands(asked.world, Path(folder))}
    results = {"torch": torch.__version__, "processors": os.cpu_count(), "worlds": worlds}
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1) + "\n")
    if asked.markdown:
        asked.markdown.write_text(rows(results))
    print(rows(results), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
