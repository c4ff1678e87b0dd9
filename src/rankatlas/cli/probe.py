"""`rankatlas probe`: inside a job that a launcher started, every group opened, checked and timed."""

from __future__ import annotations

import math
import os
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

import click

from rankatlas.cli.common import as_json as json_text
from rankatlas.cli.common import read, source_options
from rankatlas.cli.groups import TakesAxes, axis_sets
from rankatlas.cli.streams import say
from rankatlas.creation import CreationPlan
from rankatlas.errors import InputError, JobError, ProbeError, RankatlasError, shown
from rankatlas.live.jobs import is_of_world
from rankatlas.live.launch import Launch
from rankatlas.live.probe import ENGINES, Probe
from rankatlas.views.text import members, table_lines

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
_LARGEST = 2**32  # bytes of a collective


class _Ended(BaseException):
    """Somebody, mostly the launcher after a rank died, asked this process to end."""


@click.command(
    name="probe",
    cls=TakesAxes,
    epilog="Examples: torchrun --nproc-per-node 8 -m rankatlas probe 'dp=2 tp=4';"
    " torchrun --nproc-per-node 8 -m rankatlas probe 'dp=2 tp=4' --axes tp --sizes 64K,16M --json",
)
@click.argument("words", nargs=-1, required=True, metavar="LAYOUT")
@click.option("--axes", multiple=True, metavar="AXES...", help="Sets of axes, such as tp dp+cp [each axis].")
@click.option("--engine", type=click.Choice(list(ENGINES)), default="torch", show_default=True, help="Framework.")
@click.option("--sizes", default="64K,4M", show_default=True, metavar="BYTES", help="Bytes per rank: 512,64K,16M.")
@click.option("--turns", type=click.IntRange(1, 10_000), default=7, show_default=True, help="Times; medians count.")
@click.option(
    "--timeout", type=click.FloatRange(1, 86_400), default=60, show_default=True, help="Seconds one step may take."
)
@source_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    words: tuple[str, ...],
    axes: tuple[str, ...],
    engine: str,
    sizes: str,
    turns: int,
    timeout: float,
    world_size: int | None,
    format: str | None,
    as_json: bool,
) -> None:
    """Open every group of LAYOUT in the job of this process, check members and order, time collectives.

    Every rank runs this, started by torchrun or Paddle's launcher; the lowest rank prints.  Exit code 1 where a group
    is wrong, or a rank died or hangs, which is named.
    """
    try:
        launch = Launch.detect()
    except RankatlasError as error:
        hint = "a probe runs in every process of a job: torchrun --nproc-per-node 8 -m rankatlas probe LAYOUT"
        raise JobError(f"{hint}\n{error}") from None  # first, for the other lines may be cut
    if math.isnan(timeout):  # which is in every range
        raise InputError("--timeout is a number of seconds from 1 to 86400, not nan")
    probe = None
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its warnings of a lost peer bury what is said here
    signal.signal(signal.SIGTERM, _end)
    try:
        layout = read(words, format, world_size or launch.world_size).layout
        if not is_of_world(layout, launch.world_size):
            raise InputError(
                f"{layout} has {layout.world_size} ranks from {layout.first_rank}, and this job has"
                f" {launch.world_size} from 0; start as many processes as the layout has ranks"
            )
        plan = CreationPlan(layout, axis_sets(axes, layout))
        probe = Probe(
            plan,
            engine,
            sizes=_sizes(sizes),
            turns=turns,
            timeout=timeout,
            rank=launch.rank,
            local=launch.local_rank or 0,
        )
        facts = probe.run()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher ends the last ranks when the first leaves with 1
        if launch.rank == 0:
            say(json_text(facts) if as_json else "\n".join(_lines(facts)))
        _leave(0 if facts["ok"] else 1)
    except KeyboardInterrupt:
        _leave(130, "interrupted" if launch.rank == 0 else "")
    except (_Ended, ProbeError) as error:
        _end_quietly()
        if probe is None:
            _leave(1)
        fault = error if isinstance(error, ProbeError) else probe.lost("the launcher ended this process")
        _leave(1, f"rankatlas: {fault}" if probe.speaks(fault) else "")
    except RankatlasError:
        if launch.rank == 0:
            raise
        _leave(2)  # all ranks have the same to say


def _end(number: int, frame: object) -> None:
    _end_quietly()
    raise _Ended


def _end_quietly() -> None:
    """Requests to end come again while this process is ending: by then none is an exception any more."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _leave(code: int, message: str = "") -> NoReturn:
    """End at once: threads that wait in a collective, and those of the frameworks, would keep the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        if message:
            say(message, err=True)
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass  # nobody reads on
    except OSError as error:
        code = 2
        with suppress(OSError):
            print(f"rankatlas: the report cannot be written: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(code)


def _sizes(text: str) -> list[int]:
    found = []
    for part in text.split(","):
        number, unit = part.strip().upper().removesuffix("B").removesuffix("I"), ""
        if number and number[-1] in _UNITS:
            number, unit = number[:-1], number[-1]
        size = int(number) * _UNITS[unit] if number.isascii() and number.isdigit() and len(number) < 12 else 0
        if not 4 <= size <= _LARGEST:
            raise InputError(f"sizes are bytes from 4 to 4G, such as 512,64K,16M; not {shown(part)} of {shown(text)}")
        found.append(size)
    return list(dict.fromkeys(found))


def _lines(facts: dict[str, Any]) -> list[str]:
    hosts = list(dict.fromkeys(one["host"] for one in facts["ranks"]))
    places = {one["rank"]: f"{one['host']}, {one['device']}" for one in facts["ranks"]}
    named = ", ".join(f"{one['axes']} ({one['groups']:,} of {one['size']:,})" for one in facts["groups"])
    lines = [
        facts["notation"],
        f"{len(places):,} ranks on {len(hosts):,} host(s), {facts['engine']} over {facts['backend']},"
        f" {facts['calls']:,} creation calls a rank",
    ]
    if facts["ok"]:
        lines.append(f"all groups have the right members in the right order: {named}")
    for fault in facts["wrong"]:
        lines.append(
            f"rank {fault['rank']} ({places[fault['rank']]}): its group over {fault['axes']} is {fault['given']},"
            f" and {fault['expected']} was expected"
        )
    rows = [["axes", "collective", "bytes", "median", "slowest group", "", "slowest rank", ""]]
    for one in facts["timings"]:
        group, rank = one["slowest_group"], one["slowest_rank"]
        rows.append(
            [
                one["axes"],
                one["collective"].replace("_", "-"),
                f"{one['bytes']:,}",
                _time(one["median"]),
                f"{group['index']} {members(group['ranks'])}",
                _time(group["seconds"]),
                f"{rank['rank']} ({places[rank['rank']]})",
                _time(rank["seconds"]),
            ]
        )
    lines += ["", *table_lines(rows), ""]
    rows = [["rank", "host", "device"]]
    rows += [[str(one["rank"]), one["host"], one["device"]] for one in facts["ranks"]]
    return lines + table_lines(rows)


def _time(seconds: float) -> str:
    return f"{seconds * 1000:,.3f} ms"
