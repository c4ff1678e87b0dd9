"""The fault matrix of `live.agree` in real torch processes; prints one JSON object, scenario → what every rank said.

    python live_agree_torch.py FOLDER

Scenarios run side by side, because most of their time is waiting for somebody who never comes.
"""

import argparse
import datetime
import hashlib
import json
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import numpy
import torch
import torch.distributed as dist

from forked import Ranks
from rankatlas import Atlas, Mesh, live
from rankatlas.adapters import torch_job

FOLDER = Path(sys.argv[1])
LAYOUT = Mesh(pp=2, dp=2, tp=2)
FOUR, OTHER_FOUR = Mesh(pp=2, tp=2), Mesh(tp=2, pp=2)
OTHER = Mesh(pp=2, tp=2, dp=2)
TIMEOUT = 1.5


def told(work):
    """What `work` came to: its error with the facts of it, or what it agreed on; and how long that took."""
    started = time.monotonic()
    try:
        said = {"error": None, "skipped": work().skipped}
    except Exception as error:
        said = {"error": type(error).__name__, "text": str(error), **vars(error)}
    return {**said, "seconds": time.monotonic() - started}


def start(rank, world, name, backend="gloo", **how):
    torch.set_num_threads(1)
    if not how:
        how = {"init_method": f"file://{FOLDER}/{name}.store"}
    dist.init_process_group(backend, rank=rank, world_size=world, timeout=datetime.timedelta(seconds=30), **how)


def host_of_store(world):
    """A TCP store that this process keeps, so that it outlives every rank."""
    return dist.TCPStore("127.0.0.1", 0, world, is_master=True, wait_for_workers=False)


def client(port, world):
    return dist.TCPStore("127.0.0.1", port, world, is_master=False, timeout=datetime.timedelta(seconds=30))


# Layouts in every form that a caller may have them in.


class Kind(Enum):
    FULL = "full_shard"


@dataclass
class ParallelDims:  # as in torchtitan
    dp_replicate: int = 1
    dp_shard: int = 2
    cp: int = 1
    tp: int = 2
    pp: int = 2
    ep: int = 1
    world_size: int = 8
    _meshes: dict = field(default_factory=dict)


@dataclass
class ParallelismConfig:  # as in accelerate
    dp_replicate_size: int = 1
    dp_shard_size: int = 4
    tp_size: int = 2
    cp_size: int = 1
    cp_handler: object = None
    device_mesh: object = None


class TrainingArguments:  # as in PaddleNLP and PaddleFormers
    def __init__(self, rank):
        self.tensor_parallel_degree = 2
        self.pipeline_parallel_degree = 2
        self.sharding_parallel_degree = 2
        self.sharding = [Kind.FULL]
        self.hybrid_parallel_topo_order = "pp_first"
        self.seed = 42
        self.local_rank = self.process_index = rank
        self.logging_dir = f"runs/{os.getpid()}"


def megatron(rank, **changes):
    """Arguments as Megatron has them, with what a rank knows of itself."""
    own = {"rank": rank, "local_rank": rank % 4, "data_parallel_rank": rank // 2, "data_path": f"/tmp/{rank}"}
    sizes = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "context_parallel_size": 1}
    same = {"world_size": 8, "micro_batch_size": 1, "use_tp_pp_dp_mapping": False, "num_layers": 4, "seed": 1}
    return argparse.Namespace(**{**own, **sizes, **same, **changes})


def forms(rank):
    return {
        "mesh": LAYOUT,
        "atlas": Atlas(dense=LAYOUT, expert=Mesh(pp=2, ep=4), shared=("pp",)),
        "notation": str(LAYOUT),
        "dict": {"tp": 2, "nested": {"pp": 2, "order": ["pp", "tp"]}},
        "megatron": megatron(rank),
        "torchtitan": ParallelDims(_meshes={"pid": os.getpid()}),
        "accelerate": ParallelismConfig(cp_handler=object(), device_mesh=object()),
        "trainer": TrainingArguments(rank),
    }


def state():
    """Everything of the job that must not change: random states, groups, environment."""
    generators = [torch.get_rng_state().numpy().tobytes(), repr(random.getstate()), repr(numpy.random.get_state())]
    groups = [(group.group_name, dist.get_process_group_ranks(group)) for group in dist.distributed_c10d._world.pg_map]
    return hashlib.sha256(repr((generators, groups, sorted(os.environ.items()))).encode()).hexdigest()


