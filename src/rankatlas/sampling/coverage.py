"""Somebody's sampler held against the layout: is every sample read once, by one data rank, and by all its peers?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rankatlas.core.border import as_int
from rankatlas.errors import DataCoverageError, InputError
from rankatlas.sampling.diagnosis import WAYS, Finding, Reading, findings_of
from rankatlas.sampling.order import samples as sample_count
from rankatlas.sampling.shapes import same
from rankatlas.sampling.shard import DataShard
from rankatlas.sampling.table import samples_by_rank as table_of

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

_LISTED = 1024
_CHUNK = 1 << 20
_DENSE = 64  # a table of all samples is made where there are at most this many times as many as were read


class Coverage:
    """What samples were read by whom: `samples`, `covered`, `read`, `per_data_rank` (of the first few), `findings`.

    `read` counts every time that a data rank reads a sample, so also those that come again.  `unheard` counts ranks the
    table says nothing about while a peer of theirs is in it.
    """

    __slots__ = (
        "covered",
        "findings",
        "first_covered",
        "missing",
        "per_data_rank",
        "read",
        "repeated",
        "samples",
        "unheard",
        "wrong_ranks",
    )

    def __init__(
        self,
        samples: int,
        counts: _Counts,
        read: int,
        per_data_rank: list[int],
        unheard: int,
        wrong_ranks: list[int],
        findings: list[Finding],
    ) -> None:
        self.samples = samples
        self.covered = counts.number
        self.read = read
        self.first_covered = counts.covered
        self.missing = counts.missing
        self.repeated = counts.repeated
        self.per_data_rank = per_data_rank
        self.unheard = unheard
        self.wrong_ranks = wrong_ranks
        self.findings = findings

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def lines(self) -> list[str]:
        """What was found, in sentences."""
        if self.findings:
            return [finding.text for finding in self.findings]
        missing, again = self.samples - self.covered, self.read - self.covered
        told = f"{'' if missing else 'all '}{self.covered} of {self.samples} samples are read"
        told += f", and {again} read{' repeats' if again == 1 else 's repeat'} a sample" if again else " exactly once"
        told += f"; {missing} {'is' if missing == 1 else 'are'} left out" if missing else ""
        return [f"{told}, as is allowed" if missing or again else told]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "ok": self.ok,
            "samples": self.samples,
            "covered": self.covered,
            "read": self.read,
            "missing": self.missing,
            "repeated": self.repeated,
            "per_data_rank": self.per_data_rank,
            "ranks_not_in_the_table": self.unheard,
            "ranks_that_differ_from_a_peer": self.wrong_ranks,
            "findings": [{"kind": finding.kind, "text": finding.text} for finding in self.findings],
        }


def coverage(
    samples_by_rank: Mapping[Any, Any] | Iterable[Any],
    shard: DataShard,
    samples: int | None = None,
    *,
    dropped: int = 0,
    padded: int = 0,
) -> Coverage:
    """Prove that an epoch reads every sample exactly once, or say what is wrong and how that comes about.

    `samples_by_rank` maps ranks (ints, or their digits) to the samples they read, in order, as ints, arrays or tensors
    of any framework, or batches of them; or it lists them by rank.  Ranks may be left out as long as one of every data
    rank is there.  `samples` is the size of the data set, by default one more than the largest index read.  `dropped`
    samples may be missing and `padded` reads may repeat one; where nothing is read, nothing is proven.  Cost:
    O(samples read) time, at most one byte per sample of memory beside them.

    Raises DataCoverageError with a diagnosis, RankError, InputError, IntegerError (what is no table of samples).

    >>> from rankatlas import Mesh
    >>> coverage({0: [0, 2], 1: [0, 2], 2: [1, 3]}, DataShard(Mesh(dp=2, tp=2))).lines()
    ['all 4 of 4 samples are read exactly once']
    """
    found = examined(samples_by_rank, shard, samples, dropped=dropped, padded=padded)
    if found.ok:
        return found
    raise DataCoverageError(
        "\n".join(found.lines()),
        kinds=tuple(finding.kind for finding in found.findings),
        samples=found.samples,
        covered_count=found.covered,
        covered=found.first_covered,
        missing=found.missing,
        repeated=found.repeated,
        ranks=found.wrong_ranks,
    )


def examined(
    samples_by_rank: Mapping[Any, Any] | Iterable[Any],
    shard: DataShard,
    samples: int | None = None,
    *,
    dropped: int = 0,
    padded: int = 0,
    ways: tuple[str, str] = WAYS,
) -> Coverage:
    """As `coverage`, with what was found as a value and no error for it.

    `ways` are how the caller's user allows that samples are dropped and padded.
    """
    by_rank = table_of(samples_by_rank, shard)
    dropped, padded = _allowed(dropped, "dropped"), _allowed(padded, "padded")
    by_data_rank: dict[int, Array] = {}
    wrong: list[int] = []
    for rank, read in by_rank.items():
        first = by_data_rank.setdefault(shard.data_rank(rank), read)
        if first is not read and not same(first, read):
            wrong.append(rank)
    highest = max((int(read.max()) for read in by_rank.values() if read.size), default=-1)
    n = sample_count(samples) if samples is not None else highest + 1
    counts = _Counts(list(by_data_rank.values()), n)
    reading = Reading(shard, by_rank, by_data_rank, n, counts.number, wrong, dropped, padded, ways)
    lengths = [len(by_data_rank[rank]) for rank in sorted(by_data_rank)[:_LISTED]]
    unheard = sum(shard.agreement_group(shard.mesh.first_rank).size for _ in by_data_rank) - len(by_rank)
    return Coverage(n, counts, reading.read, lengths, unheard, wrong[:_LISTED], findings_of(reading))


def _allowed(number: object, what: str) -> int:
    """How many samples may be `what`.  Raises InputError (below 0), IntegerError."""
    count = as_int(number, what)
    if count < 0:
        raise InputError(f"{what}={count}: it is the number of samples that may be so, 0 or more")
    return count


class _Counts:
    """How many of [0, n) are read by `parts` together, and the first that are, that are missing, that come again."""

    __slots__ = ("covered", "missing", "number", "repeated")

    def __init__(self, parts: list[Array], n: int) -> None:
        import numpy

        self.number = 0
        self.covered: list[int] = []
        self.missing: list[int] = []
        self.repeated: list[int] = []
        if n > _DENSE * (sum(map(len, parts)) + _CHUNK):
            every, times = numpy.unique(numpy.concatenate(parts), return_counts=True)
            inside = every[every < n]
            self.number = len(inside)
            self.covered = inside[:_LISTED].tolist()
            self.missing = _gaps(inside.tolist(), n)
            self.repeated = every[times > 1][:_LISTED].tolist()
            return
        seen = numpy.zeros(n, dtype=numpy.uint8)
        for part in parts:
            for first in range(0, len(part), _CHUNK):
                some = part[first : first + _CHUNK]
                some, times = numpy.unique(some[some < n], return_counts=True)
                seen[some] = numpy.minimum(seen[some] + times, 2)
        for first in range(0, n, _CHUNK):
            block = seen[first : first + _CHUNK]
            self.number += int(numpy.count_nonzero(block))
            for found, holds in ((self.covered, block > 0), (self.missing, block == 0), (self.repeated, block > 1)):
                if len(found) < _LISTED:
                    found.extend((numpy.flatnonzero(holds)[: _LISTED - len(found)] + first).tolist())


def _gaps(ascending: list[int], n: int) -> list[int]:
    """The first of [0, n) that are not among `ascending`."""
    found: list[int] = []
    reached = 0
    for sample in [*ascending, n]:
        found += range(reached, min(sample, reached + _LISTED - len(found)))
        reached = sample + 1
    return found
