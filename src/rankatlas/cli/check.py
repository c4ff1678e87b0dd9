"""`rankatlas check`: a launch looked over before a device is booked."""

from __future__ import annotations

from typing import Any

import click

from rankatlas.catalogue import said
from rankatlas.cli.common import print_json, source_options
from rankatlas.cli.places import (
    cluster_given,
    cluster_options,
    devices_offered,
    launched_cluster,
    read_beside,
    recorded_cluster,
)
from rankatlas.cli.streams import say
from rankatlas.errors import ArgumentsError, DegreeError, NoLayoutError, RankatlasError, WorldSizeError
from rankatlas.job import Fact

_LEVELS = ("error", "warning", "note", "never")


@click.command(
    name="check",
    epilog="Examples: rankatlas check 'pp=4 dp=? tp=8' -n 64 --nodes 8x8;"
    " rankatlas check pretrain.json -n 64 --model config.json; rankatlas check --explain RA130",
)
@click.argument("words", nargs=-1, metavar="LAYOUT_OR_FILE...")
@source_options
@click.option("--model", metavar="FILE", help="The model's config.json (Hugging Face), for the numbers a launch lacks.")
@cluster_options
@click.option(
    "--fail-on", type=click.Choice(_LEVELS), default="error", help="End with exit code 1 from this severity on."
)
@click.option("--explain", metavar="CODE", help="What a code such as RA130 means; 'all' lists every one.")
@click.option("--lang", type=click.Choice(["en", "zh"]), default="en", help="The language of the findings.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    world_size: int | None,
    format: str | None,
    model: str | None,
    nodes: str | None,
    hosts: str | None,
    fail_on: str,
    explain: str | None,
    lang: str,
    as_json: bool,
) -> None:
    """What a launch says, where each number came from, and what is wrong with it, with changes to paste.

    Several files are checked one after the other, those that cannot be read last; those that say nothing of a layout
    are skipped.
    Exit code 0 when nothing of --fail-on or worse was found, 1 when something was, 2 when it cannot be read.
    """
    if explain is not None:
        _explain(explain, lang, as_json)
        ctx.exit(0)
    from rankatlas.checks import SEVERITIES, check_numbers
    from rankatlas.checks.numbers import Numbers
    from rankatlas.cli.refused import Reading, refused
    from rankatlas.views.report import report, report_lines, translated

    extra = _model(model)
    sources = _sources(words)
    pages, unread = [], []
    for one in sources:
        try:
            try:
                job = read_beside(one, format, world_size, nodes, hosts)
            except (WorldSizeError, DegreeError, ArgumentsError) as error:
                facts = refused(error, one, Reading(format, world_size, devices_offered(nodes, hosts)), extra, lang)
            else:
                numbers = Numbers.of(job, extra)
                cluster = cluster_given(nodes, hosts, numbers.ranks) or recorded_cluster(job)
                started = None if cluster else launched_cluster(job)
                cluster = cluster or started
                facts = report(numbers, check_numbers(numbers, cluster), cluster, lang)
                if started is not None:
                    facts["cluster"]["origin"] = said("launcher.nodes", nodes=started.nodes, each=started.even)
        except RankatlasError as error:
            if len(sources) == 1:
                raise
            if isinstance(error, NoLayoutError):  # as a hook gives it every file that changed
                say(f"skipped: {str(error).partition(chr(10))[0]}", err=True)
                continue
            unread.append((one[0], error))  # the others are looked at all the same
        else:
            pages.append(translated(facts, lang))
    failing = [] if fail_on == "never" else SEVERITIES[SEVERITIES.index(fail_on) :]
    severities = [[finding["severity"] for finding in facts["findings"]] for facts in pages]
    failed = [any(severity in failing for severity in found) for found in severities]
    if as_json:
        told: list[dict[str, Any]] = [{"ok": not bad, **facts} for bad, facts in zip(failed, pages)]
        told += [{"ok": False, "source": source, "error": str(problem)} for source, problem in unread]
        print_json(told[0] if len(told) == 1 else {"ok": not (any(failed) or unread), "sources": told})
    elif pages:
        say("\n\n".join("\n".join(report_lines(facts, lang)) for facts in pages))
    for _, problem in unread:
        say(f"rankatlas: {problem}", err=True)
    ctx.exit(2 if unread else 1 if any(failed) else 0)


def _sources(words: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The words of each source: several files are several sources, also where one is missing; notation is one."""
    from os.path import exists

    if len(words) > 1 and any(map(exists, words)):
        return [(word,) for word in words]
    return [words]


def _model(source: str | None) -> list[Fact]:
    if source is None:
        return []
    from rankatlas.dialects.huggingface import read_model

    return read_model(source)


def _explain(code: str, lang: str, as_json: bool) -> None:
    from rankatlas.views.report import all_explained, explained

    told = all_explained(lang) if code.lower() == "all" else [explained(code.strip().upper(), lang)]
    if as_json:
        print_json({"findings": told} if len(told) > 1 else dict(told[0]))
        return
    lines = []
    for one in told:
        lines += [
            f"{one['code']}: {one['title']}",
            *(f"  {one[part]}" for part in ("message", "why", "do", "example") if part in one),
            "",
        ]
    say("\n".join(lines[:-1]))
