"""One contract for every engine that opens groups: the same functions in real processes of torch and of Paddle."""

import sys

import pytest

from rankatlas import Mesh
from rankatlas.creation import neighbours
from test_live_groups import HERE, environment, run_all

pytestmark = pytest.mark.live
PARTS = 8  # of live_contract.py
MESHES = {4: Mesh(pp=2, mp=2), 8: Mesh(pp=2, dp=2, mp=2)}


def devices():
    """How many devices torch sees."""
    torch = pytest.importorskip("torch")
    return torch.cuda.device_count()


@pytest.fixture(scope="module", params=[("torch", 4), ("torch", 8), ("paddle", 4), ("paddle", 8), ("nccl", 4)], ids=str)
def job(request, tmp_path_factory):
    """(engine, world, what every rank said), each job started once for all tests."""
    engine, world = request.param
    if engine == "nccl" and devices() < world:
        pytest.skip(f"groups over nccl need {world} devices")
    pytest.importorskip("torch" if engine == "nccl" else engine)
    folder = tmp_path_factory.mktemp(f"{engine}{world}")
    command = [sys.executable, str(HERE / "live_contract.py"), engine, str(world), str(folder)]
    said = run_all([command], [environment(GLOO_SOCKET_IFNAME="lo")], folder, seconds=200)[0]
    assert all(one and len(one) == PARTS for one in said), (folder / "stderr0").read_text(errors="replace")[-6000:]
    return engine, world, said


def each(job, part):
    return [(rank, answers[part]) for rank, answers in enumerate(job[2])]


def test_groups_have_the_right_members_in_the_right_order(job):
    mesh = MESHES[job[1]]
    for rank, said in each(job, "every_family"):
        assert len(said["found"]) == len({*mesh.axes, *said["found"]}) >= len(mesh.axes) + 1
        for name, (by_sum, by_gather) in said["found"].items():
            assert by_sum == by_gather == list(mesh.group(*name.split("+"), rank=rank)), (rank, name)
        assert said["reordered"] is True
        assert said["verified"] == mesh.world_size
        assert said["value"] == mesh.group("pp", rank=rank).ranks


def test_creation_calls_are_counted_and_few(job):
    engine, world, _ = job
    sets = len(MESHES[world].axes) + (3 if world == 8 else 1)
    for _, said in each(job, "every_family"):
        own, one_by_one = said["planned"]
        handles, counted = said["calls"]
        assert handles == counted == (one_by_one if engine == "paddle" else own)
        assert own < sets  # the whole world needs none
        assert said["how"] == ("every" if engine == "paddle" else "own")


def test_groups_open_again_after_they_were_closed(job):
    assert all(said == [True] * 4 for _, said in each(job, "again"))


def test_axes_of_size_one_and_the_whole_world_cost_one_call_at_most(job):
    for rank, said in each(job, "ranks_alone"):
        assert said == {"found": {"cp": [rank], "dp": list(range(job[1])), "mp": [rank]}, "calls": 1}


