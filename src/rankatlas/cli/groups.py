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
from rankatlas.creation import CreationPlan
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


@click.command(
    name="groups",
    cls=TakesAxes,
    epilog="Examples: rankatlas groups 'pp=4 dp=8 tp=8' --axes tp dp pp dp+tp;"
    " rankatlas groups pretrain.json -n 64 --json",
)
@click.argument("words", nargs=-1, required=True, metavar="LAYOUT")
@click.option("--axes", multiple=True, metavar="AXES...", help="Sets of axes, such as tp dp+cp pp [each axis].")
@click.option("--limit", type=click.IntRange(0, _MOST_LISTED), default=_PAGE, show_default=True, help="Groups to list.")
@source_options
@strict_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    axes: tuple[str, ...],
    limit: int,
    world_size: int | None,
    format: str | None,
    strict: bool,
    as_json: bool,
) -> None:
    """The communicators of LAYOUT in the order they are created, the calls that takes, and rough memory.

    Groups with equal members are one; ranks alone and the whole world need no new communicator.
    """
    job = read(words, format, world_size)
    plan = CreationPlan(job.layout, axis_sets(axes, job.layout))
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
    lines = [str(plan.layout), f"plan {plan.fingerprint()[:16]}, {cost.communicators:,} new communicators", ""]
    rows = [["groups over", "number", "size", "new", "one by one", "by partition"]]
    for one, family in zip(cost.families, plan.families):
        told = {"alone": "none: ranks alone", "world": "none: the world"}.get(family.how, f"{one.created:,}")
        name = " = ".join(one.names)
        rows.append([name, f"{one.groups:,}", f"{one.size:,}", told, f"{one.one_by_one:,}", f"{one.by_partition:,}"])
    lines += table_lines(rows)
    lines += [
        "",
        f"calls of every rank: {cost.one_by_one:,} one by one, of which {cost.not_a_member:,} for groups it is not in;"
        f" {cost.by_partition:,} when each rank makes its own",
        f"memory of a rank: {cost.memberships:,} communicators, about {cost.memory / 2**20:,.0f} MiB with NCCL's usual"
        " buffers (16 channels, 2 neighbours, 4 MiB)",
    ]
    if shown:
        lines.append("")
        rows = [["order", "group", "members"]]
        for place, group in enumerate(shown):
            rows.append([str(place), f"{group['names'][0]} {group['index']}", members(group["ranks"])])
        lines += table_lines(rows)
        left_out = sum(family.new_count for family in plan.families) - len(shown)
        if left_out > 0:
            lines.append(f"{left_out:,} more groups; --limit shows more")
    return lines
