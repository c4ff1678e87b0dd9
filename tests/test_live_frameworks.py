"""Frameworks as they are installed, in real processes: their own words agreed on, their own groups recorded.

They are not in the environment of the other tests, because together they bring a hundred packages; `make
test-frameworks` makes one that has them.
"""

import functools
import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec

import pytest

from test_live_groups import HERE, environment, free_ports, paddle_environments, run_all

pytestmark = pytest.mark.live

# Framework → the module that must be there.
ON_TORCH = {
    "accelerate": "accelerate",
    "fsdp2": "torch",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
}


def needs(module):
    """Skip where the package is not installed; one that is and cannot be imported is a failure."""
    package = module.partition(".")[0]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


@functools.cache
def answers_of(framework):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(HERE / "live_frameworks_torch.py"), folder, framework],
            env=environment(GLOO_SOCKET_IFNAME="lo"),
            capture_output=True,
            text=True,
            timeout=200,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert all(None not in answers for answers in said["answers"].values()), done.stderr[-3000:]
    return said


@pytest.fixture(params=list(ON_TORCH))
def said(request):
    needs(ON_TORCH[request.param])
    return {"framework": request.param, **answers_of(request.param)}


class TestOnTorch:
    def test_a_rank_with_another_configuration_is_named_on_every_rank(self, said):
        for answers in said["answers"].values():
            for rank, one in enumerate(answers):
                assert (one["mismatch"]["odd_ranks"], one["mismatch"]["rank"]) == ([2], rank)
                assert f"{len(answers) - 1} of {len(answers)} agree" in one["mismatch"]["text"]

    def test_every_kind_is_mapped(self, said):
        for answers in said["answers"].values():
            for one in answers:
                assert one["unexplained"] == []
                assert None not in one["kinds"].values()
            assert len({json.dumps(one["kinds"]) for one in answers}) == 1

    def test_the_layout_is_found_with_the_names_of_the_framework(self, said):
        for name, answers in said["answers"].items():
            wanted = said["layouts"][name]
            if said["framework"] == "deepspeed":  # its groups have no names
                wanted = wanted.replace("pipe", "axis3").replace("data", "axis2").replace("model", "axis1")
            assert [one["notation"] for one in answers] == [wanted] * len(answers)

    def test_verify_passes_and_fails_rightly(self, said):
        for answers in said["answers"].values():
            assert [one["verified"] for one in answers] == [None] * len(answers)
            faults = [one["wrong"] for one in answers]
            assert len({json.dumps(fault) for fault in faults}) == 1
            assert faults[0]["given"] != faults[0]["expected"]

    def test_what_differs_is_told_in_the_words_of_the_framework(self, said):
        words = {
            "accelerate": "dp_shard_size is 4, elsewhere 2",
            "fsdp2": "dp_shard is 4, elsewhere 2",
            "torchtitan": "dp_shard is 4, elsewhere 2",
            "deepspeed": "axes is ['pipe', 'model', 'data'], elsewhere ['pipe', 'data', 'model']",
        }
        first = next(iter(said["answers"].values()))
        assert words[said["framework"]] in first[0]["mismatch"]["text"]


@pytest.fixture
def lightning(tmp_path):
    """Runs a job of four ranks, or of one, under one of the two packages."""
    needs("lightning")

    def run(job, world=4, package="lightning.pytorch"):
        (port,) = free_ports(1)
        environments = [
            environment(
                GLOO_SOCKET_IFNAME="lo",
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                GROUP_RANK="0",
                WORLD_SIZE=str(world),
                LOCAL_WORLD_SIZE=str(world),
                TORCHELASTIC_RUN_ID="test",
            )
            for rank in range(world)
        ]
        command = [sys.executable, str(HERE / "live_frameworks_lightning.py"), package, job]
        return run_all([command] * world, environments, tmp_path, 240)

    return run


class TestLightning:
    @pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
    def test_data_parallel(self, lightning, package):
        needs(package)
        for answers in lightning("ddp", package=package):
            assert (answers["error"], answers["steps"]) == (None, 2)
            assert answers["is a Callback"]
            assert answers["agreed"] == 4
            assert answers["kinds"] == {"default_pg": "world"}

    def test_a_device_mesh(self, lightning):
        for answers in lightning("parallel"):
            assert (answers["error"], answers["steps"]) == (None, 2)
            assert answers["layout"] == "data_parallel=2 tensor_parallel=2"
            assert answers["kinds"] == {
                "default_pg": "world",
                "mesh_data_parallel": "data_parallel",
                "mesh_tensor_parallel": "tensor_parallel",
            }

    def test_a_rank_with_another_layout_ends_the_job_before_its_first_step(self, lightning):
        for answers in lightning("mismatch"):
            assert (answers["error"], answers["steps"], answers["odd_ranks"]) == ("LayoutMismatch", 0, [2])
            assert "elsewhere 'data_parallel tensor_parallel'" in answers["text"]

    def test_groups_that_are_not_the_expected_ones(self, lightning):
        for answers in lightning("wrong"):
            assert (answers["error"], answers["steps"]) == ("GroupMismatch", 0)
            assert answers["kind"] == "mesh_data_parallel"
            assert (answers["given"], answers["expected"]) == ([0, 2], [0, 1])

    def test_a_job_of_one_process_is_left_alone(self, lightning):
        (answers,) = lightning("alone", 1)
        assert (answers["error"], answers["steps"], answers["agreed"], answers["layout"]) == (None, 2, None, None)


@pytest.fixture(scope="module")
def paddleformers(tmp_path_factory):
    """What four ranks say whose Trainer is PaddleFormers', job by job."""
    needs("paddleformers")
    master, *ports = free_ports(5)
    command = [sys.executable, str(HERE / "live_frameworks_paddleformers.py")]
    folder = tmp_path_factory.mktemp("paddleformers")
    return run_all([command] * 4, paddle_environments(master, ports), folder, 180)  # half a minute of it are imports


class TestPaddleFormers:
    def test_the_trainers_own_arguments(self, paddleformers):
        for answers in (said["fine"] for said in paddleformers):
            assert answers["error"] is None
            assert answers["is a TrainerCallback"]
            assert answers["agreed"] == 4
            assert answers["fields"]["tensor_model_parallel_size"] == 2
            assert answers["layout"] == "dp=2 mp=2"
            assert answers["kinds"]["model_parallel"] == "mp"
            assert answers["kinds"]["data_parallel"] == "dp"
            assert None not in answers["kinds"].values()

    def test_a_rank_with_other_arguments(self, paddleformers):
        for answers in (said["mismatch"] for said in paddleformers):
            assert (answers["error"], answers["odd_ranks"]) == ("LayoutMismatch", [2])
            assert "seed is 7, elsewhere 42" in answers["text"]

    def test_groups_that_are_not_the_expected_ones(self, paddleformers):
        for answers in (said["wrong"] for said in paddleformers):
            assert answers["error"] == "GroupMismatch"
            assert answers["given"] != answers["expected"]
