"""Meshes, coordinates, groups and atlases as values: text, dicts, fingerprints, copies, equality, hashes."""

import copy
import json
import pickle

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from rankatlas import Atlas, Coordinate, Mesh, parse_atlas, parse_layout, parse_mesh
from strategies import HUGE, atlases, axes_of, meshes, ranks_of, small_meshes

NAMES = {"Mesh": Mesh, "Atlas": Atlas, "Coordinate": Coordinate}


@given(meshes)
@example(Mesh.from_axes([("lambda", 2), ("class", 3)], 5))
def test_a_mesh_is_what_its_texts_say(mesh):
    assert parse_mesh(str(mesh)) == mesh
    assert parse_mesh(str(mesh), mesh.world_size) == mesh
    assert parse_layout(str(mesh)) == mesh
    assert eval(repr(mesh), NAMES) == mesh


@given(meshes)
def test_a_mesh_survives_its_description_json_pickle_and_copies(mesh):
    assert Mesh.from_dict(mesh.to_dict()) == mesh
    assert Mesh.from_dict(json.loads(json.dumps(mesh.to_dict()))) == mesh
    assert Mesh.from_axes(list(zip(mesh.axes, mesh.sizes)), mesh.first_rank) == mesh
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(mesh, protocol)) == mesh
    assert copy.copy(mesh) == copy.deepcopy(mesh) == mesh


@given(meshes, meshes)
def test_fingerprints_and_hashes_are_equal_exactly_when_meshes_are(one, two):
    assert (one.fingerprint() == two.fingerprint()) == (one == two)
    again = Mesh.from_axes(zip(one.axes, one.sizes), one.first_rank)
    assert (again == one, hash(again) == hash(one), again.fingerprint() == one.fingerprint()) == (True, True, True)


def test_names_sizes_order_and_first_rank_all_count():
    layouts = [
        *(Mesh(dp=8), Mesh(tp=8), Mesh(dp=8, x=1), Mesh(x=1, dp=8), Mesh(dp=2, tp=4), Mesh(tp=4, dp=2)),
        *(Mesh(dp=4, tp=2), Mesh(dp=8, first_rank=8), Mesh(dp=9), Mesh(DP=8)),
    ]
    assert len(set(layouts)) == len({mesh.fingerprint() for mesh in layouts}) == len(layouts)
    assert Mesh(dp=8) != "dp=8"
    assert Mesh(dp=8) != (("dp", 8),)


def test_the_vector_of_the_contract():
    mesh = Mesh(pp=4, dp=2, tp=8)
    assert mesh.fingerprint() == "79f19846e81d1d07b9a1206b0326f380690b0655889ee6f4266491ce588bca3f"
    assert json.dumps(mesh.to_dict(), sort_keys=True, separators=(",", ":")) == (
        '{"axes":[["pp",4],["dp",2],["tp",8]],"first_rank":0,"format":"rankatlas.mesh","version":1}'
    )
    assert mesh == Mesh.from_axes([("pp", 4), ("dp", 2), ("tp", 8)], first_rank=0)
    assert (mesh.world_size, mesh.axes, mesh.sizes, mesh.first_rank) == (64, ("pp", "dp", "tp"), (4, 2, 8), 0)
    assert (mesh.size("tp"), mesh.stride("tp"), mesh.stride("dp"), mesh.stride("pp")) == (8, 1, 8, 16)
    assert (mesh.coordinate(37)["tp"], mesh.coordinate(37).tp) == (5, 5)
    assert dict(mesh.coordinate(37)) == {"pp": 2, "dp": 0, "tp": 5}
    assert mesh.rank(pp=2, dp=0, tp=5) == 37
    group = mesh.group("dp", "tp", rank=37)
    assert (group.axes, group.index, group.size, group.group_rank) == (("dp", "tp"), 2, 16, 5)
    assert group.ranks == list(range(32, 48))
    groups = mesh.groups("dp", "tp")
    assert (len(groups), groups[3].ranks, mesh.select(pp=0)) == (4, list(range(48, 64)), list(range(16)))
    assert parse_mesh("pp=4 dp=? tp=8", world_size=64) == parse_mesh("pp=4 dp=-1 tp=8", 64) == mesh
    assert repr(Mesh(pp=4, dp=2, first_rank=16)) == "Mesh(pp=4, dp=2, first_rank=16)"
    assert str(Mesh(pp=4, dp=2, first_rank=16)) == "pp=4 dp=2 first_rank=16"


