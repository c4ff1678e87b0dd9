"""The layout that explains groups somebody made: sizes, order and names; or which groups none explains."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable

from rankatlas.core import Atlas, Mesh
from rankatlas.records.kinds import Kind, axis_name, known_groups

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class _Direction(NamedTuple):
        name: str
        size: int
        stride: int

else:
    _Direction = namedtuple("_Direction", ["name", "size", "stride"])

_EXPERT = ("ep", "etp", "edp")


class Inference:
    """The layout that was found (None where none is), and the kinds it does not explain."""

    __slots__ = ("layout", "unexplained")

    def __init__(self, layout: Mesh | Atlas | None, unexplained: list[str]) -> None:
        self.layout = layout
        self.unexplained = unexplained

    def __repr__(self) -> str:
        return f"Inference({self.layout!r}, unexplained={self.unexplained!r})"


def infer_layout(kinds: Iterable[Kind], world_size: int) -> Inference:
    """The layout whose groups these are.  Cost: O(kinds × world).

    Kinds along one axis are equal progressions that tile the world; put in order of stride they must fit into each
    other.  Axes whose names speak of experts make a second chart.  A gap is filled by an axis `axis1`, `axis2` …;
    axes of size 1 leave no trace in groups and are not found.

    >>> infer_layout([Kind("mesh_dp", [[0, 2], [1, 3]]), Kind("mesh_tp", [[0, 1], [2, 3]])], 4).layout
    Mesh(dp=2, tp=2)
    """
    kinds = list(kinds)
    directions = _directions(kinds, world_size)
    dense = _chain([found for found in directions if found.name not in _EXPERT], world_size)
    layout: Mesh | Atlas | None = dense
    expert = [found for found in directions if found.name in _EXPERT]
    if expert:
        # The expert chart has the pipeline of the dense one.
        pipeline = [found for found in directions if found.name == "pp"]
        chart = _chain([*pipeline, *expert], world_size)
        if dense is not None and chart is not None:
            layout = Atlas(dense=dense, expert=chart, shared=("pp",) if pipeline else ())
    if layout is None:
        return Inference(None, [kind.description for kind in kinds if len(kind.groups) < world_size])
    names = known_groups(layout)
    singles = [[rank] for rank in range(world_size)]
    unexplained = [
        kind.description for kind in kinds if kind.groups != singles and tuple(map(tuple, kind.groups)) not in names
    ]
    return Inference(layout, unexplained)


def _directions(kinds: list[Kind], world_size: int) -> list[_Direction]:
    """Every kind that runs along one axis, the named ones; the same groups once."""
    found: list[_Direction] = []
    for kind in kinds:
        name = axis_name(kind.description)
        step = _step(kind.groups, world_size)
        if name is None or step is None or name in [one.name for one in found]:
            continue
        if not any((one.size, one.stride) == step and (one.name in _EXPERT) == (name in _EXPERT) for one in found):
            found.append(_Direction(name, *step))
    return found


def _step(groups: list[list[int]], world_size: int) -> tuple[int, int] | None:
    """(size, stride) of groups that are equal progressions and together the world; None otherwise, or for size 1."""
    size = len(groups[0]) if groups else 0
    if size < 2 or size * len(groups) != world_size:
        return None
    stride = groups[0][1] - groups[0][0]
    if stride < 1 or world_size % (size * stride):
        return None
    block = size * stride
    mesh = Mesh(outer=world_size // block, along=size, inner=stride)
    equal = all(list(ranks) == group for ranks, group in zip(mesh.groups("along").ranges(), groups))
    return (size, stride) if equal else None


def _chain(directions: list[_Direction], world_size: int) -> Mesh | None:
    """The mesh in which each direction's stride is what the inner ones cover; gaps become axes of their own."""
    pairs: list[tuple[str, int]] = []
    covered = 1
    gaps = 0
    for name, size, stride in sorted(directions, key=lambda one: one.stride):
        if stride % covered:
            return None
        if stride > covered:
            gaps += 1
            pairs.append((f"axis{gaps}", stride // covered))
        pairs.append((name, size))
        covered = stride * size
    if world_size % covered:
        return None
    if covered < world_size or not pairs:
        pairs.append((f"axis{gaps + 1}", world_size // covered))
    return Mesh.from_axes(reversed(pairs))
