"""The groups people ask for by purpose rather than by axis: who shares data, who holds one copy of the model."""

from __future__ import annotations

from collections.abc import Iterator

from rankatlas.core import Group, Mesh, Ranks
from rankatlas.errors import CoordinateError

# Which axes split the data, the sequence, the layers: the field's names for them, in the order a data rank is composed.
# Paddle's moe_sharding is the outer part of sharding; Megatron's weight shards (gtp_remat) read data of their own.
DATA_AXES = ("dp", "data", "dp_replicate", "dp_shard", "fsdp", "moe_sharding", "sharding", "gtp_remat")
SEQUENCE_AXES = ("cp", "sep", "sp")
PIPELINE_AXES = ("pp", "pipe")
_TENSOR_AXES = ("tp", "mp", "tensor", "model")
_EXPERT_AXES = ("ep", "expert")
# Axes of layers of experts that stand for one of the others there.
_AMONG_EXPERTS = {"edp": "data", "efsdp": "data", "moe_sharding": "data", "etp": "tensor"}
_MODEL_AXES = (*PIPELINE_AXES, *_TENSOR_AXES, *SEQUENCE_AXES)


def data_axes(mesh: Mesh) -> tuple[str, ...]:
    """The axes of `mesh` along which ranks read different data, in composing order (first is major).

    Beside an expert axis moe_sharding is none: there it is where experts lie, and the chart of the dense layers says
    who reads what.

    >>> data_axes(Mesh(sharding=2, pp=2, dp=2))
    ('dp', 'sharding')
    >>> data_axes(Mesh(moe_sharding=2, pp=2, sharding=2)), data_axes(Mesh(moe_sharding=2, pp=2, ep=4))
    (('moe_sharding', 'sharding'), ())
    """
    experts = any(axis in mesh.axes for axis in _EXPERT_AXES)
    return tuple(axis for axis in DATA_AXES if axis in mesh.axes and not (experts and axis in _AMONG_EXPERTS))


def axis_role(name: str) -> str | None:
    """What an axis of this name cuts, as far as the field's names tell.

    >>> axis_role("mp"), axis_role("fsdp"), axis_role("pipe"), axis_role("rows")
    ('tensor', 'data', 'pipeline', None)
    """
    roles = {
        "data": DATA_AXES,
        "sequence": SEQUENCE_AXES,
        "pipeline": PIPELINE_AXES,
        "tensor": _TENSOR_AXES,
        "expert": _EXPERT_AXES,
    }
    return next((role for role, names in roles.items() if name in names), _AMONG_EXPERTS.get(name))


def model_axes(mesh: Mesh) -> tuple[str, ...]:
    """The other axes: the ranks that differ only there share one data rank and, together, hold one model.

    Empty where that cannot be said: without a data axis, or with an axis whose role is not known from its name (the
    ranks of an expert axis may or may not read the same data).

    >>> model_axes(Mesh(pp=2, dp=2, cp=2, tp=2)), model_axes(Mesh(dp=2, ep=4))
    (('pp', 'cp', 'tp'), ())
    """
    data = data_axes(mesh)
    rest = tuple(axis for axis in mesh.axes if axis not in data)
    known = all(axis in _MODEL_AXES or mesh.size(axis) == 1 for axis in rest)
    return rest if data and known else ()


def unknown_axes(mesh: Mesh) -> tuple[str, ...]:
    """The axes of size > 1 whose role is not known from their name, so that groups which depend on it are left out.

    >>> unknown_axes(Mesh(pipe=2, data=2, model=2)), unknown_axes(Mesh(dp=2, rows=4))
    ((), ('rows',))
    """
    known = (*data_axes(mesh), *_MODEL_AXES)
    return tuple(axis for axis in mesh.axes if mesh.size(axis) > 1 and axis not in known)


def pipeline_axis(mesh: Mesh) -> str | None:
    """The axis that cuts the layers, None where no name says so.

    >>> pipeline_axis(Mesh(pipe=2, data=2)), pipeline_axis(Mesh(dp=2))
    ('pipe', None)
    """
    there = [axis for axis in PIPELINE_AXES if axis in mesh.axes]
    return next((axis for axis in there if mesh.size(axis) > 1), there[0] if there else None)


def sequence_axes(mesh: Mesh) -> tuple[str, ...]:
    """The axes along which ranks hold different parts of one sequence, those of size 1 left out.

    >>> sequence_axes(Mesh(dp=2, cp=2, sep=1))
    ('cp',)
    """
    return tuple(axis for axis in SEQUENCE_AXES if axis in mesh.axes and mesh.size(axis) > 1)


def data_rank(mesh: Mesh, rank: int) -> tuple[int, int]:
    """(data rank, number of data ranks) of `rank`: its places along `data_axes`, first is major.  Cost: O(axes).

    Where dp stands before sharding this is the place in the group over both; otherwise the two differ.

    >>> data_rank(Mesh(sharding=2, dp=3), 1)
    (2, 6)
    """
    places = mesh.coordinate(rank)
    index, size = 0, 1
    for axis in data_axes(mesh):
        index = index * mesh.size(axis) + places[axis]
        size *= mesh.size(axis)
    return index, size


