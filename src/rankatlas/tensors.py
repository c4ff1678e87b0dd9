"""What a tensor is along each axis: equal copies, different parts, or parts to be summed.

Say it once for a weight, an activation or an optimizer state; which ranks must hold equal values, who writes a shard to
a checkpoint, and over whom a gradient is summed all follow.
"""

from __future__ import annotations

from collections.abc import Iterable

from rankatlas.core import Group, Mesh
from rankatlas.core.border import axis_names
from rankatlas.core.roles import assigned
from rankatlas.errors import AxisError, PartialTensorError

DATA_AXES = ("dp", "sharding", "cp")
# Other names of data axes: a mesh that has them needs them named, or gradients would silently stay unsummed.
OTHER_DATA_AXES = ("dp_replicate", "dp_shard", "fsdp", "data", "edp", "efsdp", "moe_sharding", "gtp_remat")


class TensorLayout:
    """One tensor on a mesh: along which axes it is `replicated`, along which `sharded`, along which `partial`.

    Every axis of size > 1 is named exactly once; axes of size 1 may be left out and count as replicated.  For expert
    weights give the expert chart of an atlas.  All answers cost O(axes).

    Raises UnnamedAxisError (a forgotten axis), DuplicateAxisError (an axis with two roles), UnknownAxisError.

    >>> weight = TensorLayout(Mesh(pp=2, dp=2, tp=2), replicated=("dp",), sharded=("tp", "pp"))
    >>> weight.replica_group(5).ranks, weight.shard_index(5), weight.shard_count
    ([5, 7], 3, 4)
    >>> weight.owner(7), weight.is_owner(7), weight.gradient_group(7).ranks
    (5, False, [5, 7])
    """

    __slots__ = ("_mesh", "_partial", "_replicated", "_sharded")

    def __init__(
        self,
        mesh: Mesh,
        replicated: str | Iterable[str] = (),
        sharded: str | Iterable[str] = (),
        partial: str | Iterable[str] = (),
    ) -> None:
        roles = assigned(mesh, "tensor", {"replicated": replicated, "sharded": sharded, "partial": partial})
        self._mesh = mesh
        self._sharded = roles["sharded"]
        self._partial = roles["partial"]
        named = (*self._sharded, *self._partial)
        self._replicated = tuple(axis for axis in mesh.axes if axis not in named)

    @property
    def mesh(self) -> Mesh:
        """The mesh the tensor lies on."""
        return self._mesh

    @property
    def replicated(self) -> tuple[str, ...]:
        """The axes along which it is an equal copy, in mesh order; axes of size 1 that were not named are here."""
        return self._replicated

    @property
    def sharded(self) -> tuple[str, ...]:
        """The axes along which it is a different part, in the order written: first is major in `shard_index`."""
        return self._sharded

    @property
    def partial(self) -> tuple[str, ...]:
        """The axes along which it still has to be summed."""
        return self._partial

    @property
    def shard_count(self) -> int:
        """The number of different shards: the product of the sharded sizes."""
        count = 1
        for axis in self._sharded:
            count *= self._mesh.size(axis)
        return count

    def replica_group(self, rank: int) -> Group:
        """The ranks whose copy must equal that of `rank`.  Raises RankError."""
        return self._mesh.group(*self._replicated, rank=rank)

    def shard_index(self, rank: int) -> int:
        """Which shard `rank` holds: mixed radix over `sharded` in the order written.  Raises RankError.

        >>> mesh = Mesh(pp=2, tp=2)
        >>> [TensorLayout(mesh, sharded=axes).shard_index(1) for axes in (("tp", "pp"), ("pp", "tp"))]
        [2, 1]
        """
        places = self._mesh.coordinate(rank)
        index = 0
        for axis in self._sharded:
            index = index * self._mesh.size(axis) + places[axis]
        return index

    def owner(self, rank: int) -> int:
        """The rank that writes the shard of `rank` to a checkpoint: its replica with every replicated place 0.

        Raises PartialTensorError (a sum is not finished, so nobody holds it), RankError.
        """
        self._refuse_partial("owner")
        return self.replica_group(rank).ranks[0]

    def is_owner(self, rank: int) -> bool:
        """Whether `rank` is the one that writes its shard.  Raises as `owner`."""
        return bool(self.owner(rank) == rank)

    def gradient_group(self, rank: int, data: str | Iterable[str] = DATA_AXES, also: str | Iterable[str] = ()) -> Group:
        """The ranks over which the gradient of this tensor is summed.

        They differ along the `data` axes that the mesh has, whether the tensor is replicated there (an all-reduce) or
        sharded there (a reduce-scatter), and along the axes of `also`, such as tp for norm weights under sequence
        parallelism.  Where ranks along sep hold parts of one sequence and equal weights, sep is one of them: name it.

        Raises PartialTensorError when the tensor is already partial along one of them, UnknownAxisError for an axis of
        `also` that the mesh lacks, AxisError when the mesh has data axes of other names (dp_replicate, dp_shard, fsdp,
        data, edp, efsdp, moe_sharding, gtp_remat) and `data` does not say which, RankError.

        >>> norm = TensorLayout(Mesh(dp=2, tp=2), replicated=("dp", "tp"))
        >>> norm.gradient_group(0).ranks, norm.gradient_group(0, also=("tp",)).ranks
        ([0, 2], [0, 1, 2, 3])
        """
        data, also = axis_names(data, "data"), axis_names(also, "also")
        for axis in also:
            self._mesh.size(axis)
        others = [axis for axis in OTHER_DATA_AXES if axis in self._mesh.axes and axis not in also]
        left_out = [axis for axis in others if self._mesh.size(axis) > 1]
        if left_out and data == DATA_AXES:
            raise AxisError(
                f"{self._mesh} has the data axes {', '.join(left_out)}, which {', '.join(DATA_AXES)} leave out:"
                f" gradients would not be summed there.  Name all of them: data=({', '.join(map(repr, left_out))}, …)",
                name=left_out[0],
            )
        if data and data != DATA_AXES and not any(axis in self._mesh.axes for axis in data):
            raise AxisError(f"{self._mesh} has none of the data axes {', '.join(data)}", name=data[0])
        axes = tuple(axis for axis in self._mesh.axes if axis in data or axis in also)
        already = [axis for axis in axes if axis in self._partial]
        if already:
            raise PartialTensorError(
                f"along {', '.join(already)} the tensor is partial already: its gradient there is no sum of gradients",
                axes=tuple(already),
            )
        return self._mesh.group(*axes, rank=rank)

    def norm_weight(self, rank: int) -> float:
        """1 / number of replicas: what to weigh the squares of `rank` with, so that a norm counts each element once.

        Raises PartialTensorError, RankError.

        >>> TensorLayout(Mesh(dp=4, tp=2), replicated=("dp",), sharded=("tp",)).norm_weight(3)
        0.25
        """
        self._refuse_partial("norm_weight")
        return 1 / self.replica_group(rank).size

    def _refuse_partial(self, what: str) -> None:
        if self._partial:
            raise PartialTensorError(
                f"{what} has no answer for a tensor that is partial along {', '.join(self._partial)}; sum it first",
                axes=self._partial,
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TensorLayout):
            return NotImplemented
        return (self._mesh, self._sharded, self._partial) == (other._mesh, other._sharded, other._partial)

    def __hash__(self) -> int:
        return hash((self._mesh, self._sharded, self._partial))

    def __repr__(self) -> str:
        roles = (("replicated", self._replicated), ("sharded", self._sharded), ("partial", self._partial))
        return f"TensorLayout({self._mesh!r}, {', '.join(f'{role}={axes!r}' for role, axes in roles if axes)})"
