"""What no framework promises: the registries in which torch and Paddle keep their groups.

Both are private.  These tests fail on the first release that keeps its groups elsewhere, and name the release.
"""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from rankatlas.errors import JobError
from test_live_groups import environment

LOOK = """
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from rankatlas.live.jobs import current_job
dist.init_process_group("fake", store=FakeStore(), rank=5, world_size=8)
dist.new_group([5, 4], group_desc="mine")
dist.new_group([0, 1], group_desc="not mine")
dist.new_group([1, 5, 7], use_local_synchronization=True)
print([(one["description"], one["ranks"], one["number"]) for one in current_job("torch").groups()])
"""


@pytest.mark.live
def test_torch_keeps_its_groups_where_we_look():
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", LOOK], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == (
        "[('default_pg', [0, 1, 2, 3, 4, 5, 6, 7], 0), ('mine', [4, 5], 1), ('undefined', [1, 5, 7], None)]"
    )


def test_a_torch_that_keeps_them_elsewhere(monkeypatch):
    torch = pytest.importorskip("torch")
    from rankatlas.adapters import torch_job

    job = torch_job.TorchJob.__new__(torch_job.TorchJob)
    for world in (SimpleNamespace(_world=SimpleNamespace()), SimpleNamespace()):
        monkeypatch.setattr(torch_job, "distributed_c10d", world)
        with pytest.raises(
            JobError, match=f"torch {torch.__version__.replace('+', '.')} keeps its groups where nobody"
        ):
            job.groups()


def test_a_paddle_that_keeps_them_elsewhere(monkeypatch):
    paddle = pytest.importorskip("paddle")
    from rankatlas.adapters import paddle_job

    job = paddle_job.PaddleJob.__new__(paddle_job.PaddleJob)
    job.rank, job.world_size = 0, 4
    monkeypatch.setattr(paddle_job, "collective", SimpleNamespace())
    version = paddle.version.full_version
    with pytest.raises(JobError, match=f"Paddle {version} keeps its groups where nobody looks yet"):
        job.groups()
    with pytest.raises(JobError, match=f"Paddle {version} keeps its store where nobody looks yet"):
        job.store()
