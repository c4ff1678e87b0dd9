"""Random states in checkpoints: one state per stream and place, and no rank restored or reset without being told."""

import json
import os
import random
from copy import deepcopy
from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import brute
from rankatlas import Mesh
from rankatlas.errors import InputError, RandomStateError, SourceError
from rankatlas.seeding import RngStateTracker, SeedPlan
from rankatlas.seeding.checkpoint import (
    check_key,
    join_states,
    load_states,
    save_states,
    writers,
)
from rankatlas.seeding.checkpoint_files import POLICIES, read_states, write_states
from refusals import refused
from strategies import axes_of, small_meshes

BOTH = ("python", "numpy")


@pytest.fixture(autouse=True)
def global_states_as_they_were():
    kept = random.getstate(), numpy.random.get_state()
    yield
    random.setstate(kept[0])
    numpy.random.set_state(kept[1])


class Job:
    """Every rank of a job with its tracker: enough of a training run to save and to resume."""

    def __init__(self, mesh, differ, base=1234, backends=BOTH):
        self.mesh, self.plan, self.backends = mesh, SeedPlan(base, mesh), backends
        self.streams = [
            self.plan.stream(name, [axis for axis in mesh.axes if axis not in axes], axes)
            for name, axes in differ.items()
        ]
        self.trackers = {rank: RngStateTracker(backends) for rank in mesh.select()}

    def started(self):
        for rank, tracker in self.trackers.items():
            tracker.restart({stream.name: stream.seed(rank) for stream in self.streams})
        return self

    def drawn(self, name, rank):
        """What a rank draws next from a stream."""
        with self.trackers[rank].rng_state(name):
            return random.random(), numpy.random.random()

    def trained(self, steps=3):
        for rank in self.trackers:
            for stream in self.streams:
                for _ in range(steps):
                    self.drawn(stream.name, rank)
        return self

    def saved(self):
        parts = [save_states(tracker, self.streams, rank) for rank, tracker in self.trackers.items()]
        return json.loads(json.dumps(join_states(self.plan, self.streams, parts)))

    def load(self, saved, policy="error"):
        """What every rank was told; all must be told the same."""
        told = [load_states(saved, tracker, self.streams, rank, policy) for rank, tracker in self.trackers.items()]
        assert all(lines == told[0] for lines in told)
        return told[0]


