"""One rank of a training job on Megatron-core, as far as its process groups.

The sizes are the same everywhere; `order` comes from this rank's own command line, and that is where it goes wrong.
"""

import datetime

import torch.distributed as dist
from megatron.core import parallel_state

from rankatlas import live


def main(rank: int, world: int, port: int, order: str, *, agree: bool, record: str | None) -> None:
    """Make all process groups; `agree` adds the one line that proves them, `record` is a path."""
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=60),
    )
    layout = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "order": order}
    if agree:
        live.agree(layout)  # the one line
    parallel_state.initialize_model_parallel(**layout)
    if record:
        live.record(record)
    if rank == 0:
        print(f"all groups of {world} ranks are made", flush=True)
    dist.barrier()
