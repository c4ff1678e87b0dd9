"""Sets of groups that do not cover every rank alike: the first and last stage together, neighbouring stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rankatlas.core import Mesh
from rankatlas.core.border import as_int, in_order, is_list
from rankatlas.errors import InputError, RankError, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_MOST_RANKS = 1 << 22  # whose pairs are listed


class PartialSet:
    """A named set of groups: rank → none, one or several of them.

    `groups` are tuples of ranks in the order given; members ascend, as in every group of a layout, however they were
    written: a rank's place in its group is its place among the numbers.

    >>> PartialSet("embedding", [[0, 6], [7, 1]]).of(7)
    ((1, 7),)
    """

    __slots__ = ("_of", "groups", "name")

    def __init__(self, name: object, groups: object) -> None:
        if not isinstance(name, str) or not name or "+" in name:
            raise InputError(f"a partial set is named by text without +, such as 'embedding', not {shown(name)}")
        self.name = str(name)
        self.groups = tuple(_members(one, self.name) for one in in_order(groups, f"the groups of {shown(name)}"))
        self._of: dict[int, tuple[tuple[int, ...], ...]] = {}
        if len(dict.fromkeys(self.groups)) != len(self.groups):
            seen: dict[tuple[int, ...], None] = {}
            twice = next(ranks for ranks in self.groups if ranks in seen or seen.setdefault(ranks))
            raise InputError(f"partial set {shown(name)} lists {shown(list(twice))} twice; list each group once")
        of: dict[int, list[tuple[int, ...]]] = {}
        for ranks in self.groups:
            for rank in ranks:
                of.setdefault(rank, []).append(ranks)
        self._of.update((rank, tuple(groups)) for rank, groups in of.items())

    def of(self, rank: int) -> tuple[tuple[int, ...], ...]:
        """The groups that `rank` is in, in order.  Cost: O(1)."""
        return self._of.get(rank, ())

    def __repr__(self) -> str:
        return f"PartialSet({self.name!r}, {len(self.groups)} groups)"


def _members(ranks: object, name: str) -> tuple[int, ...]:
    members = tuple(as_int(rank, f"a rank of {name}") for rank in in_order(ranks, f"a group of {name}"))
    if not members or len(dict.fromkeys(members)) != len(members) or min(members) < 0:
        raise InputError(
            f"a group of {shown(name)} must be different ranks from 0 on, at least one; got {shown(ranks)}"
        )
    return tuple(sorted(members))


def partial_sets(given: object) -> tuple[PartialSet, ...]:
    """Partial sets from name → groups, or a list of (name, groups) pairs, lists of groups and single groups.

    Sets without a name are "partial 0", "partial 1" by their place.  Raises InputError.

    >>> partial_sets([("embedding", [[0, 2]]), [[0, 1], [2, 3]]])
    (PartialSet('embedding', 1 groups), PartialSet('partial 1', 2 groups))
    """
    if isinstance(given, Mapping):
        sets = [PartialSet(name, groups) for name, groups in given.items()]
    else:
        sets = [PartialSet(*_named(one, place)) for place, one in enumerate(in_order(given, "partial"))]
    found: list[PartialSet] = []
    for made in sets:
        if made.name in [other.name for other in found]:
            raise InputError(f"two partial sets are named {shown(made.name)}; names tell them apart")
        found.append(made)
    return tuple(found)


def _named(one: object, place: int) -> tuple[object, object]:
    if isinstance(one, Sequence) and len(one) == 2 and isinstance(one[0], str):
        return one[0], one[1]
    groups = in_order(one, "a partial set")
    # A single group is a list of ranks, a set of them a list of lists.
    alone = groups and not any(map(is_list, groups))
    return f"partial {place}", [groups] if alone else groups


def refuse_ranks_outside(sets: Iterable[PartialSet], first: int, covers: Any, what: str) -> None:
    """Raise RankError where a partial set has a rank that the layout does not."""
    for one in sets:
        for ranks in one.groups:
            for rank in ranks:
                if not covers(rank):
                    raise RankError(
                        f"partial set {shown(one.name)} has rank {rank}, which is not in {what}",
                        rank=rank,
                        first_rank=first,
                        world_size=0,
                    )


def first_and_last(mesh: Mesh, axis: str = "pp") -> list[list[int]]:
    """The first and the last rank of every group along `axis`: who shares an embedding.  Cost: O(groups).

    No groups where `axis` has size 1.  Raises UnknownAxisError, InputError (no mesh, or beyond 2^22 ranks).

    >>> first_and_last(Mesh(pp=4, tp=2))
    [[0, 6], [1, 7]]
    """
    _refuse_others(mesh)
    if mesh.size(axis) == 1:
        return []
    _refuse_many(mesh)
    return [[group.ranks[0], group.ranks[-1]] for group in mesh.groups(axis)]


def neighbours(mesh: Mesh, axis: str = "pp", *, around: bool = False) -> list[list[int]]:
    """Every pair of neighbours along `axis`, stage by stage; with `around` also the last with the first.

    Cost: O(world).  Raises UnknownAxisError, InputError (no mesh, or beyond 2^22 ranks).

    >>> neighbours(Mesh(pp=3, tp=2))
    [[0, 2], [1, 3], [2, 4], [3, 5]]
    """
    _refuse_others(mesh)
    mesh.size(axis)
    _refuse_many(mesh)
    return list(_pairs(mesh, axis, around))


def _refuse_others(mesh: object) -> None:
    if not isinstance(mesh, Mesh):
        raise InputError(
            f"stages are those of a Mesh, not of {shown(mesh)}; give parse_mesh of notation, or a chart of an atlas"
        )


def _refuse_many(mesh: Mesh) -> None:
    if mesh.world_size > _MOST_RANKS:
        raise InputError(
            f"the pairs of {mesh.world_size:,} ranks are too many to list, those of {_MOST_RANKS:,} the most; give the"
            " groups that are needed"
        )


def _pairs(mesh: Mesh, axis: str, around: bool) -> Iterator[list[int]]:
    groups = mesh.groups(axis)
    for place in range(groups.size - 1):
        for group in groups:
            yield [group.ranks[place], group.ranks[place + 1]]
    if around and groups.size > 2:
        for group in groups:
            yield [group.ranks[0], group.ranks[-1]]
