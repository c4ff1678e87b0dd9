"""Plain text, for answers short enough to need no table drawing and fast enough to need no library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SHOWN = 32  # members of a group that are listed in full
_FIRST, _LAST = 3, 2  # members at either end of a longer one
_SHORT = 8  # members of each group where several stand on one line
_LINE = 60  # characters of such a line


def members(ranks: Sequence[int], size: int | None = None, rank: int | None = None, most: int = _SHOWN) -> str:
    """Ranks for a line: all of a short list, else both ends and the number; `rank` is shown wherever it stands.

    `size` is the number of members where `ranks` holds only the first of them.  Cost: O(most).

    >>> members([0, 4]), members(range(64)), members(range(64), rank=37)
    ('[0, 4]', '[0, 1, 2, …, 62, 63] (64 ranks)', '[0, 1, 2, …, 37, …, 62, 63] (64 ranks)')
    """
    size = len(ranks) if size is None else size
    if size <= most and size == len(ranks):
        return str(list(ranks))
    first = list(map(str, ranks[:_FIRST]))
    last = list(map(str, ranks[-_LAST:])) if size == len(ranks) else []
    middle = [] if rank is None or str(rank) in (*first, *last) else ["…", str(rank)]
    return f"[{', '.join([*first, *middle, '…', *last])}] ({size:,} ranks)"


def first_groups(groups: Sequence[Sequence[int]], count: int, width: int = _LINE) -> str:
    """The first of `count` groups on one line of about `width` characters: as many as fit, at least a part of one.

    >>> first_groups([[0, 4], [1, 5]], 4), first_groups([range(64)], 1), first_groups([[0, 4], [1, 5]], 2, width=9)
    ('[0, 4] [1, 5] …', '[0, 1, 2, 3, 4, 5, 6, 7, …]', '[0, 4] …')
    """
    told = ""
    for place, ranks in enumerate(groups):
        more = ", …]" if len(ranks) > _SHORT else "]"
        group = f"[{', '.join(map(str, ranks[:_SHORT]))}{more}"
        if not told:
            told = cut(group, width)
        elif len(ranks) <= _SHORT and len(told) + len(group) < width:
            told += f" {group}"
        else:
            return f"{told} …"
        if place + 1 == count:
            return told
    return f"{told} …"


def cut(text: str, width: int) -> str:
    """`text` in at most `width` characters, cut behind a comma or between groups and never inside a number.

    >>> cut("[0, 10, 20] [1, 11, 21]", 12), cut("[0, 10, 20] [1, 11, 21]", 14), cut("first groups", 9)
    ('[0, 10, …', '[0, 10, 20] …', 'first …')
    """
    if len(text) <= width:
        return text
    end = max(0, width - 1)
    while end and text[end - 1] != " ":
        end -= 1
    return f"{text[:end]}…"


def order_words(axes: list[str]) -> str:
    """The order of axes in words.

    >>> order_words(["pp", "tp"])
    'outer → inner: pp, tp (neighbouring ranks differ along tp)'
    """
    return f"outer → inner: {', '.join(axes)} (neighbouring ranks differ along {axes[-1]})"


def out_of(place: int, count: int) -> str:
    """A place and the places there are, both counted from 0.

    >>> out_of(1, 4), out_of(0, 1)
    ('1 of 0-3', '0 of 0')
    """
    return f"{place} of 0-{count - 1}" if count > 1 else f"{place} of 0"


def no_role(axes: Sequence[str]) -> str:
    """Why groups by purpose may be missing.

    >>> no_role(["x", "y"])
    'no role is known for x, y; dp, pp, tp, cp … have one'
    """
    return f"no role is known for {', '.join(axes)}; dp, pp, tp, cp … have one"


def where_lines(facts: dict[str, Any]) -> list[str]:
    """What `where` prints about one rank."""
    rank = facts["rank"]
    lines = [f"rank {rank} of {facts['notation']}", ""]
    if "place" in facts:
        place = facts["place"]
        local = "" if place.get("local_rank") is None else f", local rank {place['local_rank']}"
        lines += [f"runs on     {place['host']}{local}, device {place.get('device', 'unknown')}"]
        told = [f"{axis}: {hosts}" for axis, hosts in facts["neighbours"].items()]
        lines += [f"talks to    {'; '.join(told)}"] if told else []
        lines += [""]
    if "charts" in facts:
        for name, chart in facts["charts"].items():
            lines += [f"chart {name}", *("  " + line if line else line for line in _mesh_lines(chart, rank)), ""]
        lines.pop()
    else:
        lines += _mesh_lines(facts, rank)
    if facts.get("made_otherwise"):
        lines += ["", "groups the job made that are not of this layout:"]
        for made in facts["made_otherwise"]:
            lines.append(f"  {made['description']}  {members(made['ranks'], rank=rank)}")
    return lines + [f"note: {note}" for note in facts["notes"]]


def _mesh_lines(facts: dict[str, Any], rank: int) -> list[str]:
    lines = [
        f"coordinate  {' '.join(f'{axis}={place}' for axis, place in facts['coordinate'].items())}",
        f"order       {order_words(facts['order'])}",
    ]
    if "data" in facts:
        lines += _data_lines(facts["data"], rank)
    if "pipeline" in facts:
        lines.append(f"pipeline    {_pipeline(facts['pipeline'])}")
    rows = [("group", "axes", "index", "place", "members")]
    for group in facts["groups"]:
        index, place = out_of(group["index"], group["groups"]), out_of(group["group_rank"], group["size"])
        rows.append((group["name"], "+".join(group["axes"]), index, place, members(group["ranks"], rank=rank)))
    unknown = facts["unknown_roles"]
    return [*lines, "", *table(rows), *([no_role(unknown)] if unknown else [])]


def _data_lines(data: dict[str, Any], rank: int) -> list[str]:
    axes = "·".join(data["axes"])
    place = f"data rank {out_of(data['data_rank'], data['data_size'])} ({axes}, first is major)"
    if data["group_rank"] != data["data_rank"]:
        place += f"; place {data['group_rank']} in the group over {'+'.join(data['axes'])}, which is in mesh order"
    lines = [f"data        {place}"]
    if data.get("same_batch_size", 1) > 1:
        lines.append(
            f"            one batch is read by the {data['same_batch_size']} ranks that differ along"
            f" {', '.join(data['same_batch_axes'])}: {members(data['same_batch'], rank=rank)}"
        )
    if data["data_size"] > 1:
        others = members(data["other_batches"], rank=rank)
        lines.append(f"            ranks along {', '.join(data['axes'])} read different batches: {others}")
    return lines


def _pipeline(pipeline: dict[str, Any]) -> str:
    before, after = pipeline["previous"], pipeline["next"]
    return (
        f"stage {out_of(pipeline['stage'], pipeline['stages'])}"
        f"; {'first stage' if before is None else f'receives from rank {before}'}"
        f", {'last stage' if after is None else f'sends to rank {after}'}"
    )


def table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows with their columns lined up, two blanks apart.

    >>> table([("a", "b"), ("long", "c")])
    ['a     b', 'long  c']
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def printable(text: str) -> str:
    r"""`text` with every character escaped that could steer a terminal: names and keys come from anybody's files.

    >>> printable("a\x1b[31mb")
    'a\\u001b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    """`char` as JSON escapes it, which is plain to read elsewhere too."""
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines, columns lined up; the first row is the heading.

    >>> table_lines([["axis", "size"], ["tp", "8"]])
    ['axis   size', 'tp     8']
    """
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
