"""The drop-in for `paddlenlp.ops.Topology`: same names, same answers where those are right, and right elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from rankatlas.core import Mesh, Ranks
from rankatlas.core.border import in_order
from rankatlas.core.sizes import checked_size, resolve
from rankatlas.errors import ArgumentsError, InputError, shown
from rankatlas.topology.argument_names import warn_of_near_misses
from rankatlas.topology.group_info import DataRanks, GroupInfo, ListToBe
from rankatlas.topology.training_args import AXES, ORDERS, read_arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_INFOS = {axis: f"{axis}_info" for axis in AXES}


class Topology:
    """Where one rank stands in a five-axis hybrid-parallel job, as `paddlenlp.ops.Topology` tells it.

    `device_rank` of `world_size` ranks; degrees of the axes, `dp_degree=None` taking what the others leave;
    `order` from outer to inner, a list of the five names or "pp_first" (pp, dp, sharding, mp, sep) or
    "sharding_first" (dp, sharding, pp, mp, sep).

    `world`, `dp_info`, `pp_info`, `sharding_info`, `mp_info`, `sep_info` are `GroupInfo(size, rank, world)`;
    `data_info` has size dp·sharding, rank dp_rank·sharding_size + sharding_rank, and in `world` the data rank of
    every global rank (so it is no group).  `is_last` says whether this is the last pipeline stage,
    `data_inner_times` how many ranks share one data rank.  `mesh` is the layout itself.

    Raises WorldSizeError (degrees and world do not fit), SizeError (a bad degree), RankError, ArgumentsError (an
    order that is none).  Cost: O(1); a list of ranks is made when it is first read, `repr` costs O(world_size).

    >>> topology = Topology(5, 8, dp_degree=2, pp_degree=2, mp_degree=2)
    >>> topology.mp_info, topology.pp_info.world, topology.data_info.rank, topology.is_last
    (GroupInfo(size=2, rank=1, world=[4, 5]), [5, 7], 1, False)
    """

    __module__ = "rankatlas"  # the public home: pickles must not depend on where the file is

    world: GroupInfo
    dp_info: GroupInfo
    pp_info: GroupInfo
    sharding_info: GroupInfo
    mp_info: GroupInfo
    sep_info: GroupInfo
    data_info: GroupInfo
    is_last: bool
    data_inner_times: int
    mesh: Mesh
    _rank: int

    def __init__(
        self,
        device_rank: int,
        world_size: int,
        dp_degree: int | None = None,
        pp_degree: int = 1,
        sharding_degree: int = 1,
        mp_degree: int = 1,
        sep_degree: int = 1,
        order: str | Iterable[str] = AXES,
    ) -> None:
        names = _order(order)
        degrees = {
            "dp": dp_degree,
            "pp": pp_degree,
            "sharding": sharding_degree,
            "mp": mp_degree,
            "sep": sep_degree,
        }
        _settle(self, _mesh(names, degrees, world_size), device_rank)

    def __getattr__(self, name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"a Topology has no attribute {shown(name)}")
        answer = self.__dict__[name] = _LATER[name](self)
        return answer

    @classmethod
    def from_args(
        cls,
        args: object,
        rank: int,
        world_size: int,
        *,
        release: str = "paddlenlp-2.8",
        auto_parallel: bool = False,
        gpt3: bool = False,
    ) -> Topology:
        """The topology that a trainer builds from its training arguments, a mapping or an object.

        `release` is "paddlenlp-2.8" or "paddleformers-1.2"; the short names (`mp_degree`, `pp_degree` …) are read
        under both.  −1 means not set.  `auto_parallel=True` follows the pre-training scripts, `gpt3=True` that of
        GPT-3.  Cost: O(1).

        Raises ArgumentsError (a contradiction, another release's names, an axis five names cannot hold),
        WorldSizeError, SizeError, RankError.  Warns (UserWarning) about a key of a mapping that is nearly the name of
        an argument and sets nothing.

        >>> args = {"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2, "sharding": "stage1"}
        >>> print(Topology.from_args(args, rank=5, world_size=16).mesh)
        dp=1 pp=2 sharding=4 sep=1 mp=2
        """
        settled = read_arguments(args, world_size, release=release, auto_parallel=auto_parallel, gpt3=gpt3)
        warn_of_near_misses(args, release)
        degrees = {f"{axis}_degree": degree for axis, degree in settled.degrees.items()}
        return cls(rank, world_size, **degrees, order=settled.order)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_LATER]

    @property
    def order(self) -> list[str]:
        """The axes, outer → inner, as a list of its own."""
        return list(self.mesh.axes)

    def __setattr__(self, name: str, value: object) -> None:
        self._refuse_change(name)
        super().__setattr__(name, value)  # a subclass may add what it likes

    def __delattr__(self, name: str) -> None:
        self._refuse_change(name)
        super().__delattr__(name)

    def _refuse_change(self, name: str) -> None:
        if name in _LATER or name in ("mesh", "_rank", "order", *_INFOS.values()):
            raise AttributeError(f"a Topology is a value: {name} cannot be changed; make another Topology instead")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return self._rank == other._rank and self.mesh == other.mesh

    def __hash__(self) -> int:
        return hash((self._rank, self.mesh))

    def __repr__(self) -> str:
        infos = ("dp_info", "pp_info", "sharding_info", "mp_info", "sep_info", "data_info")
        return "".join(f"{name}:\n\t {getattr(self, name)!r}, \n" for name in infos) + f"order:\n\t {self.order}"

    def __reduce__(self) -> tuple[object, ...]:
        own = ("mesh", "_rank", *_INFOS.values(), *_LATER)
        added = {name: value for name, value in self.__dict__.items() if name not in own}
        return _restored, (type(self), self.mesh, self._rank), added or None


def _restored(kind: type[Topology], mesh: Mesh, rank: int) -> Topology:
    topology = object.__new__(kind)
    _settle(topology, mesh, rank)
    return topology


def _order(order: str | Iterable[str]) -> tuple[str, ...]:
    try:
        names = ORDERS.get(order, ()) if isinstance(order, str) else in_order(order, "order")
        if len(names) == len(_INFOS) and _INFOS.keys() == set(names):
            return names if type(order) is tuple else tuple(map(str.__str__, names))
    except (TypeError, InputError):  # no list, or one of things no axis is
        pass
    raise ArgumentsError(
        f"order must name each of {', '.join(AXES)} once, or be 'pp_first' or 'sharding_first'; got {shown(order)}",
        names=("order",),
    )


def _mesh(names: tuple[str, ...], degrees: dict[str, int | None], world_size: int) -> Mesh:
    """The mesh of degrees that fit the world; when they do not, `resolve` infers dp or explains."""
    try:
        mesh = Mesh(**{axis: degrees[axis] for axis in names})  # type: ignore[arg-type]
        if type(world_size) is int and mesh.world_size == world_size:
            return mesh
    except InputError:
        pass  # told below, with the names the caller uses
    for axis, degree in degrees.items():
        if degree is not None:
            checked_size(axis, degree, label=f"{axis}_degree")
    unset = [f"{axis}_degree" for axis in AXES[1:] if degrees[axis] is None]
    if unset:
        raise ArgumentsError(f"{unset[0]} must be an integer; only dp_degree may be None", names=tuple(unset))
    origins = {axis: f"{axis}_degree" for axis in AXES}
    return Mesh(**resolve({axis: degrees[axis] for axis in names}, world_size, origins=origins))


def _settle(topology: Topology, mesh: Mesh, device_rank: int) -> None:
    """Fill in what every use needs: the mesh, the rank, and the five axis groups, each list still to be made."""
    if type(device_rank) is not int or not 0 <= device_rank < mesh.world_size:
        device_rank = mesh.rank(**mesh.coordinate(device_rank))  # a plain int, or the error that says why not
    answers = topology.__dict__  # filled here once; __setattr__ is closed
    answers["mesh"] = mesh
    answers["_rank"] = device_rank
    for axis, size, stride in zip(mesh.axes, mesh.sizes, mesh.strides):
        place = device_rank // stride % size
        start = device_rank - place * stride
        # Five of these are made for every Topology; the named constructor costs three times as much.
        fields = (size, place, ListToBe(range(start, start + size * stride, stride)))
        answers[_INFOS[axis]] = tuple.__new__(GroupInfo, fields)


def _world(topology: Topology) -> GroupInfo:
    size = topology.mesh.world_size
    return GroupInfo(size, topology._rank, Ranks(range(size)))


def _data_info(topology: Topology) -> GroupInfo:
    dp, sharding = topology.dp_info, topology.sharding_info
    return GroupInfo(dp.size * sharding.size, dp.rank * sharding.size + sharding.rank, DataRanks(topology.mesh))


# What is worked out when it is first read, and then kept.
_LATER: Mapping[str, Callable[[Topology], Any]] = MappingProxyType(
    {
        "world": _world,
        "data_info": _data_info,
        "is_last": lambda topology: topology.pp_info.rank == topology.pp_info.size - 1,
        "data_inner_times": lambda topology: topology.mesh.world_size // topology.data_info.size,
    }
)
