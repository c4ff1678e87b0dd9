"""Somebody's sampler held against the layout: is every sample read once, by one data rank, and by all its peers?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rankatlas.core.border import as_int
from rankatlas.errors import DataCoverageError, InputError, IntegerError, RankError, shown
from rankatlas.sampling.diagnosis import Finding, Reading, findings_of
from rankatlas.sampling.order import MOST_SAMPLES
from rankatlas.sampling.order import samples as sample_count
from rankatlas.sampling.shard import DataShard

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

_LISTED = 1024
_CHUNK = 1 << 20
_DENSE = 64  # a table of all samples is made where there are at most this many times as many as were read


class Coverage:
    """What samples were read by whom: `samples`, `covered`, `per_data_rank` (of the first few), `findings`.

    `unheard` counts ranks the table says nothing about while a peer of theirs is in it.
    """

    __slots__ = (
        "covered",
        "findings",
        "first_covered",
        "missing",
        "per_data_rank",
        "repeated",
        "samples",
        "unheard",
        "wrong_ranks",
    )

    def __init__(
        self,
        samples: int,
        counts: _Counts,
        per_data_rank: list[int],
        unheard: int,
        wrong_ranks: list[int],
        findings: list[Finding],
    ) -> None:
        self.samples = samples
        self.covered = counts.number
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
        told = [finding.text for finding in self.findings]
        return told or [f"all {self.covered} of {self.samples} samples are read exactly once"]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "ok": self.ok,
            "samples": self.samples,
            "covered": self.covered,
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

    `samples_by_rank` maps ranks (ints, or their digits) to the samples they read, in order, as ints, arrays or batches
    of them; or it lists them by rank.  Ranks may be left out as long as one of every data rank is there.  `samples` is
    the size of the data set, by default one more than the largest index read.  `dropped` samples may be missing and
    `padded` may come twice.  Cost: O(samples read) time, at most one byte per sample of memory beside them.

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
) -> Coverage:
    """As `coverage`, with what was found as a value and no error for it."""
    by_rank = _arrays(samples_by_rank, shard)
    dropped, padded = as_int(dropped, "dropped"), as_int(padded, "padded")
    by_data_rank: dict[int, Array] = {}
    wrong: list[int] = []
    for rank, read in by_rank.items():
        first = by_data_rank.setdefault(shard.data_rank(rank), read)
        if first is not read and not _same(first, read):
            wrong.append(rank)
    highest = max((int(read.max()) for read in by_rank.values() if read.size), default=-1)
    n = sample_count(samples) if samples is not None else max(1, highest + 1)
    counts = _Counts(list(by_data_rank.values()), n)
    reading = Reading(shard, by_rank, by_data_rank, n, counts.number, wrong, dropped, padded)
    lengths = [len(by_data_rank[rank]) for rank in sorted(by_data_rank)[:_LISTED]]
    unheard = sum(shard.agreement_group(shard.mesh.first_rank).size for _ in by_data_rank) - len(by_rank)
    return Coverage(n, counts, lengths, unheard, wrong[:_LISTED], findings_of(reading))


def _same(one: Array, other: Array) -> bool:
    return len(one) == len(other) and bool((one == other).all())


def _arrays(table: object, shard: DataShard) -> dict[int, Array]:
    """rank → its samples as a flat int64 array, ranks ascending."""
    if isinstance(table, Mapping):
        pairs = [(_rank(key), read) for key, read in table.items()]
    elif isinstance(table, Iterable) and not isinstance(table, (str, bytes)):
        pairs = list(enumerate(table, start=shard.mesh.first_rank))
    else:
        raise InputError(f"samples by rank are a mapping of ranks, or a list by rank, not {shown(table)}")
    if not pairs:
        raise InputError("samples by rank are empty: nothing is known of any rank")
    pairs.sort(key=lambda pair: pair[0])
    for (rank, _), (following, _) in pairwise(pairs):
        if rank == following:
            raise InputError(f"rank {rank} stands twice in the samples by rank")
    first, size = shard.mesh.first_rank, shard.mesh.world_size
    for rank in (pairs[0][0], pairs[-1][0]):
        if not first <= rank < first + size:
            raise RankError(
                f"rank {rank} of the samples by rank is not in {shard.mesh}, whose ranks are {first} to"
                f" {first + size - 1}",
                rank=rank,
                first_rank=first,
                world_size=size,
            )
    return {rank: _array(rank, read) for rank, read in pairs}


def _rank(key: object) -> int:
    if isinstance(key, str):
        if not (key.isascii() and key.isdigit() and len(key) < 20):
            raise InputError(f"samples by rank have ranks as keys, not {shown(key)}")
        return int(key)
    return as_int(key, "a rank")


def _array(rank: int, read: object) -> Array:
    """The samples of one rank, flat; batches of them may have different lengths."""
    import numpy

    flat: Any = read
    if not isinstance(read, numpy.ndarray):
        if isinstance(read, (str, bytes, Mapping)) or not isinstance(read, Iterable):
            raise InputError(f"the samples of rank {rank} are a list of ints, not {shown(read)}")
        flat = []
        for item in read:
            if isinstance(item, Iterable) and not isinstance(item, (str, bytes, Mapping)):
                flat.extend(item)
            else:
                flat.append(item)
        if not flat:
            return numpy.empty(0, numpy.int64)
        if any(type(item) is not int for item in flat):
            flat = [as_int(item, f"a sample of rank {rank}") for item in flat]
        if not 0 <= min(flat) <= max(flat) < MOST_SAMPLES:
            raise _bad_sample(rank, min(flat) if min(flat) < 0 else max(flat))
        return numpy.array(flat, dtype=numpy.int64)
    if flat.dtype.kind not in "iu":
        raise IntegerError(f"the samples of rank {rank} must be integers, not {flat.dtype}", what="samples", value=rank)
    if flat.size and not 0 <= int(flat.min()) <= int(flat.max()) < MOST_SAMPLES:
        raise _bad_sample(rank, int(flat.min()) if flat.min() < 0 else int(flat.max()))
    found: Array = flat.reshape(-1).astype(numpy.int64, copy=False)
    return found


def _bad_sample(rank: int, sample: int) -> InputError:
    return InputError(f"rank {rank} reads sample {shown(sample)}: samples count from 0, up to 2**62")


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
