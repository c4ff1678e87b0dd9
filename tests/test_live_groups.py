"""Real processes: torch.distributed and paddle.distributed take our ranks, and the groups have the right members."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rankatlas import Mesh

pytestmark = pytest.mark.live

HERE = Path(__file__).resolve().parent
SOURCE = Path(__import__("rankatlas").__file__).resolve().parents[1]
WORLD = 4
SECONDS = 60  # a process that takes longer is stopped, and the test shows what all of them wrote


def run_all(commands, environments, folder, seconds=SECONDS):
    """Start every process, wait for all of them, and return what each printed last, as JSON."""
    processes = []
    files = [folder / f"stderr{rank}" for rank in range(len(commands))]
    try:
        for command, environment, path in zip(commands, environments, files):
            with path.open("wb") as errors:
                process = subprocess.Popen(
                    command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True
                )
            processes.append(process)
        said = []
        for rank, process in enumerate(processes):
            try:
                printed, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                pytest.fail(f"rank {rank} said nothing for {seconds} s\n{told(files)}")
            assert process.returncode == 0, f"rank {rank} ended with {process.returncode}\n{told(files)}"
            said.append(json.loads(printed.splitlines()[-1]))
        return said
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()


def told(files):
    return "\n".join(f"--- rank {rank}\n{path.read_text(errors='replace')[-3000:]}" for rank, path in enumerate(files))


def environment(**more):
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PADDLE_", "COV_"))}
    path = os.pathsep.join(filter(None, [str(SOURCE), inherited.get("PYTHONPATH")]))
    quiet = {"OMP_NUM_THREADS": "1", "GLOG_minloglevel": "2", "PYTHONWARNINGS": "ignore", "PYTHONPATH": path}
    return {**inherited, **quiet, "CUDA_VISIBLE_DEVICES": "", **more}


def paddle_environments(master, ports, **more):
    """What Paddle's launcher would tell each process, one per port."""
    endpoints = [f"127.0.0.1:{port}" for port in ports]
    return [
        environment(
            PADDLE_TRAINER_ID=str(rank),
            PADDLE_TRAINERS_NUM=str(len(endpoints)),
            PADDLE_TRAINER_ENDPOINTS=",".join(endpoints),
            PADDLE_CURRENT_ENDPOINT=endpoint,
            PADDLE_MASTER=f"127.0.0.1:{master}",
            PADDLE_DISTRI_BACKEND="gloo",
            **more,
        )
        for rank, endpoint in enumerate(endpoints)
    ]


def free_ports(count):
    """Ports that nobody listens on, all held until all are found so that none comes twice."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def check(said, ways):
    mesh = Mesh(pp=2, mp=2)
    for rank, answers in enumerate(said):
        for axis in mesh.axes:
            group = mesh.group(axis, rank=rank)
            for way in ways:
                assert answers[f"{axis} by {way}"] == [list(group), group.group_rank, group.size], (rank, axis, way)


def test_torch_makes_the_groups(tmp_path):
    pytest.importorskip("torch")
    commands = [
        [sys.executable, str(HERE / "live_torch.py"), str(rank), str(WORLD), str(tmp_path / "store")]
        for rank in range(WORLD)
    ]
    said = run_all(commands, [environment(GLOO_SOCKET_IFNAME="lo")] * WORLD, tmp_path)
    check(said, ("topology", "a Ranks", "a list", "a range"))
    for answers in said:
        assert answers["world by topology"] == answers["world"] == list(range(WORLD))


def test_paddle_makes_the_groups(tmp_path):
    pytest.importorskip("paddle")
    master, *ports = free_ports(WORLD + 1)
    environments = paddle_environments(master, ports)
    commands = [[sys.executable, str(HERE / "live_paddle.py")]] * WORLD
    said = run_all(commands, environments, tmp_path)
    check(said, ("topology", "a Ranks", "a list"))
