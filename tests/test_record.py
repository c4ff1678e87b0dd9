"""Kinds of groups, the layout they are groups of, and the record of a job: as values, and from real processes."""

import copy
import functools
import itertools
import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankatlas import Atlas, Mesh
from rankatlas.core import parse_layout
from rankatlas.errors import DescriptionError, GroupMismatch, UnknownAxisError
from rankatlas.records import Kind, LayoutRecord, check_record, infer_layout
from rankatlas.records.kinds import axis_name, known_groups, name_kinds, sort_kinds
from rankatlas.records.record import made_of
from test_live_groups import HERE, environment


def table(layout, *axes):
    return [list(group) for group in layout.groups(*axes)]


def kinds_of(mesh, prefix="mesh_"):
    """One kind for every axis, as DeviceMesh describes them."""
    return [Kind(f"{prefix}{axis}", table(mesh, axis)) for axis in mesh.axes]


def without_ones(mesh):
    pairs = [(axis, size) for axis, size in zip(mesh.axes, mesh.sizes) if size > 1]
    return Mesh.from_axes(pairs or [("axis1", 1)])


def record_of(layout, kinds=None, world=None):
    ranks = [
        {"rank": rank, "host": f"gpu-{rank // 4}", "local_rank": rank % 4, "device": "cpu"}
        for rank in range(world or layout.world_size)
    ]
    return made_of(ranks, kinds_of(layout) if kinds is None else kinds, layout, "torch")


def seen(groups, description="", numbers=None):
    """What every rank sees of groups made in this order."""
    found = {}
    for place, ranks in enumerate(groups):
        for rank in ranks:
            one = {"description": description, "ranks": list(ranks)}
            found.setdefault(rank, []).append({**one, "number": numbers[place]} if numbers else one)
    return found


axis_names = st.sampled_from(["dp", "pp", "tp", "cp", "dp_shard", "dp_replicate", "x", "sep"])


@st.composite
def meshes(draw):
    names = draw(st.lists(axis_names, min_size=1, max_size=5, unique=True))
    sizes = draw(st.lists(st.sampled_from([1, 2, 2, 3, 4]), min_size=len(names), max_size=len(names)))
    return Mesh.from_axes(list(zip(names, sizes)))


