"""`rankatlas show`: a layout, its groups, its rank table."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import chain, islice
from typing import IO, Any

import click

from rankatlas.cli.common import print_json, ranks_given, read, source_options
from rankatlas.cli.whole_file import whole_file
from rankatlas.core import Atlas, Mesh
from rankatlas.job import Job

_PAGE = 16  # ranks or groups on a page
_CHUNK = 4096  # lines written at once


@click.command(
    name="show",
    epilog="Examples: rankatlas show 'pp=4 dp=2 tp=8'; rankatlas show pretrain.json -n 64 --ranks 0-15;"
    " rankatlas show 'pp=16 dp=128 tp=8' --format jsonl -o ranks.jsonl",
)
@click.argument("words", nargs=-1, required=True, metavar="LAYOUT_OR_FILE")
@source_options
@click.option("--ranks", metavar="RANGES", help="Which ranks the table lists, such as 0-15,32 (ends included).")
@click.option("--axis", "axes", multiple=True, metavar="AXIS", help="List the groups along this axis (repeatable).")
@click.option(
    "--format",
    "pen",
    type=click.Choice(["table", "json", "jsonl", "csv"]),
    default="table",
    help="table and json: a summary and a page; jsonl and csv: every rank, one line each.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE, whole or not at all.")
def command(
    words: tuple[str, ...],
    world_size: int | None,
    format: str | None,
    ranks: str | None,
    axes: tuple[str, ...],
    pen: str,
    as_json: bool,
    output: str | None,
) -> None:
    """A layout: its axes, the groups people ask for, and its rank table.

    With --axis the groups along the axes are listed instead of ranks.
    """
    job = read(words, format, world_size)
    pen = "json" if as_json else pen
    if ranks is not None and axes:
        raise click.UsageError("--ranks and --axis exclude each other: one lists ranks, the other groups")
    place = whole_file(output) if output else nullcontext(sys.stdout)
    if pen in ("jsonl", "csv"):
        lines, count = _lines(job.layout, ranks, axes, pen)
        with place as out:
            _stream(lines, count, out, progress=bool(output))
        return
    facts = _summary(job, ranks, axes)
    with place as out:
        if pen == "table":
            _print(facts, job.layout, axes, out)
        elif output:
            import json

            out.write(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")
        else:
            print_json(facts)


def _lines(layout: Mesh | Atlas, ranks: str | None, axes: tuple[str, ...], pen: str) -> tuple[Iterator[str], int]:
    from rankatlas.views.rows import group_lines, rank_lines

    if axes:
        return group_lines(layout, axes, pen), len(layout.groups(*axes))
    chosen, count = ranks_given(ranks, layout) if ranks else (_all_ranks(layout), layout.world_size)
    return rank_lines(layout, chosen, pen), count


def _all_ranks(layout: Mesh | Atlas) -> Iterator[int]:
    """Every rank that some chart covers, ascending, without a set of them."""
    charts = [layout] if isinstance(layout, Mesh) else list(layout.charts.values())
    reached = 0
    for mesh in sorted(charts, key=lambda mesh: mesh.first_rank):
        end = mesh.first_rank + mesh.world_size
        yield from range(max(reached, mesh.first_rank), end)
        reached = max(reached, end)


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
    from rankatlas.views.facts import layout_facts, listed

    facts = layout_facts(job)
    layout = job.layout
    if axes:
        groups = layout.groups(*axes)
        facts["groups"] = {
            "axes": list(axes),
            "count": len(groups),
            "size": groups.size,
            "page": [listed(members) for members in islice(groups.ranges(), _PAGE)],
        }
        return facts
    chosen, count = ranks_given(ranks, layout) if ranks else (_all_ranks(layout), layout.world_size)
    shown = chosen if ranks else islice(chosen, _PAGE)
    facts["ranks"] = [{"rank": rank, "coordinate": _places(layout, rank)} for rank in shown]
    facts["ranks_left_out"] = 0 if ranks else max(0, count - _PAGE)
    return facts


def _places(layout: Mesh | Atlas, rank: int) -> dict[str, Any]:
    found = layout.coordinate(rank)
    return {chart: dict(places) for chart, places in found.items()} if isinstance(found, dict) else dict(found)


def _print(facts: dict[str, Any], layout: Mesh | Atlas, axes: tuple[str, ...], out: IO[str]) -> None:
    from rankatlas.views import terminal

    with terminal.console(out) as console:
        terminal.print_layout(facts, console)
        console.print()
        if axes:
            groups = facts["groups"]
            page = [(index, ranks, groups["size"]) for index, ranks in enumerate(groups["page"])]
            terminal.print_groups("+".join(axes), page, groups["count"] - len(page), console)
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
