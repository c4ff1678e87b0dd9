"""The page of `rankatlas check`: what was understood and from where, then the findings; as data, then as lines."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any
from unicodedata import east_asian_width

from rankatlas.catalogue import codes, in_language, page_words, words
from rankatlas.checks import Finding, Numbers
from rankatlas.checks.layers import split_of
from rankatlas.checks.nodes import crossings
from rankatlas.checks.tensor import padded_vocabulary
from rankatlas.cluster import Cluster, placed
from rankatlas.core import Mesh
from rankatlas.errors import InputError

_MOST_GROUPS = 64  # numbers of groups that leave a node, as data
_MOST_STAGES = 64  # stages whose layers are listed
_MOST_LISTED = 16  # numbers of a list that the table shows


def report(
    numbers: Numbers, findings: Iterable[Finding], cluster: Cluster | None = None, lang: str = "en"
) -> dict[str, Any]:
    """Everything the page says as plain data.  Cost: O(axes + findings)."""
    layout = numbers.layout
    charts = {} if layout is None else {"": layout} if isinstance(layout, Mesh) else dict(layout.charts)
    facts: dict[str, Any] = {
        "source": numbers.source,
        "format": numbers.format,
        "notation": None if layout is None else str(layout),
        "world_size": numbers.get("world") if layout is None else layout.world_size,
        "order": {name: list(mesh.axes) for name, mesh in charts.items()},
        "understood": _understood(numbers, charts),
        "notes": list(numbers.notes),
        "findings": [finding.to_dict(lang) for finding in findings],
    }
    try:
        split = split_of(numbers)
    except InputError:
        split = None  # a finding says it
    if split is not None and split.stages <= _MOST_STAGES:
        facts["stage_layers"] = split.sizes
    padded = padded_vocabulary(numbers)
    if padded is not None:
        facts["padded_vocabulary"] = {"vocab": numbers["vocab"], "padded": padded[0], "multiple": padded[1]}
    if cluster is not None:
        facts["cluster"] = _cluster(numbers, cluster)
    return facts


def translated(facts: dict[str, Any], lang: str) -> dict[str, Any]:
    """The facts of a page with the origins of values and the notes of readers told in a language."""
    rows = [{**row, "origin": in_language(row["origin"], lang)} for row in facts["understood"]]
    told = {**facts, "understood": rows, "notes": [in_language(note, lang) for note in facts["notes"]]}
    if "origin" in facts.get("cluster", {}):
        told["cluster"] = {**facts["cluster"], "origin": in_language(facts["cluster"]["origin"], lang)}
    return told


def _understood(numbers: Numbers, charts: dict[str, Mesh]) -> list[dict[str, Any]]:
    """Every axis of every chart, then every setting, with where each came from."""
    roles = {axis: role for role, axes in numbers.axes.items() for axis in axes}
    rows = []
    for chart, mesh in charts.items():
        for axis, size in zip(mesh.axes, mesh.sizes):
            name = f"{chart}.{axis}" if chart else axis
            origin = numbers.told(name, axis, roles.get(axis, axis))
            rows.append({"name": name, "value": size, "origin": origin})
    if "world" in numbers.origins:  # something else than the axes says how many ranks there are
        rows.append({"name": "world", "value": numbers["world"], "origin": numbers.origins["world"]})
    layout = ("world", "dp", "pp", "tp", "cp", "sep", "ep", "etp", "edp", "rollout_world", "other", "replicas")
    idle = {"sequence_parallel": numbers["tp"] == 1, "linear_bias": numbers.get("experts") is None}
    shown = [fact for name, fact in numbers.facts.items() if name not in layout and not idle.get(name)]
    return rows + [{"name": fact.name, "value": fact.value, "origin": fact.origin} for fact in shown]


def _cluster(numbers: Numbers, cluster: Cluster) -> dict[str, Any]:
    crossed = crossings(numbers, placed(cluster, numbers.launched))
    return {
        "nodes": str(cluster),
        "hosts": cluster.nodes,
        "slots": cluster.slots,
        "inside": [address for _, address, found in crossed if found.count == 0],
        "crossing": [
            {
                "axis": address,
                "count": found.count,
                "groups": found.groups,
                "nodes": found.most_nodes,
                "first": list(islice(found.indices(), _MOST_GROUPS)),
            }
            for _, address, found in crossed
            if found.count != 0
        ],
    }


def report_lines(facts: dict[str, Any], lang: str = "en") -> list[str]:
    """The page as lines."""

    def say(word: str, **numbers: object) -> str:
        return page_words(word, lang).format(**numbers)

    source = say("command") if facts["source"] == page_words("command") else facts["source"]
    lines = [say("read", source=source, format=facts["format"])]
    if facts["notation"] is None:
        lines.append(say("unbuilt"))
    else:
        lines += [facts["notation"], say("ranks", world=f"{facts['world_size']:,}")]
    for chart, axes in facts["order"].items():
        order = say("order", axes=", ".join(axes), last=axes[-1])
        lines.append(f"{say('chart', name=chart)}: {order}" if chart else order)
    rows: list[tuple[str, ...]] = [(say("name"), say("value"), say("origin"))]
    rows += [(row["name"], _value(row["value"]), row["origin"]) for row in facts["understood"]]
    lines += ["", *_table(rows)]
    if "stage_layers" in facts:
        lines.append(say("split", sizes=", ".join(map(str, facts["stage_layers"]))))
    if "padded_vocabulary" in facts:
        lines.append(say("padded", **facts["padded_vocabulary"]))
    if "cluster" in facts:
        lines += ["", *_cluster_lines(facts["cluster"], lang)]
    return [*lines, "", *finding_lines(facts["findings"], lang)]


def _value(value: Any) -> str:
    """A value as a cell of the table; of a long list the beginning."""
    if isinstance(value, list) and len(value) > _MOST_LISTED:
        return f"[{', '.join(map(str, value[:_MOST_LISTED]))}, … ({len(value):,})]"
    return str(value)


def _cluster_lines(cluster: dict[str, Any], lang: str) -> list[str]:
    def say(word: str, **numbers: object) -> str:
        return page_words(word, lang).format(**numbers)

    lines = [say("nodes", cluster=cluster["nodes"], hosts=f"{cluster['hosts']:,}", slots=f"{cluster['slots']:,}")]
    if "origin" in cluster:
        lines[0] += f" ({cluster['origin']})"
    if cluster["inside"]:
        lines.append(say("inside", axes=", ".join(cluster["inside"])))
    if cluster["crossing"]:
        told = [
            say("groups", **{**one, "count": "?" if one["count"] is None else f"{one['count']:,}"})
            for one in cluster["crossing"]
        ]
        lines.append(say("crossing", axes=", ".join(told)))
    return lines


def finding_lines(findings: list[dict[str, Any]], lang: str = "en") -> list[str]:
    """The findings as lines: severity, code and title, the numbers, why, and what to paste."""
    if not findings:
        return [page_words("none", lang)]
    lines = []
    for finding in findings:
        lines.append(f"{page_words(finding['severity'], lang)} {finding['code']}: {finding['title']}")
        lines += [f"  {line}" for line in finding["message"].splitlines()]
        lines.append("  " + page_words("why", lang).format(text=finding["why"]))
        for place, fix in enumerate(finding["fixes"]):
            word = page_words("or" if place else "fix", lang)
            first, *rest = _pasted(fix["lines"])
            lines.append("  " + word.format(text=first))
            lines += [f"       {line}" for line in rest]
        for fix in finding.get("tried", ()):
            text = "  ".join(_pasted(fix["lines"]))
            lines.append("  " + page_words("tried", lang).format(text=text, codes=", ".join(fix["brings"])))
        if not finding["fixes"]:
            lines.append("  " + page_words("do", lang).format(text=words(finding["code"], lang)["do"]))
        lines.append("")
    counts = [sum(finding["severity"] == severity for finding in findings) for severity in ("error", "warning", "note")]
    summary = page_words("summary", lang).format(errors=counts[0], warnings=counts[1], notes=counts[2])
    more = next((finding["code"] for finding in findings if "example" in words(finding["code"], lang)), None)
    return [*lines, summary if more is None else f"{summary}; {page_words('explain', lang).format(code=more)}"]


def _pasted(lines: list[str]) -> list[str]:
    """Options stand on one line, settings of a file each on its own."""
    if all(line.startswith("--") for line in lines):
        return ["  ".join(lines)]
    return list(lines)


def explained(code: str, lang: str = "en") -> dict[str, str]:
    """What a code means, in general.  Raises InputError for a code there is not.

    >>> explained("RA111")["title"]
    'Experts do not divide by ep'
    """
    return {"code": code, **words(code, lang)}


def all_explained(lang: str = "en") -> list[dict[str, str]]:
    """Every code, ascending."""
    return [explained(code, lang) for code in codes()]


def _width(text: str) -> int:
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows with their columns lined up, where some letters take two columns of a terminal."""
    widths = [max(_width(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths)).rstrip() for row in rows]
