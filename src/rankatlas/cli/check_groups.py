"""`rankatlas check-groups`: the groups a job really made, held against the layout it should have."""

from __future__ import annotations

from typing import Any

import click

from rankatlas.cli.common import axes_given, print_json, read, source_options, tell_notes
from rankatlas.cli.streams import say
from rankatlas.core import Atlas, Mesh, check_groups
from rankatlas.dialects.reading import read_content
from rankatlas.errors import GroupError, GroupMismatch, SourceError, shown
from rankatlas.records import LayoutRecord, check_record


@click.command(
    name="check-groups",
    epilog="Examples: rankatlas check-groups record.json 'pp=2 dp=2 tp=2' --axis tp --axis dp;"
    " rankatlas check-groups groups.json 'pp=2 dp=2 tp=2' --axis dp+tp",
)
@click.argument("record", metavar="RECORD")
@click.argument("words", nargs=-1, required=True, metavar="LAYOUT")
@source_options
@click.option("--axis", "axes", multiple=True, metavar="AXES", help="These groups must exist, such as tp or dp+cp.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    record: str,
    words: tuple[str, ...],
    world_size: int | None,
    format: str | None,
    axes: tuple[str, ...],
    as_json: bool,
) -> None:
    """Hold the groups in RECORD against LAYOUT; exit code 1 where they differ.

    RECORD is what rankatlas.live.record wrote, or a JSON list of rank lists: all groups over the one --axis given.
    """
    content = read_content(record)
    fault: GroupError | GroupMismatch | None
    if isinstance(content, list):
        facts, told, fault = _check_table(content, record, words, format, world_size, axes)
    else:
        facts, told, fault = _check_record(content, words, format, world_size, axes)
    if as_json:
        facts = {"ok": fault is None, **facts}
        if fault is not None:
            facts["fault"] = {"message": str(fault), **fault.__dict__}
        print_json(facts)
    else:
        say(told if fault is None else str(fault))
    ctx.exit(0 if fault is None else 1)


def _check_record(
    content: Any, words: tuple[str, ...], format: str | None, world_size: int | None, axes: tuple[str, ...]
) -> tuple[dict[str, Any], str, GroupMismatch | None]:
    """The facts about a record, what is said when it is right, and what is wrong."""
    made = LayoutRecord.from_dict(content)
    job = read(words, format, world_size or made.world_size)
    tell_notes(job)
    fault = None
    try:
        check_record(made, job.layout, tuple("+".join(axes_given([text])) for text in axes))
    except GroupMismatch as error:
        fault = error
    if not made.kinds and fault is None:
        fault = GroupMismatch(
            "the record tells of no groups, so there was nothing to check",
            kind="none",
            given=None,
            expected=None,
            ranks=[],
            others=[],
        )
    facts = {
        "notation": str(job.layout),
        "kinds": [{"description": kind.description, "axes": kind.axes} for kind in made.kinds],
    }
    return facts, f"all {len(made.kinds)} kinds of groups are those of {job.layout}", fault


def _check_table(
    table: list[Any],
    source: str,
    words: tuple[str, ...],
    format: str | None,
    world_size: int | None,
    axes: tuple[str, ...],
) -> tuple[dict[str, Any], str, GroupError | None]:
    """The same about a list of rank lists, which are all groups over `axes`."""
    if len(axes) != 1:
        raise click.UsageError("a list of groups needs exactly one --axis: the axes they run along, such as dp+tp")
    if not all(isinstance(ranks, list) and all(type(rank) is int for rank in ranks) for ranks in table):
        raise SourceError(f"{shown(source)} must hold a list of lists of ranks; it holds {shown(table)}", source=source)
    job = read(words, format, world_size)
    tell_notes(job)
    names = axes_given(axes)
    mesh, bare = _resolved(job.layout, names)
    fault = None
    try:
        check_groups(mesh, bare, table)
    except GroupError as error:
        fault = error
    what = "+".join(names)
    facts = {"notation": str(job.layout), "axes": list(names), "groups": len(table)}
    return facts, f"all {len(table):,} groups are those over {what} of {job.layout}", fault


def _resolved(layout: Mesh | Atlas, axes: tuple[str, ...]) -> tuple[Mesh, tuple[str, ...]]:
    if isinstance(layout, Mesh):
        return layout, axes
    return layout.resolve(*axes)
