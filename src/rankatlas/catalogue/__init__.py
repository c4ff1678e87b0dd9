"""Every sentence that is told in several languages, by a code: findings, the page around them, what readers say.

`findings.json` is code → language → title, message, why, do and, of some, an example; `page.json` word → language →
text; `said.json` the origins of values, notes of readers and what they refuse, code → language → text.  Each is read
when it is first asked.
"""

from __future__ import annotations

from functools import cache

from rankatlas.errors import InputError, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LANGUAGES = ("en", "zh")
_MOST_LISTED = 16  # numbers of a list that a sentence shows


@cache
def catalogue(part: str) -> dict[str, Any]:
    """All of `findings`, `page` or `said`."""
    import json
    from importlib.resources import files

    loaded: dict[str, Any] = json.loads((files("rankatlas.catalogue") / f"{part}.json").read_text(encoding="utf-8"))
    return loaded


def codes() -> tuple[str, ...]:
    """The codes of all findings, ascending.

    >>> codes()[0]
    'RA100'
    """
    return tuple(catalogue("findings"))


def words(code: str, lang: str = "en") -> dict[str, str]:
    """The title, message, why and do of a code in a language.  Raises InputError for a code or language there is not.

    >>> words("RA111", "zh")["title"]
    '专家数不能被 ep 整除'
    """
    known = catalogue("findings")
    if code not in known:
        raise InputError(f"no finding has the code {shown(code)}; the codes are {', '.join(known)}")
    found: dict[str, str] = known[code][_language(lang)]
    return found


def page_words(name: str, lang: str = "en") -> str:
    """A word or heading of the page."""
    found: str = catalogue("page")[name][_language(lang)]
    return found


class Said(str):
    """A sentence of a reader: English text like any other, with the `code` and `numbers` it was made of.

    A number may be such a sentence itself, so that a part of it is told in the same language.

    >>> origin = said("given.line", line=41)
    >>> origin, origin.told("zh")
    ('given, line 41', '给出，第 41 行')
    """

    __slots__ = ("code", "numbers")

    code: str
    numbers: dict[str, Any]

    def __new__(cls, code: str, **numbers: Any) -> Said:  # noqa: D102
        made = super().__new__(cls, _with_numbers(code, numbers, "en"))
        made.code = code
        made.numbers = numbers
        return made

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (self.code, self.numbers)

    @property
    def kind(self) -> str:
        """What the code begins with, such as unread for unread.setting."""
        return self.code.partition(".")[0]

    def told(self, lang: str) -> str:
        """The sentence in a language."""
        return _with_numbers(self.code, self.numbers, _language(lang))


def said(code: str, **numbers: Any) -> str:
    """The sentence of a code with its numbers: a `Said`, which is text to whoever does not translate.

    >>> said("inferred.world", world=64)
    'inferred from world 64'
    """
    return Said(code, **numbers)


def _again(code: str, numbers: dict[str, Any]) -> Said:
    return Said(code, **numbers)


def _with_numbers(code: str, numbers: Mapping[str, Any], lang: str) -> str:
    template: str = catalogue("said")[code][lang]
    return template.format_map({name: _part(value, lang) for name, value in numbers.items()})


def _part(value: Any, lang: str) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(in_language(str(item) if not isinstance(item, str) else item, lang) for item in value)
    return in_language(value, lang) if isinstance(value, str) else str(value)


def in_language(text: str, lang: str) -> str:
    """A sentence of a reader in a language; text that is none, such as a third party's, stays as it is.

    >>> in_language("any text", "zh")
    'any text'
    """
    return text.told(lang) if isinstance(text, Said) else text


class Cut(list):  # type: ignore[type-arg]
    """The beginning of a list, which sentences end with an ellipsis.

    >>> filled("{few}", {"few": Cut([1, 2])})
    '1, 2, …'
    """

    __slots__ = ()


def sentence_of(error: Exception) -> str:
    """What an error says first: the sentence it was made of, which can be told in any language, else its first line.

    >>> sentence_of(ValueError("no such axis\\nthere are dp, tp"))
    'no such axis'
    """
    found = getattr(error, "sentence", None) or (error.args[0] if error.args else "")
    return found if isinstance(found, Said) else str(error).partition("\n")[0]


def filled(template: str, numbers: Mapping[str, Any], lang: str = "en") -> str:
    """A sentence with its numbers; lists are told with commas, long ones cut.

    What follows a semicolon is left out where its list is empty.

    >>> filled("{few} of {many}; these fit: {none}", {"few": [1, 2], "many": 10**5, "none": []})
    '1, 2 of 100,000'
    """
    empty = [f"{{{name}}}" for name, value in numbers.items() if isinstance(value, (list, tuple)) and not value]
    first, *clauses = template.replace(";", "\0;").replace("；", "\0；").split("\0")
    told = first + "".join(clause for clause in clauses if not any(name in clause for name in empty))
    return told.format_map(_Shown({name: _shown(value, lang) for name, value in numbers.items()}))


class _Shown(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return f"{{{name}}}"


def _shown(value: Any, lang: str) -> str:
    if isinstance(value, (list, tuple)):
        few = ", ".join(_shown(item, lang) for item in value[:_MOST_LISTED])
        return f"{few}, …" if few and (len(value) > _MOST_LISTED or isinstance(value, Cut)) else few or "-"
    if type(value) is int and value.bit_length() <= 256:
        return f"{value:,}" if value >= 10**5 else str(value)
    return in_language(value, lang) if isinstance(value, str) else shown(value)


def _language(lang: str) -> str:
    if lang not in LANGUAGES:
        raise InputError(f"no language {shown(lang)}; there are {', '.join(LANGUAGES)}")
    return lang
