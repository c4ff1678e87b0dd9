"""Atlases: several meshes of one job, the axes they share proven, and an address for every axis."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import brute
from rankatlas import Atlas, Mesh
from rankatlas.errors import (
    AtlasError,
    DescriptionError,
    DuplicateAxisError,
    IntegerError,
    RankError,
    SharedAxisError,
    UnknownAxisError,
    UnknownChartError,
)
from refusals import refused
from strategies import atlases, axes_of, meshes, small_meshes

DENSE, EXPERT = Mesh(pp=2, dp=4, tp=2), Mesh(pp=2, edp=2, ep=4)
MOE = Atlas(dense=DENSE, expert=EXPERT, shared=("pp",))
POOLS = Atlas(train=Mesh(dp=4, tp=2), rollout=Mesh(tp=2, x=3, first_rank=10))


def lists(groups):
    return [list(group) for group in groups]


def test_the_names_of_the_contract():
    assert (MOE["expert"], MOE["dense"], MOE.charts, MOE.shared) == (
        *(EXPERT, DENSE, {"dense": DENSE, "expert": EXPERT}, ("pp",)),
    )
    assert (MOE.world_size, MOE.first_rank) == (16, 0)
    assert lists(MOE.groups("ep")) == brute.groups(EXPERT, ["ep"])
    assert lists(MOE.groups("pp")) == brute.groups(DENSE, ["pp"]) == brute.groups(EXPERT, ["pp"])
    assert MOE.group("ep", rank=5).ranks == [4, 5, 6, 7]
    assert MOE.coordinate(5) == {"dense": {"pp": 0, "dp": 2, "tp": 1}, "expert": {"pp": 0, "edp": 1, "ep": 1}}
    assert MOE.coordinate(5)["expert"].ep == 1
    assert str(MOE) == "dense: pp=2 dp=4 tp=2; expert: pp=2 edp=2 ep=4; shared: pp"
    assert Atlas(dense=DENSE, expert=EXPERT, shared="pp") == Atlas(dense=DENSE, expert=EXPERT, shared=["pp"]) == MOE


def test_a_coordinate_leaves_out_charts_that_do_not_cover_the_rank():
    assert list(POOLS.coordinate(7)) == ["train"]
    assert POOLS.coordinate(10) == {"rollout": {"tp": 0, "x": 0}}
    assert (POOLS.world_size, POOLS.first_rank) == (14, 0)
    for rank in (8, 9, 16, -1):
        with refused(RankError, f"rank {rank}", "no chart", rank=rank, first_rank=0, world_size=14):
            POOLS.coordinate(rank)
    with refused(IntegerError, "rank", "True"):
        POOLS.coordinate(True)


@given(st.lists(small_meshes, min_size=1, max_size=4))
def test_world_size_and_first_rank_are_those_of_the_union(charts):
    atlas = Atlas(**{f"chart{place}": mesh for place, mesh in enumerate(charts)})
    covered = {rank for mesh in charts for rank in range(mesh.first_rank, mesh.first_rank + mesh.world_size)}
    assert (atlas.world_size, atlas.first_rank) == (len(covered), min(covered))


@given(st.lists(meshes, min_size=1, max_size=3))
def test_an_atlas_takes_any_meshes_when_nothing_is_shared(charts):
    atlas = Atlas(**{f"chart{place}": mesh for place, mesh in enumerate(charts)})
    assert list(atlas.charts.values()) == charts
    assert list(atlas) == list(atlas.charts)


@given(small_meshes, st.data())
def test_sharing_is_allowed_exactly_where_the_groups_are_identical(one, data):
    """Against any other mesh that has one axis of the same name: shuffled, resized, shifted, or none of these."""
    axis = data.draw(st.sampled_from(one.axes))
    order = data.draw(st.just(one.axes) | st.permutations(one.axes))
    change = data.draw(st.sampled_from([{}, {}, {order[0]: 2}, {order[-1]: 3}, {axis: 1}]))
    pairs = [(name, change.get(name, one.size(name))) for name in order]
    other = Mesh.from_axes(pairs, one.first_rank + data.draw(st.sampled_from([0, 0, 0, 1])))
    mine, theirs = brute.groups(one, [axis]), brute.groups(other, [axis])
    if mine == theirs:
        assert Atlas(a=one, b=other, shared=(axis,)).shared == (axis,)
        return
    with pytest.raises(SharedAxisError) as caught:
        Atlas(a=one, b=other, shared=(axis,))
    error = caught.value
    index = next((at for at, (x, y) in enumerate(zip(mine, theirs)) if x != y), min(len(mine), len(theirs)))
    assert (error.axis, error.charts, error.index) == (axis, ("a", "b"), index)
    assert error.first == (mine[index][:64] if index < len(mine) else None)
    assert error.second == (theirs[index][:64] if index < len(theirs) else None)


@pytest.mark.parametrize(
    ("one", "two", "index", "first", "second"),
    [
        (Mesh(dp=2, tp=2), Mesh(tp=2, dp=2), 0, [0, 1], [0, 2]),
        (Mesh(dp=4, tp=2), Mesh(dp=2, tp=4), 0, [0, 1], [0, 1, 2, 3]),
        (Mesh(dp=2, tp=2), Mesh(dp=4, tp=2), 2, None, [4, 5]),
        (Mesh(dp=4, tp=2), Mesh(dp=2, tp=2), 2, [4, 5], None),
        (Mesh(dp=2, tp=2), Mesh(dp=2, tp=2, first_rank=4), 0, [0, 1], [4, 5]),
        (Mesh(x=2**30, tp=2), Mesh(x=2**31, tp=2), 2**30, None, [2**31, 2**31 + 1]),
        (Mesh(tp=1, dp=4), Mesh(tp=2, dp=2), 0, [0], [0, 2]),
    ],
)
def test_the_first_difference_is_shown(one, two, index, first, second):
    words = [str(ranks) if ranks else "absent" for ranks in (first, second)]
    fields = {"axis": "tp", "charts": ("left", "right"), "index": index, "first": first, "second": second}
    with refused(SharedAxisError, "'tp'", "left", "right", f"group {index}", *words, **fields):
        Atlas(left=one, right=two, shared=("tp",))


def test_two_long_groups_do_not_look_alike_in_the_message():
    with pytest.raises(SharedAxisError) as caught:
        Atlas(a=Mesh(dp=100), b=Mesh(dp=200), shared=("dp",))
    message = str(caught.value)
    first, _, second = message.partition(" in a and ")
    assert first.rpartition("group 0 is ")[2] != second.removesuffix(" in b")


def test_axes_of_size_one_are_shared_when_the_charts_cover_the_same_ranks():
    assert Atlas(a=Mesh(pp=1, dp=8), b=Mesh(ep=8, pp=1), shared=("pp",)).groups("pp")[3].ranks == [3]
    with pytest.raises(SharedAxisError):
        Atlas(a=Mesh(pp=1, dp=8), b=Mesh(ep=4, pp=1), shared=("pp",))


def test_an_axis_of_one_chart_may_be_declared_shared():
    assert Atlas(a=Mesh(dp=2), b=Mesh(ep=2), shared=("dp",)).groups("dp") == Mesh(dp=2).groups("dp")


def test_nothing_is_shared_by_having_the_same_name():
    atlas = Atlas(dense=Mesh(dp=4, tp=2), expert=Mesh(edp=2, tp=4))
    with refused(AtlasError, "'tp'", "dense.tp", "expert.tp"):
        atlas.groups("tp")
    assert atlas.groups("dense.tp").size == 2
    assert atlas.groups("expert.tp").size == 4
    assert atlas.group("expert.tp", rank=1).ranks == [0, 1, 2, 3]


def test_axes_of_two_charts_are_not_mixed():
    for axes in (("dp", "ep"), ("dense.dp", "expert.ep"), ("ep", "dense.tp")):
        with refused(AtlasError, "two charts", *axes):
            MOE.groups(*axes)
        with refused(AtlasError, "two charts", *axes):
            MOE.group(*axes, rank=0)


def test_a_shared_axis_goes_with_the_axes_of_any_chart_that_has_it():
    assert lists(MOE.groups("pp", "ep")) == brute.groups(EXPERT, ["pp", "ep"])
    assert lists(MOE.groups("tp", "pp")) == brute.groups(DENSE, ["pp", "tp"])
    assert MOE.groups("dense.pp") == MOE.groups("pp")
    with pytest.raises(DuplicateAxisError):
        MOE.groups("pp", "dense.pp")


@given(atlases(), st.data())
def test_groups_by_address_are_those_of_the_chart(atlas, data):
    chart = data.draw(st.sampled_from(list(atlas)))
    mesh = atlas[chart]
    axes = data.draw(axes_of(mesh, min_size=1))
    groups = atlas.groups(*[f"{chart}.{axis}" for axis in axes])
    assert lists(groups) == brute.groups(mesh, axes)
    rank = data.draw(st.integers(mesh.first_rank, mesh.first_rank + mesh.world_size - 1))
    assert rank in atlas.group(*[f"{chart}.{axis}" for axis in axes], rank=rank)
    assert atlas.coordinate(rank)[chart] == mesh.coordinate(rank)


@pytest.mark.parametrize("address", ["nope", "dense.nope", "dense.ep", "", ".", "dense.", None, 3])
def test_an_address_that_names_no_axis(address):
    with pytest.raises(KeyError):
        MOE.groups(address)


def test_unknown_names_are_told_with_what_there_is():
    with refused(UnknownAxisError, "'epp'", "'ep'", known=("pp", "dp", "tp", "edp", "ep")):
        MOE.groups("epp")
    with refused(UnknownAxisError, "'ep'", "dense", "'pp', 'dp', 'tp'", known=("pp", "dp", "tp")):
        MOE.groups("dense.ep")
    for ask in (lambda: MOE["experts"], lambda: MOE.groups("experts.ep")):
        with refused(UnknownChartError, "'experts'", "dense, expert", name="experts", known=("dense", "expert")):
            ask()
    with pytest.raises(KeyError):
        _ = MOE[["dense"]]


def test_a_rank_that_the_chart_does_not_cover():
    with pytest.raises(IndexError, match="10 to 15"):
        POOLS.group("x", rank=3)


def test_an_atlas_is_a_container_of_charts():
    assert (list(MOE), len(MOE), "expert" in MOE, "ep" in MOE, 0 in MOE) == (["dense", "expert"], 2, True, False, False)
    assert dict(MOE.charts.items()) == {name: MOE[name] for name in MOE}
    MOE.charts.clear()
    assert len(MOE) == 2


def test_what_cannot_be_an_atlas():
    with refused(AtlasError, "at least one chart"):
        Atlas()
    with refused(AtlasError, "at least one chart"):
        Atlas(shared=("pp",))
    with refused(AtlasError, "'dense'", "int"):
        Atlas(dense=3)
    with refused(AtlasError, "'dense'", "dict"):
        Atlas(dense={"dp": 2})
    with refused(UnknownAxisError, "'ep'", known=("dp",)):
        Atlas(dense=Mesh(dp=2), shared=("ep",))
    with refused(AtlasError, "'pp'", "twice"):
        Atlas(dense=DENSE, expert=EXPERT, shared=("pp", "pp"))


@pytest.mark.parametrize("name", ["", "a b", "a.b", "1a", "größe", "shared", None, 3, "a:b", "a;b"])
def test_a_name_that_cannot_name_a_chart(name):
    with refused(AtlasError, repr(name), "chart"):
        Atlas.from_charts({name: Mesh(dp=2)})


@pytest.mark.parametrize("shared", [None, 3, [None], [["pp"]], True])
def test_a_shared_that_names_no_axes(shared):
    with pytest.raises(ValueError, match=r".+"):
        Atlas(dense=DENSE, expert=EXPERT, shared=shared)


def test_order_of_charts_and_shared_axes_count():
    assert Atlas(expert=EXPERT, dense=DENSE, shared=("pp",)) != MOE
    assert Atlas(dense=DENSE, expert=EXPERT) != MOE
    assert len({MOE, Atlas(dense=DENSE, expert=EXPERT), Atlas(dense=DENSE), Atlas(expert=EXPERT, dense=DENSE)}) == 4


def test_an_atlas_cannot_be_changed():
    for name in ("charts", "shared", "anything"):
        with pytest.raises(AttributeError):
            setattr(MOE, name, ())


@pytest.mark.parametrize(
    "change",
    [
        {"colour": 1},
        {"version": 2},
        {"version": True},
        {"format": "rankatlas.mesh"},
        {"charts": {"dense": DENSE.to_dict()}},
        {"charts": [["dense"]]},
        {"charts": [["dense", DENSE.to_dict()], ["dense", DENSE.to_dict()]]},
        {"charts": [[3, DENSE.to_dict()]]},
        {"charts": [["dense", {"dp": 2}]]},
        {"charts": None},
        {"shared": "pp"},
        {"shared": [3]},
        {"shared": None},
    ],
    ids=str,
)
def test_a_description_that_is_none(change):
    with pytest.raises(DescriptionError):
        Atlas.from_dict({**MOE.to_dict(), **change})


def test_a_description_is_proven_again():
    described = MOE.to_dict()
    described["charts"][1][1]["axes"] = [["edp", 2], ["pp", 2], ["ep", 4]]
    with pytest.raises(SharedAxisError):
        Atlas.from_dict(described)
