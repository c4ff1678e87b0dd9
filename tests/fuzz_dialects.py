"""Readers fed with bytes that coverage guides: only our own errors may come out, and each in bounded time.

    python fuzz_dialects.py CORPUS [options of libFuzzer]       (atheris; CORPUS is filled from tests/cases first)

The first byte says under which name the rest is written, because some formats are told by their ending.
"""

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["rankatlas.dialects", "rankatlas.checks", "rankatlas.topology"]):
    from rankatlas.checks import check_job
    from rankatlas.dialects import read_config
    from rankatlas.dialects.writing import write_config

from launch_texts import STYLES
from rankatlas.errors import RankatlasError

NAMES = ("launch.json", "launch.yaml", "launch.toml", "launch.sh", "launch.log", "launch")
FOLDER = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))


def one(data):
    if not data:
        return
    path = FOLDER / NAMES[data[0] % len(NAMES)]
    path.write_bytes(data[1:])
    with contextlib.suppress(RankatlasError):
        job = read_config(str(path), world_size=(None, 8, 64)[data[0] // len(NAMES) % 3])
        check_job(job)
        for to in ("rankatlas", "megatron", "paddle"):
            with contextlib.suppress(RankatlasError):
                write_config(job, to)


def seed(corpus):
    """Every launch of the corpus in the style it came in."""
    cases = json.loads(Path(__file__, "../cases/launches.json").resolve().read_text(encoding="utf-8"))
    for number, case in enumerate(cases):
        write, name = STYLES[case["style"]]
        ending = name.rpartition(".")[2]
        place = next((place for place, known in enumerate(NAMES) if known.endswith(f".{ending}")), len(NAMES) - 1)
        (corpus / f"case{number}").write_bytes(bytes([place]) + write(case["facts"]).encode())


corpus = Path(sys.argv[1])
seed(corpus)
atheris.Setup(sys.argv, one)
atheris.Fuzz()
