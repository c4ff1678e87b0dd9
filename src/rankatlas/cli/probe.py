"""`rankatlas probe`: inside a job that a launcher started, every group opened, checked and timed."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
_SPEAKS = 5.0  # seconds in which the rank that tells of an error has started, too
_TICK = 0.05


class _Ended:
    """Whether somebody, mostly the launcher after a rank died, asked this process to end: no more than a note of it.

    What is being said meanwhile is said to its end, and a second request changes nothing.
    """

    def __init__(self) -> None:
        self._asked = False

    def __call__(self) -> bool:
        return self._asked

    def listen(self) -> None:
        signal.signal(signal.SIGTERM, self._note)

    @contextmanager
    def later(self) -> Iterator[None]:
        """Hear requests at the end of the block: Paddle, when it is imported, puts a handler of its own there."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        try:
            yield
        finally:
            self.listen()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])

    def _note(self, number: int, frame: object) -> None:
        self._asked = True


@click.command(
    name="probe",
    cls=TakesAxes,
    epilog="Examples: torchrun --nproc-per-node 8 -m rankatlas probe 'dp=2 tp=4';"
    " torchrun --nproc-per-node 8 -m rankatlas probe 'dp=2 tp=4' --axes tp --sizes 64K,16M --json;"
    " python -m paddle.distributed.launch --nproc_per_node 8 $(command -v rankatlas) probe 'dp=2 mp=4' --engine paddle",
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

    Every rank runs this, started by torchrun or Paddle's launcher; rank 0 prints, or the lowest that is left.  Exit
    code 1 where a group is wrong, or a rank died or hangs, which is named.
    """
    try:
        launch = Launch.detect()
    except RankatlasError as error:
        hint = "a probe runs in every process of a job: torchrun --nproc-per-node 8 -m rankatlas probe LAYOUT,"
        hint += (
            " or python -m paddle.distributed.launch --nproc_per_node 8 $(command -v rankatlas) probe LAYOUT"
            " --engine paddle"
        )
        raise JobError(f"{hint}\n{error}") from None  # first, for the other lines may be cut
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its warnings of a lost peer bury what is said here
    ended = _Ended()
    ended.listen()
    speaks = launch.rank == 0
    try:
        if math.isnan(timeout):  # which is in every range
            raise InputError("--timeout is a number of seconds from 1 to 86400, not nan")
        layout = read(words, format, world_size or launch.world_size).layout
        if not is_of_world(layout, launch.world_size):
            raise InputError(
                f"{layout} has {layout.world_size} ranks from {layout.first_rank}, and this job has"
                f" {launch.world_size} from 0; start as many processes as the layout has ranks"
            )
        plan = CreationPlan(layout, axis_sets(axes, layout))
        asked = _sizes(sizes)
        speaks = (launch.local_rank or 0) == 0  # a framework may be missing on one host alone
        with ended.later():
            probe = Probe(
                plan,
                engine,
                sizes=asked,
                turns=turns,
                timeout=timeout,
                rank=launch.rank,
                local=launch.local_rank or 0,
            )
        speaks = launch.rank == 0
        try:
            facts = probe.run(ended)
        except ProbeError as error:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            fault = f"rankatlas: {error}"
            probe.tell(error, lambda: _print(fault, err=True))
            _leave(1)
        if launch.rank == 0:
            _print(json_text(facts) if as_json else "\n".join(_lines(facts)))
        _leave(0 if facts["ok"] else 1)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if launch.rank == 0:
            _print("interrupted", err=True)
        _leave(130)
    except RankatlasError:
        if speaks:
            raise
        # All ranks have the same to say, and the first that leaves makes a launcher end the others.
        deadline = time.monotonic() + _SPEAKS
        while not ended() and time.monotonic() < deadline:
            time.sleep(_TICK)
        _leave(2)


def _print(text: str, *, err: bool = False) -> None:
    """Say it to its end.  Leaves with 2 where it cannot be written, but where nobody reads on."""
    try:
        say(text, err=err)
        (sys.stderr if err else sys.stdout).flush()
    except BrokenPipeError:
        pass
    except OSError as error:
        with suppress(OSError):
            print(f"rankatlas: the report cannot be written: {error.strerror}", file=sys.stderr, flush=True)
        _leave(2)


def _leave(code: int) -> NoReturn:
    """End at once: threads that wait in a collective, and those of the frameworks, would keep the process."""
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
    named = ", ".join(
        f"{one['axes']} ({_counted(one['groups'], 'group')} of {one['size']:,})" for one in facts["groups"]
    )
    lines = [
        facts["notation"],
        f"{_counted(len(places), 'rank')} on {_counted(len(hosts), 'host')}, {facts['engine']} over {facts['backend']},"
        f" {_counted(facts['calls'], 'creation call')} a rank",
    ]
    if not facts["timings"]:
        lines.append("nothing to probe: no group has more than one rank")
    elif facts["ok"]:
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
    lines += ["", *table_lines(rows), ""] if facts["timings"] else [""]
    rows = [["rank", "host", "device"]]
    rows += [[str(one["rank"]), one["host"], one["device"]] for one in facts["ranks"]]
    return lines + table_lines(rows)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _time(seconds: float) -> str:
    return f"{seconds * 1000:,.3f} ms"
