"""Train on 8 processes, go on with 4, finish with 6, each time after a crash; then prove from logs what was read."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rankatlas import parse_mesh
from rankatlas.sampling import Order

HERE = Path(__file__).resolve().parent
SAMPLES, GLOBAL_BATCH, UNTIL = 1000, 24, 50
RUNS = [("dp=4 tp=2", 13), ("dp=2 tp=2", 28), ("dp=3 tp=2", -1)]  # layout, the step in which it dies


def run(notation, folder, log, dies_in, seconds):
    """Start every rank; when one ends badly end the others, as a launcher does.  Whether all ended well."""
    command = [sys.executable, str(HERE / "train.py"), notation, str(folder), log, str(UNTIL), str(dies_in)]
    processes, ends = [], time.monotonic() + seconds
    for rank in range(parse_mesh(notation).world_size):
        with (folder / f"{log}.rank{rank}.err").open("w") as errors:
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "RANK": str(rank)}
            processes.append(subprocess.Popen(command, env=environment, stderr=errors))
    try:
        while True:
            codes = [process.poll() for process in processes]
            if any(codes) or None not in codes:
                return not any(codes)
            if time.monotonic() > ends:
                raise TimeoutError(f"{notation} did not end within {seconds} s")
            time.sleep(0.05)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def lines_of(folder, log):
    """What the ranks of one run wrote, rank by rank."""
    files = sorted(folder.glob(f"{log}.rank*.jsonl"), key=lambda path: int(path.name.split("rank")[1].split(".")[0]))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in files]


def errors_of(folder, log):
    """What the ranks of one run complained about."""
    return "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob(f"{log}.rank*.err")))


def sequence(logs, first, stop):
    """The samples of the steps from `first` to before `stop` in the order of the micro-steps and data ranks.

    Ranks of one data rank must have read the same.
    """
    by_data_rank = {}
    for lines in logs:
        read = [line for line in lines if "samples" in line and first <= line["step"] < stop]
        mine = by_data_rank.setdefault(read[0]["data_rank"], read)
        assert mine == read, "ranks that share a data rank read different samples"
    return [
        sample
        for micro_step in zip(*(by_data_rank[rank] for rank in sorted(by_data_rank)))
        for line in micro_step
        for sample in line["samples"]
    ]


def losses(logs, first, stop):
    """step → loss, as rank 0 has it."""
    return {line["step"]: line["loss"] for line in logs[0] if "loss" in line and first <= line["step"] < stop}


def main():
    """Run, resume, prove; exit code 0 when everything is as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="for each run")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        read, seen, told, start = [], {}, [], 0
        for place, (notation, dies_in) in enumerate(RUNS):
            log, world = f"run{place}", parse_mesh(notation).world_size
            well = run(notation, folder, log, dies_in, options.seconds)
            assert well == (dies_in < 0), f"{notation} did not end as it should\n{errors_of(folder, log)}"
            stop = dies_in // 5 * 5 if dies_in >= 0 else UNTIL  # the last checkpoint
            logs = lines_of(folder, log)
            reached = [any("samples" in line and line["step"] == stop - 1 for line in lines) for lines in logs]
            assert reached == [True] * world, f"{notation} has no logs up to step {stop}\n{errors_of(folder, log)}"
            read += sequence(logs, start, stop)
            seen |= losses(logs, start, stop)
            end = f"killed inside step {dies_in}, checkpoint of step {stop}" if dies_in >= 0 else "finished"
            told.append(f"{place + 1}. {world} processes, {notation}: from step {start}, {end}")
            start = stop
        (folder / "checkpoint.pt").unlink()
        assert run("dp=1", folder, "alone", -1, options.seconds), errors_of(folder, "alone")
        alone = lines_of(folder, "alone")
        expected = []
        per_epoch = SAMPLES // GLOBAL_BATCH * GLOBAL_BATCH
        for place in range(UNTIL * GLOBAL_BATCH):
            epoch, position = divmod(place, per_epoch)
            expected.append(Order(SAMPLES, 7, epoch)(position))
        by_itself = losses(alone, 0, UNTIL)
        facts = {
            "samples_read": len(read),
            "as_in_the_order": read == expected,
            "as_one_process_reads_them": read == sequence(alone, 0, UNTIL),
            "twice_in_epoch_0": per_epoch - len({*read[:per_epoch]}),
            "losses_differ_by_at_most": max(abs(seen[step] - by_itself[step]) for step in range(UNTIL)),
        }
    good = facts["as_in_the_order"] and facts["as_one_process_reads_them"] and not facts["twice_in_epoch_0"]
    good = good and facts["losses_differ_by_at_most"] < 1e-9
    if options.json:
        print(json.dumps(facts))
    else:
        print("\n".join(told))
        first, second = ("" if facts[name] else "NOT " for name in ("as_in_the_order", "as_one_process_reads_them"))
        print(f"{len(read):,} samples in {UNTIL} steps: {first}those of the global order,")
        print(f"{second}the sequence that one process reads alone,")
        print(f"{facts['twice_in_epoch_0']} read twice in an epoch;")
        close = facts["losses_differ_by_at_most"] < 1e-9
        print(f"the loss of every step is {'' if close else 'NOT '}that of one process alone, to nine digits")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
