"""`rankatlas seeds`: streams, the reference's seeds, and schemes held against collisions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rankatlas import Mesh
from rankatlas.cli.main import main
from rankatlas.seeding import SeedPlan, distributed_seeds
from rankatlas.seeding.relations import check_families
from rankatlas.seeding.scheme import parse_scheme

LAYOUTS = Path(__file__).parent.parent / "examples" / "layouts"
ATLAS = "dense: pp=2 dp=4 tp=2; expert: pp=2 edp=2 ep=4; shared: pp"
COLLIDE = ("pp=2 dp=11", "--scheme", "base+100*pp+10*dp")


@pytest.fixture
def run(capsys):
    def call(*arguments, code=0):
        with pytest.raises(SystemExit) as ended:
            main(["seeds", *arguments])
        out, err = capsys.readouterr()
        assert ended.value.code == code, (out, err)
        assert bool(err) is (code == 2)
        assert len(err.splitlines()) <= 5
        return err if code == 2 else out

    return call


def test_the_streams_of_a_layout(run):
    lines = run("pp=2 dp=2 tp=2").splitlines()
    assert lines[0] == "streams of pp=2 dp=2 tp=2, base seed 1234"
    assert lines[2].split("  ")[0] == "stream"
    rows = {line.split()[0]: line for line in lines[3:]}
    assert list(rows) == ["global_seed", "local_seed", "random_seed"]
    assert rows["global_seed"].split()[1:5] == ["tp", "pp+dp", "4", "2"]
    assert rows["global_seed"].endswith("[0, 1] [2, 3] [4, 5] …")
    assert rows["random_seed"].endswith("[0, 1, 2, 3] [4, 5, 6, 7]")


@pytest.mark.parametrize("preset", ["paddle", "megatron"])
@pytest.mark.parametrize("layout", ["pp=2 dp=2 tp=2", "pp=2 cp=2 ep=4 tp=2", "dp=8 first_rank=16", "dp=1"])
def test_json_tells_the_table_of_the_plan(run, preset, layout):
    facts = json.loads(run(layout, "--preset", preset, "--base", "7", "--json"))
    mesh = Mesh(**{axis: int(size) for axis, size in (item.split("=") for item in layout.split())})
    plan = SeedPlan(7, mesh)
    table = plan.table(getattr(plan, preset)().values())
    if preset == "megatron":
        assert facts.pop("offsets")["wanted"] > 0
        for stream, told in zip(table, facts["streams"]):
            if "context" not in stream["name"]:  # Megatron-core has none and adds nothing for it
                del stream["first_seeds"]
                assert told.pop("scheme").startswith("base")
                assert told.pop("distinct") <= told["seeds"]
    assert facts == {"notation": layout, "base": 7, "preset": preset, "streams": table}


SOURCES = {
    "megatron": ({"tensor_model_parallel_size": 2, "micro_batch_size": 1, "num_layers": 4}, "model-parallel-rng", ""),
    "paddlenlp": ({"tensor_parallel_degree": 2}, "global_seed", ""),
    "torchtitan": (
        {"parallelism": {"tensor_parallel_degree": 2}},
        "global_seed",
        "torchtitan-0.3, which seeds otherwise",
    ),
    "deepspeed": ({"zero_optimization": {"stage": 1}}, "global_seed", "deepspeed-0.19, which seeds otherwise"),
}


@pytest.mark.parametrize("format", SOURCES)
def test_the_streams_are_those_of_the_source_s_framework(capsys, tmp_path, format):
    content, stream, note = SOURCES[format]
    path = tmp_path / "source.json"
    path.write_text(json.dumps(content))

    def streams(*more):
        with pytest.raises(SystemExit) as ended:
            main(["seeds", str(path), "--from", format, "-n", "8", "--json", *more])
        assert ended.value.code == 0
        out, err = capsys.readouterr()
        return json.loads(out)["streams"], err

    told, err = streams()
    assert stream in [one["name"] for one in told]
    assert note in err
    assert bool(err) == bool(note)
    other = "paddle" if format == "megatron" else "megatron"
    told, err = streams("--preset", other)
    assert "which seeds otherwise" in err
    assert bool("model-parallel-rng" in [one["name"] for one in told]) == (other == "megatron")


def test_a_world_that_nobody_walks(run):
    out = run("pp=1024 dp=1048576 tp=1024")
    assert "1099511627776" in out
    assert max(map(len, out.splitlines())) < 400


def test_layouts_come_as_words_and_from_files(run):
    assert run("pp=2", "dp=2", "tp=2") == run("pp=2 dp=2 tp=2")
    assert run("pp=2 dp=? tp=2", "-n", "8") == run("pp=2 dp=2 tp=2")
    out = run(str(LAYOUTS / "paddlenlp_llama_pretrain.json"), "--world-size", "64")
    assert "streams of dp=" in out
    same = run("--from", "paddlenlp-2.8", str(LAYOUTS / "paddlenlp_llama_pretrain.json"), "--world-size", "64")
    assert same == out


def test_charts_of_an_atlas(run):
    out = run(ATLAS, "--chart", "expert", "--preset", "megatron")
    assert "streams of pp=2 edp=2 ep=4" in out
    assert "expert-parallel-rng" in out
    assert "dense or expert" in run(ATLAS, code=2)
    assert "experts" in run(ATLAS, "--chart", "experts", code=2)
    assert "one mesh" in run("dp=2", "--chart", "dense", code=2)


def test_the_seeds_of_the_reference(run):
    mesh = Mesh(pp=2, dp=2, mp=2)
    lines = run(str(mesh), "--reference", "--base", "42").splitlines()
    assert lines[0].split() == ["rank", "global_seed", "local_seed", "random_seed"]
    for rank, line in enumerate(lines[1:]):
        assert list(map(int, line.split())) == [rank, *distributed_seeds(42, mesh, rank=rank)]
    assert len(lines) == 9
    facts = json.loads(run(str(mesh), "--reference", "--base", "42", "--json"))
    assert facts["ranks"][7] == {"rank": 7, "global_seed": 48, "local_seed": 57, "random_seed": 142}


def test_a_page_of_the_reference(run):
    lines = run("dp=1048576 tp=8 first_rank=100", "--reference").splitlines()
    assert (lines[1].split()[0], lines[16].split()[0]) == ("100", "115")
    assert lines[17] == "8,388,592 more ranks; --ranks lists others"


def test_the_reference_of_chosen_ranks(run):
    facts = json.loads(run("pp=4 dp=16 mp=8", "--reference", "--ranks", "301,500-511", "--json"))
    assert [row["rank"] for row in facts["ranks"]] == [301, *range(500, 512)]
    expected = distributed_seeds(1234, Mesh(pp=4, dp=16, mp=8), rank=301)
    assert tuple(facts["ranks"][0].values()) == (301, *expected)
    assert "rank 512 is outside" in run("pp=4 dp=16 mp=8", "--reference", "--ranks", "512", code=2)
    assert "65,536" in run("dp=1048576", "--reference", "--ranks", "0-1048575", code=2)
    assert "--reference" in run("dp=8", "--ranks", "0", code=2)


def test_the_base_is_that_of_the_configuration(run, tmp_path):
    path = tmp_path / "args.json"
    path.write_text(json.dumps({"mp_degree": 2, "seed": 7}))
    assert json.loads(run(str(path), "-n", "8", "--reference", "--json"))["base"] == 7
    assert json.loads(run(str(path), "-n", "8", "--json"))["base"] == 7
    assert json.loads(run(str(path), "-n", "8", "--reference", "--json", "--base", "9"))["base"] == 9


def test_the_axes_a_scheme_forgets_are_told(run):
    out = run("pp=2 cp=2 dp=2", "--scheme", "base+pp+2*dp")
    assert out.splitlines()[-1] == "the seed is the same along cp"
    facts = json.loads(run("pp=2 cp=2 dp=2", "--scheme", "base+pp+2*dp; other=10+dp", "--json"))
    assert facts["same_along"] == {"": ["cp"], "other": ["pp", "cp"]}


def test_seeds_that_megatron_lets_meet_are_in_its_listing(run):
    """Two stages and four expert ranks: 100 more for either, so eight streams have five seeds."""
    layout = "pp=2 edp=2 ep=4 etp=2"
    lines = run(layout, "--preset", "megatron").splitlines()
    (row,) = [line for line in lines if line.startswith("expert-parallel-rng ")][:1]
    assert "10 of 16" in row
    assert "expert-parallel-rng = base+100*pp+1024+100*ep+etp" in lines
    one, other = (f"expert-parallel-rng ({places} etp=0)" for places in ("pp=0 ep=1", "pp=1 ep=0"))
    assert f"{one} and {other} draw the same numbers: seed 2358" in lines
    facts = json.loads(run(layout, "--preset", "megatron", "--json"))
    mesh = Mesh(pp=2, edp=2, ep=4, etp=2)
    places = [mesh.coordinate(rank) for rank in mesh.select(edp=0)]
    seeds = {1234 + 100 * at.pp + 1024 + 100 * at.ep + at.etp for at in places}
    (expert,) = [stream for stream in facts["streams"] if stream["name"] == "expert-parallel-rng"]
    assert (expert["distinct"], expert["seeds"]) == (len(seeds), len(places)) == (10, 16)
    assert len(facts["offsets"]["collisions"]) == 6
    assert facts["offsets"]["ok"] is False
    quiet = run("pp=4 dp=2 tp=8", "--preset", "megatron")
    assert "meet" not in quiet
    assert "pp" in run("pp=4194304 dp=2", "--preset", "megatron")


def test_an_expert_chart_has_no_stream_of_the_tensor_axis(run):
    atlas = "dense: pp=2 dp=4 tp=2; expert: pp=2 edp=2 ep=4"
    found = json.loads(run(atlas, "--chart", "expert", "--preset", "megatron", "--json"))
    assert [(stream["name"], stream["differ"]) for stream in found["streams"]] == [
        ("data-parallel-rng", ["pp"]),
        ("expert-parallel-rng", ["pp", "ep"]),
    ]


def test_a_scheme_with_collisions_ends_with_1(run):
    assert run(*COLLIDE, code=1).splitlines() == [
        "base+100*pp+10*dp on pp=2 dp=11",
        "21 different seeds where 22 are wanted",
        "(pp=0 dp=10) and (pp=1 dp=0) draw the same numbers: seed 1334",
    ]
    facts = json.loads(run(*COLLIDE, "--json", "--base", "0", code=1))
    mesh = Mesh(pp=2, dp=11)
    assert facts == {
        "notation": str(mesh),
        "scheme": COLLIDE[2],
        "base": 0,
        "same_along": {"": []},
        **check_families(parse_scheme(COLLIDE[2], mesh), mesh).to_dict(),
    }


def test_a_scheme_without_collisions_ends_with_0(run):
    assert "22 different seeds where 22 are wanted" in run("pp=2 dp=11", "--scheme", "base+pp+2*dp")
    assert json.loads(run("pp=2 dp=11", "--scheme", "base+pp+2*dp", "--json"))["ok"] is True


def test_the_families_of_megatron(run):
    out = run("pp=4 ep=8", "--scheme", "expert=+100*pp+1024+100*ep", code=1)
    assert "11 different seeds where 32 are wanted" in out
    across = run("ep=64 tp=8", "--scheme", "tp=+2718+tp; expert=+1024+100*ep", code=1)
    assert "tp (tp=6) and expert (ep=17) draw the same numbers" in across


def test_an_unreadable_scheme_has_a_caret(run):
    assert run("pp=2 dp=11", "--scheme", "base+100*px", code=2).splitlines() == [
        "rankatlas: this scheme cannot be read",
        "base+100*px",
        "         ^",
        "'px' is no axis of pp=2 dp=11; names are base, pp, dp",
    ]
    for bad in ("", ";", "(" * 10**5, "base\n+\npx", "\x00", "é" * 1000, "9" * 10**5):
        run("pp=2 dp=11", "--scheme", bad, code=2)


def test_what_else_is_refused(run):
    assert "exclude each other" in run("dp=2", "--scheme", "base", "--reference", code=2)
    assert "no term for axis ep=2" in run("dp=2 ep=2", "--reference", code=2)
    for base in ("-1", str(2**64), "x", "1.5"):
        for more in ((), ("--reference",), ("--scheme", "base+dp")):
            run("dp=2", f"--base={base}", *more, code=2)
    assert "--preset" in run("dp=2", "--preset", "torch", code=2)
    assert "LAYOUT" in run(code=2)
    run("nowhere.json", code=2)
    run("dp=2", "-n", "3", code=2)


def test_a_scheme_that_makes_giant_seeds_is_refused(run):
    giant = "*".join(["9" * 20] * 300)
    for scheme in (f"base+{giant}+0*dp", f"{giant}-{giant}*dp*0"):
        for more in ((), ("--json",)):
            assert "defect" not in run("dp=2", "--scheme", scheme, *more, code=2)


def test_a_scheme_with_more_streams_than_can_be_walked_is_refused(run):
    assert "1,099,511,627,776" in run("dp=1099511627776", "--scheme", "base+dp", code=2)
    run("dp=1099511627776 tp=2", "--scheme", "base+tp")  # only what it depends on counts


def test_help_has_examples(run):
    out = run("--help")
    assert "--scheme" in out
    assert "base+100*pp+10*dp" in out
    assert "Exit code 1" in out


def test_listing_streams_loads_no_framework_and_a_closed_pipe_is_fine():
    code = "import sys; sys.argv[1:] = {0!r}; from rankatlas.cli.main import _run; _run(sys.argv[1:])"
    code += "; print([name for name in ('numpy', 'torch', 'paddle', 'rich', 'yaml') if name in sys.modules])"
    for arguments in (["seeds", "dp=2 tp=2"], ["seeds", "dp=2", "--reference"], ["seeds", "dp=2", "--scheme", "base"]):
        done = subprocess.run(
            [sys.executable, "-c", code.format(arguments)], capture_output=True, text=True, check=True
        )
        assert done.stdout.splitlines()[-1] == "[]"
    pipe = f"{sys.executable} -m rankatlas seeds 'pp=4 dp=64 tp=8' --reference | true; exit ${{PIPESTATUS[0]}}"
    assert subprocess.run(["bash", "-c", pipe], check=False).returncode == 0
