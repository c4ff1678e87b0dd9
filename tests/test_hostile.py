"""What nobody should give and somebody will: every answer is prompt, short and an error of this library's."""

import copy
import enum
import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import time

import numpy
import pytest
import torch

import rankatlas
from rankatlas import Atlas, Coordinate, Mesh, Ranks, Topology, check_groups, parse_atlas, parse_mesh
from rankatlas.errors import InputError, RankatlasError
from rankatlas.seeding import RngStateTracker, SeedPlan
from rankatlas.seeding.checkpoint_files import read_states, write_states
from rankatlas.tensors import TensorLayout
from rankatlas.whole_file import whole_file

MESH = Mesh(dp=2, tp=2)
HUGE = 10**5000
LONG = list(range(10**6))
CLI = [sys.executable, "-m", "rankatlas"]


class Broken:
    def __index__(self):
        raise RuntimeError("no")

    def __repr__(self):
        raise RuntimeError("no")


REFUSED = {
    "huge size": lambda: Mesh(dp=HUGE),
    "huge product": lambda: Mesh(dp=2**100, tp=2**100),
    "huge first rank": lambda: Mesh(dp=2, first_rank=HUGE),
    "huge negative": lambda: Mesh(dp=-HUGE),
    "huge rank": lambda: MESH.coordinate(HUGE),
    "huge place": lambda: MESH.rank(dp=HUGE, tp=0),
    "huge world": lambda: parse_mesh("dp=2", world_size=HUGE),
    "huge claim": lambda: check_groups(MESH, ("tp",), [[HUGE]]),
    "huge degree": lambda: Topology(HUGE, 8),
    "long list as size": lambda: Mesh(dp=LONG),
    "long list as axis": lambda: MESH.size(LONG),
    "long axis": lambda: MESH.size("x" * 10**7),
    "long name": lambda: Mesh.from_axes([("x y" * 10**6, 2)]),
    "long version": lambda: Mesh.from_dict({"format": "rankatlas.mesh", "version": "9" * 10**7}),
    "long order": lambda: Topology(0, 8, order=LONG),
    "forty open axes": lambda: parse_mesh(" ".join(f"a{i}=1" for i in range(40)), world_size=963761198400),
    "no divisor": lambda: parse_mesh(" ".join(f"a{i}=1" for i in range(59)) + " b=7 x=?", world_size=2**62),
    "float tensor": lambda: Mesh(dp=torch.tensor(2.7)),
    "array of one": lambda: Mesh(dp=torch.tensor([[2]])),
    "numpy array": lambda: Mesh(dp=numpy.array([2])),
    "meta tensor": lambda: Mesh(dp=torch.tensor(2, device="meta")),
    "broken index": lambda: Mesh(dp=Broken()),
    "bool": lambda: Mesh(dp=True),
    "set of axes": lambda: Mesh.from_axes({("tp", 2), ("dp", 4)}),
    "set as order": lambda: Topology(0, 8, mp_degree=2, order={"dp", "pp", "sharding", "mp", "sep"}),
    "set of splits": lambda: TensorLayout(MESH, sharded={"tp", "dp"}),
    "set of shared": lambda: Atlas(a=MESH, b=MESH, shared={"tp", "dp"}),
    "set of groups": lambda: check_groups(MESH, ("tp",), {(0, 1), (2, 3)}),
    "sets as groups": lambda: check_groups(MESH, ("tp",), [{1, 0}, {3, 2}]),
    "bytes as groups": lambda: check_groups(MESH, ("tp",), [b"\0\1", b"\2\3"]),
    "no axes": lambda: check_groups(MESH, None, []),
    "axes a number": lambda: check_groups(MESH, 3, []),
    "no mesh": lambda: check_groups(None, ("tp",), []),
    "no layout": lambda: TensorLayout(None),
    "replicated nothing": lambda: TensorLayout(MESH, replicated=None),
    "plan of text": lambda: SeedPlan(1, "dp=2"),
    "plan of an atlas": lambda: SeedPlan(1, Atlas(a=MESH)),
    "charts nothing": lambda: Atlas.from_charts(None),
    "charts text": lambda: Atlas.from_charts("ab"),
    "no ranks": lambda: Ranks(["a"]),
    "bytes as ranks": lambda: Ranks(b"dp"),
    "release a list": lambda: Topology.from_args({}, 0, 1, release=[]),
    "array of names": lambda: MESH.flatten("dp", into=numpy.array(["a", "b"])),
    "array shared": lambda: Atlas(a=MESH, shared=[numpy.array(["dp", "x"])]),
    "a class as arguments": lambda: Topology.from_args(Mesh, 0, 1),
    "a function as arguments": lambda: Topology.from_args(print, 0, 1),
    "a set as arguments": lambda: Topology.from_args({"mp_degree"}, 0, 1),
    "no arguments": lambda: Topology.from_args(object(), 0, 1),
    "groups of no chart": lambda: Atlas(a=Mesh(dp=4), b=Mesh(tp=2, first_rank=8)).group(rank=8),
    "trailing text": lambda: parse_atlas("a: dp=2; shared: dp, tp"),
    "huge table": lambda: check_groups(MESH, ("tp",), Mesh(dp=2**30, tp=2**10).groups("tp")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    before = time.perf_counter()
    with pytest.raises(RankatlasError) as caught:
        REFUSED[name]()
    # Minutes and megabytes were what such things cost; ten seconds and a page tell them from a slow machine.
    assert time.perf_counter() - before < 10
    assert len(str(caught.value)) < 9000
    assert isinstance(caught.value, (InputError, ValueError, TypeError, LookupError))
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert str(again) == str(caught.value)


def test_errors_travel_with_what_cannot():
    with pytest.raises(RankatlasError) as caught:
        Mesh(dp=lambda: 0)
    again = pickle.loads(pickle.dumps(caught.value))
    assert set(again.__dict__) == set(caught.value.__dict__)
    assert "lambda" in again.size


class TestLazySequencesAnswerByArithmetic:
    """2^40 of anything: whatever walked through it would not come back."""

    groups = Mesh(dp=2**20, tp=2**20).groups("tp")
    topology = Topology(0, 2**40, dp_degree=2, mp_degree=2**39)

    def test_groups(self):
        last = self.groups[-1]
        assert self.groups.index(last) == 2**20 - 1
        assert self.groups.count(last) == 1
        assert self.groups.count(5) == 0
        assert 5 not in self.groups
        with pytest.raises(ValueError, match="5"):
            self.groups.index(5)

    def test_the_data_world(self):
        world = self.topology.data_info.world
        assert world.index(1) == 2**39
        assert world.count(1) == 2**39
        assert 5 not in world
        assert world == copy.copy(self.topology).data_info.world
        with pytest.raises(ValueError, match="3"):
            world.index(3, 2, 9)

    def test_ranks(self):
        held = Mesh(a=2, b=2, c=2**38).select(b=0)
        assert held != range(2**39)
        assert held.index(2**39) == 2**38
        assert held.count(2**38) == 0
        assert held[1:] != held[:-1]


class TestNamesThatPythonAsksFor:
    @pytest.mark.parametrize("name", ["__deepcopy__", "__array__", "__array_interface__", "__reduce_ex__", "__len__"])
    def test_an_axis_may_have_one(self, name):
        coordinate = Mesh.from_axes([(name, 2), ("tp", 2)]).coordinate(2)
        assert copy.deepcopy(coordinate) == coordinate
        assert pickle.loads(pickle.dumps(coordinate)) == coordinate
        assert coordinate[name] == 1
        assert list(coordinate) == [name, "tp"]

    def test_one_that_was_never_filled(self):
        with pytest.raises(AttributeError):
            Coordinate.__new__(Coordinate).tp  # noqa: B018

    def test_submodules(self):
        code = "import rankatlas; print(rankatlas.seeding.SeedPlan, rankatlas.errors.InputError, rankatlas.tensors)"
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)

    def test_formats(self):
        assert f"{MESH:>40}" == str(MESH).rjust(40)
        assert f"{MESH:s}" == str(MESH)

    def test_numbers_of_other_kinds(self):
        class Axis(enum.IntEnum):
            two = 2

        assert Mesh(dp=Axis.two, tp=numpy.int8(2)).sizes == (2, 2)
        assert {type(size) for size in Mesh(dp=Axis.two, tp=numpy.int8(2)).sizes} == {int}


def test_values_that_hash_are_read_only():
    plan = SeedPlan(1, MESH)
    stream = plan.stream("a", same="tp", differ="dp")
    for value, name in [(plan, "base_seed"), (stream, "base_seed"), (stream, "differ"), (MESH, "sizes")]:
        with pytest.raises(AttributeError):
            setattr(value, name, 5)


class TestTheTrackersStates:
    def test_what_is_handed_out_is_a_copy(self):
        tracker = RngStateTracker()
        tracker.add("a", 7)
        with tracker.rng_state("a"):
            expected = torch.rand(4).tolist()
        tracker.reset()
        tracker.add("a", 7)
        for entry in _arrays(tracker.get_states_tracker()):
            entry[...] = 0
        with tracker.rng_state("a"):
            assert torch.rand(4).tolist() == expected


def _arrays(value):
    if isinstance(value, (numpy.ndarray, torch.Tensor)):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _arrays(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _arrays(one)


class TestFiles:
    def test_a_link_stays_one_and_a_mode_stays(self, tmp_path):
        target, link = tmp_path / "target", tmp_path / "link"
        target.write_text("old")
        target.chmod(0o640)
        link.symlink_to(target)
        with whole_file(link) as out:
            out.write("new")
        assert link.is_symlink()
        assert target.read_text() == "new"
        assert stat.S_IMODE(target.stat().st_mode) == 0o640
        assert sorted(os.listdir(tmp_path)) == ["link", "target"]

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
    def test_a_scheduler_that_ends_the_process_leaves_no_draft(self, tmp_path, number):
        target = tmp_path / "out"
        target.write_text("old")
        code = (
            "import sys, time; from rankatlas.whole_file import whole_file\n"
            "with whole_file(sys.argv[1]) as out:\n"
            "    out.write('half'); print('open', flush=True); time.sleep(60)\n"
        )
        with subprocess.Popen([sys.executable, "-c", code, str(target)], stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"open\n"
            process.send_signal(number)
            assert process.wait(timeout=30) == 128 + number
        assert os.listdir(tmp_path) == ["out"]
        assert target.read_text() == "old"

    def test_a_failed_block_changes_nothing(self, tmp_path):
        target = tmp_path / "out"

        def fail():
            with whole_file(target) as out:
                out.write("half")
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("path", ["/nonexistent/x", "/", ""])
    def test_places_that_hold_no_file(self, path):
        with pytest.raises(RankatlasError):
            write_states({"a": 1}, path)

    @pytest.mark.parametrize("saved", [{"a": float("nan")}, {"a": object()}])
    def test_states_that_are_no_plain_data(self, tmp_path, saved):
        with pytest.raises(RankatlasError):
            write_states(saved, tmp_path / "states")
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("path", ["/dev/zero", "/nonexistent", "/"])
    def test_states_are_read_from_files_only(self, path):
        with pytest.raises(RankatlasError):
            read_states(path)


EVIL = "\x1b]0;owned\x07\x1b[31m\u202e\x9b"


class TestTheTerminal:
    """Text of a file must not steer the terminal, and a file must not take minutes."""

    def files(self, tmp_path):
        odd = tmp_path / f"f{EVIL}\nx.json"
        odd.write_text(json.dumps({"mp_degree": 2, f"{EVIL}_degree": 4}))
        mesh = tmp_path / "mesh.json"
        mesh.write_text(
            json.dumps({"format": "rankatlas.mesh", "version": 1, "axes": [["dp", 2]], "first_rank": 0, EVIL: 1})
        )
        return odd, mesh

    @pytest.mark.parametrize("verb", [["show"], ["where", "0"], ["diff", "dp=8"], ["show", "--json"]])
    def test_nothing_steers_it(self, tmp_path, verb):
        for path in self.files(tmp_path):
            parts = [verb[0], str(path), *verb[1:]] if verb[0] != "diff" else [*verb, str(path)]
            done = subprocess.run([*CLI, *parts, "-n", "8"], capture_output=True, text=True, timeout=60)
            assert "Traceback" not in done.stderr
            printed = (done.stdout + done.stderr).replace("\n", "")
            assert printed.isprintable(), repr(printed)

    @pytest.mark.parametrize(
        "text",
        [
            "a: " + "[" * 200000,
            "mp_degree: 1" + ":1" * 10**6,
            "- a\n" * 2**20,
            "a: !!int ''",
            "a: !!timestamp x",
            "<<: {mp_degree: 2, mp_degree: 4}",
            "mp_degree: 0x" + "f" * 5000,
            '{"mp_degree":"' + "9" * (15 << 20),
            " ".join(f"a{i}=1" for i in range(20000)),
        ],
        ids=["deep", "sixty", "long", "int", "time", "merge", "hex", "huge", "axes"],
    )
    def test_files_that_take_long_or_break_a_parser(self, tmp_path, text):
        path = tmp_path / "x.yaml"
        path.write_text(text)
        done = subprocess.run([*CLI, "show", str(path)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert 0 < len(done.stderr) < 10000

    def test_sexagesimal_numbers_are_text(self, tmp_path):
        path = tmp_path / "x.yaml"
        path.write_text("mp_degree: 1:30\n")
        done = subprocess.run([*CLI, "show", str(path)], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2
        assert "1:30" in done.stderr


def test_the_package_says_what_it_has():
    assert set(rankatlas.__all__) <= set(dir(rankatlas))
    with pytest.raises(AttributeError, match="nothing"):
        rankatlas.nothing  # noqa: B018
