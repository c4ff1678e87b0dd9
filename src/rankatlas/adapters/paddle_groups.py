"""Paddle: groups of a plan, made by every rank in one order; the way to ProcessMesh and to fleet's configuration."""

from __future__ import annotations

from datetime import timedelta
from types import MappingProxyType
from typing import Any

import paddle.distributed as dist
from paddle.distributed import collective

from rankatlas.adapters.opening import Handles, open_plan
from rankatlas.adapters.paddle_gloo import separate_stores
from rankatlas.core import Group, Mesh
from rankatlas.creation import CreationPlan, Family
from rankatlas.errors import AxisError, InputError, JobError, shown

# An axis → fleet's word for its size, and the name it has in CommunicateTopology.
FLEET_AXES = MappingProxyType(
    {
        "dp": ("dp_degree", "data"),
        "pp": ("pp_degree", "pipe"),
        "sharding": ("sharding_degree", "sharding"),
        "sep": ("sep_degree", "sep"),
        "mp": ("mp_degree", "model"),
    }
)
_SAME = MappingProxyType({"tp": "mp"})  # other words for an axis of fleet


class PaddleGroups:
    """Groups of the default group's job.

    Paddle numbers a group by the calls of `new_group` so far and needs every rank to make every call.
    """

    name = "paddle"

    def __init__(self, backend: str | None, timeout: timedelta | None) -> None:
        if not dist.is_initialized():
            raise JobError("no Paddle job in this process: call paddle.distributed.init_parallel_env first")
        self.rank = int(dist.get_rank())
        self.world_size = int(dist.get_world_size())
        self._default = self.world()
        self._options: dict[str, Any] = {}
        if backend is not None:
            self._options["backend"] = backend
        if timeout is not None:
            self._options["timeout"] = timeout
        self._backend = str(backend or getattr(collective, "_default_backend", ""))

    def said(self) -> dict[str, Any]:
        """The calls of `new_group` so far, which number the groups; the backend."""
        return {"calls_so_far": int(collective._start_ring_id), "backend": self._backend}

    def history(self) -> str | None:
        """Nothing: all ranks take part in making a group."""
        return None

    def begin(self, opening: int, same_history: bool) -> None:
        """Nothing to do: see `history`."""

    def alive(self) -> bool:
        """Whether the default group is the one that was there."""
        return dist.is_initialized() and self.world() is self._default

    def alike(self) -> bool:
        """Never: all ranks take part in making a group."""
        return False

    def by_members(self, family: Family) -> bool:
        """Never, either."""
        return False

    def world(self) -> Any:
        """The default group."""
        return collective._get_default_group()  # type: ignore[no-untyped-call]

    def alone(self) -> Any:
        """A group of this rank: Paddle makes no communicator for it, and its collectives pass over it."""
        return dist.new_group([self.rank], **self._options)

    def make_own(self, family: Family, group: Group, description: str) -> Any:
        """Not possible, and never asked for: see `alike`."""
        raise JobError("Paddle makes a group on all ranks")

    def make(self, ranks: list[int], description: str, name: str) -> Any:
        """By all ranks; Paddle has no place for a description."""
        with separate_stores():
            made = dist.new_group(ranks, **self._options)
        return made if self.rank in ranks else None

    def close(self, communicator: Any) -> None:
        """Forget the group, unless the whole job was torn down meanwhile."""
        if dist.is_initialized() and dist.get_group(communicator.id) is communicator:
            dist.destroy_process_group(communicator)


def open_groups(
    plan: CreationPlan, *, backend: str | None = None, timeout: timedelta | None = None, wait: float = 60
) -> Handles:
    """The groups of `plan` for this rank, made once all ranks have agreed on it.  Every rank calls this.

    `backend` and `timeout` are those of `paddle.distributed.new_group`; `wait` bounds the agreement, in seconds.  Every
    rank makes every group, in the order of the plan; over gloo each through a store of its own (`separate_stores`).

    Cost: one agreement, then O(groups) calls.

    Raises LayoutMismatch, RankSilent, JobError as `live.agree`; InputError for something that is no plan.

        plan = CreationPlan("pp=2 mp=2", ["pp", "mp"])
        with open_groups(plan) as handles:
            dist.all_reduce(tensor, group=handles["mp"])
    """
    if timeout is not None and not isinstance(timeout, timedelta):
        raise InputError(f"timeout is a timedelta, as for paddle.distributed.new_group, not {shown(timeout)}")
    known = collective._valid_backend_list
    if backend is not None and backend not in known:  # Paddle would refuse on the members only
        raise InputError(f"backend is one that Paddle has, {', '.join(known)}, not {shown(backend)}")
    return open_plan(PaddleGroups(backend, timeout), plan, wait)


def to_process_mesh(mesh: Mesh) -> Any:
    """The `paddle.distributed.ProcessMesh` of a mesh: the same names, sizes and ranks.  Cost: O(world).

    Raises InputError for something that is no Mesh.
    """
    if not isinstance(mesh, Mesh):
        raise InputError(f"a ProcessMesh is made from a Mesh, not from {shown(mesh)}; take a chart of an atlas")
    ranks = list(range(mesh.first_rank, mesh.first_rank + mesh.world_size))
    return dist.ProcessMesh(shape=list(mesh.sizes), dim_names=list(mesh.axes), process_ids=ranks)


def hybrid_configs(mesh: Mesh) -> dict[str, Any]:
    """What `fleet.DistributedStrategy().hybrid_configs` is set to so that `fleet.init` builds the groups of `mesh`.

    Axes are dp, pp, sharding, sep and mp (or tp), in any order; those of size 1 may have any name or be left out, for
    fleet wants all five.  Cost: O(axes).

    Raises AxisError (an axis of size > 1 that fleet does not have), InputError (ranks that do not begin at 0).

        strategy = fleet.DistributedStrategy()
        strategy.hybrid_configs = hybrid_configs(Mesh(pp=2, dp=2, mp=2))
        fleet.init(is_collective=True, strategy=strategy)
    """
    if not isinstance(mesh, Mesh):
        raise InputError(f"hybrid_configs needs a Mesh, not {shown(mesh)}; take a chart of an atlas")
    if mesh.first_rank:
        raise InputError(f"fleet numbers ranks from 0; {mesh} begins at {mesh.first_rank}")
    sizes: dict[str, int] = {}
    for axis, size in zip(mesh.axes, mesh.sizes):
        name = _SAME.get(axis, axis)
        if name not in FLEET_AXES and size > 1:
            raise AxisError(
                f"fleet has no axis {shown(axis)} of size {size}; hybrid_configs knows {', '.join(FLEET_AXES)} (tp is"
                " mp).  Rename it, or make its groups with open_groups",
                name=axis,
            )
        if sizes.get(name, 1) > 1 and size > 1:
            raise AxisError(f"{axis} and mp are one axis for fleet; {mesh} has both", name=axis)
        if name in FLEET_AXES and sizes.get(name, 1) == 1:
            sizes.pop(name, None)  # of two words for one axis, the place of the one that is larger counts
            sizes[name] = size
    order = [*(name for name in FLEET_AXES if name not in sizes), *sizes]
    return {**{FLEET_AXES[name][0]: sizes.get(name, 1) for name in FLEET_AXES}, "order": order}
