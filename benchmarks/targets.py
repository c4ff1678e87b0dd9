"""What the measured numbers have to be: one row per promise, met or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ours
from layouts import HUGE, SMALL
from words import multiple_of

FLAT_MEMORY = 1.25  # a thousand times the rows may cost a full write buffer more, and nothing that grows


@dataclass(frozen=True, slots=True)
class Verdict:
    """One target: what is promised, what was measured, and whether that keeps the promise (None: not measured)."""

    promise: str
    target: str
    measured: str
    met: bool | None

    @property
    def word(self) -> str:
        return {True: "yes", False: "no", None: "not measured"}[self.met]


def verdicts(results: Mapping[str, Any]) -> list[Verdict]:
    """Every target, in the order in which they are promised."""
    return [
        *_one_rank(results.get("one_rank", [])),
        *_memory(results.get("memory", [])),
        _drop_in(results.get("one_rank", []), results.get("peers", [])),
        *_tables(results.get("tables")),
        _at_most("`groups.ranges()` of five axes, 1,048,576 ranks", results.get("ranges"), "ratio", 1.5),
        *_import(results.get("import", {})),
        _at_most("`rankatlas where` against `import click`", results.get("where"), "ratio", 2.5),
        *_show(results.get("show")),
    ]


def _at_most(promise: str, found: Mapping[str, Any] | None, key: str, most: float) -> Verdict:
    if not found:
        return Verdict(promise, f"≤ {most}×", "—", None)
    return Verdict(promise, f"≤ {most}×", f"{found[key]:.2f}×", found[key] <= most)


def _one_rank(rows: Sequence[Mapping[str, Any]]) -> Iterator[Verdict]:
    limits = {
        ours.MADE: ("mesh made and validated, coordinate and five groups", 7),
        ours.ASKED: ("coordinate and five groups of a mesh that exists", 5),
        ours.TOPOLOGY: ("`Topology(…)`", 10),
    }
    for who, (promise, most) in limits.items():
        ratios = [row["ratio"] for row in rows if row["who"] == who]
        worst, target = max(ratios, default=0.0), f"≤ {most}× the hand-written loop"
        measured = Verdict(promise, target, f"{worst:.1f}× at worst", worst <= most)
        yield measured if ratios else _unmeasured(promise, target)
    floor_growth = _growth(rows, ours.FLOOR)
    for who, (asked, _) in limits.items():
        growth = _growth(rows, who)
        promise = f"flat from 64 to 2^40 ranks: {asked}"
        if growth is None or floor_growth is None:
            yield _unmeasured(promise, "≤ 1.5×, or the loop's own growth")
            continue
        target = f"≤ {max(1.5, floor_growth):.2f}× (the loop grows {floor_growth:.2f}×)"
        yield Verdict(promise, target, f"{growth:.2f}×", growth <= max(1.5, floor_growth))


def _unmeasured(promise: str, target: str) -> Verdict:
    return Verdict(promise, target, "—", None)


def _growth(rows: Sequence[Mapping[str, Any]], who: str) -> float | None:
    seconds = {row["world"]: row["seconds"] for row in rows if row["who"] == who}
    if not seconds:
        return None
    return float(seconds[HUGE.world_size] / seconds[SMALL.world_size])


def _memory(rows: Sequence[Mapping[str, Any]]) -> Iterator[Verdict]:
    for who, promise in (
        (ours.MADE, "allocated by mesh, coordinate and five groups"),
        (ours.MADE_READ, "the same with every `ranks` and `group_rank` read"),
    ):
        most = max((row["bytes"] for row in rows if row["who"] == who), default=None)
        if most is None:
            yield _unmeasured(promise, "< 4,096 bytes")
        else:
            yield Verdict(promise, "< 4,096 bytes", f"{most:,} at most", most < 4096)


def _drop_in(rows: Sequence[Mapping[str, Any]], peers: Sequence[Mapping[str, Any]]) -> Verdict:
    """Ours with its five lists read, because the original makes them; both as multiples of the loop beside them."""
    promise, target = "`Topology(…)`, its lists read, against PaddleNLP's class", "faster at every size"
    original = {row["world"]: row["ratio"] for row in peers if row["who"] == "paddlenlp" and "ratio" in row}
    mine = {row["world"]: row["ratio"] for row in rows if row["who"] == ours.TOPOLOGY_LISTS}
    gains = {world: original[world] / mine[world] for world in original if world in mine}
    if not gains:
        return _unmeasured(promise, target)
    told = ", ".join(f"{multiple_of(gain)} at {world:,}" for world, gain in gains.items())
    return Verdict(promise, target, told, min(gains.values()) > 1)


def _tables(found: Mapping[str, Any] | None) -> Iterator[Verdict]:
    promise = "all groups of five axes as int64 arrays, 1,048,576 ranks"
    yield _at_most(f"{promise}, all kept", found, "ratio", 1.3)
    yield _at_most(f"{promise}, each dropped before the next", found, "dropped_ratio", 1.3)


def _import(found: Mapping[str, Mapping[str, Any]]) -> Iterator[Verdict]:
    target = "≤ 15 ms beyond a bare interpreter"
    if not found:
        yield _unmeasured("`import rankatlas`", target)
        return
    for statement, facts in found.items():
        # Two nearly equal numbers are subtracted: below zero is noise, and says "nothing".
        spent = max(0.0, facts["milliseconds"])
        yield Verdict(f"`{statement}`", target, f"{spent:.1f} ms", spent <= 15)
    heavy = sorted({name for facts in found.values() for name in facts["heavy"]})
    yield Verdict("heavy modules that an import loads", "none", ", ".join(heavy) or "none", not heavy)


def _show(found: Mapping[str, Any] | None) -> Iterator[Verdict]:
    speed = ("`rankatlas show` of 1,048,576 ranks to JSONL", "≥ 100,000 rows/s")
    memory = ("its peak memory against 1,024 ranks", f"≤ {FLAT_MEMORY}×")
    if not found:
        yield _unmeasured(*speed)
        yield _unmeasured(*memory)
        return
    rate, growth = found["rows_per_second"], found["memory_ratio"]
    yield Verdict(*speed, f"{rate:,.0f} rows/s", rate >= 100_000)
    yield Verdict(*memory, f"{growth:.2f}× ({found['peak_bytes'] / 1e6:.0f} MB)", growth <= FLAT_MEMORY)
