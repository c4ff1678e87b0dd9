"""The tables of `show`, drawn with rich: boxes and colour on a terminal, plain and unbroken lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import IO, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
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
        rows = [[fact["name"], str(fact["value"]), fact["origin"]] for fact in facts["given"]]
        _print_table(out, ["axis", "size", "where it came from"], rows)
    if "hosts" in facts:
        _line(out, f"recorded on {len(facts['hosts'])} host(s)")
        rows = [[host, str(len(ranks)), members(ranks, len(ranks))] for host, ranks in facts["hosts"].items()]
        _print_table(out, ["host", "ranks", "members"], rows)
        rows = [
            [kind["description"], kind["axes"] or "-", f"{kind['groups']:,}", _kind_groups(kind)]
            for kind in facts["kinds"]
        ]
        _print_table(out, ["groups made", "are", "groups", "first groups"], rows)
    for note in facts["notes"]:
        _line(out, f"note: {note}", "yellow")


def _kind_groups(kind: dict[str, Any]) -> str:
    return _first(kind["first_groups"], kind["groups"], max(map(len, kind["first_groups"]), default=0))


def _print_mesh(facts: dict[str, Any], out: Console) -> None:
    _line(out, order_words(facts["order"]))
    rows = [
        [
            axis["axis"],
            str(axis["size"]),
            str(axis["stride"]),
            f"{axis['groups']:,}",
            str(axis["size"]),
            _first(axis["first_groups"], axis["groups"], axis["size"]),
        ]
        for axis in facts["axes"]
    ]
    _print_table(out, ["axis", "size", "stride", "groups", "group size", "first groups"], rows)
    wide = out.width >= _WIDE
    rows = [
        [
            group["name"],
            *([group["meaning"]] if wide else []),
            "+".join(group["axes"]),
            f"{group['groups']:,}",
            str(group["size"]),
            _first(group["first_groups"], group["groups"], group["size"]),
        ]
        for group in facts["derived"]
    ]
    if rows:
        meaning = ["its members"] if wide else []
        _print_table(out, ["derived", *meaning, "over", "groups", "group size", "first groups"], rows)


def print_ranks(columns: list[str], rows: list[list[str]], left_out: int, out: Console) -> None:
    """A page of the rank table, and how many ranks it does not show."""
    _print_table(out, columns, rows)
    if left_out > 0:
        _line(out, f"{left_out:,} more ranks; --ranks 0-15 chooses, --format jsonl writes them all")


def print_groups(axes: str, page: list[tuple[int, list[int], int]], left_out: int, out: Console) -> None:
    """A page of the groups along some axes: (index, members, size)."""
    rows = [[str(index), members(ranks, size)] for index, ranks, size in page]
    _print_table(out, [axes, "members"], rows)
    if left_out > 0:
        _line(out, f"{left_out:,} more groups; --format jsonl writes them all")


def _first(groups: list[list[int]], count: int, size: int) -> str:
    """The first groups on one line: three short ones, or the beginning of one long one."""
    if size <= _SHORT:
        return " ".join(map(str, groups)) + (" ..." if count > len(groups) else "")
    return f"[{', '.join(map(str, groups[0][:_SHORT]))}, ...]" + (" ..." if count > 1 else "")


def _print_table(out: Console, columns: list[str], rows: list[list[str]]) -> None:
    """A table whose last column alone is cut on a narrow terminal: the counts before it say what is missing."""
    grid = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, column in enumerate(columns):
        cells = [row[place] for row in rows]
        number = all(cell.replace(",", "").isdigit() for cell in cells)
        width = None if column in ("first groups", "members") else max(map(len, [column, *cells]))
        justify: JustifyMethod = "right" if number else "left"
        grid.add_column(Text(column), justify=justify, no_wrap=True, overflow="ellipsis", min_width=width)
    for row in rows:
        grid.add_row(*map(Text, row))
    out.print(grid)


def _line(out: Console, text: str, style: str = "") -> None:
    out.print(Text(text, style=style))
