"""What is wrong with somebody's sampler, told by the shape of what each rank read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankatlas.sampling.shapes import (
    alike,
    around,
    ascending,
    dealt_out,
    filled_up,
    left_of_shares,
    repeats,
    same,
    sharded_twice,
)
from rankatlas.sampling.shard import DataShard

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy

    Array = numpy.ndarray[Any, Any]

_SHOWN = 6
WAYS = ("say dropped={}", "say padded={}")  # how a caller allows that samples are dropped, and that some come again


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

    __slots__ = ("by_data_rank", "by_rank", "covered", "dropped", "n", "padded", "read", "shard", "ways", "wrong")

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
        ways: tuple[str, str],
    ) -> None:
        self.shard = shard
        self.by_rank = by_rank
        self.by_data_rank = by_data_rank
        self.n = n
        self.covered = covered
        self.wrong = wrong
        self.dropped = dropped
        self.padded = padded
        self.ways = ways
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
    shard, n, by_rank = reading.shard, reading.n, reading.by_rank
    rank = reading.wrong[0]
    peers = shard.agreement_group(rank)
    first = next(other for other in peers if other in by_rank)
    several = len(reading.wrong) > 1
    told = (
        f"{len(reading.wrong)} {'ranks read' if several else 'rank reads'} other samples than"
        f" {'their' if several else 'its'} peers: rank {rank} reads"
        f" {_some(by_rank[rank])}, rank {first} of the same data rank {_some(by_rank[first])}"
    )
    world, heard = shard.mesh.world_size, len(by_rank)
    parts = list(by_rank.values())
    # Ranks whose seeds differ also read apart while they have read little; of half the data they could not.
    much = 2 * world * sum(map(len, parts)) >= n * heard
    if _apart(reading, parts):
        ranks = f"the {world} ranks" if heard == world else f"the {heard} ranks in the table"
        told += f".  Every one of {ranks} reads a part of its own: "
        advice = f"Give it {_told_replicas(shard)}"
        if much or _is_prefix(parts):
            yield Finding("sharded-by-world", f"{told}the sampler shards by the world.  {advice}")
        else:
            yield Finding(
                "peers-disagree",
                f"{told}the sampler shards by the world, or the seeds, or the epochs set, differ between peers and they"
                f" have read too little to meet.  In the first case: {advice[0].lower()}{advice[1:]}",
            )
    elif all(alike(by_rank[other], _first(reading, other)) for other in reading.wrong):
        told += ".  They are the same samples in another order: the seeds, or the epochs set, differ between peers"
        yield Finding("peers-order", told)
    else:
        told += f".  Ranks that differ only along {_rest(shard)} must read the same"
        yield Finding("peers-disagree", told)


def _shares(reading: Reading) -> Iterator[Finding]:
    """Data ranks that together do not read every sample once."""
    n, covered, read, size = reading.n, reading.covered, reading.read, reading.shard.data_size
    parts = [reading.by_data_rank[rank] for rank in sorted(reading.by_data_rank)]
    absent = [rank for rank in range(min(size, len(parts) + _SHOWN)) if rank not in reading.by_data_rank]
    lengths = [len(part) for part in parts]
    outside = sum(int((part >= n).sum()) for part in parts)
    missing, again = n - covered, read - covered - outside
    counted = f"{covered} of {n} samples are read"
    if outside:
        yield Finding("outside", f"{outside} indexes read are outside 0 to {n - 1}: there are {n} samples")
    if not read:
        yield Finding(
            "missing",
            f"{counted}: no rank in the table reads anything, so nothing is proven.  Take down what the ranks read, and"
            " check again",
        )
    elif absent:
        listed = ", ".join(map(str, absent[:_SHOWN]))
        yield Finding("data-rank-unknown", f"{counted}: the table has no rank of data ranks {listed} (of {size})")
    elif missing <= reading.dropped and again <= reading.padded and max(lengths) == min(lengths):
        return
    elif size > 1 and missing == 0 and all(alike(parts[0], part) for part in parts[1:]):
        yield Finding(
            "not-sharded",
            f"{counted}, each by all {size} data ranks: the sampler does not shard.  Give it"
            f" {_told_replicas(reading.shard)}",
        )
    elif size > 1 and all(same(parts[0], part) for part in parts[1:]):
        yield Finding(
            "one-share-for-all",
            f"{counted}: all {size} data ranks read the same share, as if each were data rank 0, or as if there were"
            f" one.  Give the sampler {_told_replicas(reading.shard)}",
        )
    else:
        yield _part_of_shares(reading, parts, lengths, missing, again, counted) or (
            _unequal(reading, parts, lengths, missing, again, counted)
            if max(lengths) != min(lengths)
            else _equal(reading, parts, missing, again, counted)
        )


def _part_of_shares(
    reading: Reading, parts: list[Array], lengths: list[int], missing: int, again: int, counted: str
) -> Finding | None:
    """Data ranks that each read a fraction of what is theirs: what can be the cause, or None where nothing is known."""
    n, shard, covered = reading.n, reading.shard, reading.covered
    size, world = shard.data_size, shard.mesh.world_size
    if not missing or again > _filling(n, size, size):
        return None
    in_order = ascending(parts)
    unfinished = not again and max(lengths) - min(lengths) <= 1 and (_is_prefix(parts) or _is_early(reading))
    alone = len(reading.by_rank) == len(parts) < world  # no rank in the table has a peer there
    by_world = alone and not unfinished and around(lengths, n, world) and filled_up(parts, _filling(n, world))
    fits_twice = n >= size * size and covered - missing <= size * size and around(lengths, n, size, size)
    twice = size > 1 and not unfinished and fits_twice
    if unfinished:
        told = (
            f"{counted}, {'the first ones' if _is_prefix(parts) else 'the first ones of each share'}: this looks like"
        )
        told += " an unfinished epoch.  Check it once it is read to its end"
        return Finding("unfinished", told + _allowance(reading, missing, again))
    if twice and not by_world and sharded_twice(reading.by_data_rank, n, size):
        return Finding(
            "sharded-twice",
            f"{counted}: each data rank reads 1 of {size} of its own share, so the loader is sharded twice (a sampler"
            " that shards, and a wrapper that shards again).  Leave one of the two out",
        )
    causes = []
    if by_world:
        causes.append(
            f"the sampler shards by the world of {world} ranks, and the table has one rank of each data rank (give it"
            f" {_told_replicas(shard)})"
        )
    if twice:
        causes.append(
            "the loader is sharded twice, by a sampler that shards and a wrapper that shards again (leave one of the"
            " two out)"
        )
    if causes and not in_order and not again:
        causes.append("the epoch is unfinished (check it once it is read to its end)")
    if not causes:
        return None
    told = f"{counted}, {max(lengths)} by each data rank whose share is {-(-n // size)}.  What fits: "
    told += "; or ".join(causes)
    if by_world:
        told += ".  A table with all ranks tells which"
    return Finding("part-of-each-share", told)


def _unequal(
    reading: Reading, parts: list[Array], lengths: list[int], missing: int, again: int, counted: str
) -> Finding:
    """Shares of different lengths: tails of each rank's own where they look so, else what is missing and repeated."""
    shares = ", ".join(map(str, lengths[:_SHOWN])) + (", …" if len(lengths) > _SHOWN else "")
    told = f"{counted}, but data ranks read {shares} samples each"
    left = left_of_shares(reading.by_data_rank, reading.n, reading.shard.data_size)
    tails = left is not None and all(3 * rest <= len(part) for rest, part in zip(left, reading.by_data_rank.values()))
    if not again and (dealt_out(lengths) if not missing else tails):
        return Finding(
            "tail-per-rank",
            f"{told}: every rank deals with its own tail, and the ranks with more wait for the others at the end. "
            " Decide the tail once, for the global order",
        )
    if not missing and not again:
        return Finding(
            "uneven-shares",
            f"{told}: every sample is read once, but the ranks with more wait for the others at the end.  Give every"
            " data rank a share of one length",
        )
    told = f"{counted}, and data ranks read {shares} samples: {_counts(reading, missing, again)}"
    silent = [rank for rank in sorted(reading.by_data_rank) if not len(reading.by_data_rank[rank])]
    if silent:
        which = f"Data rank {silent[0]} reads" if len(silent) == 1 else f"Data ranks {_ranks(silent)} read"
        told += f".  {which} nothing at all, as where a reader ended"
    elif not again and not ascending(parts):
        told += ".  Lost samples look so, and so do an unfinished epoch and tails that every rank drops for itself"
    return Finding("missing" if missing else "repeated", told)