def test_a_keyword_as_axis_name_is_written_with_from_axes():
    mesh = Mesh(**{"lambda": 2, "dp": 3}, first_rank=1)
    assert repr(mesh) == "Mesh.from_axes([('lambda', 2), ('dp', 3)], first_rank=1)"
    assert mesh.coordinate(4)["lambda"] == 1
    assert eval(repr(mesh.coordinate(4)), NAMES) == mesh.coordinate(4)


def test_a_mesh_cannot_be_changed():
    mesh = Mesh(dp=2)
    for name in ("axes", "sizes", "first_rank", "world_size", "strides", "dp", "anything"):
        with pytest.raises(AttributeError):
            setattr(mesh, name, 3)
    mesh.to_dict()["axes"].append(["tp", 2])
    assert mesh == Mesh(dp=2)


# coordinates


@given(meshes.flatmap(lambda mesh: st.tuples(st.just(mesh), ranks_of(mesh))))
def test_a_coordinate_is_a_hashable_mapping_in_mesh_order(asked):
    mesh, rank = asked
    coordinate = mesh.coordinate(rank)
    plain = dict(coordinate)
    assert list(coordinate) == list(coordinate.keys()) == list(mesh.axes)
    assert (coordinate == plain, plain == coordinate, len(coordinate)) == (True, True, len(mesh.axes))
    assert hash(coordinate) == hash(mesh.coordinate(rank)) == hash(Coordinate(**dict(reversed(plain.items()))))
    assert {coordinate: rank}[mesh.coordinate(rank)] == rank
    for again in (pickle.loads(pickle.dumps(coordinate)), copy.copy(coordinate), copy.deepcopy(coordinate)):
        assert (again, list(again), type(again)) == (coordinate, list(coordinate), Coordinate)
    assert eval(repr(coordinate), NAMES) == coordinate
    assert str(coordinate) == " ".join(f"{axis}={place}" for axis, place in plain.items())


@given(meshes.flatmap(lambda mesh: st.tuples(st.just(mesh), ranks_of(mesh))))
@example((Mesh(_axes=2, _places=2), 1))
@example((Mesh(keys=2, get=2, tp=2), 5))
def test_attributes_give_the_places_except_where_every_mapping_has_a_method(asked):
    mesh, rank = asked
    coordinate = mesh.coordinate(rank)
    for axis, place in coordinate.items():
        assert coordinate[axis] == coordinate.get(axis) == place
        if axis in ("keys", "items", "values", "get"):
            assert callable(getattr(coordinate, axis))
        elif not (axis.startswith("__") and axis.endswith("__")):
            assert getattr(coordinate, axis) == place


def test_a_coordinate_says_which_axes_it_has():
    coordinate = Mesh(pp=2, tp=4).coordinate(5)
    assert ("tp" in coordinate, "dp" in coordinate, coordinate.get("dp"), coordinate.get("dp", 7)) == (
        *(True, False, None, 7),
    )
    with pytest.raises(KeyError, match=r"'dp'.*'pp', 'tp'"):
        _ = coordinate["dp"]
    with pytest.raises(AttributeError, match=r"'dp'.*pp, tp"):
        getattr(coordinate, "dp")  # noqa: B009
    match coordinate:
        case {"pp": pp, "tp": 1}:
            assert pp == 1
        case _:
            pytest.fail("a coordinate must match as a mapping")


# groups


@given(meshes, st.data())
def test_groups_are_equal_when_mesh_axes_and_index_are(mesh, data):
    axes, rank = data.draw(axes_of(mesh)), data.draw(ranks_of(mesh))
    asked = mesh.group(*axes, rank=rank)
    taken = mesh.groups(*axes)[asked.index]
    assert (taken, hash(taken), taken.group_rank) == (asked, hash(asked), None)
    assert asked == mesh.group(*reversed(axes), rank=rank)
    assert asked == Mesh.from_dict(mesh.to_dict()).group(*axes, rank=rank)
    for again in (pickle.loads(pickle.dumps(asked)), copy.copy(asked), copy.deepcopy(asked)):
        assert (again, again.group_rank, again.ranks) == (asked, asked.group_rank, asked.ranks)
    groups = mesh.groups(*axes)
    for again in (pickle.loads(pickle.dumps(groups)), copy.deepcopy(groups), mesh.groups(*reversed(axes))):
        assert (again, hash(again), again[0]) == (groups, hash(groups), groups[0])


