"""Training and generation as one atlas: the charts of the trainer, and one of the engines that generate."""

from __future__ import annotations

from collections.abc import Mapping

from rankatlas.core import Atlas, Mesh
from rankatlas.core.sizes import checked_size
from rankatlas.errors import DegreeError
from rankatlas.job import Fact, Job


def with_rollout(train: Mesh | Atlas, rollout: Mesh) -> Atlas:
    """The atlas `train` (`train_dense` and `train_expert` where there are experts) and `rollout`.

    >>> print(with_rollout(Mesh(dp=4), Mesh(dp=2, tp=2)))
    train: dp=4; rollout: dp=2 tp=2
    """
    if isinstance(train, Mesh):
        return Atlas.from_charts({"train": train, "rollout": rollout})
    charts = {f"train_{name}": mesh for name, mesh in train.charts.items()}
    return Atlas.from_charts({**charts, "rollout": rollout})


def rollout_size(name: str, sizes: Mapping[str, Fact], world: int) -> int:
    """How many engines `world` ranks make when each takes the product of these sizes.

    Raises DegreeError, which says where every size came from and which would do.
    """
    product = 1
    for fact in sizes.values():
        product *= checked_size(fact.name, fact.value, label=fact.name)
    if world % product == 0:
        return world // product
    told = " * ".join(f"{fact.name}={fact.value} ({fact.origin})" for fact in sizes.values() if fact.value > 1)
    legal = [size for size in range(1, min(world, 1 << 16) + 1) if world % size == 0]
    listed = ", ".join(map(str, legal[:12])) + (", …" if len(legal) > 12 else "")
    raise DegreeError(
        f"{told}: an engine of {product} ranks does not fit into world_size={world}, {world % product} are left over\n"
        f"ranks of one engine may be {listed}; set {name} to one of them",
        name=next(iter(sizes.values())).name,
        size=product,
        ranks=world,
        remainder=world % product,
        legal=legal,
        told="world_size",
        origins={fact.name: fact.origin for fact in sizes.values()},
    )


def told_facts(job: Job, part: str) -> list[Fact]:
    """The facts of a trainer's job under the name of its part."""
    return [Fact(f"{part}.{fact.name}", fact.value, fact.origin) for fact in job.facts]