def _equal(reading: Reading, parts: list[Array], missing: int, again: int, counted: str) -> Finding:
    """Shares of one length that leave samples out, or read some again."""
    n, size = reading.n, reading.shard.data_size
    if again and not missing and filled_up(parts, _filling(n, size)):
        return Finding(
            "padded",
            f"{counted}, {again} of them twice: the last share was filled up.  Without pad, {n} samples are no"
            f" multiple of {size} data ranks{_allowance(reading, missing, again)}",
        )
    left = left_of_shares(reading.by_data_rank, n, size)
    if missing and not again and left is not None:
        return Finding(
            "tail-per-rank",
            f"{counted}: every data rank leaves out the last {max(left)} of its own share of {n // size}.  Decide the"
            " tail once, for the global order, and at most one batch is left out",
        )
    told = f"{counted}: {_counts(reading, missing, again)}"
    if missing and not again and not ascending(parts):
        told += ".  Lost samples look so, and so does an unfinished epoch"
    return Finding("missing" if missing else "repeated", told + _allowance(reading, missing, again))


def _counts(reading: Reading, missing: int, again: int) -> str:
    """What is missing and what comes again, in numbers, and who reads its own samples again."""
    what = [f"{missing} {'is' if missing == 1 else 'are'} missing"] if missing else []
    if again:
        what.append(f"{again} read{' repeats' if again == 1 else 's repeat'} a sample")
    told = " and ".join(what)
    by_data_rank = reading.by_data_rank
    own = {rank: count for rank in sorted(by_data_rank) if (count := repeats([by_data_rank[rank]]))} if again else {}
    if own:
        listed = ", ".join(f"{count} of data rank {rank}" for rank, count in [*own.items()][:_SHOWN])
        told += f" (that the same data rank had read: {listed}{', …' if len(own) > _SHOWN else ''})"
    return told


