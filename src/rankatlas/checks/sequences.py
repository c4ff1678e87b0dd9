"""The sequence against the axes that cut it, and heads against the ranks that exchange them."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from rankatlas.catalogue import Cut
from rankatlas.checks.finding import Finding, Fix
from rankatlas.checks.numbers import Numbers, divisors_shown
from rankatlas.checks.spelling import says_data

_BALANCED = ("megatron", "torchtitan", "nemo", "paddle")  # each context rank takes a chunk and its mirror image
# Fills what it packs up to what its ranks share: `ulysses_pad_and_slice_inputs` in verl/utils/ulysses.py,
# `preprocess_packed_seqs` in verl/models/mcore/util.py (0.9).
_FILLS_UP = ("verl",)


def context(numbers: Numbers) -> Iterator[Finding]:
    """RA140: a sequence that context ranks cannot share evenly; balanced, it is cut into 2·cp chunks.

    >>> from rankatlas.job import Fact
    >>> facts = [Fact("sequence_length", 4100, "given"), Fact("cp", 8, "given"), Fact("cp_split", "balanced", "given")]
    >>> next(context(Numbers(facts))).numbers["legal"]
    [4096, 4112]
    """
    cp, length = numbers["cp"], _length(numbers)
    if cp == 1 or length is None:
        return
    split = numbers.value("cp_split") or ("balanced" if numbers.format.startswith(_BALANCED) else "contiguous")
    chunks = 2 * cp if split == "balanced" else cp
    if length % chunks == 0:
        return
    yield _cut("RA140", numbers, "cp", length, chunks, str(split))


def tensor(numbers: Numbers) -> Iterator[Finding]:
    """RA145: with sequence parallelism, a sequence (or a context rank's part of it) that tp cannot share evenly.

    Megatron cuts a context rank's part along the first dimension (`_split_along_first_dim` in
    megatron/core/tensor_parallel/mappings.py, 0.16), and torchtitan asks for 2·cp·tp (trainer.py, 0.3).

    >>> from rankatlas.job import Fact
    >>> given = {"sequence_length": 4100, "tp": 8, "sequence_parallel": True}
    >>> next(tensor(Numbers(Fact(name, value, "given") for name, value in given.items()))).numbers["legal"]
    [4096, 4104]
    """
    tp, length = numbers["tp"], _length(numbers)
    if tp == 1 or length is None or numbers.value("sequence_parallel") is not True:
        return
    cut = numbers["cp"] * numbers["sep"]
    if numbers.written("torchtitan") and numbers["cp"] > 1:
        cut *= 2
    if length % cut == 0 and length // cut % tp:
        yield _cut("RA145", numbers, "tp", length, cut * tp, "sequence_parallel")


def ulysses(numbers: Numbers) -> Iterator[Finding]:
    """RA141: a sequence that sep cannot share evenly; RA142 and RA143: heads, or kv heads, that it cannot."""
    sep, tp = numbers["sep"], numbers["tp"]
    if sep == 1:
        return
    length = _length(numbers)
    if length is not None and length % sep:
        yield _cut("RA141", numbers, "sep", length, sep, "contiguous")
    heads, shared = numbers.get("heads"), numbers.get("kv_heads")
    if heads is not None and heads % tp == 0 and heads // tp % sep:
        yield _heads("RA142", "error", numbers, heads)
    if shared is not None and shared % tp == 0 and shared // tp % sep and sep % (shared // tp):
        yield _heads("RA143", "error", numbers, shared)
    elif shared is not None and shared % tp == 0 and shared // tp < sep:
        yield _heads("RA144", "note", numbers, shared)


def _length(numbers: Numbers) -> int | None:
    """The tokens that are cut as they are, None where there is no number or the framework fills them up."""
    return None if numbers.format.startswith(_FILLS_UP) else numbers.get("sequence_length")


def _cut(code: str, numbers: Numbers, axis: str, length: int, chunks: int, split: str) -> Finding:
    below = length // chunks * chunks
    legal = [value for value in (below, below + chunks) if value > 0]
    times = chunks // numbers[axis]
    sizes = [size for size in divisors_shown(numbers[axis]) if length % (times * size) == 0 and size < numbers[axis]]
    facts = {
        "length": length,
        "size": numbers.label(axis),
        "chunks": chunks,
        "split": split,
        "remainder": length % chunks,
        "legal": legal,
        "sizes": sizes,
    }
    every = lcm(chunks, *_chunks(numbers))  # what fits whatever else cuts the sequence
    below = length // every * every
    fitting = dict.fromkeys([*legal, *(value for value in (below, below + every) if value > 0)])
    fixes = [Fix({"sequence_length": value}) for value in fitting]
    return Finding(code, "error", facts, [*fixes, *(Fix(_smaller(numbers, axis, size)) for size in sizes[-1:])])


def _chunks(numbers: Numbers) -> tuple[int, int]:
    """Into how many pieces context ranks cut a sequence, and those with tensor ranks, where these share it."""
    cp, split = numbers["cp"], numbers.value("cp_split")
    balanced = (
        cp > 1 and (split or ("balanced" if numbers.format.startswith(_BALANCED) else "contiguous")) == "balanced"
    )
    cut = cp * numbers["sep"] * (2 if numbers.written("torchtitan") and cp > 1 else 1)
    return cp * (1 + balanced), cut * (numbers["tp"] if numbers.value("sequence_parallel") is True else 1)


def _heads(code: str, severity: str, numbers: Numbers, heads: int) -> Finding:
    sep, tp = numbers["sep"], numbers["tp"]
    each = heads // tp
    every = divisors_shown(each)
    legal = [size for size in every if size <= 2 * sep]
    below = [size for size in legal if size < sep and sep % size == 0]
    facts = {"heads": heads, "each": each, "tp": tp, "size": numbers.label("sep")}
    facts["legal"] = Cut(legal) if len(legal) < len(every) else legal
    fixes = [Fix(_smaller(numbers, "sep", size)) for size in below[-1:]] if severity == "error" else []
    return Finding(code, severity, facts, fixes)


def _smaller(numbers: Numbers, axis: str, size: int) -> dict[str, int]:
    changes = {axis: size}
    if says_data(numbers):
        changes["dp"] = numbers["dp"] * (numbers[axis] // size)
    return changes
