"""The training example: the same losses under every layout, after resuming under another one, and not by accident."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rankatlas.errors import InputError
from test_live_groups import HERE, environment

sys.path.insert(0, str(HERE.parent / "examples"))

from train_gpt.settings import Settings, check, mesh_of, tensor_axis

BOUND = {"float64": 1e-9, "float32": 1e-5}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("train")
    done = subprocess.run(
        [sys.executable, str(HERE / "live_train_gpt.py"), str(folder)],
        env=environment(GLOO_SOCKET_IFNAME="lo"),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def alone(said):
    """The run of one process, by precision."""
    assert said["alone"]["codes"] == [0], said["alone"]["said"]
    return {run["settings"]["dtype"]: run for run in said["alone"]["results"]}


def results(said, name):
    assert set(said[name]["codes"]) == {0}, said[name]["said"]
    return said[name]["results"]


def apart(run, alone):
    reference = alone[run["settings"]["dtype"]]["losses"]
    whole = reference[run["first"] : run["first"] + len(run["losses"])]
    assert len(whole) == len(run["losses"]) > 0
    return max(abs(loss / right - 1) for loss, right in zip(run["losses"], whole))


@pytest.mark.live
def test_the_loss_of_every_step_is_the_same_under_every_layout(said, alone):
    runs = [run for run in results(said, "eight") if not run["mistake"]]
    assert len(runs) == 8
    for run in runs:
        assert apart(run, alone) <= BOUND[run["settings"]["dtype"]], run["layout"]
    axes = {item for run in runs for item in run["layout"].replace("=4", "=2").split()}
    assert axes == {"pp=2", "dp=2", "tp=2", "mp=2", "sharding=2", "cp=2", "sep=2"}
    assert alone["float64"]["losses"][-1] < alone["float64"]["losses"][0] - 0.2  # it does learn


@pytest.mark.live
def test_every_layout_reads_the_same_samples_in_the_same_order(said, alone):
    read = alone["float64"]["samples"]
    assert len(read) == 5
    for run in results(said, "eight"):
        assert run["samples"] == read[: len(run["samples"])], run["layout"]
    four, six = results(said, "four")[0], results(said, "six")[0]
    assert (four["first"], six["first"]) == (2, 3)
    assert read[:2] + four["samples"] + six["samples"] == read


@pytest.mark.live
def test_resuming_on_four_and_then_six_processes_changes_no_loss(said, alone):
    for name in ("four", "six"):
        (run,) = results(said, name)
        assert apart(run, alone) <= BOUND["float64"], name


@pytest.mark.live
def test_mistakes_are_seen(said, alone):
    wrong = [run for run in results(said, "eight") if run["mistake"]]
    assert [run["mistake"] for run in wrong] == ["masks", "norms", "labels"]
    for run in wrong:
        assert apart(run, alone) > 100 * BOUND["float64"], run["mistake"]


@pytest.mark.live
def test_the_audit_finds_copies_that_differ_and_no_others(said):
    runs = [run for name in ("eight", "four", "six") for run in results(said, name)]
    for run in runs:
        assert run["audit"]["ok"] == (run["mistake"] != "norms"), (run["layout"], run["audit"])
    (found,) = (run["audit"]["findings"] for run in runs if run["mistake"] == "norms")
    assert found
    assert all("norm" in one["name"] for one in found)


@pytest.mark.live
def test_a_checkpoint_of_another_model_is_refused(said):
    assert said["other"]["codes"] == [2]
    assert "hidden 32 there, 64 here" in said["other"]["said"][0]


@pytest.mark.live
def test_a_killed_rank_ends_the_others(said):
    assert said["killed"]["codes"][2] == -9
    for rank in (0, 1, 3):
        assert said["killed"]["codes"][rank] == 1, said["killed"]["said"][rank]
        assert f"rank {rank} stops" in said["killed"]["said"][rank]
        assert "Traceback" not in said["killed"]["said"][rank]


@pytest.mark.live
def test_an_interrupt_ends_all_ranks(said):
    assert said["interrupted"]["codes"] == [130] * 4, said["interrupted"]["said"]
    assert not any("Traceback" in words for words in said["interrupted"]["said"])


@pytest.mark.parametrize(
    ("layout", "world", "words"),
    [
        ("tp=3", 3, "8 attention heads cannot be shared out over tp=3"),
        ("tp=4 sep=4", 16, "8 attention heads cannot be shared out over tp=4 * sep=4"),
        ("pp=3", 3, "4 layers cannot be shared out over pp=3"),
        ("cp=3", 3, "32 positions of a sequence"),
        ("dp=5", 5, "12 samples of a batch"),
        ("pp=2 dp=2 tp=2", 6, "6"),
        ("ep=2", 2, "does not know what to do along ep"),
        ("tp=1 mp=2", 2, "twice"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(layout, world, words):
    with pytest.raises(InputError) as refused:
        check(Settings(), mesh_of(layout, world))
    assert words in str(refused.value)


@pytest.mark.parametrize(("micro", "legal"), [(5, False), (0, False), (3, True), (1, True)])
def test_micro_batches_divide_what_a_rank_reads(micro, legal):
    mesh = mesh_of("dp=2 pp=2", 4)
    if legal:
        assert check(Settings(), mesh, micro) == micro
    else:
        with pytest.raises(InputError):
            check(Settings(), mesh, micro)


@pytest.mark.parametrize(
    "settings",
    [
        {"dtype": "bfloat16"},
        {"heads": 0},
        {"hidden": 30},
        {"batch": -1},
        {"dropout": 1.0},
        {"dropout": float("nan")},
        {"vocabulary": 128},
        {"learning_rate": float("nan")},
        {"clip": 0.0},
    ],
)
def test_settings_that_cannot_be_are_refused(settings):
    with pytest.raises(InputError):
        check(Settings(**settings), mesh_of("dp=1", 1))


def test_micro_batches_keep_all_stages_busy():
    assert [check(Settings(), mesh_of(f"pp={stages}", stages)) for stages in (1, 2, 4)] == [12, 6, 3]


def test_axes_that_are_left_out_have_size_1():
    mesh = mesh_of("pp=2 mp=2", 4)
    assert mesh.group("pp", rank=3).ranks == [1, 3]
    assert (tensor_axis(mesh), mesh.size("sep")) == ("mp", 1)


def test_attention_is_that_of_torch():
    torch = pytest.importorskip("torch")
    from train_gpt.attention import Ring, attend

    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 3, 8, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    ring = Ring([torch.arange(8)], 0, None)
    everything = torch.ones(2, 3, 8, 8, dtype=torch.bool)
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(attend(q, k, v, everything, 1.0, ring), right)
    kept = torch.rand(2, 3, 8, 8) < 0.8
    assert torch.autograd.gradcheck(lambda q, k, v: attend(q, k, v, kept, 0.8, ring), (q, k, v))
    seen = torch.tril(torch.ones(8, 8)).bool()
    chances = (q @ k.transpose(-1, -2) / 2).masked_fill(~seen, -torch.inf).softmax(-1)
    torch.testing.assert_close(attend(q, k, v, kept, 0.8, ring), chances * kept / 0.8 @ v)


def test_the_loss_is_that_of_torch():
    torch = pytest.importorskip("torch")
    from train_gpt.parallel import cross_entropy

    torch.manual_seed(1)
    logits = torch.randn(3, 5, 7, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(7, (3, 5))
    right = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(3, 5)
    torch.testing.assert_close(cross_entropy(logits, labels, 0, None), right)
    assert torch.autograd.gradcheck(lambda logits: cross_entropy(logits, labels, 0, None), logits)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1]",
        '[{"steps": 3}]',
        '[{"layout": "dp=1", "stepz": 3}]',
        '[{"layout": 3}]',
        '[{"layout": "dp=1", "steps": true}]',
        '[{"layout": "dp=1", "mistake": "all"}]',
        '[{"layout": "dp=1", "steps": -1}]',
        "[" * 200_000,
    ],
)
def test_a_file_of_runs_is_read_with_care(tmp_path, text):
    pytest.importorskip("torch")
    from train_gpt.main import parser, runs_of

    path = tmp_path / "runs.json"
    path.write_text(text)
    with pytest.raises(InputError):
        runs_of(parser().parse_args(["--runs", str(path)]))


def test_the_text_is_there_and_has_a_source():
    data = Path(HERE.parent, "examples", "train_gpt", "data")
    assert "Shakespeare" in (data / "README.md").read_text()
    assert os.path.getsize(data / "coriolanus.txt") > 10_000


@pytest.fixture
def run_alone(monkeypatch, capsys):
    """What one process says to these arguments: exit code and stderr."""
    pytest.importorskip("torch")
    from train_gpt.main import main

    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    return lambda *arguments: (main(list(map(str, arguments))), capsys.readouterr().err)


@pytest.mark.parametrize("place", ["", ".part", ".old"])
def test_saving_deletes_nothing_but_checkpoints(tmp_path, run_alone, place):
    precious = tmp_path / f"run{place}"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years")
    code, words = run_alone("--steps", 1, "--save", tmp_path / "run")
    assert (code, "would delete" in words, "thesis.txt" in words) == (2, True, True)
    assert (precious / "thesis.txt").read_text() == "years"
    (precious / "thesis.txt").unlink()
    for _ in range(2):
        assert run_alone("--steps", 1, "--save", tmp_path / "run") == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    code, words = run_alone("--steps", 1, "--save", tmp_path / "run" / "state.json")
    assert (code, "would delete" in words) == (2, True)
    assert run_alone("--steps", 1, "--save", "")[0] == 2


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path, run_alone, monkeypatch):
    from train_gpt import checkpoint

    folder = tmp_path / "run"
    assert run_alone("--steps", 1, "--save", folder)[0] == 0

    def full(path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(checkpoint, "_allocate", full)
    code, words = run_alone("--steps", 2, "--save", folder)
    assert (code, "No space left" in words) == (2, True)
    assert json.loads((folder / "state.json").read_text())["step"] == 1


def test_damaged_checkpoints_are_refused(tmp_path, run_alone):
    import numpy

    def files(**changed):
        return lambda folder: [numpy.save(folder / "weight" / f"{name}.npy", held) for name, held in changed.items()]

    def state(**changed):
        def change(folder):
            path = folder / "state.json"
            facts = {**json.loads(path.read_text()), **changed}
            path.write_text(json.dumps({name: value for name, value in facts.items() if value is not None}))

        return change

    good = tmp_path / "good"
    assert run_alone("--steps", 1, "--save", good)[0] == 0
    damages = [
        lambda folder: (folder / "weight" / "embedding.npy").write_bytes(b""),
        lambda folder: (folder / "weight" / "embedding.npy").unlink(),
        files(embedding=numpy.ones((1, 32))),  # would be repeated for every entry
        files(embedding=numpy.float64(3)),
        files(embedding=numpy.ones((256, 32), numpy.float32)),
        files(last_norm=numpy.array([None] * 32)),
        state(step="1"),
        state(step=True),
        state(step=-1),
        state(step=None),
        state(data=None),
        state(data=5),
        state(settings=5),
    ]
    for number, damage in enumerate(damages):
        folder = tmp_path / f"bad{number}"
        shutil.copytree(good, folder)
        damage(folder)
        code, words = run_alone("--steps", 2, "--resume", folder)
        assert (code, words.startswith("train_gpt.py: ")) == (2, True), number
    assert run_alone("--steps", 2, "--resume", good) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    ["--layout tp=2", "--layout dp=0", "--heads 0", "--resume no", "--json /no/1", "--json /", "--learning-rate nan"],
)
def test_the_command_says_what_it_cannot_use(arguments, capsys, monkeypatch):
    pytest.importorskip("torch")
    from train_gpt.main import main

    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert main([*arguments.split(), "--steps", "1"]) == 2
    assert capsys.readouterr().err.startswith("train_gpt.py: ")
