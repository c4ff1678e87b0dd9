"""Plain text, for answers short enough to need no table drawing and fast enough to need no library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SHOWN = 16


def members(ranks: list[int], size: int) -> str:
    """Ranks for a line: all of a short list, else both ends of what is known and the number.

    >>> members([0, 4], 2), members(list(range(20)), 20)
    ('[0, 4]', '[0, 1, 2, 3, 4, 5, ...] (20 ranks)')
    """
    if size <= _SHOWN:
        return str(list(ranks))
    return f"[{', '.join(map(str, ranks[:6]))}, ...] ({size} ranks)"


def order_words(axes: list[str]) -> str:
    """The order of axes in words.

    >>> order_words(["pp", "tp"])
    'outer → inner: pp, tp (neighbouring ranks differ along tp)'
    """
    return f"outer → inner: {', '.join(axes)} (neighbouring ranks differ along {axes[-1]})"


def where_lines(facts: dict[str, Any]) -> list[str]:
    """What `where` prints about one rank."""
    lines = [f"rank {facts['rank']} of {facts['notation']}", ""]
    if "place" in facts:
        place = facts["place"]
        local = "" if place.get("local_rank") is None else f", local rank {place['local_rank']}"
        lines += [f"runs on     {place['host']}{local}, device {place.get('device', 'unknown')}"]
        told = [f"{axis}: {hosts}" for axis, hosts in facts["neighbours"].items()]
        lines += [f"talks to    {'; '.join(told)}"] if told else []
        lines += [""]
    if "charts" in facts:
        for name, chart in facts["charts"].items():
            lines += [f"chart {name}", *("  " + line if line else line for line in _mesh_lines(chart)), ""]
        lines.pop()
    else:
        lines += _mesh_lines(facts)
    return lines + [f"note: {note}" for note in facts["notes"]]


def _mesh_lines(facts: dict[str, Any]) -> list[str]:
    lines = [
        f"coordinate  {' '.join(f'{axis}={place}' for axis, place in facts['coordinate'].items())}",
        f"order       {order_words(facts['order'])}",
    ]
    if "data" in facts:
        lines += _data_lines(facts["data"])
    if "pipeline" in facts:
        lines.append(f"pipeline    {_pipeline(facts['pipeline'])}")
    rows = [("group", "axes", "index", "place", "members")]
    for group in facts["groups"]:
        index = f"{group['index']} of {group['groups']}"
        place = f"{group['group_rank']} of {group['size']}"
        rows.append((group["name"], "+".join(group["axes"]), index, place, members(group["ranks"], group["size"])))
    return [*lines, "", *table(rows)]


def _data_lines(data: dict[str, Any]) -> list[str]:
    axes = "·".join(data["axes"])
    place = f"data rank {data['data_rank']} of {data['data_size']} ({axes}, first is major)"
    if data["group_rank"] != data["data_rank"]:
        place += f"; place {data['group_rank']} in the group over {'+'.join(data['axes'])}, which is in mesh order"
    lines = [f"data        {place}"]
    if data.get("same_batch_size", 1) > 1:
        lines.append(
            f"            one batch is read by the {data['same_batch_size']} ranks that differ along"
            f" {', '.join(data['same_batch_axes'])}:"
            f" {members(data['same_batch'], data['same_batch_size'])}"
        )
    if data["data_size"] > 1:
        others = members(data["other_batches"], data["data_size"])
        lines.append(f"            ranks along {', '.join(data['axes'])} read different batches: {others}")
    return lines


def _pipeline(pipeline: dict[str, Any]) -> str:
    before, after = pipeline["previous"], pipeline["next"]
    return (
        f"stage {pipeline['stage']} of {pipeline['stages']}"
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
