"""Positions that loaders of others keep one per data rank: whether this job's data ranks would load all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from rankatlas.core.border import as_int
from rankatlas.core.sizes import checked_size
from rankatlas.errors import DataResumeError, InputError, IntegerError, shown

_MOST_LISTED = 1024  # data ranks without a state
_COUNTS = ("world_size", "dp_world_size", "num_replicas")  # keys beside the states that say how many there are


def check_loader_states(saved: Mapping[Any, Any] | Iterable[Any], data_size: int) -> None:
    """Refuse per-rank loader states that `data_size` data ranks would not load, each rank its own.

    `saved` maps data ranks (ints, or text that ends in one, such as "dp_rank_3") to states, or lists the states by data
    rank.  A key such as "world_size", as torchtitan writes beside them, counts as their number.  Such a state holds the
    place of one reader in its own part of the data: with fewer ranks some places are forgotten, with more some have
    none, and either way samples are read twice or never.  Cost: O(states).

    Raises DataResumeError with `orphaned_states` and `missing_states`, SizeError, InputError (`saved` is neither).

    >>> check_loader_states({"dp_rank_0": b"...", "dp_rank_1": b"...", "world_size": 2}, data_size=2)
    """
    size = checked_size("data", data_size, label="the data size")
    ranks, count = _ranks(saved)
    number = len(ranks)
    in_a_row = ranks == list(range(number))
    if count is not None and not (in_a_row and number == count):
        raise _refusal(
            f"these loader states say they are of {count} data ranks, and there are {_listed(ranks)}", ranks, size
        )
    if in_a_row and number == size:
        return
    if not ranks:
        raise _refusal(f"there are no loader states: there is none for any of {size} data ranks", ranks, size)
    gone = [rank for rank in ranks if rank >= size]
    if gone:
        why = f"{_listed(gone)} would be loaded by nobody, so what those ranks had read is forgotten"
    else:
        why = f"there is none for {_listed(_missing(ranks, size))}, so they would begin anew"
    raise _refusal(
        f"loader states of {number} data ranks ({_listed(ranks)}) cannot be loaded by {size}: {why}", ranks, size
    )


def _refusal(told: str, ranks: list[int], size: int) -> DataResumeError:
    here = f"resume on {len(ranks)} data ranks" if ranks else "look where the checkpoint keeps them"
    return DataResumeError(
        f"{told}\n{here}, or begin the epoch anew on all; the one state of a ShardedSampler resumes any number",
        state=None,
        changed={},
        orphaned_states=[rank for rank in ranks if rank >= size],
        missing_states=_missing(ranks, size),
    )


def _missing(ranks: list[int], size: int) -> list[int]:
    """The data ranks without a state, as far as a message or a program can want them."""
    there = frozenset(ranks)
    found = []
    for rank in range(size):
        if rank not in there:
            found.append(rank)
        if len(found) == _MOST_LISTED:
            break
    return found


def _ranks(saved: object) -> tuple[list[int], int | None]:
    """The data ranks that have a state, ascending, and the number the states say there are, if they do."""
    if isinstance(saved, (str, bytes)) or not isinstance(saved, Iterable):
        raise InputError(f"loader states are a mapping of data ranks, or a list by data rank, not {shown(saved)}")
    if not isinstance(saved, Mapping):
        return list(range(len(tuple(saved)))), None
    count = next((as_int(saved[key], key) for key in _COUNTS if key in saved), None)
    ranks = [_rank(key) for key in saved if key not in _COUNTS]
    ranks.sort()
    for rank, following in pairwise(ranks):
        if rank == following:
            raise InputError(f"data rank {rank} has two loader states, under keys such as {shown([*saved][:2])}")
    return ranks, count


def _rank(key: object) -> int:
    """The data rank that a key names."""
    if isinstance(key, str):
        name = key.rstrip("0123456789")
        digits = key[len(name) :]
        # In "dp-3" the hyphen joins a name and a rank; in "-3" and "dp_rank_-3" it is a minus.
        if digits and len(digits) < 20 and not (name.endswith("-") and not name[-2:-1].isalnum()):
            return int(digits)
    else:
        try:
            rank = as_int(key, "a data rank")
        except IntegerError:
            rank = -1
        if rank >= 0:
            return rank
    raise InputError(f"{shown(key)} names no data rank; keys are 0, 1 … or end in one, such as 'dp_rank_3'")


def _listed(ranks: list[int]) -> str:
    if len(ranks) > 8:
        return f"{', '.join(map(str, ranks[:4]))}, … {ranks[-1]}"
    return ", ".join(map(str, ranks)) or "none"
