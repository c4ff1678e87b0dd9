"""The catalogue of sentences: both languages complete, with the same placeholders, and every code used."""

import json
import pickle
import re
from pathlib import Path
from string import Formatter

import pytest

from rankatlas.catalogue import LANGUAGES, catalogue, codes, in_language, page_words, said, words
from rankatlas.errors import InputError
from refusals import refused

SOURCES = sorted(Path(__file__, "../../src/rankatlas").resolve().rglob("*.py"))
PARTS = ("title", "message", "why", "do")


def placeholders(text):
    return sorted({name for _, name, _, _ in Formatter().parse(text) if name is not None})


@pytest.mark.parametrize("code", codes())
def test_a_code_has_every_sentence_in_every_language(code):
    told = catalogue("findings")[code]
    assert tuple(told) == LANGUAGES
    for lang in LANGUAGES:
        assert tuple(told[lang]) in (PARTS, (*PARTS, "example"))
        assert told[lang].keys() == told["en"].keys()
        assert all(text.strip() for text in told[lang].values())
    for part in PARTS:
        assert placeholders(told["en"][part]) == placeholders(told["zh"][part]), part
    for part in ("title", "why", "do"):
        assert placeholders(told["en"][part]) == []
    assert re.search("[\u4e00-\u9fff]", told["zh"]["title"])
    assert told["en"]["title"].isascii()


@pytest.mark.parametrize("name", catalogue("page"))
def test_a_word_of_the_page_is_in_every_language(name):
    english, chinese = (page_words(name, lang) for lang in LANGUAGES)
    assert placeholders(english) == placeholders(chinese)


@pytest.mark.parametrize("code", catalogue("said"))
def test_what_a_reader_says_is_in_every_language(code):
    english, chinese = (catalogue("said")[code][lang] for lang in LANGUAGES)
    assert placeholders(english) == placeholders(chinese)
    left = re.sub(r"\{\w+\}|e[t]?p=", "", english)
    assert bool(re.search("[\u4e00-\u9fff]", chinese)) == bool(re.search(r"[a-z]{2}", left))


def test_every_sentence_of_a_reader_is_used_and_there():
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES)
    used = set(re.findall(r'said\(\s*"([a-z_.]+)"', text))
    used |= set(re.findall(r'else "([a-z]+\.[a-z]+)"', text))  # one of two
    made = {code for code in catalogue("said") if code.partition(".")[0] in ("how",)}
    made |= {f"split.ends_{end}" for end in ("first", "last")}
    made |= {f"noted.{name}" for name in ("zero_hpz_partition_size", "mics_shard_size")}
    assert used | made == set(catalogue("said"))


class TestSaid:
    def test_it_is_text_like_any_other(self):
        origin = said("default.of", name="verl 0.9")
        assert origin == "default of verl 0.9"
        assert origin.startswith("default")
        assert json.loads(json.dumps({"origin": origin})) == {"origin": "default of verl 0.9"}
        again = pickle.loads(pickle.dumps(origin))
        assert (again, again.code, again.numbers) == (origin, origin.code, origin.numbers)

    def test_its_parts_are_told_in_its_language(self):
        inner = said("given.line", line=3)
        assert said("verl.default", origin=inner).told("zh") == "给出，第 3 行，即 verl 的默认值"
        assert said("both", first=inner, second="text").told("en") == "given, line 3 and text"
        assert in_language("a stranger's text {", "zh") == "a stranger's text {"

    def test_braces_and_signs_of_what_was_given_are_left_alone(self):
        strange = "{0} {name} %s"
        assert said("given.key", key=strange) == f"given: {strange}"

    def test_no_other_language(self):
        with refused(InputError, "'fr'", "en, zh"):
            said("layout").told("fr")


def test_every_code_is_found_somewhere_and_every_code_found_is_explained():
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES if path.parent.name == "checks")
    assert set(re.findall(r'"(RA\d{3})"', text)) == set(codes())


def test_every_word_of_the_page_is_used():
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES if path.name in ("report.py", "finding.py"))
    quoted = re.findall(r"""["'](\w+)["']""", text)
    severities = ["error", "warning", "note"]  # reached by the severity of a finding
    assert [name for name in catalogue("page") if name not in (*quoted, *severities)] == []


def test_codes_ascend():
    assert list(codes()) == sorted(codes())
    assert words(codes()[0])
