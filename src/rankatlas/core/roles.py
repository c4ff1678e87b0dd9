"""Axes given roles: each of size > 1 named exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rankatlas.core.border import axis_names
from rankatlas.core.mesh import Mesh
from rankatlas.errors import DuplicateAxisError, InputError, UnnamedAxisError, shown


def assigned(mesh: Mesh, what: str, roles: Mapping[str, str | Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """`roles` as tuples in the order written, once every axis of size > 1 stands in exactly one of them.

    `what` names the thing in messages.  Cost: O(axes).
    Raises UnnamedAxisError, DuplicateAxisError, UnknownAxisError.

    >>> assigned(Mesh(dp=2, tp=2), "stream", {"same": "tp", "differ": ["dp"]})
    {'same': ('tp',), 'differ': ('dp',)}
    """
    if not isinstance(mesh, Mesh):
        raise InputError(f"a {what} lies on a Mesh, not on {shown(mesh)}; of an Atlas give one chart: atlas['name']")
    given = {role: axis_names(axes, role) for role, axes in roles.items()}
    role_of: dict[str, str] = {}
    for role, axes in given.items():
        for axis in axes:
            mesh.size(axis)
            if axis in role_of:
                raise DuplicateAxisError(
                    f"axis {shown(axis)} of this {what} is named twice: {role_of[axis]} and {role}", name=axis
                )
            role_of[axis] = role
    forgotten = tuple(axis for axis in mesh.axes if mesh.size(axis) > 1 and axis not in role_of)
    if forgotten:
        sizes = ", ".join(f"{axis}={mesh.size(axis)}" for axis in forgotten)
        raise UnnamedAxisError(
            f"this {what} says nothing about {sizes} of {mesh}: name every axis of size > 1 once, in one of"
            f" {', '.join(given)}",
            name=forgotten[0],
            forgotten=forgotten,
        )
    return given
