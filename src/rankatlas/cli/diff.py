"""`rankatlas diff`: what changes between two layouts, or two jobs."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import click

from rankatlas.cli.common import FormatName, leave, named_values, print_json, read, source_options, strict_option
from rankatlas.cli.streams import say
from rankatlas.core import Mesh
from rankatlas.differences import Changes, compare, compare_settings, settings_lines
from rankatlas.errors import ArgumentsError, SourceError
from rankatlas.job import Job
from rankatlas.views.text import members

_SHOWN = 8  # ranks on other hosts, and kinds of groups, that are listed


@click.command(
    name="diff",
    epilog="Examples: rankatlas diff 'pp=2 dp=2 tp=2' 'dp=2 pp=2 tp=2';"
    " rankatlas diff train.sh train.sh --set TP=4 --set-b TP=8",
)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@source_options
@click.option("--from-a", type=FormatName(), help="Read A alone in this format.")
@click.option("--from-b", type=FormatName(), help="Read B alone in this format.")
@click.option("--set-a", multiple=True, metavar="NAME=VALUE", callback=named_values, help="As --set, for A alone.")
@click.option("--set-b", multiple=True, metavar="NAME=VALUE", callback=named_values, help="As --set, for B alone.")
@strict_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    first: str,
    second: str,
    world_size: int | None,
    format: str | None,
    from_a: str | None,
    from_b: str | None,
    set_a: dict[str, str],
    set_b: dict[str, str],
    strict: bool,
    as_json: bool,
) -> None:
    """Which axes have the same groups in the layouts A and B, which differ, and from which group on.

    Of jobs also what they say otherwise: batch, model, seed, and defaults that one of them writes out.
    Exit code 0 when every group is the same (axes of size 1 do not count) and so is what both say, 1 when not.
    """
    jobs = (
        _read("A", first, from_a or format, world_size, set_a),
        _read("B", second, from_b or format, world_size, set_b),
    )
    changes = compare(jobs[0].layout, jobs[1].layout)
    equal = all(change is not None and change.equal for change in changes.values())
    equal = equal and isinstance(jobs[0].layout, Mesh) == isinstance(jobs[1].layout, Mesh)
    moved = _moved(jobs)
    made = _made(jobs)
    other = compare_settings(*jobs)
    equal = equal and not moved and not made
    agreed = all(one["same"] for one in other)
    if as_json:
        charts = {name: change.to_dict() if change else None for name, change in changes.items()}
        facts = {"equal": equal and agreed, "first": str(jobs[0].layout), "second": str(jobs[1].layout), "moved": moved}
        facts["made"] = made
        facts["settings"] = other
        facts["notes"] = {name: list(job.notes) for name, job in zip("AB", jobs)}
        # A chart has an "equal" of its own; the whole answer's is ours.
        print_json({**(charts.get("") or {"charts": charts}), **facts})
    else:
        hosts = [f"rank {one['rank']} moved from {one['first']} to {one['second']}" for one in moved[:_SHOWN]]
        hosts += [f"{len(moved) - _SHOWN} more ranks moved"] if len(moved) > _SHOWN else []
        lines = [*_lines(jobs, changes), *(_told(one) for one in made[:_SHOWN])]
        lines += [f"{len(made) - _SHOWN} more kinds of groups differ"] if len(made) > _SHOWN else []
        lines += settings_lines(other)
        verdict = "every group is the same" if equal else "the layouts differ"
        say("\n".join([*lines, *hosts, verdict if agreed or not equal else f"{verdict}; the jobs differ otherwise"]))
    leave(ctx, jobs, strict, 0 if equal and agreed else 1)


def _read(name: str, source: str, format: str | None, world_size: int | None, sets: dict[str, str]) -> Job:
    """The job of A or B; an error about formats says how to read this one alone."""
    try:
        return read([source], format, world_size, own=sets)
    except (ArgumentsError, SourceError) as error:
        hint = f"\nto read {name} alone in another format: --from-{name.lower()}" if "--from" in str(error) else ""
        raise type(error)(f"{name}: {error}{hint}", **error.__dict__) from None


def _moved(jobs: tuple[Job, Job]) -> list[dict[str, Any]]:
    """The ranks that two recorded jobs ran on different hosts."""
    first, second = jobs[0].places, jobs[1].places
    return [
        {"rank": rank, "first": first[rank]["host"], "second": second[rank]["host"]}
        for rank in sorted(first)
        if rank in second and first[rank]["host"] != second[rank]["host"]
    ]


def _made(jobs: tuple[Job, Job]) -> list[dict[str, Any]]:
    """The kinds of groups that two recorded jobs did not make alike, with the first group that differs."""
    if not all(job.kinds for job in jobs):
        return []
    first, second = ({kind["description"]: kind["groups"] for kind in job.kinds} for job in jobs)
    found = []
    for description in {**first, **second}:
        pairs = zip_longest(first.get(description, ()), second.get(description, ()))
        wrong = next(((index, pair) for index, pair in enumerate(pairs) if pair[0] != pair[1]), None)
        if wrong is not None:
            index, (a, b) = wrong
            found.append({"description": description, "group": index, "first": a, "second": b})
    return found


def _told(made: dict[str, Any]) -> str:
    a, b = ("not there" if ranks is None else members(ranks) for ranks in (made["first"], made["second"]))
    return f"groups made as {made['description']} differ: group {made['group']} is {a} in A and {b} in B"


def _lines(jobs: tuple[Job, Job], changes: dict[str, Changes | None]) -> list[str]:
    lines = [f"{name}: {job.layout}" for name, job in zip("AB", jobs)]
    if isinstance(jobs[0].layout, Mesh) != isinstance(jobs[1].layout, Mesh):
        lines.append("one is a mesh, the other an atlas; the mesh is compared with every chart")
    for name, change in changes.items():
        if name:
            lines.append(f"chart {name}:" + ("" if change else " only in one of them"))
        if change:
            lines += [("  " if name else "") + line for line in change.lines()]
    for name, job in zip("AB", jobs):
        lines += [f"note on {name}: {note}" for note in job.notes]
    return lines
