"""What is wrong with somebody's sampler, told by the shape of what each rank read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankatlas.sampling.shard import DataShard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy

    Array = numpy.ndarray[Any, Any]

_SHOWN = 6


class Finding:
    """One thing that is wrong: its `kind`, stable for programs, and a `text`."""

    __slots__ = ("kind", "text")

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        self.text = text

    def __repr__(self) -> str:
        return f"Finding({self.kind!r}, {self.text!r})"


class Reading:
    """Who read what: by rank, by data rank (its lowest rank stands for it), and what that covers of `n` samples."""

    __slots__ = ("by_data_rank", "by_rank", "covered", "dropped", "n", "padded", "read", "shard", "wrong")

    def __init__(
        self,
        shard: DataShard,
        by_rank: dict[int, Array],
        by_data_rank: dict[int, Array],
        n: int,
        covered: int,
        wrong: list[int],
        dropped: int,
        padded: int,
    ) -> None:
        self.shard = shard
        self.by_rank = by_rank
        self.by_data_rank = by_data_rank
        self.n = n
        self.covered = covered
        self.wrong = wrong
        self.dropped = dropped
        self.padded = padded
        self.read = sum(map(len, by_data_rank.values()))


def findings_of(reading: Reading) -> list[Finding]:
    """Everything that is wrong, the cause first where its shape is known.  Cost: O(samples read)."""
    found = list(_peers(reading))
    if any(finding.kind == "sharded-by-world" for finding in found):
        return found  # what the data ranks cover together follows from it
    return [*found, *_shares(reading)]


def _peers(reading: Reading) -> Iterator[Finding]:
    """Ranks of one data rank that read other samples than their peers."""
    if not reading.wrong:
        return
    shard, world = reading.shard, reading.shard.mesh.world_size
    rank = reading.wrong[0]
    peers = shard.agreement_group(rank)
    first = next(other for other in peers if other in reading.by_rank)
    told = (
        f"{len(reading.wrong)} ranks read other samples than their peers: rank {rank} reads"
        f" {_some(reading.by_rank[rank])}, rank {first} of the same data rank {_some(reading.by_rank[first])}"
    )
    if len(reading.by_rank) == world and _apart(reading.by_rank.values()):
        told += (
            f".  Every one of the {world} ranks reads a part of its own: the sampler shards by the world.  Give it"
            f" num_replicas={shard.data_size} and rank=the data rank ({shard.along} coordinate)"
        )
        yield Finding("sharded-by-world", told)
    elif all(_alike(reading.by_rank[other], _first(reading, other)) for other in reading.wrong):
        told += ".  They are the same samples in another order: the seeds, or the epochs set, differ between peers"
        yield Finding("peers-order", told)
    else:
        told += f".  Ranks that differ only along {_rest(shard)} must read the same"
        yield Finding("peers-disagree", told)


def _shares(reading: Reading) -> Iterator[Finding]:
    """Data ranks that together do not read every sample once."""
    n, covered, read, size = reading.n, reading.covered, reading.read, reading.shard.data_size
    parts = list(reading.by_data_rank.values())
    absent = [rank for rank in range(min(size, len(parts) + _SHOWN)) if rank not in reading.by_data_rank]
    lengths = [len(part) for part in parts]
    outside = sum(int((part >= n).sum()) for part in parts)
    missing, again = n - covered, read - covered - outside
    counted = f"{covered} of {n} samples are read"
    if outside:
        yield Finding("outside", f"{outside} indexes read are outside 0 to {n - 1}: there are {n} samples")
    if absent:
        listed = ", ".join(map(str, absent[:_SHOWN]))
        yield Finding("data-rank-unknown", f"{counted}: the table has no rank of data ranks {listed} (of {size})")
    elif missing <= reading.dropped and again <= reading.padded and max(lengths) == min(lengths):
        return
    elif size > 1 and missing == 0 and all(_alike(parts[0], part) for part in parts[1:]):
        yield Finding(
            "not-sharded",
            f"{counted}, each by all {size} data ranks: the sampler does not shard.  Give it num_replicas={size} and"
            " rank=the data rank",
        )
    elif size > 1 and read and all(_same(parts[0], part) for part in parts[1:]):
        yield Finding(
            "one-share-for-all",
            f"{counted}: all {size} data ranks read the same share, as if each were data rank 0.  Give the sampler"
            " rank=the data rank",
        )
    elif size > 1 and 0 < covered <= missing and not again and _is_squared(lengths, n, size):
        yield Finding(
            "sharded-twice",
            f"{counted}: each data rank reads 1 of {size} of its own share, so the loader is sharded twice (a sampler"
            " that shards, and a wrapper that shards again).  Leave one of the two out",
        )
    elif max(lengths) != min(lengths):
        shares = ", ".join(map(str, lengths[:_SHOWN]))
        yield Finding(
            "tail-per-rank",
            f"{counted}, but data ranks read {shares}{', …' if len(lengths) > _SHOWN else ''} samples each: every rank"
            " deals with its own tail, and the ranks with more wait for the others at the end.  Decide the tail once,"
            " for the global order",
        )
    else:
        yield _uneven(reading, missing, again, counted)


def _uneven(reading: Reading, missing: int, again: int, counted: str) -> Finding:
    """Shares of one length that leave samples out, or read some again."""
    size = reading.shard.data_size
    if again and not missing and again < size:
        return Finding(
            "padded",
            f"{counted}, {again} of them twice: the last share was filled up.  Without pad, {reading.n} samples are no"
            f" multiple of {size} data ranks",
        )
    if missing and not again and _ends_missing(reading, missing):
        return Finding(
            "tail-per-rank",
            f"{counted}: every data rank leaves out the last {missing // size} of its own share of"
            f" {reading.n // size}.  Decide the tail once, for the global order, and at most one batch is left out",
        )
    what = [f"{missing} are missing"] if missing else []
    what += [f"{again} reads repeat a sample"] if again else []
    told = f"{counted}: {' and '.join(what)}"
    if missing < reading.read and not again:
        told += f".  Where a global batch drops its tail on purpose, say dropped={missing}"
    return Finding("missing" if missing else "repeated", told)


def _ends_missing(reading: Reading, missing: int) -> bool:
    """Whether shares are contiguous blocks of the data that each lack their own end."""
    size = reading.shard.data_size
    block = reading.n // size
    if missing % size or not block:
        return False
    return all(
        len(part) and int(part.min()) >= rank * block and int(part.max()) < (rank + 1) * block
        for rank, part in reading.by_data_rank.items()
    )


def _is_squared(lengths: list[int], n: int, size: int) -> bool:
    """Whether shares are as long as those of a sampler that shards a share again: n / size², rounded up or down."""
    low = n // size // size
    share = (n + size - 1) // size
    high = (share + size - 1) // size
    return all(low <= length <= high for length in lengths)


def _apart(parts: Iterable[Array]) -> bool:
    """Whether no sample is in two of `parts`, but for a filled-up end."""
    import numpy

    parts = list(parts)
    every = numpy.concatenate(parts)
    return len(every) - len(numpy.unique(every)) < len(parts)


def _alike(one: Array, other: Array) -> bool:
    """Whether two hold the same samples in any order."""
    import numpy

    return _same(numpy.sort(one), numpy.sort(other))


def _same(one: Array, other: Array) -> bool:
    return len(one) == len(other) and bool((one == other).all())


def _first(reading: Reading, rank: int) -> Array:
    return reading.by_data_rank[reading.shard.data_rank(rank)]


def _rest(shard: DataShard) -> str:
    return ", ".join(axis for axis in shard.mesh.axes if axis not in shard.axes)


def _some(part: Array) -> str:
    return f"{part[:_SHOWN].tolist()}{' …' if len(part) > _SHOWN else ''}"
