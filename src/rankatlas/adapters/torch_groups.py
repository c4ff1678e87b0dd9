"""torch.distributed: groups of a plan by one call per set of axes, and the way to and from DeviceMesh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from rankatlas.adapters.opening import Handles, open_plan
from rankatlas.core import Atlas, Group, Mesh
from rankatlas.creation import CreationPlan, Family
from rankatlas.errors import InputError, JobError, shown

_ALONE = "each rank alone"
_DEVICES = MappingProxyType({"nccl": "cuda", "gloo": "cpu"})
_PREFIX = "rankatlas/groups/of"  # of the keys in the store


class TorchGroups:
    """Groups of the default process group's job.

    `new_group(use_local_synchronization=True)` needs the members only.  It names a group by its members and by how many
    groups the process has, so all members must have as many: see `alike`.
    """

    name = "torch"

    def __init__(self, backend: str | None, timeout: timedelta | None, options: Any) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise JobError("no torch job in this process: call torch.distributed.init_process_group first")
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._backend = backend
        self._timeout = timeout
        self._options = options
        self._fake = dist.get_backend() == "fake"
        self._opening = 0
        self._same_history = True
        self._default = distributed_c10d._get_default_group()

    def said(self) -> dict[str, Any]:
        """Calls of `new_group` that every rank made, which number the groups; the backend."""
        return {"calls_so_far": _registry().group_count, "backend": str(self._backend or dist.get_backend())}

    def history(self) -> str | None:
        """How many groups this rank is in; under the fake backend there is nobody to tell."""
        return None if self._fake else str(len(_registry().pg_names))

    def begin(self, opening: int, same_history: bool) -> None:
        """Keys of this opening in the store are under its number."""
        self._opening, self._same_history = opening, same_history

    def alive(self) -> bool:
        """Whether the default process group is the one that was there."""
        return dist.is_initialized() and distributed_c10d._get_default_group() is self._default

    def alike(self) -> bool:
        """Whether all ranks are in equally many groups, and the backend lets members make a group alone."""
        if self._fake:
            return True
        if str(self._backend or dist.get_backend()) == "mpi":
            return False
        return self._same_history

    def by_members(self, family: Family) -> bool:
        """Unless the default group is bound to a device, which all its ranks split, and some are in no group."""
        bound = distributed_c10d._get_default_group().bound_device_id is not None
        return not bound or family.ranks == range(self.world_size)

    def world(self) -> Any:
        """The default process group."""
        return dist.group.WORLD

    def alone(self) -> Any:
        """A group of this rank."""
        with self._names_of_its_own():
            return dist.new_group(
                [self.rank],
                timeout=self._timeout,
                backend=self._backend,
                use_local_synchronization=True,
                group_desc=_ALONE,
            )

    def make_own(self, family: Family, group: Group, description: str) -> Any:
        """By the members alone; where the default group is bound to a device, by splitting it."""
        if self._can_split():
            return dist.split_group(
                split_ranks=[list(ranks) for ranks in family.groups.ranges()],
                timeout=self._timeout,
                pg_options=self._of(family.label),
                group_desc=description,
            )
        with self._names_of_its_own():
            return dist.new_group(
                list(group.ranks),
                timeout=self._timeout,
                backend=self._backend,
                pg_options=self._of(family.label),
                use_local_synchronization=True,
                group_desc=description,
            )

    def make(self, ranks: list[int], description: str, name: str) -> Any:
        """By all ranks."""
        with self._names_of_its_own():
            made = dist.new_group(
                ranks,
                timeout=self._timeout,
                backend=self._backend,
                pg_options=self._of(name),
                group_desc=description,
            )
        return made if self.rank in ranks else None

    def close(self, communicator: Any) -> None:
        """Destroy the group, unless the whole job was torn down meanwhile."""
        if communicator in _registry().pg_map:
            dist.destroy_process_group(communicator)

    def _of(self, name: str) -> Any:
        return self._options.get(name) if isinstance(self._options, Mapping) else self._options

    def _can_split(self) -> bool:
        """Whether the default group is bound to a device whose backend splits (NCCL): one call makes a whole family."""
        default = distributed_c10d._get_default_group()
        device = default.bound_device_id
        if device is None or self._backend not in (None, dist.get_backend()):
            return False
        return bool(getattr(default._get_backend(device), "supports_splitting", False))

    @contextmanager
    def _names_of_its_own(self) -> Iterator[None]:
        """Give groups of a later opening keys of their own in the store.

        A group that is closed leaves its members' addresses there.  One with the same members and the same number gets
        the same name, and would connect to processes that no longer listen.
        """
        if self._opening <= 1:
            yield
            return
        registry, default = _registry(), distributed_c10d._get_default_group()
        backend, store = registry.pg_map[default]
        registry.pg_map[default] = (backend, distributed_c10d.PrefixStore(f"{_PREFIX}/{self._opening}", store))
        try:
            yield
        finally:
            registry.pg_map[default] = (backend, store)


def _registry() -> Any:
    return distributed_c10d._world


def open_groups(
    plan: CreationPlan,
    *,
    backend: str | None = None,
    timeout: timedelta | float | None = None,
    options: Any = None,
    wait: float = 60,
) -> Handles:
    """The process groups of `plan` for this rank, made once all ranks have agreed on it.  Every rank calls this.

    `backend`, `timeout` (seconds or a timedelta) and `options` (one for all groups, or name → options) are those of
    `torch.distributed.new_group`; `wait` bounds the agreement, in seconds.  Descriptions say axis and index ("tp group
    3 of the plan"), and so do torch's messages.  Where all ranks are in equally many groups, each makes one call per
    set of axes, for its own group; else every rank makes all of them (`handles.how` says which).  Partial sets are
    always made by all.  Under torch's `fake` backend there is nobody to agree with, which `handles.agreement.skipped`
    says.

    Cost: one agreement, then O(sets of axes) calls, each O(members).

    Raises LayoutMismatch, RankSilent, JobError as `live.agree`; InputError for something that is no plan, a backend
    that torch does not have here, a timeout that is none, or options of other groups.

        plan = CreationPlan("pp=2 dp=2 tp=2", ["tp", "dp", "pp"])
        with open_groups(plan) as handles:
            dist.all_reduce(tensor, group=handles["tp"])
    """
    if isinstance(plan, CreationPlan) and isinstance(options, Mapping):
        unknown = [name for name in options if name not in plan.names]
        if unknown:
            raise InputError(
                f"options name {shown(unknown[0])}, which is no group of this plan; it has {', '.join(plan.names)}"
            )
    _refuse_unknown(backend)
    return open_plan(TorchGroups(backend, _seconds(timeout), options), plan, wait)


def _refuse_unknown(backend: object) -> None:
    """Raise InputError for a backend torch does not have: refused by torch, some ranks would have counted a group."""
    if backend is None:
        return
    parts = str(backend).split(",") if isinstance(backend, str) else [""]
    names = [part.rpartition(":")[2] for part in parts]  # of "cpu:gloo,cuda:nccl", too
    if not all(name and dist.is_backend_available(name) for name in names):
        known = [name for name in dist.Backend.backend_list[1:] if dist.is_backend_available(name)]  # 0: undefined
        raise InputError(f"backend is one that torch has here, {', '.join(known)}, not {shown(backend)}")


def _seconds(timeout: timedelta | float | None) -> timedelta | None:
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if hasattr(seconds, "item") and hasattr(seconds, "dtype"):  # numpy's
        seconds = seconds.item()
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0.001 <= seconds < 10**8:
        raise InputError(
            f"timeout is a number of seconds from 0.001 to 10^8, or a timedelta of as many, not {shown(timeout)}"
        )
    return timedelta(seconds=seconds)


def to_device_mesh(source: Handles | Mesh, device_type: str | None = None, *, chart: str | None = None) -> DeviceMesh:
    """A DeviceMesh with the axes of a mesh: from `Handles` it holds their groups, from a `Mesh` torch makes its own.

    Handles must have a group for every axis of their mesh; of an atlas, `chart` names the one that is meant.  Without
    `device_type` it is that of the groups: "cuda" over nccl, "cpu" over gloo, else the accelerator that torch has here.
    Cost: O(world), for torch keeps a table of ranks.

    Raises HandleError (an axis without a group, a rank outside the chart), InputError (no mesh, no such chart, or ranks
    that do not begin at 0).
    """
    if isinstance(source, Handles):
        source.refuse_closed()
    layout = source.plan.layout if isinstance(source, Handles) else source
    mesh = _chart(layout, chart)
    if isinstance(source, Handles):
        table = torch.arange(mesh.first_rank, mesh.first_rank + mesh.world_size, dtype=torch.int).view(mesh.sizes)
        groups = [source[address] for address in _addresses(layout, mesh, chart)]
        device_type = device_type or _device_type(max(groups, key=dist.get_world_size))
        if len(groups) == 1:
            return DeviceMesh.from_group(groups[0], device_type, mesh_dim_names=mesh.axes)
        return DeviceMesh.from_group(groups, device_type, mesh=table, mesh_dim_names=mesh.axes)
    if mesh.first_rank:
        raise InputError(f"init_device_mesh makes meshes from rank 0 on; {mesh} begins at {mesh.first_rank}")
    return init_device_mesh(device_type or _device_type(None), mesh.sizes, mesh_dim_names=mesh.axes)


def _chart(layout: Mesh | Atlas, chart: str | None) -> Mesh:
    if isinstance(layout, Atlas):
        if isinstance(chart, str) and chart in layout.charts:
            return layout.charts[chart]
        raise InputError(
            f"a DeviceMesh is one chart of an atlas; chart is one of {', '.join(layout.charts)}, not {shown(chart)}"
        )
    if not isinstance(layout, Mesh):
        raise InputError(f"a DeviceMesh is made from a Mesh or from Handles, not from {shown(layout)}")
    if chart is not None:
        raise InputError(f"{layout} is a mesh and has no charts; leave chart {shown(chart)} out")
    return layout


def _addresses(layout: Mesh | Atlas, mesh: Mesh, chart: str | None) -> list[str]:
    """The axes of the mesh by the names they have in handles."""
    shared = layout.shared if isinstance(layout, Atlas) else mesh.axes
    return [axis if axis in shared else f"{chart}.{axis}" for axis in mesh.axes]


def _device_type(group: Any) -> str:
    """Where tensors of a group live; None is the default group, which may not be there yet."""
    backend = dist.get_backend(group) if group is not None or dist.is_initialized() else ""
    if backend in _DEVICES:
        return _DEVICES[backend]
    if hasattr(torch, "accelerator"):  # since 2.6
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return found.type if found else "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def from_device_mesh(device_mesh: DeviceMesh) -> Mesh:
    """The mesh of a DeviceMesh: its dimension names and sizes, major to minor.  Cost: O(world).

    Raises InputError where it has no names, or where its ranks are not row-major and without gaps (a slice of a larger
    mesh, for instance): no Mesh has its groups.
    """
    if not isinstance(device_mesh, DeviceMesh):
        raise InputError(f"from_device_mesh takes a DeviceMesh, not {shown(device_mesh)}; init_device_mesh makes one")
    names = device_mesh.mesh_dim_names
    table = device_mesh.mesh
    if not names:
        raise InputError(f"{shown(device_mesh)} names no dimensions; give init_device_mesh mesh_dim_names")
    ranks = table.flatten()
    first = int(ranks[0])
    if not torch.equal(ranks, torch.arange(first, first + len(ranks), dtype=ranks.dtype)):
        raise InputError(
            f"the ranks of {shown(device_mesh)} are {shown(ranks.tolist())}, not row-major and without gaps;"
            " a Mesh always is.  Give the whole device mesh, not a slice of it"
        )
    return Mesh.from_axes(list(zip(names, map(int, table.shape))), first)
