"""Batches: the ranks that must read the same data do, and those that must not do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rankatlas.audit.compare import Thing
from rankatlas.audit.engine import ReadsTensors, checksum, current
from rankatlas.audit.replicas import Places, compared, size_of, thing_of
from rankatlas.audit.report import AuditReport
from rankatlas.core import Mesh
from rankatlas.core.border import axis_names
from rankatlas.derived import data_axes, unknown_axes
from rankatlas.errors import AxisError, InputError, JobError, shown
from rankatlas.tensors import TensorLayout

_DEEPEST = 32


def audit_batches(
    batch: Any,
    mesh: Mesh,
    handles: Any = None,
    *,
    same: str | Iterable[str] | None = None,
    engine: str | None = None,
) -> AuditReport:
    """Whether ranks that must read the same batch do, and ranks along data axes read different ones; each calls this.

    `batch` is a tensor, or dicts and lists of tensors, numbers and text.  `same` are the axes along which one batch is
    read: by default all but the data axes, which is right where a batch is read whole and cut along cp or sep later.
    `handles` as in `audit_replicas`.  Cost as there.

    Raises as `audit_replicas`; AxisError where the data axes cannot be known by name and `same` is not given.
    """
    reader = current(engine)

    def prepare() -> tuple[Places, int]:
        if not isinstance(mesh, Mesh):
            raise InputError(f"batches are audited on a Mesh, not on {shown(mesh)}; give the chart that reads data")
        if (mesh.first_rank, mesh.world_size) != (0, reader.world_size):
            raise JobError(f"{mesh} has other ranks than the job, which has {reader.world_size} from 0")
        layout = _layout(mesh, same)
        tensors: dict[str, Any] = {}
        plain: dict[str, tuple[int, int]] = {}
        _collect(batch, "batch", reader, tensors, plain, 0)
        things = [thing_of(reader, name, layout, tensor) for name, tensor in tensors.items()]
        # Numbers and text, such as a length, may well be the same in different batches.
        copied = TensorLayout(mesh, layout.replicated, (), layout.sharded)
        things += [Thing(name, copied, *sums) for name, sums in plain.items()]
        return Places(reader, things, handles), sum(size_of(reader, tensor) for tensor in tensors.values())

    return compared("batches", reader, handles, prepare)


def _layout(mesh: Mesh, same: str | Iterable[str] | None) -> TensorLayout:
    if same is None:
        data = data_axes(mesh)
        shared = tuple(axis for axis in mesh.axes if axis not in data)
        if unknown_axes(mesh):
            raise AxisError(
                f"which ranks of {mesh} read the same batch cannot be told from its names; say along which axes they"
                " do: same=('pp', 'tp')",
                name=unknown_axes(mesh)[0],
            )
    else:
        shared = axis_names(same, "same")
        data = tuple(axis for axis in mesh.axes if axis not in shared)
    return TensorLayout(mesh, shared, data)


def _collect(
    value: Any, name: str, reader: ReadsTensors, tensors: dict[str, Any], plain: dict[str, tuple[int, int]], depth: int
) -> None:
    if depth > _DEEPEST:
        raise InputError(f"{name} is nested too deep, or contains itself")
    if name in tensors or name in plain:
        raise InputError(f"two values of the batch go by {shown(name)} both; rename a key")
    if reader.is_tensor(value):
        tensors[name] = value
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            _collect(value[key], f"{name}.{key}", reader, tensors, plain, depth + 1)
    elif isinstance(value, (list, tuple)):
        for place, one in enumerate(value):
            _collect(one, f"{name}[{place}]", reader, tensors, plain, depth + 1)
    elif value is None or isinstance(value, (bool, int, float, str, bytes)):
        kind = checksum(type(value).__name__, (), b"")
        plain[name] = (kind, checksum(type(value).__name__, (), repr(value).encode()))
    else:
        raise InputError(f"{name} is a {type(value).__name__}; a batch is tensors, numbers and text in dicts and lists")
