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

# What the corpus has little of: everything that a script can do to a value.
SCRIPTS = (
    """A=(--num-layers 8); A+=(--seq-length 4096)
    if [ $X ]; then A+=(--bf16); fi; TP=${TP:-2}; ((TP*=2)); let PP=$TP/2
    ( TP=8; { export B="$B --fp16"; } ); case $M in 7b) TP=4;; *) exit;; esac
    CMD="torchrun --nproc_per_node 8 x.py --tensor-model-parallel-size $TP ${A[@]} 'a b' $(cat x)"
    eval "$CMD" 2>&1""",
    """#!/bin/bash
#SBATCH --nodes=2
cat <<EOF > x
$A
EOF
    f() { local N=1; eval "$2"; }
    for i in 1 2; do M=$i; done; srun -N2 bash -c "python x.py" && : ${TP:=2} || TP=4
    [ $A ] && A="$A --x"; read -r Q <<< `cat`
    python -m verl.trainer.main_ppo trainer.nnodes=1 trainer.n_gpus_per_node=8 +actor_rollout_ref.rollout.n=$TP""",
    """{"hybrid_configs": {"dp_degree": 1, "mp_degree": 2, "sharding_degree": 4, "ep_degree": 4,
    "moe_sharding_degree": 2, "order": ["dp", "pp", "moe_sharding", "cp", "sharding", "sep", "ep", "mp"]}}""",
)
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
    """Every launch of the corpus in the style it came in, and the texts above."""
    cases = json.loads(Path(__file__, "../cases/launches.json").resolve().read_text(encoding="utf-8"))
    for number, case in enumerate(cases):
        write, name = STYLES[case["style"]]
        ending = name.rpartition(".")[2]
        place = next((place for place, known in enumerate(NAMES) if known.endswith(f".{ending}")), len(NAMES) - 1)
        (corpus / f"case{number}").write_bytes(bytes([place]) + write(case["facts"]).encode())
    for number, text in enumerate(SCRIPTS):
        (corpus / f"script{number}").write_bytes(bytes([0 if text.startswith("{") else 3]) + text.encode())


corpus = Path(sys.argv[1])
seed(corpus)
atheris.Setup(sys.argv, one)
atheris.Fuzz()
