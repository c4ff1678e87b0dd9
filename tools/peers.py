"""Throw-away environments with the frameworks whose answers we compare ourselves with.

    python tools/peers.py list
    python tools/peers.py install torch megatron

Nothing in rankatlas and nothing in its test suite needs these environments: they are made only to freeze the
peers' own answers as tables under tests/golden (tools/freeze_facts.py). Peers that can live together share an
environment, because torch alone fills most of a gigabyte.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TORCH = "torch==2.13.0"
NUMPY = "numpy==2.4.6"
NUMPY1 = "numpy==1.26.4"
NEMO_RL = "7ea279abfbeb698b092856d0dab61e7cf39bc909"


class PeerUnavailable(RuntimeError):
    """A peer's environment could not be made; `name` is the peer, `reason` what went wrong."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"peer {name!r} is not available: {reason}")
        self.name = name
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Environment:
    """One virtual environment: pip is called once per step, in this order.

    `probe` is run at the end; it must print the versions of `pins`, so that a later step that quietly replaced
    what an earlier one installed is caught here and not in a table of wrong facts.
    """

    name: str
    steps: tuple[tuple[str, ...], ...]
    pins: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Peer:
    """One framework: where it lives, which release, and the module whose answers are frozen.

    `whole` says that `module` is imported as usual; otherwise only its one file is loaded, because the package
    around it needs far more than the few lines we are asking.
    """

    name: str
    environment: str
    distribution: str
    version: str
    module: str
    whole: bool = True


ENVIRONMENTS: tuple[Environment, ...] = (
    # No dependencies: their classes need numpy only, and `import paddlenlp` fails without all of its own.
    Environment(
        "paddlesource",
        ((NUMPY,), ("--no-deps", "paddlenlp==2.8.1", "paddleformers==1.2.0")),
        (("numpy", "2.4.6"), ("paddlenlp", "2.8.1"), ("paddleformers", "1.2.0")),
    ),
    # The same class prints its ranks differently under numpy 1, which is what its users had when 2.8.1 came out.
    Environment(
        "paddlesource-numpy1",
        ((NUMPY1,), ("--no-deps", "paddlenlp==2.8.1")),
        (("numpy", "1.26.4"), ("paddlenlp", "2.8.1")),
    ),
    # torch comes first and alone: any later, looser wish for it then finds it satisfied.
    Environment(
        "torch",
        (
            (TORCH, NUMPY),
            (TORCH, NUMPY, "einops==0.8.2", "packaging==26.0", "absl-py==2.3.1"),
            ("--no-deps", "megatron-core==0.16.0"),
            (TORCH, NUMPY, "setuptools<81", "wheel", "py-cpuinfo==9.0.0", "psutil", "ninja", "hjson==3.1.0", "msgpack"),
            (TORCH, NUMPY, "pydantic>=2", "tqdm"),
            ("--no-deps", "--no-build-isolation", "deepspeed==0.19.8"),
            ("--no-deps", "--no-build-isolation", "colossalai==0.5.0"),
        ),
        (
            ("torch", "2.13.0"),
            ("numpy", "2.4.6"),
            ("megatron-core", "0.16.0"),
            ("deepspeed", "0.19.8"),
            ("colossalai", "0.5.0"),
        ),
    ),
    # What starts trainings: their meshes are asked for, so nothing of what they train with is needed.
    Environment(
        "launchers",
        (
            (TORCH, NUMPY),
            (TORCH, NUMPY, "docstring_parser", "typeguard", "PyYAML", "psutil", "packaging", "safetensors"),
            ("--no-deps", "spmd_types==0.2.3", "tyro==1.0.17", "huggingface_hub==1.12.0"),
            ("--no-deps", "torchtitan==0.3.0", "accelerate==1.15.0", "verl==0.9.1"),
        ),
        (("torch", "2.13.0"), ("torchtitan", "0.3.0"), ("accelerate", "1.15.0"), ("verl", "0.9.1")),
    ),
    # The trainers beside it for their source: what they tell fleet, and what they then ask fleet's classes.
    Environment(
        "paddle",
        ((NUMPY, "paddlepaddle==3.3.1", "setuptools<81"), ("--no-deps", "paddlenlp==2.8.1", "paddleformers==1.2.0")),
        (("paddlepaddle", "3.3.1"), ("numpy", "2.4.6"), ("paddlenlp", "2.8.1"), ("paddleformers", "1.2.0")),
    ),
    Environment("jax", ((NUMPY, "jax==0.10.2", "jaxlib==0.10.2"),), (("jax", "0.10.2"), ("numpy", "2.4.6"))),
)

