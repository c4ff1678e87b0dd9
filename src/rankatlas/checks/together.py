"""What a framework takes each of, and not together; and parts of groups that do not divide them."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from rankatlas.catalogue import Said
from rankatlas.checks.finding import Finding, Fix
from rankatlas.checks.numbers import Numbers, divisors_shown, up_to_next


def apart(numbers: Numbers) -> Iterator[Finding]:
    """RA200: settings that a framework refuses together.

    Sources: validate_args in megatron/training/arguments.py (0.16), `PipelineEngine` in
    deepspeed/runtime/pipe/engine.py (0.19), `ParallelismConfig` in accelerate/parallelism_config.py (1.15).
    """
    if numbers.written("megatron") and numbers.value("fsdp") == "torch FSDP2":
        for name in ("pp", "ep"):
            if numbers[name] > 1:
                yield _apart(numbers, "use_torch_fsdp2", name, Fix({name: 1}))
    if numbers.written("deepspeed") and numbers["pp"] > 1 and (numbers.get("zero_stage") or 0) >= 2:
        yield _apart(numbers, f"zero_optimization.stage={numbers['zero_stage']}", "pp", Fix({"zero_stage": 1}))
    if numbers.format.startswith("accelerate-") and "+" not in numbers.format and numbers.mesh is not None:
        if numbers["cp"] > 1 and numbers["sep"] > 1:
            yield _apart(numbers, numbers.label("cp"), "sep")
        mesh = numbers.mesh
        sizes = [mesh.size(axis) if axis in mesh.axes else 1 for axis in ("dp_replicate", "dp_shard")]
        inner = next((name for name in ("tp", "cp") if numbers[name] > 1), None)
        if inner is not None and sizes[0] > 1 and sizes[1] == 1:
            yield _apart(numbers, f"dp_replicate={sizes[0]} dp_shard=1", inner)


def _apart(numbers: Numbers, first: str, name: str, *fixes: Fix) -> Finding:
    return Finding("RA200", "error", {"first": first, "second": numbers.label(name), "format": numbers.format}, fixes)


def parts(numbers: Numbers) -> Iterator[Finding]:
    """RA201: parts of the data ranks for Megatron's optimizer that do not divide them; RA147: levels that are not cp.

    Source: `initialize_model_parallel` in megatron/core/parallel_state.py (0.16).
    """
    for note in numbers.notes:
        if not isinstance(note, Said):
            continue
        if note.code == "noted.instances":
            ranks, count = numbers["dp"] * numbers["cp"], note.numbers["count"]
            if ranks % count:
                facts = {"count": count, "ranks": ranks, "legal": up_to_next(divisors_shown(ranks), count)}
                yield Finding("RA201", "error", facts)
        if note.code == "noted.levels":
            sizes = note.numbers.get("sizes")
            if isinstance(sizes, list) and all(type(size) is int for size in sizes) and prod(sizes) != numbers["cp"]:
                yield Finding("RA147", "error", {"sizes": sizes, "product": prod(sizes), "cp": numbers["cp"]})
