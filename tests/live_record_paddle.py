"""Records of real Paddle jobs whose groups fleet made; prints one JSON object, layout → what every rank says.

    python live_record_paddle.py FOLDER LAYOUT ...        LAYOUT in fleet's axes, such as "pp=2 sharding=2 mp=2"

Paddle is imported once; every layout is a job of its own, of forked processes.
"""

import json
import os
import sys
from pathlib import Path

import paddle
import paddle.distributed as dist
from paddle.distributed import fleet

from forked import Ranks
from rankatlas import Mesh, live
from rankatlas.adapters.paddle import separate_stores
from rankatlas.core import parse_layout
from rankatlas.errors import GroupMismatch
from test_live_groups import free_ports, paddle_environments

FOLDER, LAYOUTS = Path(sys.argv[1]), sys.argv[2:]


def fault(work):
    try:
        work()
    except GroupMismatch as error:
        return {"text": str(error), **vars(error)}
    return None


def job(layout, environments):
    meant = parse_layout(layout)
    charts = {"dense": meant} if isinstance(meant, Mesh) else meant.charts
    sizes = {axis: size for mesh in charts.values() for axis, size in zip(mesh.axes, mesh.sizes)}
    order = list(dict.fromkeys([*charts["dense"].axes, *sizes, "dp", "pp", "sharding", "sep", "mp"]))
    if len(charts) > 1:  # what fleet wants there
        order = ["sharding", "moe_sharding", "pp", "sep", "cp", "dp", "ep", "mp"]
    axes = list(sizes) if len(charts) == 1 else ["dense.sharding", "expert.moe_sharding", "expert.ep"]

    def run(rank):
        os.environ.update(environments[rank])
        paddle.set_device("cpu")
        dist.init_parallel_env()
        live.agree(meant)
        strategy = fleet.DistributedStrategy()
        strategy.hybrid_configs = {**{f"{axis}_degree": sizes.get(axis, 1) for axis in order}, "order": order}
        with separate_stores():
            fleet.init(is_collective=True, strategy=strategy)
        made = live.record()
        dense = charts["dense"]
        backwards = dense.reorder(*reversed(dense.axes))
        said = {
            "notation": made.layout and str(made.layout),
            "unexplained": made.unexplained,
            "kinds": {kind.description: [kind.axes, kind.groups] for kind in made.kinds},
            "verified": fault(lambda: live.verify(meant, axes=axes)),
            "wrong": fault(lambda: live.verify(backwards)),
        }
        dist.barrier()  # rank 0 serves the store that others may still be asking
        return said

    return run


def main():
    answers = {}
    for layout in LAYOUTS:
        world = parse_layout(layout).world_size
        master, *ports = free_ports(world + 1)
        folder = FOLDER / str(len(answers))
        folder.mkdir()
        answers[layout] = Ranks(job(layout, paddle_environments(master, ports)), world, folder, 60).wait()
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
