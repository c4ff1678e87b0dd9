"""`rankatlas where`: one rank, or the ranks at a coordinate, on a host, in a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rankatlas.cli.common import coordinate_given, print_json, read, source_options
from rankatlas.errors import InputError, shown
from rankatlas.job import Job
from rankatlas.views.facts import listed, matching_ranks, rank_facts
from rankatlas.views.text import members, where_lines


@click.command(
    name="where",
    epilog="Examples: rankatlas where 37 'pp=4 dp=2 tp=8';"
    " rankatlas where --coordinate pp=1,tp=3 'pp=4 dp=2 tp=8'; rankatlas where 5 pretrain.json -n 64 --json",
)
@click.argument("words", nargs=-1, required=True, metavar="[RANK] LAYOUT")
@click.option("--coordinate", "-c", metavar="PLACES", help="Which ranks stand at these places, such as pp=1,tp=3.")
@click.option("--host", metavar="NAME", help="Which ranks of a recorded job run on this host.")
@click.option("--group", metavar="'AXES INDEX'", help="Who is in a group, such as 'tp 512' or 'dp+cp 3'.")
@source_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    words: tuple[str, ...],
    coordinate: str | None,
    host: str | None,
    group: str | None,
    world_size: int | None,
    format: str | None,
    as_json: bool,
) -> None:
    """Where RANK stands in LAYOUT: coordinate, groups with index and members, pipeline neighbours, data rank.

    With --coordinate, --host or --group no RANK is given, and the ranks that match are printed.
    """
    questions = [question for question in (coordinate, host, group) if question is not None]
    if len(questions) > 1:
        raise click.UsageError("--coordinate, --host and --group exclude each other")
    if questions:
        job = read(words, format, world_size)
        if coordinate is not None:
            _print_matching(job, coordinate, as_json)
        elif host is not None:
            _print_host(job, host, as_json)
        else:
            _print_group(job, str(group), as_json)
        return
    rank, *layout = words
    if not (rank.isascii() and rank.isdigit() and len(rank) < 20):
        raise InputError(f"RANK must be 0 or a positive integer, not {shown(rank)}; or give --coordinate pp=1,tp=3")
    facts = rank_facts(read(layout, format, world_size), int(rank))
    if as_json:
        print_json(facts)
    else:
        click.echo("\n".join(where_lines(facts)))


def _print_matching(job: Job, coordinate: str, as_json: bool) -> None:
    places = coordinate_given(coordinate)
    _print_ranks(job, {"coordinate": places}, matching_ranks(job.layout, places), as_json)


def _print_host(job: Job, host: str, as_json: bool) -> None:
    if not job.places:
        raise InputError(f"{shown(job.source)} does not say where ranks run; --host needs the record of a job")
    hosts = list(dict.fromkeys(str(place["host"]) for place in job.places.values()))
    if host not in hosts:
        from difflib import get_close_matches

        near = get_close_matches(host, hosts, n=3, cutoff=0.5) or hosts[:3]
        raise InputError(
            f"no rank of this job ran on {shown(host)}; there are {len(hosts)} hosts, such as {', '.join(near)}"
        )
    _print_ranks(job, {"host": host}, [rank for rank in job.places if job.places[rank]["host"] == host], as_json)


def _print_group(job: Job, group: str, as_json: bool) -> None:
    axes, _, index = group.strip().rpartition(" ")
    if not axes or not (index.isascii() and index.isdigit() and len(index) < 20):
        raise InputError(f"a group is given as 'tp 512' or 'dp+cp 3', not {shown(group)}")
    groups = job.layout.groups(*axes.strip().split("+"))
    if int(index) >= len(groups):
        raise InputError(f"there are {len(groups)} groups over {axes}, numbered 0 to {len(groups) - 1}; not {index}")
    _print_ranks(job, {"axes": list(groups.axes), "index": int(index)}, groups[int(index)].ranks, as_json)


def _print_ranks(job: Job, asked: dict[str, Any], ranks: Sequence[int], as_json: bool) -> None:
    if as_json:
        facts = {**asked, "notation": str(job.layout), "count": len(ranks), "ranks": listed(ranks)}
        print_json({**facts, "notes": list(job.notes)})
        return
    click.echo(members(listed(ranks), len(ranks)) if len(ranks) > 1 else str(ranks[0]))
    for note in job.notes:
        click.echo(f"note: {note}", err=True)
