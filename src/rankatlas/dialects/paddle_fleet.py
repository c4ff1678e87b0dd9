"""`hybrid_configs`, the dict that Paddle's fleet takes: degrees by name, and the order if it is another than fleet's.

Source: `_init_hybrid_parallel_env` in paddle/distributed/fleet/fleet.py, `HybridCommunicateGroup` in its
base/topology.py, and the defaults in distributed_strategy.proto (Paddle 3.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from rankatlas.core import Atlas, Mesh
from rankatlas.core.border import as_int
from rankatlas.core.sizes import checked_size, resolve
from rankatlas.dialects.given import Given
from rankatlas.dialects.paddle_experts import layout_of
from rankatlas.dialects.picking import not_understood, world_needed, world_of
from rankatlas.errors import ArgumentsError, shown
from rankatlas.job import Fact, Job

_AXES = ("dp", "pp", "sharding", "sep", "cp", "mp", "ep", "moe_sharding")
_ORDER = ("dp", "pp", "sharding", "sep", "cp", "mp")
_ALWAYS = ("dp", "pp", "sharding", "sep", "mp")  # fleet asks its topology for these, whatever their sizes
_WITH_EXPERTS = ("ep", "moe_sharding")  # what a degree below 1 is 1 for
DEFAULT = "default of Paddle's fleet 3.3"


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
    facts |= {axis: Fact(axis, 1, "not in the order") for axis in _AXES if axis not in (*order, *_ALWAYS)}
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
        return Fact(axis, 1, f"{given.origin(path)}, which is 1 to fleet")
    if value < 0 and axis in _WITH_EXPERTS:
        return Fact(axis, 1, f"{given.origin(path)}, which is 1 to fleet")
    return Fact(axis, checked_size(path, value, label=path), given.origin(path))


def _order(asked: object) -> tuple[list[str], list[str]]:
    """The order, outer → inner, and a note where fleet 3.3 would miss an axis of size 1 in it."""
    if asked is None:
        return list(_ORDER), []
    if not isinstance(asked, list) or any(axis not in _AXES for axis in asked) or len(set(asked)) != len(asked):
        raise ArgumentsError(
            f"order lists axes of {', '.join(_AXES)}, each once, and all of degree above 1; got {shown(asked)}",
            names=("order",),
        )
    missing = [axis for axis in _ALWAYS if axis not in asked]
    if not missing:
        return asked, []
    return asked, [
        f"order leaves out {', '.join(missing)}: fleet 3.3 refuses an order without any of {_listed(_ALWAYS)}"
    ]


def _ignored(facts: Mapping[str, Fact], order: list[str]) -> list[str]:
    """Notes on degrees that have no effect because the order leaves their axis out; Raises ArgumentsError for others.

    >>> _ignored({"cp": Fact("cp", 2, "given: cp_degree")}, ["dp", "pp", "sharding", "sep", "mp"])
    ['cp_degree=2 has no effect: order has no cp, and fleet makes no such groups']
    """
    missing = [axis for axis, fact in facts.items() if (fact.value or 1) > 1 and axis not in order]
    needed = [axis for axis in missing if axis in _ALWAYS]
    if needed:
        raise ArgumentsError(
            f"order lists axes of {', '.join(_AXES)}, each once, and all of degree above 1; got {shown(order)},"
            f" without {', '.join(needed)}",
            names=("order",),
        )
    return [
        f"{axis}_degree={facts[axis].value} has no effect: order has no {axis}, and fleet makes no such groups"
        for axis in missing
    ]


def _open_data(given: Given, facts: Mapping[str, Fact], world: int | None) -> Fact:
    """The dp degree that fleet computes.  Raises SourceError, ArgumentsError."""
    if world is None:
        raise world_needed(given, "hybrid_configs without a dp_degree")
    model = facts["mp"].value * facts["pp"].value
    data = max(world // model, 1)
    others = {axis: facts[axis].value for axis in ("sharding", "sep") if facts[axis].value > 1}
    if others:
        told = " and ".join(f"{axis}={size}" for axis, size in others.items())
        raise ArgumentsError(
            f"dp_degree ({facts['dp'].origin}) is open, and fleet then takes world {world} ÷ (mp·pp) = {data} for it,"
            f" whatever else there is; with {told} that is more ranks than the world, and fleet refuses it\n"
            "set dp_degree",
            names=("dp_degree",),
        )
    return Fact("dp", data, f"inferred from world size {world}")


def _refuse_without_experts(facts: Mapping[str, Fact]) -> None:
    """Fleet counts the ranks of a world without experts as dp·pp·sharding·sep·mp, and refuses any other number."""
    for axis in ("cp", "moe_sharding"):
        if facts[axis].value > 1:
            raise ArgumentsError(
                f"{axis}_degree={facts[axis].value} ({facts[axis].origin}) without experts: fleet 3.3 builds {axis}"
                f" into its topology and then refuses the world, which it counts without {axis}\n"
                "leave it at 1, or set ep_degree above 1 and put ep and moe_sharding into order"
                + (", or split sequences with sep_degree" if axis == "cp" else ""),
                names=(f"{axis}_degree",),
            )


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _left_out(given: Given) -> list[str]:
    """Notes on names that fleet does not know, the nearest one offered."""
    held = given.flat(["", "hybrid_configs"])
    near = {}
    for name, _ in zip(held, range(200)):
        found = get_close_matches(name[:40], _known(), n=1, cutoff=0.8) if name not in _known() else []
        if found and not name.endswith(("_configs", "_degree")) and held[name] not in (None, -1, 0, 1, False, ""):
            near[name] = found[0]
    notes = [
        f"{name}={shown(held[name])} is not understood and was left out; did you mean {near[name]}?" for name in near
    ]
    return [*notes, *not_understood(held, (*_known(), *near))]


def _known() -> tuple[str, ...]:
    return tuple(f"{axis}_degree" for axis in _AXES)
