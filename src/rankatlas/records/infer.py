"""The layout that explains groups somebody made: sizes, order and names; or which groups none explains."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from rankatlas.core import Atlas, Mesh
from rankatlas.records.kinds import Kind, axis_name, known_groups

# Axes of layers of experts, which are laid over the ranks in their own way.
_EXPERT = ("ep", "etp", "edp", "efsdp", "moe_sharding")
_SHARED = ("pp", "dp_replicate")  # axes that both charts may have
_FOLDED = ("batch", "loss_mesh")  # torchtitan's words for axes folded into one, which is the same as one alone at times
_Step = tuple[int, int]  # size, stride


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

    Groups of a row-major layout are progressions, and where these begin and end they cut the ranks into axes.  An
    axis has the name of the smallest kind that runs along it alone, else it is `axis1`, `axis2` …, innermost first.
    Experts make a second chart.  Axes of size 1 leave no trace in groups and are not found.

    >>> infer_layout([Kind("mesh_dp", [[0, 2], [1, 3]]), Kind("mesh_tp", [[0, 1], [2, 3]])], 4).layout
    Mesh(dp=2, tp=2)
    """
    kinds = list(kinds)
    layout = _layout(kinds, world_size)
    names = known_groups(layout)
    unexplained = [kind.description for kind in kinds if tuple(map(tuple, kind.groups)) not in names]
    nothing = unexplained and isinstance(layout, Mesh) and layout.axes == ("axis1",)
    return Inference(None if nothing else layout, unexplained)


def _layout(kinds: list[Kind], world_size: int) -> Mesh | Atlas:
    dense, expert = _Cuts(world_size), _Cuts(world_size)
    nameless: list[_Step] = []
    named: list[tuple[int, int, str]] = []
    for kind in kinds:
        steps, name = _steps(kind.groups, world_size), axis_name(kind.description)
        if name is not None and len(steps) == 1:
            named.append((*steps[0], name))
        elif "expert" not in kind.description.lower():
            nameless += steps
    # Small ones first: a kind over several axes, such as a flattened one, is no axis where those have names.
    named.sort(key=lambda one: (one[0], one[2] in _FOLDED))
    for size, stride, name in named:
        if name not in _EXPERT:
            dense.add(size, stride, name)
        if name in _EXPERT or name == "pp":
            expert.add(size, stride, name)
    # Experts may be replicated as the rest is, or have an axis that goes across: theirs comes first.
    for size, stride, name in named:
        if name == "dp_replicate":
            expert.add(size, stride, name)
    for size, stride in nameless:
        dense.add(size, stride)
    # Megatron makes groups of experts in a job without any; they are groups of the dense chart then.
    if "ep" not in expert.names.values():
        return dense.mesh()
    return Atlas(dense=dense.mesh(), expert=expert.mesh(), shared=_shared(dense, expert))


def _shared(dense: _Cuts, expert: _Cuts) -> tuple[str, ...]:
    """The axes that stand at one place in both charts."""
    return tuple(name for name in _SHARED if None is not dense.place(name) == expert.place(name))


class _Cuts:
    """Where the axes of one chart begin and end, as strides, and the axes that have names."""

    def __init__(self, world_size: int) -> None:
        self._at = [1, world_size] if world_size > 1 else [1]
        self.names: dict[_Step, str] = {}  # (stride, end) → name

    def add(self, size: int, stride: int, name: str | None = None) -> None:
        """Cut at both ends of a progression, if that leaves the axes that have names whole; name it if it is one."""
        end = stride * size
        if not all(self._possible(cut) for cut in (stride, end)):
            return
        self._at = sorted({*self._at, stride, end})
        alone = self._at.index(end) == self._at.index(stride) + 1
        if name and alone and name not in self.names.values():
            self.names.setdefault((stride, end), name)

    def place(self, name: str) -> _Step | None:
        """Where the axis called `name` begins and ends, None where there is none."""
        return next((place for place, other in self.names.items() if other == name), None)

    def _possible(self, cut: int) -> bool:
        if cut in self._at:
            return True
        place = next((place for place, end in enumerate(self._at) if end > cut), 0)
        if not place:
            return False
        before, after = self._at[place - 1], self._at[place]
        return cut % before == 0 and after % cut == 0 and (before, after) not in self.names

    def mesh(self) -> Mesh:
        """The axes between the cuts."""
        pairs: list[tuple[str, int]] = []
        free = (name for name in map("axis{}".format, count(1)) if name not in self.names.values())
        for stride, end in zip(self._at, self._at[1:]):
            pairs.append((self.names.get((stride, end)) or next(free), end // stride))
        return Mesh.from_axes(reversed(pairs or [("axis1", 1)]))


def _steps(groups: list[list[int]], world_size: int) -> list[_Step]:
    """(size, stride) of the progressions that groups are sums of, innermost first; nothing where they are none.

    >>> _steps([[0, 1, 4, 5], [2, 3, 6, 7]], 8)
    [(2, 1), (2, 4)]
    """
    first = groups[0] if groups else []
    if len(first) < 2 or len(first) * len(groups) != world_size:
        return []
    steps: list[_Step] = []
    while len(first) > 1:
        stride = first[1] - first[0]
        size = next((place for place in range(1, len(first)) if first[place] - first[0] != place * stride), len(first))
        if stride < 1 or len(first) % size:
            return []
        steps.append((size, stride))
        first = first[::size]
    return steps if _are_groups_of(steps, groups, world_size) else []


def _are_groups_of(steps: list[_Step], groups: list[list[int]], world_size: int) -> bool:
    """Whether `groups` are all groups along these progressions, members in order."""
    pairs: list[tuple[str, int]] = []
    chosen: list[str] = []
    inside = 1
    for number, (size, stride) in enumerate([*steps, (1, world_size)]):
        if stride % inside:
            return False
        pairs += [(f"rest{number}", stride // inside), (f"along{number}", size)]
        chosen.append(f"along{number}")
        inside = stride * size
    mesh = Mesh.from_axes(reversed(pairs))
    return mesh.world_size == world_size and all(
        list(ranks) == group for ranks, group in zip(mesh.groups(*chosen).ranges(), groups)
    )
