"""A number of ranks that is taken only where a source needs one and says none."""

from __future__ import annotations

from collections.abc import Callable

from rankatlas.core import parse_layout
from rankatlas.errors import NotationError, SourceError
from rankatlas.job import Fact, Job, Offer


def with_offer(read: Callable[[int | None], Job], world_size: int | None, offered: Offer | None) -> Job:
    """The job that `read` makes of a number of ranks; without one first, where one is only offered.

    A job that took the offer says so in its fact `world`.  Raises as `read`.
    """
    if world_size is not None or offered is None:
        return read(world_size)
    try:
        return read(None)
    except (SourceError, NotationError):
        job = read(offered.world)
    job.facts = (*job.facts, Fact("world", offered.world, offered.origin))
    return job


def of_notation(text: str, source: str, world_size: int | None, offered: Offer | None = None) -> Job:
    """The job of notation.  Raises NotationError, WorldSizeError.

    >>> job = of_notation("pp=2 dp=?", "pp=2 dp=?", None, Offer(8, "--nodes 1x8"))
    >>> job.layout, job.facts[-1]
    (Mesh(pp=2, dp=4), Fact('world', 8, '--nodes 1x8'))
    """
    return with_offer(
        lambda world: Job(parse_layout(text, world), format="notation", source=source), world_size, offered
    )
