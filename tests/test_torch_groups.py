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
        assert found["charts"] == {"dense": ["Mesh(pp=2, tp=2)", "cpu"], "expert": ["Mesh(pp=2, ep=2, x=1)", "cpu"]}
        assert found["chart held"] is True
        assert found["chart members"] == {
            "pp": [rank % 2, rank % 2 + 2],
            "ep": [rank - rank % 2, rank | 1],
            "x": [rank],
        }


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


DEVICES = """
import json
import torch, torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from rankatlas import Atlas, Mesh
from rankatlas.adapters.torch import open_groups, to_device_mesh
from rankatlas.creation import CreationPlan
from rankatlas.errors import RankatlasError

found = {}
dist.init_process_group("fake", store=FakeStore(), rank=5, world_size=8)
asked = dist.get_backend
atlas = Atlas(dense=Mesh(pp=2, tp=4), expert=Mesh(pp=2, ep=2, x=2), shared=("pp",))
with open_groups(CreationPlan(Mesh(dp=2, tp=4), ["dp", "tp"])) as handles, open_groups(
    CreationPlan(atlas, ["pp", "dense.tp", "expert.ep"])
) as charts:
    for backend in ("nccl", "gloo", "fake", "cpu:gloo,cuda:nccl"):
        dist.get_backend = lambda group=None, backend=backend: backend
        found[backend] = to_device_mesh(handles).device_type
    dist.get_backend = lambda group=None: "nccl"
    found["said"] = to_device_mesh(handles, "cpu").device_type
    found["mesh"] = to_device_mesh(charts, chart="dense").device_type
    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_accelerator = lambda: torch.device("xpu")
    dist.get_backend = lambda group=None: "fake"
    found["accelerator"] = to_device_mesh(handles).device_type
    dist.get_backend = asked
    # Of several backends that of the largest group counts: one rank alone talks to nobody.
    with open_groups(CreationPlan(Mesh(pp=1, dp=8), ["pp", "dp"])) as line:
        dist.get_backend = lambda group=None: "nccl" if dist.get_world_size(group) > 1 else "gloo"
        found["largest"] = to_device_mesh(line).device_type
    for name, make in {
        "atlas": lambda: to_device_mesh(charts),
        "chart": lambda: to_device_mesh(charts, chart="experts"),
        "lacking": lambda: to_device_mesh(charts, chart="expert"),
        "list": lambda: to_device_mesh(charts, chart=["dense"]),
        "no charts": lambda: to_device_mesh(handles, chart="dense"),
        "nothing": lambda: to_device_mesh("dp=8"),
    }.items():
        try:
            make()
        except RankatlasError as error:
            found[name] = str(error)
print(json.dumps(found))
"""


def test_a_device_mesh_lives_where_its_groups_do_and_is_one_chart_of_an_atlas():
    ended = subprocess.run(
        [sys.executable, "-c", DEVICES], env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    devices = {"nccl": "cuda", "gloo": "cpu", "fake": "cpu", "cpu:gloo,cuda:nccl": "cpu"}
    devices |= {"said": "cpu", "mesh": "cuda", "accelerator": "xpu", "largest": "cuda"}
    assert {name: found[name] for name in devices} == devices
    assert found["atlas"] == "a DeviceMesh is one chart of an atlas; chart is one of dense, expert, not None"
    assert found["chart"].endswith("chart is one of dense, expert, not 'experts'")
    assert "no group 'expert.x' in this plan" in found["lacking"]
    assert found["list"].endswith("not ['dense']")
    assert found["no charts"] == "dp=2 tp=4 is a mesh and has no charts; leave chart 'dense' out"
    assert found["nothing"] == "a DeviceMesh is made from a Mesh or from Handles, not from 'dp=8'"
