"""`hybrid_configs`, the dict that Paddle's fleet takes: degrees by name, and the order if it is another than fleet's.

Source: `_init_hybrid_parallel_env` in paddle/distributed/fleet/fleet.py (Paddle 3.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from rankatlas.catalogue import said
from rankatlas.core import Mesh
from rankatlas.core.sizes import resolve
from rankatlas.dialects.given import Given
from rankatlas.dialects.paddle_experts import layout_of
from rankatlas.dialects.picking import not_understood, world_of
from rankatlas.errors import ArgumentsError, shown
from rankatlas.job import Fact, Job

_AXES = ("dp", "pp", "sharding", "sep", "cp", "mp", "ep", "moe_sharding")
_ORDER = ("dp", "pp", "sharding", "sep", "cp", "mp")
DEFAULT = said("default.of", name="Paddle fleet 3.3")


def is_fleet(given: Given) -> bool:
    """Whether these settings are a `hybrid_configs` or hold one."""
    if isinstance(given.at("hybrid_configs"), Mapping):
        return True
    return isinstance(given.at("order"), list) and any(f"{axis}_degree" in given for axis in _AXES)


def read(given: Given, world_size: int | None) -> Job:
    """The job of a `hybrid_configs`.  Raises SourceError, ArgumentsError (an order of other axes), WorldSizeError.

    A dp degree that is not given is 1 to fleet, and one below 0 takes what mp and pp leave.  Cost: O(axes).
    """
    prefix = "hybrid_configs." if isinstance(given.at("hybrid_configs"), Mapping) else ""
    world, _, notes = world_of(given, world_size)
    facts: dict[str, Fact] = {}
    open_dp = given.at(f"{prefix}dp_degree") == -1
    for axis in _AXES:
        size = given.size(f"{prefix}{axis}_degree")
        facts[axis] = Fact(axis, size or 1, given.origin(f"{prefix}{axis}_degree") if size else DEFAULT)
    order = given.at(f"{prefix}order")
    if order is None:
        order = list(_ORDER)
    missing = [axis for axis in _AXES if facts[axis].value > 1 and axis not in order] if isinstance(order, list) else []
    wrong = not isinstance(order, list) or any(axis not in _AXES for axis in order) or len(set(order)) != len(order)
    if wrong or missing:
        raise ArgumentsError(
            said(
                "refused.order",
                axes=_AXES,
                order=shown(order),
                missing=said("refused.without", names=missing) if missing else "",
            ),
            names=("order",),
        )
    sizes: dict[str, int | None] = {axis: facts[axis].value for axis in order}
    if facts["ep"].value == 1:
        if open_dp:
            sizes["dp"] = None
        if world is not None:
            settled = resolve(sizes, world, origins={axis: facts[axis].origin for axis in order})
            if open_dp:
                facts["dp"] = Fact("dp", settled["dp"], said("inferred.world_size", world=world))
        layout = Mesh.from_axes([(axis, facts[axis].value) for axis in order])
        used: tuple[str, ...] = tuple(order)
        result = layout, [facts[axis] for axis in used], notes
        return Job(
            result[0],
            format="paddle-fleet",
            source=given.source,
            facts=result[1],
            notes=[*given.notes, *notes, *_left_out(given)],
        )
    atlas, more = layout_of({axis: fact.value for axis, fact in facts.items()}, order, world, facts)
    return Job(
        atlas,
        format="paddle-fleet",
        source=given.source,
        facts=[fact for axis, fact in facts.items() if fact.value > 1],
        notes=[*given.notes, *notes, *more, *_left_out(given)],
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