def stage_neighbours(mesh: Mesh, rank: int) -> tuple[int | None, int | None]:
    """The ranks before and after `rank` in its pipeline, None at the ends.  Cost: O(axes).

    Raises CoordinateError when the mesh has no pipeline axis.

    >>> stage_neighbours(Mesh(pp=3, tp=2), 3)
    (1, 5)
    """
    axis = _pipeline(mesh)
    place, stride = mesh.coordinate(rank)[axis], mesh.stride(axis)
    last = mesh.size(axis) - 1
    return (rank - stride if place else None), (rank + stride if place < last else None)


def end_pairs(mesh: Mesh) -> Iterator[tuple[int, int]]:
    """First- and last-stage rank of every pipeline, for tied embeddings.  Cost: O(1) each.

    Raises CoordinateError when the mesh has no pipeline axis.

    >>> list(end_pairs(Mesh(pp=4, tp=2)))
    [(0, 6), (1, 7)]
    """
    return ((ranks[0], ranks[-1]) for ranks in mesh.groups(_pipeline(mesh)).ranges())


def _pipeline(mesh: Mesh) -> str:
    axis = pipeline_axis(mesh)
    if axis is None:
        raise CoordinateError(f"{mesh} has no pipeline axis {' or '.join(PIPELINE_AXES)}", missing=PIPELINE_AXES[:1])
    return axis


class Purpose:
    """A family of groups with a purpose: `name`, what it is for, over which axes, how many of which size.

    `first` are the ranks of the first few.
    """

    __slots__ = ("axes", "count", "first", "meaning", "name", "size")

    def __init__(
        self,
        name: str,
        meaning: str,
        axes: tuple[str, ...],
        count: int,
        size: int,
        first: list[Ranks | tuple[int, ...]],
    ) -> None:
        self.name = name
        self.meaning = meaning
        self.axes = axes
        self.count = count
        self.size = size
        self.first = first


def purposes(mesh: Mesh, shown: int = 3) -> list[Purpose]:
    """The families of groups that this mesh has, with the first `shown` of each.  Cost: O(axes × shown).

    >>> [(p.name, p.count, p.size) for p in purposes(Mesh(pp=2, dp=2, tp=2))]
    [('data', 4, 2), ('model replica', 2, 4), ('first and last stage', 4, 2), ('stage', 2, 4)]
    """
    found = []
    data, model = data_axes(mesh), model_axes(mesh)
    sequence = sequence_axes(mesh)
    if data:
        found.append(_over(mesh, "data", "read different data", data, shown))
        if sequence:
            found.append(_over(mesh, "data and sequence", "sum loss and gradients", data + sequence, shown))
    if model:
        found.append(_over(mesh, "model replica", "share one data rank, hold one model", model, shown))
    pipeline = pipeline_axis(mesh)
    if pipeline is not None and mesh.size(pipeline) > 1:
        stages = mesh.size(pipeline)
        pairs = [pair for pair, _ in zip(end_pairs(mesh), range(shown))]
        count = mesh.world_size // stages
        found.append(Purpose("first and last stage", "tie embeddings", (pipeline,), count, 2, [*pairs]))
        ranks = [mesh.select(**{pipeline: stage}) for stage in range(min(stages, shown))]
        rest = tuple(axis for axis in mesh.axes if axis != pipeline)
        found.append(Purpose("stage", "hold the same layers", rest, stages, mesh.world_size // stages, [*ranks]))
    return found


def _over(mesh: Mesh, name: str, meaning: str, axes: tuple[str, ...], shown: int) -> Purpose:
    groups = mesh.groups(*axes)
    first: list[Ranks | tuple[int, ...]] = [group.ranks for group in groups[:shown]]
    return Purpose(name, meaning, groups.axes, len(groups), groups.size, first)


def groups_of(mesh: Mesh, rank: int) -> list[tuple[str, Group]]:
    """Every group a lookup of `rank` shows: one per axis, then those with a purpose, each with its name.

    >>> [(name, list(group)) for name, group in groups_of(Mesh(dp=2, cp=2), 3)]
    [('dp', [1, 3]), ('cp', [2, 3]), ('data and sequence', [0, 1, 2, 3]), ('model replica', [2, 3])]
    """
    named = [(axis, mesh.group(axis, rank=rank)) for axis in mesh.axes]
    data, model = data_axes(mesh), model_axes(mesh)
    sequence = sequence_axes(mesh)
    if len(data) > 1:
        named.append(("data", mesh.group(*data, rank=rank)))
    if data and sequence:
        named.append(("data and sequence", mesh.group(*data, *sequence, rank=rank)))
    if model:
        named.append(("model replica", mesh.group(*model, rank=rank)))
    without_sequence = tuple(axis for axis in model if axis not in sequence)
    if sequence and len(without_sequence) > 1:
        named.append(("model", mesh.group(*without_sequence, rank=rank)))
    return named
