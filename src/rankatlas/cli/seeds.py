"""`rankatlas seeds`: which ranks share which stream, and whether a scheme of seeds keeps streams apart."""

from __future__ import annotations

from typing import Any

import click

from rankatlas.cli.common import print_json, ranks_given, read, source_options, tell_notes
from rankatlas.cli.streams import say
from rankatlas.core import Atlas, Mesh
from rankatlas.errors import InputError, shown
from rankatlas.views.text import first_groups, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rankatlas.seeding.relations import Relations

_BASE = 1234
_PAGE = 16  # ranks of the reference scheme that are listed unless some are asked for
_MOST_RANKS = 1 << 16
_MOST_SEEDS = 1_000_000  # of Megatron's that are compared


@click.command(
    name="seeds",
    epilog="Examples: rankatlas seeds 'pp=2 dp=2 tp=2'; rankatlas seeds 'pp=2 dp=11' --scheme 'base+100*pp+10*dp';"
    " rankatlas seeds 'pp=2 dp=2 mp=2' --reference --base 42",
)
@click.argument("words", nargs=-1, required=True, metavar="LAYOUT_OR_FILE")
@source_options
@click.option("--base", type=int, help="The base seed; by default that of the configuration, else 1234.")
@click.option("--chart", help="Which chart of an atlas.")
@click.option("--scheme", metavar="TEXT", help="Check an additive scheme, such as 'base+100*pp; expert=+1024+100*ep'.")
@click.option("--reference", is_flag=True, help="List the seeds PaddleNLP gives each rank.")
@click.option("--ranks", metavar="RANGES", help="With --reference, these ranks, such as 0-15 or 3,8,32-47.")
@click.option(
    "--preset",
    type=click.Choice(["paddle", "megatron"]),
    help="Whose streams to list, with the relations that framework means them to have [the source's, else paddle].",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    world_size: int | None,
    format: str | None,
    base: int | None,
    chart: str | None,
    scheme: str | None,
    reference: bool,
    ranks: str | None,
    preset: str | None,
    as_json: bool,
) -> None:
    """Which ranks of LAYOUT share which random stream; with --scheme, whether seeds meet that should not.

    Of Megatron-core's streams the seeds are those it adds up, with the streams that meet.
    Exit code 1 when a scheme has collisions.
    """
    if scheme is not None and reference:
        raise click.UsageError("--scheme and --reference exclude each other")
    if ranks is not None and not reference:
        raise click.UsageError("--ranks chooses ranks of --reference")
    job = read(words, format, world_size)
    mesh = _mesh(job.layout, chart)
    base = base if base is not None else job.seed if job.seed is not None else _BASE
    tell_notes(job)
    if scheme is not None:
        _check(ctx, mesh, scheme, base, as_json)
    elif reference:
        _tell_whose(job.format, "paddle")
        _list_reference(mesh, base, ranks, as_json)
    else:
        preset = preset or ("megatron" if _family(job.format) == "megatron" else "paddle")
        _tell_whose(job.format, preset)
        _list_streams(mesh, base, preset, as_json)


def _family(format: str) -> str | None:
    """Whose words a source is in, None where they are nobody's, such as notation.

    >>> _family("accelerate-1.15+megatron-0.16"), _family("paddle-fleet"), _family("notation")
    ('megatron', 'paddle', None)
    """
    name = format.rpartition("+")[2].partition("-")[0]
    if name in ("notation", "rankatlas", "record"):
        return None
    return "paddle" if name.startswith("paddle") else name


def _tell_whose(format: str, preset: str) -> None:
    """A note where the streams that are listed are not those of the framework that the source is written for."""
    family = _family(format)
    if family not in (None, preset):
        whose = {"paddle": "PaddleNLP's trainer", "megatron": "Megatron-core"}[preset]
        say(
            f"note: these are the streams of {whose}; the source is read as {format}, which seeds otherwise",
            err=True,
        )


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

    families = parse_scheme(scheme, mesh)
    found = check_families(families, mesh, as_seed(base, "--base"))
    # An axis that a formula forgets is no collision, and what its writer most needs to see.
    same = {one.name: [axis for axis in mesh.axes if axis not in one.axes and mesh.size(axis) > 1] for one in families}
    if as_json:
        print_json({"notation": str(mesh), "scheme": scheme, "base": base, "same_along": same, **found.to_dict()})
    else:
        told = [f"{name or 'the seed'} is the same along {', '.join(axes)}" for name, axes in same.items() if axes]
        say("\n".join([f"{scheme} on {mesh}", *found.lines(), *told]))
    ctx.exit(0 if found.ok else 1)


