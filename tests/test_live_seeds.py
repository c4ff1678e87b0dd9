"""Real processes: replicas start equal, shards start different, and a live fleet tells the reference's seeds."""

import os
import random
import socket
import sys
from contextlib import suppress
from pathlib import Path

import numpy
import pytest

from rankatlas import Mesh
from rankatlas.seeding import distributed_seeds
from rankatlas.tensors import TensorLayout
from test_live_groups import environment, paddle_environments, run_all

pytestmark = pytest.mark.live

HERE = Path(__file__).resolve().parent


def sharing(values):
    """The sets of ranks that have one value."""
    found = {}
    for rank, value in enumerate(values):
        found.setdefault(str(value), []).append(rank)
    return sorted(found.values())


def replicas(layout):
    return sorted(map(list, layout.mesh.groups(*layout.replicated)))


@pytest.fixture(scope="module")
def torch_said(tmp_path_factory):
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("torch")
    commands = [
        [sys.executable, str(HERE / "live_seeds_torch.py"), str(rank), "8", str(folder / "store")] for rank in range(8)
    ]
    return run_all(commands, [environment(GLOO_SOCKET_IFNAME="lo")] * 8, folder)


MESH = Mesh(pp=2, dp=2, tp=2)
TENSORS = {
    "weight": TensorLayout(MESH, replicated="dp", sharded=("pp", "tp")),
    "norm": TensorLayout(MESH, replicated=("dp", "tp"), sharded="pp"),
    "moment": TensorLayout(MESH, sharded=("tp", "pp", "dp")),
    "embedding": TensorLayout(MESH, replicated=("pp", "dp"), sharded="tp"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_torch_replicas_are_equal_and_shards_differ(torch_said, name):
    for way in ("generator", "tracker"):
        for said in torch_said:  # everybody gathered the same
            assert sharing(said[f"{name} by {way}"]) == replicas(TENSORS[name])
    assert torch_said[0][f"{name} left the rest alone"] == [True] * 8


def test_torch_seeds_everything(torch_said):
    assert sharing(torch_said[0]["everything"]) == sorted(map(list, MESH.groups("tp")))


def test_torch_pieces_put_together_are_one_array_everywhere(torch_said):
    for said in torch_said:
        assert said["invariant"] == [said["invariant alone"]] * 8


def test_torch_states_go_through_a_checkpoint_of_all_ranks(torch_said):
    assert torch_said[0]["resumed"] == [True] * 8
    assert torch_said[0]["states"] == [1, 0] * 4  # one of two tensor ranks writes


def steady_ports(count):
    """Free ports below those the kernel hands out: gloo is handed some for every group, and must not get these."""
    found = []
    for port in range(10_000 + os.getpid() * 101 % 15_000, 32_000):
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free ports")


@pytest.mark.parametrize(
    ("degrees", "axes"),
    [
        (("mp_degree=2", "pp_degree=2"), {"pp": 2, "mp": 2}),
        (("dp_degree=2", "sharding_degree=2"), {"dp": 2, "sharding": 2}),
    ],
    ids=" ".join,
)
def test_paddle_seeds_itself_from_its_live_fleet(tmp_path, degrees, axes):
    pytest.importorskip("paddle")
    master, *ports = steady_ports(64)
    environments = paddle_environments(master, ports[:4], STORE_PORTS=",".join(map(str, ports[4:])))
    commands = [[sys.executable, str(HERE / "live_seeds_paddle.py"), *degrees]] * 4
    told = run_all(commands, environments, tmp_path)
    mesh = Mesh(**axes)
    for rank, said in enumerate(told):
        assert said["rank"] == rank
        assert {item for item in said["mesh"].split() if not item.endswith("=1")} == set(str(mesh).split())
        expected = list(distributed_seeds(42, mesh, rank=rank))
        assert said["set_seed"] == said["live"] == expected
        host = expected[2]
        assert said["drawn"][1:] == [random.Random(host).random(), numpy.random.RandomState(host).random()]
    # The framework draws alike exactly where the global seed is alike; the local stream is everybody's own.
    assert sharing(said["drawn"][0] for said in told) == sharing(said["set_seed"][0] for said in told)
    assert sharing(said["global_seed"] for said in told) == sharing(said["set_seed"][0] for said in told)
    assert sharing(said["local_seed"] for said in told) == [[0], [1], [2], [3]]
    model = [axis for axis in mesh.axes if axis in ("mp", "pp")]
    for name, sharded in {"weight": model, "norm": ["pp"], "moment": mesh.axes}.items():
        same = [axis for axis in mesh.axes if axis not in sharded]
        for said in told:
            assert sharing(said[f"{name} weights"]) == sorted(map(list, mesh.groups(*same))), name
