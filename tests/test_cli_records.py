"""Records of jobs on the command line: shown, asked, compared, checked."""

from __future__ import annotations

import json

import pytest

from rankatlas import Atlas, Mesh
from rankatlas.records import Kind
from rankatlas.records.record import made_of

MESH = Mesh(pp=2, dp=2, tp=4)
MEGATRON = {
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "dp": "DATA_PARALLEL_GROUP",
    "ep": "EXPERT_MODEL_PARALLEL_GROUP",
}


def groups(layout, *axes):
    return [list(group) for group in layout.groups(*axes)]


def kinds_of(layout, chart=""):
    mesh = layout[chart] if chart else layout
    return [Kind(MEGATRON[axis], groups(mesh, axis)) for axis in mesh.axes if axis in MEGATRON]


@pytest.fixture
def write(tmp_path):
    """Write the record of a job with four ranks per host; hosts gpu-0, gpu-1 … unless told otherwise."""

    def call(layout, kinds=None, *, expect=True, host=lambda rank: f"gpu-{rank // 4}", name="record.json"):
        ranks = [
            {"rank": rank, "host": host(rank), "local_rank": rank % 4, "device": f"cuda:{rank % 4}"}
            for rank in range(layout.world_size)
        ]
        made = made_of(ranks, kinds_of(layout) if kinds is None else kinds, layout if expect else None, "torch")
        path = tmp_path / name
        path.write_text(json.dumps(made.to_dict()))
        return str(path)

    return call


class TestShow:
    def test_hosts_and_kinds(self, run, write):
        answer = run("show", write(MESH))
        assert answer.code == 0
        assert "recorded on 4 host(s)" in answer.out
        assert "gpu-3" in answer.out
        assert "[12, 13, 14, 15]" in answer.out
        assert "TENSOR_MODEL_PARALLEL_GROUP" in answer.out

    def test_json(self, run, write):
        facts = run("show", write(MESH, [*kinds_of(MESH), Kind("debug", [[0, 5]])]), "--json").json
        assert facts["notation"] == str(MESH)
        assert facts["hosts"] == {f"gpu-{host}": list(range(4 * host, 4 * host + 4)) for host in range(4)}
        assert {kind["description"]: kind["axes"] for kind in facts["kinds"]} == {
            "TENSOR_MODEL_PARALLEL_GROUP": "tp",
            "PIPELINE_MODEL_PARALLEL_GROUP": "pp",
            "DATA_PARALLEL_GROUP": "dp",
            "debug": None,
        }
        assert facts["notes"] == ["these groups are not of this layout: debug"]

    def test_every_ranks_groups_for_other_tools(self, run, write):
        path = write(MESH, [*kinds_of(MESH), Kind("both", groups(MESH, "pp", "tp")), Kind("debug", [[0, 5]])])
        tables = run("show", path, "--format", "flagscale").json
        assert tables["parallelism_to_groups"] == {
            **{axis: groups(MESH, axis) for axis in ("pp", "dp", "tp")},
            "tp-pp": groups(MESH, "pp", "tp"),
            "debug": [[0, 5]],
        }
        numbers = tables["rank_to_parallelism_to_group_id"]
        assert list(numbers) == [str(rank) for rank in range(16)]
        for rank in range(16):
            expected = {axis: MESH.group(axis, rank=rank).index for axis in MESH.axes}
            expected["tp-pp"] = MESH.group("pp", "tp", rank=rank).index
            assert numbers[str(rank)] == expected | ({"debug": 0} if rank in (0, 5) else {})
        assert tables["rank_to_host_and_device"]["6"] == {"host": "gpu-1", "local_rank": 2, "device": "cuda:2"}

    def test_a_layout_for_other_tools(self, run):
        tables = run("show", str(MESH), "--format", "flagscale").json
        assert "rank_to_host_and_device" not in tables
        assert tables["parallelism_to_groups"]["tp-pp"] == groups(MESH, "pp", "tp")
        atlas = "dense: pp=2 dp=4 tp=2; expert: pp=2 tp=2 ep=4; shared: pp"
        names = run("show", atlas, "--format", "flagscale").json["parallelism_to_groups"]
        assert {"pp", "dp", "dense.tp", "expert.tp", "ep"} <= names.keys()
        assert run("show", "dp=2097152", "--format", "flagscale").code == 2
        assert run("show", str(MESH), "--format", "flagscale", "--axis", "tp").code == 2

    def test_an_inferred_layout_says_so(self, run, write):
        facts = run("show", write(MESH, expect=False), "--json").json
        assert facts["notation"] == str(MESH)
        assert "this layout was inferred from the groups" in facts["notes"][0]

    def test_an_inferred_atlas(self, run, write):
        atlas = Atlas(dense=Mesh(pp=2, dp=8), expert=Mesh(pp=2, edp=2, ep=4), shared=("pp",))
        kinds = [*kinds_of(atlas, "dense"), Kind(MEGATRON["ep"], groups(atlas, "expert.ep"))]
        path = write(atlas, kinds, expect=False)
        assert run("show", path, "--json").json["notation"].startswith("dense: pp=2 dp=8; expert: pp=2 axis1=2 ep=4")

    def test_what_no_layout_explains(self, run, write):
        answer = run("show", write(Mesh(dp=4), [Kind("odd", [[0, 3], [1, 2]])], expect=False))
        assert answer.code == 2
        assert "those of no row-major layout: odd" in answer.err
        assert "rankatlas check-groups" in answer.err

    def test_another_world_size(self, run, write):
        answer = run("show", write(MESH), "-n", "32")
        assert answer.code == 2
        assert "is of 16 ranks, the world size given is 32" in answer.err


