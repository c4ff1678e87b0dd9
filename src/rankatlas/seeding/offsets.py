"""The numbers Megatron-core adds to a base seed, as schemes: what its streams are seeded with, meetings included.

Source: `_set_random_seed` in megatron/training/initialize.py, `model_parallel_cuda_manual_seed` in
megatron/core/tensor_parallel/random.py (0.16).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from rankatlas.core import Mesh
from rankatlas.seeding.scheme import Family, parse_scheme

# Stream → what is added, as (factor, axis) and plain numbers.
_OFFSETS: Mapping[str, tuple[tuple[int, str], ...]] = MappingProxyType(
    {
        "data-parallel-rng": ((100, "pp"),),
        "model-parallel-rng": ((100, "pp"), (2718, ""), (1, "tp")),
        "expert-parallel-rng": ((100, "pp"), (1024, ""), (100, "ep"), (1, "etp")),
    }
)


def megatron_scheme(name: str, mesh: Mesh) -> str | None:
    """The formula of a stream of Megatron-core over the axes that `mesh` has, None for one that it does not keep.

    >>> mesh = Mesh(pp=2, edp=2, ep=4)
    >>> megatron_scheme("expert-parallel-rng", mesh), megatron_scheme("context-parallel-rng", mesh)
    ('base+100*pp+1024+100*ep', None)
    """
    if name not in _OFFSETS:
        return None
    terms = [
        str(factor) if not axis else axis if factor == 1 else f"{factor}*{axis}"
        for factor, axis in _OFFSETS[name]
        if not axis or axis in mesh.axes
    ]
    return "+".join(["base", *terms])


def megatron_families(names: Iterable[str], mesh: Mesh) -> list[Family]:
    """The families of seeds of these streams.

    >>> [family] = megatron_families(["expert-parallel-rng"], Mesh(pp=2, ep=2))
    >>> [family.seed({"base": 1234, "pp": pp, "ep": ep}) for pp, ep in ((0, 1), (1, 0))]
    [2358, 2358]
    """
    found = []
    for name in names:
        scheme = megatron_scheme(name, mesh)
        if scheme is not None:
            [family] = parse_scheme(scheme, mesh)
            found.append(Family(name, family.axes, family.seed))
    return found
