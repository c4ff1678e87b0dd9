"""The record of a job: which ranks stood where, which groups were made, and what they are in a layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankatlas.core import Atlas, Mesh
from rankatlas.core.border import as_int
from rankatlas.core.description import layout_from_dict
from rankatlas.creation import CreationPlan
from rankatlas.errors import DescriptionError
from rankatlas.records.infer import infer_layout
from rankatlas.records.kinds import Kind, name_kinds
from rankatlas.records.planned import Meant

FORMAT = "rankatlas.record"
VERSION = 1


class LayoutRecord:
    """What a job was made of: its ranks (host, local rank, device), its kinds of groups, and its layout.

    `layout` is the expected one, or the one inferred from the groups (`inferred` says which), or None where none
    explains them; `unexplained` names the kinds that match nothing in it.
    """

    __slots__ = ("framework", "inferred", "kinds", "layout", "ranks", "unexplained", "world_size")

    def __init__(
        self,
        world_size: int,
        ranks: list[dict[str, Any]],
        kinds: list[Kind],
        layout: Mesh | Atlas | None,
        *,
        inferred: bool,
        unexplained: list[str],
        framework: str,
    ) -> None:
        self.world_size = world_size
        self.ranks = ranks
        self.kinds = kinds
        self.layout = layout
        self.inferred = inferred
        self.unexplained = unexplained
        self.framework = framework

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, see `from_dict`."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "framework": self.framework,
            "world_size": self.world_size,
            "layout": None if self.layout is None else self.layout.to_dict(),
            "inferred": self.inferred,
            "unexplained": self.unexplained,
            "ranks": self.ranks,
            "kinds": [kind.to_dict() for kind in self.kinds],
        }

    @classmethod
    def from_dict(cls, data: object) -> LayoutRecord:
        """The record of `to_dict`.  Raises DescriptionError when the data is none."""
        fields: Mapping[str, Any] = data if isinstance(data, Mapping) else {}
        if (fields.get("format"), fields.get("version")) != (FORMAT, VERSION):
            raise DescriptionError(f"this is no {FORMAT} of version {VERSION}")
        try:
            world_size = as_int(fields["world_size"], "world_size")
            if len(fields["ranks"]) != world_size:
                raise ValueError(f"it tells of {len(fields['ranks'])} ranks, not {world_size}")
            kinds = [
                Kind(
                    str(one["description"]),
                    _tables(one["groups"], world_size),
                    None if one["axes"] is None else str(one["axes"]),
                    _tables([one["disagreements"]], world_size)[0],
                )
                for one in fields["kinds"]
            ]
            ranks = [{**one, "host": str(one["host"])} for one in fields["ranks"]]
            if [as_int(one["rank"], "a rank") for one in ranks] != list(range(world_size)):
                raise ValueError(f"it tells of {len(ranks)} ranks, which are not 0 to {world_size - 1}")
            layout = None if fields["layout"] is None else layout_from_dict(fields["layout"])
            if layout is not None and (layout.first_rank, layout.world_size) != (0, world_size):
                raise ValueError(f"its layout {layout} is not that of {world_size} ranks from 0")
            return cls(
                world_size,
                ranks,
                kinds,
                layout,
                inferred=bool(fields["inferred"]),
                unexplained=list(map(str, fields["unexplained"])),
                framework=str(fields["framework"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, DescriptionError):
                raise
            raise DescriptionError(f"this record is damaged: {error!r:.200}") from None

    def __repr__(self) -> str:
        return f"LayoutRecord({self.world_size} ranks, {len(self.kinds)} kinds of groups, layout={self.layout!r})"


def made_of(
    ranks: list[dict[str, Any]], kinds: list[Kind], expected: Mesh | Atlas | CreationPlan | None, framework: str
) -> LayoutRecord:
    """The record of ranks and kinds, named by the layout or plan that is expected, or by the layout inferred.

    Cost: O(kinds × world).

    >>> made_of([], [Kind("mesh_tp", [[0, 1]])], Mesh(tp=2), "torch").unexplained
    []
    """
    world_size = len(ranks)
    inference = infer_layout(kinds, world_size) if expected is None else None
    known = expected.layout if isinstance(expected, CreationPlan) else expected
    layout = inference.layout if inference else known
    if layout is not None:
        name_kinds(kinds, layout)
    if isinstance(expected, CreationPlan):
        Meant(expected).name(kinds)
    unexplained = inference.unexplained if inference else [kind.description for kind in kinds if kind.axes is None]
    return LayoutRecord(
        world_size, ranks, kinds, layout, inferred=expected is None, unexplained=unexplained, framework=framework
    )


def _tables(groups: Any, world_size: int) -> list[list[int]]:
    if not isinstance(groups, list) or not all(isinstance(ranks, list) for ranks in groups):
        raise TypeError("groups are lists of ranks")
    tables = [[as_int(rank, "a rank") for rank in ranks] for ranks in groups]
    outside = [rank for ranks in tables for rank in ranks if not 0 <= rank < world_size]
    if outside:
        raise ValueError(f"rank {outside[0]} in a group of {world_size} ranks")
    return tables
