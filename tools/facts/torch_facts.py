"""What torch's DeviceMesh answers, asked over the fake backend, so that one process can be every rank in turn.

    python torch_facts.py OUT

A fact's `kind` is "layout" (one mesh, seen from a few ranks), "special" (one call, with its answer or error) or
"unflatten". In a layout, `mesh` is the mesh tensor, `all_groups` the rank lists of every dim, and `seen` holds for a
few ranks: the coordinate, the ranks of the process group of each dim as torch.distributed knows them, and the mesh of
each flattened slice as [dims, ranks].
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from facts_io import answer, deliver
from torch import tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

NAMES = ["pp", "dp_replicate", "dp_shard", "cp", "tp", "ep"]


@contextmanager
def as_rank(rank: int, world: int) -> Iterator[None]:
    """Be this rank of a fake world; the process groups are gone afterwards."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        yield
    finally:
        dist.destroy_process_group()


def flattened(mesh: DeviceMesh, dims: Sequence[str]) -> list[int]:
    return list(mesh[tuple(dims)]._flatten("_".join(dims) + "_flat").mesh.tolist())


def seen_by(rank: int, world: int, dims: Sequence[str], sizes: Sequence[int], slices: Sequence[Any]) -> dict[str, Any]:
    with as_rank(rank, world):
        mesh = init_device_mesh("cpu", tuple(sizes), mesh_dim_names=tuple(dims))
        return {
            "rank": rank,
            "coordinate": list(mesh.get_coordinate() or ()),
            "local_rank": [mesh.get_local_rank(dim) for dim in dims],
            "groups": {dim: dist.get_process_group_ranks(mesh.get_group(dim)) for dim in dims},
            "slices": [[list(part), mesh[tuple(part)].mesh.tolist()] for part in slices],
            "flattened": [[list(part), flattened(mesh, part)] for part in slices],
        }


def layout_facts(dice: random.Random, count: int) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = []
    while len(facts) < count:
        dims = [name for name in NAMES if dice.random() < 0.6] if len(facts) % 2 else dice.sample(NAMES, k=3)
        sizes = [dice.choice((1, 2, 2, 3, 4, 5, 8)) for _ in dims]
        world = math.prod(sizes)
        if world > 32 or len(dims) < 2:
            continue
        with as_rank(0, world):
            mesh = init_device_mesh("cpu", tuple(sizes), mesh_dim_names=tuple(dims))
            tensor_of = mesh.mesh.tolist()
            groups = {dim: [part.mesh.tolist() for part in mesh._get_all_submeshes(dim)] for dim in dims}
        slices = [dims, dims[:2], [dims[0], dims[-1]]] if len(dims) > 2 else [dims]
        some = sorted(dice.sample(range(world), k=min(world, 3)))
        seen = [seen_by(rank, world, dims, sizes, slices) for rank in some]
        facts.append(
            {"kind": "layout", "dims": dims, "sizes": sizes, "mesh": tensor_of, "all_groups": groups, "seen": seen}
        )
    return facts


def made(sizes: Sequence[int], dims: Sequence[str] | None) -> DeviceMesh:
    return init_device_mesh("cpu", tuple(sizes), mesh_dim_names=None if dims is None else tuple(dims))


def seen_through(mesh: DeviceMesh) -> dict[str, Any]:
    """What this rank gets out of a mesh that torch has accepted."""
    coordinate = mesh.get_coordinate()
    return {
        "mesh": mesh.mesh,
        "coordinate": coordinate,
        "groups": [dist.get_process_group_ranks(mesh.get_group(at)) for at in range(mesh.ndim)] if coordinate else None,
    }


