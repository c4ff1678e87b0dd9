"""Tensors that are one by name in places no axis tells: the embedding of the first and the last stage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

from rankatlas.creation.partial import PartialSet, refuse_ranks_outside
from rankatlas.errors import HandleError, InputError, shown


class Ties:
    """Name of a tensor → groups of ranks whose copies of it must be equal, whatever its layout says of them.

    A name without groups is none: in a pipeline of one stage nothing is tied.
    Raises InputError for something else, and RankError for a rank the job does not have.
    """

    __slots__ = ("_sets",)

    def __init__(self, given: Any, world_size: int) -> None:
        if given is not None and not isinstance(given, Mapping):
            raise InputError(f"tied is name → groups of ranks, such as first_and_last(mesh), not {shown(given)}")
        self._sets: dict[str, PartialSet] = {}
        for name, groups in (given or {}).items():
            if not isinstance(name, str):
                raise InputError(f"tied is by the names of tensors; got {shown(name)}")
            made = PartialSet("tied", groups)
            if made.groups:
                self._sets[str(name)] = made
        refuse_ranks_outside(self._sets.values(), 0, lambda rank: rank < world_size, f"the job of {world_size} ranks")

    def __contains__(self, name: str) -> bool:
        return name in self._sets

    def told(self) -> str:
        """What all ranks must give alike, in few words whatever its size; "" for nothing."""
        given = {name: sorted(self.groups(name)) for name in sorted(self._sets)}
        return f", tied: {shown(given)} ({crc32(json.dumps(given).encode()):08x})" if given else ""

    def groups(self, name: str) -> list[list[int]]:
        """The groups that hold `name`."""
        return [list(ranks) for ranks in self._sets[name].groups]

    def labels(self, handles: Any) -> dict[str, str]:
        """Name → the partial set of the plan that has these groups.  Raises HandleError where it has none."""
        found = {}
        for name, tie in self._sets.items():
            label = next(
                (one.name for one in handles.plan.partial if all(map(one.groups.__contains__, tie.groups))), None
            )
            if label is None:
                raise HandleError(
                    f"copies of {shown(name)} are tied over {shown(self.groups(name))}, for which the plan has no"
                    " partial set; add one to the plan, or leave handles out",
                    name=name,
                    known=tuple(handles),
                )
            found[name] = label
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._sets)