PEERS: tuple[Peer, ...] = (
    Peer("paddlenlp", "paddlesource", "paddlenlp", "2.8.1", "paddlenlp/ops/distributed/utils/topo.py", False),
    Peer(
        "paddlenlp-numpy1",
        "paddlesource-numpy1",
        "paddlenlp",
        "2.8.1",
        "paddlenlp/ops/distributed/utils/topo.py",
        False,
    ),
    Peer("paddleformers", "paddlesource", "paddleformers", "1.2.0", "paddleformers/trainer/trainer_utils.py", False),
    Peer("megatron", "torch", "megatron-core", "0.16.0", "megatron.core.parallel_state"),
    Peer("deepspeed", "torch", "deepspeed", "0.19.8", "deepspeed.runtime.pipe.topology"),
    Peer("paddle", "paddle", "paddlepaddle", "3.3.1", "paddle.distributed.fleet.base.topology"),
    Peer("paddleformers-fleet", "paddle", "paddleformers", "1.2.0", "paddleformers/trainer/training_args.py", False),
    Peer("paddlenlp-fleet", "paddle", "paddlenlp", "2.8.1", "paddlenlp/trainer/training_args.py", False),
    Peer("torch", "torch", "torch", "2.13.0", "torch.distributed.device_mesh"),
    Peer("torchtitan", "launchers", "torchtitan", "0.3.0", "torchtitan.distributed.parallel_dims"),
    Peer("accelerate", "launchers", "accelerate", "1.15.0", "accelerate.parallelism_config"),
    Peer("verl", "launchers", "verl", "0.9.1", "verl/workers/engine_workers.py", False),
    # The registry has an empty placeholder of that name: a commit of its source, see tools/facts/nemo_rl_facts.py.
    Peer("nemo-rl", "launchers", "nemo-rl", NEMO_RL, "nemo_rl/algorithms/grpo.py", False),
    Peer("jax", "jax", "jax", "0.10.2", "jax.sharding"),
    Peer("colossalai", "torch", "colossalai", "0.5.0", "colossalai/cluster/process_group_mesh.py", False),
)


def repository() -> Path:
    """The root of this checkout."""
    return Path(__file__).resolve().parent.parent


def peer(name: str) -> Peer:
    """The peer called `name`; PeerUnavailable names the known ones."""
    for entry in PEERS:
        if entry.name == name:
            return entry
    known = ", ".join(entry.name for entry in PEERS)
    raise PeerUnavailable(name, f"there is no such peer; known are {known}")


def environment(name: str) -> Environment:
    """The environment called `name` (the peers' table above names only existing ones)."""
    return next(entry for entry in ENVIRONMENTS if entry.name == name)


def python_of(home: Path) -> Path:
    """The interpreter of the virtual environment at `home`."""
    windows = home / "Scripts" / "python.exe"
    return windows if windows.exists() else home / "bin" / "python"


def ensure(name: str, root: Path | None = None) -> Path:
    """The python of an environment in which the peer `name` is installed; made on first use.

    The stamp is written last and holds the recipe, so a half-made environment and one made from an older recipe
    are both thrown away and made anew. Raises PeerUnavailable when pip fails.
    """
    wanted = environment(peer(name).environment)
    home = (root or repository() / ".peers") / wanted.name
    stamp = home / "rankatlas-stamp.json"
    recipe = json.dumps({"python": sys.version.split()[0], "steps": wanted.steps, "pins": wanted.pins}, indent=1)
    home.parent.mkdir(parents=True, exist_ok=True)
    (home.parent / ".gitignore").write_text("*\n", encoding="utf-8")  # the environments hide themselves from git
    with _only_one_builder(home.parent / f"{wanted.name}.lock"):
        if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == recipe):
            shutil.rmtree(home, ignore_errors=True)
            _build(name, wanted, home)
            stamp.write_text(recipe, encoding="utf-8")
    return python_of(home)


@contextmanager
def _only_one_builder(path: Path) -> Iterator[None]:
    """Two processes that want the same environment build it once: the second waits."""
    with path.open("w", encoding="utf-8") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build(name: str, wanted: Environment, home: Path) -> None:
    """Make the environment, step by step, and check that every pinned release is the one that ended up in it."""
    print(f"making {home} for {name}", file=sys.stderr)
    venv.EnvBuilder(with_pip=True).create(home)
    python = python_of(home)
    for step in wanted.steps:
        _run(name, [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *step])
    for distribution, version in wanted.pins:
        found = _run(
            name,
            [str(python), "-c", f"import importlib.metadata as m; print(m.version({distribution!r}))"],
            capture=True,
        ).strip()
        if found.split("+")[0] != version:  # torch's local builds call themselves 2.13.0+cpu
            raise PeerUnavailable(name, f"{distribution} {version} was asked for, {found} is installed")


def _run(name: str, command: Sequence[str], *, capture: bool = False) -> str:
    """Run one command; whatever it prints goes to our stderr, so that stdout stays the caller's."""
    print("+ " + " ".join(command), file=sys.stderr, flush=True)
    stdout = subprocess.PIPE if capture else sys.stderr.fileno()
    try:
        done = subprocess.run(command, stdout=stdout, text=True, check=False)
    except OSError as error:
        raise PeerUnavailable(name, f"cannot run {command[0]}: {error}") from error
    if done.returncode != 0:
        raise PeerUnavailable(name, f"`{' '.join(command)}` ended with exit code {done.returncode}")
    return done.stdout or ""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: list the peers, or install some (all without a name)."""
    parser = argparse.ArgumentParser(description="throw-away environments with rankatlas' peers")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list", help="every peer, its release and its environment")
    install = verbs.add_parser("install", help="make the environments of these peers (all if none is named)")
    install.add_argument("names", nargs="*", metavar="NAME")
    asked = parser.parse_args(arguments)
    if asked.verb == "list":
        for entry in PEERS:
            print(
                f"{entry.name:18} {entry.distribution} {entry.version:8} in .peers/{entry.environment}: {entry.module}"
            )
        return 0
    failures = 0
    for name in asked.names or [entry.name for entry in PEERS]:
        try:
            print(f"{name}: {ensure(name)}")
        except PeerUnavailable as error:
            print(error, file=sys.stderr)
            failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
