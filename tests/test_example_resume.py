"""examples/resume_anywhere without its processes: what it says of a run that went wrong."""

import runpy
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "examples" / "resume_anywhere" / "run.py"


@pytest.mark.parametrize("logged", [None, "", '{"step": 0, "data_rank": 0, "samples": [1, 2]}\n'])
def test_ranks_that_die_before_their_time_are_heard(monkeypatch, logged):
    example = runpy.run_path(str(SCRIPT))

    def died_at_once(notation, folder, log, dies_in, seconds):
        for rank in range(8):
            (folder / f"{log}.rank{rank}.err").write_text(f"rank {rank} found no port\n")
            if logged is not None:
                (folder / f"{log}.rank{rank}.jsonl").write_text(logged)
        return False

    monkeypatch.setitem(example["main"].__globals__, "run", died_at_once)
    monkeypatch.setattr(sys, "argv", ["run.py"])
    with pytest.raises(AssertionError, match="no logs up to step 10") as caught:
        example["main"]()
    assert "rank 7 found no port" in str(caught.value)
