"""Start frameworks.py once per peer and world, in the peer's own environment (tools/peers.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent
TOOLS = BENCHMARKS.parent / "tools"
if str(TOOLS) not in sys.path:
    sys.path.append(str(TOOLS))  # the tools are programs of this repository, not an installed package

from peers import PeerUnavailable, ensure, peer, python_of, repository  # noqa: E402

PATIENCE = 2.0  # seconds that a fast peer is timed over and over
LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PADDLE_TRAINER_ID", "XLA_FLAGS")


@dataclass(frozen=True, slots=True)
class Framework:
    """A row of the result: the name frameworks.py knows, the peer whose environment has it, what was asked."""

    name: str
    peer: str
    label: str


FRAMEWORKS = (
    Framework("paddlenlp", "paddlenlp", "PaddleNLP `Topology`"),
    Framework("colossalai", "colossalai", "ColossalAI `ProcessGroupMesh`, no communicators"),
    Framework("jax", "jax", "JAX `Mesh`, pretended devices"),
    Framework("hypercommgrid", "megatron", "Megatron `HyperCommGrid`"),
    Framework("paddle", "paddle", "Paddle fleet `CommunicateTopology`"),
    Framework("deepspeed", "deepspeed", "DeepSpeed `ProcessTopology`"),
    Framework("megatron", "megatron", "Megatron `RankGenerator`, four axes"),
    Framework("torch", "torch", "torch `DeviceMesh`, fake backend"),
)


def measure(framework: Framework, worlds: Iterable[int], *, budget: float, install: bool) -> list[dict[str, object]]:
    """One row per world; a row with a `reason` and no seconds where there is nothing to measure.

    Raises PeerUnavailable when the peer's environment is not there (or, with `install`, cannot be made).
    """
    python = ensure(framework.peer) if install else _present(framework.peer)
    rows: list[dict[str, object]] = []
    for world in worlds:
        print(f"{framework.name}: {world} ranks", file=sys.stderr)
        rows.append({"who": framework.name, "world": world, **_run(framework.name, python, world, budget)})
    return rows


def _present(name: str) -> Path:
    """The python of an environment made earlier: a benchmark does not download gigabytes unasked."""
    home = repository() / ".peers" / peer(name).environment
    python = python_of(home)
    if not ((home / "rankatlas-stamp.json").is_file() and python.exists()):
        raise PeerUnavailable(name, f"not installed; --install or `python tools/peers.py install {name}` does it")
    return python


def _run(name: str, python: Path, world: int, budget: float) -> dict[str, object]:
    environment = {
        key: value for key, value in os.environ.items() if key not in LAUNCHER and not key.startswith("PYTHON")
    }
    environment["PYTHONPATH"] = os.pathsep.join([str(BENCHMARKS), str(TOOLS / "facts")])
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        program = [str(python), "-B", str(BENCHMARKS / "frameworks.py"), name, str(world), str(PATIENCE), str(out)]
        # Several peers print when they are imported, so the result is a file and both streams are kept for an error.
        try:
            done = subprocess.run(
                program, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=budget
            )
        except subprocess.TimeoutExpired:
            return {"reason": f"n/a (> {budget:g} s)"}
        if done.returncode != 0 or not out.is_file():
            said = (done.stderr.strip().splitlines() or ["no message"])[-1]
            print(f"{name} with {world} ranks ended with exit code {done.returncode}: {said}", file=sys.stderr)
            return {"reason": "n/a (failed)"}
        result: dict[str, object] = json.loads(out.read_text(encoding="utf-8"))
        return result