class TestWhere:
    def test_a_rank(self, run, write):
        answer = run("where", "6", write(MESH))
        assert answer.code == 0
        for words in ("gpu-1", "cuda:2", "pp=0"):
            assert words in answer.out

    def test_json(self, run, write):
        facts = run("where", "6", write(MESH), "--json").json
        assert facts["coordinate"] == {"pp": 0, "dp": 1, "tp": 2}
        assert facts["place"] == {"rank": 6, "host": "gpu-1", "local_rank": 2, "device": "cuda:2"}
        assert facts["neighbours"]["pp"] == "gpu-3"
        assert facts["neighbours"]["tp"] == "gpu-1"

    def test_an_atlas(self, run, write):
        atlas = Atlas(dense=Mesh(pp=2, dp=4), expert=Mesh(pp=2, ep=4), shared=("pp",))
        facts = run("where", "5", write(atlas, kinds_of(atlas, "dense")), "--json").json
        assert facts["charts"]["expert"]["coordinate"] == {"pp": 1, "ep": 1}
        assert facts["place"]["host"] == "gpu-1"

    def test_a_host(self, run, write):
        path = write(MESH)
        assert run("where", "--host", "gpu-2", path).out.split("\n")[0] == "[8, 9, 10, 11]"
        assert run("where", "--host", "gpu-2", path, "--json").json["ranks"] == [8, 9, 10, 11]

    def test_a_host_that_is_not_there(self, run, write):
        answer = run("where", "--host", "gpu-9", write(MESH))
        assert answer.code == 2
        assert "no rank of this job ran on 'gpu-9'; there are 4 hosts" in answer.err

    def test_a_host_of_a_layout(self, run):
        answer = run("where", "--host", "gpu-1", "dp=4")
        assert answer.code == 2
        assert "needs the record of a job" in answer.err

    def test_a_group(self, run, write):
        path = write(MESH)
        assert run("where", "--group", "tp 1", path).out.split("\n")[0] == "[4, 5, 6, 7]"
        facts = run("where", "--group", "pp+dp 3", path, "--json").json
        assert (facts["axes"], facts["index"], facts["ranks"]) == (["pp", "dp"], 3, [3, 7, 11, 15])

    @pytest.mark.parametrize("group", ["tp", "tp x", "tp -1", "tp 4", "xx 0", "", "+ 0"])
    def test_no_group(self, run, write, group):
        answer = run("where", "--group", group, write(MESH))
        assert answer.code == 2
        assert answer.err.startswith("rankatlas: ")

    def test_a_coordinate(self, run, write):
        assert run("where", "--coordinate", "pp=1,tp=3", write(MESH), "--json").json["ranks"] == [11, 15]


