"""Experts and contexts in PaddleFormers: a second mesh over the same ranks, and cp inside sharding.

The trainer inserts ep, moe_sharding and cp into its order; fleet then builds three topologies of it: pipe, moe_sharding
and expert for the experts; pipe, moe_sharding and the rest of sharding for the dense layers; and cp as the runs of
`cp` neighbours of every sharding group.  Source: `_post_init_parallel_degree` in paddleformers/trainer/training_args.py
(1.2) and `EPHybridCommunicateGroup` in paddle/distributed/fleet/base/topology.py (3.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rankatlas.catalogue import said
from rankatlas.core import Atlas, Mesh
from rankatlas.core.sizes import resolve
from rankatlas.dialects.given import Given
from rankatlas.dialects.paddle_settings import settings_of
from rankatlas.dialects.picking import world_needed
from rankatlas.dialects.slips import with_slips
from rankatlas.errors import ArgumentsError
from rankatlas.job import Fact, Job
from rankatlas.topology.training_args import Settled, flag, read_arguments

_EP, _ETP, _CP = "expert_model_parallel_size", "expert_tensor_model_parallel_size", "context_parallel_size"


def there(given: Given, release: str) -> bool:
    """Whether PaddleFormers' arguments ask for an expert axis, which five axes cannot show."""
    return release == "paddleformers-1.2" and not flag(given, "enable_auto_parallel") and (given.size(_EP) or 1) > 1


def read(given: Given, release: str, world: int | None, notes: list[str]) -> Job:
    """The job of arguments with an expert size: charts `dense` and `expert` that share the pipeline.

    Raises SourceError, ArgumentsError (what the trainer or fleet refuses), WorldSizeError.
    """
    if world is None:
        raise world_needed(given, "training arguments")
    if (given.size(_ETP) or 1) > 1:
        raise ArgumentsError(said("refused.etp", name=_ETP, value=given.at(_ETP)), names=(_ETP,))
    if not flag(given, "use_expert_parallel"):
        raise ArgumentsError(
            said("refused.ep_off", name=_EP, value=given.at(_EP)),
            names=(_EP, "use_expert_parallel"),
        )
    plain = {name: value for name, value in given.items() if name not in (_EP, _ETP, _CP, "cp_degree")}
    settled: Settled = read_arguments(plain, world, release=release)
    sizes = dict(settled.degrees)
    facts = {axis: Fact(axis, sizes[axis], _told(given, settled.origins[axis], world)) for axis in sizes}
    expert, context = given.size(_EP) or 1, given.size(_CP) or 1
    facts["ep"] = Fact("ep", expert, given.origin(_EP))
    facts["cp"] = Fact("cp", context, given.origin(_CP) if context > 1 else said("not_set"))
    found = resolve({"pp": sizes["pp"], "moe_sharding": None, "ep": expert}, world, origins={"ep": given.origin(_EP)})
    facts["moe_sharding"] = Fact("moe_sharding", found["moe_sharding"], said("inferred.world_size", world=world))
    order = _order(given, settled)
    atlas, more = layout_of({axis: fact.value for axis, fact in facts.items()}, order, world, facts)
    seed = given.at("seed")
    # A context group reads one sequence, so the data is split over what cp leaves of sharding.
    found_settings, further = settings_of(given, release, max(1, sizes["sharding"] // context))
    return Job(
        atlas,
        format=release,
        source=given.source,
        facts=[facts[axis] for axis in order if axis in facts],
        notes=with_slips(given, [*notes, *more, *further]),
        seed=seed if isinstance(seed, int) and not isinstance(seed, bool) else None,
        settings=found_settings,
    )


def _told(given: Given, origin: str, world: int) -> str:
    words = {"inferred": said("inferred.world_size", world=world), "not set": said("not_set")}
    return words.get(origin, given.origin(origin))


def _order(given: Given, settled: Settled) -> tuple[str, ...]:
    """The trainer's order with the expert axes inserted by its rules."""
    if flag(given, "reorder_pipeline_priority"):
        return ("sharding", "moe_sharding", "pp", "sep", "cp", "dp", "ep", "mp")
    order = list(settled.order)
    order.insert(-1, "ep")
    order.insert(order.index("sharding"), "moe_sharding")
    order.insert(order.index("sharding"), "cp")
    return tuple(order)


def layout_of(
    sizes: Mapping[str, int], order: Sequence[str], world: int | None, facts: Mapping[str, Fact]
) -> tuple[Atlas, list[str]]:
    """The charts that fleet builds from these sizes in this order, and what is to be said about them.

    Raises ArgumentsError where fleet refuses.
    """
    moe, whole, cp = sizes["moe_sharding"], sizes["sharding"], sizes["cp"]
    if "moe_sharding" not in order:
        raise ArgumentsError(
            f"ep={sizes['ep']} ({facts['ep'].origin}): fleet needs moe_sharding in the order as well", names=("order",)
        )
    for axis in ("dp", "sep"):
        if sizes[axis] > 1:
            raise ArgumentsError(
                said("refused.beside_experts", axis=axis, size=sizes[axis], origin=facts[axis].origin),
                names=(axis,),
            )
    product = sizes["pp"] * whole * sizes["mp"]
    experts = sizes["pp"] * moe * sizes["ep"]
    if product != experts or (world is not None and product != world):
        raise ArgumentsError(
            said(
                "refused.two_worlds",
                dense=product,
                experts=experts,
                world=said("refused.of_world", world=world) if world else "",
            ),
            names=("sharding", "moe_sharding", "ep"),
        )
    if whole % moe or whole % cp:
        what, size = ("moe_sharding", moe) if whole % moe else ("cp", cp)
        raise ArgumentsError(said("refused.inside", whole=whole, axis=what, size=size), names=(what,))
    first = order.index("moe_sharding") < order.index("pp")
    notes = []
    inner = whole // moe
    shared: tuple[str, ...] = ("pp",)
    if first and sizes["pp"] > 1 and min(moe, inner) > 1:
        if inner % cp:
            raise ArgumentsError(
                said("refused.over_stages", cp=cp, moe=moe, inner=inner),
                names=(_CP,),
            )
        block = [("moe_sharding", moe), ("pp", sizes["pp"]), ("sharding", inner // cp), ("cp", cp)]
        shared = ("moe_sharding", "pp")
        notes.append(said("noted.sharding_over", axes="moe_sharding, sharding" + (", cp" if cp > 1 else "")))
    else:
        parts, pipe = [("sharding", whole // cp), ("cp", cp)], [("pp", sizes["pp"])]
        block = parts + pipe if first and inner == 1 else pipe + parts
    model = [("mp", sizes["mp"])]
    axes = block + model if order.index("pp") < order.index("mp") else model + block
    names = [axis for axis in order if axis in ("pp", "moe_sharding", "ep")]
    dense = Mesh.from_axes([axis for axis in axes if axis[0] != "cp" or cp > 1])
    expert = Mesh.from_axes([(axis, sizes[axis]) for axis in names])
    before = {"pp": not first, "mp": order.index("mp") < order.index("pp")}
    outside = [f"{axis}={sizes[axis]}" for axis, there in before.items() if there and sizes[axis] > 1]
    if outside and moe > 1:
        notes.append(said("noted.fleet", outside=outside, moe=moe))
    if dense.stride("pp") != expert.stride("pp") and sizes["pp"] > 1:
        shared = tuple(axis for axis in shared if axis != "pp")
        notes.append(said("noted.fleet_stages"))
    if cp > 1:
        notes.append(said("noted.cp_inside", cp=cp))
    return Atlas(dense=dense, expert=expert, shared=shared), notes