def test_groups_differ_when_mesh_axes_or_index_do():
    mesh = Mesh(dp=2, x=1, tp=2)
    one = mesh.group("tp", rank=0)
    others = [
        *(mesh.group("tp", rank=2), mesh.group("x", "tp", rank=0), mesh.group(rank=0)),
        *(Mesh(dp=2, tp=2).group("tp", rank=0), Mesh(dp=4, tp=2).group("tp", rank=0)),
    ]
    assert one not in others
    assert len({one, *others}) == 6
    assert one != [0, 1]
    assert (mesh.groups("tp") == mesh.groups("x", "tp"), one in mesh.groups("dp"), [0, 1] in mesh.groups("tp")) == (
        *(False, False, False),
    )


@given(small_meshes, st.data())
def test_groups_are_a_sequence(mesh, data):
    groups = mesh.groups(*data.draw(axes_of(mesh)))
    plain = list(groups)
    assert [groups[index] for index in range(-len(groups), len(groups))] == plain * 2
    part = slice(*data.draw(st.tuples(*[st.none() | st.integers(-9, 9)] * 2, st.sampled_from([None, 1, 2, -1, -3]))))
    assert list(groups[part]) == plain[part]
    assert list(reversed(groups)) == plain[::-1]
    assert groups.index(plain[-1]) == len(plain) - 1
    for outside in (len(plain), -len(plain) - 1):
        with pytest.raises(IndexError, match=str(outside)):
            groups[outside]


@given(small_meshes, st.data())
def test_a_group_is_iterable_sized_and_has_members(mesh, data):
    group = mesh.group(*data.draw(axes_of(mesh)), rank=data.draw(ranks_of(mesh)))
    members = list(group)
    assert (len(group), members == group.ranks, members == sorted(members)) == (group.size, True, True)
    for rank in range(mesh.first_rank - 2, mesh.first_rank + mesh.world_size + 2):
        assert (rank in group) == (rank in members)


def test_a_group_prints_its_members_and_no_more_than_a_few():
    assert repr(Mesh(dp=2, tp=2).group("tp", rank=3)) == (
        "Group(axes=('tp',), index=1, size=2, ranks=[2, 3], group_rank=1)"
    )
    assert len(repr(Mesh(dp=HUGE).group("dp", rank=5))) < 200
    assert repr(Mesh(dp=2, tp=2).groups("dp")) == "Mesh(dp=2, tp=2).groups('dp')"


# atlases


@given(atlases())
def test_an_atlas_is_what_its_texts_and_descriptions_say(atlas):
    again = [
        *(eval(repr(atlas), NAMES), parse_atlas(str(atlas)), parse_layout(str(atlas)), copy.deepcopy(atlas)),
        *(pickle.loads(pickle.dumps(atlas)), Atlas.from_dict(json.loads(json.dumps(atlas.to_dict())))),
    ]
    for other in again:
        assert (other, hash(other), other.fingerprint()) == (atlas, hash(atlas), atlas.fingerprint())


@given(atlases(), atlases())
def test_fingerprints_of_atlases_are_equal_exactly_when_atlases_are(one, two):
    assert (one.fingerprint() == two.fingerprint()) == (one == two)


@pytest.mark.parametrize("name", ["lambda", "class", "None", "self", "charts", "Mesh", "_charts", "first_rank"])
def test_an_atlas_may_name_its_charts_as_it_likes(name):
    atlas = Atlas(**{name: Mesh(dp=2)})
    assert eval(repr(atlas), NAMES) == atlas
    assert parse_atlas(str(atlas)) == atlas
    assert atlas[name] == Mesh(dp=2)


@given(meshes)
def test_a_mesh_is_no_atlas_of_one_chart(mesh):
    assume(mesh.first_rank == 0)
    assert Atlas(only=mesh) != mesh
    assert Atlas(only=mesh).fingerprint() != mesh.fingerprint()
