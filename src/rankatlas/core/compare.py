"""Whether two meshes have the same groups along an axis, and the first one that differs."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence

from rankatlas.core.mesh import Mesh
from rankatlas.core.ranks import Ranks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Difference(NamedTuple):
        """The first group that differs: its number and its ranks in both meshes (None where it is absent)."""

        group: int
        first: Ranks | None
        second: Ranks | None

else:
    Difference = namedtuple("Difference", ["group", "first", "second"])

_SHOWN = 16  # ranks of it that a sentence shows


def same_groups(mesh: Mesh, axis: str, other: Mesh, other_axis: str) -> bool:
    """Whether the groups of `mesh` over `axis` are those of `other` over `other_axis`, in the same order.

    Row-major meshes over the same ranks agree along an axis exactly when size and stride agree; an axis of size 1
    has no stride.  Cost: O(axes).  Raises UnknownAxisError.

    >>> same_groups(Mesh(dp=2, tp=4), "tp", Mesh(pp=2, mp=4), "mp")
    True
    """
    return _footprint(mesh, axis) == _footprint(other, other_axis)


def first_difference(mesh: Mesh, other: Mesh, axis: str) -> Difference | None:
    """The first group over `axis` that differs, or None where all are the same.

    Cost: O(axes).  Raises UnknownAxisError.

    >>> first_difference(Mesh(dp=2, tp=2), Mesh(tp=2, dp=2), "tp")
    Difference(group=0, first=[0, 1], second=[0, 2])
    """
    if same_groups(mesh, axis, other, axis):
        return None
    mine, theirs = mesh.groups(axis), other.groups(axis)
    # Equal up to the number of ranks: all groups are the same until the smaller world ends.  Else the first differs.
    longer = _footprint(mesh, axis)[1:] == _footprint(other, axis)[1:]
    index = min(len(mine), len(theirs)) if longer else 0
    first, second = (groups[index].ranks if index < len(groups) else None for groups in (mine, theirs))
    return Difference(index, first, second)


def ranks_shown(ranks: Sequence[int] | None) -> str:
    """Ranks for a sentence: all of a short list, the beginning of a long one and their number.

    >>> ranks_shown([0, 4]), ranks_shown(None), ranks_shown(range(40))
    ('[0, 4]', 'absent', '[0, 1, 2, 3, 4, 5, 6, 7, ...] (40 ranks)')
    """
    if ranks is None:
        return "absent"
    if len(ranks) <= _SHOWN:
        return str(list(ranks))
    return f"[{', '.join(map(str, ranks[: _SHOWN // 2]))}, ...] ({len(ranks)} ranks)"


def _footprint(mesh: Mesh, axis: str) -> tuple[int, int, int, int]:
    size, stride = mesh.size(axis), mesh.stride(axis)
    return mesh.world_size, mesh.first_rank, size, stride if size > 1 else 0
