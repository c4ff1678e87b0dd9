"""`hybrid_configs`, the dict that Paddle's fleet takes: degrees by name, and the order if it is another than fleet's.

Source: `_init_hybrid_parallel_env` in paddle/distributed/fleet/fleet.py, `HybridCommunicateGroup` in its
base/topology.py, and the defaults in distributed_strategy.proto (Paddle 3.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from rankatlas.catalogue import said
from rankatlas.core import Atlas, Mesh
from rankatlas.core.border import as_int
from rankatlas.core.sizes import checked_size, resolve
from rankatlas.dialects.given import Given
from rankatlas.dialects.paddle_experts import layout_of
from rankatlas.dialects.picking import not_understood, world_needed, world_of
from rankatlas.dialects.slips import with_slips
from rankatlas.errors import ArgumentsError, shown
from rankatlas.job import Fact, Job

_AXES = ("dp", "pp", "sharding", "sep", "cp", "mp", "ep", "moe_sharding")
_ORDER = ("dp", "pp", "sharding", "sep", "cp", "mp")
_ALWAYS = ("dp", "pp", "sharding", "sep", "mp")  # fleet asks its topology for these, whatever their sizes
_WITH_EXPERTS = ("ep", "moe_sharding")  # what a degree below 1 is 1 for
DEFAULT = said("default.of", name="Paddle fleet 3.3")


def is_fleet(given: Given) -> bool:
    """Whether these settings are a `hybrid_configs` or hold one."""
    if isinstance(given.at("hybrid_configs"), Mapping):
        return True
    return isinstance(given.at("order"), list) and any(f"{axis}_degree" in given for axis in _AXES)


def read(given: Given, world_size: int | None) -> Job:
    """The job of a `hybrid_configs`.  Cost: O(axes).

    A dp degree that is not given, or below 0, is what mp and pp leave of the world, whatever the other degrees are.
    Raises SourceError (dp open and the world unknown), ArgumentsError (what fleet refuses), WorldSizeError.
    """
    prefix = "hybrid_configs." if isinstance(given.at("hybrid_configs"), Mapping) else ""
    world, _, notes = world_of(given, world_size)
    order, more = _order(given.at(f"{prefix}order"))
    facts = {axis: _degree(given, prefix, axis) for axis in _AXES}
    notes = [*given.notes, *notes, *more, *_ignored(facts, order)]
    facts |= {axis: Fact(axis, 1, said("fleet.not_in_order")) for axis in _AXES if axis not in (*order, *_ALWAYS)}
    if facts["dp"].value is None:
        facts["dp"] = _open_data(given, facts, world)
    if facts["ep"].value == 1:
        _refuse_without_experts(facts)
        sizes = {axis: facts[axis].value for axis in order}
        if world is not None:
            resolve(sizes, world, origins={axis: facts[axis].origin for axis in order})
        layout: Mesh | Atlas = Mesh.from_axes([*sizes.items()])
        told = [facts[axis] for axis in order]
    else:
        layout, more = layout_of({axis: fact.value for axis, fact in facts.items()}, order, world, facts)
        notes += more
        told = [fact for fact in facts.values() if fact.value > 1]
    notes += _left_out(given)
    notes = with_slips(given, notes)
    return Job(layout, format="paddle-fleet", source=given.source, facts=told, notes=notes)


def _degree(given: Given, prefix: str, axis: str) -> Fact:
    """The degree of an axis as fleet takes it: None for a dp that is to be found, 1 for 0 where fleet says so."""
    path = f"{prefix}{axis}_degree"
    asked = given.at(path)
    if asked is None:
        return Fact(axis, None if axis == "dp" else 1, DEFAULT)
    value = as_int(asked, path)
    if axis == "dp" and value < 0:
        return Fact(axis, None, given.origin(path))
    if value == 0 and axis != "sharding":
        return Fact(axis, 1, said("fleet.is_one", origin=given.origin(path)))
    if value < 0 and axis in _WITH_EXPERTS:
        return Fact(axis, 1, said("fleet.is_one", origin=given.origin(path)))
    return Fact(axis, checked_size(path, value, label=path), given.origin(path))


def _order(asked: object) -> tuple[list[str], list[str]]:
    """The order, outer → inner, and a note where fleet 3.3 would miss an axis of size 1 in it."""
    if asked is None:
        return list(_ORDER), []
    if not isinstance(asked, list) or any(axis not in _AXES for axis in asked) or len(set(asked)) != len(asked):
        raise ArgumentsError(
            said("refused.order", axes=_AXES, order=shown(asked), missing=""),
            names=("order",),
        )
    missing = [axis for axis in _ALWAYS if axis not in asked]
    if not missing:
        return asked, []
    return asked, [said("noted.order", missing=missing, always=_ALWAYS)]


def _ignored(facts: Mapping[str, Fact], order: list[str]) -> list[str]:
    """Notes on degrees that have no effect because the order leaves their axis out; Raises ArgumentsError for others.

    >>> _ignored({"cp": Fact("cp", 2, "given: cp_degree")}, ["dp", "pp", "sharding", "sep", "mp"])
    ['cp_degree=2 has no effect: order has no cp, and fleet makes no such groups']
    """
    missing = [axis for axis, fact in facts.items() if (fact.value or 1) > 1 and axis not in order]
    needed = [axis for axis in missing if axis in _ALWAYS]
    if needed:
        raise ArgumentsError(
            said("refused.order", axes=_AXES, order=shown(order), missing=said("refused.without", names=needed)),
            names=("order",),
        )
    return [said("ignored.not_in_order", axis=axis, degree=facts[axis].value) for axis in missing]


def _open_data(given: Given, facts: Mapping[str, Fact], world: int | None) -> Fact:
    """The dp degree that fleet computes.  Raises SourceError, ArgumentsError."""
    if world is None:
        raise world_needed(given, "hybrid_configs without a dp_degree")
    model = facts["mp"].value * facts["pp"].value
    data = max(world // model, 1)
    others = {axis: facts[axis].value for axis in ("sharding", "sep") if facts[axis].value > 1}
    if others:
        told = [f"{axis}={size}" for axis, size in others.items()]
        raise ArgumentsError(
            said("refused.open_data", origin=facts["dp"].origin, world=world, data=data, told=told),
            names=("dp_degree",),
        )
    return Fact("dp", data, said("inferred.world_size", world=world))


def _refuse_without_experts(facts: Mapping[str, Fact]) -> None:
    """Fleet counts the ranks of a world without experts as dp·pp·sharding·sep·mp, and refuses any other number."""
    for axis in ("cp", "moe_sharding"):
        if facts[axis].value > 1:
            ways = said("refused.without_experts_cp") if axis == "cp" else ""
            degree, origin = facts[axis].value, facts[axis].origin
            raise ArgumentsError(
                said("refused.without_experts", axis=axis, degree=degree, origin=origin, ways=ways),
                names=(f"{axis}_degree",),
            )


def _left_out(given: Given) -> list[str]:
    """Notes on names that fleet does not know, the nearest one offered."""
    held = given.flat(["", "hybrid_configs"])
    near = {}
    for name, _ in zip(held, range(200)):
        found = get_close_matches(name[:40], _known(), n=1, cutoff=0.8) if name not in _known() else []
        if found and not name.endswith(("_configs", "_degree")) and held[name] not in (None, -1, 0, 1, False, ""):
            near[name] = found[0]
    notes = [said("unread.near", name=name, value=shown(held[name]), meant=near[name]) for name in near]
    return [*notes, *not_understood(held, (*_known(), *near))]


def _known() -> tuple[str, ...]:
    return tuple(f"{axis}_degree" for axis in _AXES)
