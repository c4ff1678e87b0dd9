"""An epoch proven to be read exactly once, piece by piece: nothing is held but the piece that is looked at."""

from __future__ import annotations

from collections.abc import Iterator

from rankatlas.errors import DataCoverageError, InputError
from rankatlas.sampling.sampler import ShardedSampler

_PIECE = 1 << 20  # positions looked at together
_MOST = 1 << 26  # positions of one micro-step that can be held


def proven(samplers: list[ShardedSampler]) -> Iterator[int]:
    """Go through the epoch of `samplers`, one of every data rank, and yield how many positions are proven so far.

    Of every piece of the epoch two things are shown.  The positions that the samplers take are those of the piece, each
    once.  And the order maps the positions to samples from which it maps back to the same positions; a map of [0, n)
    into itself that can be undone everywhere gives every sample once.  Cost: O(n) time, O(1) memory.

    Raises DataCoverageError at the first piece of which that is not so, InputError when a micro-step is too large to
    be held (2^26 samples).

    >>> from rankatlas import Mesh
    >>> from rankatlas.sampling import DataShard
    >>> shard = DataShard(Mesh(dp=2))
    >>> list(proven([ShardedSampler(1000, shard, rank, global_batch=4, micro_batch=2) for rank in range(2)]))
    [1000]
    """
    import numpy

    one = samplers[0]
    width, n = one.plan.micro_step, one.order.n
    if width > _MOST:
        raise InputError(
            f"a micro-step of {width} samples is too large to be proven piece by piece; {_MOST} are the most"
        )
    count = one.micro_batches
    rows = max(1, _PIECE // width)
    for first in range(0, count, rows):
        some = min(rows, count - first)
        start = first * width
        times = numpy.zeros(some * width, dtype=numpy.uint16)
        for sampler in samplers:
            times[sampler.positions(first, some).reshape(-1) - start] += 1
        places = numpy.arange(start, min(start + some * width, n))
        read = one.order(places) if len(places) else places
        if (times != 1).any() or (len(places) and (one.order.position(read) != places).any()):
            wrong = int(numpy.flatnonzero(times != 1)[0] + start) if (times != 1).any() else start
            raise DataCoverageError(
                f"position {wrong} of the epoch is not read exactly once: this is a defect of rankatlas",
                kinds=("defect",),
                samples=n,
                covered_count=start,
                covered=[],
                missing=[],
                repeated=[],
                ranks=[],
            )
        yield start + some * width
