"""Two ranks of Paddle and the stores of their groups; prints what each said as JSON.

python live_paddle_gloo.py FOLDER
"""

import importlib
import json
import os
import sys
import time

from forked import Ranks
from test_live_groups import free_ports, paddle_environments

PORTS = free_ports(3)


def work(rank):
    os.environ.update(paddle_environments(PORTS[0], PORTS[1:])[rank])
    import paddle
    import paddle.distributed as dist
    from paddle.distributed import collective

    from rankatlas.adapters.paddle import separate_stores
    from rankatlas.errors import JobError

    paddle.set_device("cpu")
    dist.init_parallel_env()
    said = {}
    paddles = collective._new_process_group_impl
    with separate_stores():
        group = dist.new_group([0, 1])
    number = paddle.to_tensor([rank + 1])
    dist.all_reduce(number, group=group)
    said["sum"] = number.item()
    if rank == 1:
        started = time.monotonic()
        try:
            with separate_stores(1.0):
                dist.new_group([0, 1])
        except JobError as error:
            said["alone"] = str(error)
        said["seconds"] = time.monotonic() - started
    said["restored"] = collective._new_process_group_impl is paddles
    dist.barrier()
    return said


importlib.import_module("paddle")
print(json.dumps(Ranks(work, 2, sys.argv[1], 60).wait()), flush=True)
os._exit(0)
