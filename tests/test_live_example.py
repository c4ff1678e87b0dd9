"""The example that catches a mismatch, run as its page says, on the installed megatron-core."""

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from test_live_groups import HERE, environment

pytestmark = pytest.mark.live


def test_a_job_that_hangs_and_the_line_that_says_why(tmp_path):
    if find_spec("megatron") is None:
        pytest.skip("megatron-core is not installed")
    output = tmp_path / "output.txt"
    command = [sys.executable, HERE.parent / "examples/catch_a_mismatch/run.py", "--seconds", "10", "--output", output]
    subprocess.run(command, env=environment(GLOO_SOCKET_IFNAME="lo"), capture_output=True, timeout=140, check=True)
    hanging, caught, mended, where, checked = re.split(r"^[2-5]\. ", output.read_text(), flags=re.MULTILINE)
    assert "8 of 8 processes still wait for each other" in hanging
    assert "7 of 8 agree" in caught
    assert "order is 'tp-cp-ep-pp-dp', elsewhere 'tp-cp-ep-dp-pp'" in caught
    assert re.search(r"^ +rank 5 on ", caught, re.MULTILINE)
    assert "all groups of 8 ranks are made" in mended
    assert "coordinate  pp=1 dp=0 tp=1" in where
    assert "kinds of groups are those of pp=2 dp=2 tp=2" in checked
    assert (tmp_path / "record.json").exists()
