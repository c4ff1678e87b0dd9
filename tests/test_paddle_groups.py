"""Our calls against Paddle's CommunicateTopology, one for one, and against the groups fleet builds from our sizes."""

import socket
import sys
from itertools import combinations, product

import pytest

from rankatlas import Mesh, parse_mesh
from rankatlas.creation import CreationPlan
from rankatlas.errors import AxisError, InputError
from refusals import refused
from test_live_groups import HERE, environment, run_all

pytest.importorskip("paddle")

from paddle.distributed.fleet.base.topology import CommunicateTopology

from rankatlas.adapters import paddle_gloo
from rankatlas.adapters.paddle import hybrid_configs, open_groups, to_process_mesh
from rankatlas.adapters.paddle_groups import FLEET_AXES


def test_the_port_of_a_store_is_held_until_the_store_has_it(monkeypatch):
    """Paddle ends the process where somebody else took it meanwhile."""
    taken = []

    def store(host, port, *, serves):
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("", port))
        taken.append(port)
        return real(host, port, serves=serves)

    real = paddle_gloo._store
    monkeypatch.setattr(paddle_gloo, "_store", store)
    port, served = paddle_gloo._served("127.0.0.1")
    assert taken == [port]
    served.set("key", b"there")
    assert real("127.0.0.1", port, serves=False).get("key") == b"there"


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), True, "60", None, 10**7])
def test_seconds_that_are_none_are_refused(seconds):
    with refused(InputError, "seconds to wait"), paddle_gloo.separate_stores(seconds):
        pass


def test_a_backend_that_paddle_does_not_have_is_refused():
    with refused(InputError, "gloo", "not 'zz'"):
        open_groups(CreationPlan("dp=2", ["dp"]), backend="zz")


LAYOUTS = ["pp=2 mp=2", "mp=2 dp=2", "sharding=2 pp=2", "sep=2 mp=2", "dp=2 sep=2"]


def topology_of(mesh):
    """The topology that fleet would make of our configuration, with the names it gives the axes."""
    configs = hybrid_configs(mesh)
    order = configs["order"]
    names = [FLEET_AXES[axis][1] for axis in order]
    return CommunicateTopology(names, [configs[FLEET_AXES[axis][0]] for axis in order])


def lists(groups):
    return [list(ranks) for ranks in groups.ranges()]


def renamed(axes):
    return [FLEET_AXES[axis][1] for axis in axes]


# What Paddle's class is asked → how we answer; the table on the page about groups is this one.
TABLE = {
    "get_hybrid_group_names()": lambda topology, mesh: (
        [name for name in topology.get_hybrid_group_names() if name in renamed(mesh.axes)],
        renamed(mesh.axes),
    ),
    "world_size()": lambda topology, mesh: (topology.world_size(), mesh.world_size),
    "get_dim(axis)": lambda topology, mesh: (
        [topology.get_dim(name) for name in renamed(mesh.axes)],
        [mesh.size(axis) for axis in mesh.axes],
    ),
    "get_dim_size(axis)": lambda topology, mesh: (
        [topology.get_dim_size(name) for name in renamed(mesh.axes)],
        list(mesh.sizes),
    ),
    "get_rank(**coordinate)": lambda topology, mesh: (
        [topology.get_rank(**coordinate) for coordinate in coordinates(topology, mesh)],
        [mesh.rank(**mesh.coordinate(rank)) for rank in mesh.select()],
    ),
    "get_coord(rank)": lambda topology, mesh: (
        [[getattr(topology.get_coord(rank), name) for name in renamed(mesh.axes)] for rank in mesh.select()],
        [list(mesh.coordinate(rank).values()) for rank in mesh.select()],
    ),
    "get_axis_list(axis, index)": lambda topology, mesh: (
        [topology.get_axis_list(*one) for one in zip(renamed(places(mesh)[0]), places(mesh)[1])],
        [list(mesh.select(**{axis: place})) for axis, place in zip(*places(mesh))],
    ),
    "get_comm_list(axis)": lambda topology, mesh: (
        [topology.get_comm_list(name) for name in renamed(mesh.axes)],
        [lists(mesh.groups(axis)) for axis in mesh.axes],
    ),
    # Its groups come in the order of a set of names, so in another one in every process: they are sorted here.
    "get_fused_ranks(axes)": lambda topology, mesh: (
        [sorted(topology.get_fused_ranks(renamed(axes))) for axes in sets(mesh)],
        [lists(mesh.groups(*axes)) for axes in sets(mesh)],
    ),
    "get_rank_from_stage(rank, pipe=stage)": lambda topology, mesh: (
        [topology.get_rank_from_stage(rank, pipe=stage) for rank, stage in stages(mesh)],
        [
            mesh.rank(**{**mesh.coordinate(rank), **({"pp": stage} if "pp" in mesh.axes else {})})
            for rank, stage in stages(mesh)
        ],
    ),
}


def coordinates(topology, mesh):
    return [dict(zip(topology.get_hybrid_group_names(), topology.get_coord(rank))) for rank in mesh.select()]


def places(mesh):
    pairs = [(axis, place) for axis in mesh.axes for place in range(mesh.size(axis))]
    return [axis for axis, _ in pairs], [place for _, place in pairs]


