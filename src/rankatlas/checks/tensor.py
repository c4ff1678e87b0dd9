"""Heads, features and vocabulary against the tensor axis."""

from __future__ import annotations

from collections.abc import Iterator

from rankatlas.catalogue import Cut
from rankatlas.checks.finding import Finding, Fix
from rankatlas.checks.numbers import Numbers, divisors_shown, up_to_next
from rankatlas.checks.spelling import says_data
from rankatlas.checks.world import legal_sizes

# What is cut along the tensor axis: code → the number that must divide.
CUT = {"RA120": "heads", "RA122": "hidden", "RA123": "ffn"}
_PADS = ("megatron", "nemo", "verl", "deepspeed", "accelerate", "torchtitan")  # a vocabulary may be uneven there
_DEFAULT_MULTIPLE = 128  # Megatron's --make-vocab-size-divisible-by


def divides(numbers: Numbers) -> Iterator[Finding]:
    """RA120, RA122, RA123: attention heads, hidden or feed-forward features are no multiple of tp."""
    tp = numbers["tp"]
    for code, name in CUT.items():
        total = numbers.get(name)
        if total is not None and total % tp:
            yield Finding(code, "error", _facts(numbers, name, total), _fixes(numbers, total))


def head_features(numbers: Numbers) -> Iterator[Finding]:
    """RA126: hidden features that are no multiple of the heads, where nothing says how many a head has.

    >>> from rankatlas.job import Fact
    >>> next(head_features(Numbers([Fact("hidden", 1000, "given"), Fact("heads", 12, "given")]))).numbers["remainder"]
    4
    """
    hidden, heads = numbers.get("hidden"), numbers.get("heads")
    if hidden is None or heads is None or numbers.get("head_size") is not None or hidden % heads == 0:
        return
    legal = up_to_next(divisors_shown(hidden), heads)[-2:]
    facts = {"hidden": hidden, "heads": heads, "remainder": hidden % heads, "legal": legal}
    yield Finding("RA126", "error", facts, [Fix({"heads": size}) for size in legal])


def query_groups(numbers: Numbers) -> Iterator[Finding]:
    """RA127: attention heads that are no multiple of the heads of keys and values, whatever the layout.

    >>> from rankatlas.job import Fact
    >>> next(query_groups(Numbers([Fact("heads", 32, "given"), Fact("kv_heads", 6, "given")]))).numbers["legal"]
    [4, 8]
    """
    heads, total = numbers.get("heads"), numbers.get("kv_heads")
    if heads is None or total is None or heads % total == 0:
        return
    legal = up_to_next(divisors_shown(heads), total)[-2:]
    facts = {"heads": heads, "kv_heads": total, "remainder": heads % total, "legal": legal}
    here = numbers.origin("kv_heads").startswith("given")  # and not in the model's own file
    yield Finding("RA127", "error", facts, [Fix({"kv_heads": size}) for size in legal if here])


def key_value_heads(numbers: Numbers) -> Iterator[Finding]:
    """RA121: kv heads neither shared out evenly over tp nor copied evenly; RA124 where they are copied."""
    tp, total = numbers["tp"], numbers.get("kv_heads")
    if total is None or total % tp == 0 or total == numbers.get("heads"):  # as many as heads: RA120 says it
        return
    if total < tp and tp % total == 0:
        yield Finding("RA124", "note", {**_facts(numbers, "kv_heads", total), "copies": tp // total})
        return
    yield Finding("RA121", "error", _facts(numbers, "kv_heads", total), _fixes(numbers, total))


def vocabulary(numbers: Numbers) -> Iterator[Finding]:
    """RA125: a vocabulary that is no multiple of tp, in a framework that does not pad it."""
    tp, vocab = numbers["tp"], numbers.get("vocab")
    if vocab is None or vocab % tp == 0 or numbers.format.startswith(_PADS) or numbers.get("vocab_multiple"):
        return
    padded = -(-vocab // tp) * tp
    yield Finding(
        "RA125",
        "warning",
        {**_facts(numbers, "vocab", vocab), "padded": padded},
        [*_fixes(numbers, vocab), Fix({"vocab": padded})],
    )


def padded_vocabulary(numbers: Numbers) -> tuple[int, int] | None:
    """(entries after padding, the multiple they are padded to), None where nothing is padded or known.

    Megatron's rule: up to a multiple of `vocab_multiple` (128 unless given) times tp.

    >>> from rankatlas.job import Fact
    >>> facts = [Fact("vocab", 50257, "given"), Fact("tp", 4, "given")]
    >>> padded_vocabulary(Numbers(facts, format="megatron-0.16"))
    (50688, 512)
    """
    vocab = numbers.get("vocab")
    if vocab is None or not numbers.written("megatron"):
        return None
    multiple = (numbers.get("vocab_multiple") or _DEFAULT_MULTIPLE) * numbers["tp"]
    padded = -(-vocab // multiple) * multiple
    return None if padded == vocab else (padded, multiple)


def _facts(numbers: Numbers, name: str, total: int) -> dict[str, object]:
    tp = numbers["tp"]
    every = divisors_shown(total)
    legal = [size for size in every if size <= 2 * tp]
    return {
        "name": name,
        "total": total,
        "tp": tp,
        "size": numbers.label("tp"),
        "remainder": total % tp,
        "legal": Cut(legal) if len(legal) < len(every) else legal,
    }


def _fixes(numbers: Numbers, total: int) -> list[Fix]:
    """The nearest smaller tensor sizes that divide; the ranks that become free go to the data axes."""
    tp = numbers["tp"]
    found = []
    for size in [size for size in legal_sizes(total, tp) if size < tp][:2]:
        changes = {"tp": size}
        if says_data(numbers):
            changes["dp"] = numbers["dp"] * (tp // size)
        found.append(Fix(changes))
    return found
