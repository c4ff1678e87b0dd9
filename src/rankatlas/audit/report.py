"""What an audit found: data, one line for a log, and an error for who wants to stop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rankatlas.errors import AuditError, shown

_SHOWN = 8
_LONGEST = 200  # characters of a name


class Finding:
    """One thing that is wrong.

    `kind` is "copies differ" (equal ones were due), "shards equal" (different ones were due), "shapes differ" (dtype or
    shape), "missing" (a copy that some ranks lack), "layouts differ" (ranks mean different groups by one name) or
    "streams equal" (two streams at one place); `name` says of what, `axes` along which, `ranks` are the group.
    `odd_ranks` are those that are not like the most of it (of equally many, like its lowest rank, though nobody knows
    then who is right); of equal shards, those that share one value.  `amount` is the largest difference of two elements
    (of a complex number, of its parts), None where none was measured or none is to see in numbers; `how` says then what
    differs, such as the sign of a zero.
    """

    __slots__ = ("amount", "axes", "how", "kind", "name", "odd_ranks", "ranks")

    def __init__(
        self,
        kind: str,
        name: str,
        axes: tuple[str, ...],
        ranks: list[int],
        odd_ranks: list[int],
        amount: float | None = None,
        how: str | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.axes = axes
        self.ranks = ranks
        self.odd_ranks = odd_ranks
        self.amount = amount
        self.how = how

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {name: getattr(self, name) for name in ("kind", "name", "axes", "ranks", "odd_ranks", "amount", "how")}

    def __str__(self) -> str:
        along = f" along {'+'.join(self.axes)}" if self.axes else ""
        by = "" if self.amount is None else f" by up to {self.amount:.3g}"
        by += f" ({self.how})" if self.how else ""
        plain = self.name.isprintable() and len(self.name) <= _LONGEST
        name = self.name if plain else shown(self.name)  # a line for a log is one line
        kind = "dtypes or shapes differ" if self.kind == "shapes differ" else self.kind
        rest = [rank for rank in self.ranks if rank not in self.odd_ranks]
        if self.kind.endswith("differ") and 0 < len(rest) <= len(self.odd_ranks):  # nobody knows which is right
            return f"{name}: {kind}{along}{by} between {_ranks(rest)} and {_ranks(self.odd_ranks)}"
        return f"{name}: {kind}{along}{by} on {_ranks(self.odd_ranks)} of {shown(self.ranks)}"

    def __repr__(self) -> str:
        return f"Finding({str(self)!r})"


class AuditReport:
    """The outcome of an audit: one verdict for all ranks, and on each what is wrong in the groups it is in.

    `what` was audited, `findings` is what is wrong here, `bad_ranks` are the ranks that have findings, the same on all
    ranks, `checked` how many things were compared, `bytes` how many of this
    rank's were read, `seconds` how long it took, `notes` what could not be compared and why; `unchecked` is reason →
    how many things were compared with nobody's.

    >>> report = AuditReport("replicas", [], checked=12, bytes=48_000, seconds=0.01)
    >>> report.ok, report.line
    (True, 'replicas: 12 compared, all as they should be (48,000 bytes, 0.010 s)')
    """

    __slots__ = ("bad_ranks", "bytes", "checked", "findings", "notes", "seconds", "unchecked", "what")

    def __init__(
        self,
        what: str,
        findings: Iterable[Finding],
        *,
        checked: int,
        bytes: int,
        seconds: float,
        notes: Iterable[str] = (),
        unchecked: Mapping[str, int] | None = None,
        bad_ranks: Iterable[int] = (),
    ) -> None:
        self.what = what
        self.bad_ranks = tuple(bad_ranks)
        self.findings = tuple(findings)
        self.checked = checked
        self.bytes = bytes
        self.seconds = seconds
        self.notes = tuple(notes)
        self.unchecked = dict(unchecked or {})

    @property
    def ok(self) -> bool:
        """Whether nothing was found on any rank."""
        return not self.findings and not self.bad_ranks

    @property
    def line(self) -> str:
        """One line for a log."""
        cost = f"({self.bytes:,} bytes, {self.seconds:.3f} s)"
        left = "".join(f"; {count:,} not compared: {why}" for why, count in self.unchecked.items())
        left += "".join(f"; {note}" for note in self.notes)
        if not self.findings:
            there = f", but something is wrong on {_ranks(list(self.bad_ranks))}" if self.bad_ranks else ""
            all_ = "all as they should be" + (" here" if there else "")
            told = f"{self.checked:,} compared, {all_}" if self.checked else "nothing was compared"
            return f"{self.what}: {told}{there} {cost}{left}"
        told = "; ".join(map(str, self.findings[:_SHOWN]))
        more = f"; {len(self.findings) - _SHOWN} more" if len(self.findings) > _SHOWN else ""
        of = f" of {self.checked:,}" if self.checked >= len(self.findings) else ""  # others may hold more things
        return f"{self.what}: {len(self.findings):,}{of} are wrong {cost}: {told}{more}{left}"

    def raise_if_bad(self) -> None:
        """Nothing where all is well.  Raises AuditError on every rank where something is wrong on any.

        So that nobody goes on alone into the next collective.
        """
        if not self.ok:
            raise AuditError(self.line, findings=[finding.to_dict() for finding in self.findings])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        facts = {name: getattr(self, name) for name in ("what", "ok", "checked", "bytes", "seconds")}
        findings = [one.to_dict() for one in self.findings]
        return {
            **facts,
            "findings": findings,
            "bad_ranks": list(self.bad_ranks),
            "notes": list(self.notes),
            "unchecked": dict(self.unchecked),
        }

    def __repr__(self) -> str:
        return f"AuditReport({self.line!r})"


def _ranks(ranks: list[int]) -> str:
    told = ", ".join(map(str, ranks[:_SHOWN])) + (", ..." if len(ranks) > _SHOWN else "")
    return f"rank {told}" if len(ranks) == 1 else f"ranks {told}"
