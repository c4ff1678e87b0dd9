"""Write docs/findings.md, one section per code of `rankatlas check`, and the counts in docs/check.md.

`python tools/write_findings.py`; tests/test_findings_page.py compares.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__, "../..").resolve()
sys.path.insert(0, str(ROOT / "tests"))

from rankatlas.catalogue import codes, words  # noqa: E402

PAGE = ROOT / "docs" / "findings.md"
CHECK = ROOT / "docs" / "check.md"
COUNTS = re.compile(r"(<!-- published:begin -->\n).*?(<!-- published:end -->)", re.DOTALL)
HEAD = """\
# Findings

Every finding of [`rankatlas check`](check.md) has a code that stays the same. `rankatlas check --explain RA130` prints
its section, `--lang zh` in Chinese. Words in braces stand for the numbers of a case.

"""
FAMILIES = {
    "10": "sizes, defaults, settings",
    "11": "experts",
    "12": "heads, features, vocabulary",
    "13": "layers and stages",
    "14": "the sequence",
    "15": "batches",
    "16": "reinforcement learning",
    "17": "nodes and hosts",
    "18": "order and seeds",
    "19": "communicators",
    "20": "what does not go together",
}


def page() -> str:
    """The whole page."""
    rows = ["| code | in English | 中文 |", "|---|---|---|"]
    sections = []
    family = ""
    for code in codes():
        english, chinese = words(code), words(code, "zh")
        rows.append(f"| [{code}](#{code.lower()}) | {english['title']} | {chinese['title']} |")
        if code[2:4] != family:
            family = code[2:4]
            sections.append(f"## RA{family}x: {FAMILIES[family]}\n")
        sections.append(f"### {code}\n\n{_section(english)}\n\n{_section(chinese)}\n")
    return HEAD + "\n".join(rows) + "\n\n" + "\n".join(sections)


def _section(told: dict[str, str]) -> str:
    example = f"\n\n{told['example']}" if "example" in told else ""
    return f"**{told['title']}**\n\n`{told['message']}`\n\n{told['why']} {told['do']}{example}"


def counts() -> str:
    """What the published layouts give, as a sentence and a list."""
    from published import summary

    told = summary()
    lines = [
        f"Of {told['points']} published points (model, hardware, layout) {told['checked']} say all their sizes."
        f" {told['clean']} of these have no finding at all, and none has an error. What the others have:\n"
    ]
    lines += [
        f"- {severity} [{code}](findings.md#{code.lower()}), {words(code)['title'].lower()}: {count}"
        for (severity, code), count in told["found"].items()
    ]
    return "\n".join(lines) + "\n"


def counted(text: str) -> str:
    """A page with the counts put between its markers."""
    return COUNTS.sub(lambda found: found[1] + counts() + found[2], text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    CHECK.write_text(counted(CHECK.read_text(encoding="utf-8")), encoding="utf-8")
