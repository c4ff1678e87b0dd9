"""One rank's share of an epoch: micro-batches of sample indexes out of the one global order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rankatlas.batches import BatchPlan
from rankatlas.core.sizes import divisors
from rankatlas.errors import BatchError, InputError, shown
from rankatlas.sampling.order import MOST_SAMPLES, Order, order_epoch, order_seed, samples
from rankatlas.sampling.shard import DataShard
from rankatlas.sampling.state import resumed, state_of

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

TAILS = ("drop", "pad", "error")
_CHUNK = 1 << 13  # samples whose indexes are worked out at once


class ShardedSampler:
    """The micro-batches of `rank`: int64 arrays of `micro_batch` sample indexes, in an order no layout changes.

    Batch b of an epoch is the samples at positions b·B to (b+1)·B − 1 of the global order (B is `global_batch`, in
    samples); in micro-step m of it, data rank d takes the positions from b·B + (m·data_size + d)·micro_batch on.  So at
    any moment what has been consumed is a prefix of the order, and one number tells it.

    `tail` settles once for all ranks what becomes of n modulo B samples: "drop" leaves them out, "pad" reads this
    epoch's order again from its start until the batch is full, "error" refuses.  `dropped` and `padded` say how many.

    Iterating reads what is left of the current epoch; when it ends, the next epoch begins, for the next iteration.  A
    micro-batch counts as consumed when it is handed out, so an iteration that is left goes on where it was.  Cost: no
    more at n = 10^12 than at 10^3 (of up to 65,536 samples a table is made each epoch).

    Raises BatchError (sizes that do not fit, or nothing left by "drop", or n no multiple of B with "error"), RankError,
    InputError, IntegerError, SeedError.

    >>> from rankatlas import Mesh
    >>> shard = DataShard(Mesh(dp=2, tp=2))
    >>> sampler = ShardedSampler(10, shard, rank=3, global_batch=4, micro_batch=1, shuffle=False)
    >>> len(sampler), sampler.dropped, [indexes.tolist() for indexes in sampler]
    (4, 2, [[1], [3], [5], [7]])
    """

    def __init__(
        self,
        n: int,
        shard: DataShard,
        rank: int,
        *,
        global_batch: int,
        micro_batch: int,
        seed: int = 0,
        shuffle: bool = True,
        tail: str = "drop",
    ) -> None:
        if not isinstance(shard, DataShard):
            raise InputError(f"a sampler needs a DataShard, which says who reads what; not {shown(shard)}")
        self._n = samples(n)
        self._shard = shard
        self._rank = rank
        self._data_rank = shard.data_rank(rank)
        self._plan = BatchPlan(global_batch, micro_batch, shard.data_size, along=shard.along)
        self._seed = order_seed(seed) if shuffle else None
        self._tail = tail
        self._steps = _whole_batches(self._n, self._plan, tail)
        self._epoch = 0
        self._taken = 0  # micro-steps of this epoch
        self._order: Order | None = None
        self._chunk: tuple[int, Array] | None = None  # first micro-step, and the indexes of some from there on

    @property
    def plan(self) -> BatchPlan:
        """The sizes of the batches."""
        return self._plan

    @property
    def shard(self) -> DataShard:
        """Who reads what."""
        return self._shard

    @property
    def data_rank(self) -> int:
        """Which share this sampler reads."""
        return self._data_rank

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._epoch

    @property
    def consumed(self) -> int:
        """How many positions of this epoch's order all data ranks together were handed so far."""
        return self._taken * self._plan.micro_step

    @property
    def dropped(self) -> int:
        """Samples of every epoch that nobody reads."""
        return max(0, self._n - self._steps * self._plan.global_batch)

    @property
    def padded(self) -> int:
        """Samples of every epoch that are read once more, to fill its last batch."""
        return max(0, self._steps * self._plan.global_batch - self._n)

    @property
    def order(self) -> Order:
        """The order of the current epoch."""
        if self._order is None:
            self._order = Order(self._n, self._seed or 0, self._epoch, shuffle=self._seed is not None)
        return self._order

    def __len__(self) -> int:
        """The micro-batches left in this epoch, the same number on every rank."""
        return self._steps * self._plan.accumulation - self._taken

    def __iter__(self) -> Iterator[Array]:
        epoch = self._epoch
        while len(self) and self._epoch == epoch:
            indexes = self._micro_batch()
            self._taken += 1
            yield indexes
        self._finish(epoch)

    def steps(self) -> Iterator[tuple[Array, ...]]:
        """The micro-batches of one global step at a time, `accumulation` of them.

        After a resume inside a step its rest comes first.  Handing out a step consumes all of it.

        >>> from rankatlas import Mesh
        >>> sampler = ShardedSampler(8, DataShard(Mesh(dp=2)), 1, global_batch=4, micro_batch=1, shuffle=False)
        >>> [[indexes.tolist() for indexes in step] for step in sampler.steps()]
        [[[1], [3]], [[5], [7]]]
        """
        epoch, accumulation = self._epoch, self._plan.accumulation
        while len(self) and self._epoch == epoch:
            step = []
            for _ in range(accumulation - self._taken % accumulation):
                step.append(self._micro_batch())
                self._taken += 1
            yield tuple(step)
        self._finish(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of `epoch`; to the current one it changes nothing, so that a resumed loop may call it too.

        Raises InputError (a negative epoch), IntegerError.
        """
        epoch = order_epoch(epoch)
        if epoch != self._epoch:
            self._move(epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """`{epoch, consumed, seed, n, global_batch, version}`: all that a resume on any layout needs; `seed` is None
        without shuffling.

        >>> from rankatlas import Mesh
        >>> sampler = ShardedSampler(1000, DataShard(Mesh(dp=2)), 0, global_batch=4, micro_batch=1, seed=7)
        >>> batch = next(iter(sampler))
        >>> sampler.state_dict()
        {'epoch': 0, 'consumed': 2, 'seed': 7, 'n': 1000, 'global_batch': 4, 'version': 1}
        """
        return state_of(self._epoch, self.consumed, self._seed, self._n, self._plan.global_batch)

    def load_state_dict(self, state: Mapping[str, Any], policy: str = "exact") -> None:
        """Go on where `state` was taken, of whatever rank and data size: every sample comes exactly once.

        `policy` says what to do where that cannot be: "exact" raises; "restart_step" begins the global batch anew
        inside which the state was taken; "continue" takes over the saved seed, and a changed global batch where the
        samples consumed are whole batches; "restart_epoch" reads the saved epoch again from its start; "next_epoch"
        leaves the rest of it out.

        Raises DataResumeError (a state that does not fit, or is none), InputError (another policy).

        >>> from rankatlas import Mesh
        >>> four, six = (DataShard(Mesh(dp=size)) for size in (4, 6))
        >>> before = ShardedSampler(96, four, 0, global_batch=24, micro_batch=2, shuffle=False)
        >>> steps = before.steps()
        >>> step = next(steps)
        >>> after = ShardedSampler(96, six, 5, global_batch=24, micro_batch=2, shuffle=False)
        >>> after.load_state_dict(before.state_dict())
        >>> next(iter(after)).tolist()
        [34, 35]
        """
        length = self._steps * self._plan.global_batch
        epoch, consumed, seed = resumed(state, self.state_dict(), self._plan, length, policy)
        self._seed = seed
        self._move(epoch, consumed // self._plan.micro_step)

    def tail_told(self) -> str:
        """What becomes of the samples that fill no batch, as a sentence for logs.

        >>> from rankatlas import Mesh
        >>> ShardedSampler(10, DataShard(Mesh(dp=3)), 0, global_batch=6, micro_batch=2).tail_told()
        '4 of 10 samples are dropped in every epoch: they fill no global batch of 6'
        """
        if self.dropped:
            what = f"{self.dropped} of {self._n} samples are dropped"
        elif self.padded:
            what = f"{self.padded} of {self._n} samples are read twice" if self.padded <= self._n else "samples repeat"
        else:
            return f"all {self._n} samples are read once in every epoch"
        why = "they fill no" if self.dropped else "to fill the last"
        return f"{what} in every epoch: {why} global batch of {self._plan.global_batch}"

    def positions(self, first: int, count: int) -> Array:
        """The positions of the epoch that this rank takes in `count` micro-steps from `first` on, one row each.

        Positions from n on are those of a padded tail.  Cost: O(count · micro_batch).
        """
        import numpy

        micro = self._plan.micro_batch
        starts = numpy.arange(first, first + count, dtype=numpy.int64) * self._plan.micro_step + self._data_rank * micro
        return starts[:, None] + numpy.arange(micro, dtype=numpy.int64)

    def indexes(self, first: int, count: int) -> Array:
        """The samples at `positions(first, count)`, one micro-batch a row.  Cost: O(count · micro_batch)."""
        places = self.positions(first, count)
        return self.order(places % self._n if self.padded else places)

    def _micro_batch(self) -> Array:
        """The micro-batch that comes next, out of a chunk of them worked out at once."""
        first, chunk = self._chunk or (0, ())
        if not first <= self._taken < first + len(chunk):
            ready = max(1, _CHUNK // self._plan.micro_batch)
            first, chunk = self._taken, self.indexes(self._taken, min(ready, len(self)))
            self._chunk = first, chunk
        return chunk[self._taken - first]  # type: ignore[no-any-return]

    def _finish(self, epoch: int) -> None:
        if self._epoch == epoch and not len(self):
            self._move(epoch + 1, 0)

    def _move(self, epoch: int, taken: int) -> None:
        self._epoch, self._taken = epoch, taken
        self._order = self._chunk = None

    def __repr__(self) -> str:
        seed = "shuffle=False" if self._seed is None else f"seed={self._seed}"
        return (
            f"ShardedSampler({self._n}, {self._shard!r}, {self._rank}, global_batch={self._plan.global_batch},"
            f" micro_batch={self._plan.micro_batch}, {seed}, tail={self._tail!r})"
        )


def _whole_batches(n: int, plan: BatchPlan, tail: str) -> int:
    """The global batches of an epoch.  Raises InputError (a tail of another name), BatchError."""
    if tail not in TAILS:
        raise InputError(f"the tail of an epoch is dealt with by {', '.join(TAILS)}, not {shown(tail)}")
    if plan.global_batch > MOST_SAMPLES:
        raise InputError(f"a global batch may have up to 2**62 samples, not {plan.global_batch}")
    whole, rest = divmod(n, plan.global_batch)
    if tail == "pad":
        return whole + (rest > 0)
    if rest and tail == "error":
        told = f"{n} samples are no multiple of the global batch {plan.global_batch} (remainder {rest})"
        ways = (
            f"tail='drop' leaves {rest} out of every epoch, tail='pad' reads {plan.global_batch - rest} of them twice"
        )
    elif not whole:
        told = f"{n} samples do not fill one global batch of {plan.global_batch}, and tail='drop' leaves nothing"
        ways = f"take a smaller batch, or tail='pad', which reads {plan.global_batch - rest} of them once more"
    else:
        return whole
    legal = [size for size in divisors(n) if size % plan.micro_step == 0]
    near = sorted(sorted(legal, key=lambda size: abs(size - plan.global_batch))[:4])
    raise BatchError(
        f"{told}\n{ways}\nglobal batches that leave no rest: {', '.join(map(str, near)) or 'none'}",
        global_batch=plan.global_batch,
        micro_batch=plan.micro_batch,
        data_size=plan.data_size,
        accumulation=None,
        product=plan.micro_step,
        remainder=rest,
        legal_global_batches=near,
        legal_micro_batches=[],
        legal_data_sizes=[],
    )