class TestWhatWasMadeCounts:
    """A record is of groups that were made, not of the layout that was meant."""

    swapped = (Kind("tp", [[0, 2], [1, 3]]), Kind("dp", [[0, 1], [2, 3]]))
    right = (Kind("tp", [[0, 1], [2, 3]]), Kind("dp", [[0, 2], [1, 3]]))
    mesh = Mesh(dp=2, tp=2)

    def test_swapped_names_are_told(self, run, write):
        path = write(self.mesh, list(self.swapped))
        notes = ["the groups called tp are those of dp", "the groups called dp are those of tp"]
        assert run("show", path, "--json").json["notes"] == notes
        assert notes[0] in run("where", "0", path).out
        answer = run("check-groups", path, str(self.mesh))
        assert answer.code == 1

    def test_diff_compares_what_was_made(self, run, write):
        a, b = write(self.mesh, list(self.right)), write(self.mesh, list(self.swapped), name="b.json")
        answer = run("diff", a, b)
        assert answer.code == 1
        assert "groups made as tp differ: group 0 is [0, 1] in A and [0, 2] in B" in answer.out
        facts = run("diff", a, b, "--json").json
        assert facts["equal"] is False
        assert facts["made"][0] == {"description": "tp", "group": 0, "first": [0, 1], "second": [0, 2]}
        assert run("diff", a, a).code == 0

    def test_diff_sees_a_kind_that_only_one_made(self, run, write):
        a = write(self.mesh, list(self.right))
        b = write(self.mesh, [*self.right, Kind("stray", [[0, 3]])], name="b.json")
        answer = run("diff", a, b)
        assert answer.code == 1
        assert "groups made as stray differ: group 0 is not there in A and [0, 3] in B" in answer.out

    def test_where_shows_what_was_made(self, run, write):
        path = write(self.mesh, [Kind("tp", [[0, 3], [1, 2]]), self.right[1]])
        assert "  tp  [1, 2]" in run("where", "2", path).out.splitlines()
        assert run("where", "2", path, "--json").json["made_otherwise"] == [{"description": "tp", "ranks": [1, 2]}]


class TestDiff:
    def test_the_same(self, run, write):
        answer = run("diff", write(MESH, name="a.json"), write(MESH, name="b.json"))
        assert answer.code == 0
        assert "every group is the same" in answer.out

    def test_hosts_moved(self, run, write):
        other = write(MESH, name="b.json", host=lambda rank: "gpu-7" if rank in (4, 5) else f"gpu-{rank // 4}")
        answer = run("diff", write(MESH, name="a.json"), other)
        assert answer.code == 1
        assert "rank 4 moved from gpu-1 to gpu-7" in answer.out
        facts = run("diff", write(MESH, name="a.json"), other, "--json").json
        assert facts["moved"] == [{"rank": rank, "first": "gpu-1", "second": "gpu-7"} for rank in (4, 5)]
        assert not facts["equal"]

    def test_many_hosts_moved(self, run, write):
        answer = run("diff", write(MESH, name="a.json"), write(MESH, name="b.json", host=lambda rank: f"new-{rank}"))
        assert "8 more ranks moved" in answer.out

    def test_another_order(self, run, write):
        other = Mesh(pp=2, tp=4, dp=2)
        answer = run("diff", write(MESH, name="a.json"), write(other, name="b.json"))
        assert answer.code == 1
        assert "tp groups differ" in answer.out

    def test_another_world(self, run, write):
        facts = run("diff", write(MESH, name="a.json"), write(Mesh(pp=2, dp=4, tp=4), name="b.json"), "--json").json
        assert not facts["equal"]

    def test_a_record_and_a_layout(self, run, write):
        assert run("diff", write(MESH), str(MESH)).code == 0


