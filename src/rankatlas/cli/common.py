"""What several verbs share: how a layout, ranks and a coordinate are given, and how JSON leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import click

from rankatlas.core import Atlas, Mesh
from rankatlas.errors import InputError, RankError, shown
from rankatlas.job import Job

FORMAT_NAMES = ("notation", "rankatlas", "paddlenlp-2.8", "paddleformers-1.2")


def source_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--world-size` and `--from`, which say how the sources of a command are read."""
    command = click.option(
        "--from",
        "format",
        type=click.Choice(FORMAT_NAMES),
        help="Read files in this format instead of the one their content suggests.",
    )(command)
    return click.option(
        "--world-size",
        "-n",
        type=click.IntRange(min=1),
        help="Number of ranks: settles a size left open ('dp=?'), and is needed for training arguments.",
    )(command)


def read(words: Iterable[str], format: str | None, world_size: int | None) -> Job:
    """The job that the words of a command line describe: one file, or notation with or without quotes."""
    words = tuple(words)
    notation = format in (None, "notation")
    if notation and len(words) > 1 and all("=" in word or ":" in word for word in words):
        words = (" ".join(words),)
    if len(words) != 1:
        given = f"{len(words)} words: {shown(' '.join(words))}" if words else "nothing"
        raise InputError(f"one LAYOUT is needed, notation such as 'pp=4 dp=2 tp=8' or a file; got {given}")
    if format is None and _is_plain_notation(words[0]):
        from rankatlas.core import parse_layout

        return Job(parse_layout(words[0], world_size), format="notation", source=words[0])
    from rankatlas.dialects import read_config

    return read_config(words[0], format, world_size=world_size)


def _is_plain_notation(word: str) -> bool:
    """Notation that needs no reader of files, which is slow to load."""
    import os

    return "=" in word and not os.path.exists(word)


def ranks_given(text: str, layout: Mesh | Atlas) -> tuple[Iterator[int], int]:
    """The ranks of "0-15,32" (ends included) that a layout must have, and how many they are.

    Raises InputError (no ranges), RankError (outside the layout).
    """
    ranges = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (_digits(first) and (_digits(last) or not dash)):
            raise InputError(f"ranks are given as 0-15 or 3,8,32-47 (ends included), not {shown(text)}")
        ranges.append(range(int(first), int(last or first) + 1))
        if not ranges[-1]:
            raise InputError(f"the ranks {part.strip()} run backwards; write {last}-{first}")
    for ranks in ranges:
        for rank in (ranks[0], ranks[-1]):
            try:
                layout.coordinate(rank)
            except RankError as error:
                raise RankError(f"--ranks {text}: {error}", **error.__dict__) from None
    return chain.from_iterable(ranges), sum(len(ranks) for ranks in ranges)


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


def print_json(facts: dict[str, Any]) -> None:
    """Facts as indented JSON on standard output."""
    import json

    click.echo(json.dumps(facts, indent=2, ensure_ascii=False))
