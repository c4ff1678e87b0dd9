"""The scheme we recommend: seeds hashed from named coordinates, so that no two streams can meet by arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rankatlas.core import Group, Mesh
from rankatlas.core.description import checked
from rankatlas.core.roles import assigned
from rankatlas.errors import InputError, PartialTensorError, SeedError, shown
from rankatlas.seeding.backends import generator, seed_globally
from rankatlas.seeding.integers import as_seed
from rankatlas.tensors import TensorLayout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_VERSION = "rankatlas.stream.1"
_MODEL_AXES = ("tp", "mp")  # inside a tensor-parallel group activations are copies


class Stream:
    """One named source of randomness: equal along the axes `same`, different along the axes `differ`.

    Its seed depends on the base seed, the name and the places along `differ`, by axis name; not on rank numbers, the
    order of axes or any size.  So reordering the mesh or growing an axis changes no seed that existed.

    >>> stream = SeedPlan(1234, Mesh(dp=2, pp=2, tp=2)).stream("dropout", same=("tp",), differ=("dp", "pp"))
    >>> f"{stream.seed(4):016x}"
    '6a8913925217b42d'
    """

    __slots__ = ("base_seed", "differ", "mesh", "name", "same")
    base_seed: int
    differ: tuple[str, ...]
    mesh: Mesh
    name: str
    same: tuple[str, ...]

    def __init__(self, base_seed: int, mesh: Mesh, name: str, same: tuple[str, ...], differ: tuple[str, ...]) -> None:
        for field, value in zip(self.__slots__, (base_seed, differ, mesh, name, same)):
            object.__setattr__(self, field, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Stream is a value: {name} cannot be set; ask the plan for another stream")

    def __reduce__(self) -> tuple[object, ...]:
        return Stream, (self.base_seed, self.mesh, self.name, self.same, self.differ)

    def key(self, rank: int) -> list[list[Any]]:
        """The [axis, place] pairs the seed of `rank` depends on, sorted by name.  Raises RankError.  Cost: O(axes)."""
        places = self.mesh.coordinate(rank)
        return [[axis, places[axis]] for axis in sorted(self.differ)]

    def seed(self, rank: int) -> int:
        """The 64-bit seed of `rank`: the big-endian BLAKE2b-64 of the compact JSON of version, base, name and key.

        Cost: O(axes).  Raises RankError.
        """
        import json
        from hashlib import blake2b

        text = json.dumps([_VERSION, self.base_seed, self.name, self.key(rank)], separators=(",", ":"))
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")

    def group(self, rank: int) -> Group:
        """The ranks that share this stream with `rank`.  Raises RankError."""
        return self.mesh.group(*self.same, rank=rank)

    def numpy(self, rank: int) -> Any:
        """A new `numpy.random.Generator` of this stream."""
        return generator("numpy", self.seed(rank))

    def torch(self, rank: int, device: str = "cpu") -> Any:
        """A new `torch.Generator` of this stream on `device`."""
        return generator("torch", self.seed(rank), device)

    def jax(self, rank: int) -> Any:
        """A JAX key of this stream, made of all 64 bits."""
        return generator("jax", self.seed(rank))

    def paddle(self, rank: int) -> Any:
        """A new Paddle CPU generator of this stream."""
        return generator("paddle", self.seed(rank))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stream):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return self.base_seed, self.mesh, self.name, frozenset(self.differ)

    def __repr__(self) -> str:
        return f"Stream({self.name!r}, same={self.same!r}, differ={self.differ!r})"


class SeedPlan:
    """The streams of a job: a base seed, a mesh, and from them any number of named streams.

    Raises IntegerError and SeedError for a base seed that is no 64-bit number.  Cost: O(1).

    >>> plan = SeedPlan(1234, Mesh(pp=2, dp=2, tp=2))
    >>> dropout = plan.stream("attention_dropout", same=("tp",), differ=("dp", "pp"))
    >>> dropout.seed(0) == dropout.seed(1), dropout.seed(0) == dropout.seed(2)
    (True, False)
    """

    __slots__ = ("base_seed", "mesh")
    base_seed: int
    mesh: Mesh

    def __init__(self, base_seed: int, mesh: Mesh) -> None:
        if not isinstance(mesh, Mesh):
            raise InputError(f"a seed plan is one of a Mesh, not of {shown(mesh)}; of an Atlas give one chart")
        object.__setattr__(self, "base_seed", as_seed(base_seed, "base_seed"))
        object.__setattr__(self, "mesh", mesh)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a SeedPlan is a value: {name} cannot be set; make another plan")

    def __reduce__(self) -> tuple[object, ...]:
        return SeedPlan, (self.base_seed, self.mesh)

    def stream(self, name: str, same: str | Iterable[str] = (), differ: str | Iterable[str] = ()) -> Stream:
        """The stream `name`, equal along `same` and different along `differ`; axes of size 1 may be left out.

        Cost: O(axes).  Raises UnnamedAxisError, DuplicateAxisError, UnknownAxisError.
        """
        if not isinstance(name, str) or not name:
            raise SeedError(f"a stream is named by text, not {shown(name)}")
        roles = assigned(self.mesh, "stream", {"same": same, "differ": differ})
        differ = roles["differ"]
        return Stream(
            self.base_seed, self.mesh, name, tuple(axis for axis in self.mesh.axes if axis not in differ), differ
        )

    def stream_for(self, name: str, layout: TensorLayout) -> Stream:
        """The stream that initialises a tensor: equal on its replicas, different on its shards.

        Raises PartialTensorError, and SeedError when the tensor lies on another mesh.

        >>> mesh = Mesh(dp=2, tp=2)
        >>> SeedPlan(1, mesh).stream_for("w", TensorLayout(mesh, replicated="dp", sharded="tp")).differ
        ('tp',)
        """
        if layout.mesh != self.mesh:
            raise SeedError(
                f"the tensor lies on {layout.mesh}, this plan on {self.mesh}",
                name=name,
            )
        if layout.partial:
            raise PartialTensorError(
                f"a tensor that is partial along {', '.join(layout.partial)} is not initialised but summed",
                axes=layout.partial,
            )
        return self.stream(name, same=layout.replicated, differ=layout.sharded)

    def megatron(self) -> dict[str, Stream]:
        """The streams Megatron-core keeps, with the relations it intends.

        `data-parallel-rng` (the default state): same within a stage, different between stages.
        `model-parallel-rng`: different along tp as well.
        `context-parallel-rng`: along cp too, for what is split by sequence; only on a mesh with cp, and an addition of
        ours: core 0.16 has no such state.
        `expert-parallel-rng`: different along ep and etp, same along edp; only on a mesh that has one of them.
        The expert chart of an atlas, which has edp or etp and no tp, gets no `model-parallel-rng`: along its axes that
        one cannot be told.
        Source: `model_parallel_cuda_manual_seed` and `_set_random_seed` of core 0.16.

        >>> {name: stream.differ for name, stream in SeedPlan(1, Mesh(pp=2, dp=2, tp=2)).megatron().items()}
        {'data-parallel-rng': ('pp',), 'model-parallel-rng': ('pp', 'tp')}
        """
        wanted = {"data-parallel-rng": ("pp",), "model-parallel-rng": ("pp", "tp")}
        if "cp" in self.mesh.axes:
            wanted["context-parallel-rng"] = ("pp", "tp", "cp")
        if any(axis in self.mesh.axes for axis in ("ep", "etp")):
            wanted["expert-parallel-rng"] = ("pp", "ep", "etp")
        if any(axis in self.mesh.axes for axis in ("edp", "etp")) and "tp" not in self.mesh.axes:
            del wanted["model-parallel-rng"]
        return {name: self._differing(name, axes) for name, axes in wanted.items()}

    def paddle(self) -> dict[str, Stream]:
        """The streams PaddleNLP's Trainer keeps, with the relations its seeds have.

        `global_seed`: same along mp (and cp, in PaddleFormers' variant) only.  `local_seed`: different everywhere.
        `random_seed` (the host's): different between stages only.

        >>> {name: stream.same for name, stream in SeedPlan(1, Mesh(pp=2, dp=2, mp=2)).paddle().items()}
        {'global_seed': ('mp',), 'local_seed': (), 'random_seed': ('dp', 'mp')}
        """
        everything = self.mesh.axes
        return {
            "global_seed": self._differing(
                "global_seed", [axis for axis in everything if axis not in (*_MODEL_AXES, "cp")]
            ),
            "local_seed": self._differing("local_seed", everything),
            "random_seed": self._differing("random_seed", ("pp",)),
        }

    def _differing(self, name: str, axes: Iterable[str]) -> Stream:
        differ = [axis for axis in self.mesh.axes if axis in tuple(axes)]
        return self.stream(name, same=[axis for axis in self.mesh.axes if axis not in differ], differ=differ)

    def seed_everything(self, rank: int, stream: Stream | None = None, backends: Iterable[str] | None = None) -> int:
        """Seed the global state of Python and of the numpy, torch and paddle already imported; return the seed.

        `stream` says who shares it, by default those along tp or mp.  `backends` names others than the imported ones.
        Raises RankError, SeedError (an unknown backend).
        """
        if stream is None:
            stream = self._differing("everything", [axis for axis in self.mesh.axes if axis not in _MODEL_AXES])
        seed = stream.seed(rank)
        seed_globally(seed, backends)
        return seed

    def table(self, streams: Iterable[Stream]) -> list[dict[str, Any]]:
        """Which ranks share which stream: per stream its name, axes, number of different seeds and first groups.

        Cost: O(streams × axes).

        >>> plan = SeedPlan(1, Mesh(dp=2, tp=2))
        >>> plan.table([plan.stream("dropout", same="tp", differ="dp")])[0]["first_groups"]
        [[0, 1], [2, 3]]
        """
        streams = list(streams)
        for stream in streams:
            if stream.mesh != self.mesh:
                raise SeedError(f"stream {shown(stream.name)} lies on {stream.mesh}, this plan on {self.mesh}")
        return [
            {
                "name": stream.name,
                "same": list(stream.same),
                "differ": list(stream.differ),
                "seeds": self.mesh.world_size // self.mesh.groups(*stream.same).size,
                "sharing": self.mesh.groups(*stream.same).size,
                "first_groups": [
                    _members(ranks) for ranks, _ in zip(self.mesh.groups(*stream.same).ranges(), range(3))
                ],
                "first_seeds": [stream.seed(group.ranks[0]) for group in self.mesh.groups(*stream.same)[:3]],
            }
            for stream in streams
        ]

    def state_dict(self) -> dict[str, Any]:
        """Everything a plan consists of, as plain data: all its streams follow from it.

        >>> plan = SeedPlan(1234, Mesh(dp=2))
        >>> SeedPlan.from_state_dict(plan.state_dict()) == plan
        True
        """
        return {"format": "rankatlas.seed-plan", "version": 1, "base_seed": self.base_seed, "mesh": self.mesh.to_dict()}

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> SeedPlan:
        """The plan of `state_dict`.  Raises DescriptionError, SeedError."""
        fields = checked(state, "rankatlas.seed-plan", ("base_seed", "mesh"))
        return cls(fields["base_seed"], Mesh.from_dict(fields["mesh"]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SeedPlan):
            return NotImplemented
        return (self.base_seed, self.mesh) == (other.base_seed, other.mesh)

    def __hash__(self) -> int:
        return hash((self.base_seed, self.mesh))

    def __repr__(self) -> str:
        return f"SeedPlan({self.base_seed}, {self.mesh!r})"


def _members(ranks: Sequence[int], most: int = 64) -> list[int]:
    return list(ranks[:most])
