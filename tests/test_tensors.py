"""TensorLayout against brute force: who must be equal, who holds which shard, who writes it, who sums gradients."""

import pickle
from fractions import Fraction
from itertools import permutations, product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

import brute
from rankatlas import Atlas, Mesh
from rankatlas.errors import (
    AxisError,
    DuplicateAxisError,
    InputError,
    PartialTensorError,
    RankError,
    UnknownAxisError,
    UnnamedAxisError,
)
from rankatlas.tensors import DATA_AXES, TensorLayout
from refusals import refused
from strategies import axes_of, large_meshes, meshes, ranks_of, small_meshes


@st.composite
def layouts(draw, meshes=small_meshes, partial=False):
    mesh = draw(meshes)
    roles = {"replicated": [], "sharded": [], "partial": []}
    for axis in draw(st.permutations(mesh.axes)):
        choices = ["replicated", "sharded", *(["partial"] if partial else [])]
        role = draw(st.sampled_from([*choices, *(["left out"] if mesh.size(axis) == 1 else [])]))
        if role in roles:
            roles[role].append(axis)
    return TensorLayout(mesh, **{role: tuple(axes) for role, axes in roles.items()})


@given(layouts(partial=True))
def test_every_axis_has_one_role(layout):
    named = (*layout.replicated, *layout.sharded, *layout.partial)
    assert sorted(named) == sorted(layout.mesh.axes)
    assert layout.replicated == tuple(axis for axis in layout.mesh.axes if axis in layout.replicated)


@given(layouts(partial=True))
def test_replica_groups_partition_the_mesh(layout):
    mesh = layout.mesh
    groups = brute.groups(mesh, layout.replicated)
    assert sorted(rank for group in groups for rank in group) == list(mesh.select())
    for group in groups:
        for rank in group:
            found = layout.replica_group(rank)
            assert (found.ranks, found.ranks[found.group_rank]) == (group, rank)


def index_by_hand(layout, place):
    """Mixed radix, the first of `sharded` major."""
    every = product(*(range(layout.mesh.size(axis)) for axis in layout.sharded))
    return list(every).index(tuple(place[axis] for axis in layout.sharded))


@given(layouts())
def test_shard_index_is_a_bijection_onto_the_shards(layout):
    places = brute.places(layout.mesh)
    assert layout.shard_count == prod(layout.mesh.size(axis) for axis in layout.sharded)
    seen = {}
    for rank, place in places.items():
        index = layout.shard_index(rank)
        assert index == index_by_hand(layout, place)
        seen.setdefault(index, []).append(rank)
    assert sorted(seen) == list(range(layout.shard_count))
    # Every shard is held by exactly one set of replicas.
    assert sorted(seen.values()) == sorted(brute.groups(layout.mesh, layout.replicated))


@given(layouts(large_meshes), st.data())
def test_shards_of_worlds_that_nobody_walks(layout, data):
    one, other = (data.draw(ranks_of(layout.mesh)) for _ in range(2))
    same = layout.shard_index(one) == layout.shard_index(other)
    assert same is (other in layout.replica_group(one).ranks) is (layout.owner(one) == layout.owner(other))
    assert 0 <= layout.shard_index(one) < layout.shard_count
    assert Fraction(1, layout.replica_group(one).size) * layout.mesh.world_size == layout.shard_count


@given(layouts())
def test_every_shard_has_exactly_one_owner(layout):
    places = brute.places(layout.mesh)
    owners = [rank for rank in places if layout.is_owner(rank)]
    assert sorted(layout.shard_index(rank) for rank in owners) == list(range(layout.shard_count))
    for rank, place in places.items():
        owner = layout.owner(rank)
        assert owner in owners
        assert all(places[owner][axis] == 0 for axis in layout.replicated)
        assert all(places[owner][axis] == place[axis] for axis in layout.sharded)


@given(layouts())
def test_norm_weights_count_every_shard_once(layout):
    weights = [layout.norm_weight(rank) for rank in layout.mesh.select()]
    assert sum(map(Fraction, weights)) == pytest.approx(layout.shard_count)
    by_shard = {}
    for rank, weight in zip(layout.mesh.select(), weights):
        by_shard.setdefault(layout.shard_index(rank), []).append(weight)
    assert all(sum(found) == pytest.approx(1) for found in by_shard.values())