class TestCheckGroups:
    def test_all_is_right(self, run, write):
        answer = run("check-groups", write(MESH), str(MESH), "--axis", "tp", "--axis", "dp")
        assert (answer.code, answer.out) == (0, "all 3 kinds of groups are those of pp=2 dp=2 tp=4\n")

    def test_another_layout(self, run, write):
        answer = run("check-groups", write(MESH), "pp=2 tp=4 dp=2")
        assert answer.code == 1
        assert "DATA_PARALLEL_GROUP: the groups of dp in pp=2 tp=4 dp=2 were expected" in answer.out
        assert "[0, 4] was made" in answer.out

    def test_json(self, run, write):
        facts = run("check-groups", write(MESH), "pp=2 tp=4 dp=2", "--json").json
        assert not facts["ok"]
        fault = facts["fault"]
        assert (fault["kind"], fault["expected"], fault["given"]) == ("DATA_PARALLEL_GROUP", [0, 1], [0, 4])
        assert fault["ranks"] == [0, 1, 4]
        facts = run("check-groups", write(MESH), str(MESH), "--json").json
        assert facts["ok"]
        assert {"description": "DATA_PARALLEL_GROUP", "axes": "dp"} in facts["kinds"]

    def test_groups_that_are_not_there(self, run, write):
        answer = run("check-groups", write(MESH), str(MESH), "--axis", "dp+tp")
        assert answer.code == 1
        assert "no groups over dp+tp were made" in answer.out

    def test_an_axis_that_is_not_there(self, run, write):
        assert run("check-groups", write(MESH), str(MESH), "--axis", "cp").code == 2

    def test_another_world(self, run, write):
        answer = run("check-groups", write(MESH), "dp=4 tp=2")
        assert answer.code == 2
        assert "16" in answer.err

    def test_an_open_size_is_that_of_the_record(self, run, write):
        assert run("check-groups", write(MESH), "pp=2 dp=? tp=4").code == 0

    def test_groups_no_layout_explains(self, run, write):
        path = write(Mesh(dp=4), [Kind("odd", [[0, 3], [1, 2]])], expect=False)
        assert run("check-groups", path, "dp=4").code == 1


class TestGarbage:
    @pytest.mark.parametrize("verb", [["show"], ["where", "1"], ["where", "--host", "a"], ["check-groups"]])
    @pytest.mark.parametrize(
        "change",
        [
            {"version": 2},
            {"kinds": None},
            {"kinds": [{"description": "x"}]},
            {"ranks": [3]},
            {"ranks": []},
            {"world_size": "many"},
            {"world_size": 10**30},
            {"world_size": -1},
            {"layout": {"format": "rankatlas.mesh"}},
            {"kinds": [{"description": "x", "groups": [[99]], "axes": None, "disagreements": []}]},
        ],
    )
    def test_a_damaged_record(self, run, write, verb, change):
        path = write(MESH)
        with open(path) as file:
            data = json.load(file)
        with open(path, "w") as file:
            json.dump({**data, **change}, file)
        answer = run(*verb, path, *([str(MESH)] if verb == ["check-groups"] else []))
        assert answer.code == 2, answer.out
        assert answer.err.startswith("rankatlas: ")
        assert len(answer.err.splitlines()) <= 5

    @pytest.mark.parametrize("text", ["", "{", "3", '"x"', "{}", '{"a": 1}'])
    def test_no_record(self, run, tmp_path, text):
        path = tmp_path / "x.json"
        path.write_text(text)
        answer = run("check-groups", str(path), "dp=2")
        assert answer.code == 2
        assert answer.err.startswith("rankatlas: ")

    def test_no_file(self, run):
        assert run("check-groups", "nowhere.json", "dp=2").code == 2
