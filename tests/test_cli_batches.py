"""`rankatlas batches`: tables, resumes, checks of samples, and what it refuses."""

import json

import pytest

from rankatlas import Mesh
from rankatlas.sampling import DataShard, ShardedSampler

LAYOUT = "pp=2 dp=4 tp=2"


@pytest.fixture
def write(tmp_path):
    def written(content):
        path = tmp_path / "given.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return written


def test_who_reads_what(run):
    answer = run("batches", LAYOUT, "--samples", "1000", "--batch", "64", "--micro", "4", "--seed", "7")
    assert (answer.code, answer.err) == (0, "")
    assert "4 data ranks (dp=4), 4 ranks read each share" in answer.out
    assert "40 of 1000 samples are dropped" in answer.out
    assert "proven: all 960 positions of epoch 0" in answer.out
    own = ShardedSampler(1000, DataShard(Mesh(pp=2, dp=4, tp=2)), 6, global_batch=64, micro_batch=4, seed=7)
    line = next(line for line in answer.out.splitlines() if line.startswith("3 "))
    assert line.endswith("12-15      " + ", ".join(map(str, next(iter(own)).tolist())))
    assert "[6, 7, 14, 15]" in line


def test_as_json(run):
    facts = run("batches", LAYOUT, "-s", "1000", "-b", "64", "-m", "4", "--tail", "pad", "--epoch", "2", "--json").json
    assert (facts["data_size"], facts["accumulation"], facts["padded"], facts["dropped"]) == (4, 4, 24, 0)
    assert (facts["proven_positions"], facts["micro_batches_per_rank"]) == (1024, 64)
    assert facts["state"] == {"epoch": 2, "consumed": 0, "seed": 0, "n": 1000, "global_batch": 64, "version": 1}
    assert [row["positions"] for row in facts["data_ranks"]] == [[0, 3], [4, 7], [8, 11], [12, 15]]


