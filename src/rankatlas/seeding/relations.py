"""Whether seeds are equal where copies must agree, and different where parts must differ: any scheme, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any, NamedTuple

from rankatlas.core import Mesh
from rankatlas.core.border import as_int
from rankatlas.core.roles import assigned
from rankatlas.errors import InputError, SeedError
from rankatlas.seeding.integers import as_seed
from rankatlas.seeding.scheme import BASE, Family, all_places

_SHOWN = 3
_MOST_STREAMS = 1_000_000


class Unequal(NamedTuple):
    """Two ranks that must share a seed and do not."""

    first: int
    second: int
    seeds: tuple[int, int]


class Collision(NamedTuple):
    """Two streams with one seed, each a family and its places."""

    seed: int
    first: tuple[str, dict[str, int]]
    second: tuple[str, dict[str, int]]


class Relations:
    """What a check of seeds found.

    `unequal` lists pairs of ranks that must share a seed and do not, `collisions` pairs of streams that must differ
    and do not; `wanted` is the number of different streams, `distinct` that of different seeds.
    """

    __slots__ = ("collisions", "distinct", "unequal", "wanted")

    def __init__(self, unequal: list[Unequal], collisions: list[Collision], wanted: int, distinct: int) -> None:
        self.unequal = unequal
        self.collisions = collisions
        self.wanted = wanted
        self.distinct = distinct

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.unequal and not self.collisions

    def lines(self) -> list[str]:
        """The findings in words."""
        lines = [f"{self.distinct} different seeds where {self.wanted} are wanted"]
        for pair in self.unequal[:_SHOWN]:
            lines.append(
                f"ranks {pair.first} and {pair.second} must share a seed and have {pair.seeds[0]} and {pair.seeds[1]}"
            )
        for hit in self.collisions[:_SHOWN]:
            lines.append(f"{_stream(hit.first)} and {_stream(hit.second)} draw the same numbers: seed {hit.seed}")
        hidden = len(self.unequal[_SHOWN:]) + len(self.collisions[_SHOWN:])
        return [*lines, f"{hidden} more of the same kind"] if hidden else lines

    def raise_if_bad(self) -> None:
        """Raise SeedError with the findings, if there are any."""
        if not self.ok:
            raise SeedError("\n".join(self.lines()))

    def to_dict(self) -> dict[str, Any]:
        """The findings as plain data."""
        return {
            "ok": self.ok,
            "wanted": self.wanted,
            "distinct": self.distinct,
            "unequal": [{"ranks": [pair.first, pair.second], "seeds": list(pair.seeds)} for pair in self.unequal],
            "collisions": [
                {
                    "seed": hit.seed,
                    "first": {"family": hit.first[0], "places": hit.first[1]},
                    "second": {"family": hit.second[0], "places": hit.second[1]},
                }
                for hit in self.collisions
            ],
        }


def check_relations(
    scheme: Callable[[int], int],
    mesh: Mesh,
    same: str | Iterable[str] = (),
    differ: str | Iterable[str] = (),
) -> Relations:
    """Hold a function rank → seed against what must be equal and what must differ.

    Ranks that differ only along `same` must have one seed; ranks that differ along `differ` must not.  Every rank
    is compared with the first of its set, every set with the first that had its seed.
    Cost: O(world_size).  Raises UnnamedAxisError, DuplicateAxisError, UnknownAxisError.

    >>> mesh = Mesh(pp=2, dp=11)
    >>> def scheme(rank):
    ...     return 100 * mesh.coordinate(rank).pp + 10 * mesh.coordinate(rank).dp
    >>> found = check_relations(scheme, mesh, differ=("pp", "dp"))
    >>> found.collisions[0].first, found.collisions[0].second
    (('', {'pp': 0, 'dp': 10}), ('', {'pp': 1, 'dp': 0}))
    """
    roles = assigned(mesh, "check", {"same": same, "differ": differ})
    differing = tuple(axis for axis in mesh.axes if axis in roles["differ"])
    sharing = tuple(axis for axis in mesh.axes if axis not in differing)
    unequal = []
    streams = []
    groups = mesh.groups(*sharing)
    for ranks in groups.ranges():
        first = ranks[0]
        seed = as_int(scheme(first), "a seed")
        stream = ("", _only(mesh.coordinate(first), differing))
        told = {seed}
        streams.append((seed, stream))
        for rank in ranks[1:]:
            other = as_int(scheme(rank), "a seed")
            if other != seed:
                unequal.append(Unequal(first, rank, (seed, other)))
                if other not in told:
                    told.add(other)
                    streams.append((other, stream))  # a seed too many can meet another set as well
    collisions, distinct = _collisions(streams)
    return Relations(unequal, collisions, len(groups), distinct)


def check_families(families: Iterable[Family], mesh: Mesh, base_seed: int = 0) -> Relations:
    """Whether every stream of every family has a seed of its own, over all places its seed depends on.

        Cost: O(product of the sizes of those axes).

    >>> from rankatlas.seeding.scheme import parse_scheme
    >>> mesh = Mesh(pp=4, ep=8)
    >>> expert = check_families(parse_scheme("expert=+100*pp+1024+100*ep", mesh), mesh)
    >>> expert.wanted, expert.distinct
    (32, 11)
    """
    families = list(families)
    wanted = sum(prod(mesh.size(axis) for axis in family.axes) for family in families)
    if wanted > _MOST_STREAMS:
        most = f"{_MOST_STREAMS:,}"
        raise InputError(f"{wanted:,} streams are too many to compare; {most} are the most: take smaller axes")
    streams = [
        (
            as_seed(family.seed(places), f"the seed of {family.name or 'the scheme'}"),
            (family.name, _only(places, family.axes)),
        )
        for family in families
        for places in all_places(mesh, family.axes, base_seed)
    ]
    collisions, distinct = _collisions(streams)
    return Relations([], collisions, len(streams), distinct)


def _collisions(streams: list[tuple[int, tuple[str, dict[str, int]]]]) -> tuple[list[Collision], int]:
    first: dict[int, tuple[str, dict[str, int]]] = {}
    found = []
    for seed, stream in streams:
        if first.setdefault(seed, stream) != stream:
            found.append(Collision(seed, first[seed], stream))
    return found, len(first)


def _only(places: Mapping[str, int], axes: tuple[str, ...]) -> dict[str, int]:
    return {axis: places[axis] for axis in axes if axis != BASE}


def _stream(stream: tuple[str, dict[str, int]]) -> str:
    family, places = stream
    text = " ".join(f"{axis}={place}" for axis, place in places.items()) or "every rank"
    return f"{family} ({text})" if family else f"({text})"
