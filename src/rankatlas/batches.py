"""How a global batch is made of micro-batches, and which of its samples each data rank takes.

global batch = micro batch × accumulation × data size.  Batch b holds the positions b·B to (b+1)·B − 1 of the global
order; in micro-step m of it, data rank d takes the `micro` positions from b·B + (m·data size + d)·micro on.  So what
has been taken at any moment is a prefix of the order, whatever the number of data ranks.
"""

from __future__ import annotations

from rankatlas.core.border import as_int
from rankatlas.core.sizes import checked_size, divisors
from rankatlas.errors import BatchError, InputError, RankError

_MOST_LISTED = 8


class BatchPlan:
    """A global batch shared out: `accumulation` micro-steps, in each of which every data rank takes one micro-batch.

    All sizes are in samples.  `accumulation`, when given, must be the one that follows; `along` is what the data ranks
    differ along, as messages call it.  Cost: O(1).

    Raises BatchError, listing what would be legal with the accumulation and without it, when `global_batch` is not
    micro_batch × accumulation × data_size; SizeError (a number below 1), SizeTypeError (no integer).

    >>> plan = BatchPlan(global_batch=16, micro_batch=2, data_size=4)
    >>> plan.accumulation, plan.positions(step=1, micro_step=1, data_rank=3)
    (2, range(30, 32))
    """

    __slots__ = ("_accumulation", "_along", "_data_size", "_global_batch", "_micro_batch")

    def __init__(
        self,
        global_batch: int,
        micro_batch: int,
        data_size: int,
        *,
        accumulation: int | None = None,
        along: str = "dp",
    ) -> None:
        self._global_batch = checked_size("batch", global_batch, label="the global batch")
        self._micro_batch = checked_size("batch", micro_batch, label="the micro batch")
        self._data_size = checked_size(along, data_size, label="the data size")
        self._along = along
        if accumulation is not None:
            accumulation = checked_size("batch", accumulation, label="the accumulation")
        each = self._micro_batch * self._data_size
        self._accumulation = self._global_batch // each
        if self._global_batch % each or accumulation not in (None, self._accumulation):
            raise self._unfit(accumulation)

    @property
    def global_batch(self) -> int:
        """Samples of one optimizer step, over all data ranks."""
        return self._global_batch

    @property
    def micro_batch(self) -> int:
        """Samples of one forward pass on one data rank."""
        return self._micro_batch

    @property
    def data_size(self) -> int:
        """The number of data ranks."""
        return self._data_size

    @property
    def accumulation(self) -> int:
        """Micro-batches of one optimizer step on one data rank."""
        return self._accumulation

    @property
    def micro_step(self) -> int:
        """Samples of one micro-step, over all data ranks: micro batch × data size."""
        return self._micro_batch * self._data_size

    def positions(self, step: int, micro_step: int, data_rank: int) -> range:
        """The positions of the global order that a data rank takes in one micro-step of batch `step`.  Cost: O(1).

        Raises RankError (no such data rank), InputError (a negative step, a micro-step beyond the accumulation).

        >>> [list(BatchPlan(8, 2, 2).positions(0, micro_step, 1)) for micro_step in range(2)]
        [[2, 3], [6, 7]]
        """
        step, micro_step = as_int(step, "the step"), as_int(micro_step, "the micro-step")
        data_rank = as_int(data_rank, "the data rank")
        if not 0 <= data_rank < self._data_size:
            raise RankError(
                f"data rank {data_rank} is not in 0 to {self._data_size - 1}",
                rank=data_rank,
                first_rank=0,
                world_size=self._data_size,
            )
        if step < 0:
            raise InputError(f"steps count from 0; there is no step {step}")
        if not 0 <= micro_step < self._accumulation:
            raise InputError(f"micro-step {micro_step} is not in 0 to {self._accumulation - 1}, the accumulation")
        first = step * self._global_batch + (micro_step * self._data_size + data_rank) * self._micro_batch
        return range(first, first + self._micro_batch)

    def resized(self, data_size: int) -> BatchPlan:
        """The same global and micro batch over another number of data ranks.  Cost: O(1).

        Raises BatchError, which says what the data size was, when it does not fit.

        >>> BatchPlan(512, 2, 8).resized(4).accumulation
        64
        """
        try:
            return BatchPlan(self._global_batch, self._micro_batch, data_size, along=self._along)
        except BatchError as error:
            raise BatchError(
                f"{error}\nthe batches were made for {self._along}={self._data_size}: is this a world size copied from"
                " checkpoint, or sizes that changed without it?",
                **error.__dict__,
            ) from None

    def _unfit(self, accumulation: int | None) -> BatchError:
        """The error for sizes that do not multiply to the global batch, with what would."""
        whole, micro, size, each = self._global_batch, self._micro_batch, self._data_size, self.micro_step
        product = each * (accumulation or 1)
        factors = f"micro batch {micro} × {'' if accumulation is None else f'accumulation {accumulation} × '}"
        relation = "no multiple of" if accumulation is None else "not"
        sizes = _around(whole // micro, size) if whole % micro == 0 else []
        micros = _around(whole // size, micro) if whole % size == 0 else []
        wholes = [near for near in (whole // each * each, (whole // each + 1) * each) if near]
        if accumulation is not None:
            wholes = [product]  # the one batch that these make
        lines = [f"global batch {whole} is {relation} {factors}{self._along}={size} = {product}"]
        if whole % each:
            lines[0] += f" (remainder {whole % each})"
        if accumulation is not None:
            kept = f"with accumulation {accumulation}: the global batch {product}"
            for name, others in (("micro batch", size), (self._along, micro)):
                if whole % (others * accumulation) == 0:
                    kept += f"; {name} {whole // (others * accumulation)}"
            lines.append(f"legal {kept}")
        if whole % each == 0:
            lines.append(f"the accumulation that fits is {whole // each}")
        elif accumulation is None:
            lines.append(f"legal global batches next to it: {_listed(wholes)}; legal {self._along}: {_listed(sizes)}")
            lines.append(f"legal micro batches for {self._along}={size}: {_listed(micros)}")
        else:
            other = f"; micro batches for {self._along}={size}: {_listed(micros)}"
            lines.append(f"legal with the accumulation left out: {self._along} {_listed(sizes)}{other}")
        return BatchError(
            "\n".join(lines),
            global_batch=whole,
            micro_batch=micro,
            data_size=size,
            accumulation=accumulation,
            product=product,
            remainder=whole % each,
            legal_global_batches=wholes,
            legal_micro_batches=micros,
            legal_data_sizes=sizes,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BatchPlan):
            return NotImplemented
        return self._sizes() == other._sizes()

    def __hash__(self) -> int:
        return hash(self._sizes())

    def _sizes(self) -> tuple[int, int, int]:
        return self._global_batch, self._micro_batch, self._data_size

    def __repr__(self) -> str:
        along = "" if self._along == "dp" else f", along={self._along!r}"
        return (
            f"BatchPlan(global_batch={self._global_batch}, micro_batch={self._micro_batch},"
            f" data_size={self._data_size}{along})"
        )


def _around(number: int, asked: int) -> list[int]:
    """The divisors of `number` up to `asked`, and the next one above it."""
    every = divisors(number)
    below = [divisor for divisor in every if divisor <= asked]
    return below + [divisor for divisor in every if divisor > asked][:1]


def _listed(numbers: list[int]) -> str:
    more = f"{numbers[0]}, …, " if len(numbers) > _MOST_LISTED else ""
    return more + ", ".join(map(str, numbers[-_MOST_LISTED:])) or "none"
