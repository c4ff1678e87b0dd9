"""Seeding this process: the Trainer's `set_seed`, the auto-parallel scripts' `init_seed`, and the one tracker."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from rankatlas.errors import ArgumentsError
from rankatlas.seeding.backends import KeepsRandomState, adapter, states
from rankatlas.seeding.integers import as_seed
from rankatlas.seeding.reference import DistributedSeeds, distributed_seeds
from rankatlas.seeding.tracker import RngStateTracker
from rankatlas.topology import Topology

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The one process-wide object, because the programs that call get_rng_state_tracker() expect one.
_TRACKER = RngStateTracker()
_HOST = ("python", "numpy")  # what the host's seed goes to; every other backend is a framework


def get_rng_state_tracker() -> RngStateTracker:
    """The tracker of this process, the same one at every call.

    >>> get_rng_state_tracker() is get_rng_state_tracker()
    True
    """
    return _TRACKER


def set_seed(
    seed: int = 1234,
    topology: Topology | None = None,
    backends: Iterable[str | KeepsRandomState] | None = None,
    *,
    topo: Topology | None = None,
) -> DistributedSeeds:
    """Seed this process as PaddleNLP's Trainer does, and return the three seeds.

    The frameworks get the global seed, Python and NumPy the host's, and the tracker the streams `global_seed` and
    `local_seed`; called again it starts those two anew and touches no other stream (the Trainer skips them silently).
    Without a topology (`topo` in PaddleNLP's words) the live fleet group is asked, if there is one.  `backends` are
    those to seed, by default those of the tracker.

    Raises IntegerError, SeedError (a seed that another stream of the tracker has; then nothing was seeded).

    >>> set_seed(42, Topology(5, 8, pp_degree=2, mp_degree=2), backends=["python"])
    DistributedSeeds(global_seed=46, local_seed=55, random_seed=42)
    """
    tracker = get_rng_state_tracker()
    topology = topology if topology is not None else topo
    seeds = distributed_seeds(
        seed, topology if topology is not None else _live_group(), world_size=_live_world(topology)
    )
    keepers = tracker.keepers if backends is None else states(backends)
    tracker.restart({"global_seed": seeds.global_seed, "local_seed": seeds.local_seed})
    _seed(keepers, framework=seeds.global_seed, host=seeds.random_seed)
    return seeds


def init_seed(seed: int = 1234, args: object = None, rank: int = 0, world_size: int = 1) -> DistributedSeeds | None:
    """Seed this process as PaddleNLP's auto-parallel scripts do; the tracker is left alone.

    Without `args` everything is seeded with `seed`.  With them `args.seed` counts: in a world of one for everything,
    else the frameworks get the local seed, Python and NumPy the host's, of the `Topology` those scripts build
    (`Topology.from_args(args, rank, world_size, auto_parallel=True)`).  Returns the three seeds in that last case.

    Raises IntegerError, SeedError, and the errors of `Topology.from_args`.

    >>> init_seed(7)
    >>> init_seed(args={"seed": 42, "mp_degree": 2, "pp_degree": 2}, rank=5, world_size=8)
    DistributedSeeds(global_seed=44, local_seed=53, random_seed=142)
    """
    keepers = get_rng_state_tracker().keepers
    if args is not None:
        given = args.get("seed") if isinstance(args, Mapping) else getattr(args, "seed", None)
        if given is None:
            raise ArgumentsError("the training arguments have no seed", names=("seed",))
        seed = given
    seed = as_seed(seed)
    if args is None or world_size == 1:
        _seed(keepers, framework=seed, host=seed)
        return None
    topology = Topology.from_args(args, rank, world_size, auto_parallel=True)
    seeds = distributed_seeds(seed, topology)
    _seed(keepers, framework=seeds.local_seed, host=seeds.random_seed)
    return seeds


def _seed(keepers: Iterable[KeepsRandomState], *, framework: int, host: int) -> None:
    for keeper in keepers:
        keeper.seed(host if keeper.name in _HOST else framework)


def _live_group() -> Any:
    """The communicate group of a Paddle program that has one."""
    return adapter("paddle").live_group() if "paddle" in sys.modules else None


def _live_world(topology: Topology | None) -> int | None:
    """The number of Paddle processes, which the seeds of a program without a topology depend on."""
    return adapter("paddle").world_size() if topology is None and "paddle" in sys.modules else None
