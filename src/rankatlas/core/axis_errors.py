"""What can be wrong with the axes of a mesh, each told with what to do instead."""

from __future__ import annotations

from rankatlas.errors import (
    AxisError,
    DuplicateAxisError,
    InputError,
    LayoutChangeError,
    WorldSizeError,
    shown,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rankatlas.core.mesh import Mesh

MOST_RANKS = 2**63 - 1  # len() and int64 tables end here


def plain_name(axis: object) -> str:
    """An axis name as a plain str: an enum member or numpy string is one too."""
    if not isinstance(axis, str):
        raise bad_name(axis)
    return str.__str__(axis)


def bad_name(name: object) -> AxisError:
    """The error for a name that no axis may have."""
    if isinstance(name, str) and name == "first_rank":
        return AxisError("'first_rank' is reserved: it shifts the mesh and cannot name an axis", name=name)
    return AxisError(f"{shown(name)} cannot name an axis; names are letters, digits and _, no digit first", name=name)


def bad_axes(axes: tuple[str, ...]) -> AxisError:
    """The error for an axis that stands twice, or for none at all."""
    for position, axis in enumerate(axes):
        if axis in axes[:position]:
            return DuplicateAxisError(f"axis {shown(axis)} is named twice in {', '.join(axes)}", name=axis)
    return AxisError("a mesh needs at least one axis, such as Mesh(dp=8)", name="")


def bad_extent(axes: tuple[str, ...], sizes: tuple[int, ...], first_rank: int, world_size: int) -> InputError:
    """The error for ranks below 0 or beyond 64 bits."""
    if first_rank < 0:
        return InputError(f"first_rank must be 0 or more, not {shown(first_rank)}", first_rank=first_rank)
    if first_rank > MOST_RANKS:
        return InputError(f"first_rank={shown(first_rank)} is more than 64 bits can number", first_rank=first_rank)
    return WorldSizeError(
        f"these sizes make {shown(world_size)} ranks (from {first_rank} on), more than 64 bits can number",
        factors=tuple(zip(axes, sizes)),
        product=world_size,
        world_size=None,
        remainder=0,
        nearest_worlds=[],
        fixes=[],
    )


def not_adjacent(mesh: Mesh, axes: tuple[str, ...], names: tuple[str, ...]) -> LayoutChangeError:
    """The error for axes that flatten cannot join, with the order it would accept."""
    asked, ordered = ", ".join(axes), ", ".join(map(repr, names))
    first = mesh.axes.index(names[0])
    if mesh.axes[first : first + len(names)] == names:
        return LayoutChangeError(
            f"flatten takes axes in mesh order: ask for {ordered} instead of {asked}."
            f" For their groups in any order use group({ordered})"
        )
    return LayoutChangeError(
        f"axes {asked} are not adjacent in {mesh}, so no single axis can stand for them."
        f" For their groups use group({ordered}); to bring them together use reorder(…), which moves ranks"
    )
