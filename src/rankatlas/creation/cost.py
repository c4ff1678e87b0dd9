"""What creating the groups of a plan costs: calls in the two ways there are, communicators, rough memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# NCCL keeps a buffer of NCCL_BUFFSIZE (4 MiB unless set) per channel and neighbour; a ring has two neighbours.  How
# many channels there are is its own choice, between 2 on slow links and 32; 16 is a usual number inside a server.
BUFFER = 4 << 20
CHANNELS = 16
_NEIGHBOURS = 2
_MEMORY = CHANNELS * _NEIGHBOURS * BUFFER  # bytes of one communicator on one of its members, rough


class FamilyCost:
    """The cost of the groups over one set of axes.

    `groups` of `size` members; `communicators` that are needed (0 for ranks alone) and how many of them are
    `created`; creation calls of every rank `one_by_one`, of which it is `not_a_member`, and `by_partition` (of a rank
    in one of them; all of them where members alone could not agree on a name).
    """

    __slots__ = ("by_partition", "communicators", "created", "groups", "names", "not_a_member", "one_by_one", "size")

    def __init__(self, names: tuple[str, ...], groups: int, size: int, created: int, own: bool) -> None:
        self.names = names
        self.groups = groups
        self.size = size
        self.communicators = groups if size > 1 else 0
        self.created = created
        self.one_by_one = created
        self.not_a_member = max(0, created - 1)
        self.by_partition = 1 if own else created

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {name: getattr(self, name) for name in ("names", *(name for name in self.__slots__ if name != "names"))}

    def __repr__(self) -> str:
        return (
            f"FamilyCost({' = '.join(self.names)}: {self.groups:,} groups of {self.size:,}, {self.created:,} created;"
            f" calls of every rank: {self.one_by_one:,} one by one, {self.by_partition:,} by partition)"
        )


class Cost:
    """The cost of a plan, for every rank of `world_size`.

    `one_by_one`: every rank calls for every group, member or not, as Megatron and Paddle do.  `by_partition`: every
    rank makes one call per set of axes, for the group it is in, and one for itself alone where a group is one rank; of
    the rank that makes the most.  The `partial` calls come on top of both.  `memberships` is the most communicators a
    rank is in, `memory` rough bytes on it.

    >>> from rankatlas import Mesh
    >>> from rankatlas.creation import CreationPlan
    >>> cost = CreationPlan(Mesh(dp=32, tp=8), ["tp"]).cost()
    >>> cost.one_by_one, cost.not_a_member, cost.by_partition, cost.communicators
    (32, 31, 1, 32)
    >>> cost
    Cost(32 communicators; calls of every rank: 32 one by one, 1 by partition; a rank is in 1, about 128 MiB)
    """

    __slots__ = ("by_partition", "families", "memberships", "partial", "world_size")

    def __init__(
        self,
        families: Sequence[tuple[tuple[str, ...], int, int, int, bool]],
        world_size: int,
        partial: int,
        by_partition: int,
        memberships: int,
    ) -> None:
        self.families = tuple(FamilyCost(*one) for one in families)
        self.world_size = world_size
        self.partial = partial
        self.by_partition = by_partition
        self.memberships = memberships

    @property
    def communicators(self) -> int:
        """New communicators in the whole job."""
        return sum(one.created for one in self.families) + self.partial

    @property
    def one_by_one(self) -> int:
        """Calls of every rank when each group is created by all ranks."""
        return sum(one.one_by_one for one in self.families) + self.partial

    @property
    def not_a_member(self) -> int:
        """Of those calls, the ones for groups the rank is no member of, on the rank that is in the most."""
        return self.one_by_one - self.memberships

    @property
    def memory(self) -> int:
        """Rough bytes of buffers on one rank: 16 channels × 2 neighbours × 4 MiB for each communicator it is in."""
        return self.memberships * _MEMORY

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        names = ("world_size", "communicators", "one_by_one", "not_a_member", "by_partition", "partial", "memberships")
        facts = {name: getattr(self, name) for name in (*names, "memory")}
        return {**facts, "families": [one.to_dict() for one in self.families]}

    def __repr__(self) -> str:
        return (
            f"Cost({counted(self.communicators, 'communicator')}; calls of every rank: {self.one_by_one:,} one by one,"
            f" {self.by_partition:,} by partition; a rank is in {self.memberships:,}, about"
            f" {self.memory / 2**20:,.0f} MiB)"
        )


def counted(number: int, what: str) -> str:
    """A number of things in words: one of them has no s.

    >>> counted(1, "more group"), counted(2048, "communicator")
    ('1 more group', '2,048 communicators')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def most_covered(ranges: Sequence[range], extra: Mapping[int, int]) -> int:
    """In how many of `ranges` the rank is that is in the most, its `extra` ones added.  Cost: O(n log n).

    >>> most_covered([range(4), range(4), range(4, 9)], {5: 2, 0: 1})
    3
    """
    steps: dict[int, int] = {}
    for one in ranges:
        steps[one.start] = steps.get(one.start, 0) + 1
        steps[one.stop] = steps.get(one.stop, 0) - 1
    borders = sorted(steps)
    depths = list(accumulate(steps[border] for border in borders))
    most = max(depths, default=0)
    for rank, more in extra.items():
        place = bisect_right(borders, rank) - 1
        most = max(most, more + (depths[place] if place >= 0 else 0))
    return most
