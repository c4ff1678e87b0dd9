"""Which ranks read the same samples, and which read different ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rankatlas.core import Atlas, Group, Mesh, Ranks
from rankatlas.core.border import as_int, axis_names
from rankatlas.derived import DATA_AXES, data_axes, unknown_axes
from rankatlas.errors import AxisError, DuplicateAxisError, InputError, RankError, UnnamedAxisError, shown, unknown_axis

if TYPE_CHECKING:
    from rankatlas.topology import Topology

DEFAULT_AXES = ("dp", "sharding")


class DataShard:
    """The data ranks of a layout: ranks that differ along `axes` read different samples, all others read the same.

    `layout` is a Mesh, an Atlas (axes are addressed as in its groups, "dense.dp") or the drop-in Topology.  The data
    rank is composed of a rank's places along `axes` in the order written, first is major.  The default is dp and
    sharding, as far as the layout has them; one that has data axes of other names, or an axis that may or may not be
    one, needs them named.  Sequence axes (cp, sep) are no data axes: their ranks read the same sequence and take
    different slices of it.  Every answer costs O(axes), whatever the world.

    Raises UnknownAxisError, DuplicateAxisError, AtlasError, AxisError and UnnamedAxisError (the default would leave out
    an axis that may split the data).

    >>> shard = DataShard(Mesh(pp=2, dp=4, tp=2))
    >>> shard.data_size, shard.data_rank(5), shard.agreement_group(5).ranks
    (4, 2, [4, 5, 12, 13])
    >>> DataShard(Mesh(dp_replicate=2, dp_shard=4, tp=2), axes=("dp_replicate", "dp_shard")).data_size
    8
    """

    __slots__ = ("_axes", "_mesh", "_size")

    def __init__(self, layout: Mesh | Atlas | Topology, axes: str | Iterable[str] = DEFAULT_AXES) -> None:
        names = axis_names(axes, "axes")
        mesh = _mesh_of(layout)
        if names == DEFAULT_AXES:
            self._mesh, self._axes = _default(mesh)
        elif isinstance(mesh, Atlas):
            self._mesh, self._axes = mesh.resolve(*names)
        else:
            self._mesh, self._axes = mesh, names
        for place, axis in enumerate(self._axes):
            if axis not in self._mesh.axes:
                raise unknown_axis(axis, self._mesh.axes)
            if axis in self._axes[:place]:
                raise DuplicateAxisError(f"data axis {shown(axis)} is named twice", name=axis)
        self._size = 1
        for axis in self._axes:
            self._size *= self._mesh.size(axis)

    @property
    def mesh(self) -> Mesh:
        """The mesh; of an atlas, the chart that has the data axes."""
        return self._mesh

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes along which ranks read different samples, in composing order."""
        return self._axes

    @property
    def data_size(self) -> int:
        """The number of data ranks: the product of the data axes."""
        return self._size

    @property
    def along(self) -> str:
        """What the data ranks differ along, for messages.

        >>> DataShard(Mesh(dp=2, sharding=3)).along, DataShard(Mesh(tp=2)).along
        ('dp × sharding', 'dp')
        """
        return " × ".join(self._axes) or "dp"

    def data_rank(self, rank: int) -> int:
        """Which share of the samples `rank` reads.  Raises RankError.

        >>> mesh = Mesh(sharding=2, dp=3)
        >>> [DataShard(mesh).data_rank(rank) for rank in range(6)], mesh.group("dp", "sharding", rank=1).group_rank
        ([0, 2, 4, 1, 3, 5], 1)
        """
        places = self._mesh.coordinate(rank)
        index = 0
        for axis in self._axes:
            index = index * self._mesh.size(axis) + places[axis]
        return index

    def ranks(self, data_rank: int) -> Ranks:
        """The ranks that read share `data_rank`, ascending.  Raises RankError.

        >>> DataShard(Mesh(pp=2, dp=2, tp=2)).ranks(1)
        [2, 3, 6, 7]
        """
        index = as_int(data_rank, "the data rank")
        if not 0 <= index < self._size:
            raise RankError(
                f"data rank {index} is not in 0 to {self._size - 1}", rank=index, first_rank=0, world_size=self._size
            )
        places = {}
        for axis in reversed(self._axes):
            index, places[axis] = divmod(index, self._mesh.size(axis))
        return self._mesh.select(**places)

    def agreement_group(self, rank: int) -> Group:
        """The ranks that must read exactly what `rank` reads, in the same order.  Raises RankError."""
        return self._mesh.group(*(axis for axis in self._mesh.axes if axis not in self._axes), rank=rank)

    def data_group(self, rank: int) -> Group:
        """The ranks, one per data rank, that read what together is the global batch.  Raises RankError.

        >>> DataShard(Mesh(pp=2, dp=2, tp=2)).data_group(5).ranks
        [5, 7]
        """
        return self._mesh.group(*self._axes, rank=rank)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DataShard):
            return NotImplemented
        return (self._mesh, self._axes) == (other._mesh, other._axes)

    def __hash__(self) -> int:
        return hash((self._mesh, self._axes))

    def __repr__(self) -> str:
        return f"DataShard({self._mesh!r}, axes={self._axes!r})"


def _mesh_of(layout: object) -> Mesh | Atlas:
    if isinstance(layout, (Mesh, Atlas)):
        return layout
    from rankatlas.topology import Topology

    if isinstance(layout, Topology):
        return layout.mesh
    raise InputError(f"data is shared out over a Mesh, an Atlas or a Topology, not over {shown(layout)}")


def _chart(atlas: Atlas) -> Mesh:
    """The one chart of `atlas` that has the default data axes."""
    known = [axis for axis in DEFAULT_AXES if any(axis in atlas[chart].axes for chart in atlas)]
    if not known:
        raise AxisError(
            f"no chart of {atlas} has an axis {' or '.join(DEFAULT_AXES)}; name the data axes: axes=('chart.axis',)",
            name=DEFAULT_AXES[0],
        )
    return atlas.resolve(*known)[0]


def _default(layout: Mesh | Atlas) -> tuple[Mesh, tuple[str, ...]]:
    """The mesh and the axes of `DEFAULT_AXES` that it has, unless others may split the data as well."""
    mesh = layout if isinstance(layout, Mesh) else _chart(layout)
    there = tuple(axis for axis in DEFAULT_AXES if axis in mesh.axes)
    others = [axis for axis in data_axes(mesh) if axis not in DEFAULT_AXES and mesh.size(axis) > 1]
    if others:
        every = [axis for axis in DATA_AXES if axis in mesh.axes]
        named, listed = ", ".join(map(repr, every)), ",".join(every)
        raise AxisError(
            f"{mesh} has the data axes {', '.join(others)}, which {' and '.join(DEFAULT_AXES)} leave out: their ranks"
            f" would all read the same samples.  Name all data axes: axes=({named},), or --data {listed} of"
            " rankatlas batches",
            name=others[0],
        )
    forgotten = unknown_axes(mesh)
    if forgotten:
        sizes = ", ".join(f"{axis}={mesh.size(axis)}" for axis in forgotten)
        raise UnnamedAxisError(
            f"whether ranks along {sizes} of {mesh} read different samples is not known from the name; name the data"
            f" axes, with or without {'it' if len(forgotten) == 1 else 'them'}: axes={there or ('dp',)!r} or"
            f" axes={(*there, *forgotten)!r}",
            name=forgotten[0],
            forgotten=forgotten,
        )
    return mesh, there
