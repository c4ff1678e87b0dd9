"""`rankatlas show`: a layout, its groups, its rank table."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import chain, islice
from typing import IO, Any

import click

from rankatlas.cli.common import (
    as_json,
    axes_given,
    covered,
    leave,
    ranks_given,
    source_options,
    strict_option,
    tell_notes,
)
from rankatlas.cli.places import cluster_options, read_on
from rankatlas.core import Atlas, Mesh
from rankatlas.errors import InputError
from rankatlas.job import Job
from rankatlas.whole_file import whole_file

_PAGE = 16  # ranks or groups on a page
_MOST_RANKS = 10_000  # of a table or a JSON object, which are made in memory
_CHUNK = 4096  # lines written at once


@click.command(
    name="show",
    epilog="Examples: rankatlas show 'pp=4 dp=2 tp=8'; rankatlas show pretrain.json -n 64 --ranks 0-15;"
    " rankatlas show 'pp=16 dp=128 tp=8' --format jsonl -o ranks.jsonl",
)
@click.argument("words", nargs=-1, required=True, metavar="LAYOUT_OR_FILE")
@source_options
@cluster_options
@click.option("--ranks", metavar="RANGES", help="Which ranks the table lists, such as 0-15,32 (ends included).")
@click.option("--axis", "axes", multiple=True, metavar="AXES", help="List the groups along these axes: tp, or pp+tp.")
@click.option(
    "--format",
    "pen",
    type=click.Choice(["table", "json", "jsonl", "csv", "flagscale"]),
    help="table (the default) and json: a summary and a page; jsonl and csv: every rank, one line each;"
    " flagscale: every rank's groups as JSON, as its profiler names them.",
)
@click.option("--json", "json_asked", is_flag=True, help="The same as --format json.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE, whole or not at all.")
@strict_option
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    world_size: int | None,
    format: str | None,
    nodes: str | None,
    hosts: str | None,
    ranks: str | None,
    axes: tuple[str, ...],
    pen: str | None,
    json_asked: bool,
    output: str | None,
    strict: bool,
) -> None:
    """A layout: its axes, the groups people ask for, and its rank table.

    With --axis the groups along the axes are listed instead of ranks.
    """
    if json_asked and pen not in (None, "json"):
        raise click.UsageError(f"--json and --format {pen} exclude each other")
    if ranks is not None and axes:
        raise click.UsageError("--ranks and --axis exclude each other: one lists ranks, the other groups")
    if pen == "flagscale" and (ranks is not None or axes):
        raise click.UsageError("--format flagscale tells of all ranks and groups; leave --ranks and --axis out")
    if output is not None and not output.strip():
        raise InputError("--output is empty; it names the file to write")
    job = read_on(words, format, world_size, nodes, hosts)
    pen = "json" if json_asked else pen or "table"
    axes = axes_given(axes)
    place = whole_file(output) if output else nullcontext(sys.stdout)
    if pen in ("jsonl", "csv"):
        tell_notes(job)
        lines, count = _lines(job.layout, ranks, axes, pen)
        with place as out:
            _stream(lines, count, out, progress=bool(output))
    elif pen == "flagscale":
        from json import dumps

        from rankatlas.views.dump import rank_tables

        tell_notes(job)
        tables = rank_tables(job)
        with place as out:
            out.write(dumps(tables) + "\n")
    else:
        facts = _summary(job, ranks, axes)
        with place as out:
            if pen == "table":
                _print(facts, job.layout, out)
            else:
                out.write(as_json(facts) + "\n")
    leave(ctx, [job], strict)


def _lines(layout: Mesh | Atlas, ranks: str | None, axes: tuple[str, ...], pen: str) -> tuple[Iterator[str], int]:
    from rankatlas.views.rows import group_lines, rank_lines

    if axes:
        groups = layout.groups(*axes)
        return group_lines(layout, axes, pen), len(groups) * (groups.size if pen == "csv" else 1)
    chosen, count = _chosen(layout, ranks)
    return rank_lines(layout, chosen, pen), count


def _chosen(layout: Mesh | Atlas, ranks: str | None) -> tuple[Iterator[int], int]:
    """The ranks asked for, or all that some chart covers, and how many they are."""
    if ranks is not None:
        return ranks_given(ranks, layout)
    return chain.from_iterable(covered(layout)), layout.world_size


def _stream(lines: Iterator[str], count: int, out: IO[str], *, progress: bool) -> None:
    """Write lines in chunks; a bar on standard error shows how far, if a person watches a file being written."""
    chunks = iter(lambda: list(islice(lines, _CHUNK)), [])
    watched = progress and sys.stderr.isatty() and count > _CHUNK
    bar = click.progressbar(length=count, file=sys.stderr, label="ranks") if watched else None
    with bar or nullcontext():
        for chunk in chunks:
            out.write("\n".join(chunk))
            out.write("\n")
            if bar:
                bar.update(len(chunk))


def _summary(job: Job, ranks: str | None, axes: tuple[str, ...]) -> dict[str, Any]:
    from rankatlas.views.facts import layout_facts

    facts = layout_facts(job)
    layout = job.layout
    if axes:
        groups = layout.groups(*axes)
        page = list(islice(groups.ranges(), _PAGE))
        facts["groups"] = {"axes": list(axes), "count": len(groups), "size": groups.size, "page": page}
        return facts
    chosen, count = _chosen(layout, ranks)
    if ranks is not None and count > _MOST_RANKS:
        raise InputError(
            f"--ranks {ranks} asks for {count:,} ranks, and a table or a JSON object holds at most {_MOST_RANKS:,};"
            " --format jsonl or csv writes any number, one line each"
        )
    listed = chosen if ranks is not None else islice(chosen, _PAGE)
    facts["ranks"] = [{"rank": rank, "coordinate": _places(layout, rank)} for rank in listed]
    facts["ranks_left_out"] = 0 if ranks is not None else max(0, count - _PAGE)
    return facts


def _places(layout: Mesh | Atlas, rank: int) -> dict[str, Any]:
    found = layout.coordinate(rank)
    return {chart: dict(places) for chart, places in found.items()} if isinstance(found, dict) else dict(found)


def _print(facts: dict[str, Any], layout: Mesh | Atlas, out: IO[str]) -> None:
    from rankatlas.views import terminal

    console = terminal.console(out)
    terminal.print_layout(facts, console)
    console.print()
    if "groups" in facts:
        terminal.print_groups(facts["groups"], console)
    else:
        rows = [_cells(layout, row) for row in facts["ranks"]]
        terminal.print_ranks(_columns(layout), rows, facts["ranks_left_out"], console)


def _columns(layout: Mesh | Atlas) -> list[str]:
    if isinstance(layout, Mesh):
        return ["rank", *layout.axes]
    return ["rank", *(f"{chart}.{axis}" for chart, mesh in layout.charts.items() for axis in mesh.axes)]


def _cells(layout: Mesh | Atlas, row: dict[str, Any]) -> list[str]:
    places: Iterable[Any]
    if isinstance(layout, Mesh):
        places = row["coordinate"].values()
    else:
        places = chain.from_iterable(
            row["coordinate"].get(chart, dict.fromkeys(mesh.axes, "")).values() for chart, mesh in layout.charts.items()
        )
    return [str(row["rank"]), *map(str, places)]
