"""One peer asked, in its own environment, where one rank stands and who is in its five groups.

    python frameworks.py NAME WORLD PATIENCE OUT

Run by run.py with tools/facts on the path, and never with rankatlas on it. OUT gets the peer's best seconds and those
of the floor in the same process: only the ratio of those two means something beside a ratio from another process.
Each function below uses the calls that the peer's own code uses for this question; the answer is compared with the
floor's before anything is timed.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import floor
from layouts import AXES, SMALL, Layout, layout_of
from timing import Prepared, against_floor

# What a question returns: the coordinate and the groups, outer to inner.
Answer = tuple[Any, Sequence[Any]]


def paddlenlp(layout: Layout) -> Prepared:
    from facts_io import installed_file, load_file

    # The package itself cannot be imported with the dependencies it resolves today; the class stands alone.
    peer = load_file(installed_file("paddlenlp", "paddlenlp/ops/distributed/utils/topo.py"), "topo")
    degrees = {f"{axis}_degree": size for axis, size in layout.degrees.items()}

    def ask() -> Answer:
        made = peer.Topology(layout.rank, layout.world_size, **degrees, order=list(AXES))
        infos = [getattr(made, f"{axis}_info") for axis in AXES]
        return [info.rank for info in infos], [info.world for info in infos]

    return Prepared(ask)


def paddle(layout: Layout) -> Prepared:
    from paddle.distributed.fleet.base.topology import CommunicateTopology

    names = ["pipe", "data", "sharding", "model", "sep"]

    def ask() -> Answer:
        made = CommunicateTopology(names, list(layout.sizes))
        return made.get_coord(layout.rank), [_mine(layout.rank, made.get_comm_list(name)) for name in names]

    return Prepared(ask)


def megatron(layout: Layout) -> Prepared:
    from megatron.core.parallel_state import RankGenerator

    # It refuses ep and cp together, so that five axes are four: dp and sharding become one, ep stays 1.
    sizes = layout.degrees
    given = {"cp": sizes["sep"], "tp": sizes["mp"], "ep": 1, "dp": sizes["dp"] * sizes["sharding"], "pp": sizes["pp"]}
    order = "-".join(given)  # innermost first

    def ask() -> Answer:
        made = RankGenerator(**given, order=order)
        groups = [_mine(layout.rank, made.get_ranks(token)) for token in reversed(given)]
        return [group.index(layout.rank) for group in groups], groups

    return Prepared(ask)


def hypercommgrid(layout: Layout) -> Prepared:
    from megatron.core.hyper_comm_grid import HyperCommGrid

    os.environ["WORLD_SIZE"] = str(layout.world_size)
    shape, names = list(reversed(layout.sizes)), list(reversed(AXES))  # innermost first

    def ask() -> Answer:
        made = HyperCommGrid(shape, names)
        groups = [_mine(layout.rank, made.get_rank_enum(axis)) for axis in AXES]
        return [group.index(layout.rank) for group in groups], groups

    return Prepared(ask)


def deepspeed(layout: Layout) -> Prepared:
    from deepspeed.runtime.pipe.topology import ProcessTopology

    names = ["pipe", "data", "sharding", "model", "sequence"]

    def ask() -> Answer:
        made = ProcessTopology(names, list(layout.sizes))
        return made.get_coord(layout.rank), [_mine(layout.rank, made.get_axis_comm_lists(name)) for name in names]

    return Prepared(ask)


class Device:
    """A pretended JAX device: a mesh asks it for its id only, and nobody has a million real ones."""

    def __init__(self, number: int) -> None:
        self.id = number


def jax(layout: Layout) -> Prepared:
    os.environ["JAX_PLATFORMS"] = "cpu"
    import numpy
    from jax.sharding import Mesh

    devices = numpy.array([Device(number) for number in range(layout.world_size)]).reshape(layout.sizes)

    def ask() -> Answer:
        ids = Mesh(devices, AXES).device_ids
        place = tuple(numpy.argwhere(ids == layout.rank)[0])
        return place, [ids[(*place[:axis], slice(None), *place[axis + 1 :])] for axis in range(len(AXES))]

    return Prepared(ask)


def torch(layout: Layout) -> Prepared:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    def ask() -> Answer:
        made = init_device_mesh("cpu", layout.sizes, mesh_dim_names=AXES)
        return made.get_coordinate(), [dist.get_process_group_ranks(made.get_group(axis)) for axis in AXES]

    # Its groups live in the process, so each time is taken in a fake world that is thrown away afterwards.
    return Prepared(ask, before=partial(_fake_world, layout), after=dist.destroy_process_group)


def colossalai(layout: Layout) -> Prepared:
    from facts_io import installed_file, load_file

    # The package imports half of a training stack. No communicators: coordinates along an axis, turned into ranks.
    peer = load_file(installed_file("colossalai", "colossalai/cluster/process_group_mesh.py"), "process_group_mesh")
    _fake_world(layout)

    def ask() -> Answer:
        made = peer.ProcessGroupMesh(*layout.sizes)
        place = made.coordinate()
        groups = [
            [made.ravel(coord, made.shape) for coord in made.get_coords_along_axis(place, axis, list(range(size)))]
            for axis, size in enumerate(made.shape)
        ]
        return place, groups

    return Prepared(ask)


def _fake_world(layout: Layout) -> None:
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=layout.rank, world_size=layout.world_size)


def _mine(rank: int, groups: Sequence[Sequence[int]]) -> Any:
    """What every framework does with a list of all groups: look through it for the own one."""
    return next(group for group in groups if rank in group)


# name → (distribution, question)
FRAMEWORKS: dict[str, tuple[str, Callable[[Layout], Prepared]]] = {
    "paddlenlp": ("paddlenlp", paddlenlp),
    "paddle": ("paddlepaddle", paddle),
    "megatron": ("megatron-core", megatron),
    "hypercommgrid": ("megatron-core", hypercommgrid),
    "deepspeed": ("deepspeed", deepspeed),
    "jax": ("jax", jax),
    "torch": ("torch", torch),
    "colossalai": ("colossalai", colossalai),
}


def check(name: str, layout: Layout) -> None:
    """Compare the peer's answer with the floor's; the first call also warms up whatever a peer makes lazily."""
    prepared = FRAMEWORKS[name][1](layout)
    sizes = layout.sizes
    if name == "megatron":
        pp, dp, sharding, mp, sep = sizes
        sizes = (pp, dp * sharding, 1, mp, sep)
    prepared.before()
    answer: Any = prepared.call()
    prepared.after()
    place, groups = list(map(int, answer[0])), [list(map(int, group)) for group in answer[1]]
    expected_place, expected_groups = floor.one_rank(layout.rank, sizes)
    if place != expected_place or groups != [list(group) for group in expected_groups]:
        raise AssertionError(f"{name} answers {place}, {groups} for {layout.notation}")


def main() -> None:
    name, world, patience, out = sys.argv[1:]
    layout = layout_of(int(world))
    distribution, question = FRAMEWORKS[name]
    check(name, SMALL)
    prepared = question(layout)
    seconds, floor_seconds, calls = against_floor(
        prepared, partial(floor.one_rank, layout.rank, layout.sizes), patience=float(patience)
    )
    result: dict[str, Any] = {
        "version": importlib.metadata.version(distribution),
        "seconds": seconds,
        "floor_seconds": floor_seconds,
        "ratio": seconds / floor_seconds,
        "calls": calls,
    }
    Path(out).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
