"""Audits in a simulated world: every rank a thread, an all-gather a barrier; held against brute force."""

import struct
import threading
from contextlib import contextmanager

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import brute
from rankatlas import Mesh
from rankatlas.audit import AuditReport, Finding, sets_for
from rankatlas.audit import engine as engines
from rankatlas.audit.engine import checksum
from rankatlas.audit.replicas import Places, audit_replicas
from rankatlas.creation import CreationPlan, first_and_last, neighbours
from rankatlas.errors import AuditError, HandleError, InputError, JobError, RankError
from rankatlas.tensors import TensorLayout
from refusals import refused


class World:
    """Communicators of a world of threads: a board per group, and a barrier before and after it is read."""

    def __init__(self, size):
        self.size = size
        self.boards = {}
        self.lock = threading.Lock()

    def board(self, ranks):
        with self.lock:
            return self.boards.setdefault(tuple(ranks), (threading.Barrier(len(ranks), timeout=20), {}))


class Reader:
    """One rank of such a world, whose tensors are numpy arrays."""

    def __init__(self, world, rank):
        self.rank, self.world_size, self.place = rank, world.size, world
        self.messages = 0

    def world(self):
        return tuple(range(self.world_size))

    def gather(self, communicator, numbers):
        self.messages += 1
        barrier, board = self.place.board(communicator)
        board[self.rank] = list(numbers)
        barrier.wait()
        found = [board[rank] for rank in communicator]
        barrier.wait()
        assert len({len(one) for one in found}) == 1, "members gave unequally many numbers"
        return found

    def raw(self, tensor):
        held = numpy.ascontiguousarray(tensor)
        return str(held.dtype), held.shape, held.reshape(-1).view(numpy.uint8).data

    def numbers(self, tensor, first, last):
        return tensor.reshape(-1)[first:last].astype(float).tolist()

    def is_tensor(self, value):
        return isinstance(value, numpy.ndarray)


class Handles:
    """What open_groups gives, without groups: a communicator is the tuple of its ranks."""

    def __init__(self, plan, rank):
        self.plan, self.rank = plan, rank

    def __getitem__(self, name):
        return tuple(self.plan.family(name).group_of(self.rank).ranks)

    def all(self, name):
        return [ranks for one in self.plan.partial if one.name == name for ranks in one.of(self.rank)]

    ranks = all

    def __iter__(self):
        return iter(self.plan.names)

    def refuse_closed(self):
        pass