def _allowance(reading: Reading, missing: int, again: int) -> str:
    """How the caller says that this is on purpose, where it can be."""
    if missing and not again and missing < reading.read:
        return f".  Where a global batch drops its tail on purpose, {reading.ways[0].format(missing)}"
    if again and not missing and again < reading.covered:
        return f".  Where the last batch is filled up on purpose, {reading.ways[1].format(again)}"
    return ""


def _apart(reading: Reading, parts: list[Array]) -> bool:
    """Whether every rank reads for itself, no more than its part of the world, and peers have nothing in common."""
    n, world = reading.n, reading.shard.mesh.world_size
    if len(parts) < world and max(map(len, parts)) > -(-n // world):
        return False
    return all(map(len, parts)) and filled_up(parts, _filling(n, world)) and _peers_apart(reading)


def _peers_apart(reading: Reading) -> bool:
    by_data_rank: dict[int, list[Array]] = {}
    for rank, part in reading.by_rank.items():
        by_data_rank.setdefault(reading.shard.data_rank(rank), []).append(part)
    return not any(alike(peers[0], other) for peers in by_data_rank.values() for other in peers[1:])


def _filling(n: int, *sizes: int) -> int:
    """The most samples that come again where n are divided by each of `sizes` in turn, and shares are filled up."""
    share, again, shares = n, 0, 1
    for size in sizes:
        again += shares * (-share % size)
        share, shares = -(-share // size), shares * size
    return again


def _is_prefix(parts: list[Array]) -> bool:
    """Whether what is read is the samples 0 to some k, each once: the beginning of an order that is not shuffled."""
    read = sum(map(len, parts))
    return read > 0 and max(int(part.max()) for part in parts if len(part)) == read - 1 and not repeats(parts)


def _is_early(reading: Reading) -> bool:
    """Whether each data rank has read the beginning of its own share and leaves much of it."""
    left = left_of_shares(reading.by_data_rank, reading.n, reading.shard.data_size)
    return left is not None and any(3 * rest > len(part) for rest, part in zip(left, reading.by_data_rank.values()))


def _first(reading: Reading, rank: int) -> Array:
    return reading.by_data_rank[reading.shard.data_rank(rank)]


def _told_replicas(shard: DataShard) -> str:
    return f"num_replicas={shard.data_size} and rank=the data rank ({shard.along} coordinate)"


def _rest(shard: DataShard) -> str:
    return ", ".join(axis for axis in shard.mesh.axes if axis not in shard.axes)


def _ranks(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:_SHOWN])) + (", …" if len(ranks) > _SHOWN else "")


def _some(part: Array) -> str:
    return f"{part[:_SHOWN].tolist()}{' …' if len(part) > _SHOWN else ''}"
