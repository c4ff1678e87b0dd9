"""`rankatlas where`: one rank, or the ranks at a coordinate."""

from __future__ import annotations

import click

from rankatlas.cli.common import coordinate_given, print_json, read, source_options
from rankatlas.errors import InputError
from rankatlas.views.facts import listed, matching_ranks, rank_facts
from rankatlas.views.text import members, where_lines


@click.command(
    name="where",
    epilog="Examples: rankatlas where 37 'pp=4 dp=2 tp=8';"
    " rankatlas where --coordinate pp=1,tp=3 'pp=4 dp=2 tp=8'; rankatlas where 5 pretrain.json -n 64 --json",
)
@click.argument("words", nargs=-1, required=True, metavar="[RANK] LAYOUT")
@click.option("--coordinate", "-c", metavar="PLACES", help="Which ranks stand at these places, such as pp=1,tp=3.")
@source_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    words: tuple[str, ...], coordinate: str | None, world_size: int | None, format: str | None, as_json: bool
) -> None:
    """Where RANK stands in LAYOUT: coordinate, groups with index and members, pipeline neighbours, data rank.

    With --coordinate no RANK is given, and the ranks at those places are printed.
    """
    if coordinate is not None:
        _print_matching(words, coordinate, world_size, format, as_json)
        return
    rank, *layout = words
    if not (rank.isascii() and rank.isdigit() and len(rank) < 20):
        raise InputError(f"RANK must be 0 or a positive integer, not {rank!r}; or give --coordinate pp=1,tp=3")
    facts = rank_facts(read(layout, format, world_size), int(rank))
    if as_json:
        print_json(facts)
    else:
        click.echo("\n".join(where_lines(facts)))


def _print_matching(
    words: tuple[str, ...], coordinate: str, world_size: int | None, format: str | None, as_json: bool
) -> None:
    job = read(words, format, world_size)
    places = coordinate_given(coordinate)
    ranks = matching_ranks(job.layout, places)
    if as_json:
        facts = {"coordinate": places, "notation": str(job.layout), "count": len(ranks), "ranks": listed(ranks)}
        print_json({**facts, "notes": list(job.notes)})
    else:
        click.echo(members(listed(ranks), len(ranks)) if len(ranks) > 1 else str(ranks[0]))
        for note in job.notes:
            click.echo(f"note: {note}", err=True)
