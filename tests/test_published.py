"""Layouts that worked and were published: none may have an error, and nearly all nothing at all."""

import pytest

from launch_texts import STYLES
from published import POINTS, checked, summary
from rankatlas.checks import check_job
from rankatlas.dialects import read_config
from test_launches import CASES


def test_no_published_layout_has_an_error():
    wrong = {
        point["id"]: [finding.message for finding in findings if finding.severity == "error"]
        for point, findings in checked()
    }
    assert {name: messages for name, messages in wrong.items() if messages} == {}


def test_what_is_found_is_known():
    """Counted, so that a check that begins to complain about working layouts is seen."""
    told = summary()
    assert (told["points"], told["checked"]) == (len(POINTS), 350)
    assert told["found"] == {
        ("note", "RA133"): 1,  # one micro-batch on two stages
        ("note", "RA191"): 3,  # gloo groups of 1,120 ranks and more
        ("warning", "RA172"): 1,  # tp=16 on nodes of 8
    }
    assert told["clean"] == 345


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_public_launch_is_fine(tmp_path, case):
    write, name = STYLES[case["style"]]
    path = tmp_path / name
    path.write_text(write(case["facts"]), encoding="utf-8")
    findings = check_job(read_config(str(path), case.get("format"), world_size=case.get("world")))
    assert [finding.message for finding in findings if finding.severity != "note"] == []
