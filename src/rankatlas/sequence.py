"""Which positions of a sequence each context-parallel rank holds, and where their labels stand.

A causal mask gives the last positions the most work.  "contiguous" cuts a sequence into cp equal pieces, so the last
rank has the most to do; "balanced" cuts it into 2·cp pieces and gives rank i the piece i and the one that mirrors it,
2·cp − 1 − i, so that all ranks work equally long.  Balanced is what Megatron-LM's `get_batch_on_this_cp_rank` and
Transformer Engine do (their "load balanced" or "zigzag" order).
"""

from __future__ import annotations

from rankatlas.core.border import as_int
from rankatlas.core.sizes import checked_size, divisors
from rankatlas.errors import RankError, SequenceError, shown

SPLITS = ("contiguous", "balanced")
_MOST_RANKS = 1 << 20


def sequence_slices(length: int, cp: int, split: str = "contiguous") -> tuple[tuple[range, ...], ...]:
    """The positions of every context rank, as ranges: one each when contiguous, two each when balanced.

    `length` is in tokens, positions count from 0.  Each position stands in exactly one range.  One context rank holds
    the whole sequence in one range, whatever the split.  Cost: O(cp).

    Raises SequenceError (`length` cannot be cut so, or a split of another name), SizeError (a number below 1).

    >>> sequence_slices(8, 2)
    ((range(0, 4),), (range(4, 8),))
    >>> sequence_slices(8, 2, "balanced")
    ((range(0, 2), range(6, 8)), (range(2, 4), range(4, 6)))
    """
    piece = _piece(length, cp, split)
    return tuple(_slices(piece, cp, rank, split) for rank in range(_listed(cp)))


def sequence_slice(length: int, cp: int, rank: int, split: str = "contiguous") -> tuple[range, ...]:
    """The positions of one context rank, as in `sequence_slices`.  Cost: O(1), whatever cp is.

    Raises as `sequence_slices`, and RankError.

    >>> sequence_slice(2**40, 2**20, 1, "balanced")
    (range(524288, 1048576), range(1099510579200, 1099511103488))
    """
    piece = _piece(length, cp, split)
    place = as_int(rank, "the context rank")
    if not 0 <= place < cp:
        raise RankError(f"context rank {place} is not in 0 to {cp - 1}", rank=place, first_rank=0, world_size=cp)
    return _slices(piece, cp, place, split)


def label_slices(length: int, cp: int, split: str = "contiguous") -> tuple[tuple[range, ...], ...]:
    """Where the labels of every context rank stand: each range of `sequence_slices` moved one position on.

    The label of a position is the token after it, also where that token is another rank's: shifting inside a slice
    would lose one label at every border.  Labels are therefore cut from the whole sequence.  Position `length` is the
    token that follows the sequence; where none was read, append the label that the loss ignores.  Cost: O(cp).

    Raises as `sequence_slices`.

    >>> tokens = [10, 11, 12, 13, 14, 15, 16, 17]
    >>> followed = [*tokens, -100]
    >>> [[followed[at] for part in parts for at in part] for parts in label_slices(8, 2, "balanced")]
    [[11, 12, 17, -100], [13, 14, 15, 16]]
    """
    return tuple(
        tuple(range(part.start + 1, part.stop + 1) for part in parts) for parts in sequence_slices(length, cp, split)
    )


def _slices(piece: int, cp: int, rank: int, split: str) -> tuple[range, ...]:
    if cp == 1 or split == "contiguous":
        return (range(rank * piece, (rank + 1) * piece),)
    mirrored = 2 * cp - 1 - rank
    return range(rank * piece, (rank + 1) * piece), range(mirrored * piece, (mirrored + 1) * piece)


def _piece(length: int, cp: int, split: str) -> int:
    """The tokens of one range, once the sequence is known to be cut without a rest."""
    length = checked_size("sequence", length, label="the sequence length")
    cp = checked_size("cp", cp)
    if split not in SPLITS:
        raise SequenceError(
            f"a sequence is cut {' or '.join(SPLITS)}, not {shown(split)}", **_facts(length, cp, split, 0, [], [])
        )
    pieces = 2 * cp if split == "balanced" and cp > 1 else cp
    if length % pieces == 0:
        return length // pieces
    nearest = [near for near in (length // pieces * pieces, (length // pieces + 1) * pieces) if near]
    legal = [1, *(cut for cut in divisors(length if split == "contiguous" else length // 2) if cut > 1)]
    if split == "balanced" and length % 2:
        legal = [1]
    below = [cut for cut in legal if cut < cp]
    legal = below[-8:] + [cut for cut in legal if cut > cp][:1]
    what = f"2 × cp = {pieces}" if pieces != cp else f"cp = {cp}"
    raise SequenceError(
        f"a sequence of {length} tokens cannot be cut {split} over cp={cp}: {length} is no multiple of {what}"
        f" (remainder {length % pieces})\nlegal lengths: {', '.join(map(str, nearest))}"
        f"\nlegal cp for {length}: {', '.join(map(str, legal))}",
        **_facts(length, cp, split, length % pieces, nearest, legal),
    )


def _facts(
    length: int, cp: int, split: object, remainder: int, lengths: list[int], cps: list[int]
) -> dict[str, object]:
    return {
        "length": length,
        "cp": cp,
        "split": split,
        "remainder": remainder,
        "nearest_lengths": lengths,
        "legal_cp": cps,
    }


def _listed(cp: int) -> int:
    if cp > _MOST_RANKS:
        raise SequenceError(
            f"slices of {cp} context ranks are too many to list ({_MOST_RANKS} are the most); ask for those of one"
            " with sequence_slice(length, cp, rank)",
            **_facts(0, cp, None, 0, [], []),
        )
    return cp
