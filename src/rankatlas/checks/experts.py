"""Experts: the expert axes against the ranks of a stage, and the experts against them."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from rankatlas.catalogue import said
from rankatlas.checks.finding import Finding, Fix
from rankatlas.checks.numbers import Numbers, divisors_shown

_OF_MEGATRON = ("megatron", "verl", "nemo")  # whose own rules these are
_INHERITED = ("inherit", "same as tp", "default")


def ranks(numbers: Numbers) -> Iterator[Finding]:
    """RA110: ep × etp does not divide the ranks that experts are shared out over.

    >>> from rankatlas.job import Fact
    >>> given = {"world": 6, "dp": 2, "tp": 3, "ep": 4, "experts": 8}
    >>> found = next(ranks(Numbers(Fact(name, size, "given") for name, size in given.items())))
    >>> found.numbers["remainder"], found.numbers["legal"]
    (2, [1, 2])
    """
    ep = numbers.get("ep")
    etp = numbers["etp"]
    if ep is None or ep * etp == 1:
        return
    there, axes = numbers.expert_ranks()
    if numbers.mesh is not None and any(axis in numbers.mesh.axes for axis in numbers.axes.get("ep", ())):
        return  # an axis of its own takes ranks of its own
    if there % (ep * etp) == 0:
        return
    experts = numbers.get("experts")
    whole = there // etp if there % etp == 0 else 0  # where etp alone does not divide, no ep does
    legal = divisors_shown(gcd(whole, experts) if experts else whole) if whole else []
    yield Finding(
        "RA110",
        "error",
        {
            "ep": ep,
            "etp": etp,
            "block": _block(numbers),
            "ranks": there,
            "axes": "*".join(axes),
            "remainder": there % (ep * etp),
            "legal": legal,
        },
        ([Fix({"etp": 1})] if etp > 1 and there % ep == 0 else []) + [Fix({"ep": size}) for size in _near(legal, ep)],
    )


def inherited_size(numbers: Numbers) -> bool:
    """Whether the tensor size of experts came from elsewhere, because nobody gave it."""
    return any(word in numbers.origin("etp") for word in _INHERITED)


def _block(numbers: Numbers) -> str:
    """The ranks of one set of experts, and where its tensor size came from if nobody gave it."""
    ep, etp = numbers["ep"], numbers["etp"]
    if etp == 1:
        return f"ep={ep}"
    return said("block.inherited" if inherited_size(numbers) else "block.plain", ep=ep, etp=etp, ranks=ep * etp)


def count(numbers: Numbers) -> Iterator[Finding]:
    """RA111: the experts of a layer are no multiple of ep."""
    ep, experts = numbers["ep"], numbers.get("experts")
    if experts is None or ep == 1 or experts % ep == 0:
        return
    there, _ = numbers.expert_ranks()
    fitting = [size for size in divisors_shown(experts) if there % (size * numbers["etp"]) == 0] or divisors_shown(
        experts
    )
    yield Finding(
        "RA111",
        "error",
        {"experts": experts, "ep": ep, "remainder": experts % ep, "legal": fitting},
        [Fix({"ep": size}) for size in _near(fitting, ep)],
    )


def inherited(numbers: Numbers) -> Iterator[Finding]:
    """RA112: etp was not given and took the value of tp."""
    ep, etp = numbers["ep"], numbers["etp"]
    origin = numbers.origin("etp")
    if ep == 1 or etp == 1 or etp != numbers["tp"] or not inherited_size(numbers):
        return
    there, _ = numbers.expert_ranks()
    if there % (ep * etp):
        return
    yield Finding(
        "RA112",
        "note",
        {
            "etp": etp,
            "ep": ep,
            "tp": numbers["tp"],
            "origin": origin,
            "expert_block": ep * etp,
            "edp": there // (ep * etp),
            "one_block": ep,
            "one_edp": there // ep,
        },
        [Fix({"etp": 1}), Fix({"etp": etp})],
    )


def unused(numbers: Numbers) -> Iterator[Finding]:
    """RA113: ep above 1 for a model that has no experts."""
    model = all(numbers.get(name) for name in ("hidden", "layers", "heads")) or numbers.written("megatron")
    if numbers["ep"] > 1 and model and numbers.get("layers") and numbers.value("experts") is None:
        severity = "error" if numbers.written("megatron") else "warning"
        yield Finding("RA113", severity, {"ep": numbers["ep"]}, [Fix({"ep": 1})])


def features(numbers: Numbers) -> Iterator[Finding]:
    """RA114: the features inside an expert are no multiple of etp."""
    etp, ffn = numbers["etp"], numbers.get("expert_ffn")
    if ffn is not None and ffn % etp:
        legal = [size for size in divisors_shown(etp) if ffn % size == 0]
        yield Finding(
            "RA114",
            "error",
            {"expert_ffn": ffn, "etp": etp, "remainder": ffn % etp, "legal": legal},
            [Fix({"etp": size}) for size in legal[-1:]],
        )


def without_sequence(numbers: Numbers) -> Iterator[Finding]:
    """RA115: experts beside tensor ranks that do not share sequences out, which Megatron refuses while training.

    Source: `MoELayer.forward` in megatron/core/transformer/moe/moe_layer.py (0.16).
    """
    off = numbers.value("sequence_parallel") is False and numbers.format.startswith(_OF_MEGATRON)
    if off and numbers.get("experts") and numbers["tp"] > 1:
        facts = {"experts": numbers["experts"], "size": numbers.label("tp"), "tp": numbers["tp"]}
        yield Finding("RA115", "error", facts, [Fix({"sequence_parallel": True})])


def bias(numbers: Numbers) -> Iterator[Finding]:
    """RA116: experts that are cut along etp and have a bias, which Megatron refuses.

    Source: `__post_init__` in megatron/core/transformer/transformer_config.py (0.16).
    """
    etp = numbers["etp"]
    biased = numbers.value("linear_bias") is True and numbers.format.startswith(_OF_MEGATRON)
    if biased and numbers.get("experts") and etp > 1:
        facts = {"etp": etp, "block": _block(numbers)}
        yield Finding("RA116", "error", facts, [Fix({"linear_bias": False}), Fix({"etp": 1})])


def _near(legal: list[int], wanted: int) -> list[int]:
    """The legal sizes next below and above what was wanted."""
    below = [size for size in legal if size < wanted]
    above = [size for size in legal if size > wanted]
    return [*below[-1:], *above[:1]]
