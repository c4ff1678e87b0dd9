"""The record of a running job, as `rankatlas.live.record` writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankatlas.catalogue import said
from rankatlas.errors import SourceError, shown
from rankatlas.job import Job
from rankatlas.records import LayoutRecord
from rankatlas.records.check import misnamed


def read(content: Mapping[str, Any], source: str, world_size: int | None) -> Job:
    """The job of a record: its layout, where its ranks ran, and the groups it made.

    Raises DescriptionError (a damaged record), SourceError (no layout explains its groups, or another world size).
    """
    made = LayoutRecord.from_dict(content)
    if made.layout is None:
        raise SourceError(
            f"the groups recorded in {shown(source)} are those of no row-major layout: {', '.join(made.unexplained)};"
            " say which layout was meant with: rankatlas check-groups",
            source=source,
        )
    if world_size is not None and world_size != made.world_size:
        raise SourceError(
            f"the record in {shown(source)} is of {made.world_size} ranks, the world size given is {world_size}",
            source=source,
        )
    notes = []
    if made.inferred:
        notes.append(said("record.inferred"))
    if made.unexplained:
        notes.append(said("record.strange", names=made.unexplained))
    notes += [said("record.misnamed", name=name, axes=axes) for name, axes in misnamed(made.kinds, made.layout)]
    return Job(
        made.layout,
        format="record",
        source=source,
        notes=notes,
        places={place["rank"]: place for place in made.ranks},
        kinds=[kind.to_dict() for kind in made.kinds],
    )
