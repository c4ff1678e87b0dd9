"""The order of axes against the framework's own default, and seeds against the order of groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from rankatlas.catalogue import Said
from rankatlas.checks.finding import Finding
from rankatlas.checks.numbers import Numbers
from rankatlas.topology.training_args import DEFAULT_ORDER, TRAINER_ORDERS

# Family of formats → axes outer → inner where nothing says otherwise.
DEFAULTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "megatron": ("pp", "dp", "ep", "cp", "tp"),
        "torchtitan": ("pp", "dp_replicate", "dp_shard", "cp", "tp"),
        "accelerate": ("dp_replicate", "dp_shard", "cp", "sp", "tp"),
        "deepspeed": ("pipe", "data", "sp", "model"),
        **{release: TRAINER_ORDERS[name] for release, name in DEFAULT_ORDER.items()},
    }
)


def differs(numbers: Numbers) -> Iterator[Finding]:
    """RA180: axes above 1 that stand in another order than the framework's default.

    >>> from rankatlas import Mesh
    >>> from rankatlas.job import Job
    >>> job = Job(Mesh(dp=2, pp=2, tp=2), format="megatron-0.16", source="run.log")
    >>> next(differs(Numbers.of(job))).numbers["default"]
    ['pp', 'dp', 'tp']
    """
    mesh = numbers.mesh
    name = next((name for name in DEFAULTS if numbers.format.startswith(name)), None)
    if mesh is None or name is None or (numbers.expert is not None and name in DEFAULT_ORDER):
        return  # Paddle's expert axes bring an order of their own
    usual = DEFAULTS[name]
    axes = [axis for axis in mesh.axes if mesh.size(axis) > 1 and axis in usual]
    expected = [axis for axis in usual if axis in axes]
    if axes != expected:
        yield Finding("RA180", "note", {"order": axes, "default": expected, "format": numbers.format})


def seeds(numbers: Numbers) -> Iterator[Finding]:
    """RA181: PaddleNLP's auto-parallel scripts seed from other coordinates than those it communicates along."""
    for note in numbers.notes:
        if isinstance(note, Said) and note.code == "seeds.other":
            yield Finding("RA181", "warning", {"note": note, "mp": numbers["tp"], "sep": numbers["sep"]})
