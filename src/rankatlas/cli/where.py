"""`rankatlas where`: one rank, or the ranks at a coordinate, on a host, in a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rankatlas.cli.common import (
    axes_given,
    coordinate_given,
    leave,
    print_json,
    source_options,
    strict_option,
    tell_notes,
)
from rankatlas.cli.places import cluster_options, read_on
from rankatlas.cli.streams import say
from rankatlas.errors import InputError, shown
from rankatlas.job import Job
from rankatlas.views.facts import MOST_MEMBERS, hosts_of, listed, matching_ranks, rank_facts, ranks_on
from rankatlas.views.text import members, where_lines


@click.command(
    name="where",
    epilog="Examples: rankatlas where 37 'pp=4 dp=2 tp=8';"
    " rankatlas where --coordinate pp=1,tp=3 'pp=4 dp=2 tp=8'; rankatlas where 5 pretrain.json -n 64 --json",
)
@click.argument("words", nargs=-1, required=True, metavar="[RANK] LAYOUT")
@click.option("--coordinate", "-c", metavar="PLACES", help="Which ranks stand at these places, such as pp=1,tp=3.")
@click.option("--host", metavar="NAME", help="Which ranks run on this host, of a recorded job or of --hosts.")
@click.option("--group", metavar="'AXES INDEX'", help="Who is in a group, such as 'tp 512' or 'dp+cp 3'.")
@source_options
@cluster_options
@strict_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    coordinate: str | None,
    host: str | None,
    group: str | None,
    world_size: int | None,
    format: str | None,
    nodes: str | None,
    hosts: str | None,
    strict: bool,
    as_json: bool,
) -> None:
    """Where RANK stands in LAYOUT: coordinate, groups with index and members, pipeline neighbours, data rank.

    With --coordinate, --host or --group no RANK is given, and the ranks that match are printed.
    """
    questions = {"--coordinate": coordinate, "--host": host, "--group": group}
    asked = [option for option, question in questions.items() if question is not None]
    if len(asked) > 1:
        raise click.UsageError("--coordinate, --host and --group exclude each other")
    if asked and _is_rank(words[0]):
        raise click.UsageError(f"RANK ({words[0]}) and {asked[0]} exclude each other")
    if coordinate is not None:
        job = read_on(words, format, world_size, nodes, hosts)
        _print_matching(job, coordinate, as_json)
    elif host is not None:
        job = read_on(words, format, world_size, nodes, hosts)
        _print_host(job, host, as_json)
    elif group is not None:
        job = read_on(words, format, world_size, nodes, hosts)
        _print_group(job, group, as_json)
    else:
        job = read_on(_about(words), format, world_size, nodes, hosts)
        facts = rank_facts(job, int(words[0]))
        if as_json:
            print_json(facts)
        else:
            say("\n".join(where_lines(facts)))
    leave(ctx, [job], strict)


def _is_rank(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 20


def _about(words: tuple[str, ...]) -> list[str]:
    """The words of the layout, behind the RANK that the first word is.  Raises InputError."""
    rank, *layout = words
    if _is_rank(rank):
        return layout
    hint = "; or give --coordinate pp=1,tp=3"
    last = words[-1]
    if len(words) > 1 and _is_rank(last):
        hint = f"; RANK comes first: rankatlas where {last} {shown(' '.join(words[:-1]))}"
    raise InputError(f"RANK must be 0 or a positive integer, not {shown(rank)}{hint}")


def _print_matching(job: Job, coordinate: str, as_json: bool) -> None:
    places = coordinate_given(coordinate)
    _print_ranks(job, {"coordinate": places}, matching_ranks(job.layout, places), as_json)


def _print_host(job: Job, host: str, as_json: bool) -> None:
    if not job.places:
        raise InputError(
            f"{shown(job.source)} does not say where ranks run; --host needs the record of a job, or --hosts"
        )
    hosts = hosts_of(job.places)
    if host not in hosts:
        from difflib import get_close_matches

        near = get_close_matches(host, hosts, n=3, cutoff=0.5) or hosts[:3]
        raise InputError(
            f"no rank of this job ran on {shown(host)}; there are {len(hosts)} hosts, such as {', '.join(near)}"
        )
    _print_ranks(job, {"host": host}, ranks_on(job.places, host), as_json)


def _print_group(job: Job, group: str, as_json: bool) -> None:
    axes, _, index = group.strip().rpartition(" ")
    if not axes or not _is_rank(index):
        raise InputError(f"a group is given as 'tp 512' or 'dp+cp 3', not {shown(group)}")
    groups = job.layout.groups(*axes_given([axes]))
    if int(index) >= len(groups):
        raise InputError(f"there are {len(groups)} groups over {axes}, numbered 0 to {len(groups) - 1}; not {index}")
    _print_ranks(job, {"axes": list(groups.axes), "index": int(index)}, groups[int(index)].ranks, as_json)


def _print_ranks(job: Job, asked: dict[str, Any], ranks: Sequence[int], as_json: bool) -> None:
    if as_json:
        facts = {**asked, "notation": str(job.layout), "count": len(ranks), "ranks": listed(ranks)}
        print_json({**facts, "notes": list(job.notes)})
        return
    say(str(ranks[0]) if len(ranks) == 1 else members(ranks, most=MOST_MEMBERS))
    if len(ranks) > MOST_MEMBERS:
        say(f"note: --json lists the first {MOST_MEMBERS:,} of these {len(ranks):,} ranks", err=True)
    tell_notes(job)
