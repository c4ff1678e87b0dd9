"""The sentences of all findings and of the page around them, in every language: `catalogue.json`, read when asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from rankatlas.errors import InputError, shown

LANGUAGES = ("en", "zh")
_CLAUSE = re.compile("(?=[;；])")
_MOST_LISTED = 16  # numbers of a list that a sentence shows


@cache
def catalogue() -> dict[str, Any]:
    """Everything: `findings` is code → language → title, message, why and do; `page` is name → language → text."""
    import json
    from importlib.resources import files

    loaded: dict[str, Any] = json.loads((files("rankatlas.checks") / "catalogue.json").read_text(encoding="utf-8"))
    return loaded


def codes() -> tuple[str, ...]:
    """All codes, ascending.

    >>> codes()[0]
    'RA101'
    """
    return tuple(catalogue()["findings"])


def words(code: str, lang: str = "en") -> dict[str, str]:
    """The title, message, why and do of a code in a language.  Raises InputError for a code or language there is not.

    >>> words("RA111", "zh")["title"]
    '专家数不能被 ep 整除'
    """
    known = catalogue()["findings"]
    if code not in known:
        raise InputError(f"no finding has the code {shown(code)}; the codes are {', '.join(known)}")
    found: dict[str, str] = known[code][_language(lang)]
    return found


def page_words(name: str, lang: str = "en") -> str:
    """A word or heading of the page."""
    found: str = catalogue()["page"][name][_language(lang)]
    return found


def filled(template: str, numbers: Mapping[str, Any]) -> str:
    """A sentence with its numbers; lists are told with commas, long ones cut.

    What follows a semicolon is left out where its list is empty.

    >>> filled("{few} of {many}; these fit: {none}", {"few": [1, 2], "many": 10**5, "none": []})
    '1, 2 of 100,000'
    """
    empty = [f"{{{name}}}" for name, value in numbers.items() if isinstance(value, (list, tuple)) and not value]
    first, *clauses = _CLAUSE.split(template)
    told = first + "".join(clause for clause in clauses if not any(name in clause for name in empty))
    return told.format_map(_Shown({name: _shown(value) for name, value in numbers.items()}))


class _Shown(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        few = ", ".join(_shown(item) for item in value[:_MOST_LISTED])
        return f"{few}, …" if len(value) > _MOST_LISTED else few or "-"
    if type(value) is int and value.bit_length() <= 256:
        return f"{value:,}" if value >= 10**5 else str(value)
    return value if isinstance(value, str) else shown(value)


def _language(lang: str) -> str:
    if lang not in LANGUAGES:
        raise InputError(f"no language {shown(lang)}; there are {', '.join(LANGUAGES)}")
    return lang
