"""Reinforcement learning: what train and rollout workers must agree on."""

from __future__ import annotations

from collections.abc import Iterator

from rankatlas.checks.finding import Finding, Fix
from rankatlas.checks.numbers import Numbers, divisors_shown, up_to_next


def rollout(numbers: Numbers) -> Iterator[Finding]:
    """RA160: the ranks of rollout are no multiple of its tensor size.

    >>> from rankatlas.job import Fact
    >>> found = next(rollout(Numbers([Fact("world", 1, "given"), Fact("rollout_tp", 2, "default of verl")])))
    >>> found.numbers["legal"]
    [1]
    """
    size = numbers.get("rollout_tp")
    world = numbers.get("rollout_world") or numbers.get("world")
    if size is None or world is None or world % (size * numbers["rollout_pp"]) == 0:
        return
    legal = up_to_next(divisors_shown(world), size)
    origin = numbers.origin("rollout_tp")
    facts = {
        "rollout_tp": size,
        "origin": origin or "given",
        "world": world,
        "remainder": world % size,
        "legal": legal,
    }
    fixes = [Fix({"rollout_tp": value}) for value in reversed(legal) if value != size]
    yield Finding("RA160", "error", facts, fixes[:2])


def samples(numbers: Numbers) -> Iterator[Finding]:
    """RA161: prompts × responses of a step are no multiple of the data ranks that train on them."""
    prompts, responses = numbers.get("prompts"), numbers.get("responses") or 1
    data = numbers["dp"]
    if prompts is None or prompts * responses % data == 0:
        return
    batch = prompts * responses
    below = prompts // data * data
    near = [value for value in (below, below + data) if value > 0]
    facts = {
        "prompts": prompts,
        "responses": responses,
        "samples": batch,
        "data": data,
        "remainder": batch % data,
        "legal": near,
    }
    yield Finding("RA161", "error", facts, [Fix({"prompts": value}) for value in near])


def mini_batches(numbers: Numbers) -> Iterator[Finding]:
    """RA162: the samples of a step are no multiple of the batch of one optimizer step."""
    prompts, responses, batch = numbers.get("prompts"), numbers.get("responses") or 1, numbers.get("global_batch")
    if prompts is None or batch is None or prompts * responses % batch == 0:
        return
    samples = prompts * responses
    legal = up_to_next(divisors_shown(samples), batch)
    facts = {"samples": samples, "batch": batch, "remainder": samples % batch, "legal": legal}
    yield Finding("RA162", "warning", facts, [Fix({"global_batch": value}) for value in legal[:-3:-1]])
