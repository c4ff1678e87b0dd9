"""The command line in-process: what each verb answers, in words and as JSON."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from rankatlas import Atlas, Mesh
from rankatlas.cli.main import main

LAYOUTS = Path(__file__).parent.parent / "examples" / "layouts"
ATLAS = "dense: pp=2 dp=4 tp=2; expert: pp=2 edp=2 ep=4; shared: pp"


class Answer:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        assert self.code in (0, 1), self.err
        return json.loads(self.out)


@pytest.fixture
def run(capsys):
    def call(*arguments: str) -> Answer:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        captured = capsys.readouterr()
        return Answer(ended.value.code, captured.out, captured.err)

    return call


class TestShow:
    def test_notation(self, run):
        answer = run("show", "pp=2 dp=4 cp=2 tp=4")
        assert answer.code == 0
        assert "64 ranks (ranks 0 to 63)" in answer.out
        assert "outer → inner: pp, dp, cp, tp" in answer.out
        assert "[0, 8, 16, 24]" in answer.out
        assert "48 more ranks" in answer.out

    def test_notation_needs_no_quotes(self, run):
        assert run("show", "pp=2", "tp=4").out == run("show", "pp=2 tp=4").out

    def test_json_tells_the_same_as_the_mesh(self, run):
        mesh = Mesh(pp=2, dp=4, tp=2)
        facts = run("show", str(mesh), "--json").json
        assert facts["fingerprint"] == mesh.fingerprint()
        assert facts["world_size"] == 16
        for axis in facts["axes"]:
            groups = mesh.groups(axis["axis"])
            assert (axis["size"], axis["stride"]) == (mesh.size(axis["axis"]), mesh.stride(axis["axis"]))
            assert axis["groups"] == len(groups)
            assert axis["first_groups"] == [list(group) for group in groups[:3]]
        derived = {group["name"]: group for group in facts["derived"]}
        assert derived["data"]["first_groups"][0] == [0, 2, 4, 6]
        assert derived["model replica"]["first_groups"][0] == [0, 1, 8, 9]
        assert derived["first and last stage"]["first_groups"][:2] == [[0, 8], [1, 9]]
        assert derived["stage"]["first_groups"][1] == list(range(8, 16))

    def test_the_page_of_ranks(self, run):
        facts = run("show", "dp=4 tp=2", "--ranks", "1,3-4", "--json").json
        assert [row["rank"] for row in facts["ranks"]] == [1, 3, 4]
        assert facts["ranks"][1]["coordinate"] == {"dp": 1, "tp": 1}
        assert facts["ranks_left_out"] == 0

    def test_jsonl_has_every_rank(self, run):
        rows = [json.loads(line) for line in run("show", "dp=3 tp=2", "--format", "jsonl").out.splitlines()]
        mesh = Mesh(dp=3, tp=2)
        assert rows == [{"rank": rank, "coordinate": dict(mesh.coordinate(rank))} for rank in range(6)]

    def test_csv_of_an_axis_called_rank(self, run):
        rows = list(csv.reader(io.StringIO(run("show", "rank=2 tp=2", "--format", "csv").out)))
        assert rows[0] == ["rank", "coordinate.rank", "tp"]
        assert rows[-1] == ["3", "1", "1"]

    @pytest.mark.parametrize("pen", ["jsonl", "csv"])
    def test_atlas_rows_leave_out_uncovered_charts(self, run, pen):
        out = run("show", "a: dp=2; b: tp=2 first_rank=1", "--format", pen).out.splitlines()
        if pen == "csv":
            assert out == ["rank,a.dp,b.tp", "0,0,", "1,1,0", "2,,1"]
        else:
            assert [json.loads(line)["coordinate"] for line in out] == [
                {"a": {"dp": 0}},
                {"a": {"dp": 1}, "b": {"tp": 0}},
                {"b": {"tp": 1}},
            ]

    def test_atlas(self, run):
        answer = run("show", ATLAS)
        assert "chart expert" in answer.out
        assert "shared, proven to have the same groups: pp" in answer.out
        assert run("show", ATLAS, "--json").json["charts"]["expert"]["order"] == ["pp", "edp", "ep"]

    @pytest.mark.parametrize("pen", ["table", "json", "jsonl", "csv"])
    def test_groups_of_an_axis(self, run, pen):
        answer = run("show", "pp=2 dp=4 tp=2", "--axis", "dp", "--axis", "tp", "--format", pen)
        assert answer.code == 0
        wanted = {"table": "[8, 9, 10, 11, 12, 13, 14, 15]", "csv": "1,8 9 10 11 12 13 14 15"}
        if pen in wanted:
            assert wanted[pen] in answer.out
        else:
            line = answer.out.splitlines()[-1] if pen == "jsonl" else answer.out
            found = json.loads(line)
            members = found["ranks"] if pen == "jsonl" else found["groups"]["page"][1]
            assert members == list(range(8, 16))

    def test_output_file(self, run, tmp_path):
        target = tmp_path / "ranks.jsonl"
        assert run("show", "dp=9", "--format", "jsonl", "-o", str(target)).out == ""
        assert len(target.read_text().splitlines()) == 9
        assert run("show", "dp=9", "-o", str(tmp_path / "table")).code == 0
        assert "9 ranks" in (tmp_path / "table").read_text()
        assert run("show", "dp=9", "--json", "-o", str(tmp_path / "json")).code == 0
        assert json.loads((tmp_path / "json").read_text())["world_size"] == 9

    def test_a_failed_run_keeps_the_file_that_was_there(self, run, tmp_path):
        target = tmp_path / "kept"
        target.write_text("mine")
        assert run("show", "dp=2", "--ranks", "0-9", "-o", str(target)).code == 2
        assert run("show", "dp=2", "--axis", "nope", "--format", "csv", "-o", str(target)).code == 2
        assert target.read_text() == "mine"
        assert [path.name for path in tmp_path.iterdir()] == ["kept"]

    def test_training_arguments(self, run):
        facts = run("show", str(LAYOUTS / "paddlenlp_llama_pretrain.json"), "--world-size", "64", "--json").json
        assert facts["notation"] == "dp=2 pp=2 sharding=4 sep=1 mp=4"
        assert {fact["name"]: fact["origin"] for fact in facts["given"]} == {
            "dp": "inferred from world size 64",
            "pp": "given: pipeline_parallel_degree",
            "sharding": "given: sharding_parallel_degree",
            "sep": "not set",
            "mp": "given: tensor_parallel_degree",
        }

    @pytest.mark.parametrize("path", sorted(LAYOUTS.glob("*.json")), ids=lambda path: path.stem)
    def test_every_example(self, run, path):
        world = {"paddlenlp_llama_pretrain": ["-n", "64"], "short_degrees": ["-n", "32"]}.get(path.stem, [])
        assert run("show", str(path), *world).code == 0


class TestWhere:
    def test_words(self, run):
        out = run("where", "37", "pp=2 dp=4 cp=2 tp=4").out
        assert "coordinate  pp=1 dp=0 cp=1 tp=1" in out
        assert "stage 1 of 2; receives from rank 5, last stage" in out
        for members in ("[5, 37]", "[37, 45, 53, 61]", "[33, 37]", "[36, 37, 38, 39]"):
            assert members in out
        assert "[33, 37, 41, 45, 49, 53, 57, 61]" in out  # dp+cp
        assert "[4, 5, 6, 7, 36, 37, 38, 39]" in out  # pp+tp

    def test_who_reads_one_batch(self, run):
        facts = run("where", "17", "pp=1 dp=2 cp=16 tp=1", "--json").json
        assert facts["data"]["data_rank"] == 1
        assert facts["data"]["same_batch"] == list(range(16, 32))
        assert facts["data"]["other_batches"] == [1, 17]
        out = run("where", "17", "pp=1 dp=2 cp=16 tp=1").out
        assert "one batch is read by the 16 ranks that differ along pp, cp, tp" in out
        assert "read different batches: [1, 17]" in out

    def test_data_rank_and_group_rank_differ_when_sharding_is_outer(self, run):
        facts = run("where", "2", "sharding=2 dp=4", "--json").json["data"]
        assert (facts["data_rank"], facts["group_rank"]) == (4, 2)
        assert "data rank 4 of 8" in run("where", "2", "sharding=2 dp=4").out
        assert "place 2 in the group over dp+sharding" in run("where", "2", "sharding=2 dp=4").out

    def test_nothing_is_claimed_about_axes_of_unknown_role(self, run):
        facts = run("where", "2", "dp=2 ep=4", "--json").json
        assert "same_batch" not in facts["data"]
        assert "data" not in run("where", "2", "x=4", "--json").json

    def test_atlas(self, run):
        facts = run("where", "5", ATLAS, "--json").json["charts"]
        assert facts["dense"]["coordinate"] == {"pp": 0, "dp": 2, "tp": 1}
        assert facts["expert"]["coordinate"] == {"pp": 0, "edp": 1, "ep": 1}
        assert "chart expert" in run("where", "5", ATLAS).out

    def test_groups_agree_with_the_mesh(self, run):
        mesh = Mesh(pp=3, dp=4, tp=2)
        for group in run("where", "13", str(mesh), "--json").json["groups"]:
            real = mesh.group(*group["axes"], rank=13)
            assert (group["index"], group["group_rank"], group["ranks"]) == (real.index, real.group_rank, list(real))

    @pytest.mark.parametrize(
        ("layout", "places", "ranks"),
        [
            ("pp=2 dp=2 tp=4", "pp=1,tp=3", [11, 15]),
            ("pp=2 dp=2 tp=4", "tp=3 dp=1 pp=0", [7]),
            (ATLAS, "expert.ep=1,pp=1", [9, 13]),
        ],
    )
    def test_coordinate(self, run, layout, places, ranks):
        assert run("where", "--coordinate", places, layout, "--json").json["ranks"] == ranks
        assert run("where", "-c", places, layout).out.strip() == (str(ranks) if len(ranks) > 1 else str(ranks[0]))

    def test_a_world_of_2_to_the_40(self, run):
        facts = run("where", str(2**40 - 1), "pp=1024 dp=1048576 tp=1024", "--json").json
        assert facts["coordinate"] == {"pp": 1023, "dp": 1048575, "tp": 1023}
        assert run("where", "5", "pp=1024 dp=1048576 tp=1024").code == 0
        assert run("show", "pp=1024 dp=1048576 tp=1024").code == 0
        assert run("diff", "pp=1024 dp=1048576", "dp=1048576 pp=1024").code == 1


class TestDiff:
    def test_equal(self, run):
        answer = run("diff", "pp=2 tp=4", "pp=2 x=1 tp=4")
        assert answer.code == 0
        assert "every group is the same" in answer.out
        assert run("diff", ATLAS, ATLAS).code == 0

    def test_order(self, run):
        answer = run("diff", "pp=1 cp=2 tp=4", "pp=1 tp=4 cp=2")
        assert answer.code == 1
        assert "tp groups differ: group 0 is [0, 1, 2, 3] in A and [0, 2, 4, 6] in B" in answer.out
        facts = run("diff", "pp=1 cp=2 tp=4", "pp=1 tp=4 cp=2", "--json").json
        assert facts["same"] == ["pp"]
        assert facts["different"][0] == {"axis": "cp", "group": 0, "first": [0, 4], "second": [0, 1]}

    @pytest.mark.parametrize(
        ("first", "second", "words"),
        [
            ("dp=8", "dp=4", "world size is 8 in A and 4 in B"),
            ("dp=8", "dp=8 first_rank=8", "first rank is 0 in A and 8 in B"),
            ("dp=2 tp=4", "dp=2 mp=4", "tp of A has the same groups as mp of B"),
            ("dp=2 tp=4", "dp=8", "tp=4 is only in A"),
            ("tp=4 dp=1", "tp=4 dp=2", "dp groups differ"),
            ("dense: dp=8; expert: ep=8", "dense: dp=8", "chart expert: only in one of them"),
            ("dp=8", "dense: dp=8", "one is a mesh, the other an atlas"),
        ],
    )
    def test_differences(self, run, first, second, words):
        answer = run("diff", first, second)
        assert answer.code == 1
        assert words in answer.out
        assert run("diff", first, second, "--json").json["equal"] is False

    def test_files(self, run):
        short, long = (str(LAYOUTS / f"llama3_405b_{name}.json") for name in ("8k", "128k"))
        answer = run("diff", short, long)
        assert answer.code == 1
        assert "same groups: tp" in answer.out


class TestAround:
    def test_version_and_help(self, run):
        assert run("--version").out.startswith("rankatlas 0.")
        assert "Example" in run("--help").out
        for verb in ("show", "where", "diff", "completion"):
            assert "Example" in run(verb, "--help").out

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_completion(self, run, shell):
        assert "_RANKATLAS_COMPLETE" in run("completion", shell).out

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ([], "Usage"),
            (["shw", "dp=2"], "Did you mean show?"),
            (["show"], "Missing argument"),
            (["show", "nofile"], "names no file"),
            (["show", "dp=2", "nofile"], "one LAYOUT is needed"),
            (["show", "dp=2 tp=x"], "size must be a positive integer"),
            (["show", "dp=?"], "world size"),
            (["show", "dp=? tp=3", "-n", "8"], "remainder"),
            (["show", "dp=2", "-n", "0"], "0"),
            (["show", "dp=2", "-n", "many"], "many"),
            (["show", "dp=2", "--ranks", "3-1"], "run backwards"),
            (["show", "dp=2", "--ranks", "0-2"], "outside"),
            (["show", "dp=2", "--ranks", "a"], "0-15"),
            (["show", "dp=2", "--ranks", "0", "--axis", "dp"], "exclude each other"),
            (["show", "dp=2", "--axis", "tp"], "no axis 'tp'"),
            (["show", "dp=2", "-o", "/"], "directory"),
            (["where", "x", "dp=2"], "RANK"),
            (["where", "-1", "dp=2"], "-1"),
            (["where", "2", "dp=2"], "outside"),
            (["where", "9" * 30, "dp=2"], "RANK"),
            (["where", "--coordinate", "tp", "tp=2"], "pp=1,tp=3"),
            (["where", "--coordinate", "tp=2", "tp=2"], "outside axis"),
            (["where", "--coordinate", "pp=0", "tp=2"], "no axis 'pp'"),
            (["where", "--coordinate", "tp=0,tp=0", "tp=2"], "twice"),
            (["where", "--coordinate", "", "tp=2"], "empty"),
            (["diff", "dp=2"], "Missing argument"),
            (["diff", "dp=2", "dp=0"], "positive integer"),
            (["completion", "tcsh"], "tcsh"),
        ],
    )
    def test_bad_input(self, run, arguments, words):
        answer = run(*arguments)
        assert answer.code == 2
        assert answer.out == ""
        assert words in answer.err
        if arguments:
            assert 1 <= len(answer.err.splitlines()) <= 5
        assert "Traceback" not in answer.err

    def test_the_caret_stands_below_its_character(self, run):
        lines = run("show", "dp=2 tp=x").err.splitlines()
        assert lines[1][lines[2].index("^")] == "x"

    def test_atlas_file_round_trip(self, run, tmp_path):
        atlas = Atlas(dense=Mesh(pp=2, dp=4), expert=Mesh(pp=2, ep=4), shared=("pp",))
        path = tmp_path / "atlas.json"
        path.write_text(json.dumps(atlas.to_dict()))
        assert run("diff", str(path), str(atlas)).code == 0
