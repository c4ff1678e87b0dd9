"""Which changes really help: each is tried on the numbers, and those are offered that bring no other error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rankatlas.checks.finding import Finding, Fix
from rankatlas.checks.numbers import Numbers

_MOST_TRIED = 4  # changes that are repaired by a second one, and that are told where none helps
_MOST_SECOND = 6  # second changes tried for one
_MOST_OFFERED = 4

Checks = Callable[[Numbers], Iterable[Finding]]


def errors_of(findings: Iterable[Finding]) -> list[str]:
    """The codes among findings that are errors, each once."""
    return list(dict.fromkeys(finding.code for finding in findings if finding.severity == "error"))


def proven(finding: Finding, numbers: Numbers, checks: Checks) -> Finding:
    """The finding with those of its changes that make it go away and bring no error that was not there before.

    Those that leave the fewest other findings come first, else they stay in their order.
    Where none does, changes of two kinds are tried: one of its own, and one that puts right what that one breaks.
    Where these do not help either, none is offered, and `tried` says what each would bring.
    """
    before = [*errors_of(checks(numbers)), finding.code]
    clean, tried = [], []
    left: dict[int, int] = {}
    for fix in finding.fixes:
        after = list(checks(numbers.changed(fix.changes)))
        if any(map(finding.is_also, after)):
            continue
        broken = [code for code in errors_of(after) if code not in before]
        if broken:
            tried.append((fix, broken))
        else:
            left[id(fix)] = sum(other.severity != "note" for other in after)
            clean.append(fix)
    clean.sort(key=lambda fix: left[id(fix)])
    if not clean:
        clean = [pair for fix, broken in tried[:_MOST_TRIED] for pair in _pairs(finding, numbers, fix, before, checks)]
    return finding.with_fixes(clean[:_MOST_OFFERED] if tried else clean, () if clean else tried[:_MOST_TRIED])


def _pairs(finding: Finding, numbers: Numbers, fix: Fix, before: list[str], checks: Checks) -> Iterator[Fix]:
    """The first change that repairs what `fix` breaks, together with it."""
    changed = numbers.changed(fix.changes)
    wrong = [other for other in checks(changed) if other.severity == "error" and other.code not in before]
    seconds = [second.changes for other in wrong for second in other.fixes][:_MOST_SECOND]
    for second in seconds:
        if any(name in fix.changes for name in second):
            continue
        both = {**fix.changes, **second}
        after = list(checks(numbers.changed(both)))
        if any(map(finding.is_also, after)) or any(code not in before for code in errors_of(after)):
            continue
        yield Fix(both)
        return


def fitting(
    fixes: Iterable[Fix],
    numbers: Numbers,
    known: Iterable[str],
    checks: Checks,
    by_role: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> tuple[list[Fix], list[tuple[Fix, list[str]]]]:
    """The first changes of sizes that bring no error beside the `known` ones, and what others would bring.

    `by_role` gives the sizes of a change under the names that checks know.  Cost: O(fixes) runs of the checks.
    """
    known = tuple(known)
    clean: list[Fix] = []
    tried = []
    for fix in fixes:
        if len(clean) == _MOST_OFFERED:
            break
        after = checks(numbers.changed(by_role(fix.changes)))
        broken = [code for code in errors_of(after) if code not in known]
        if broken:
            tried.append((fix, broken))
        else:
            clean.append(fix)
    return clean, [] if clean else tried[:_MOST_TRIED]
