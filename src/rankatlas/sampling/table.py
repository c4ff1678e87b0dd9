"""A table of samples by rank as somebody has it: ints, arrays and tensors of any framework, in lists or in batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rankatlas.core.border import as_int
from rankatlas.errors import InputError, IntegerError, RankError, shown
from rankatlas.sampling.order import MOST_SAMPLES
from rankatlas.sampling.shard import DataShard

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

_DEEPEST = 8  # lists in lists: an epoch of steps of micro-batches is three


def samples_by_rank(table: object, shard: DataShard) -> dict[int, Array]:
    """rank → its samples as a flat int64 array, ranks ascending.

    Raises InputError, IntegerError (what is no table of samples), RankError.

    >>> from rankatlas import Mesh
    >>> samples_by_rank({"1": [[4], [5]], 0: range(2)}, DataShard(Mesh(dp=2)))
    {0: array([0, 1]), 1: array([4, 5])}
    """
    if isinstance(table, Mapping):
        pairs = [(_rank(key), read) for key, read in table.items()]
    else:
        told = "samples by rank are a mapping of ranks, or a list by rank"
        pairs = list(enumerate(_items(table, told), start=shard.mesh.first_rank))
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


def _items(several: object, told: str) -> list[Any]:
    """The items of an iterable that is a list of things.  Raises InputError beginning with `told`."""
    try:
        if not isinstance(several, (str, bytes, Mapping)):
            return list(several)  # type: ignore[call-overload,no-any-return]
    except TypeError:  # also arrays without a dimension, which have an __iter__ all the same
        pass
    raise InputError(f"{told}, not {shown(several)}")


def _array(rank: int, read: object) -> Array:
    """The samples of one rank, flat; batches of them may have different lengths."""
    import numpy

    parts = _parts(rank, read, 0)
    return parts[0] if len(parts) == 1 else numpy.concatenate([numpy.empty(0, numpy.int64), *parts])


def _parts(rank: int, read: object, depth: int) -> list[Array]:
    import numpy

    if _is_array(read):
        found = _of_framework(rank, read)
        if isinstance(found, numpy.ndarray) and found.dtype.kind != "O":
            return [_checked(rank, found)]
        read = found.tolist() if isinstance(found, numpy.ndarray) else found
        read = read if isinstance(read, list) else [read]
    if isinstance(read, range):
        return [_counted(rank, read)]
    told = f"the samples of rank {rank} are a list of ints"
    if depth > _DEEPEST:
        raise InputError(f"{told}, not lists in lists in lists: {shown(read)}")
    parts: list[Array] = []
    plain: list[int] = []
    for item in _items(read, told):
        if type(item) is int:
            plain.append(item)
        elif _is_list(item):
            parts += [*_plain(rank, plain), *_parts(rank, item, depth + 1)]
            plain = []
        else:
            plain.append(as_int(item, f"a sample of rank {rank}"))
    return [*parts, *_plain(rank, plain)]


def _is_array(value: object) -> bool:
    """Whether `value` is an array or a tensor, of whatever framework: none has to be imported to tell."""
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _is_list(item: object) -> bool:
    """Whether `item` holds samples, and is not one: arrays without a dimension are one."""
    if _is_array(item):
        return bool(tuple(item.shape))  # type: ignore[attr-defined]
    return isinstance(item, Iterable) and not isinstance(item, (str, bytes, Mapping))


def _of_framework(rank: int, read: Any) -> Any:
    """An array or tensor as NumPy's, or as lists where it lives on a device or has a type that NumPy lacks."""
    import numpy

    for reader in (numpy.asarray, lambda tensor: tensor.tolist()):
        try:
            return reader(read)
        except Exception:  # frameworks raise whatever they like
            continue
    raise InputError(f"the samples of rank {rank} cannot be read from {shown(read)}, a {type(read).__name__}")


def _counted(rank: int, read: range) -> Array:
    """A range without a list of it.  Raises InputError when it is longer than memory holds."""
    import numpy

    if not read:
        return numpy.empty(0, numpy.int64)
    lowest, highest = min(read[0], read[-1]), max(read[0], read[-1])
    if lowest < 0 or highest >= MOST_SAMPLES:
        raise _bad_sample(rank, lowest if lowest < 0 else highest)
    try:
        return numpy.arange(read.start, read.stop, read.step, dtype=numpy.int64)
    except (MemoryError, OverflowError, ValueError):
        raise InputError(f"the samples of rank {rank} are too many to be held: {shown(read)}") from None


def _plain(rank: int, flat: list[int]) -> list[Array]:
    import numpy

    if not flat:
        return []
    if not 0 <= min(flat) <= max(flat) < MOST_SAMPLES:
        raise _bad_sample(rank, min(flat) if min(flat) < 0 else max(flat))
    return [numpy.array(flat, dtype=numpy.int64)]


def _checked(rank: int, read: Array) -> Array:
    import numpy

    if not read.size:  # of no numbers the type says nothing: frameworks make it float
        return numpy.empty(0, numpy.int64)
    if read.dtype.kind not in "iu":
        raise IntegerError(f"the samples of rank {rank} must be integers, not {read.dtype}", what="samples", value=rank)
    lowest, highest = int(read.min()), int(read.max())
    if not 0 <= lowest <= highest < MOST_SAMPLES:
        raise _bad_sample(rank, lowest if lowest < 0 else highest)
    return read.reshape(-1).astype(numpy.int64, copy=False)


def _bad_sample(rank: int, sample: int) -> InputError:
    return InputError(f"rank {rank} reads sample {shown(sample)}: samples count from 0, up to 2**62")
