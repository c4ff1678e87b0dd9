"""The tables of `show`, drawn with rich: boxes and colour on a terminal, plain and unbroken lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import IO, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rankatlas.views.text import members, order_words

_WIDE = 120  # columns of a terminal that has room for words in the table
_SHORT = 8  # members of a group that a column of a table shows
_PIPE_WIDTH = 10_000  # a pipe has no edge; wrapped lines would break what reads it


@contextmanager
def console(file: IO[str]) -> Iterator[Console]:
    """A console that writes to `file`: it respects NO_COLOR, and never wraps or pads what is no terminal."""
    out = Console(file=file, highlight=False)
    if out.is_terminal:
        yield out
        return
    page = StringIO()
    yield Console(file=page, highlight=False, width=_PIPE_WIDTH)
    file.writelines(line.rstrip() + "\n" for line in page.getvalue().splitlines())


def print_layout(facts: dict[str, Any], out: Console) -> None:
    """What `show` prints about a layout, before its rank table."""
    first = facts["first_rank"]
    last = first + facts["world_size"] - 1
    _line(out, facts["notation"], "bold")
    ranks = f"ranks {first} to {last}" if "charts" not in facts else "charts may overlap"
    _line(out, f"{facts['world_size']:,} ranks ({ranks}), fingerprint {facts['fingerprint'][:16]}")
    if "charts" not in facts:
        _print_mesh(facts, out)
    for name, chart in facts.get("charts", {}).items():
        _line(out, "")
        _line(out, f"chart {name}", "bold")
        _print_mesh(chart, out)
    if facts.get("shared"):
        _line(out, f"shared, proven to have the same groups: {', '.join(facts['shared'])}")
    if facts["given"]:
        _line(out, f"read from {facts['source']} as {facts['format']}")
        grid = _table("axis", "size", "where it came from")
        for fact in facts["given"]:
            grid.add_row(fact["name"], str(fact["value"]), Text(fact["origin"]))
        out.print(grid)
    for note in facts["notes"]:
        _line(out, f"note: {note}", "yellow")


def _print_mesh(facts: dict[str, Any], out: Console) -> None:
    _line(out, order_words(facts["order"]))
    grid = _table("axis", "size", "stride", "groups", "group size", "first groups")
    for axis in facts["axes"]:
        size = axis["size"]
        counts = (str(axis["stride"]), f"{axis['groups']:,}", str(size))
        grid.add_row(axis["axis"], str(size), *counts, _first(axis["first_groups"], axis["groups"], size))
    out.print(grid)
    if facts["derived"]:
        meaning = ["they"] if out.width >= _WIDE else []
        grid = _table("derived", *meaning, "over", "groups", "group size", "first groups")
        for group in facts["derived"]:
            first = _first(group["first_groups"], group["groups"], group["size"])
            numbers = (f"{group['groups']:,}", str(group["size"]))
            words = [Text(group["meaning"])] if meaning else []
            grid.add_row(group["name"], *words, "+".join(group["axes"]), *numbers, first)
        out.print(grid)


def print_ranks(columns: list[str], rows: list[list[str]], left_out: int, out: Console) -> None:
    """A page of the rank table, and how many ranks it does not show."""
    grid = _table(*columns)
    for row in rows:
        grid.add_row(*row)
    out.print(grid)
    if left_out > 0:
        _line(out, f"{left_out:,} more ranks; --ranks 0-15 chooses, --format jsonl writes them all")


def print_groups(axes: str, rows: list[tuple[int, list[int], int]], left_out: int, out: Console) -> None:
    """A page of the groups along some axes: (index, members, size)."""
    grid = _table(axes, "members")
    for index, ranks, size in rows:
        grid.add_row(str(index), members(ranks, size))
    out.print(grid)
    if left_out > 0:
        _line(out, f"{left_out:,} more groups; --format jsonl writes them all")


def _first(groups: list[list[int]], count: int, size: int) -> Text:
    """The first groups on one line: three short ones, or the beginning of one long one."""
    if size <= _SHORT:
        return Text(" ".join(map(str, groups)) + (" ..." if count > len(groups) else ""))
    return Text(f"[{', '.join(map(str, groups[0][:_SHORT]))}, ...]" + (" ..." if count > 1 else ""))


def _table(*columns: str) -> Table:
    grid = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        right = column in ("size", "stride", "groups", "group size", "rank")
        # A narrow terminal cuts the groups, whose counts stand beside them, and nothing else.
        width = None if column in ("first groups", "members") else len(column)
        grid.add_column(Text(column), justify="right" if right else "left", no_wrap=True, min_width=width)
    return grid


def _line(out: Console, text: str, style: str = "") -> None:
    out.print(Text(text, style=style))