def healthy(rank):
    """Everything eight live ranks can tell each other, one after the other in one job."""
    start(rank, 8, "healthy")
    odd, half = rank == 5, rank >= 4
    before = state()
    said = {f"as {name}": told(lambda layout=layout: live.agree(layout)) for name, layout in forms(rank).items()}
    said["again"] = told(lambda: live.agree(LAYOUT))
    said["extra"] = told(lambda: live.agree(LAYOUT, extra={"batch": {"global": 512}, "who": {"a", "b", "c"}}))
    said["another order"] = told(lambda: live.agree(OTHER if odd else LAYOUT))
    said["half another order"] = told(lambda: live.agree(OTHER if half else LAYOUT))
    said["another size"] = told(lambda: live.agree(Mesh(pp=2, dp=1, tp=4) if odd else LAYOUT))
    said["another extra"] = told(lambda: live.agree(LAYOUT, extra={"batch": {"global": 500 if odd else 512}}))
    said["another argument"] = told(lambda: live.agree(megatron(rank, tensor_model_parallel_size=4 if odd else 2)))
    said["field only there"] = told(lambda: live.agree(LAYOUT, extra={"seed": 1} if odd else None))
    said["all different"] = told(lambda: live.agree(Mesh(dp=8), extra={"rank": rank}))
    said["after all that"] = told(lambda: live.agree(LAYOUT))
    live.record()
    said["verify"] = told(lambda: Skipless(live.verify(LAYOUT)))
    said["nothing changed"] = state() == before
    dist.barrier()
    return said


class Skipless:
    def __init__(self, made):
        self.skipped = None


def late(rank):
    """Rank 3 comes when the others have given up, and is told the same."""
    start(rank, 4, "late")
    if rank == 3:
        time.sleep(TIMEOUT + 1)
    return told(lambda: live.agree(FOUR, timeout=TIMEOUT))


def late_zero(rank):
    """Rank 0 comes when the others have given up: it must not go on alone."""
    start(rank, 4, "late zero")
    if rank == 0:
        time.sleep(TIMEOUT + 4)
    return told(lambda: live.agree(FOUR, timeout=TIMEOUT))


def tells_and_goes(odd):
    """Rank 0 keeps the store and ends as soon as it has raised; all others must have read its verdict by then."""

    def work(rank):
        start(rank, 4, "", init_method=f"tcp://127.0.0.1:{odd.port}")
        if rank == 3 and odd.absent:
            time.sleep(TIMEOUT + 3)
            return None
        if rank == 1:
            time.sleep(0.3)
        return told(lambda: live.agree(OTHER_FOUR if rank == 3 else FOUR, timeout=TIMEOUT))

    return work


@dataclass
class Odd:
    absent: bool
    port: int


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def dies_before(victim):
    def work(rank):
        start(rank, 4, f"before{victim}")
        if rank == victim:
            time.sleep(0.5)  # the others may still be connecting their group
            die()
        return told(lambda: live.agree(FOUR, timeout=TIMEOUT))

    return work


def dies_after(victim):
    """The victim publishes its layout and dies; nobody else needs it any more, unless it is rank 0."""

    def work(rank):
        start(rank, 4, f"after{victim}")
        if rank == victim:
            module = sys.modules["rankatlas.live.agree"]  # the name in the package is the function
            module.judge = module.Round.hear = die
        return told(lambda: live.agree(FOUR, timeout=TIMEOUT))

    return work


def keeper(signal_number, port):
    """Rank 0 keeps the store and goes: killed, or stopped, which looks to the others like a very slow answer."""

    def work(rank):
        start(rank, 4, "", init_method=f"tcp://127.0.0.1:{port}")
        if rank == 0:
            time.sleep(0.3)
            os.kill(os.getpid(), signal_number)
        return told(lambda: live.agree(FOUR, timeout=TIMEOUT))

    return work


def job_on(port, name):
    """A job whose groups have a store of their own, and whose agreement uses one that another job uses, too."""

    def work(rank):
        start(rank, 4, name)
        shared = client(port, 4)
        torch_job.TorchJob.store = lambda self: torch_job.TorchStore(shared)
        answer = told(lambda: live.agree(FOUR, timeout=TIMEOUT))
        # Slower ranks may still be connecting their group to this one, which gloo does in both directions.
        time.sleep(1)
        return answer

    return work


def fake(rank):
    from torch.testing._internal.distributed.fake_pg import FakeStore

    start(0, 4096, "", backend="fake", store=FakeStore())
    return told(lambda: live.agree("dp=4096"))


def free_port():
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def main():
    shared = host_of_store(9)
    scenarios = {
        "late": (late, 4),
        "differs and goes": (tells_and_goes(Odd(False, free_port())), 4),
        "absent and goes": (tells_and_goes(Odd(True, free_port())), 4),
        "dies before": (dies_before(3), 4),
        "rank 0 late": (late_zero, 4),
        "dies after": (dies_after(2), 4),
        "rank 0 dies before": (dies_before(0), 4),
        "rank 0 dies after": (dies_after(0), 4),
        "keeper killed": (keeper(signal.SIGKILL, free_port()), 4),
        "keeper stopped": (keeper(signal.SIGSTOP, free_port()), 4),
        "first job": (job_on(shared.port, "first"), 4),
        "fake": (fake, 1),
    }
    running = {}
    for name, (work, count) in scenarios.items():
        folder = FOLDER / name
        folder.mkdir()
        running[name] = Ranks(work, count, folder, 30, hang=[0] if name == "keeper stopped" else [])
    said = {name: ranks.wait() for name, ranks in running.items()}
    for name, work, count in (("second job", job_on(shared.port, "second"), 4), ("healthy", healthy, 8)):
        (FOLDER / name).mkdir()
        said[name] = Ranks(work, count, FOLDER / name).wait()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
