"""What several verbs share: how a layout, ranks and a coordinate are given, and how JSON leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import click

from rankatlas.cli.streams import say
from rankatlas.core import Atlas, Mesh
from rankatlas.errors import InputError, RankError, shown
from rankatlas.job import Job, Offer

_KEPT = "rankatlas.kept"  # where a context keeps what its sources hold
_SETS = "rankatlas.sets"  # where a context keeps what --set gave


class FormatName(click.ParamType):  # type: ignore[type-arg]
    """NAME or NAME@RELEASE of a dialect, checked when it is given."""

    name = "NAME[@RELEASE]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name, as it was written."""
        from rankatlas.dialects.registry import named

        try:
            named(value, "--from")
        except InputError as error:
            self.fail(str(error), param, ctx)
        return value


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--world-size`, `--from` and `--set`, which say how the sources of a command are read."""
    command = click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="NAME=VALUE",
        expose_value=False,
        callback=_keep_sets,
        help="A variable that a launch script does not set, or a setting to read in place of the source's. Repeatable.",
    )(command)
    command = click.option(
        "--from",
        "format",
        type=FormatName(),
        help="Read files in this format instead of the one their content suggests.",
    )(command)
    return click.option(
        "--world-size",
        "-n",
        type=click.IntRange(min=1),
        help="Number of ranks: settles a size left open ('dp=?'), and is needed for training arguments.",
    )(command)


def _keep_sets(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> None:
    ctx.meta[_SETS] = named_values(ctx, param, given)


def named_values(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """What a repeatable NAME=VALUE option gives.  Raises BadParameter."""
    sets: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"takes NAME=VALUE, not {shown(text)}", ctx, param)
        sets[name.strip()] = value
    return sets


def sets_given() -> dict[str, str]:
    """What `--set` gave to the command that runs."""
    context = click.get_current_context(silent=True)
    return dict(context.meta.get(_SETS, {})) if context else {}


def kept_sources() -> dict[str, Any]:
    """What the sources of the command that runs were found to hold, so that each is read once."""
    context = click.get_current_context(silent=True)
    kept: dict[str, Any] = context.meta.setdefault(_KEPT, {}) if context else {}
    return kept


def strict_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--strict`: whatever was noted about the sources counts as a finding."""
    return click.option(
        "--strict", is_flag=True, help="End with exit code 1 when a note says that something was not understood."
    )(command)


def read(
    words: Iterable[str],
    format: str | None,
    world_size: int | None,
    offered: Offer | None = None,
    own: Mapping[str, str] | None = None,
) -> Job:
    """The job that the words of a command line describe: one file, or notation with or without quotes.

    `offered` is a number of ranks for a source that says none, `own` what is set for this source alone.
    """
    words = tuple(words)
    sets = {**sets_given(), **(own or {})}
    notation = format in (None, "notation")
    if notation and len(words) > 1 and all("=" in word or ":" in word for word in words):
        words = (" ".join(words),)
    if len(words) != 1:
        given = f"{len(words)} words: {shown(' '.join(words))}" if words else "nothing"
        raise InputError(f"one LAYOUT is needed, notation such as 'pp=4 dp=2 tp=8' or a file; got {given}")
    from rankatlas.dialects.sources import names_a_file

    if (
        notation and not sets and not names_a_file(words[0]) and " --" not in words[0]
    ):  # needs no reader of files, which is slow to load
        from rankatlas.dialects.offers import of_notation

        return of_notation(words[0], words[0], world_size, offered)
    from rankatlas.dialects import read_config

    return read_config(words[0], format, world_size=world_size, sets=sets, offered=offered, kept=kept_sources())


def tell_notes(job: Job) -> None:
    """The notes about a job on standard error, where the answer has no place for them."""
    for note in job.notes:
        say(f"note: {note}", err=True)


def leave(ctx: click.Context, jobs: Iterable[Job], strict: bool, code: int = 0) -> None:
    """End the command: with `code`, or with 1 under --strict when anything was noted about its jobs."""
    ctx.exit(1 if code == 0 and strict and any(job.notes for job in jobs) else code)


def axes_given(texts: Iterable[str]) -> tuple[str, ...]:
    """The axes of a repeatable option that may also list several: "pp", "pp+tp" or "pp,tp".  Raises InputError.

    >>> axes_given(["pp,dp", "tp"])
    ('pp', 'dp', 'tp')
    """
    axes = []
    for text in texts:
        parts = [part.strip() for part in text.replace(",", "+").split("+")]
        if not all(parts):
            raise InputError(f"axes are given as tp, dp+cp or dp,cp; not {shown(text)}")
        axes += parts
    return tuple(axes)


def covered(layout: Mesh | Atlas) -> list[range]:
    """The ranks that at least one chart covers, as ascending ranges with gaps between them.

    >>> covered(Atlas(a=Mesh(dp=4), b=Mesh(dp=4, first_rank=2), c=Mesh(dp=2, first_rank=8)))
    [range(0, 6), range(8, 10)]
    """
    charts = [layout] if isinstance(layout, Mesh) else list(layout.charts.values())
    found: list[range] = []
    for mesh in sorted(charts, key=lambda mesh: mesh.first_rank):
        ranks = range(mesh.first_rank, mesh.first_rank + mesh.world_size)
        if found and ranks.start <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, ranks.stop))
        else:
            found.append(ranks)
    return found


def ranks_given(text: str, layout: Mesh | Atlas) -> tuple[Iterator[int], int]:
    """The ranks of "0-15,32" (ends included) that a layout must have, and how many they are.

    Raises InputError (no ranges), RankError (a rank outside the layout, also one between its charts).
    """
    if not text.strip():
        raise InputError("--ranks is empty; ranks are given as 0-15 or 3,8,32-47 (ends included)")
    ranges = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (_digits(first) and (_digits(last) or not dash)):
            raise InputError(f"ranks are given as 0-15 or 3,8,32-47 (ends included), not {shown(text)}")
        ranges.append(range(int(first), int(last or first) + 1))
        if not ranges[-1]:
            raise InputError(f"the ranks {part.strip()} run backwards; write {last}-{first}")
    known = covered(layout)
    for ranks in ranges:
        _refuse_ranks_outside(ranks, known, text, layout)
    return chain.from_iterable(ranges), sum(len(ranks) for ranks in ranges)


def _refuse_ranks_outside(ranks: range, known: list[range], text: str, layout: Mesh | Atlas) -> None:
    """Raise RankError at the first of `ranks` that no chart has."""
    reached = ranks.start
    for there in known:
        if reached in there:
            reached = there.stop
    if reached < ranks.stop:
        try:
            layout.coordinate(reached)
        except RankError as error:
            raise RankError(f"--ranks {text}: {error}", **error.__dict__) from None


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def coordinate_given(text: str) -> dict[str, int]:
    """The places of "pp=1,tp=3".  Raises InputError.

    >>> coordinate_given("pp=1,tp=3")
    {'pp': 1, 'tp': 3}
    """
    places: dict[str, int] = {}
    for part in text.replace(",", " ").split():
        axis, _, place = part.partition("=")
        if not axis or not _digits(place):
            raise InputError(f"a coordinate is given as pp=1,tp=3, not {shown(text)}")
        if axis in places:
            raise InputError(f"the coordinate {shown(text)} names {axis} twice")
        places[axis] = int(place)
    if not places:
        raise InputError("a coordinate is given as pp=1,tp=3; it is empty")
    return places


def as_json(facts: dict[str, Any]) -> str:
    """Facts as indented JSON; of a lazy sequence of ranks the first 1,024."""
    import json

    from rankatlas.views.facts import plain
    from rankatlas.views.text import printable

    return printable(json.dumps(facts, indent=2, ensure_ascii=False, default=plain))


def print_json(facts: dict[str, Any]) -> None:
    """Facts as indented JSON on standard output."""
    say(as_json(facts))
