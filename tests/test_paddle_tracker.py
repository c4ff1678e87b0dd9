"""The same programs on Paddle's own tracker and on ours draw the same numbers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = 80


@pytest.fixture(scope="module")
def said():
    pytest.importorskip("paddle")
    script = Path(__file__).with_name("paddle_tracker_programs.py")
    command = [sys.executable, "-W", "ignore", str(script), "100", str(PROGRAMS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_the_same_programs_draw_the_same(said):
    for own, again, ours in said["programs"]:
        assert own == again == ours
    assert len(said["programs"]) == PROGRAMS


def test_the_programs_are_worth_comparing(said):
    drawn = [own for own, _, _ in said["programs"]]
    assert sum(map(len, drawn)) >= 1000
    assert sum(row.count("left") for row in drawn) >= 30
    assert len({json.dumps(row) for row in drawn}) == PROGRAMS


def test_set_seed_seeds_what_the_trainers_does(said):
    for by_hand, ours in said["set_seed"]:
        assert by_hand == ours
    assert len({json.dumps(ours) for _, ours in said["set_seed"]}) == 4
