"""What several verbs share: how a layout, ranks and a coordinate are given, and how JSON leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import click

from rankatlas.cli.streams import say
from rankatlas.core import Atlas, Mesh
from rankatlas.errors import InputError, RankError, shown
from rankatlas.job import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rankatlas.cluster import Cluster

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


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--nodes` and `--hosts`, which say where the ranks run."""
    command = click.option(
        "--hosts", metavar="HOSTS", help="Hosts in rank order: 'gpu[001-128]', a1,a2, n1:8,n2:4, or a host file."
    )(command)
    return click.option("--nodes", metavar="NODES", help="Nodes and their devices: 16x8, or 4,2 for uneven ones.")(
        command
    )


def cluster_given(nodes: str | None, hosts: str | None, world_size: int) -> Cluster | None:
    """The cluster of `--nodes` or `--hosts`, None without them.  Raises ClusterError, SourceError."""
    if nodes is None and hosts is None:
        return None
    from rankatlas.cluster import Cluster, parse_hosts, parse_nodes

    if hosts is None:
        return parse_nodes(nodes or "")
    if "/" in hosts or hosts.endswith(".txt"):
        from rankatlas.dialects.sources import read_text

        lines = read_text(hosts).splitlines()
        hosts = "\n".join(line.partition("#")[0] for line in lines)
    if nodes is None:
        return parse_hosts(hosts, world_size)
    there = parse_nodes(nodes)
    named = parse_hosts(hosts, devices=1).hosts
    if there.even:
        return Cluster.of(there.nodes, there.even, named)
    return Cluster(there.sizes(), named)


def placed(job: Job, nodes: str | None, hosts: str | None) -> Job:
    """The job with the places of `--nodes` or `--hosts`, if there are any.  Raises ClusterError, InputError."""
    cluster = cluster_given(nodes, hosts, job.layout.first_rank + job.layout.world_size)
    if cluster is None:
        return job
    if job.places:
        raise InputError(f"{shown(job.source)} says itself where its ranks ran; leave --nodes and --hosts out")
    from rankatlas.cluster import Places

    job.places = Places(cluster, covered(job.layout)[-1].stop)
    return job


def strict_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--strict`: whatever was noted about the sources counts as a finding."""
    return click.option(
        "--strict", is_flag=True, help="End with exit code 1 when a note says that something was not understood."
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
    from rankatlas.dialects.sources import names_a_file

    if notation and not names_a_file(words[0]):  # needs no reader of files, which is slow to load
        from rankatlas.core import parse_layout

        return Job(parse_layout(words[0], world_size), format="notation", source=words[0])
    from rankatlas.dialects import read_config

    return read_config(words[0], format, world_size=world_size)


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