@given(layouts(), st.data())
def test_the_gradient_is_summed_along_the_data_axes_the_mesh_has_and_those_of_also(layout, data):
    mesh = layout.mesh
    named = data.draw(axes_of(mesh))
    also = data.draw(axes_of(mesh))
    absent = [axis for axis in ("absent", "nowhere") if axis not in mesh.axes]
    rank = data.draw(ranks_of(mesh))
    if not named and absent:
        with refused(AxisError, "none of the data axes", *absent):
            layout.gradient_group(rank, data=absent, also=also)
        absent = []
    group = layout.gradient_group(rank, data=(*named, *absent), also=also)
    expected = next(group for group in brute.groups(mesh, {*named, *also}) if rank in group)
    assert group.ranks == expected
    assert group.axes == tuple(axis for axis in mesh.axes if axis in named or axis in also)


@pytest.mark.parametrize("axis", ["dp_replicate", "dp_shard", "fsdp", "data", "edp"])
def test_data_axes_of_other_names_must_be_named(axis):
    layout = TensorLayout(Mesh.from_axes([(axis, 2), ("dp", 2)]), replicated=(axis, "dp"))
    with refused(AxisError, axis, "Name all of them", name=axis):
        layout.gradient_group(0)
    assert layout.gradient_group(0, data=(axis, "dp")).size == 4
    assert layout.gradient_group(0, data="dp").size == 2


def test_the_data_axes_are_dp_sharding_and_cp_unless_said():
    mesh = Mesh(pp=2, sharding=2, dp=2, cp=2, tp=2)
    weight = TensorLayout(mesh, replicated=("dp", "sharding", "cp"), sharded=("pp", "tp"))
    optimizer = TensorLayout(mesh, replicated=("dp", "cp"), sharded=("pp", "tp", "sharding"))
    assert DATA_AXES == ("dp", "sharding", "cp")
    for layout in (weight, optimizer):  # all-reduce or reduce-scatter: the same ranks
        assert layout.gradient_group(0).axes == ("sharding", "dp", "cp")
        assert layout.gradient_group(0, data="dp").ranks == [0, 4]
        assert layout.gradient_group(0, data=()).ranks == [0]
    norm = TensorLayout(mesh, replicated=("dp", "sharding", "cp", "tp"), sharded="pp")
    assert norm.gradient_group(5, also="tp").axes == ("sharding", "dp", "cp", "tp")


def test_the_gradient_of_a_tensor_that_is_partial_already():
    mesh = Mesh(dp=2, cp=2, tp=2)
    layout = TensorLayout(mesh, replicated="dp", partial=("tp", "cp"))
    with refused(PartialTensorError, "cp", "partial already", axes=("cp",)):
        layout.gradient_group(0)
    with refused(PartialTensorError, axes=("tp",)):
        layout.gradient_group(0, data="dp", also="tp")
    with refused(PartialTensorError, axes=("cp", "tp")):
        layout.gradient_group(0, data=("cp",), also=("tp",))
    assert layout.gradient_group(0, data="dp").ranks == [0, 4]


def test_a_partial_tensor_has_no_owner_and_no_norm():
    layout = TensorLayout(Mesh(dp=2, tp=2, ep=2), replicated="dp", sharded="ep", partial="tp")
    for question in (layout.owner, layout.is_owner, layout.norm_weight):
        with refused(PartialTensorError, "tp", "sum it first", axes=("tp",)):
            question(0)
    assert layout.replica_group(0).ranks == [0, 4]
    assert (layout.shard_index(1), layout.shard_count) == (1, 2)


def test_axes_of_size_1_may_be_left_out_and_are_replicated():
    mesh = Mesh(pp=1, dp=2, sep=1, tp=2)
    layout = TensorLayout(mesh, "dp", "tp")
    assert layout.replicated == ("pp", "dp", "sep")
    assert layout == TensorLayout(mesh, ("sep", "dp"), ["tp"]) == TensorLayout(mesh, ("dp", "pp", "sep"), ("tp",))
    named = TensorLayout(mesh, "dp", ("pp", "tp"))
    assert (named.replicated, named.shard_count, named.shard_index(3)) == (("dp", "sep"), 2, 1)
    assert TensorLayout(Mesh(dp=1)).owner(0) == 0


