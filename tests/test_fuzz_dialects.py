"""The fuzzer of `fuzz_dialects.py`, for a few seconds; more with another -max_total_time."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from test_live_groups import HERE, environment

SECONDS = 20


def test_no_bytes_bring_anything_but_our_errors(tmp_path):
    if find_spec("atheris") is None:
        pytest.skip("atheris is not installed")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    command = [sys.executable, str(HERE / "fuzz_dialects.py"), str(corpus), f"-max_total_time={SECONDS}", "-timeout=10"]
    done = subprocess.run(
        [*command, "-rss_limit_mb=2048", "-max_len=16384", f"-artifact_prefix={tmp_path}/"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS + 120,
    )
    found = [path.read_bytes()[:500] for path in tmp_path.iterdir() if path.is_file()]
    assert (done.returncode, found) == (0, []), done.stderr[-3000:]
    assert "Done" in done.stderr, done.stderr[-1000:]
