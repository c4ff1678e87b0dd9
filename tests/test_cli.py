"""The command line in-process: what each verb answers, in words and as JSON."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from rankatlas import Atlas, Mesh
from rankatlas.core import parse_layout
from rankatlas.views.rows import group_lines

LAYOUTS = Path(__file__).parent.parent / "examples" / "layouts"
ATLAS = "dense: pp=2 dp=4 tp=2; expert: pp=2 edp=2 ep=4; shared: pp"


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
        wanted = {"table": "[8, 9, 10, 11, 12, 13, 14, 15]", "csv": "1,0,8\n1,1,9\n1,2,10\n"}
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

    @pytest.mark.parametrize("axes", [["--axis", "dp", "--axis", "tp"], ["--axis", "dp,tp"], ["--axis", "dp + tp"]])
    def test_axes_in_one_word_or_several(self, run, axes):
        groups = run("show", "pp=2 dp=4 tp=2", *axes, "--json").json["groups"]
        assert (groups["axes"], groups["size"], groups["page"][1]) == (["dp", "tp"], 8, list(range(8, 16)))

    def test_a_group_of_a_large_world_is_written_member_by_member(self):
        lines = group_lines(Mesh(dp=2**40), ("dp",), "csv")
        assert [next(lines) for _ in range(3)] == ["index,group_rank,rank", "0,0,0", "0,1,1"]

    def test_groups_that_are_cut_say_so(self, run):
        assert "not all 64 members of a group are shown; --format csv" in run("show", "dp=64", "--axis", "dp").out
        assert "not all" not in run("show", "dp=32", "--axis", "dp").out
        assert "[0, 1, 2, …, 62, 63] (64 ranks)" in run("show", "dp=64", "--axis", "dp").out

    def test_the_page_of_groups_in_json_has_up_to_1024_members(self, run):
        page = run("show", "dp=4096", "--axis", "dp", "--json").json["groups"]["page"]
        assert page == [list(range(1024))]

    @pytest.mark.parametrize("layout", ["pp=16 dp=512 cp=4 tp=8", "pp=4 dp=1048576 tp=64", "dp=1099511627776 tp=8"])
    def test_a_pipe_is_not_as_wide_as_three_groups(self, run, layout):
        assert max(map(len, run("show", layout).out.splitlines())) <= 170

    def test_ranks_of_separate_charts(self, run):
        out = run("show", "a: dp=4; b: dp=4 first_rank=8", "--ranks", "2-3,8-9", "--format", "csv").out
        assert [line.split(",")[0] for line in out.splitlines()[1:]] == ["2", "3", "8", "9"]
        touching = run("show", "a: dp=4; b: dp=4 first_rank=4", "--ranks", "2-5", "--format", "csv")
        assert len(touching.out.splitlines()) == 5

    @pytest.mark.parametrize("layout", ["pipe=3 data=4 model=8", "pipe=3 data=4 tensor=8"])
    def test_other_names_of_the_same_axes(self, run, layout):
        there, plain = run("show", layout, "--json").json, run("show", "pp=3 dp=4 tp=8", "--json").json
        for mine, theirs in zip(there["derived"], plain["derived"], strict=True):
            assert (mine["name"], mine["first_groups"]) == (theirs["name"], theirs["first_groups"])
        assert there["unknown_roles"] == []
        out = run("where", "37", layout).out
        assert "stage 1 of 0-2; receives from rank 5, sends to rank 69" in out
        assert "data rank 0 of 0-3" in out

    @pytest.mark.parametrize("verb", [["show"], ["where", "2"]])
    def test_axes_without_a_role_are_named(self, run, verb):
        words = "no role is known for rows, columns; dp, pp, tp, cp … have one"
        assert words in run(*verb, "dp=2 rows=4 columns=2 deep=1").out
        assert "no role" not in run(*verb, "dp=2 pp=2 tp=2 deep=1").out
        assert run(*verb, "dp=2 rows=4 columns=2 deep=1", "--json").json["unknown_roles"] == ["rows", "columns"]


class TestNotes:
    SLIP = '{"mp_degree": 2, "shardng": "stage2"}'
    NOTE = "note: shardng='stage2' is not understood and was left out; did you mean sharding?"

    @pytest.fixture
    def slip(self, tmp_path):
        path = tmp_path / "slip.json"
        path.write_text(self.SLIP)
        return str(path)

    def test_notes_stand_before_the_tables(self, run, slip):
        assert run("show", slip, "-n", "8").out.splitlines()[2] == self.NOTE

    @pytest.mark.parametrize("pen", ["jsonl", "csv"])
    def test_notes_of_rows_go_to_standard_error(self, run, slip, pen):
        answer = run("show", slip, "-n", "8", "--format", pen)
        assert (answer.code, answer.err) == (0, self.NOTE + "\n")
        assert "note" not in answer.out

    def test_no_verb_keeps_a_note_to_itself(self, run, slip):
        for verb in (["seeds", slip], ["where", "1", slip], ["where", "-c", "mp=1", slip], ["diff", slip, "dp=4 mp=2"]):
            answer = run(*verb, "-n", "8")
            assert "did you mean sharding?" in answer.out + answer.err, verb

    def test_strict_makes_a_note_a_finding(self, run, slip, tmp_path):
        layout = "dp=4 pp=1 sharding=1 sep=1 mp=2"
        for verb in (
            ["show", slip],
            ["show", slip, "--format", "csv"],
            ["show", slip, "--json"],
            ["where", "1", slip],
            ["where", "-c", "mp=1", slip],
            ["diff", layout, slip],
        ):
            assert run(*verb, "-n", "8").code == 0, verb
            assert run(*verb, "-n", "8", "--strict").code == 1, verb
        assert run("show", layout, "--strict").code == 0
        out = tmp_path / "rows"
        assert run("show", slip, "-n", "8", "--strict", "--format", "csv", "-o", str(out)).code == 1
        assert len(out.read_text().splitlines()) == 9

    def test_diff_tells_notes_in_json_too(self, run, slip):
        notes = run("diff", slip, "dp=4 mp=2", "-n", "8", "--json").json["notes"]
        assert "did you mean sharding?" in notes["A"][0]
        assert notes["B"] == []


class TestWhere:
    @pytest.mark.parametrize("size", [1, 2, 31, 32, 33, 64, 2**40])
    def test_a_list_is_whole_or_has_both_ends_and_the_rank_asked_about(self, run, size):
        rank = size // 2
        out = run("where", str(rank), f"x={size}").out
        if size <= 32:
            assert str(list(range(size))) in out
        else:
            middle = "" if rank in (0, 1, 2) else f"{rank}, …, "
            assert f"[0, 1, 2, …, {middle}{size - 2}, {size - 1}] ({size:,} ranks)" in out

    def test_a_question_for_a_list_is_answered_in_full(self, run):
        ranks = list(range(3, 8192, 8))
        for question in (["-c", "tp=3"], ["--group", "dp 3"]):
            answer = run("where", *question, "dp=1024 tp=8")
            assert (json.loads(answer.out), answer.err) == (ranks, "")
            longer = run("where", *question, "dp=1025 tp=8")
            assert longer.out == "[3, 11, 19, …, 8187, 8195] (1,025 ranks)\n"
            assert "--json lists the first 1,024" in longer.err
            assert len(run("where", *question, "dp=1025 tp=8", "--json").json["ranks"]) == 1024

    def test_places_count_from_zero_and_say_so(self, run):
        out = run("where", "37", "pp=3 dp=4 tp=8").out
        assert "pp             pp     5 of 0-31   1 of 0-2    [5, 37, 69]" in out
        assert "data rank 0 of 0-3 (dp" in out
        assert "0 of 0 " in run("where", "0", "dp=4 tp=1").out

    @pytest.mark.parametrize(
        ("places", "layout"),
        [
            ("tp=1,ep=3", "dense: dp=4 tp=2; expert: edp=2 ep=4"),
            ("pp=1,tp=1,ep=3", "dense: pp=2 dp=4 tp=2; expert: pp=2 edp=2 ep=4; shared: pp"),
            ("tp=1,dense.pp=0,expert.ep=3,expert.pp=0", "dense: pp=2 dp=4 tp=2; expert: pp=2 edp=2 ep=4; shared: pp"),
            ("tp=0,ep=3", "dense: dp=4 tp=2; expert: edp=2 ep=4"),
        ],
    )
    def test_places_in_several_charts(self, run, places, layout):
        atlas = parse_layout(layout)
        wanted = {address: int(place) for address, place in (item.split("=") for item in places.split(","))}

        def stands(rank):
            found = atlas.coordinate(rank)
            for address, place in wanted.items():
                chart, _, axis = address.rpartition(".")
                charts = [chart] if chart else [name for name in found if axis in found[name]]
                if any(found[name][axis] != place for name in charts):
                    return False
            return True

        ranks = [rank for rank in range(atlas.world_size) if stands(rank)]
        assert run("where", "-c", places, layout, "--json").json["ranks"] == ranks
        assert json.loads(run("where", "-c", places, layout).out) == (ranks if len(ranks) != 1 else ranks[0])

    def test_words(self, run):
        out = run("where", "37", "pp=2 dp=4 cp=2 tp=4").out
        assert "coordinate  pp=1 dp=0 cp=1 tp=1" in out
        assert "stage 1 of 0-1; receives from rank 5, last stage" in out
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
        assert "data rank 4 of 0-7" in run("where", "2", "sharding=2 dp=4").out
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
        assert facts["different"][0] == {
            "axis": "cp",
            "group": 0,
            "first": [0, 4],
            "second": [0, 1],
            "size": [2, 2],
            "stride": [4, 1],
        }

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

    def test_sources_of_different_formats(self, run, tmp_path):
        nlp, formers = tmp_path / "nlp.json", tmp_path / "formers.yaml"
        nlp.write_text('{"tensor_parallel_degree": 2, "hybrid_parallel_topo_order": "sharding_first"}')
        formers.write_text("tensor_model_parallel_size: 2\npipeline_model_parallel_size: 1\n")
        paths = (str(nlp), str(formers), "-n", "8")
        refused = run("diff", *paths)
        assert refused.code == 2
        assert refused.err.startswith("rankatlas: B: ")
        assert "--from-b" in refused.err
        forced = run("diff", *paths, "--from", "paddleformers-1.2")
        assert "A: " in forced.err
        assert "--from-a" in forced.err
        answer = run("diff", *paths, "--from-b", "paddleformers-1.2")
        assert answer.code == 1
        assert "A: dp=4 sharding=1 pp=1 sep=1 mp=2\nB: dp=1 sharding=4 pp=1 sep=1 mp=2" in answer.out
        both = run("diff", *paths, "--from", "paddleformers-1.2", "--from-a", "paddlenlp-2.8")
        assert both.out == answer.out

    def test_files(self, run):
        short, long = (str(LAYOUTS / f"llama3_405b_{name}.json") for name in ("8k", "128k"))
        answer = run("diff", short, long)
        assert answer.code == 1
        assert "same groups: tp" in answer.out


class TestCheckGroups:
    """A table of groups; records are in test_records_cli.py."""

    MESH = Mesh(pp=2, dp=2, tp=2)

    @pytest.fixture
    def check(self, run, tmp_path):
        def call(table: object, *arguments: str):
            path = tmp_path / "groups.json"
            path.write_text(json.dumps(table))
            return run("check-groups", str(path), *arguments)

        return call

    @pytest.mark.parametrize("axes", ["tp", "dp,tp", "tp+dp", "pp+tp"])
    def test_the_right_groups(self, check, axes):
        table = [list(group) for group in self.MESH.groups(*axes.replace(",", "+").split("+"))]
        answer = check(table, str(self.MESH), "--axis", axes)
        assert (answer.code, answer.out[:4]) == (0, "all ")
        assert check(table, str(self.MESH), "--axis", axes, "--json").json["ok"] is True

    @pytest.mark.parametrize(
        ("table", "words"),
        [
            ([[0, 2], [1, 3], [4, 6], [5, 7]], "tp group 0 has other members"),
            ([[1, 0], [2, 3], [4, 5], [6, 7]], "another order"),
            ([[2, 3], [0, 1], [4, 5], [6, 7]], "another order"),
            ([[0, 1]], "missing"),
            ([], "missing"),
        ],
    )
    def test_wrong_groups_are_findings(self, check, table, words):
        answer = check(table, str(self.MESH), "--axis", "tp")
        assert (answer.code, answer.err) == (1, "")
        assert words in answer.out
        facts = check(table, str(self.MESH), "--axis", "tp", "--json").json
        assert facts["ok"] is False
        assert words in facts["fault"]["message"]

    def test_a_chart_of_an_atlas(self, check):
        assert check([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]], ATLAS, "--axis", "ep").code == 0

    @pytest.mark.parametrize(
        ("table", "arguments", "words"),
        [
            ([[0, 1]], ["tp=2"], "exactly one --axis"),
            ([[0, 1]], ["tp=2", "--axis", "tp", "--axis", "dp"], "exactly one --axis"),
            ([[0, 1]], ["tp=2", "--axis", "dp"], "no axis 'dp'"),
            ([[0, True]], ["tp=2", "--axis", "tp"], "list of lists of ranks"),
            ([0, 1], ["tp=2", "--axis", "tp"], "list of lists of ranks"),
            ([["a"]], ["tp=2", "--axis", "tp"], "list of lists of ranks"),
            ({"groups": [[0, 1]]}, ["tp=2", "--axis", "tp"], "rankatlas.record"),
            ("text", ["tp=2", "--axis", "tp"], "not a mapping"),
        ],
    )
    def test_what_cannot_be_checked(self, check, table, arguments, words):
        answer = check(table, *arguments)
        assert answer.code == 2
        assert words in answer.err


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
            (["show", "nofile"], "no such file: 'nofile'"),
            (["show", "dp=2", "nofile"], "one LAYOUT is needed"),
            (["show", "dp=2 tp=x"], "size must be a positive integer"),
            (["show", "dp=?"], "world size"),
            (["show", "dp=? tp=3", "-n", "8"], "remainder"),
            (["show", "dp=2", "-n", "0"], "0"),
            (["show", "dp=2", "-n", "many"], "many"),
            (["show", "dp=2", "--ranks", "3-1"], "run backwards"),
            (["show", "dp=2", "--ranks", "0-2"], "outside"),
            (["show", "dp=2", "--ranks", "a"], "0-15"),
            (["show", "dp=2", "--ranks", ""], "--ranks is empty"),
            (["show", "dp=2", "--format", "csv", "--ranks", " "], "--ranks is empty"),
            (["show", "dp=2", "-o", ""], "--output is empty"),
            (["show", "dp=2", "--json", "--format", "csv"], "exclude each other"),
            (["show", "dp=2", "--axis", "dp,"], "dp+cp"),
            (["show", "dp=2", "--from", "paddlenlp-2.8"], "is notation, which cannot be read as paddlenlp-2.8"),
            (["show", "dp=2", "-o", "out", "--ranks", "0-7"], "outside"),
            (["show", "a: dp=4; b: dp=4 first_rank=8", "--ranks", "0-9"], "rank 4"),
            (["show", "a: dp=4; b: dp=4 first_rank=8", "--ranks", "9-12", "--format", "csv"], "rank 12"),
            (["show", "dp=1099511627776", "--ranks", "0-1099511627775"], "--format jsonl"),
            (["show", "dp=1099511627776", "--ranks", "0-1099511627775", "--json"], "--format jsonl"),
            (["show", "dp=1099511627776", "--axis", "dp", "--format", "jsonl"], "--format csv"),
            (["show", "a: dp=? tp=4; b: ep=8", "-n", "8"], "in an atlas every size is given"),
            (["dp=2 tp=4"], "Did you mean: rankatlas show 'dp=2 tp=4'?"),
            (["where", "dp=2 tp=4", "3"], "RANK comes first: rankatlas where 3 'dp=2 tp=4'"),
            (["where", "3", "-c", "tp=1", "dp=2 tp=4"], "RANK (3) and --coordinate exclude each other"),
            (["where", "3", "--host", "a", "dp=2 tp=4"], "RANK (3) and --host exclude each other"),
            (["where", "-c", "tp=1,dp=0", "a: dp=4000000 tp=2; b: dp=4000000 xp=2"], "several charts"),
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

    def test_errors_are_narrow_too(self, run, tmp_path):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({f"{'key' * 30}{number}": number for number in range(100)}))
        for arguments in (["show", str(path)], ["where", "0", " ".join(f"a{n}=2" for n in range(50)), "-n", "3"]):
            lines = run(*arguments).err.splitlines()
            assert 1 <= len(lines) <= 5
            assert max(map(len, lines)) <= 320

    def test_the_caret_stands_below_its_character(self, run):
        lines = run("show", "dp=2 tp=x").err.splitlines()
        assert lines[1][lines[2].index("^")] == "x"

    def test_atlas_file_round_trip(self, run, tmp_path):
        atlas = Atlas(dense=Mesh(pp=2, dp=4), expert=Mesh(pp=2, ep=4), shared=("pp",))
        path = tmp_path / "atlas.json"
        path.write_text(json.dumps(atlas.to_dict()))
        assert run("diff", str(path), str(atlas)).code == 0
