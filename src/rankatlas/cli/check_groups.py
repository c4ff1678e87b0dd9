"""`rankatlas check-groups`: the groups a job really made, held against the layout it should have."""

from __future__ import annotations

from typing import Any

import click

from rankatlas.cli.common import print_json, read, source_options
from rankatlas.dialects.reading import read_content
from rankatlas.errors import GroupMismatch
from rankatlas.records import LayoutRecord, check_record


@click.command(
    name="check-groups",
    epilog="Example: rankatlas check-groups record.json 'pp=2 dp=2 tp=2' --axis tp --axis dp",
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
    """Hold the groups in RECORD, written by rankatlas.live.record, against LAYOUT; exit code 1 where they differ."""
    made = LayoutRecord.from_dict(read_content(record))
    layout = read(words, format, world_size or made.world_size).layout
    fault: GroupMismatch | None = None
    try:
        check_record(made, layout, axes)
    except GroupMismatch as error:
        fault = error
    if as_json:
        facts: dict[str, Any] = {
            "ok": fault is None,
            "notation": str(layout),
            "kinds": {k.description: k.axes for k in made.kinds},
        }
        if fault is not None:
            wrong = {"kind": fault.kind, "expected": fault.expected, "given": fault.given, "ranks": fault.ranks}
            facts["fault"] = {"message": str(fault), **wrong}
        print_json(facts)
    elif fault is None:
        click.echo(f"all {len(made.kinds)} kinds of groups are those of {layout}")
    else:
        click.echo(str(fault))
    ctx.exit(0 if fault is None else 1)
