"""Reinforcement learning: what train and rollout workers must agree on."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, lcm

from rankatlas.catalogue import said
from rankatlas.checks.finding import Finding, Fix
from rankatlas.checks.numbers import Numbers, divisors_shown, up_to_next

_OF_MEGATRON = (None, "Megatron FSDP", "torch FSDP2")  # how Megatron's own arguments say `fsdp`, if they do


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
        "origin": origin or said("given.plain"),
        "world": world,
        "remainder": world % size,
        "legal": legal,
    }
    fixes = [Fix({"rollout_tp": value}) for value in reversed(legal) if value != size]
    yield Finding("RA160", "error", facts, fixes[:2])


def rollout_heads(numbers: Numbers) -> Iterator[Finding]:
    """RA163: heads of the model that the tensor ranks of rollout cannot share.

    Source: `verify_with_parallel_config` in vllm/config/model.py, `LlamaAttention` in
    vllm/model_executor/models/llama.py (0.10).

    >>> from rankatlas.job import Fact
    >>> given = {"world": 24, "rollout_tp": 6, "heads": 32}
    >>> next(rollout_heads(Numbers(Fact(name, size, "given") for name, size in given.items()))).numbers["legal"]
    [1, 2, 4, 8]
    """
    size, heads, shared = numbers.get("rollout_tp"), numbers.get("heads"), numbers.get("kv_heads")
    if size is None:
        return
    world = (numbers.get("rollout_world") or numbers["world"]) // numbers["rollout_pp"]
    fits = [
        one
        for one in divisors_shown(world)
        if not (heads or 0) % one and (shared is None or not shared % one or not one % shared)
    ]
    legal = up_to_next(fits, size)
    fixes = [Fix({"rollout_tp": one}) for one in reversed(legal)][:2]
    facts = {"rollout_tp": size, "legal": legal}
    if heads is not None and heads % size:
        told = {"total": heads, "what": said("heads.attention"), "remainder": heads % size}
        yield Finding("RA163", "error", {**facts, **told}, fixes)
    elif shared is not None and shared % size and size % shared:
        told = {"total": shared, "what": said("heads.shared"), "remainder": shared % size}
        yield Finding("RA163", "error", {**facts, **told}, fixes)


def samples(numbers: Numbers) -> Iterator[Finding]:
    """RA161: prompts × responses of a step are no multiple of what the training ranks take at a time.

    >>> from rankatlas.job import Fact
    >>> given = {"prompts": 100, "responses": 1, "dp": 4, "micro_batch": 8}
    >>> found = next(samples(Numbers([Fact(name, size, "given") for name, size in given.items()], format="verl-0.9")))
    >>> found.numbers["share"], found.numbers["remainder"], found.numbers["legal"]
    ('dp=4 × micro_batch=8 = 32', 4, [96, 128])
    """
    prompts, responses = numbers.get("prompts"), numbers.get("responses") or 1
    each, share = _taken_at_once(numbers)
    if prompts is None or prompts * responses % each == 0:
        return
    batch = prompts * responses
    near = _around(prompts, each // gcd(each, responses))
    facts = {
        "prompts": prompts,
        "responses": responses,
        "samples": batch,
        "data": numbers["dp"],
        "each": each,
        "share": share,
        "remainder": batch % each,
        "legal": near,
    }
    fixes = [Fix({"prompts": value}) for value in near]
    micro, data = numbers["micro_batch"], numbers["dp"]
    if each == data * micro and batch % data == 0:
        fixes += [Fix({"micro_batch": size}) for size in divisors_shown(batch // data) if size < micro][-1:]
    yield Finding("RA161", "error", facts, [*fixes, *both_batches(numbers)])


def mini_batches(numbers: Numbers) -> Iterator[Finding]:
    """RA162: the samples of a step are no multiple of the batch of one optimizer step.

    verl raises ValueError where the batch is larger than the step, unless its micro-batches are dynamic, and so not
    known (`ActorConfig.validate`, verl 0.9.1).

    >>> from rankatlas.job import Fact
    >>> given = {"prompts": 64, "responses": 2, "global_batch": 256, "dp": 8, "micro_batch": 1}
    >>> found = next(mini_batches(Numbers([Fact(name, size, "given") for name, size in given.items()], format="verl")))
    >>> found.severity, found.numbers["legal"], [dict(fix.changes) for fix in found.fixes]
    ('error', [8, 16, 32, 64, 128], [{'global_batch': 128}, {'global_batch': 64}, {'prompts': 128}])
    """
    prompts, responses, batch = numbers.get("prompts"), numbers.get("responses") or 1, numbers.get("global_batch")
    if prompts is None or batch is None or prompts * responses % batch == 0:
        return
    samples = prompts * responses
    unit = numbers["dp"] * (numbers.get("micro_batch") or 1)  # which the data ranks take of it at once
    if numbers.written("verl"):
        unit = lcm(unit, responses)  # it counts prompts
    legal = up_to_next([size for size in divisors_shown(samples) if size % unit == 0], batch)
    facts = {"samples": samples, "batch": batch, "remainder": samples % batch, "legal": legal}
    fixes = [Fix({"global_batch": value}) for value in legal[:-3:-1]]
    if batch % unit == 0:
        each, _ = _taken_at_once(numbers)
        step = lcm(batch // gcd(batch, responses), each // gcd(each, responses))
        fixes += [Fix({"prompts": value}) for value in _around(prompts, step)]
    refused = numbers.written("verl") and batch > samples and numbers.get("micro_batch") is not None
    severity = "error" if refused else "warning"
    yield Finding("RA162", severity, facts, [*fixes, *both_batches(numbers)])


def _taken_at_once(numbers: Numbers) -> tuple[int, str]:
    """The samples that a step must be a multiple of, and which sizes make them.

    verl asks of FSDP that all ranks share them, whatever Ulysses cuts, and of Megatron that they fill a micro-batch on
    every data rank: `validate_config` in verl/utils/config.py (0.9.1).  Only where it knows the micro-batch: without
    one the batch is dynamic, and the data ranks alone share it.
    """
    data, micro = numbers["dp"], numbers.get("micro_batch")
    if numbers.written("verl") and micro is not None:
        if numbers.value("fsdp") not in _OF_MEGATRON:
            return numbers["world"], f"world={numbers['world']}"
        return data * micro, f"dp={data} × micro_batch={micro} = {data * micro}"
    return data, f"dp={data}"


def both_batches(numbers: Numbers) -> list[Fix]:
    """The nearest sizes of a step and of an optimizer step that fit the ranks and each other, where both must change.

    >>> from rankatlas.job import Fact
    >>> given = {"prompts": 1000, "responses": 5, "global_batch": 1250, "micro_batch": 3, "dp": 8, "world": 24}
    >>> facts = [Fact(name, size, "given") for name, size in given.items()]
    >>> [dict(fix.changes) for fix in both_batches(Numbers(facts, format="verl-0.9"))]
    [{'global_batch': 1200, 'prompts': 960}]
    """
    prompts, responses, batch = numbers.get("prompts"), numbers.get("responses") or 1, numbers.get("global_batch")
    if prompts is None or batch is None:
        return []
    unit = numbers["dp"] * (numbers.get("micro_batch") or 1)
    if numbers.written("verl"):
        unit = lcm(unit, responses)  # it counts prompts
    each, _ = _taken_at_once(numbers)
    found = []
    for size in _around(batch, unit):
        step = lcm(size // gcd(size, responses), each // gcd(each, responses))
        for count in _around(prompts, step):
            sizes = (("global_batch", batch, size), ("prompts", prompts, count))
            changes = {name: new for name, old, new in sizes if new != old}
            far = abs(size - batch) / batch + abs(count - prompts) / prompts
            found.append((far, changes))
    return [Fix(changes) for _, changes in sorted(found, key=lambda one: one[0])[:1] if len(changes) == 2]


def _around(number: int, step: int) -> list[int]:
    """The multiples of a step next below and next above a number."""
    below = number // step * step
    return [value for value in (below, below + step) if value > 0]
