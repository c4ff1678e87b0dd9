"""`rankatlas groups`: the plan of communicators, in order, and what creating them costs."""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import Any

import click

from rankatlas.cli.common import leave, print_json, read, source_options, strict_option, tell_notes
from rankatlas.cli.streams import say
from rankatlas.core import Atlas, Mesh
from rankatlas.creation import CreationPlan, first_and_last, neighbours
from rankatlas.creation.cost import counted
from rankatlas.views.text import members, table_lines

_SET = re.compile(r"[A-Za-z_][\w.]*([+,][A-Za-z_][\w.]*)*")
_MOST_LISTED = 10_000  # groups
_PAGE = 20


class TakesAxes(click.Command):
    """A command whose `--axes` takes several words: tp dp+cp pp."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Words that follow --axes and can be sets of axes are so; what else stands there is the layout."""
        found: list[str] = []
        taking = empty = False
        for word in args:
            if word == "--axes":
                if empty:
                    break
                taking = empty = True
                continue
            if taking and _SET.fullmatch(word.rstrip("+,")) and word.endswith(("+", ",")):
                raise click.UsageError(f"--axes {word} ends with a sign; a set of axes is such as tp or dp+cp", ctx)
            # A file of that name is the layout, as it would be elsewhere on the line.
            taking = taking and _SET.fullmatch(word) is not None and (empty or not os.path.isfile(word))
            if empty and not taking:
                break
            empty = False
            found += ["--axes", word] if taking else [word]
        if empty:
            raise click.UsageError("--axes needs sets of axes, such as --axes tp dp+cp pp", ctx)
        return super().parse_args(ctx, found)


def axis_sets(texts: tuple[str, ...], layout: Mesh | Atlas) -> list[str]:
    """The sets of axes that were asked for, or every axis of size > 1 by itself."""
    if texts:
        return [text.replace(",", "+") for text in texts]
    if isinstance(layout, Mesh):
        return [axis for axis in layout.axes if layout.size(axis) > 1]
    charts = layout.charts.items()
    every = [
        axis if axis in layout.shared else f"{chart}.{axis}"
        for chart, mesh in charts
        for axis in mesh.axes
        if mesh.size(axis) > 1
    ]
    return list(dict.fromkeys(every))


def partial_sets(layout: Mesh | Atlas, ends: tuple[str, ...], pairs: tuple[str, ...]) -> dict[str, list[list[int]]]:
    """Name → groups of the first and last ranks along axes, and of their neighbours."""
    asked = [("ends of", axis, first_and_last) for axis in ends] + [
        ("neighbours along", axis, neighbours) for axis in pairs
    ]
    found = {}
    for word, axis, make in asked:
        mesh, (name,) = (layout, (axis,)) if isinstance(layout, Mesh) else layout.resolve(axis)
        found[f"{word} {axis}"] = make(mesh, name)
    return found


@click.command(
    name="groups",
    cls=TakesAxes,
    epilog="Examples: rankatlas groups 'pp=4 dp=8 tp=8' --axes tp dp pp dp+tp;"
    " rankatlas groups 'pp=4 tp=8' --ends pp; rankatlas groups pretrain.json -n 64 --json",
)
@click.argument("words", nargs=-1, required=True, metavar="LAYOUT")
@click.option("--axes", multiple=True, metavar="AXES...", help="Sets of axes, such as tp dp+cp pp [each axis].")
@click.option("--ends", multiple=True, metavar="AXIS", help="Also the first and last rank along it, as for embeddings.")
@click.option("--neighbours", "pairs", multiple=True, metavar="AXIS", help="Also every pair of neighbours along it.")
@click.option("--limit", type=click.IntRange(0, _MOST_LISTED), default=_PAGE, show_default=True, help="Groups to list.")
@source_options
@strict_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    axes: tuple[str, ...],
    ends: tuple[str, ...],
    pairs: tuple[str, ...],
    limit: int,
    world_size: int | None,
    format: str | None,
    strict: bool,
    as_json: bool,
) -> None:
    """The communicators of LAYOUT in the order they are created, the calls that takes, and rough memory.

    Groups with equal members are one; ranks alone and the whole world need no new communicator: they have no number.
    """
    job = read(words, format, world_size)
    plan = CreationPlan(job.layout, axis_sets(axes, job.layout), partial_sets(job.layout, ends, pairs))
    cost = plan.cost()
    shown = [
        {"names": list(one.names), "index": one.index, "size": len(one.ranks), "ranks": one.ranks, "new": one.new}
        for one in islice(plan.groups(), limit)
    ]
    if as_json:
        facts = {"notation": str(job.layout), "fingerprint": plan.fingerprint(), "cost": cost.to_dict()}
        print_json({**facts, "groups": shown, "notes": list(job.notes)})
    else:
        say("\n".join(_lines(plan, shown)))
        tell_notes(job)
    leave(ctx, [job], strict)


def _lines(plan: CreationPlan, shown: list[dict[str, Any]]) -> list[str]:
    cost = plan.cost()
    lines = [str(plan.layout), f"plan {plan.fingerprint()[:16]}, {counted(cost.communicators, 'new communicator')}", ""]
    rows = [["groups over", "number", "size", "new", "one by one", "by partition"]]
    for one, family in zip(cost.families, plan.families):
        told = {"alone": "none: ranks alone", "world": "none: the world"}.get(family.how, f"{one.created:,}")
        name = " = ".join(one.names)
        rows.append([name, f"{one.groups:,}", f"{one.size:,}", told, f"{one.one_by_one:,}", f"{one.by_partition:,}"])
    partial = list(plan.partial_groups())
    for of in plan.partial:
        new = sum(1 for group in partial if group.new and group.names[0] == of.name)
        sizes = sorted({len(ranks) for ranks in of.groups})
        size = "-".join(f"{size:,}" for size in dict.fromkeys([sizes[0], sizes[-1]])) if sizes else "-"
        told = f"{new:,}" if new or not of.groups else "none: named above"
        rows.append([of.name, f"{len(of.groups):,}", size, told, f"{new:,}", f"{new:,}"])
    lines += table_lines(rows)
    lines += [
        "",
        f"calls of every rank: {cost.one_by_one:,} one by one, of which {cost.not_a_member:,} for groups it is not in;"
        f" {cost.by_partition:,} when each rank makes its own",
        f"memory of a rank: {counted(cost.memberships, 'communicator')}, about {cost.memory / 2**20:,.0f} MiB with"
        " NCCL's usual buffers (16 channels, 2 neighbours, 4 MiB)",
    ]
    if shown:
        lines += ["", *_listed(shown)]
        left_out = sum(family.new_count for family in plan.families) + len(partial) - len(shown)
        if left_out > 0:
            lines.append(f"{counted(left_out, 'more group')}; --limit shows more")
    return lines


def _listed(shown: list[dict[str, Any]]) -> list[str]:
    """The groups in order; only what is created has a number, which is that of the call where all ranks make all."""
    rows = [["order", "group", "members"]]
    number = 0
    for group in shown:
        name = f"{group['names'][0]} {group['index']}"
        rows.append([str(number) if group["new"] else "-", name, members(group["ranks"])])
        number += group["new"]
    return table_lines(rows)
