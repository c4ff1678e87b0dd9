"""rankatlas inside this process: one rank's questions, their memory, and all groups at once."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tracemalloc
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import floor
from layouts import AXES, LAYOUTS, MILLION, Layout
from rankatlas import Mesh, Topology
from timing import interleaved

FLOOR = "floor"
MADE = "mesh made and asked"
MADE_READ = "mesh made and asked, ranks and group_rank read"
ASKED = "existing mesh asked"
ASKED_READ = "existing mesh asked, ranks and group_rank read"
TOPOLOGY = "Topology(…)"
TOPOLOGY_READ = "Topology(…), five ranks and sizes read"
TOPOLOGY_LISTS = "Topology(…), five lists of ranks read"

ORDER = list(AXES)  # the original takes a list

Question = Callable[[], object]


def ask(mesh: Mesh, rank: int) -> object:
    return mesh.coordinate(rank), [mesh.group(axis, rank=rank) for axis in mesh.axes]


def ask_and_read(mesh: Mesh, rank: int) -> object:
    groups = [mesh.group(axis, rank=rank) for axis in mesh.axes]
    return mesh.coordinate(rank), [(group.ranks, group.group_rank) for group in groups]


def make_and_ask(sizes: dict[str, int], rank: int) -> object:
    return ask(Mesh(**sizes), rank)


def make_ask_and_read(sizes: dict[str, int], rank: int) -> object:
    return ask_and_read(Mesh(**sizes), rank)


def make_topology(rank: int, world_size: int, degrees: dict[str, int]) -> Topology:
    return Topology(rank, world_size, **degrees, order=ORDER)


def topology_read(rank: int, world_size: int, degrees: dict[str, int]) -> object:
    made = make_topology(rank, world_size, degrees)
    infos = (made.pp_info, made.dp_info, made.sharding_info, made.mp_info, made.sep_info)
    return made, [(info.rank, info.size) for info in infos]


def topology_lists(rank: int, world_size: int, degrees: dict[str, int]) -> object:
    made = make_topology(rank, world_size, degrees)
    infos = (made.pp_info, made.dp_info, made.sharding_info, made.mp_info, made.sep_info)
    return made, [(info.rank, info.size, info.world) for info in infos]


def questions(layout: Layout) -> dict[str, Question]:
    """Every way of asking, for one layout; the floor first."""
    rank, world_size = layout.rank, layout.world_size
    mesh = Mesh(**layout.degrees)
    degrees = {f"{axis}_degree": size for axis, size in layout.degrees.items()}
    asked: dict[str, Question] = {
        FLOOR: partial(floor.one_rank, rank, layout.sizes),
        MADE: partial(make_and_ask, layout.degrees, rank),
        MADE_READ: partial(make_ask_and_read, layout.degrees, rank),
        ASKED: partial(ask, mesh, rank),
        ASKED_READ: partial(ask_and_read, mesh, rank),
        TOPOLOGY: partial(make_topology, rank, world_size, degrees),
        TOPOLOGY_READ: partial(topology_read, rank, world_size, degrees),
    }
    if max(layout.sizes) <= 1024:  # the lists of a rank in 2^40 are a million numbers long
        asked[TOPOLOGY_LISTS] = partial(topology_lists, rank, world_size, degrees)
    _same_answers(layout, mesh)
    return asked


def _same_answers(layout: Layout, mesh: Mesh) -> None:
    """A fast wrong answer is no answer: ours must be the floor's before it is timed."""
    rank = layout.rank
    coordinate, groups = floor.one_rank(rank, layout.sizes)
    infos = make_topology(rank, layout.world_size, {f"{axis}_degree": size for axis, size in layout.degrees.items()})
    for axis, place, members in zip(AXES, coordinate, groups, strict=True):
        group, info = mesh.group(axis, rank=rank), getattr(infos, f"{axis}_info")
        answers = (mesh.coordinate(rank)[axis], group.group_rank, info.rank, group.size, info.size)
        if answers != (place, place, place, len(members), len(members)) or group.ranks.as_range() != members:
            raise AssertionError(f"{axis} of rank {rank} in {mesh}: {answers}, {group.ranks}")


