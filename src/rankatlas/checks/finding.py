"""What a check says: a code, how bad it is, the numbers, and changes that would put it right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from rankatlas.catalogue import filled, in_language, page_words, words

SEVERITIES = ("note", "warning", "error")  # ascending


class Fix:
    """A change that makes a finding go away: `changes` by name → new value, and `lines` to paste into the source.

    `instead` are the keys of the source that must go when the lines come.

    >>> Fix({"pp": 2}, ["--pipeline-model-parallel-size 2"])
    Fix({'pp': 2}, ['--pipeline-model-parallel-size 2'])
    """

    __slots__ = ("changes", "instead", "lines")

    def __init__(self, changes: Mapping[str, Any], lines: Iterable[str] = (), instead: Iterable[str] = ()) -> None:
        self.changes = MappingProxyType(dict(changes))
        self.lines = tuple(lines)
        self.instead = tuple(instead)

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        """Plain data for JSON; what the lines replace stands behind them as a comment."""
        held: dict[str, Any] = {
            "changes": dict(self.changes),
            "lines": [in_language(line, lang) for line in self.lines],
        }
        if self.instead:
            names = "  ".join(self.instead)
            held["instead"] = list(self.instead)
            held["lines"].append("# " + page_words("instead", lang).format(names=names))
        return held

    def __repr__(self) -> str:
        instead = f", {list(self.instead)!r}" if self.instead else ""
        return f"Fix({dict(self.changes)!r}, {list(self.lines)!r}{instead})"


class Finding:
    """One thing that was found: `code`, `severity` (error, warning or note), `numbers` and `fixes`.

    `tried` are changes that would help and break something else, each with the codes it would bring; they are told
    where there are no fixes.

    The sentences come from the catalogue, in English or Chinese: `message` tells the numbers, `why` why they matter.

    >>> finding = Finding("RA111", "error", {"experts": 10, "ep": 4, "remainder": 2, "legal": [1, 2, 5, 10]})
    >>> finding.message
    '10 experts cannot be shared evenly by ep=4: 2 are left over; sizes of ep that fit: 1, 2, 5, 10'
    """

    __slots__ = ("code", "fixes", "numbers", "severity", "tried")

    def __init__(
        self,
        code: str,
        severity: str,
        numbers: Mapping[str, Any],
        fixes: Iterable[Fix] = (),
        tried: Iterable[tuple[Fix, list[str]]] = (),
    ) -> None:
        self.code = code
        self.severity = severity
        self.numbers = MappingProxyType(dict(numbers))
        self.fixes = tuple(fixes)
        self.tried = tuple(tried)

    @property
    def message(self) -> str:
        """The numbers in an English sentence."""
        return self.told("message")

    @property
    def why(self) -> str:
        """Why it matters, in English."""
        return self.told("why")

    def told(self, what: str, lang: str = "en") -> str:
        """The `message`, `why` or `title` in a language."""
        return filled(words(self.code, lang)[what], self.numbers, lang)

    def is_also(self, other: Finding) -> bool:
        """Whether another finding is about the same thing: of some codes a page may have several."""
        return self.code == other.code and self.numbers.get("name") == other.numbers.get("name")

    def with_fixes(self, fixes: Iterable[Fix], tried: Iterable[tuple[Fix, list[str]]] = ()) -> Finding:
        """The same finding with other fixes."""
        return Finding(self.code, self.severity, self.numbers, fixes, tried)

    def to_dict(self, lang: str = "en") -> dict[str, Any]:
        """Plain data for JSON."""
        held = {
            "code": self.code,
            "severity": self.severity,
            "title": self.told("title", lang),
            "message": self.told("message", lang),
            "why": self.told("why", lang),
            "numbers": dict(self.numbers),
            "fixes": [fix.to_dict(lang) for fix in self.fixes],
        }
        if self.tried:
            held["tried"] = [{**fix.to_dict(lang), "brings": brings} for fix, brings in self.tried]
        return held

    def __repr__(self) -> str:
        return f"Finding({self.code!r}, {self.severity!r}, {dict(self.numbers)!r}, {list(self.fixes)!r})"


def worst(findings: Iterable[Finding]) -> str | None:
    """The worst severity among findings, None where there are none.

    >>> worst([Finding("RA111", "error", {}), Finding("RA112", "note", {})])
    'error'
    """
    there = [finding.severity for finding in findings]
    return max(there, key=SEVERITIES.index, default=None)


def explaining_first(findings: Iterable[Finding]) -> list[Finding]:
    """The same findings, one that may be why there are others first: a configuration that is cut off.

    >>> from rankatlas.catalogue import said
    >>> cut = Finding("RA105", "note", {"note": said("noted.no_end", line=1)})
    >>> [one.code for one in explaining_first([Finding("RA110", "error", {}), cut])]
    ['RA105', 'RA110']
    """
    return sorted(findings, key=lambda one: getattr(one.numbers.get("note"), "code", "") != "noted.no_end")
