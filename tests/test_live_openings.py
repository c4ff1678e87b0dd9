"""Openings that failed before, audits of ranks that disagree, handles that are closed: four real processes."""

import json
import subprocess
import sys

import pytest

from test_live_groups import HERE, environment, run_all

pytest.importorskip("torch")
pytestmark = pytest.mark.live

WORLD = [0, 1, 2, 3]


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("openings")
    command = [sys.executable, str(HERE / "live_openings.py"), str(folder)]
    found = run_all([command], [environment(GLOO_SOCKET_IFNAME="lo")], folder, seconds=150)[0]
    assert all(one and "failed" not in one.values() for one in found), (folder / "stderr0").read_text()[-4000:]
    return found


def test_a_failed_or_late_opening_leaves_the_next_one_as_good_as_new(said):
    for rank, answers in enumerate(said):
        found = answers["retries"]
        if rank != 2:
            assert found["late"][0] == "RankSilent"
        here = ["own", [0, 1] if rank < 2 else [2, 3], [rank % 2, rank % 2 + 2]]
        assert found["then"] == [here, here]


def test_closed_handles_stand_for_nothing(said):
    for answers in said:
        for kind, text in answers["closed"]:
            assert kind == "HandleError"
            assert "closed" in text
        assert answers["torn_down"][0] == "HandleError"
        assert "torn down" in answers["torn_down"][1]


@pytest.mark.parametrize("part", ["missing world", "missing groups", "streams"])
def test_every_rank_reports_what_one_lacks(said, part):
    for answers in said:
        ok, kinds, line = answers["audits"][part]
        assert (ok, kinds) == (False, ["missing"])
        assert "missing" in line
        assert f"rank 1 of {WORLD}" in line


def test_every_rank_reports_what_a_batch_lacks(said):
    assert [answers["audits"]["batches"][:2] for answers in said] == [[False, ["missing"]]] * 4


@pytest.mark.parametrize("part", ["layouts world", "layouts groups"])
def test_layouts_that_differ_by_rank_are_a_finding(said, part):
    for answers in said:
        assert answers["audits"][part][:2] == [False, ["layouts differ"] * 2]


@pytest.mark.parametrize(
    ("part", "kind", "rank", "word"),
    [
        ("sparse world", "InputError", 2, "sparse"),
        ("sparse groups", "InputError", 2, "sparse"),
        ("a set", "InputError", 1, "set"),
        ("no group", "HandleError", 0, "along dp"),
    ],
)
def test_what_one_rank_refuses_is_an_error_on_all_that_names_it(said, part, kind, rank, word):
    for at, answers in enumerate(said):
        found = answers["audits"][part]
        assert found[0] == kind
        assert word in found[1]
        assert (f"rank {rank} cannot be audited" in found[1]) is (at != rank)


def test_handles_on_some_ranks_only_are_refused_on_all(said):
    for answers in said:
        assert answers["audits"]["handles on some"][0] == "InputError"
        assert "[1, 2, 3]" in answers["audits"]["handles on some"][1]


def test_a_difference_that_numbers_do_not_show_is_told(said):
    expected = {"zero": "(in the sign of a zero)", "nan": "(in the bits of a NaN)", "float4": "by its bits only"}
    expected |= dict.fromkeys(("phase", "int64", "uint64", "bool", "float"), "by up to 1 on rank 1")
    for answers in said:
        for name, words in expected.items():
            assert words in answers["kinds"][name]
        for name in ("nested", "quantized"):
            assert answers["kinds"][name][0] == "InputError"
            assert name in answers["kinds"][name][1]


def test_unusable_arguments_are_named(said):
    words = ["DeviceMesh, not None", "not 0", "not datetime.timedelta(0)", "options name 'zz'"]
    words += ["gloo", "not 'cpu:zz'"]
    for answers in said:
        for (kind, text), word in zip(answers["refusals"], words, strict=True):
            assert kind == "InputError"
            assert word in text


FAKE = """
import json
import torch, torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from rankatlas import Mesh
from rankatlas.adapters.torch import open_groups
from rankatlas.creation import CreationPlan
from rankatlas.errors import JobError

dist.init_process_group("fake", store=FakeStore(), rank=5, world_size=8)
said = []
for mesh in (Mesh(dp=16), Mesh(dp=4), Mesh(dp=2, tp=8)):
    try:
        open_groups(CreationPlan(mesh, mesh.axes))
    except JobError as error:
        said.append(str(error))
print(json.dumps(said))
"""


def test_the_fake_backend_takes_layouts_of_its_own_world_only():
    ended = subprocess.run(
        [sys.executable, "-c", FAKE], env=environment(), capture_output=True, text=True, timeout=120, check=True
    )
    found = json.loads(ended.stdout.splitlines()[-1])
    assert len(found) == 3
    assert all("this job has 8" in text for text in found)