def everywhere(mesh, work):
    """What `work(reader)` returns on every rank, or raises."""
    world, said = World(mesh.world_size), {}

    def run(rank):
        try:
            said[rank] = work(Reader(world, rank))
        except Exception as error:
            said[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(mesh.world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [said[rank] for rank in range(mesh.world_size)]


@contextmanager
def readers(monkeypatch_target, by_thread):
    """`current()` gives the reader of this thread."""
    before = monkeypatch_target.current
    monkeypatch_target.current = lambda engine=None: by_thread.reader
    try:
        yield
    finally:
        monkeypatch_target.current = before


def audited(mesh, layouts, tensors_of, with_handles, sets=(), partial=(), tied=None):
    import sys

    replicas = sys.modules["rankatlas.audit.replicas"]
    local = threading.local()
    plan = CreationPlan(mesh, sets or mesh.axes, partial)

    def work(reader):
        local.reader = reader
        handles = Handles(plan, reader.rank) if with_handles else None
        tie = tied(reader.rank) if callable(tied) else tied
        report = audit_replicas(tensors_of(reader.rank), layouts, handles, tied=tie)
        return report, reader.messages

    with readers(replicas, local):
        return everywhere(mesh, work)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_law_findings_are_those_of_brute_force(data):
    """Tensors of random layouts, values right or not: exactly the wrong groups are found, in both ways."""
    mesh = data.draw(st.sampled_from([Mesh(dp=2, tp=2), Mesh(pp=2, dp=3), Mesh(pp=2, dp=2, tp=2), Mesh(dp=5)]))
    names = ["a", "b", "c"][: data.draw(st.integers(1, 3))]
    layouts = {}
    for name in names:
        sharded = data.draw(st.lists(st.sampled_from(mesh.axes), unique=True))
        layouts[name] = TensorLayout(mesh, [axis for axis in mesh.axes if axis not in sharded], sharded)
    values = {(name, rank): float(layouts[name].shard_index(rank)) for name in names for rank in range(mesh.world_size)}
    some = st.tuples(st.sampled_from(names), st.integers(0, mesh.world_size - 1))
    for key in data.draw(st.lists(some, max_size=3)):
        values[key] = data.draw(st.sampled_from([0.0, -0.0, 1.0, 7.5, float("nan")]))
    expected = {rank: set() for rank in range(mesh.world_size)}
    for name, layout in layouts.items():
        for kind, axes in (("copies differ", layout.replicated), ("shards equal", layout.sharded)):
            for ranks in brute.groups(mesh, axes) if axes else []:
                held = [struct.pack("d", values[name, rank]) for rank in ranks]
                wrong = len(set(held)) > 1 if kind == "copies differ" else len(set(held)) < len(held)
                for rank in ranks if wrong and len(ranks) > 1 else []:
                    expected[rank].add((name, kind, tuple(ranks)))
    sets = [layout.replicated for layout in layouts.values() if layout.replicated]
    sets += [layout.sharded for layout in layouts.values() if layout.sharded]
    everything = set().union(*expected.values())
    for with_handles in (True, False):
        said = audited(
            mesh,
            layouts,
            lambda rank: [(name, numpy.array([values[name, rank], 1.0])) for name in names],
            with_handles,
            sets,
        )
        for rank, answer in enumerate(said):
            if isinstance(answer, Exception):
                raise answer
            report, _ = answer
            found = {(one.name, one.kind, tuple(one.ranks)) for one in report.findings}
            assert found == (expected[rank] if with_handles else everything)
            assert report.ok is (not everything)
            assert report.bad_ranks == tuple(
                other for other, wrong in expected.items() if wrong or (not with_handles and everything)
            )
            for one in report.findings:
                assert set(one.odd_ranks) <= set(one.ranks)
                assert one.odd_ranks
                assert (one.amount is not None or one.how is not None) == (one.kind == "copies differ")


def test_a_fine_audit_of_copies_costs_one_message_per_group():
    mesh = Mesh(dp=4, tp=2)
    layout = TensorLayout(mesh, ("dp", "tp"))
    tensors = {f"w{number}": numpy.ones(3) * number for number in range(50)}
    said = audited(mesh, layout, lambda rank: tensors, True, ["dp", "tp", "dp+tp"])
    assert [messages for _, messages in said] == [5] * 8  # two of all ranks: nobody refuses, nothing is wrong
    assert all(report.ok and report.checked == 50 and report.bytes == 50 * 3 * 8 for report, _ in said)


def test_how_much_elements_differ():
    mesh = Mesh(dp=3)
    layout = TensorLayout(mesh, "dp")

    def tensors(rank):
        ramp = numpy.arange(100_000, dtype=numpy.float32)
        ramp[99_999] += 3 * (rank == 1)
        return {"ramp": ramp, "nan": numpy.array([1.0, numpy.nan if rank == 2 else 1.0])}

    for report, _ in audited(mesh, layout, tensors, True):
        ramp, nan = sorted(report.findings, key=lambda one: one.name, reverse=True)
        assert (ramp.name, ramp.odd_ranks, ramp.amount) == ("ramp", [1], 3.0)
        assert (nan.odd_ranks, nan.amount != nan.amount) == ([2], True)


def test_ranks_may_hold_other_tensors_and_layouts_along_the_pipeline():
    mesh = Mesh(pp=2, dp=2)
    layouts = {"first": TensorLayout(mesh, "dp", "pp"), "last": TensorLayout(mesh, "dp", "pp")}

    def tensors(rank):
        return {"first": numpy.ones(3)} if rank < 2 else {"last": numpy.ones(3), "more": numpy.ones(5)}

    layouts["more"] = TensorLayout(mesh, "dp", "pp")
    for with_handles in (True, False):
        assert all(report.ok for report, _ in audited(mesh, layouts, tensors, with_handles))


def test_a_set_of_axes_without_a_group_is_told():
    mesh = Mesh(dp=2, tp=2)
    copied, cut = TensorLayout(mesh, "dp", "tp"), TensorLayout(mesh, "tp", "dp")
    said = audited(mesh, {"a": copied}, lambda rank: {"a": numpy.array([rank % 2])}, True, ["dp"])
    assert [report.notes for report, _ in said] == [
        ("shards along tp were not compared: the handles have no group for them",)
    ] * 4
    said = audited(mesh, {"a": cut}, lambda rank: {"a": numpy.array([rank // 2])}, True, ["dp"])
    assert all(type(error) is HandleError and "'a' along tp" in str(error) for error in said)


@pytest.mark.parametrize("with_handles", [True, False])
def test_tied_copies_of_the_first_and_the_last_stage_are_compared(with_handles):
    mesh = Mesh(pp=3, dp=2)
    layout = TensorLayout(mesh, "dp", "pp")
    ends = first_and_last(mesh)

    def tensors(rank, odd=None):
        own = {"own": numpy.full(4, float(rank // 2))}
        table = {"table": numpy.array([1.0, 2.0 + (rank == odd)])} if rank // 2 != 1 else {}
        return {**own, **table}

    def gone(rank):
        return tensors(rank) if rank < 4 else {"own": numpy.full(4, 2.0)}

    how = {"partial": {"pairs": neighbours(mesh), "ends": ends}, "tied": {"table": ends}}
    fine = audited(mesh, layout, tensors, with_handles, **how)
    assert [(report.ok, report.notes, report.unchecked) for report, _ in fine] == [(True, (), {})] * 6
    said = audited(mesh, layout, lambda rank: tensors(rank, odd=4), with_handles, **how)
    found = {
        (one.kind, one.name, one.axes, tuple(one.ranks), tuple(one.odd_ranks), one.amount)
        for report, _ in said
        for one in report.findings
    }
    # Rank 0 is the measure of its pair, rank 4 that of its own; over all ranks nothing is measured that some lack.
    amount = 1.0 if with_handles else None
    assert found == {
        ("copies differ", "table", (), (0, 4), (4,), amount),
        ("copies differ", "table", ("dp",), (4, 5), (5,), amount),
    }
    said = audited(mesh, layout, gone, with_handles, **how)
    assert {one.kind for report, _ in said for one in report.findings} == {"missing"}
    assert "missing on rank 4 of [0, 4]" in said[0][0].line


@pytest.mark.parametrize(
    ("error", "words", "tied"),
    [
        (InputError, ["name → groups", "[[0, 2]]"], [[0, 2]]),
        (InputError, ["names of tensors", "3"], {3: [[0, 2]]}),
        (InputError, ["different ranks"], {"a": [[0, 0]]}),
        (RankError, ["rank 9", "4 ranks"], {"a": [[0, 9]]}),
        (HandleError, ["[[0, 2]]", "no partial set", "leave handles out"], {"a": [[0, 2]]}),
    ],
)
def test_ties_that_cannot_be(error, words, tied):
    mesh = Mesh(pp=2, dp=2)
    for found in audited(mesh, TensorLayout(mesh, "dp", "pp"), lambda rank: {}, True, tied=tied):
        with refused(error, *words):
            raise found


@pytest.mark.parametrize("with_handles", [True, False])
def test_ties_are_what_they_say_and_not_how_they_are_written(with_handles):
    """Lists, tuples, generators, arrays, names in another order: the same ties."""
    mesh = Mesh(pp=2, dp=2)
    ends = first_and_last(mesh)

    def tied(rank):
        ways = [ends, tuple(map(tuple, ends)), map(iter, ends[::-1]), numpy.array(ends)]
        names = ("a", "b")[:: -1 if rank % 2 else 1]
        return {name: ways[rank] if name == "a" else ends for name in names}

    layout = TensorLayout(mesh, "dp", "pp")
    for report, _ in audited(
        mesh, layout, lambda rank: dict.fromkeys("ab", numpy.ones(2)), with_handles, partial={"ends": ends}, tied=tied
    ):
        assert (report.ok, report.checked) == (True, 2)


def test_long_ties_that_differ_in_the_middle_are_told():
    mesh = Mesh(pp=2, dp=2)

    def tied(rank):
        names = numpy.arange(5000) % 2
        return {f"w{number}": [[0, 2 + (number == 2500 and rank == 3)]] for number in names.cumsum().tolist()}

    for found in audited(mesh, TensorLayout(mesh, "dp", "pp"), lambda rank: {}, False, tied=tied):
        with refused(InputError, "audit differently", "tied"):
            raise found


@pytest.mark.parametrize("with_handles", [True, False])
def test_a_tied_name_that_nobody_holds_is_missing(with_handles):
    """A misspelt one would be no check at all."""
    mesh = Mesh(pp=2, dp=2)
    ends = first_and_last(mesh)
    how = {"partial": {"ends": ends}, "tied": {"tabel": ends, "table": ends}}
    tensors = {"table": numpy.ones(2)}
    for report, _ in audited(mesh, TensorLayout(mesh, "dp", "pp"), lambda rank: tensors, with_handles, **how):
        assert {(one.kind, one.name) for one in report.findings} == {("missing", "tabel")}
        assert not report.ok
    for report, _ in audited(mesh, TensorLayout(mesh, "dp", "pp"), lambda rank: {}, with_handles, **how):
        assert {(one.kind, one.name) for one in report.findings} == {("missing", "tabel"), ("missing", "table")}


def test_one_verdict_for_all_ranks():
    """Whoever is in another group hears of it, so that nobody goes on alone."""
    mesh = Mesh(dp=2, tp=2)
    for rank, (report, _) in enumerate(
        audited(mesh, TensorLayout(mesh, "tp", "dp"), lambda rank: {"w": numpy.array([rank // 2, rank == 3])}, True)
    ):
        assert report.bad_ranks == (2, 3)
        assert bool(report.findings) == (rank > 1)
        with pytest.raises(AuditError) as error:
            report.raise_if_bad()
        assert "w: copies differ" in str(error.value) if rank > 1 else "wrong on ranks 2, 3" in str(error.value)


def test_shards_are_compared_along_what_there_are_groups_for():
    mesh = Mesh(pp=2, dp=2, tp=2)
    layout = TensorLayout(mesh, "tp", ("pp", "dp"))
    for report, _ in audited(mesh, layout, lambda rank: {"mask": numpy.array([rank // 4])}, True, ["tp", "dp", "pp"]):
        assert {(one.kind, one.axes) for one in report.findings} == {("shards equal", ("dp",))}
        assert report.notes == (
            "shards along pp+dp were compared only along pp, dp: the handles have no group for them",
        )
        assert report.notes[0] in report.line
    for report, _ in audited(mesh, layout, lambda rank: {"mask": numpy.array([rank // 4])}, True, ["tp"]):
        assert report.ok
        assert "shards along pp+dp were not compared" in report.line


def test_equal_shards_are_told_by_what_they_share():
    mesh = Mesh(dp=6)
    report = audited(mesh, TensorLayout(mesh, (), "dp"), lambda rank: {"w": numpy.array([rank % 4])}, False)[0][0]
    assert [one.odd_ranks for one in report.findings] == [[0, 4], [1, 5]]


def test_plans_have_what_audits_need():
    mesh = Mesh(pp=2, dp=2, cp=1, tp=2)
    layouts = {"weight": TensorLayout(mesh, "dp", ("pp", "tp")), "norm": TensorLayout(mesh, ("dp", "tp"), "pp")}
    sets = sets_for(layouts)
    assert sets == [("dp",), ("pp", "tp"), ("dp", "tp"), ("pp",)]
    values = {name: [layout.shard_index(rank) for rank in range(8)] for name, layout in layouts.items()}
    said = audited(
        mesh, layouts, lambda rank: {name: numpy.array([held[rank]]) for name, held in values.items()}, True, sets
    )
    assert all(report.ok and not report.notes and report.checked == 2 for report, _ in said)
    with refused(InputError, "sets_for", "TensorLayout"):
        sets_for([mesh])


@pytest.mark.parametrize("with_handles", [True, False])
def test_nothing_is_tied_in_a_pipeline_of_one_stage(with_handles):
    mesh = Mesh(pp=1, dp=2)
    layout = TensorLayout(mesh, "dp", "pp")
    how = {"tied": {"table": first_and_last(mesh)}}
    said = audited(mesh, layout, lambda rank: {"table": numpy.array([rank])}, with_handles, **how)
    assert [[(one.kind, one.axes) for one in report.findings] for report, _ in said] == [
        [("copies differ", ("dp",))]
    ] * 2


def test_ranks_whose_tensors_cannot_be_taken_tell_the_others_whatever_the_error_is():
    mesh = Mesh(dp=3)

    def tensors(rank):
        yield "a", numpy.ones(1)
        if rank == 1:
            raise KeyError("b")

    for found in audited(mesh, TensorLayout(mesh, "dp"), tensors, False):
        with refused(InputError, "cannot be audited", "KeyError"):
            raise found


def test_ranks_that_tie_differently_are_told():
    mesh = Mesh(pp=2, dp=2)

    def tied(rank):
        return {"a": [[0, 2]]} if rank else None

    for found in audited(mesh, TensorLayout(mesh, "dp", "pp"), lambda rank: {}, False, tied=tied):
        with refused(InputError, "audit differently", "tied"):
            raise found


@pytest.mark.parametrize(
    ("error", "words", "tensors", "layouts"),
    [
        (InputError, ["no TensorLayout for 'a'"], {"a": numpy.ones(1)}, {}),
        (InputError, ["names → tensors", "'a'"], {"a": 3}, None),
        (InputError, ["not 'abc'"], "abc", None),
        (InputError, ["pairs"], [numpy.ones(2)], None),
        (InputError, ["two tensors"], [("a", numpy.ones(1)), ("a", numpy.ones(1))], None),
        (JobError, ["dp=3", "2 ranks"], {"a": numpy.ones(1)}, TensorLayout(Mesh(dp=3), "dp")),
    ],
)
def test_what_cannot_be_audited(error, words, tensors, layouts):
    mesh = Mesh(dp=2)
    layouts = TensorLayout(mesh, "dp") if layouts is None else layouts
    for found in audited(mesh, layouts, lambda rank: tensors, False):
        with refused(error, *words):
            raise found


def test_handles_are_those_of_a_plan():
    def work(reader):
        return Places(reader, [], {"dp": None})

    for found in everywhere(Mesh(dp=2), work):
        with refused(InputError, "open_groups", "leave them out"):
            raise found


def test_without_a_job_there_is_nothing_to_audit(monkeypatch):
    monkeypatch.setattr(engines.sys, "modules", {})
    with refused(JobError, "init_process_group"):
        audit_replicas({}, {})
    with refused(JobError, "engine is one of torch, paddle", "'mpi'"):
        engines.current("mpi")


@given(st.binary(max_size=64), st.lists(st.integers(0, 5), max_size=3), st.sampled_from(["float32", "int64"]))
def test_law_a_checksum_tells_bytes_shapes_and_dtypes_apart(content, shape, dtype):
    one = checksum(dtype, shape, content)
    assert -(2**63) <= one < 2**63
    assert one == checksum(dtype, tuple(shape), bytearray(content))
    assert one != checksum(dtype, [*shape, 1], content)
    assert one != checksum("bfloat16", shape, content)
    assert one != checksum(dtype, shape, content + b"\0")


def test_a_report_says_it_in_a_line_and_raises():
    finding = Finding("copies differ", "norm.weight", ("tp",), [0, 1], [1], 0.25)
    report = AuditReport("replicas", [finding], checked=3, bytes=24, seconds=0.5)
    assert report.line == (
        "replicas: 1 of 3 are wrong (24 bytes, 0.500 s): norm.weight: copies differ along tp by up to 0.25 between"
        " rank 0 and rank 1"
    )
    with refused(AuditError, "norm.weight", findings=[finding.to_dict()]):
        report.raise_if_bad()
    AuditReport("replicas", [], checked=3, bytes=24, seconds=0.5).raise_if_bad()
    assert report.to_dict()["findings"][0]["odd_ranks"] == [1]


def test_an_audit_that_compared_nothing_says_so():
    mesh = Mesh(dp=2, tp=1)
    for report, _ in audited(mesh, TensorLayout(mesh, "tp", (), "dp"), lambda rank: {"a": numpy.ones(1)}, False):
        assert report.ok
        assert report.checked == 0
        assert report.line.startswith("replicas: nothing was compared")
        assert "1 not compared: no other rank has a copy" in report.line
    cut = TensorLayout(Mesh(dp=2, tp=2), (), "tp", "dp")
    for report, _ in audited(cut.mesh, cut, lambda rank: {"a": numpy.ones(1)}, True, ["dp"]):
        assert "1 not compared: the handles have no group along tp" in report.line


def test_values_of_a_batch_that_go_by_one_name_are_refused():
    from rankatlas.audit.batches import _collect

    for batch in ({"a": {"b": 1}, "a.b": 2}, {1: 1, "1": 2}):
        with refused(InputError, "both", "rename a key"):
            _collect(batch, "batch", Reader(World(1), 0), {}, {}, 0)


@pytest.mark.parametrize("name", ["two\nlines", "w" * 100_000, "\x1b[31m"])
def test_the_line_of_a_log_is_one_line_of_bounded_length_whatever_tensors_are_called(name):
    findings = [Finding("missing", name, ("dp",), [0, 1], [1])] * 2
    line = AuditReport("replicas", findings, checked=1, bytes=24, seconds=0.5).line
    assert line.isprintable()
    assert len(line) < 1000
    assert line.startswith("replicas: 2 are wrong (24 bytes")  # of things that others hold, too