@st.composite
def megatron_jobs(draw):
    """A dense and an expert chart over the same ranks, and their groups as Megatron describes them."""
    tp, cp, dp, pp = (draw(st.sampled_from([1, 2, 4])) for _ in range(4))
    inside = tp * cp * dp
    ep = draw(st.sampled_from([size for size in (2, 4, 8) if inside % size == 0] or [1]))
    etp = draw(st.sampled_from([size for size in (1, 2, 4) if (inside // ep) % size == 0]))
    dense = Mesh(pp=pp, dp=dp, cp=cp, tp=tp)
    expert = Mesh(pp=pp, edp=inside // ep // etp, ep=ep, etp=etp)
    kinds = [
        Kind("TENSOR_MODEL_PARALLEL_GROUP", table(dense, "tp")),
        Kind("PIPELINE_MODEL_PARALLEL_GROUP", table(dense, "pp")),
        Kind("DATA_PARALLEL_GROUP", table(dense, "dp")),
        Kind("DATA_PARALLEL_GROUP_WITH_CP", table(dense, "dp", "cp")),
        Kind("CONTEXT_PARALLEL_GROUP", table(dense, "cp")),
        Kind("MODEL_PARALLEL_GROUP", table(dense, "pp", "tp")),
        Kind("EXPERT_MODEL_PARALLEL_GROUP", table(expert, "ep")),
        Kind("EXPERT_TENSOR_PARALLEL_GROUP", table(expert, "etp")),
        Kind("EXPERT_DATA_PARALLEL_GROUP", table(expert, "edp")),
        Kind("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", table(expert, "pp", "ep", "etp")),
    ]
    return dense, expert, draw(st.permutations(kinds))


class TestSortKinds:
    @given(meshes(), st.booleans(), st.sampled_from(["", "undefined", "data"]))
    def test_groups_made_by_one_call_each(self, mesh, numbered, description):
        axes = [axis for axis in mesh.axes if mesh.size(axis) > 1]
        made = [list(group) for axis in axes for group in mesh.groups(axis)]
        kinds = sort_kinds(seen(made, description, range(len(made)) if numbered else None))
        assert [kind.groups for kind in kinds] == [table(mesh, axis) for axis in axes]
        assert all(not kind.disagreements for kind in kinds)

    def test_numbers_keep_apart_what_only_some_ranks_have(self):
        groups = [[0, 1], [2, 3], [0, 3], [0, 2], [1, 3]]
        kinds = sort_kinds(seen(groups, "", [5, 6, 9, 12, 13]))
        assert [kind.groups for kind in kinds] == [[[0, 1], [2, 3]], [[0, 3]], [[0, 2], [1, 3]]]
        assert [kind.description for kind in kinds] == [f"group without a name, number {one}" for one in (1, 2, 3)]

    def test_the_same_description_again(self):
        kinds = sort_kinds(seen([[0, 1], [0, 1]], "tp"))
        assert [(kind.description, kind.groups) for kind in kinds] == [("tp", [[0, 1]]), ("tp, number 2", [[0, 1]])]

    def test_ranks_that_see_other_members(self):
        views = {rank: [{"description": "tp", "ranks": [0, 1, 2]}] for rank in (0, 1)}
        (kind,) = sort_kinds({**views, 2: [{"description": "tp", "ranks": [0, 2, 1]}]})
        assert kind.disagreements == [0, 1, 2]
        assert kind.groups == [[0, 1, 2], [0, 2, 1]]

    def test_a_rank_alone_with_its_view(self):
        views = {rank: [{"description": "tp", "ranks": [0, 1], "number": 1}] for rank in (0, 1)}
        (kind,) = sort_kinds({**views, 2: [{"description": "tp", "ranks": [1, 2], "number": 1}]})
        assert kind.disagreements == [2]

    def test_nothing(self):
        assert sort_kinds({}) == []
        assert sort_kinds({0: [], 1: []}) == []

    def test_members_keep_their_order(self):
        (kind,) = sort_kinds(seen([[2, 0]], "tp"))
        assert kind.groups == [[2, 0]]


class TestNameKinds:
    @given(meshes(), st.data())
    def test_every_set_of_axes_is_named_by_axes_with_the_same_groups(self, mesh, data):
        chosen = data.draw(st.lists(st.sampled_from(mesh.axes), min_size=1, unique=True))
        kind = Kind("something", table(mesh, *chosen))
        name_kinds([kind], mesh)
        if kind.axes == "world":
            assert len(kind.groups) == 1
        elif kind.axes == "each rank alone":
            assert all(len(group) == 1 for group in kind.groups)
        elif kind.axes in [f"first and last stage of {axis}" for axis in ("pp", "pipe")]:
            assert all(len(group) == 2 for group in kind.groups)
        else:
            assert table(mesh, *kind.axes.split("+")) == kind.groups

    @given(meshes())
    def test_the_axis_a_description_speaks_of(self, mesh):
        kinds = kinds_of(mesh)
        name_kinds(kinds, mesh)
        for kind, axis, size in zip(kinds, mesh.axes, mesh.sizes):
            assert kind.axes == axis or size == 1

    def test_other_members_or_another_order(self):
        mesh = Mesh(dp=2, tp=2)
        kinds = [Kind("a", [[1, 0], [2, 3]]), Kind("b", [[0, 3], [1, 2]]), Kind("c", [[0, 1]])]
        name_kinds(kinds, mesh)
        assert [kind.axes for kind in kinds] == [None] * 3

    def test_ends_of_a_pipeline(self):
        mesh = Mesh(pp=4, tp=2)
        kinds = [Kind("embedding", [[0, 6], [1, 7]]), Kind("position", [[0], [1]]), Kind("head", [[6], [7]])]
        name_kinds(kinds, mesh)
        assert [kind.axes for kind in kinds] == [
            "first and last stage of pp",
            "first stage of pp",
            "last stage of pp",
        ]

    def test_charts(self):
        atlas = Atlas(dense=Mesh(pp=2, dp=4), expert=Mesh(pp=2, edp=2, ep=2), shared=("pp",))
        names = {name for names in known_groups(atlas).values() for name in names}
        assert {"pp", "dense.dp", "expert.ep", "expert.edp+ep", "world"} <= names

    @pytest.mark.parametrize(
        ("description", "axis"),
        [
            ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
            ("DATA_PARALLEL_GROUP_GLOO", "dp"),
            ("DATA_PARALLEL_GROUP_WITH_CP", None),
            ("EXPERT_DATA_PARALLEL_GROUP_GLOO", "edp"),
            ("mesh_dp_shard", "dp_shard"),
            ("model_parallel", "mp"),
            ("data_parallel_check", None),
            ("moe_sharding_parallel", "moe_sharding"),
            ("", None),
        ],
    )
    def test_descriptions(self, description, axis):
        assert axis_name(description) == axis


class TestInferLayout:
    @given(meshes(), st.randoms())
    def test_one_kind_for_every_axis(self, mesh, random):
        kinds = [*kinds_of(mesh), Kind("default_pg", [list(range(mesh.world_size))])]
        random.shuffle(kinds)
        found = infer_layout(kinds, mesh.world_size)
        wanted = without_ones(mesh)
        assert (found.layout, found.unexplained) == (wanted, [])

    @given(meshes(), st.data())
    def test_flattened_axes_are_no_axes(self, mesh, data):
        """A kind over several axes, called like one, changes nothing where the parts have names."""
        chosen = data.draw(st.lists(st.sampled_from(mesh.axes), min_size=2, unique=True)) if len(mesh.axes) > 1 else []
        kinds = kinds_of(mesh)
        if sum(mesh.size(axis) > 1 for axis in chosen) > 1:
            kinds.insert(0, Kind("mesh_loss", table(mesh, *chosen)))
        assert infer_layout(kinds, mesh.world_size).layout == without_ones(mesh)

    @given(meshes(), st.data())
    def test_groups_without_names_give_the_sizes(self, mesh, data):
        mesh = without_ones(mesh)
        kinds = [Kind(f"group without a name, number {n}", kind.groups) for n, kind in enumerate(kinds_of(mesh))]
        found = infer_layout(data.draw(st.permutations(kinds)), mesh.world_size)
        if mesh.world_size > 1 and len(mesh.axes) > 1:
            assert found.layout.sizes == mesh.sizes
            assert found.layout.axes == tuple(f"axis{n}" for n in range(len(mesh.axes), 0, -1))
        assert found.unexplained == []

    def test_names_that_look_like_ours_or_are_none(self):
        layout = Mesh(x=2, axis1=2, y=2)
        kinds = [Kind("mesh_axis1", table(layout, "axis1"))]
        assert infer_layout(kinds, 8).layout == Mesh(axis3=2, axis1=2, axis2=2)
        reserved = [Kind("mesh_first_rank", table(layout, "y"))]
        assert infer_layout(reserved, 8).layout == Mesh(axis2=4, axis1=2)

    @given(meshes(), st.data())
    def test_an_axis_without_groups_is_a_gap(self, mesh, data):
        """Whatever is left out, all groups that are there are groups of what is found."""
        kinds = [kind for kind in kinds_of(mesh) if data.draw(st.booleans())]
        found = infer_layout(kinds, mesh.world_size)
        assert found.unexplained == []
        assert found.layout.world_size == mesh.world_size

    @given(megatron_jobs())
    def test_megatron_with_experts(self, job):
        dense, expert, kinds = job
        found = infer_layout(kinds, dense.world_size)
        assert found.unexplained == []
        if expert.size("ep") == 1:
            assert found.layout == without_ones(dense)
            return
        assert found.layout["dense"] == without_ones(dense)
        assert found.layout["expert"] == without_ones(expert)
        assert found.layout.shared == (("pp",) if dense.size("pp") > 1 else ())

    def test_hundreds_of_layouts_in_every_order(self):
        """All orders of four axes with all sizes of 1, 2 and 3: each found again from its groups."""
        for sizes in itertools.product((1, 2, 3), repeat=4):
            for axes in itertools.permutations(("dp", "pp", "cp", "tp")):
                mesh = Mesh.from_axes(list(zip(axes, sizes)))
                assert infer_layout(kinds_of(mesh), mesh.world_size).layout == without_ones(mesh)

    def test_what_no_layout_explains(self):
        found = infer_layout([Kind("odd", [[0, 3], [1, 2]])], 4)
        assert (found.layout, found.unexplained) == (None, ["odd"])

    def test_what_the_rest_does_not_explain(self):
        mesh = Mesh(dp=2, tp=3)
        kinds = [*kinds_of(mesh), Kind("odd", [[0, 1], [2, 3], [4, 5]])]
        found = infer_layout(kinds, 6)
        assert (found.layout, found.unexplained) == (mesh, ["odd"])

    def test_a_nameless_group_does_not_cut_a_named_axis(self):
        kinds = [Kind("mesh_dp", [[0, 1, 2, 3]]), Kind("group without a name, number 1", [[0, 1], [2, 3]])]
        found = infer_layout(kinds, 4)
        assert (found.layout, found.unexplained) == (Mesh(dp=4), ["group without a name, number 1"])

    @given(st.lists(st.lists(st.lists(st.integers(0, 7), max_size=5), max_size=4), max_size=4), st.integers(1, 8))
    def test_any_garbage_has_an_answer(self, tables, world_size):
        kinds = [Kind(f"mesh_{'abcd'[place]}", groups) for place, groups in enumerate(tables)]
        found = infer_layout(kinds, world_size)
        if found.layout is not None:
            known = known_groups(found.layout)
            assert all(
                (tuple(map(tuple, kind.groups)) in known) != (kind.description in found.unexplained) for kind in kinds
            )

    def test_a_job_of_one(self):
        assert infer_layout([Kind("default_pg", [[0]])], 1).layout == Mesh(axis1=1)


class TestRecord:
    @given(meshes(), st.booleans())
    def test_round_trip(self, mesh, expected):
        made = made_of(record_of(mesh).ranks, kinds_of(mesh), mesh if expected else None, "torch")
        again = LayoutRecord.from_dict(json.loads(json.dumps(made.to_dict())))
        assert again.to_dict() == made.to_dict()
        assert again.inferred is not expected
        assert again.layout == (mesh if expected else without_ones(mesh))

    def test_round_trip_of_an_atlas(self):
        atlas = parse_layout("dense: pp=2 dp=4; expert: pp=2 ep=4; shared: pp")
        made = record_of(atlas, [Kind("DATA_PARALLEL_GROUP", table(atlas, "dense.dp"))])
        again = LayoutRecord.from_dict(made.to_dict())
        assert (again.layout, again.kinds[0].axes) == (atlas, "dense.dp")

    def test_without_a_layout(self):
        made = made_of(record_of(Mesh(dp=4)).ranks, [Kind("odd", [[0, 3], [1, 2]])], None, "torch")
        again = LayoutRecord.from_dict(made.to_dict())
        assert (again.layout, again.unexplained) == (None, ["odd"])

    @pytest.mark.parametrize("garbage", [None, 3, "x", [], {}, {"format": "rankatlas.record"}, {"version": 1}])
    def test_what_is_no_record(self, garbage):
        with pytest.raises(DescriptionError, match=r"this is no rankatlas\.record"):
            LayoutRecord.from_dict(garbage)

    def test_every_field_missing_or_of_another_kind(self):
        good = record_of(Mesh(dp=2, tp=2)).to_dict()
        for name in good:
            for broken in (..., None, 3, "x", [3], [[]], {"a": 1}, [None], -1):
                data = copy.deepcopy(good)
                if broken is ...:
                    del data[name]
                else:
                    data[name] = broken
                try:
                    LayoutRecord.from_dict(data)
                except DescriptionError:
                    continue
                except Exception as error:
                    pytest.fail(f"{name}={broken!r}: {error!r}")

    @pytest.mark.parametrize(
        "change",
        [
            {"world_size": 4.7},
            {"world_size": "4"},
            {"world_size": float("inf")},
            {"world_size": 10**30},
            {"world_size": 3_000_000_000},
            {"layout": Mesh(dp=2**40).to_dict()},
            {"layout": Mesh(dp=2, tp=2, first_rank=100).to_dict()},
            *(
                {"kinds": [{"description": "tp", "axes": "tp", "disagreements": [], "groups": groups}]}
                for groups in ([[0.5, 1.9]], ["01", "23"], {"0": 1}, [[float("inf")]], [[0, True]], [[-1]], [[4]])
            ),
        ],
    )
    def test_what_contradicts_itself(self, change):
        with pytest.raises(DescriptionError, match="damaged"):
            LayoutRecord.from_dict({**record_of(Mesh(dp=2, tp=2)).to_dict(), **change})

    def test_repr(self):
        assert repr(record_of(Mesh(dp=2))) == "LayoutRecord(2 ranks, 1 kinds of groups, layout=Mesh(dp=2))"


class TestCheck:
    @given(meshes())
    def test_what_was_made_as_meant(self, mesh):
        check_record(record_of(mesh), mesh, list(mesh.axes))

    @given(meshes(), st.data())
    def test_another_layout_is_refused(self, mesh, data):
        """Any other order or other sizes, unless every single axis has the same groups all the same."""
        axes = data.draw(st.permutations(mesh.axes))
        other = Mesh.from_axes([(axis, mesh.size(axis)) for axis in axes])
        same = all(table(mesh, axis) == table(other, axis) for axis in mesh.axes)
        if same:
            check_record(record_of(mesh), other)
            return
        with pytest.raises(GroupMismatch) as caught:
            check_record(record_of(mesh), other)
        axis = caught.value.kind.removeprefix("mesh_")
        assert caught.value.given in table(mesh, axis)
        assert caught.value.expected in table(other, axis)
        assert caught.value.given != caught.value.expected
        assert caught.value.ranks == sorted({*caught.value.given, *caught.value.expected})

    def test_a_description_that_speaks_of_another_axis(self):
        """Both are groups of the layout, only not those their description promises."""
        kinds = [Kind("TENSOR_MODEL_PARALLEL_GROUP", [[0, 2], [1, 3]]), Kind("DATA_PARALLEL_GROUP", [[0, 1], [2, 3]])]
        with pytest.raises(GroupMismatch, match="they are its groups over dp") as caught:
            check_record(record_of(None, kinds, 4), Mesh(dp=2, tp=2))
        assert (caught.value.kind, caught.value.given) == ("TENSOR_MODEL_PARALLEL_GROUP", [0, 2])
        assert (caught.value.expected, caught.value.ranks) == ([0, 1], [0, 1, 2])

    def test_a_description_that_is_an_axis(self):
        swapped = [Kind("tp", [[0, 2], [1, 3]]), Kind("dp", [[0, 1], [2, 3]])]
        with pytest.raises(GroupMismatch, match="they are its groups over dp"):
            check_record(record_of(None, swapped, 4), Mesh(dp=2, tp=2))
        assert record_of(None, swapped, 4).layout == Mesh(tp=2, dp=2)

    def test_words_of_the_field_for_one_axis(self):
        kinds = [Kind("model_parallel", [[0, 1], [2, 3]])]
        check_record(record_of(None, kinds, 4), Mesh(dp=2, tp=2))
        with pytest.raises(GroupMismatch):
            check_record(record_of(None, kinds, 4), Mesh(tp=2, dp=2))

    @pytest.mark.parametrize("layout", [Mesh(pp=2, dp=2), Mesh(dp=2, pp=2), Mesh(dp=4), Mesh(dp=2, sharding=2)])
    def test_an_axis_that_the_layout_has_not(self, layout):
        """Without a tensor axis each rank is alone along it, whatever else its groups may be groups of."""
        axis = layout.axes[-1]
        tensor = Kind("TENSOR_MODEL_PARALLEL_GROUP", table(layout, axis))
        with pytest.raises(GroupMismatch, match="an axis it has not") as caught:
            check_record(record_of(None, [tensor], 4), layout)
        assert (caught.value.given, caught.value.expected) == (table(layout, axis)[0], [0])
        alone = Kind("TENSOR_MODEL_PARALLEL_GROUP", [[0], [1], [2], [3]])
        check_record(record_of(None, [alone], 4), layout)

    @pytest.mark.parametrize("axis", ["rows", "tensor_parallel", "model", "mp"])
    def test_an_axis_that_may_be_the_one_meant(self, axis):
        layout = Mesh.from_axes([("dp", 2), (axis, 2)])
        check_record(record_of(None, [Kind("TENSOR_MODEL_PARALLEL_GROUP", table(layout, axis))], 4), layout)

    def test_data_in_other_words(self):
        layout = Mesh(dp_replicate=2, dp_shard=2, tp=2)
        kinds = [Kind("DATA_PARALLEL_GROUP", table(layout, "dp_replicate", "dp_shard"))]
        check_record(record_of(None, kinds, 8), layout)
        with pytest.raises(GroupMismatch):
            check_record(record_of(None, [Kind("DATA_PARALLEL_GROUP", table(layout, "tp"))], 8), layout)

    def test_all_kinds_that_are_wrong_are_named(self):
        made, meant = Mesh(tp=2, pp=2, dp=2), Mesh(pp=2, dp=2, tp=2)
        with pytest.raises(GroupMismatch, match="2 more are wrong: mesh_pp, mesh_dp") as caught:
            check_record(record_of(made), meant)
        assert (caught.value.kind, caught.value.others) == ("mesh_tp", ["mesh_pp", "mesh_dp"])

    def test_a_group_that_is_none_of_the_layout(self):
        kinds = [Kind("stray", [[0, 3], [1, 2]])]
        with pytest.raises(GroupMismatch, match=r"stray: \[0, 3\] is no group of dp=2 tp=2, whichever axes") as caught:
            check_record(record_of(None, kinds, 4), Mesh(dp=2, tp=2))
        assert (caught.value.given, caught.value.expected, caught.value.ranks) == ([0, 3], None, [0, 3])

    def test_one_group_that_is_wrong(self):
        kinds = [Kind("something", [[0, 1], [2, 4], [3, 5], [6, 7]])]
        with pytest.raises(GroupMismatch, match=r"whose group 1 is \[2, 3\], and \[2, 4\] was made") as caught:
            check_record(record_of(None, kinds, 8), Mesh(dp=4, tp=2))
        assert caught.value.ranks == [2, 3, 4]

    def test_members_in_another_order(self):
        kinds = [Kind("mesh_tp", [[0, 1], [3, 2]])]
        with pytest.raises(GroupMismatch, match=r"in another order \[3, 2\] was made"):
            check_record(record_of(None, kinds, 4), Mesh(dp=2, tp=2))

    def test_groups_nobody_made(self):
        with pytest.raises(GroupMismatch, match=r"no groups over dp\+tp were made; there are dp, tp") as caught:
            check_record(record_of(Mesh(pp=2, dp=2, tp=2), kinds_of(Mesh(pp=2, dp=2, tp=2))[1:]), MESH, ["tp", "dp+tp"])
        assert caught.value.kind == "dp+tp"

    def test_an_axis_nobody_has(self):
        with pytest.raises(UnknownAxisError):
            check_record(record_of(MESH), MESH, ["ep"])

    def test_another_world(self):
        with pytest.raises(GroupMismatch, match="the job has ranks 0 to 7, dp=4 tp=4 has 0 to 15"):
            check_record(record_of(MESH), Mesh(dp=4, tp=4))
        with pytest.raises(GroupMismatch, match="has 8 to 15"):
            check_record(record_of(MESH), Mesh.from_axes([("pp", 2), ("dp", 2), ("tp", 2)], first_rank=8))

    def test_ranks_that_disagree(self):
        kinds = [Kind("mesh_tp", [[0, 1], [2, 3]], disagreements=[1])]
        with pytest.raises(GroupMismatch, match=r"ranks \[1\] see other members") as caught:
            check_record(record_of(None, kinds, 4), Mesh(dp=2, tp=2))
        assert caught.value.ranks == [1]

    @pytest.mark.parametrize(("groups", "missing"), [([], [0, 1]), ([[0, 1]], [2, 3])])
    def test_groups_that_are_missing(self, groups, missing):
        with pytest.raises(GroupMismatch, match="is not there") as caught:
            check_record(record_of(None, [Kind("mesh_tp", groups)], 4), Mesh(dp=2, tp=2))
        assert (caught.value.given, caught.value.expected, caught.value.ranks) == (None, missing, missing)

    def test_a_kind_without_any_groups(self):
        with pytest.raises(GroupMismatch):
            check_record(record_of(None, [Kind("empty", [])], 4), Mesh(dp=4))


MESH = Mesh(pp=2, dp=2, tp=2)


@functools.cache
def live_answers(python, job):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [python, str(HERE / "live_record_torch.py"), folder, job],
            env=environment(GLOO_SOCKET_IFNAME="lo"),
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        record = Path(folder) / "hsdp.json"
        return {**json.loads(done.stdout), "record": json.loads(record.read_text()) if record.exists() else None}


@pytest.mark.live
class TestTorchMeshes:
    @pytest.fixture
    def said(self):
        pytest.importorskip("torch")
        return live_answers(sys.executable, "mesh")

    def test_hsdp(self, said):
        for answers in said["answers"]["hsdp"]:
            assert answers["notation"] == "dp_replicate=2 dp_shard=2 tp=2"
            assert answers["unexplained"] == []
            assert {name: axes for name, (axes, _) in answers["kinds"].items()} == {
                "default_pg": "world",
                "mesh_dp_replicate": "dp_replicate",
                "mesh_dp_shard": "dp_shard",
                "mesh_tp": "tp",
                "mesh_dp": "dp_replicate+dp_shard",
            }
            assert answers["verified"] is None
            assert answers["wrong"]["kind"] == "mesh_dp_replicate"
            assert answers["absent"]["kind"] == "dp_replicate+tp"

    def test_the_file_is_the_record(self, said):
        made = LayoutRecord.from_dict(said["record"])
        assert [place["rank"] for place in made.ranks] == list(range(8))
        assert made.framework == "torch"
        assert str(made.layout) == "dp_replicate=2 dp_shard=2 tp=2"

    def test_every_order_of_axes_is_found(self, said):
        orders = said["answers"]["orders"][0]
        assert len(orders) == 24 + 12
        for notation, (found, unexplained) in orders.items():
            assert (found, unexplained) == (notation, [])

    def test_groups_without_names(self, said):
        for answers in said["answers"]["nameless"]:
            assert answers["notation"] == "axis2=4 axis1=2"
            assert answers["verified"] is None
            assert answers["wrong"]["kind"].startswith("group without a name")

    def test_groups_no_layout_has(self, said):
        for answers in said["answers"]["irregular"]:
            assert (answers["notation"], answers["unexplained"]) == (None, ["odd"])
            assert answers["wrong"]["kind"] == "odd"


@pytest.mark.live
class TestMegatron:
    @pytest.fixture
    def said(self):
        pytest.importorskip("torch")
        if find_spec("megatron") is None:
            pytest.skip("megatron-core is not installed")
        return live_answers(sys.executable, "megatron")

    def test_every_kind_is_mapped_and_the_layout_found(self, said):
        for (_, notation), answers in zip(said["megatron"], said["answers"].values()):
            wanted = parse_layout(notation)
            for rank, one in enumerate(answers):
                found = parse_layout(one["notation"])
                assert one["unexplained"] == []
                assert [name for name, (axes, _) in one["kinds"].items() if axes is None] == []
                self.same_groups(found, wanted)
                self.real_groups(wanted, one["real"], rank)

    def same_groups(self, found, wanted):
        if isinstance(wanted, Mesh):
            assert found == without_ones(wanted)
            return
        assert {chart: without_ones(mesh) for chart, mesh in wanted.charts.items()} == found.charts
        assert found.shared == wanted.shared

    def real_groups(self, wanted, real, rank):
        """What Megatron's own getters answer is what the layout says."""
        charts = {"": wanted} if isinstance(wanted, Mesh) else wanted.charts
        for mesh in charts.values():
            for axis in mesh.axes:
                if axis in real:
                    assert list(mesh.group(axis, rank=rank)) == real[axis]

    def test_verify_passes_and_fails_rightly(self, said):
        wrong = 0
        for (_, _), answers in zip(said["megatron"], said["answers"].values()):
            assert [one["verified"] for one in answers] == [None] * 8
            faults = [one["wrong"] for one in answers]
            assert len({json.dumps(fault) for fault in faults}) == 1
            if faults[0]:
                wrong += 1
                assert faults[0]["kind"].startswith("DATA_PARALLEL_GROUP")
                assert faults[0]["given"] != faults[0]["expected"]
        assert wrong == 3
