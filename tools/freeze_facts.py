"""Freeze what the peers answer as tables under tests/golden.

    python tools/freeze_facts.py              # every table
    python tools/freeze_facts.py torch jax    # some of them

Each table is made by one program under tools/facts, run by the python of the peer's own environment (tools/peers.py),
so that no line of ours stands between a peer's answer and the file. A table is written whole or not at all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers import NEMO_RL, PeerUnavailable, ensure, peer, repository

LARGEST = 400_000  # bytes; beyond that a table is no longer something that people review


@dataclass(frozen=True, slots=True)
class Table:
    """One file under tests/golden: whose answers it holds and which program asks for them."""

    name: str
    peer: str
    program: str
    arguments: tuple[str, ...] = ()


TABLES: tuple[Table, ...] = (
    Table("paddlenlp", "paddlenlp", "paddlenlp_facts.py", ("rules",)),
    Table("paddlenlp_random", "paddlenlp", "paddlenlp_facts.py", ("random",)),
    Table("paddlenlp_numpy1", "paddlenlp-numpy1", "paddlenlp_facts.py", ("repr",)),
    Table("paddlenlp_seeds", "paddlenlp", "paddle_seeds_facts.py", ("paddlenlp",)),
    Table("paddlenlp_args", "paddlenlp", "paddle_args_facts.py", ("paddlenlp",)),
    Table("paddleformers_seeds", "paddleformers", "paddle_seeds_facts.py", ("paddleformers",)),
    Table("paddleformers_args", "paddleformers", "paddle_args_facts.py", ("paddleformers",)),
    Table("megatron", "megatron", "megatron_facts.py"),
    Table("megatron_live", "megatron", "megatron_live_facts.py"),
    Table("megatron_pipeline", "megatron", "megatron_pipeline_facts.py"),
    Table("deepspeed", "deepspeed", "deepspeed_facts.py"),
    Table("deepspeed_experts", "deepspeed", "deepspeed_experts_facts.py"),
    Table("deepspeed_world", "deepspeed", "deepspeed_world_facts.py"),
    Table("paddle_experts", "paddle", "paddle_experts_facts.py"),
    Table("paddle_fleet", "paddle", "paddle_fleet_facts.py", ("fleet",)),
    Table("paddleformers_fleet", "paddleformers-fleet", "paddle_fleet_facts.py", ("paddleformers",)),
    Table("paddlenlp_fleet", "paddlenlp-fleet", "paddle_fleet_facts.py", ("paddlenlp",)),
    Table("torchtitan", "torchtitan", "torchtitan_facts.py"),
    Table("accelerate", "accelerate", "accelerate_facts.py"),
    Table("verl", "verl", "verl_facts.py"),
    Table("nemo_rl", "nemo-rl", "nemo_rl_facts.py", (NEMO_RL,)),
    Table("paddle", "paddle", "paddle_facts.py"),
    Table("torch", "torch", "torch_facts.py"),
    Table("jax", "jax", "jax_facts.py"),
    Table("colossalai", "colossalai", "colossalai_facts.py"),
)


class FreezeError(RuntimeError):
    """A table could not be made; the message says which and why."""


def freeze(table: Table, golden: Path) -> int:
    """Make one table anew; the number of its facts."""
    asked = peer(table.peer)
    python = ensure(table.peer)
    answered = _ask(table, python)
    facts = answered["facts"]
    header = {
        "peer": asked.distribution,
        "version": asked.version,
        "python": _version_of(python),
        **answered["header"],
        "made_by": "tools/freeze_facts.py",
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}," for key, value in header.items()]
    rows = [json.dumps(fact, separators=(",", ":")) for fact in facts]
    text = "\n".join(["{", *lines, '"facts": [', ",\n".join(rows), "]", "}", ""])
    if len(text.encode()) > LARGEST:
        raise FreezeError(f"{table.name}: {len(text.encode())} bytes are more than the {LARGEST} allowed")
    if str(repository()) in text or tempfile.gettempdir() + "/" in text:
        raise FreezeError(f"{table.name}: an answer names a path of this machine")
    _write(golden / f"{table.name}.json", text)
    return len(facts)


def _ask(table: Table, python: Path) -> dict[str, Any]:
    """Run the table's program in the peer's environment, in an empty folder and without a launcher's variables."""
    program = repository() / "tools" / "facts" / table.program
    launcher = (
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "PADDLE_TRAINER_ID",
        "PADDLE_TRAINERS_NUM",
    )
    environment = {
        key: value for key, value in os.environ.items() if key not in launcher and not key.startswith("PYTHON")
    }
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "facts.json"
        command = [str(python), "-B", str(program), *table.arguments, str(out)]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not out.is_file():
            raise FreezeError(f"{table.name}: {table.program} ended with exit code {done.returncode}\n{done.stderr}")
        answered: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
        return answered


def _version_of(python: Path) -> str:
    """Major and minor only: a bug-fix release of Python is no reason for a new table."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _write(path: Path, text: str) -> None:
    """Whole or not at all: written beside its place, then moved into it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as handle:
            handle.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; one line per table, exit code 1 if one could not be made."""
    parser = argparse.ArgumentParser(description="freeze the peers' answers under tests/golden")
    parser.add_argument("names", nargs="*", metavar="TABLE", help="tables to make (all if none is named)")
    parser.add_argument("--into", type=Path, default=repository() / "tests" / "golden", help="where the tables go")
    asked = parser.parse_args(arguments)
    known = {table.name: table for table in TABLES}
    unknown = [name for name in asked.names if name not in known]
    if unknown:
        parser.error(f"no table {', '.join(unknown)}; there are {', '.join(known)}")
    failures = 0
    for name in asked.names or known:
        try:
            print(f"{name}: {freeze(known[name], asked.into)} facts")
        except (FreezeError, PeerUnavailable) as error:
            print(error, file=sys.stderr)
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