def after(seed, steps):
    """The draw that follows `steps` draws after seeding both with `seed`, which numpy takes as two words."""
    one, other = random.Random(seed), numpy.random.RandomState([seed % 2**32, seed // 2**32])
    return [(one.random(), other.random()) for _ in range(steps + 1)][-1]


DIFFER = {"dropout": ("dp", "pp"), "weights": ("pp", "tp"), "shuffle": ("dp",)}


def seeds_of(job, name):
    (stream,) = (stream for stream in job.streams if stream.name == name)
    return {rank: stream.seed(rank) for rank in job.mesh.select()}


def check_goes_on(job, steps, fresh=()):
    """Every rank draws what follows `steps` draws of its stream; those in `fresh` begin."""
    for stream in job.streams:
        for rank, seed in seeds_of(job, stream.name).items():
            assert job.drawn(stream.name, rank) == after(seed, 0 if rank in fresh else steps), (stream.name, rank)


def test_the_same_layout_goes_on_where_it_was():
    before = Job(Mesh(pp=2, dp=2, tp=2), DIFFER).started().trained()
    saved = before.saved()
    resumed = Job(before.mesh, DIFFER)
    assert resumed.load(saved) == [f"{name}: every rank restored" for name in DIFFER]
    check_goes_on(resumed, 3)


def test_another_order_moves_every_state_to_the_rank_of_its_coordinates():
    saved = Job(Mesh(pp=2, dp=3, tp=2), DIFFER).started().trained().saved()
    resumed = Job(Mesh(tp=2, pp=2, dp=3, first_rank=40), DIFFER)
    assert resumed.load(saved) == [f"{name}: every rank restored" for name in DIFFER]
    check_goes_on(resumed, 3)


def test_a_smaller_layout_leaves_states_behind():
    saved = Job(Mesh(pp=2, dp=4, tp=2), DIFFER).started().trained().saved()
    for mesh in (Mesh(pp=2, dp=2, tp=2), Mesh(pp=1, dp=1, tp=1), Mesh(pp=2, dp=3, tp=1)):
        resumed = Job(mesh, DIFFER)
        resumed.load(saved)
        check_goes_on(resumed, 3)


def test_a_larger_layout_needs_a_policy():
    saved = Job(Mesh(dp=2, pp=1, tp=2), {"dropout": ("dp", "pp")}).started().trained().saved()
    grown = Job(Mesh(dp=4, pp=1, tp=2), {"dropout": ("dp", "pp")})
    for rank, tracker in grown.trackers.items():  # also the ranks that have a state
        with refused(RandomStateError, "ranks 4, 5, 6, 7", "'dropout'", *POLICIES[1:], axes=(), ranks=[4, 5, 6, 7]):
            load_states(saved, tracker, grown.streams, rank)
        assert tracker.states_ == {}
    assert grown.load(saved, "keep-old-and-seed-new") == ["dropout: ranks 4, 5, 6, 7 seeded anew, the others restored"]
    check_goes_on(grown, 3, fresh=(4, 5, 6, 7))
    assert grown.load(saved, "reset-all") == ["dropout: every rank seeded anew"]
    check_goes_on(grown, 0)


def test_a_policy_changes_nothing_where_every_rank_has_a_state_but_reset_all():
    job = Job(Mesh(dp=2), {"dropout": ("dp",)}).started().trained()
    saved = job.saved()
    assert job.load(saved, "keep-old-and-seed-new") == ["dropout: every rank restored"]
    check_goes_on(job, 3)
    assert job.load(saved, "reset-all") == ["dropout: every rank seeded anew"]
    check_goes_on(job, 0)


def test_only_the_streams_that_grew_are_seeded_anew():
    saved = Job(Mesh(pp=2, dp=2, tp=1), DIFFER).started().trained().saved()
    grown = Job(Mesh(pp=2, dp=3, tp=1), DIFFER)
    assert grown.load(saved, "keep-old-and-seed-new") == [
        "dropout: ranks 2, 5 seeded anew, the others restored",
        "weights: every rank restored",
        "shuffle: ranks 2, 5 seeded anew, the others restored",
    ]


def test_a_long_list_of_ranks_is_cut():
    saved = Job(Mesh(dp=2), {"dropout": ("dp",)}).started().saved()
    grown = Job(Mesh(dp=100), {"dropout": ("dp",)})
    (told,) = load_states(saved, grown.trackers[0], grown.streams, 0, "keep-old-and-seed-new")
    assert told == "dropout: ranks 2, 3, 4, 5, 6, 7, 8, 9, ... (98 in all) seeded anew, the others restored"


@given(small_meshes, st.data())
def test_writers_are_one_for_each_distinct_state(mesh, data):
    differ = data.draw(axes_of(mesh))
    stream = SeedPlan(1, mesh).stream("x", [axis for axis in mesh.axes if axis not in differ], differ)
    assert list(writers(stream)) == [group[0] for group in brute.groups(mesh, stream.same)]


def test_a_rank_saves_what_it_is_the_writer_of():
    job = Job(Mesh(pp=2, dp=2, tp=2), DIFFER).started()
    wrote = {rank: set(save_states(job.trackers[rank], job.streams, rank)["streams"]) for rank in job.mesh.select()}
    assert wrote == {
        0: {"dropout", "weights", "shuffle"},
        1: {"weights"},
        2: {"dropout", "shuffle"},
        3: set(),
        4: {"dropout", "weights"},
        5: {"weights"},
        6: {"dropout"},
        7: set(),
    }
    saved = job.saved()
    assert {name: len(entry["states"]) for name, entry in saved["streams"].items()} == {
        "dropout": 4,
        "weights": 4,
        "shuffle": 2,
    }
    assert saved["fingerprint"] == job.mesh.fingerprint()
    assert Mesh.from_dict(saved["mesh"]) == job.mesh
    assert saved["backends"] == ["python", "numpy"]
    assert saved["base_seed"] == 1234


def test_saving_is_plain_data_and_needs_every_stream():
    job = Job(Mesh(dp=2), {"a": ("dp",), "b": ("dp",)})
    job.trackers[0].add("a", 5)
    with refused(RandomStateError, "'b'", "add it"):
        save_states(job.trackers[0], job.streams, 0)


def test_saving_and_loading_leave_the_global_state_alone():
    random.seed(5)
    numpy.random.seed(5)
    job = Job(Mesh(dp=2), {"a": ("dp",)}).started()
    job.load(job.saved())
    assert (random.random(), numpy.random.random()) == (random.Random(5).random(), numpy.random.RandomState(5).random())


def test_states_are_set_inside_a_context_at_once():
    job = Job(Mesh(dp=2), {"a": ("dp",)}).started()
    saved = job.saved()
    with job.trackers[1].rng_state("a"):
        first = random.random()
        load_states(saved, job.trackers[1], job.streams, 1)
        assert random.random() == first


def test_other_streams_of_the_tracker_are_left_alone():
    job = Job(Mesh(dp=2), {"a": ("dp",)}).started()
    saved = job.saved()
    job.trackers[0].add("own", 99)
    with job.trackers[0].rng_state("own"):
        random.random()
    job.load(saved)
    with job.trackers[0].rng_state("own"):
        own = random.Random(99)
        own.random()
        assert random.random() == own.random()


# Joining


def test_joining_takes_each_state_once():
    job = Job(Mesh(dp=2, tp=2), {"a": ("dp",), "b": ("tp", "dp")}).started()
    parts = [save_states(tracker, job.streams, rank) for rank, tracker in job.trackers.items()]
    with refused(RandomStateError, "'a'", "rank 2", "must write", ranks=[2]):
        join_states(job.plan, job.streams, [*parts[:2], parts[3]])
    with refused(RandomStateError, "'a'", "ranks 0, 2", ranks=[0, 2]):
        join_states(job.plan, job.streams, [parts[1], parts[3]])
    with refused(RandomStateError, "'a'", "dp=0", "twice"):
        join_states(job.plan, job.streams, [*parts, parts[0]])
    with refused(RandomStateError, "'b'", "not among"):
        join_states(job.plan, job.streams[:1], parts)
    with refused(RandomStateError, "python", "numpy"):
        join_states(job.plan, job.streams, [*parts[:3], {**parts[3], "backends": ["python"]}])
    with pytest.raises(InputError, match="part 0 of the random states to join is damaged"):
        join_states(job.plan, job.streams, [{**parts[0], "backends": [None]}, *parts[1:]])
    other = Job(Mesh(dp=3, tp=2), {"a": ("dp",), "b": ("tp", "dp")}).started()
    stranger = save_states(other.trackers[4], other.streams, 4)
    with refused(RandomStateError, "'a'", "dp=2", "dp=2 tp=2"):
        join_states(job.plan, job.streams, [*parts, stranger])
    with refused(RandomStateError, "dp=3 tp=2", "dp=2 tp=2"):
        join_states(job.plan, other.streams, parts)
    assert join_states(job.plan, job.streams, reversed(parts)) == join_states(job.plan, job.streams, iter(parts))


# Keys and layouts that do not fit


def test_a_key_that_lacks_an_axis():
    """SEED-009: saved once per dp while pp and tp matter too."""
    stream = SeedPlan(1, Mesh(pp=2, dp=1, tp=2)).stream("default", differ=("pp", "dp", "tp"))
    with refused(RandomStateError, "keyed by dp", "pp, tp", "ranks 1, 2, 3", axes=("pp", "tp"), ranks=[1, 2, 3]):
        check_key(stream, ["dp"])
    check_key(stream, ["pp", "tp"])  # dp has size 1
    check_key(stream, ["tp", "dp", "pp"])
    with refused(RandomStateError, "keyed by nothing", ranks=[1, 2, 3]):
        check_key(stream, [])


def test_loading_a_stream_that_depends_on_more_than_it_did():
    saved = Job(Mesh(pp=2, tp=2), {"a": ("pp",)}).started().saved()
    now = Job(Mesh(pp=2, tp=2), {"a": ("pp", "tp")})
    for policy in POLICIES[::2]:
        with refused(RandomStateError, "keyed by pp", "tp", axes=("tp",), ranks=[1, 3]):
            now.load(saved, policy)
    assert all(tracker.states_ == {} for tracker in now.trackers.values())


def test_loading_a_stream_that_depends_on_less_than_it_did():
    saved = Job(Mesh(pp=2, tp=2), {"a": ("pp", "tp")}).started().saved()
    now = Job(Mesh(pp=2, tp=2), {"a": ("pp",)})
    with refused(RandomStateError, "'a'", "tp", axes=("tp",)):
        now.load(saved)


def test_an_axis_of_size_1_may_come_and_go():
    saved = Job(Mesh(dp=2, pp=1), {"a": ("dp", "pp")}).started().trained().saved()
    gone = Job(Mesh(dp=2), {"a": ("dp",)})
    assert gone.load(saved) == ["a: every rank restored"]
    for rank, seed in {0: 0, 1: 1}.items():
        stream = SeedPlan(1234, Mesh(dp=2, pp=1)).stream("a", differ=("dp", "pp"))
        assert gone.drawn("a", rank) == after(stream.seed(seed), 3)
    saved = Job(Mesh(dp=2), {"a": ("dp",)}).started().trained().saved()
    come = Job(Mesh(tp=1, dp=2), {"a": ("tp", "dp")})
    assert come.load(saved) == ["a: every rank restored"]


def test_an_unknown_stream_and_an_unknown_policy():
    job = Job(Mesh(dp=2), {"a": ("dp",)}).started()
    saved = job.saved()
    other = Job(Mesh(dp=2), {"b": ("dp",)})
    with refused(RandomStateError, "'b'", "it has a"):
        other.load(saved)
    for policy in ("", "reset", None, 3):
        with refused(RandomStateError, *POLICIES, repr(policy)):
            job.load(saved, policy)


def test_other_backends_are_refused_unless_nothing_is_restored():
    saved = Job(Mesh(dp=2), {"a": ("dp",)}, backends=["python"]).started().saved()
    both = Job(Mesh(dp=2), {"a": ("dp",)})
    with pytest.raises(InputError, match="python"):
        both.load(saved)
    assert all(tracker.states_ == {} for tracker in both.trackers.values())
    assert both.load(saved, "reset-all") == ["a: every rank seeded anew"]
    check_goes_on(both, 0)


def test_a_failure_changes_nothing():
    job = Job(Mesh(dp=2), {"a": ("dp",), "b": ("dp",)}).started().trained(2)
    saved = job.saved()
    job.trained(1)
    before = [tracker.state_dict() for tracker in job.trackers.values()]
    for damaged in damages(saved):
        for rank, tracker in job.trackers.items():
            with pytest.raises(InputError):
                load_states(damaged, tracker, job.streams, rank)
    assert [tracker.state_dict() for tracker in job.trackers.values()] == before
    job.trackers[0].restart({"own": 5, "a": 6, "b": 7})
    clash = deepcopy(saved)
    clash["streams"]["b"]["states"]["dp=0"]["seed"] = 5  # the seed of a stream that is not restored
    before = job.trackers[0].state_dict()
    with pytest.raises(InputError):
        load_states(clash, job.trackers[0], job.streams, 0)
    assert job.trackers[0].state_dict() == before


def damages(saved):
    yield from (None, [], {}, "x", 3)
    for key in ("format", "version", "streams", "backends"):
        yield {name: value for name, value in saved.items() if name != key}
        yield {**saved, key: None}
        yield {**saved, key: 5}
    yield {**saved, "version": 2}
    yield {**saved, "backends": ["python", "torch"]}
    for change in (None, 5, [], {}, {"axes": ["dp"]}, {"states": {}}, {"axes": "dp", "states": {}}, {"axes": [1]}):
        yield {**saved, "streams": {**saved["streams"], "b": change}}
    for change in (None, 5, {}, {"seed": 1}, {"states": []}, {"seed": "x", "states": [1, 2]}):
        yield with_states(saved, lambda kept, change=change: change)
    yield with_states(saved, lambda kept: {**kept, "states": kept["states"][:1]})
    yield with_states(saved, lambda kept: {**kept, "states": kept["states"][::-1]})


def with_states(saved, change):
    damaged = deepcopy(saved)
    for entry in damaged["streams"].values():
        entry["states"] = {place: change(kept) for place, kept in entry["states"].items()}
    return damaged


# Files


@pytest.mark.parametrize("name", ["states.json", "states.npz", "states"])
@pytest.mark.parametrize("as_path", [str, Path])
def test_files_hold_the_very_data(tmp_path, name, as_path):
    saved = Job(Mesh(dp=2, tp=2), {"a": ("dp",)}).started().trained().saved()
    path = as_path(tmp_path / name)
    write_states(saved, path)
    write_states(saved, path)  # over itself
    assert read_states(path) == saved
    assert [found.name for found in tmp_path.iterdir()] == [name]
    resumed = Job(Mesh(tp=2, dp=2), {"a": ("dp",)})
    resumed.load(read_states(path))
    check_goes_on(resumed, 3)


def test_an_npz_is_smaller_and_holds_no_pickle(tmp_path):
    saved = Job(Mesh(dp=8), {"a": ("dp",)}).started().saved()
    for name in ("a.json", "a.npz"):
        write_states(saved, tmp_path / name)
    assert (tmp_path / "a.npz").stat().st_size < (tmp_path / "a.json").stat().st_size / 2
    with numpy.load(tmp_path / "a.npz", allow_pickle=False) as stored:
        assert [(name, stored[name].dtype.name) for name in stored] == [("rankatlas", "uint8")]


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_states({"format": "old"}, path)
    for bad in (object(), float("nan"), {1, 2}):
        with refused(RandomStateError, "no plain data"):
            write_states({"format": bad}, path)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    write_states({"format": "old"}, link)
    assert link.is_symlink()
    link.unlink()
    with refused(SourceError, "absent"):
        write_states({"format": "old"}, tmp_path / "absent" / "a.json")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no room")))
    for name in ("a.json", "b.npz"):
        with pytest.raises(OSError, match="no room"):
            write_states({"format": "new"}, tmp_path / name)
    assert [found.name for found in tmp_path.iterdir()] == ["a.json"]
    assert json.loads(path.read_text()) == {"format": "old"}


def test_garbage_files_are_refused(tmp_path):
    saved = Job(Mesh(dp=2), {"a": ("dp",)}).started().saved()
    write_states(saved, tmp_path / "good.npz")
    good = (tmp_path / "good.npz").read_bytes()
    numpy.save(tmp_path / "array.npy", numpy.arange(3))
    numpy.savez(tmp_path / "other.npz", x=numpy.arange(3))
    numpy.savez(tmp_path / "float.npz", rankatlas=numpy.ones(3))
    numpy.savez(tmp_path / "object.npz", rankatlas=numpy.array([{}], dtype=object))
    contents = {
        "empty": b"",
        "text": b"hello",
        "nothing": b"null",
        "list": b"[1, 2]",
        "deep": b"[" * 200_000,
        "bytes": bytes(range(256)),
        "format": b'{"format": "rankatlas.rng", "version": 1, "streams": {}, "backends": []}',
        "version": json.dumps({**saved, "version": 2}).encode(),
        "streams": json.dumps({**saved, "streams": 5}).encode(),
        "cut": good[:-30],
        "start": good[:30],
        "flipped": good[:60] + bytes(255 - byte for byte in good[60:90]) + good[90:],
        "array": (tmp_path / "array.npy").read_bytes(),
        "other": (tmp_path / "other.npz").read_bytes(),
        "float": (tmp_path / "float.npz").read_bytes(),
        "object": (tmp_path / "object.npz").read_bytes(),
    }
    for content in contents.values():
        for name in ("x.json", "x.npz"):
            path = tmp_path / name
            path.write_bytes(content)
            with pytest.raises(RandomStateError):
                read_states(str(path))
    for absent in (tmp_path / "absent.json", tmp_path / "absent.npz", tmp_path):
        with refused(RandomStateError, str(absent)):
            read_states(absent)
