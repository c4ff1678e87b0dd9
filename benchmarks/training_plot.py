"""The plot of the proof: the loss, and how far every layout is from one process, step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT, LEFT, GAP = 380, 260, 56, 70
STYLE = """
.card{fill:#fbfbfd;stroke:#cfd4dc}
.t{font:13px system-ui,sans-serif;fill:#2b3038}
.s{font:12px system-ui,sans-serif;fill:#5b6270}
.m{text-anchor:middle}
.r{text-anchor:end}
.f{stroke:#cfd4dc;fill:none}
.l{stroke:#2b3038;fill:none;stroke-width:1.5}
.a{stroke:#2f7fd1;fill:none;opacity:.55}
.b{stroke:#c8791a;fill:none;opacity:.55}
.w{stroke:#b03a6a;fill:none;stroke-dasharray:5 3;stroke-width:1.5}
.o{stroke:#5b6270;fill:none;stroke-dasharray:2 3}
@media (prefers-color-scheme:dark){
.card{fill:#20242d;stroke:#3c4350}
.t{fill:#e3e6ec}
.s{fill:#a9b1bf}
.f{stroke:#4a5262}
.l{stroke:#e3e6ec}
.o{stroke:#a9b1bf}
}
"""
LOWEST, HIGHEST = -17, 0  # powers of ten
POINTS = 75  # of a line


def drawn(result: dict[str, Any]) -> str:
    """The SVG: losses of all runs on the left, relative differences on the right, on a scale of powers of ten."""
    steps = result["steps"]
    losses = result["float64"]["losses"]
    top = math.ceil(max(losses))
    parts = [_title(LEFT, "loss of a step")]
    parts += [_label(LEFT, 24 + HEIGHT * (1 - value / top), str(value)) for value in range(top + 1)]
    parts.append(_frame(LEFT))
    parts.append(_line(LEFT, steps, 0, 1, [loss / top for loss in losses], "l"))
    right = LEFT + WIDTH + GAP
    parts += [_title(right, "relative difference from one process"), _frame(right)]
    parts += [_label(right, _height(power), f"1e{power}" if power else "1") for power in range(HIGHEST, LOWEST, -4)]
    for kind, dtype, bound, beside in (("b", "float32", -5, -5), ("a", "float64", -9, 15)):
        runs = result[dtype]["runs"]
        parts += [_apart(right, steps, run, kind) for run in runs]
        y = _height(bound)
        parts.append(f'<path d="M{right} {y:.1f}h{WIDTH}" class="o"/>')
        words = f"{dtype}: {len(runs)} runs, allowed 1e{bound}"
        parts.append(f'<text x="{right + WIDTH - 6}" y="{y + beside:.1f}" class="s r">{words}</text>')
    for run in result["float64"]["wrong"]:
        parts.append(_apart(right, steps, run, "w"))
    x = right + WIDTH * 40 / steps
    parts.append(f'<text x="{x:.0f}" y="{_height(-2.2):.0f}" class="s">dashed: mistakes made on purpose</text>')
    width, height = right + WIDTH + 24, HEIGHT + 84
    title = "Every layout against one process"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' role="img"><title>{title}</title><style>{STYLE}</style>\n'
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10" class="card"/>\n'
        '<g transform="translate(0 20)">\n' + "\n".join(parts) + "\n</g></svg>\n"
    )


def _apart(left: float, steps: int, run: dict[str, Any], kind: str) -> str:
    """The differences of a run; of a few steps each, the largest."""
    few = max(1, steps // POINTS)
    largest = [max(run["apart"][begin : begin + few]) for begin in range(0, len(run["apart"]), few)]
    powers = [(math.log10(max(value, 10.0**LOWEST)) - LOWEST) / (HIGHEST - LOWEST) for value in largest]
    return _line(left, steps, run["first"], few, powers, kind)


def _height(power: float) -> float:
    return 24 + HEIGHT * (HIGHEST - power) / (HIGHEST - LOWEST)


def _line(left: float, steps: int, first: int, every: int, heights: Sequence[float], kind: str) -> str:
    points = (
        f"{left + WIDTH * (first + every * step) / steps:.1f} {24 + HEIGHT * (1 - height):.1f}"
        for step, height in enumerate(heights)
    )
    return f'<path d="M{"L".join(points)}" class="{kind}"/>'


def _frame(left: float) -> str:
    return (
        f'<rect x="{left}" y="24" width="{WIDTH}" height="{HEIGHT}" class="f"/>'
        f'<text x="{left + WIDTH / 2:g}" y="{HEIGHT + 46}" class="s m">step</text>'
    )


def _title(left: float, words: str) -> str:
    return f'<text x="{left + WIDTH / 2:g}" y="12" class="t m">{words}</text>'


def _label(left: float, y: float, words: str) -> str:
    return f'<text x="{left - 6}" y="{y + 4:.1f}" class="s r">{words}</text>'
