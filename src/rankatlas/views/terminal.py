"""The tables of `show`: on a terminal fitted to its width and with colour, elsewhere plain and unbroken lines."""

from __future__ import annotations

from typing import IO, Any

from rich.console import Console
from rich.text import Text

from rankatlas.views.text import cut, first_groups, members, no_role, order_words, printable

_WIDE = 120  # columns of a terminal that has room for words in the table
_NARROW = 20  # columns below which a terminal is not believed
_ELASTIC = ("first groups", "members")  # the columns that are cut where there is no room: what is before them counts
_ROOM = 20  # columns such a one should have, if the gaps can be made smaller for it


class _Quiet(Console):
    """A console whose reader may leave: rich would end the process with exit code 1 then."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console(file: IO[str]) -> Console:
    """A console that writes to `file` and respects NO_COLOR."""
    return _Quiet(file=file, highlight=False)


def print_layout(facts: dict[str, Any], out: Console) -> None:
    """What `show` prints about a layout, before its rank table."""
    first = facts["first_rank"]
    last = first + facts["world_size"] - 1
    _line(out, facts["notation"], "bold")
    ranks = f"ranks {first} to {last}" if "charts" not in facts else "charts may overlap"
    _line(out, f"{facts['world_size']:,} ranks ({ranks}), fingerprint {facts['fingerprint'][:16]}")
    for note in facts["notes"]:
        _line(out, f"note: {note}", "yellow")
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
        _print_places(facts, out)


def _print_places(facts: dict[str, Any], out: Console) -> None:
    how = "recorded" if facts["kinds"] else "runs"
    _line(out, f"{how} on {facts['host_count']} host(s)")
    rows = [[host, str(len(ranks)), members(ranks)] for host, ranks in facts["hosts"].items()]
    _print_table(out, ["host", "ranks", "members"], rows)
    left_out = facts["host_count"] - len(facts["hosts"])
    if left_out > 0:
        _line(out, f"{left_out:,} more hosts")
    if not facts["kinds"]:
        return
    rows = [[kind["description"], kind["axes"] or "-", f"{kind['groups']:,}", _first(kind)] for kind in facts["kinds"]]
    _print_table(out, ["groups made", "are", "groups", "first groups"], rows)


def _print_mesh(facts: dict[str, Any], out: Console) -> None:
    _line(out, order_words(facts["order"]))
    rows = [
        [axis["axis"], str(axis["size"]), str(axis["stride"]), f"{axis['groups']:,}", str(axis["size"]), _first(axis)]
        for axis in facts["axes"]
    ]
    _print_table(out, ["axis", "size", "stride", "groups", "group size", "first groups"], rows)
    meant = not out.is_terminal or out.width >= _WIDE
    rows = [
        [
            group["name"],
            *([group["meaning"]] if meant else []),
            "+".join(group["axes"]),
            f"{group['groups']:,}",
            str(group["size"]),
            _first(group),
        ]
        for group in facts["derived"]
    ]
    if rows:
        meaning = ["its members"] if meant else []
        _print_table(out, ["derived", *meaning, "over", "groups", "group size", "first groups"], rows)
    if facts["unknown_roles"]:
        _line(out, no_role(facts["unknown_roles"]))


def print_ranks(columns: list[str], rows: list[list[str]], left_out: int, out: Console) -> None:
    """A page of the rank table, and how many ranks it does not show."""
    _print_table(out, columns, rows)
    if left_out > 0:
        _line(out, f"{left_out:,} more ranks; --ranks 0-15 chooses, --format jsonl writes them all")


def print_groups(facts: dict[str, Any], out: Console) -> None:
    """A page of the groups along some axes, how many it does not show, and whether their members are all there."""
    rows = [[str(index), members(ranks)] for index, ranks in enumerate(facts["page"])]
    whole = _print_table(out, ["+".join(facts["axes"]), "members"], rows)
    left_out = facts["count"] - len(rows)
    if left_out > 0:
        _line(out, f"{left_out:,} more groups; --format jsonl writes them all")
    if "…" in rows[0][1] or not whole:
        _line(out, f"not all {facts['size']:,} members of a group are shown; --format csv writes them all")


def _first(groups: dict[str, Any]) -> str:
    return first_groups(groups["first_groups"], groups["groups"])


def _print_table(out: Console, columns: list[str], rows: list[list[str]]) -> bool:
    """A table, its columns lined up; whether all of it had room.

    On a terminal the last column is cut if it lists ranks, and then the gaps become smaller; names and counts stay.
    """
    widths = [max(map(len, [column, *(row[place] for row in rows)])) for place, column in enumerate(columns)]
    numbers = [all(row[place].replace(",", "").isdigit() for row in rows) for place in range(len(columns))]
    gap, wanted = 3, widths[-1]
    if out.is_terminal:
        firm = sum(widths[:-1])
        width = out.width if out.width >= _NARROW else _WIDE  # a terminal that does not know its width says 0 or 1
        rooms = {gap: width - firm - gap * (len(columns) - 1) for gap in (3, 2, 1)}
        needed = min(wanted, _ROOM) if columns[-1] in _ELASTIC else wanted
        gap = next((gap for gap, room in rooms.items() if room >= needed), 1)
        if columns[-1] in _ELASTIC:
            widths[-1] = min(wanted, max(1, rooms[gap]))
    for place, row in enumerate([columns, *rows]):
        cells = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip([*row[:-1], cut(row[-1], widths[-1])], widths, numbers)
        ]
        _whole_line(out, (" " * gap).join(cells).rstrip(), "bold" if place == 0 else "")
        if place == 0:
            _whole_line(out, "─" * (sum(widths) + gap * (len(widths) - 1)))
    return widths[-1] == wanted


def _whole_line(out: Console, text: str, style: str = "") -> None:
    """A line that rich neither wraps nor cuts."""
    out.print(Text(printable(text), style=style), soft_wrap=True)


def _line(out: Console, text: str, style: str = "") -> None:
    """A line that a terminal may wrap between words."""
    out.print(Text(printable(text), style=style), soft_wrap=not out.is_terminal or out.width < _NARROW)
