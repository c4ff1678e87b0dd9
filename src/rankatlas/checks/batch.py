"""Batch sizes against the data axes: global = micro × accumulation × data."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from rankatlas.checks.finding import Finding, Fix
from rankatlas.checks.numbers import Numbers, divisors_shown, up_to_next
from rankatlas.checks.roles import both_batches


def product(numbers: Numbers) -> Iterator[Finding]:
    """RA150: all three are given and do not multiply to the global batch.

    >>> from rankatlas.job import Fact
    >>> given = {"global_batch": 256, "micro_batch": 2, "accumulation": 18, "dp": 7}
    >>> found = next(product(Numbers(Fact(name, size, "given") for name, size in given.items())))
    >>> found.numbers["product"], found.numbers["legal"]
    (252, [1, 2, 4, 8])
    """
    batch, micro, accumulation = (numbers.get(name) for name in ("global_batch", "micro_batch", "accumulation"))
    data = numbers["dp"]
    if batch is None or micro is None or accumulation is None or micro * accumulation * data == batch:
        return
    total = micro * accumulation * data
    facts = {
        "global_batch": batch,
        "micro_batch": micro,
        "accumulation": accumulation,
        "data": _data(numbers),
        "product": total,
        "legal": _legal_data(batch, micro, data),
    }
    fixes = [Fix({"global_batch": total})]
    if batch % (micro * data) == 0:
        fixes.insert(0, Fix({"accumulation": batch // (micro * data)}))
    if batch % (accumulation * data) == 0:
        fixes.append(Fix({"micro_batch": batch // (accumulation * data)}))
    yield Finding("RA150", "error", facts, fixes)


def remainder(numbers: Numbers) -> Iterator[Finding]:
    """RA151: the global batch is no multiple of micro × data, whatever the accumulation.

    >>> from rankatlas.job import Fact
    >>> given = {"global_batch": 24, "micro_batch": 1, "dp": 16}
    >>> found = next(remainder(Numbers(Fact(name, size, "given") for name, size in given.items())))
    >>> found.numbers["remainder"], found.numbers["batches"]
    (8, [16, 32])
    """
    batch, micro, data = numbers.get("global_batch"), numbers.get("micro_batch"), numbers["dp"]
    if batch is None or numbers.get("accumulation") is not None:
        return
    each = (micro or 1) * data
    if batch % each == 0:
        return
    step = lcm(each, numbers["responses"]) if numbers.written("verl") else each  # verl counts prompts
    below = batch // step * step
    batches = [value for value in (below, below + step) if value > 0]
    facts = {
        "global_batch": batch,
        "micro_batch": micro or 1,
        "data": _data(numbers),
        "each": each,
        "remainder": batch % each,
        "batches": batches,
        "legal": _legal_data(batch, micro or 1, data),
    }
    fixes = [Fix({"global_batch": value}) for value in batches]
    smaller = [] if micro is None or batch % data else [size for size in divisors_shown(batch // data) if size < micro]
    fixes += [Fix({"micro_batch": size}) for size in smaller[-1:]]
    yield Finding("RA151", "error", facts, [*fixes, *both_batches(numbers)])


def _data(numbers: Numbers) -> str:
    """The data size with its axes, such as dp=7 or dp*sharding=8."""
    axes = numbers.axes.get("dp", ())
    if numbers.mesh is not None and len(axes) > 1:
        large = [axis for axis in axes if numbers.mesh.size(axis) > 1]
        axes = tuple(large) or axes[:1]
    return f"{'*'.join(axes) or 'dp'}={numbers['dp']}"


def _legal_data(batch: int, micro: int, data: int) -> list[int]:
    """The data sizes that share the micro-batches out, up to the first that is not smaller."""
    return up_to_next(divisors_shown(batch // micro), data) if batch % micro == 0 else []
