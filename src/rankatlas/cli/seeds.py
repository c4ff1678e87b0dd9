"""`rankatlas seeds`: which ranks share which stream, and whether a scheme of seeds keeps streams apart."""

from __future__ import annotations

from typing import Any

import click

from rankatlas.cli.common import print_json, read, source_options, tell_notes
from rankatlas.cli.streams import say
from rankatlas.core import Atlas, Mesh
from rankatlas.errors import InputError
from rankatlas.views.text import first_groups, table

_PAGE = 16  # ranks of the reference scheme that are listed


@click.command(
    name="seeds",
    epilog="Examples: rankatlas seeds 'pp=2 dp=2 tp=2'; rankatlas seeds 'pp=2 dp=11' --scheme 'base+100*pp+10*dp';"
    " rankatlas seeds 'pp=2 dp=2 mp=2' --reference --base 42",
)
@click.argument("words", nargs=-1, required=True, metavar="LAYOUT_OR_FILE")
@source_options
@click.option("--base", default=1234, show_default=True, help="The base seed.")
@click.option("--chart", help="Which chart of an atlas.")
@click.option("--scheme", metavar="TEXT", help="Check an additive scheme, such as 'base+100*pp; expert=+1024+100*ep'.")
@click.option("--reference", is_flag=True, help="List the seeds PaddleNLP gives each rank.")
@click.option(
    "--preset",
    type=click.Choice(["paddle", "megatron"]),
    default="paddle",
    show_default=True,
    help="Whose streams to list.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    world_size: int | None,
    format: str | None,
    base: int,
    chart: str | None,
    scheme: str | None,
    reference: bool,
    preset: str,
    as_json: bool,
) -> None:
    """Which ranks of LAYOUT share which random stream; with --scheme, whether seeds meet that should not.

    Exit code 1 when a scheme has collisions.
    """
    if scheme is not None and reference:
        raise click.UsageError("--scheme and --reference exclude each other")
    job = read(words, format, world_size)
    mesh = _mesh(job.layout, chart)
    tell_notes(job)
    if scheme is not None:
        _check(ctx, mesh, scheme, base, as_json)
    elif reference:
        _list_reference(mesh, base, as_json)
    else:
        _list_streams(mesh, base, preset, as_json)


def _mesh(layout: Mesh | Atlas, chart: str | None) -> Mesh:
    if isinstance(layout, Mesh):
        if chart is not None:
            raise InputError("--chart chooses a chart of an atlas; this layout is one mesh")
        return layout
    if chart is None:
        raise InputError(f"streams belong to one chart: choose with --chart {' or '.join(layout.charts)}")
    return layout[chart]


def _check(ctx: click.Context, mesh: Mesh, scheme: str, base: int, as_json: bool) -> None:
    from rankatlas.seeding.integers import as_seed
    from rankatlas.seeding.relations import check_families
    from rankatlas.seeding.scheme import parse_scheme

    found = check_families(parse_scheme(scheme, mesh), mesh, as_seed(base, "--base"))
    if as_json:
        print_json({"notation": str(mesh), "scheme": scheme, "base": base, **found.to_dict()})
    else:
        say("\n".join([f"{scheme} on {mesh}", *found.lines()]))
    ctx.exit(0 if found.ok else 1)


def _list_reference(mesh: Mesh, base: int, as_json: bool) -> None:
    from rankatlas.seeding.reference import distributed_seeds

    last = mesh.first_rank + min(_PAGE, mesh.world_size)
    rows = [(rank, *distributed_seeds(base, mesh, rank=rank)) for rank in range(mesh.first_rank, last)]
    names = ("rank", "global_seed", "local_seed", "random_seed")
    if as_json:
        print_json({"notation": str(mesh), "base": base, "ranks": [dict(zip(names, row)) for row in rows]})
        return
    say("\n".join(table([names, *(tuple(map(str, row)) for row in rows)])))
    if mesh.world_size > _PAGE:
        say(f"{mesh.world_size - _PAGE:,} more ranks")


def _list_streams(mesh: Mesh, base: int, preset: str, as_json: bool) -> None:
    from rankatlas.seeding.plan import SeedPlan

    plan = SeedPlan(base, mesh)
    streams = (plan.paddle() if preset == "paddle" else plan.megatron()).values()
    facts: list[dict[str, Any]] = plan.table(streams)
    if as_json:
        print_json({"notation": str(mesh), "base": base, "preset": preset, "streams": facts})
        return
    rows = [("stream", "same along", "different along", "seeds", "ranks sharing one", "first sets")]
    for fact in facts:
        first = first_groups(fact["first_groups"], fact["seeds"])
        same, differ = ("+".join(fact[key]) or "-" for key in ("same", "differ"))
        rows.append((fact["name"], same, differ, str(fact["seeds"]), str(fact["sharing"]), first))
    say("\n".join([f"streams of {mesh}, base seed {base}", "", *table(rows)]))
