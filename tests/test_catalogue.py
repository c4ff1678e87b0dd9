"""The catalogue of sentences: both languages complete, with the same placeholders, and every code used."""

import re
from pathlib import Path
from string import Formatter

import pytest

from rankatlas.checks import LANGUAGES, catalogue, codes, page_words, words

SOURCES = sorted(Path(__file__, "../../src/rankatlas").resolve().rglob("*.py"))
PARTS = ("title", "message", "why", "do")


def placeholders(text):
    return sorted({name for _, name, _, _ in Formatter().parse(text) if name is not None})


@pytest.mark.parametrize("code", codes())
def test_a_code_has_every_sentence_in_every_language(code):
    told = catalogue()["findings"][code]
    assert tuple(told) == LANGUAGES
    for lang in LANGUAGES:
        assert tuple(told[lang]) == PARTS
        assert all(text.strip() for text in told[lang].values())
    for part in PARTS:
        assert placeholders(told["en"][part]) == placeholders(told["zh"][part]), part
    for part in ("title", "why", "do"):
        assert placeholders(told["en"][part]) == []
    assert re.search("[\u4e00-\u9fff]", told["zh"]["title"])
    assert told["en"]["title"].isascii()


@pytest.mark.parametrize("name", catalogue()["page"])
def test_a_word_of_the_page_is_in_every_language(name):
    english, chinese = (page_words(name, lang) for lang in LANGUAGES)
    assert placeholders(english) == placeholders(chinese)


def test_every_code_is_found_somewhere_and_every_code_found_is_explained():
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES if path.parent.name == "checks")
    assert set(re.findall(r'"(RA\d{3})"', text)) == set(codes())


def test_every_word_of_the_page_is_used():
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES if path.name in ("report.py", "finding.py"))
    quoted = re.findall(r"""["'](\w+)["']""", text)
    severities = ["error", "warning", "note"]  # reached by the severity of a finding
    assert [name for name in catalogue()["page"] if name not in (*quoted, *severities)] == []


def test_codes_ascend():
    assert list(codes()) == sorted(codes())
    assert words(codes()[0])