def one_rank_here(rounds: int) -> list[tuple[int, str, float]]:
    """Triples of world, who and seconds; all layouts and all ways take turns."""
    calls = {(layout.world_size, who): question for layout in LAYOUTS for who, question in questions(layout).items()}
    return [(world, who, seconds) for (world, who), seconds in interleaved(calls, rounds=rounds).items()]


def one_rank(rounds: int, processes: int = 3) -> list[dict[str, object]]:
    """Rows of who, world, seconds and the ratio to the floor, the best of several processes.

    Where a process happens to lie in memory can slow a microsecond down by a fifth, for all of its life.
    """
    seconds: dict[tuple[int, str], float] = {}
    for _ in range(processes):
        done = subprocess.run([sys.executable, __file__, str(rounds)], stdout=subprocess.PIPE, text=True, check=True)
        for world, who, spent in json.loads(done.stdout):
            seconds[world, who] = min(spent, seconds.get((world, who), spent))
    return [
        {"who": who, "world": world, "seconds": spent, "ratio": spent / seconds[world, FLOOR]}
        for (world, who), spent in seconds.items()
    ]


def memory() -> list[dict[str, object]]:
    """Rows of who, world and the bytes at the peak of one warm question, its answer being held."""
    rows: list[dict[str, object]] = []
    for layout in LAYOUTS:
        for who, question in questions(layout).items():
            rows.append({"who": who, "world": layout.world_size, "bytes": _peak(question)})
    return rows


def _peak(question: Question) -> int:
    question()
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        answer = question()
        _, peak = tracemalloc.get_traced_memory()
        del answer
    finally:
        tracemalloc.stop()
    return peak - before


def tables(rounds: int) -> dict[str, object]:
    """All groups of all five axes of a million ranks as int64 arrays, ours and by hand.

    Twice, because fresh memory costs as much as the arrays in it: all five kept, and each dropped before the next.
    """
    import numpy

    mesh = Mesh(**MILLION.degrees)

    def arrays() -> list[Any]:
        return [numpy.asarray(mesh.groups(axis)) for axis in AXES]

    for mine, by_hand in zip(arrays(), floor.all_groups(MILLION.sizes), strict=True):
        if mine.dtype != numpy.int64 or not numpy.array_equal(mine, by_hand):
            raise AssertionError("the tables differ from the hand-written ones")

    def one_by_one() -> None:
        for axis in AXES:
            numpy.asarray(mesh.groups(axis))

    def one_by_one_by_hand() -> None:
        deque(floor.all_groups(MILLION.sizes), maxlen=0)

    # Long turns: what one side leaves in the allocator must not be what the other is measured on.
    kept = _pair(arrays, lambda: list(floor.all_groups(MILLION.sizes)), rounds, slice_seconds=0.06)
    dropped = _pair(one_by_one, one_by_one_by_hand, rounds, slice_seconds=0.06)
    return kept | {"dropped_ratio": dropped["ratio"]}


def ranges(rounds: int) -> dict[str, object]:
    """`groups.ranges()` of all five axes of a million ranks, exhausted, ours and by hand."""
    mesh = Mesh(**MILLION.degrees)
    for position, axis in enumerate(AXES):
        if list(mesh.groups(axis).ranges()) != list(floor.all_ranges(MILLION.sizes, position)):
            raise AssertionError(f"the ranges of {axis} differ from the hand-written ones")

    def mine() -> None:
        for axis in AXES:
            deque(mesh.groups(axis).ranges(), maxlen=0)

    def by_hand() -> None:
        for position in range(len(AXES)):
            deque(floor.all_ranges(MILLION.sizes, position), maxlen=0)

    return _pair(mine, by_hand, rounds)


def _pair(mine: Question, by_hand: Question, rounds: int, *, slice_seconds: float = 0.004) -> dict[str, object]:
    seconds = interleaved({"ours": mine, "floor": by_hand}, rounds=rounds, slice_seconds=slice_seconds)
    return {
        "world": MILLION.world_size,
        "seconds": seconds["ours"],
        "floor_seconds": seconds["floor"],
        "ratio": seconds["ours"] / seconds["floor"],
    }


if __name__ == "__main__":
    print(json.dumps(one_rank_here(int(sys.argv[1]))))
