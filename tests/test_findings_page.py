"""docs/findings.md and the counts in docs/check.md are what the catalogue and the published layouts say."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def writer():
    spec = importlib.util.spec_from_file_location("write_findings", ROOT / "tools" / "write_findings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_findings_is_the_catalogue():
    tool = writer()
    assert tool.PAGE.read_text(encoding="utf-8") == tool.page()


def test_the_counts_are_those_of_the_published_layouts():
    tool = writer()
    text = tool.CHECK.read_text(encoding="utf-8")
    assert tool.COUNTS.search(text)
    assert tool.counted(text) == text
