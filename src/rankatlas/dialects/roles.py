"""Layouts in the words of another framework: axes renamed, those of size 1 left out, neighbours joined."""

from __future__ import annotations

from collections.abc import Mapping

from rankatlas.core import Atlas, Mesh
from rankatlas.errors import LayoutChangeError

# Axis → what it does, whatever the framework calls it.
_ROLES = {
    **dict.fromkeys(("pp", "pipe"), "pp"),
    **dict.fromkeys(("dp", "data", "dp_replicate"), "dp"),
    **dict.fromkeys(("sharding", "dp_shard", "fsdp"), "sharding"),
    **dict.fromkeys(("tp", "mp", "model", "tensor"), "tp"),
    "cp": "cp",
    **dict.fromkeys(("sep", "sp"), "sep"),
    **dict.fromkeys(("edp", "expert_data", "efsdp", "moe_sharding"), "edp"),
    "ep": "ep",
    "etp": "etp",
}


def in_roles(mesh: Mesh, target: str, allowed: tuple[str, ...]) -> list[tuple[str, int]]:
    """(role, size) of every axis of size > 1, outer → inner.

    Raises LayoutChangeError when an axis has no role known here, or one that `target` has no place for.
    """
    found = []
    for axis, size in zip(mesh.axes, mesh.sizes):
        if size == 1:
            continue
        role = _ROLES.get(axis)
        if role not in allowed:
            what = "is no axis whose purpose is known" if role is None else f"has no place in {target}"
            raise LayoutChangeError(
                f"this layout cannot be written for {target}: axis {axis!r} of size {size} {what}\n  layout: {mesh}"
            )
        found.append((role, size))
    if mesh.first_rank:
        raise LayoutChangeError(
            f"this layout cannot be written for {target}: it begins at rank {mesh.first_rank}\n  layout: {mesh}"
        )
    return found


def joined(axes: list[tuple[str, int]], names: Mapping[str, str]) -> list[tuple[str, int]]:
    """The same with roles renamed, and neighbours that get one name multiplied.

    >>> joined([("dp", 2), ("sharding", 4), ("tp", 2)], {"sharding": "dp"})
    [('dp', 8), ('tp', 2)]
    """
    found: list[tuple[str, int]] = []
    for role, size in axes:
        name = names.get(role, role)
        if found and found[-1][0] == name:
            found[-1] = (name, found[-1][1] * size)
        else:
            found.append((name, size))
    return found


def charts_of(layout: Mesh | Atlas, target: str) -> tuple[Mesh, Mesh | None]:
    """The dense mesh and, where there is one, that of the experts.  Raises LayoutChangeError for other charts."""
    if isinstance(layout, Mesh):
        return layout, None
    names = tuple(layout.charts)
    if len(names) == 2 and names[0] == "dense" and names[1] in ("expert", "sparse"):
        return layout[names[0]], layout[names[1]]
    raise LayoutChangeError(
        f"these charts cannot be written for {target}, which has one dense and one expert layout: {', '.join(names)}"
    )