def test_uneven_sets_and_what_is_opened_after_them(job):
    world = job[1]
    mesh, pairs = MESHES[world], neighbours(Mesh(pp=world // 2, mp=2))
    for rank, said in each(job, "uneven"):
        assert said["ends"] == ([0, world - 1] if rank in (0, world - 1) else None)
        assert said["one"] == ([1] if rank == 1 else None)
        assert said["pairs"] == [pair for pair in pairs if rank in pair] != []
        assert ("refused" in said) == (rank not in (0, world - 1))
        assert said["later"] == [list(mesh.group(axis, rank=rank)) for axis in mesh.axes]
        # Ranks are in unequally many groups by now, so members alone could not name a group alike.
        assert said["how"] == "every"
        assert said["verified"] == []
        assert said["strange"] == [[0, world - 1], None]


def test_charts_share_what_they_have_in_common(job):
    half = job[1] // 2
    for rank, said in each(job, "charts"):
        assert said["same"] is True
        stage = list(range(half)) if rank < half else list(range(half, 2 * half))
        expected = {"pp": [rank % half, rank % half + half], "dense.tp": stage, "expert.ep": stage}
        assert said["found"] == {**expected, **({"pool.t": [0, 1]} if rank < 2 else {})}
        assert said["how"] == ["own", "own", "every" if half == 2 else "own"]


def test_a_rank_with_another_plan_is_named_before_any_group_is_made(job):
    for _, said in each(job, "disagreement"):
        assert said["odd"] == [0]
        assert "extra.axes is ['pp', 'mp'], elsewhere ['mp', 'pp']" in said["text"]
        assert said["calls"] == 0
        assert "extra.partial.ends is [[0, 1]], elsewhere [[0, 2]]" in said["partial"]
        assert "extra.plan" not in said["partial"]


def findings(said):
    return [(one["name"], one["kind"], one["axes"], one["ranks"], one["odd_ranks"]) for one in said["findings"]]


@pytest.mark.parametrize("way", ["groups", "world"])
def test_audits_name_the_odd_ranks_and_by_how_much(job, way):
    world = job[1]
    mesh = MESHES[world]
    copied = [axis for axis in mesh.axes if axis != "pp"]  # along which the norm is a copy
    group = list(mesh.group(*copied, rank=1).ranks)
    for rank, said in each(job, "audits"):
        told = {name.rpartition(",")[0]: one for name, one in said.items() if name.endswith(way)}
        assert told["fine"]["ok"]
        sees = rank in group or way == "world"
        amounts = {"differs": 0.25, "sign of zero": None, "shape": None}
        kinds = {"differs": "copies differ", "sign of zero": "copies differ", "shape": "shapes differ"}
        for name, amount in amounts.items():
            assert findings(told[name]) == ([("norm", kinds[name], copied, group, [1])] if sees else []), (rank, name)
            assert [one["amount"] for one in told[name]["findings"]] == [amount] * sees
            assert told[name]["ok"] is False  # one verdict, also where nothing is seen
        lacks = [("more", "missing", copied, group, [1])]
        assert findings(told["missing"]) == (lacks if sees else [])
        # Ranks 1 and 3 of 4 hold the same shard; with a data axis those of each of its groups do.
        equal = findings(told["equal shards"])
        assert equal
        for name, kind, axes, ranks, odd in equal:
            assert (name, kind, axes) == ("weight", "shards equal", ["pp", "mp"])
            assert odd == [one for one in ranks if mesh.coordinate(one)["mp"]]  # all of them share one value
        assert told["fine"]["notes"] == []


@pytest.mark.parametrize("way", ["groups", "world"])
def test_tied_copies_are_held_against_each_other(job, way):
    mesh = MESHES[job[1]]
    for rank, said in each(job, "audits"):
        assert said[f"tied fine, {way}"]["ok"]
        ends = list(mesh.group("pp", rank=rank).ranks)
        seen = findings(said[f"tied differs, {way}"])
        assert ("table", "copies differ", [], ends, ends[1:]) in seen
        assert len(seen) == (1 if way == "groups" else mesh.world_size // 2)


def test_an_audit_stops_who_asks_for_it(job):
    world = job[1]
    for _, said in each(job, "audits"):
        message, count = said["raised"]
        assert count == 1
        odd = ", ".join(map(str, range(1, world)))
        axes = "+".join(MESHES[world].axes)
        assert f"scale: copies differ along {axes} by up to {world - 1} between rank 0 and ranks {odd}" in message


def test_batches_are_the_same_where_they_must_be(job):
    mesh = MESHES[job[1]]
    readers = list(mesh.group("pp", "mp", rank=2).ranks)
    for rank, said in each(job, "audits"):
        fine, bad = said["batches"]
        assert fine["ok"]
        assert fine["line"].startswith("batches: 2 compared, all as they should be")
        copies = [one for one in findings(bad) if one[1] == "copies differ"]
        assert copies == ([("batch.ids", "copies differ", ["pp", "mp"], readers, [2])] if rank in readers else [])


def test_random_states_are_audited_without_drawing(job):
    engine, world, _ = job
    mesh = MESHES[world]
    for rank, said in each(job, "random_states"):
        assert said["fine"]["ok"] is said["no layout"]["ok"] is True
        assert bool(said["fine"]["notes"]) == (engine == "paddle")
        pair = list(mesh.group("mp", rank=1).ranks)
        expected = [("global", "copies differ", ["mp"], pair, [1])]
        assert findings(said["drew"]) == expected, rank
        met = said["met"]["findings"]
        assert [one["kind"] for one in met] == ["streams equal"]
        assert sorted(met[0]["name"].split(" and ")) == ["local", "third"]
        assert met[0]["odd_ranks"] == list(range(world))
