"""Hypothesis strategies: meshes that can be enumerated, meshes that cannot, axes of them, atlases."""

from collections.abc import Callable
from math import prod

from hypothesis import strategies as st

from rankatlas import Atlas, Mesh

HUGE = 2**40
_PLAIN = ("dp", "pp", "tp", "cp", "ep", "sharding", "dp_shard", "A1", "x")
# Names that collide with something: Mapping's and Mesh's own, slots, parameters, Python keywords, special methods.
AWKWARD = (
    *("keys", "items", "get", "values", "self", "rank", "axis", "axes", "into", "mesh", "shared", "name", "size"),
    *("_axes", "_places", "_mesh", "__class__", "_", "lambda", "class", "None", "def", "first_rank_", "FIRST_RANK"),
)

_TAKEN = ("first_rank", "whole")  # reserved by the notation, and by our tests of flatten

names = st.one_of(
    st.sampled_from(_PLAIN),
    st.sampled_from(AWKWARD),
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,11}", fullmatch=True).filter(
        lambda name: name not in ("first_rank", "whole")
    ),
)
_large_size = st.one_of(
    st.integers(1, HUGE),
    st.sampled_from([1, 2, 3, 5, 7, 8, 64, 97, 1024, 8191, 65537, 2**20, 2**31 - 1, HUGE - 87, HUGE]),
)


def _meshes(size: st.SearchStrategy[int], most_ranks: int, most_axes: int) -> st.SearchStrategy[Mesh]:
    @st.composite
    def build(draw: Callable) -> Mesh:
        axes = draw(st.lists(names, min_size=1, max_size=most_axes, unique=True))
        sizes: list[int] = []
        for _ in axes:
            room = most_ranks // prod(sizes)
            sizes.append(min(draw(size), room))
        order = draw(st.permutations(range(len(axes))))
        first_rank = draw(st.one_of(st.just(0), st.integers(1, 100), st.just(HUGE)))
        return Mesh.from_axes([(axes[place], sizes[place]) for place in order], first_rank)

    return build()


small_meshes = _meshes(st.integers(1, 7), most_ranks=144, most_axes=6)
large_meshes = _meshes(_large_size, most_ranks=HUGE, most_axes=12)
meshes = st.one_of(small_meshes, large_meshes)


def axes_of(mesh: Mesh, min_size: int = 0) -> st.SearchStrategy[list[str]]:
    """Some axes of the mesh, each once, in any order."""
    return st.lists(st.sampled_from(mesh.axes), unique=True, min_size=min_size)


def ranks_of(mesh: Mesh) -> st.SearchStrategy[int]:
    return st.integers(mesh.first_rank, mesh.first_rank + mesh.world_size - 1)


def coordinates_of(mesh: Mesh) -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries({axis: st.integers(0, size - 1) for axis, size in zip(mesh.axes, mesh.sizes)})


@st.composite
def neighbours_of(draw: Callable, mesh: Mesh) -> tuple[str, ...]:
    """One or more adjacent axes, in mesh order."""
    first = draw(st.integers(0, len(mesh.axes) - 1))
    return mesh.axes[first : draw(st.integers(first + 1, len(mesh.axes)))]


@st.composite
def atlases(draw: Callable) -> Atlas:
    """A dense and an expert chart over the same ranks with pp outermost, perhaps shared, and perhaps a pool apart."""
    pp, rest = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 6, 12, 16, 30]))
    cuts = st.sampled_from([size for size in range(1, rest + 1) if rest % size == 0])
    tp, ep = draw(cuts), draw(cuts)
    charts = {"dense": Mesh(pp=pp, dp=rest // tp, tp=tp), "expert": Mesh(pp=pp, edp=rest // ep, ep=ep)}
    shared = draw(st.sampled_from([(), ("pp",)]))
    if draw(st.booleans()):
        gap = draw(st.integers(0, 3))
        charts["rollout"] = Mesh(rtp=draw(st.integers(1, 5)), first_rank=pp * rest + gap)
    return Atlas.from_charts({name: charts[name] for name in draw(st.permutations(list(charts)))}, shared)
