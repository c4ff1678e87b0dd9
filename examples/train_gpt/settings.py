"""What is trained, and whether a layout can share it out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rankatlas import Mesh, parse_mesh
from rankatlas.batches import BatchPlan
from rankatlas.errors import InputError, shown
from rankatlas.sequence import sequence_slices

DATA = ("dp", "sharding")  # ranks along these read different samples
SEQUENCE = ("cp", "sep")  # ranks along these hold different parts of each sample
DTYPES = ("float32", "float64")
BYTES = 256
TENSOR = ("tp", "mp")  # two names of one axis


@dataclass(frozen=True)
class Settings:
    """The model, the data and the optimizer: everything that decides the losses, and nothing of the layout."""

    layers: int = 4
    hidden: int = 32
    heads: int = 8
    sequence: int = 32
    vocabulary: int = BYTES
    batch: int = 12  # samples of a step, of all ranks together
    dropout: float = 0.1
    learning_rate: float = 1e-3
    clip: float = 1.0  # the norm above which a gradient is scaled down
    seed: int = 1234
    dtype: str = "float32"

    @property
    def head_size(self) -> int:
        """The width of one attention head."""
        return self.hidden // self.heads


def mesh_of(text: str, world: int) -> Mesh:
    """The mesh of `text` for `world` processes; axes it leaves out are there with size 1, so that code can name all.

    Raises InputError: unknown axes, another world size, both names of the tensor axis.
    """
    mesh = parse_mesh(text, world_size=world)
    known = (*DATA, "pp", *SEQUENCE, *TENSOR)
    strange = [axis for axis in mesh.axes if axis not in known]
    if strange:
        raise InputError(
            f"this example does not know what to do along {', '.join(strange)} of {mesh};"
            f" it trains over {', '.join(known)}"
        )
    if all(axis in mesh.axes for axis in TENSOR):
        raise InputError(f"{mesh} has the tensor axis twice, as tp and as mp; keep one of them")
    if mesh.first_rank:
        raise InputError(f"{mesh} begins at rank {mesh.first_rank}; processes are numbered from 0")
    wanted = (*DATA, "pp", *SEQUENCE, tensor_axis(mesh))
    missing = [(axis, 1) for axis in wanted if axis not in mesh.axes]
    return Mesh.from_axes([*missing, *zip(mesh.axes, mesh.sizes)])


def tensor_axis(mesh: Mesh) -> str:
    """The name that the tensor axis has in this mesh."""
    return "mp" if "mp" in mesh.axes else "tp"


def check(settings: Settings, mesh: Mesh, micro_batch: int | None = None, split: str = "contiguous") -> int:
    """The number of samples in a micro-batch; refuses what this layout cannot share out evenly.

    Without a wish it is the largest that keeps every stage of the pipeline busy.
    """
    tensor = tensor_axis(mesh)
    if settings.dtype not in DTYPES:
        raise InputError(f"dtype is {' or '.join(DTYPES)}, not {shown(settings.dtype)}")
    for name in ("layers", "hidden", "heads", "sequence", "vocabulary", "batch"):
        if getattr(settings, name) < 1:
            raise InputError(f"{name} is {getattr(settings, name)}; it must be 1 or more")
    if settings.vocabulary < BYTES:
        raise InputError(f"a vocabulary of {settings.vocabulary} does not hold the {BYTES} values of a byte")
    if not 0 <= settings.dropout < 1:
        raise InputError(f"dropout is a probability from 0 to below 1, not {settings.dropout}")
    for name in ("learning_rate", "clip"):
        if not 0 < getattr(settings, name) < math.inf:
            raise InputError(f"{name} is a number above 0, not {getattr(settings, name)}")
    if settings.hidden % settings.heads:
        raise InputError(f"hidden size {settings.hidden} is not divided by {settings.heads} heads")
    _divides(mesh, "layers", settings.layers, ("pp",))
    _divides(mesh, "attention heads", settings.heads, (tensor, "sep"))
    _divides(mesh, "positions of a sequence", settings.sequence, (*SEQUENCE, tensor))
    sequence_slices(settings.sequence, mesh.size("cp"), split)
    _divides(mesh, "entries of the vocabulary", settings.vocabulary, (tensor,))
    _divides(mesh, "samples of a batch", settings.batch, DATA)
    data = mesh.size("dp") * mesh.size("sharding")
    mine = settings.batch // data
    if micro_batch is None:
        sizes = (size for size in range(mine, 0, -1) if mine % size == 0)
        micro_batch = next((size for size in sizes if mine // size >= mesh.size("pp")), 1)
    return BatchPlan(settings.batch, micro_batch, data, along=" × ".join(DATA)).micro_batch


def _divides(mesh: Mesh, what: str, count: int, axes: tuple[str, ...]) -> None:
    parts = 1
    for axis in axes:
        parts *= mesh.size(axis)
    if count % parts:
        written = " * ".join(f"{axis}={mesh.size(axis)}" for axis in axes if mesh.size(axis) > 1)
        fitting = [size for size in range(1, count + 1) if count % size == 0]
        raise InputError(
            f"{count} {what} cannot be shared out over {written}: {parts} parts do not divide them;"
            f" numbers of parts that do: {', '.join(map(str, fitting))}"
        )
