"""The order of an epoch: a keyed bijection over [0, n), computed index by index, with no array of n numbers anywhere.

Up to 2^16 samples the order is a table: the indexes sorted by hashes of them.  Beyond that it is a Feistel network of
eight rounds (Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", 1988) over the
smallest power of two that holds n; an image outside [0, n) is sent through again until it falls inside (cycle walking:
Black and Rogaway, "Ciphers with arbitrary finite domains", 2002), which takes fewer than two passes on average.  The
round function is a multiplicative hash of 32 bits with the constants of Wellons' "lowbias32" (hash-prospector, 2018);
the round keys are SHAKE-128 of seed, epoch and n.  The table's hashes are splitmix64's (Steele, Lea and Flood, "Fast
splittable pseudorandom number generators", 2014), which are all different, so no two indexes tie.

Everything is arithmetic modulo 2^32 or 2^64, so that an order is the same on every platform and with every numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from rankatlas.core.border import as_int
from rankatlas.errors import InputError, IntegerError, SeedError, shown

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

VERSION = 1  # of the construction: another order for the same seed is another version
MOST_SAMPLES = 1 << 62
_TABLE = 1 << 16  # samples up to which the order is a table
_ROUNDS = 8
_BLOCK = 1 << 15  # indexes worked on at once, so that what lies between stays in the processor's cache
_FIRST, _SECOND, _FOLD = 0x7FEB352D, 0x846CA68B, 15  # lowbias32
_GAMMA, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # splitmix64
_WORD = (1 << 64) - 1


class Order:
    """The order in which an epoch reads `n` samples: `order(k)` is the sample at position k.

    `seed` is 0 to 2^64 − 1, `epoch` counts from 0; `shuffle=False` is the order 0, 1, 2 ….  Positions and samples are
    ints, or integer arrays, of which int64 arrays of the same shape are made.  Cost: O(1) time per index and O(1)
    memory beside the result; up to 65,536 samples a table is made once.

    Raises InputError (`n` is not 1 to 2^62, a position or sample outside [0, n), a negative epoch), SeedError,
    IntegerError.

    >>> order = Order(10, seed=7)
    >>> [order(position) for position in range(10)]
    [7, 5, 2, 0, 8, 4, 1, 3, 9, 6]
    >>> order.position(9)
    8
    >>> vast = Order(2**62, seed=7)
    >>> vast(123), vast.position(vast(123))
    (223637721144944415, 123)
    """

    __slots__ = ("_epoch", "_inverse", "_keys", "_low", "_n", "_seed", "_shuffle", "_table")

    def __init__(self, n: int, seed: int = 0, epoch: int = 0, *, shuffle: bool = True) -> None:
        self._n = samples(n)
        self._seed = order_seed(seed)
        self._epoch = order_epoch(epoch)
        self._shuffle = bool(shuffle)
        self._table: Array | None = None
        self._inverse: Array | None = None
        bits = max(2, (self._n - 1).bit_length())
        self._low = bits // 2  # bits of the right half
        self._keys: tuple[int, ...] = ()

    @property
    def n(self) -> int:
        """The number of samples."""
        return self._n

    @property
    def seed(self) -> int:
        """The seed."""
        return self._seed

    @property
    def epoch(self) -> int:
        """The epoch."""
        return self._epoch

    @overload
    def __call__(self, positions: int) -> int: ...
    @overload
    def __call__(self, positions: Array) -> Array: ...
    def __call__(self, positions: int | Array) -> int | Array:
        """The samples at `positions` of this epoch."""
        return self._mapped(positions, "position", inverse=False)

    @overload
    def position(self, samples: int) -> int: ...
    @overload
    def position(self, samples: Array) -> Array: ...
    def position(self, samples: int | Array) -> int | Array:
        """The positions at which this epoch reads `samples`: the inverse of the order."""
        return self._mapped(samples, "sample", inverse=True)

    def _mapped(self, given: int | Array, what: str, *, inverse: bool) -> int | Array:
        import numpy

        if not isinstance(given, numpy.ndarray):
            place = as_int(given, f"the {what}")
            self._refuse(place, place, what)
            return int(self._walked(numpy.array([place], dtype=numpy.uint64), inverse)[0])
        if given.dtype.kind not in "iu":
            raise IntegerError(f"{what}s must be integers, not {given.dtype}", what=what, value=shown(given))
        if given.size:
            self._refuse(int(given.min()), int(given.max()), what)
        found = self._walked(given.reshape(-1).astype(numpy.uint64), inverse)
        return found.view(numpy.int64).reshape(given.shape)

    def _refuse(self, lowest: int, highest: int, what: str) -> None:
        if not 0 <= lowest <= highest < self._n:
            outside = lowest if lowest < 0 else highest
            raise InputError(f"{what} {outside} is not in 0 to {self._n - 1}: there are {self._n} samples")

    def _walked(self, places: Array, inverse: bool) -> Array:
        """The images of `places` (uint64, flat, owned by us), in place."""
        import numpy

        if not self._shuffle:
            return places
        if self._n <= _TABLE:
            table = self._inverse_table() if inverse else self._forward_table()
            return table[places.view(numpy.int64)]
        passed = self._pass(inverse)
        end = numpy.uint64(self._n)
        for first in range(0, len(places), _BLOCK):
            block = places[first : first + _BLOCK]
            passed(block)
            left = numpy.flatnonzero(block >= end)
            while len(left):
                again = block[left]
                passed(again)
                block[left] = again
                left = left[again >= end]
        return places

    def _pass(self, inverse: bool) -> Any:
        """One pass through the network, a function that changes a block of at most `_BLOCK` uint64 in place.

        The left half has as many bits as the right one or one more; even rounds change the left half by a hash of the
        right one, odd rounds the other way round, so nothing is swapped and the inverse runs the rounds backwards.
        """
        import numpy

        word = numpy.uint32
        first, second, fold = word(_FIRST), word(_SECOND), word(_FOLD)
        low = self._low
        high = max(2, (self._n - 1).bit_length()) - low
        shift, mask = numpy.uint64(low), numpy.uint64((1 << low) - 1)
        ends = (word(32 - high), word(32 - low))
        keys = [(place % 2, word(key)) for place, key in enumerate(self._round_keys())]
        rounds = keys[::-1] if inverse else keys
        hashed, folded = numpy.empty(_BLOCK, word), numpy.empty(_BLOCK, word)

        def passed(block: Array) -> None:
            halves = (block >> shift).astype(word), (block & mask).astype(word)
            one, other = hashed[: len(block)], folded[: len(block)]
            for odd, key in rounds:
                changed, source = (halves[1], halves[0]) if odd else halves
                numpy.bitwise_xor(source, key, out=one)
                numpy.multiply(one, first, out=one)
                numpy.right_shift(one, fold, out=other)
                numpy.bitwise_xor(one, other, out=one)
                numpy.multiply(one, second, out=one)
                numpy.right_shift(one, ends[odd], out=one)  # the upper bits are the best mixed
                numpy.bitwise_xor(changed, one, out=changed)
            block[:] = halves[0]
            block <<= shift
            block |= halves[1]

        return passed

    def _round_keys(self) -> tuple[int, ...]:
        if not self._keys:
            bytes_ = self._digest(4 * _ROUNDS)
            self._keys = tuple(int.from_bytes(bytes_[at : at + 4], "little") for at in range(0, 4 * _ROUNDS, 4))
        return self._keys

    def _forward_table(self) -> Array:
        if self._table is None:
            import numpy

            start = int.from_bytes(self._digest(8), "little")
            word = numpy.arange(1, self._n + 1, dtype=numpy.uint64) * numpy.uint64(_GAMMA) + numpy.uint64(start)
            word = (word ^ (word >> numpy.uint64(30))) * numpy.uint64(_MIX_1)
            word = (word ^ (word >> numpy.uint64(27))) * numpy.uint64(_MIX_2)
            word ^= word >> numpy.uint64(31)
            self._table = numpy.argsort(word).astype(numpy.uint64)
        return self._table

    def _inverse_table(self) -> Array:
        if self._inverse is None:
            import numpy

            table = self._forward_table()
            self._inverse = numpy.empty_like(table)
            self._inverse[table.view(numpy.int64)] = numpy.arange(self._n, dtype=numpy.uint64)
        return self._inverse

    def _digest(self, size: int) -> bytes:
        from hashlib import shake_128

        key = f"rankatlas.order {VERSION}\n{self._seed} {self._epoch} {self._n}"
        return shake_128(key.encode()).digest(size)

    def _facts(self) -> tuple[int, int, int, bool]:
        return self._n, self._seed, self._epoch, self._shuffle

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Order):
            return NotImplemented
        return self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())

    def __reduce__(self) -> tuple[object, ...]:
        return _made, self._facts()

    def __repr__(self) -> str:
        shuffle = "" if self._shuffle else ", shuffle=False"
        return f"Order({self._n}, seed={self._seed}, epoch={self._epoch}{shuffle})"


def _made(n: int, seed: int, epoch: int, shuffle: bool) -> Order:
    return Order(n, seed, epoch, shuffle=shuffle)


def samples(n: object) -> int:
    """A number of samples as a plain int.  Raises InputError unless it is 1 to 2^62.

    >>> samples(10)
    10
    """
    number = as_int(n, "the number of samples")
    if not 1 <= number <= MOST_SAMPLES:
        raise InputError(f"the number of samples must be 1 to 2**62, not {number}")
    return number


def order_seed(seed: object) -> int:
    """The seed of an order as a plain int.  Raises SeedError unless it is 0 to 2^64 − 1.

    >>> order_seed(7)
    7
    """
    number = as_int(seed, "the seed")
    if not 0 <= number <= _WORD:
        raise SeedError(f"the seed of an order must be 0 to 2**64 - 1, not {number}", seed=number)
    return number


def order_epoch(epoch: object) -> int:
    """An epoch as a plain int.  Raises InputError when it is negative.

    >>> order_epoch(0)
    0
    """
    number = as_int(epoch, "the epoch")
    if number < 0:
        raise InputError(f"epochs count from 0; there is no epoch {number}")
    return number