def _list_reference(mesh: Mesh, base: int, ranks: str | None, as_json: bool) -> None:
    from rankatlas.seeding.reference import distributed_seeds

    first = mesh.first_rank
    last = first + min(_PAGE, mesh.world_size)
    chosen, count = ranks_given(f"{first}-{last - 1}" if ranks is None else ranks, mesh)
    if count > _MOST_RANKS:
        raise InputError(f"--ranks {shown(ranks)} asks for {count:,} ranks; {_MOST_RANKS:,} are the most")
    rows = [(rank, *distributed_seeds(base, mesh, rank=rank)) for rank in chosen]
    names = ("rank", "global_seed", "local_seed", "random_seed")
    if as_json:
        print_json({"notation": str(mesh), "base": base, "ranks": [dict(zip(names, row)) for row in rows]})
        return
    say("\n".join(table([names, *(tuple(map(str, row)) for row in rows)])))
    if ranks is None and mesh.world_size > _PAGE:
        say(f"{mesh.world_size - _PAGE:,} more ranks; --ranks lists others")


def _list_streams(mesh: Mesh, base: int, preset: str, as_json: bool) -> None:
    from rankatlas.seeding.plan import SeedPlan

    plan = SeedPlan(base, mesh)
    streams = (plan.paddle() if preset == "paddle" else plan.megatron()).values()
    facts: list[dict[str, Any]] = plan.table(streams)
    met = _as_megatron_adds(facts, mesh, base) if preset == "megatron" else None
    if as_json:
        told = {} if met is None else {"offsets": met.to_dict()}
        print_json({"notation": str(mesh), "base": base, "preset": preset, "streams": facts, **told})
        return
    rows = [("stream", "same along", "different along", "seeds", "ranks sharing one", "first sets")]
    for fact in facts:
        first = first_groups(fact["first_groups"], fact["seeds"])
        same, differ = ("+".join(fact[key]) or "-" for key in ("same", "differ"))
        drawn = fact.get("distinct", fact["seeds"])
        seeds = str(drawn) if drawn == fact["seeds"] else f"{drawn} of {fact['seeds']}"
        rows.append((fact["name"], same, differ, seeds, str(fact["sharing"]), first))
    say("\n".join([f"streams of {mesh}, base seed {base}", "", *table(rows)]))
    if met is not None and not met.ok:
        schemes = [f"{fact['name']} = {fact['scheme']}" for fact in facts if fact.get("scheme")]
        say("\n".join(["", "seeds meet, as Megatron-core adds them up:", *schemes, *met.lines()]))


def _as_megatron_adds(facts: list[dict[str, Any]], mesh: Mesh, base: int) -> Relations | None:
    """What meets among the seeds that Megatron-core adds up; each stream is told its formula and how many it has.

    None where there are too many to compare.
    """
    from rankatlas.seeding.integers import as_seed
    from rankatlas.seeding.offsets import megatron_families, megatron_scheme
    from rankatlas.seeding.relations import check_families

    families = megatron_families([fact["name"] for fact in facts], mesh)
    seed = as_seed(base, "--base")
    if sum(fact["seeds"] for fact in facts) > _MOST_SEEDS:
        return None
    alone = {family.name: check_families([family], mesh, seed).distinct for family in families}
    for fact in facts:
        if fact["name"] in alone:
            fact["scheme"] = megatron_scheme(fact["name"], mesh)
            fact["distinct"] = alone[fact["name"]]
            del fact["first_seeds"]  # those of a plan, which Megatron-core does not take
    return check_families(families, mesh, seed)
