"""Records of real Paddle jobs whose groups fleet made, in layouts with every axis that fleet has."""

import sys

import pytest

from test_live_groups import HERE, environment, run_all

pytest.importorskip("paddle")
pytestmark = pytest.mark.live

FLEET = {
    "dense: sharding=4; expert: moe_sharding=2 ep=2": {
        "expert_parallel": "expert.ep",
        "moe_sharding_parallel": "expert.moe_sharding",
        "sharding_parallel": "dense.sharding",
    },
    "sep=2 mp=2": {"sep_parallel": "sep", "model_parallel": "mp", "data_sep_parallel": "sep"},
    "mp=2 pp=2": {"pipe_parallel": "pp", "model_parallel": "mp"},
    "sharding=2 dp=2": {"sharding_parallel": "sharding", "data_parallel": "dp"},
    "pp=2 dp=2 mp=2": {"pipe_parallel": "pp", "data_parallel": "dp", "model_parallel": "mp"},
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """What four ranks say of every layout that Paddle's fleet made the groups of."""
    folder = tmp_path_factory.mktemp("fleet")
    command = [sys.executable, str(HERE / "live_record_paddle.py"), str(folder), *FLEET]
    return run_all([command], [environment(GLOO_SOCKET_IFNAME="lo")], folder, seconds=400)[0]


@pytest.mark.parametrize("layout", FLEET)
def test_fleet(fleet, layout):
    assert None not in fleet[layout]
    for answers in fleet[layout]:
        assert (answers["notation"], answers["unexplained"], answers["verified"]) == (layout, [], None)
        axes = {name: kind[0] for name, kind in answers["kinds"].items()}
        assert None not in axes.values()
        assert FLEET[layout].items() <= axes.items()
        assert answers["wrong"]["others"] or answers["wrong"]["kind"]
