"""Groups on torch: DeviceMesh both ways, FSDP2 and Megatron-core on them, odd histories, and the fake backend."""

import json
import subprocess
import sys

import pytest

from rankatlas import Mesh
from test_live_groups import HERE, environment, run_all

pytest.importorskip("torch")
pytestmark = pytest.mark.live

MESH = Mesh(dp=2, tp=2)


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("groups")
    command = [sys.executable, str(HERE / "live_torch_groups.py"), str(folder)]
    found = run_all([command], [environment(GLOO_SOCKET_IFNAME="lo")], folder, seconds=200)[0]
    assert all(one and "failed" not in one.values() for one in found), (folder / "stderr0").read_text()[-4000:]
    return found


def test_a_device_mesh_holds_our_groups_and_comes_back(said):
    for rank, answers in enumerate(said):
        found = answers["device_meshes"]
        assert found["same"] is found["coordinate"] is True
        assert found["held"] == [True, True]
        assert found["back"] == ["Mesh(dp=2, tp=2)"] * 2
        assert found["slice"] == MESH.group("tp", rank=rank).ranks
        assert "not row-major and without gaps" in found["refused"]
        assert found["one axis"] == "Mesh(dp=4)"


def test_fsdp2_trains_on_our_groups_as_one_process_does(said):
    assert [answers["fsdp"] for answers in said] == [True] * 4


def test_ranks_in_unequally_many_groups_make_all_of_them_together(said):
    for rank, answers in enumerate(said):
        found = answers["histories"]
        assert (found["how"], found["calls"]) == ("every", 4)
        assert found["members"] == [MESH.group(axis, rank=rank).ranks for axis in MESH.axes]
        assert found["described"] == f"tp group {rank // 2} of the plan"
        assert found["inside"] - found["after"] == (3 if rank < 2 else 2)
        assert found["named"] == [[3], True]


def test_an_error_inside_closes_the_groups_and_the_timeout_is_theirs(said):
    assert [answers["failing"] for answers in said] == [[True, 31.0]] * 4


def test_a_whole_model_of_megatron_runs_on_our_groups_alone(said):
    pytest.importorskip("megatron.core")
    for answers in said:
        split, whole = answers["megatron"]
        assert split[:2] == pytest.approx(whole[:2], rel=1e-5)
        assert (split[2], whole[2]) == ([16, 16], [32, 16])


FAKE = """
import json, logging, sys
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from rankatlas import Mesh
from rankatlas.adapters.torch import open_groups, to_device_mesh, from_device_mesh
from rankatlas.creation import CreationPlan, first_and_last

mesh = Mesh(pp=8, dp=64, cp=4, tp=8)
dist.init_process_group("fake", store=FakeStore(), rank=4321, world_size=mesh.world_size)
made = dist.new_group
counted = []
dist.new_group = lambda *given, **options: counted.append(given) or made(*given, **options)
sets = [*mesh.axes, "dp+cp", "pp+tp", "pp+dp+cp+tp"]
with open_groups(CreationPlan(mesh, sets)) as handles:
    print(json.dumps({
        "calls": [len(counted), handles.calls, len(sets)],
        "members": {name: dist.get_process_group_ranks(handles[name]) for name in sets[:-1]},
        "world": handles["pp+dp+cp+tp"] is dist.group.WORLD,
        "skipped": handles.agreement.skipped,
        "mesh": repr(from_device_mesh(to_device_mesh(handles))),
    }))
"""


def test_under_the_fake_backend_16384_ranks_cost_one_call_per_set_of_axes():
    ended = subprocess.run(
        [sys.executable, "-c", FAKE], env=environment(), capture_output=True, text=True, timeout=120, check=True
    )
    found = json.loads(ended.stdout.splitlines()[-1])
    mesh = Mesh(pp=8, dp=64, cp=4, tp=8)
    assert found["calls"] == [6, 6, 7]
    for name, members in found["members"].items():
        assert members == mesh.group(*name.split("+"), rank=4321).ranks, name
    assert found["world"] is True
    assert found["skipped"] == "the store of torch's backend cannot be written"
    assert found["mesh"] == repr(mesh)
