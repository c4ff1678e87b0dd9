"""`rankatlas check`: a launch looked over before a device is booked."""

from __future__ import annotations

from typing import Any

import click

from rankatlas.cli.common import cluster_given, cluster_options, print_json, read, source_options
from rankatlas.cli.streams import say
from rankatlas.errors import RankatlasError, WorldSizeError
from rankatlas.job import Fact, Job

_LEVELS = ("error", "warning", "note", "never")
# What a look at another world than the one asked for can still say: it depends on no data size.
_OF_ANY_WORLD = ("RA103", "RA104", "RA105", "RA106", "RA12", "RA130", "RA131", "RA14", "RA18")


@click.command(
    name="check",
    epilog="Examples: rankatlas check 'pp=4 dp=? tp=8' -n 64 --nodes 8x8;"
    " rankatlas check pretrain.json -n 64 --model config.json; rankatlas check --explain RA130",
)
@click.argument("words", nargs=-1, metavar="LAYOUT_OR_FILE")
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

    Exit code 0 when nothing of --fail-on or worse was found, 1 when something was, 2 when it cannot be read.
    """
    if explain is not None:
        _explain(explain, lang, as_json)
        ctx.exit(0)
    from rankatlas.checks import SEVERITIES, check_numbers
    from rankatlas.checks.numbers import Numbers
    from rankatlas.views.report import report, report_lines

    extra = _model(model)
    try:
        job = read(words, format, world_size)
    except WorldSizeError as error:
        facts = _refused(error, words, format, extra, lang)
    else:
        numbers = Numbers.of(job, extra)
        cluster = cluster_given(nodes, hosts, job.layout.world_size)
        facts = report(numbers, check_numbers(numbers, cluster), cluster, lang)
    found = [finding["severity"] for finding in facts["findings"]]
    failing = [] if fail_on == "never" else SEVERITIES[SEVERITIES.index(fail_on) :]
    failed = any(severity in failing for severity in found)
    if as_json:
        print_json({"ok": not failed, **facts})
    else:
        say("\n".join(report_lines(facts, lang)))
    ctx.exit(1 if failed else 0)


def _model(source: str | None) -> list[Fact]:
    if source is None:
        return []
    from rankatlas.dialects.huggingface import read_model

    return read_model(source)


def _refused(
    error: WorldSizeError, words: tuple[str, ...], format: str | None, extra: list[Fact], lang: str
) -> dict[str, Any]:
    """The page about sizes that make no layout: what can be said without one, and the sizes that would."""
    from rankatlas.checks import check_numbers, check_world
    from rankatlas.checks.numbers import Numbers
    from rankatlas.views.report import report

    job = _at_another_world(error, words, format)
    if job is None:
        numbers = Numbers([], format=format or "notation", source=" ".join(words))
        return report(numbers, [check_world(error)], None, lang)
    numbers = Numbers.of(job, extra)
    others = [finding for finding in check_numbers(numbers) if finding.code.startswith(_OF_ANY_WORLD)]
    facts = report(numbers, [check_world(error, numbers), *others], None, lang)
    return {**facts, "notation": None, "world_size": error.world_size, "order": {}, "understood": _sizes(error, facts)}


def _at_another_world(error: WorldSizeError, words: tuple[str, ...], format: str | None) -> Job | None:
    """The job at a world its sizes do fit, to know its format, its settings and its order."""
    for world in error.nearest_worlds:
        try:
            return read(words, format, world)
        except RankatlasError:
            continue
    return None


def _sizes(error: WorldSizeError, facts: dict[str, Any]) -> list[dict[str, Any]]:
    """What was understood, without the sizes that only the other world has."""
    given = dict(error.factors)
    return [row for row in facts["understood"] if given.get(row["name"], row["value"]) == row["value"]]


def _explain(code: str, lang: str, as_json: bool) -> None:
    from rankatlas.views.report import all_explained, explained

    told = all_explained(lang) if code.lower() == "all" else [explained(code.strip().upper(), lang)]
    if as_json:
        print_json({"findings": told} if len(told) > 1 else dict(told[0]))
        return
    lines = []
    for one in told:
        lines += [f"{one['code']}: {one['title']}", *(f"  {one[part]}" for part in ("message", "why", "do")), ""]
    say("\n".join(lines[:-1]))