def special_facts() -> list[dict[str, Any]]:
    three = ("pp", "dp", "tp")
    cases: list[tuple[str, int, int, Callable[[], Any]]] = [
        ("made((2, 2), ('dp', 'dp'))", 0, 4, lambda: made((2, 2), ("dp", "dp")).mesh),
        ("made((2, 2), ('dp',))", 0, 4, lambda: made((2, 2), ("dp",)).mesh),
        ("too small, rank inside: made((2, 2), ('dp', 'tp'))", 1, 8, lambda: seen_through(made((2, 2), ("dp", "tp")))),
        ("too small, rank outside: made((2, 2), ('dp', 'tp'))", 5, 8, lambda: seen_through(made((2, 2), ("dp", "tp")))),
        ("too large: made((2, 8), ('dp', 'tp'))", 0, 8, lambda: seen_through(made((2, 8), ("dp", "tp")))),
        ("size 0: made((0, 4), ('dp', 'tp'))", 0, 4, lambda: seen_through(made((0, 4), ("dp", "tp")))),
        ("size -1: made((-1, 4), ('dp', 'tp'))", 0, 8, lambda: seen_through(made((-1, 4), ("dp", "tp")))),
        ("no names: made((2, 4), None)", 5, 8, lambda: seen_through(made((2, 4), None))),
        ("an unknown dim: mesh['ep']", 0, 8, lambda: made((2, 2, 2), three)["ep"].mesh),
        (
            "an unknown dim: mesh.get_group('ep')",
            0,
            8,
            lambda: dist.get_process_group_ranks(made((2, 2, 2), three).get_group("ep")),
        ),
        (
            "no dim of several: mesh.get_group()",
            0,
            8,
            lambda: dist.get_process_group_ranks(made((2, 2, 2), three).get_group()),
        ),
        ("dims out of order: mesh['tp', 'dp']", 0, 8, lambda: made((2, 2, 2), three)["tp", "dp"].mesh),
        ("dims out of order: mesh['dp', 'pp']", 0, 8, lambda: made((2, 2, 2), three)["dp", "pp"].mesh),
        ("a dim twice: mesh['dp', 'dp']", 0, 8, lambda: made((2, 2, 2), three)["dp", "dp"].mesh),
        ("apart: mesh['pp', 'tp']._flatten()", 2, 8, lambda: made((2, 2, 2), three)["pp", "tp"]._flatten().mesh),
        (
            "a name that exists: mesh['pp', 'dp']._flatten('tp')",
            0,
            8,
            lambda: made((2, 2, 2), three)["pp", "dp"]._flatten("tp").mesh,
        ),
        (
            "the default name: mesh['pp', 'dp']._flatten()",
            0,
            8,
            lambda: made((2, 2, 2), three)["pp", "dp"]._flatten().mesh_dim_names,
        ),
        (
            "permuted ranks: DeviceMesh([[0, 2], [1, 3]])",
            1,
            4,
            lambda: seen_through(DeviceMesh("cpu", tensor([[0, 2], [1, 3]]), mesh_dim_names=("dp", "tp"))),
        ),
        (
            "a rank twice: DeviceMesh([[0, 1], [1, 2]])",
            0,
            4,
            lambda: seen_through(DeviceMesh("cpu", tensor([[0, 1], [1, 2]]), mesh_dim_names=("dp", "tp"))),
        ),
        (
            "a shifted part: DeviceMesh([[4, 5], [6, 7]])",
            6,
            8,
            lambda: seen_through(DeviceMesh("cpu", tensor([[4, 5], [6, 7]]), mesh_dim_names=("dp", "tp"))),
        ),
    ]
    facts = []
    for call, rank, world, function in cases:
        with as_rank(rank, world):
            facts.append({"kind": "special", "call": call, "rank": rank, "world": world} | answer(function))
    return facts


def unflatten_facts() -> list[dict[str, Any]]:
    cases: list[tuple[Sequence[int], Sequence[str], str, Sequence[int], Sequence[str], int]] = [
        ((8,), ("world",), "world", (2, 2, 2), ("pp", "dp", "tp"), 5),
        ((2, 8), ("pp", "dp"), "dp", (2, 4), ("dp_replicate", "dp_shard"), 11),
        ((4, 2), ("dp", "tp"), "dp", (2, 2), ("dp_replicate", "dp_shard"), 3),
        ((4, 2), ("dp", "tp"), "dp", (4, 1), ("dp_replicate", "dp_shard"), 3),
        ((4, 2), ("dp", "tp"), "dp", (2, 3), ("dp_replicate", "dp_shard"), 3),
        ((4, 2), ("dp", "tp"), "dp", (2, -1), ("dp_replicate", "dp_shard"), 3),
        ((4, 2), ("dp", "tp"), "dp", (2, 2), ("tp", "dp_shard"), 3),
        ((4, 2), ("dp", "tp"), "ep", (2, 2), ("a", "b"), 3),
    ]
    facts = []
    for sizes, dims, dim, parts, names, rank in cases:
        with as_rank(rank, math.prod(sizes)):
            asked = {"sizes": sizes, "dims": dims, "dim": dim, "parts": parts, "names": names, "rank": rank}

            def ask(*given: Any) -> dict[str, Any]:
                mesh = made(given[0], given[1])._unflatten(*given[2:])
                return {"dims": mesh.mesh_dim_names} | seen_through(mesh)

            facts.append({"kind": "unflatten", **asked} | answer(ask, sizes, dims, dim, tuple(parts), tuple(names)))
    return facts


def main() -> None:
    deliver(layout_facts(random.Random(1), 40) + special_facts() + unflatten_facts())


if __name__ == "__main__":
    main()
