"""Real processes, real training: 8, killed; 4, killed; 6.  The logs show one sequence of samples."""

import json
import subprocess
import sys

import pytest

from test_live_groups import HERE, environment

pytestmark = pytest.mark.live
SECONDS = 300  # for each of the four runs; their processes share the machine with other tests


def test_a_job_resumed_on_other_layouts_reads_what_one_process_reads(tmp_path):
    pytest.importorskip("torch")
    script = HERE.parent / "examples" / "resume_anywhere" / "run.py"
    done = subprocess.run(
        [sys.executable, str(script), "--seconds", str(SECONDS), "--json"],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=5 * SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout
    facts = json.loads(done.stdout)
    assert facts["samples_read"] == 1200
    assert facts["as_in_the_order"] is facts["as_one_process_reads_them"] is True
    assert facts["twice_in_epoch_0"] == 0
    assert facts["losses_differ_by_at_most"] < 1e-9
