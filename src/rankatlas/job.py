"""A job: what a launch configuration says, each value with its origin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rankatlas.core import Atlas, Mesh


class Fact:
    """One value of a configuration and where it came from, such as ("mp", 2, "tensor_parallel_degree").

    >>> Fact("dp", 4, "inferred from world size 8")
    Fact('dp', 4, 'inferred from world size 8')
    """

    __slots__ = ("name", "origin", "value")

    def __init__(self, name: str, value: object, origin: str) -> None:
        self.name = name
        self.value = value
        self.origin = origin

    def __repr__(self) -> str:
        return f"Fact({self.name!r}, {self.value!r}, {self.origin!r})"


class Job:
    """A layout as it was read: the mesh or atlas, the `format` it was written in, `source`, facts and notes.

    `seed` is the base seed a configuration sets, None where it sets none.
    `places` says where ranks run, rank → its `host`, `local_rank` and `device`, and `kinds` which groups were made,
    plain data; both are known of recorded jobs only.
    `notes` are sentences about what was given and could not be understood, or was understood in one of several
    possible ways; a reader never keeps such a thing to itself.

    >>> Job(Mesh(dp=8), format="notation", source="dp=8").layout
    Mesh(dp=8)
    """

    __slots__ = ("facts", "format", "kinds", "layout", "notes", "places", "seed", "source")

    def __init__(
        self,
        layout: Mesh | Atlas,
        *,
        format: str,
        source: str,
        facts: Iterable[Fact] = (),
        notes: Iterable[str] = (),
        places: Mapping[int, Mapping[str, Any]] | None = None,
        kinds: Iterable[Mapping[str, Any]] = (),
        seed: int | None = None,
    ) -> None:
        self.layout = layout
        self.format = format
        self.source = source
        self.facts = tuple(facts)
        self.notes = tuple(notes)
        self.places = dict(places or {})
        self.kinds = tuple(kinds)
        self.seed = seed

    def __repr__(self) -> str:
        return f"Job({self.layout!r}, format={self.format!r}, source={self.source!r})"