def sets(mesh):
    return [axes for count in range(1, len(mesh.axes) + 1) for axes in combinations(mesh.axes, count)]


def stages(mesh):
    return list(product(mesh.select(), range(mesh.size("pp") if "pp" in mesh.axes else 1)))


@pytest.mark.parametrize("question", TABLE)
@pytest.mark.parametrize(
    "layout",
    [*LAYOUTS, "pp=2 dp=2 mp=2", "sharding=2 mp=2 dp=2", "dp=3 pp=2 sharding=1 sep=2 mp=2", "mp=5", "sharding=2 pp=3"],
)
def test_every_question_of_the_topology_has_one_answer_here(layout, question):
    mesh = parse_mesh(layout)
    theirs, ours = TABLE[question](topology_of(mesh), mesh)
    assert theirs == ours


def test_tp_is_mp_and_axes_of_size_one_may_have_any_name():
    assert hybrid_configs(Mesh(dp=2, tp=4)) == {
        "dp_degree": 2,
        "mp_degree": 4,
        "pp_degree": 1,
        "sharding_degree": 1,
        "sep_degree": 1,
        "order": ["pp", "sharding", "sep", "dp", "mp"],
    }
    assert hybrid_configs(Mesh(tp=2, ep=1, mp=1, pp=2))["order"] == ["dp", "sharding", "sep", "mp", "pp"]


@pytest.mark.parametrize(
    ("error", "words", "given"),
    [
        (AxisError, ["'ep'", "size 2", "open_groups"], Mesh(dp=2, ep=2)),
        (AxisError, ["both"], Mesh(tp=2, mp=2)),
        (InputError, ["begins at 4"], Mesh(dp=2, first_rank=4)),
        (InputError, ["needs a Mesh", "'dp=2'"], "dp=2"),
    ],
)
def test_what_fleet_cannot_express(error, words, given):
    with refused(error, *words):
        hybrid_configs(given)


def test_a_process_mesh_has_our_names_sizes_and_ranks():
    made = to_process_mesh(Mesh(pp=2, mp=3, first_rank=4))
    assert (made.shape, made.dim_names, made.process_ids) == ([2, 3], ["pp", "mp"], [4, 5, 6, 7, 8, 9])
    assert made.get_mesh_with_dim("mp", 1).process_ids == list(Mesh(pp=2, mp=3, first_rank=4).select(mp=1))
    with refused(InputError, "ProcessMesh", "Mesh"):
        to_process_mesh(None)


@pytest.mark.live
def test_fleet_builds_our_groups(tmp_path):
    layouts = [
        "pp=2 mp=2",
        "sharding=2 pp=1 dp=2",
        "mp=2 sep=2",
        "pp=2 dp=2 mp=2",
        "mp=2 sharding=2 sep=2",
        "sep=2 pp=4",
    ]
    command = [sys.executable, str(HERE / "live_fleet.py"), str(tmp_path), *layouts]
    found = run_all([command], [environment(GLOO_SOCKET_IFNAME="lo")], tmp_path, seconds=400)[0]
    assert list(found) == layouts
    for layout, said in found.items():
        for rank, answers in enumerate(said):
            assert answers is not None, (layout, rank, (tmp_path / "stderr0").read_text(errors="replace")[-3000:])
            check_a_rank(parse_mesh(layout), rank, answers)


@pytest.mark.live
def test_a_group_whose_first_member_does_not_come_is_given_up(tmp_path):
    command = [sys.executable, str(HERE / "live_paddle_gloo.py"), str(tmp_path)]
    said = run_all([command], [environment(GLOO_SOCKET_IFNAME="lo")], tmp_path, seconds=90)[0]
    assert [(one["sum"], one["restored"]) for one in said] == [(3, True)] * 2
    assert "first member of group" in said[1]["alone"]
    assert said[1]["seconds"] < 20


def check_a_rank(mesh, rank, said):
    assert said["global rank"] == rank
    place = mesh.coordinate(rank)
    for axis in FLEET_AXES:
        if axis not in said:
            continue
        group = mesh.group(axis, rank=rank) if axis in mesh.axes else mesh.group(rank=rank)
        members = list(group)
        assert said[axis] == [members, members, place.get(axis, 0), len(members)], (mesh, rank, axis)
        assert said[f"{axis} source"] in (members[0], None)
    same_data = [axis for axis in mesh.axes if axis != "dp"]
    assert said["check"] == list(mesh.group(*same_data, rank=rank))
    if "check sharding" in said:
        assert said["check sharding"] == list(
            mesh.group(*[axis for axis in mesh.axes if axis != "sharding"], rank=rank)
        )
    for fused in ("dp+sep", "pp+mp"):
        if fused in said:
            there = [axis for axis in fused.split("+") if axis in mesh.axes]
            assert said[fused] == list(mesh.group(*there, rank=rank))
    chain = list(mesh.group("pp", rank=rank)) if "pp" in mesh.axes else [rank]
    assert said["stages"] == chain
    stage = chain.index(rank)
    assert said["ends"] == [stage == 0, stage == len(chain) - 1]
    if "neighbours" in said:
        assert said["neighbours"] == [chain[stage - 1], chain[(stage + 1) % len(chain)]]
