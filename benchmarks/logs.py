"""How fast a configuration is found in a large log, beside reading the same bytes and counting their lines.

    python benchmarks/logs.py --megabytes 200

The log holds training lines, and one block of Megatron-LM's arguments near its beginning. The lower bound is the least
that anybody who says on which line something stands must do. Peak memory is that of the whole process. Processor
time is measured, because the machine may be busy. The exit code is 0 in any case.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rankatlas.dialects import read_config

NOISE = (
    " [2026-01-02 03:04:05] iteration      100/     500 | consumed samples:         6400 | elapsed time per iteration"
    " (ms): 1234.5 | learning rate: 1.0E-05 | global batch size:    64 | lm loss: 9.1E+00 | loss scale: 1.0 |\n"
)
SIZES = {
    "world_size": 64, "tensor_model_parallel_size": 4, "pipeline_model_parallel_size": 2, "data_parallel_size": 8,
    "num_layers": 32, "micro_batch_size": 1, "global_batch_size": 64,
}  # fmt: skip


def written(path: Path, megabytes: int) -> None:
    """The log, of about that size."""
    lines = ["------------------------ arguments ------------------------"]
    lines += [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in SIZES.items()]
    lines += ["-------------------- end of arguments ---------------------", ""]
    with path.open("w", encoding="utf-8") as file:
        file.write(NOISE * 1000 + "\n".join(lines))
        for _ in range(megabytes * 10**6 // len(NOISE) // 1000):
            file.write(NOISE * 1000)


def counted(path: Path) -> int:
    """The lower bound: every byte read, every line counted."""
    with path.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


def seconds(function: Callable[[], object]) -> float:
    """The least processor time of three calls."""
    found = []
    for _ in range(3):
        before = time.process_time()
        function()
        found.append(time.process_time() - before)
    return min(found)


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=200)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "slurm-1.out")
        written(path, asked.megabytes)
        bound = seconds(lambda: counted(path))
        ours = seconds(lambda: read_config(str(path)))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        json.dumps(
            {
                "megabytes": asked.megabytes,
                "seconds": round(ours, 3),
                "seconds of the lower bound": round(bound, 3),
                "ratio": round(ours / bound, 2),
                "peak MiB": round(peak / 1024),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
