"""What a plan means beside the groups of its layout: the groups that are to be there, and the name of each."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rankatlas.creation import CreationPlan, PartialSet, PlannedGroup
from rankatlas.records.kinds import Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    Members = tuple[int, ...]

_NUMBER = re.compile(r", number \d+$")  # what tells kinds apart that say the same of themselves


class Meant:
    """The groups of a plan by their members, and its partial sets by name.  Cost: O(sets of axes × world).

    >>> meant = Meant(CreationPlan("pp=3 tp=1", ["pp"], {"pairs": [[0, 1], [1, 2]]}))
    >>> kinds = [Kind("pairs", [[0, 1]]), Kind("pairs, number 2", [[1, 2]]), Kind("pairs, number 3", [[0, 2]])]
    >>> meant.name(kinds)
    >>> [kind.axes for kind in kinds], meant.spoken_of(kinds[2])
    (['partial set pairs', 'partial set pairs', None], PartialSet('pairs', 2 groups))
    """

    __slots__ = ("_names", "_sets", "groups", "plan")

    def __init__(self, plan: CreationPlan) -> None:
        self.plan = plan
        self.groups = list(plan.groups())
        self._sets = {one.name: one for one in plan.partial}
        self._names: dict[Members, str] = {tuple(one.ranks): self.told(one.names[0]) for one in self.groups}

    def told(self, name: str) -> str:
        """A name of the plan, with the word for what it is where it is no set of axes."""
        return f"partial set {name}" if name in self._sets else name

    def name(self, kinds: Iterable[Kind]) -> None:
        """Write into kinds without axes what they are in the plan, if each of their groups is one of it."""
        for kind in kinds:
            if kind.axes is not None or not kind.groups:
                continue
            spoken = self.spoken_of(kind)
            if spoken and all(tuple(ranks) in spoken.groups for ranks in kind.groups):
                kind.axes = self.told(spoken.name)
            elif all(self.has(tuple(ranks)) for ranks in kind.groups):
                kind.axes = ", ".join(dict.fromkeys(self._names[tuple(ranks)] for ranks in kind.groups))

    def spoken_of(self, kind: Kind) -> PartialSet | None:
        """The partial set that the description of a kind speaks of, or None."""
        return self._sets.get(kind.description) or self._sets.get(base(kind.description))

    def has(self, ranks: Members) -> bool:
        """Whether a group of the plan has these members, in this order."""
        return ranks in self._names

    def missing(self, kinds: Iterable[Kind]) -> dict[str, tuple[list[PlannedGroup], int]]:
        """The first name of groups that no kind has → those groups, and how many there are of that name."""
        seen = {tuple(ranks): None for kind in kinds for ranks in kind.groups}
        found: dict[str, tuple[list[PlannedGroup], int]] = {}
        for group in self.groups:
            if group.new:
                lacking, count = found.get(group.names[0], ([], 0))
                lacking += [] if tuple(group.ranks) in seen else [group]
                found[group.names[0]] = lacking, count + 1
        return {name: one for name, one in found.items() if one[0]}


def base(description: str) -> str:
    """What a kind says of itself, without the number that tells it from others that say the same.

    >>> base("pairs, number 2")
    'pairs'
    """
    return _NUMBER.sub("", description)