def test_a_resume_takes_what_the_state_says(run, write):
    before = ShardedSampler(960, DataShard(Mesh(dp=4)), 0, global_batch=48, micro_batch=3, seed=5)
    assert len(list(zip(range(4 * 4 + 2), before))) == 18
    path = write(before.state_dict())
    facts = run("batches", "dp=2 tp=2", "-m", "4", "--resume", path, "--json").json
    assert facts["next"] == {"step": 4, "micro_step": 3, "micro_batches_left": (960 - 216) // 8}
    assert facts["state"] == before.state_dict()
    after = ShardedSampler(960, DataShard(Mesh(dp=2)), 1, global_batch=48, micro_batch=4, seed=5)
    after.load_state_dict(before.state_dict())
    assert facts["data_ranks"][1]["samples"] == next(iter(after)).tolist()
    refused = run("batches", "dp=4", "-m", "6", "--resume", path, "--samples", "961")
    assert (refused.code, "n was 960 and is 961" in refused.err) == (2, True)
    misfit = run("batches", "dp=2", "-m", "6", "--resume", write(before.state_dict() | {"consumed": 222}))
    assert (misfit.code, "restart_step" in misfit.err) == (2, True)
    again = run("batches", "dp=2", "-m", "6", "--resume", write(before.state_dict() | {"consumed": 222}), "--json",
                "--policy", "restart_step")  # fmt: skip
    assert again.json["state"]["consumed"] == 192


def test_the_end_of_an_epoch(run, write):
    state = {"epoch": 0, "consumed": 96, "seed": None, "n": 96, "global_batch": 48, "version": 1}
    answer = run("batches", "dp=2", "-m", "4", "--resume", write(state))
    assert (answer.code, "epoch 0 is at its end" in answer.out) == (0, True)


def test_samples_of_somebody(run, write):
    good = {rank: list(range(rank // 2 % 4, 16, 4)) for rank in range(16)}
    answer = run("batches", LAYOUT, "--check", write(good))
    assert (answer.code, answer.out) == (0, "all 16 of 16 samples are read exactly once\n")
    answer = run("batches", "dp=2", "--check", write({"0": [0, 4], "1": [3, 7]}), "-s", "8")
    assert (answer.code, "4 of 8" in answer.out, "sharded twice" in answer.out) == (1, True, True)
    facts = run("batches", LAYOUT, "--check", write({rank: [rank] for rank in range(16)}), "--json").json
    assert [finding["kind"] for finding in facts["findings"]] == ["sharded-by-world"]
    dropped = {"0": [0, 1], "1": [2, 3], "2": [4, 5]}
    assert run("batches", "dp=3", "--check", write(dropped), "-s", "10", "-b", "6").code == 0
    assert run("batches", "dp=3", "--check", write(dropped), "-s", "10").code == 1


def test_a_long_epoch_is_proven_when_asked(run):
    lazy = run("batches", "dp=64 tp=8", "-s", str(2**62), "-b", "4096", "-m", "4")
    assert (lazy.code, "not proven" in lazy.out, "48 more data ranks" in lazy.out) == (0, True, True)
    asked = run("batches", "dp=3", "-s", str(2**22 + 99), "-b", "6", "-m", "2", "--prove")
    assert (asked.code, f"all {2**22 + 98:,} positions" in asked.out, asked.err) == (0, True, "")


@pytest.mark.parametrize("terminal", [False, True])
def test_a_long_proof_shows_a_bar_on_a_terminal_only(run, monkeypatch, capsys, terminal):
    monkeypatch.setattr("rankatlas.cli.batches._PROVEN_UNASKED", 1000)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    answer = run("batches", "dp=3", "-s", "6000", "-b", "6", "-m", "2", "--prove")
    assert (answer.code, "all 6,000 positions" in answer.out) == (0, True)
    assert ("proving" in answer.err, "proving" in answer.out) == (terminal, False)


def test_other_data_axes(run):
    facts = run("batches", "dp=2 ep=4", "--data", "dp,ep", "-s", "64", "-b", "8", "-m", "1", "--json").json
    assert (facts["data_axes"], facts["data_size"]) == (["dp", "ep"], 8)
    assert run("batches", "dp=2 ep=4", "-s", "64", "-b", "8", "-m", "1").code == 2


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "--samples, --batch, --micro"),
        (("-s", "100", "-b", "10", "-m", "1"), "legal dp"),
        (("-s", "3", "-b", "8", "-m", "1"), "tail='pad'"),
        (("-s", "0", "-b", "8", "-m", "1"), "samples"),
        (("-s", "100", "-b", "-8", "-m", "1"), "-8"),
        (("-s", "100", "-b", "8", "-m", "1", "--seed", "-1"), "seed"),
        (("-s", "100", "-b", "8", "-m", "1", "--epoch", "-1"), "epoch"),
        (("-s", "100", "-b", "8", "-m", "1", "--data", "tq"), "tq"),
        (("-s", str(2**63), "-b", "8", "-m", "1"), "2**62"),
        (("-s", "1.5", "-b", "8", "-m", "1"), "1.5"),
    ],
)
def test_what_cannot_be(run, arguments, word):
    answer = run("batches", LAYOUT, *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert word in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("content", ["", "[]", "3", "{", '{"consumed": 1}', '{"0": "x"}', '{"0": [1e400]}', "\0"])
def test_files_that_are_no_state_and_no_samples(run, write, content):
    for option in ("--resume", "--check"):
        answer = run("batches", "dp=2", "-s", "8", "-b", "2", "-m", "1", option, write(content))
        assert (answer.code, answer.out) == (2, ""), option
        assert "defect" not in answer.err


def test_too_many_data_ranks_to_prove(run):
    many = ("batches", f"dp={2**20}", "-s", str(2**20), "-b", str(2**20), "-m", "1")
    shown = run(*many)
    assert (shown.code, "not proven (1,048,576 data ranks; " in shown.out, "more data ranks" in shown.out) == (
        0,
        True,
        True,
    )
    assert run(*many, "--json").json["proven_positions"] is None
    asked = run(*many, "--prove")
    assert (asked.code, asked.out, "65,536 are the most" in asked.err) == (2, "", True)


@pytest.mark.parametrize(
    "content",
    ["[]", "3", "{}", "null", '"state"', '{"global_batch": "4"}', '{"0": [0, 2], "1": [1, 3]}', "[[0], [1]]",
     json.dumps({"epoch": 0, "consumed": 0, "seed": 7, "n": "5", "global_batch": 4, "version": 1}),
     json.dumps({"epoch": 0, "consumed": 0, "seed": 2**64, "n": 5, "global_batch": 4, "version": 1})],
)  # fmt: skip
def test_what_is_no_state(run, write, tmp_path, content):
    samples = tmp_path / "samples.json"
    samples.write_text('{"0": [0, 2], "1": [1, 3]}')
    for more in (
        (),
        ("--check", str(samples)),
        ("-s", "5", "--check", str(samples)),
        ("-s", "5", "-b", "4", "-m", "1"),
    ):
        answer = run("batches", "dp=2", "--resume", write(content), *more)
        assert (answer.code, answer.out) == (2, ""), more
        assert "this is no state of a ShardedSampler" in answer.err


def test_a_check_takes_the_samples_and_the_batch_of_a_state(run, write, tmp_path):
    samples = tmp_path / "samples.json"
    samples.write_text('{"0": [0, 2], "1": [1, 3]}')
    state = {"epoch": 0, "consumed": 0, "seed": 7, "n": 5, "global_batch": 4, "version": 1}
    both = ("batches", "dp=2", "--resume", write(state), "--check", str(samples))
    answer = run(*both)
    assert (answer.code, answer.out) == (0, "4 of 5 samples are read exactly once; 1 is left out, as is allowed\n")
    assert answer.err == "note: samples 5 and global batch 4 are those of the state\n"
    for option in ("-s", "-b"):
        other = run(*both, option, "6")
        assert (other.code, "6" in other.err, "state" in other.err) == (2, True, True)


def test_a_check_of_nothing(run, write):
    for more in ((), ("-s", "8"), ("-s", "2", "-b", "4")):
        answer = run("batches", "dp=2", "--check", write({"0": [], "1": []}), *more)
        assert (answer.code, "nothing is proven" in answer.out) == (1, True)


def test_advice_names_options_that_exist(run, write):
    left = run("batches", "dp=2", "-s", "6", "--check", write({"0": [0, 2], "1": [1, 3]}))
    assert ("--batch" in left.out, "dropped=" in left.out) == (True, False)
    assert run("batches", "dp=2", "-s", "6", "-b", "4", "--check", write({"0": [0, 2], "1": [1, 3]})).code == 0
    again = run("batches", "dp=2", "-s", "5", "--check", write({"0": [0, 1, 2], "1": [3, 4, 0]}))
    assert ("--tail pad" in again.out, "padded=" in again.out) == (True, False)
    tail = ("-s", "5", "-b", "6", "--tail", "pad")
    assert run("batches", "dp=2", *tail, "--check", write({"0": [0, 1, 2], "1": [3, 4, 0]})).code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("--resume", "FILE", "--epoch", "1"),
        ("--resume", "FILE", "--epoch", "0"),
        ("--policy", "continue"),
        ("--check", "FILE", "--seed", "1"),
        ("--check", "FILE", "--epoch", "1"),
        ("--check", "FILE", "--no-shuffle"),
        ("--check", "FILE", "--micro", "1"),
        ("--check", "FILE", "--prove"),
        ("--check", "FILE", "--batch", "4"),
        ("--check", "FILE", "--tail", "pad"),
        ("--check", "FILE", "--resume", "FILE", "--policy", "continue"),
        ("--no-shuffle", "--seed", "1"),
    ],
    ids=" ".join,
)
def test_options_that_say_nothing(run, write, arguments):
    path = write({"0": [0], "1": [1]})
    answer = run("batches", "dp=2", *(path if word == "FILE" else word for word in arguments))
    assert (answer.code, answer.out, "says nothing" in answer.err) == (2, "", True)


