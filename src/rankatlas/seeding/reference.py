"""The reference scheme: PaddleNLP's `_get_distributed_seeds`, value for value."""

from __future__ import annotations

import sys
from collections import namedtuple

from rankatlas.core import Mesh
from rankatlas.core.border import as_int
from rankatlas.errors import AxisError, InputError
from rankatlas.seeding.integers import as_seed
from rankatlas.topology import Topology

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NamedTuple

    class DistributedSeeds(NamedTuple):
        """The three seeds of a rank: the framework's, the one of model-parallel regions, and the host's."""

        global_seed: int
        local_seed: int
        random_seed: int

else:
    DistributedSeeds = namedtuple("DistributedSeeds", ["global_seed", "local_seed", "random_seed"])

# The names a mesh may use for the five axes of the reference, and for the context axis of PaddleFormers' variant.
_NAMES = {"mp": ("mp", "tp"), "sep": ("sep",), "pp": ("pp",), "dp": ("dp",), "sharding": ("sharding",), "cp": ("cp",)}


def distributed_seeds(
    seed: int = 1234,
    source: Topology | Mesh | object | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
) -> DistributedSeeds:
    """The seeds of one rank, as PaddleNLP 2.8.1 computes them.

    `source` is a `Topology`, a `Mesh` (with `rank`; axes dp, pp, sharding, mp or tp, sep, cp), or a live fleet
    communicate group (anything with its `get_model_parallel_rank()` …).  `world_size` is the number of processes, by
    default that of the source; with one process, or without a source, every place counts as 0.

    With the sizes and places of the axes,
    global = seed + sep + pp·sep# + dp·pp#·sep# + sharding·dp#·pp#·sep#, each times mp#;
    local = global + world_size + mp; random = seed + 100·pp.
    With a context axis of size > 1 (PaddleFormers 1.2.0; sep must be 1) cp# stands for sep#, the place along cp enters
    local only.  Source: `_get_distributed_seeds` in `trainer_utils.py` of both packages.  Cost: O(1).

    Raises IntegerError, SeedError, RankError, AxisError (an axis the scheme has no term for), InputError.

    >>> distributed_seeds(1234)
    DistributedSeeds(global_seed=1234, local_seed=1235, random_seed=1234)
    >>> distributed_seeds(42, Mesh(pp=2, dp=2, mp=2), rank=7)
    DistributedSeeds(global_seed=48, local_seed=57, random_seed=142)
    """
    seed = as_seed(seed)
    if world_size is not None:
        world_size = as_int(world_size, "world_size")
        if world_size < 1:
            raise InputError(f"world_size must be 1 or more, not {world_size}")
    places: dict[str, int] = {}
    sizes: dict[str, int] = {}
    world = 1
    if rank is not None and not isinstance(source, (Topology, Mesh)):
        raise InputError(f"rank={rank} needs a mesh to have a place in")
    if source is None:
        pass
    elif isinstance(source, Topology):
        if rank is not None and rank != source.world.rank:
            raise InputError(f"this topology is that of rank {source.world.rank}, not of rank {rank}")
        places, sizes, world = _of_mesh(source.mesh, source.world.rank)
    elif isinstance(source, Mesh):
        if rank is None:
            raise InputError("a mesh has no rank of its own: pass rank=…")
        places, sizes, world = _of_mesh(source, rank)
    else:
        places, sizes = _of_live_group(source)
        world = world_size or _live_world(source)
    world = world_size or world
    if world == 1:
        places, sizes = {}, {}
    return _formula(seed, world, places, sizes)


def _formula(seed: int, world: int, places: dict[str, int], sizes: dict[str, int]) -> DistributedSeeds:
    mp, sep, cp, pp, dp = (sizes.get(axis, 1) for axis in ("mp", "sep", "cp", "pp", "dp"))
    if cp > 1 and sep > 1:
        raise InputError(f"the scheme has no term for cp={cp} and sep={sep} together; one of them must be 1")
    # The context variant has no term for the place along cp in the global seed: its ranks share it.
    sequence = places.get("sep", 0) if cp == 1 else 0
    step = mp
    offset = sequence * step
    for axis, size in (("pp", sep * cp), ("dp", pp), ("sharding", dp)):
        step *= size
        offset += places.get(axis, 0) * step
    local = seed + world + places.get("mp", 0) + places.get("cp", 0) * mp * (cp > 1) + offset
    return DistributedSeeds(seed + offset, local, seed + 100 * places.get("pp", 0))


def _of_mesh(mesh: Mesh, rank: int) -> tuple[dict[str, int], dict[str, int], int]:
    found = mesh.coordinate(rank)
    places: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for axis in mesh.axes:
        term = next((term for term, names in _NAMES.items() if axis in names), None)
        if term is None or (term in sizes and mesh.size(axis) > 1 and sizes[term] > 1):
            if mesh.size(axis) == 1:
                continue
            raise AxisError(
                f"the reference scheme has no term for axis {axis}={mesh.size(axis)}; it knows dp, pp, sharding,"
                " mp (or tp), sep and cp.  Ranks along it would share all seeds: use SeedPlan",
                name=axis,
            )
        if mesh.size(axis) > sizes.get(term, 1) or term not in sizes:
            places[term], sizes[term] = found[axis], mesh.size(axis)
    return places, sizes, mesh.world_size


def _of_live_group(group: Any) -> tuple[dict[str, int], dict[str, int]]:
    """The coordinates of a live fleet group, asked as PaddleNLP and PaddleFormers ask it."""
    if not hasattr(group, "get_model_parallel_rank"):
        raise InputError(
            f"a source of seeds is a Topology, a Mesh, or a fleet communicate group, not {type(group).__name__}"
        )
    places = {
        "mp": group.get_model_parallel_rank(),
        "pp": group.get_stage_id(),
        "dp": group.get_data_parallel_rank(),
    }
    sizes = {
        "mp": group.get_model_parallel_world_size(),
        "pp": group.get_pipe_parallel_world_size(),
        "dp": group.get_data_parallel_world_size(),
    }
    if hasattr(group, "get_sep_parallel_rank"):
        places["sep"], sizes["sep"] = group.get_sep_parallel_rank(), group.get_sep_parallel_world_size()
    # PaddleFormers asks the fleet module, not the group, whether there is a context axis; Paddle 3.3.1 has none.
    if hasattr(sys.modules.get("paddle.distributed.fleet"), "get_context_parallel_rank"):
        places["cp"], sizes["cp"] = group.get_context_parallel_rank(), group.get_context_parallel_world_size()
        places["sharding"] = group.get_sharding_parallel_rank(with_context_parallel=sizes["cp"] > 1)
    else:
        places["sharding"] = group.get_sharding_parallel_rank()
    return places, sizes


def _live_world(group: Any) -> int:
    world = getattr(group, "nranks", None)
    if world is None:
        raise InputError("this communicate group does not tell its world size: pass world_size=…")
    return int(world)