def test_what_is_refused():
    mesh = Mesh(pp=2, dp=2, cp=1, tp=4)
    with refused(
        UnnamedAxisError, "dp=2", "tp=4", str(mesh), "replicated, sharded, partial", name="dp", forgotten=("dp", "tp")
    ):
        TensorLayout(mesh, sharded="pp")
    with refused(UnnamedAxisError, forgotten=("pp", "dp", "tp")):
        TensorLayout(mesh)
    for roles in (
        {"replicated": ("dp", "pp"), "sharded": ("tp", "dp")},
        {"replicated": ("dp", "pp"), "sharded": "tp", "partial": "dp"},
        {"replicated": ("dp", "dp", "pp"), "sharded": "tp"},
        {"sharded": ("tp", "dp", "pp"), "partial": ["dp"]},
    ):
        with refused(DuplicateAxisError, "'dp'", "twice", name="dp"):
            TensorLayout(mesh, **roles)
    with refused(DuplicateAxisError, name="cp"):  # of size 1 too
        TensorLayout(mesh, ("dp", "pp", "cp"), ("tp", "cp"))
    for roles in ({"replicated": "tpp"}, {"sharded": ("pp", "tpp")}, {"partial": "tpp"}):
        with refused(UnknownAxisError, "'tpp'", "Did you mean", name="tpp", known=mesh.axes):
            TensorLayout(mesh, **roles)
    layout = TensorLayout(mesh, "dp", ("pp", "tp"))
    with refused(UnknownAxisError, "'tpp'", name="tpp"):
        layout.gradient_group(0, also=("tpp",))
    for question in (
        *(layout.replica_group, layout.shard_index, layout.owner, layout.is_owner),
        *(layout.gradient_group, layout.norm_weight),
    ):
        for rank in (-1, 16):
            with refused(RankError, f"rank {rank}", rank=rank):
                question(rank)
        with pytest.raises(InputError, match="integer"):
            question("0")


def test_layouts_are_values():
    mesh = Mesh(dp=2, tp=2, pp=2)
    layout = TensorLayout(mesh, "dp", ("tp", "pp"))
    assert layout == TensorLayout(mesh, ["dp"], ["tp", "pp"])
    assert hash(layout) == hash(TensorLayout(mesh, ["dp"], ["tp", "pp"]))
    assert layout != TensorLayout(mesh, "dp", ("pp", "tp"))  # other shard numbers
    assert layout != TensorLayout(mesh, (), ("tp", "pp"), "dp")
    assert layout != TensorLayout(Mesh(dp=2, pp=2, tp=2), "dp", ("tp", "pp"))
    assert (layout == 1) is False
    assert pickle.loads(pickle.dumps(layout)) == layout
    assert eval(repr(layout)) == layout
    assert repr(TensorLayout(Mesh(tp=2), partial="tp")) == "TensorLayout(Mesh(tp=2), partial=('tp',))"


@given(layouts(meshes, partial=True))
def test_a_layout_reads_back_from_its_repr(layout):
    assert eval(repr(layout), {"TensorLayout": TensorLayout, "Mesh": Mesh}) == layout


# Expert weights are one more layout, on the chart they live on.

ATLAS = Atlas(dense=Mesh(pp=2, dp=4, tp=2), expert=Mesh(pp=2, edp=2, ep=4), shared=("pp",))


def test_expert_weights_lie_on_the_expert_chart():
    dense = TensorLayout(ATLAS["dense"], replicated="dp", sharded=("pp", "tp"))
    expert = TensorLayout(ATLAS["expert"], replicated="edp", sharded=("pp", "ep"))
    for rank in range(ATLAS.world_size):
        assert expert.replica_group(rank) == ATLAS.group("edp", rank=rank)
        assert expert.gradient_group(rank, data="edp") == ATLAS.group("edp", rank=rank)
        assert dense.gradient_group(rank) == ATLAS.group("dp", rank=rank)
        assert expert.shard_index(rank) // 4 == dense.shard_index(rank) // 2  # the same stage
    assert (dense.shard_count, expert.shard_count) == (4, 8)
    assert [rank for rank in range(16) if expert.is_owner(rank)] == [0, 1, 2, 3, 8, 9, 10, 11]


def test_the_layers_shared_by_all_experts_are_copies_along_ep():
    router = TensorLayout(ATLAS["expert"], replicated=("edp", "ep"), sharded="pp")
    assert router.replica_group(9).ranks == [8, 9, 10, 11, 12, 13, 14, 15]
    assert router.gradient_group(9, data=("edp", "ep")).ranks == router.replica_group(9).ranks


# The rule of MAP-011: the checkpoint shard of a rank is its place along tp, and when the order of axes changes so does
# the rank → shard formula.


@pytest.mark.parametrize("order", list(permutations(("pp", "tp", "cp"))), ids="-".join)
def test_the_checkpoint_shard_of_a_rank_follows_the_order(order):
    sizes = {"pp": 2, "tp": 4, "cp": 3}
    mesh = Mesh.from_axes([(axis, sizes[axis]) for axis in order])
    layout = TensorLayout(mesh, replicated="cp", sharded=("pp", "tp"))
    stride = {axis: prod(sizes[minor] for minor in order[place + 1 :]) for place, axis in enumerate(order)}
    for rank in range(24):
        stage, shard = (rank // stride[axis] % sizes[axis] for axis in ("pp", "tp"))
        assert layout.shard_index(rank) == stage * 4 + shard
        assert layout.is_owner(rank) is (rank // stride["cp"] % 3 == 0)