def test_an_epoch_beyond_all_bounds(run):
    answer = run("batches", "dp=2", "-s", "8", "-b", "4", "-m", "1", "--epoch", str(10**40))
    assert (answer.code, "at most 128 bits" in answer.err, "(int)" in answer.err) == (2, True, False)


@pytest.mark.parametrize("rank", [0, 3, 5, 7])
def test_what_one_rank_reads(run, rank):
    """Of 2 stages, 2 data ranks and 2 tensor ranks the data rank is the middle digit."""
    every = run("batches", "pp=2 dp=2 tp=2", "--samples", "64", "--batch", "8", "--micro", "2", "--json").json
    told = run(
        "batches", "pp=2 dp=2 tp=2", "--samples", "64", "--batch", "8", "--micro", "2", "--rank", str(rank), "--json"
    ).json
    data_rank = rank // 2 % 2
    assert (told["rank"], told["data_ranks"]) == (rank, [every["data_ranks"][data_rank]])
    assert rank in told["data_ranks"][0]["ranks"]
    page = run("batches", "pp=2 dp=2 tp=2", "--samples", "64", "--batch", "8", "--micro", "2", "--rank", str(rank)).out
    assert page.endswith(f"rank {rank} is data rank {data_rank} of 2\n")


def test_a_rank_beyond_the_page_and_one_that_is_not_there(run):
    arguments = ("batches", "dp=64", "--samples", "640", "--batch", "64", "--micro", "1", "--rank")
    assert run(*arguments, "40", "--json").json["data_ranks"][0]["data_rank"] == 40
    assert run(*arguments, "64").code == 2
    assert run("batches", "dp=4", "--check", "x.json", "--rank", "1").code == 2
