"""What DeepSpeed's configuration prints as `world_size`, in four real processes.

    python deepspeed_world_facts.py OUT

A fact holds the configuration, the sizes of the grid that came beside it ("pipe", "model"), the ranks there are, and
the number that stands in the line.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import socket
from typing import Any

from facts_io import deliver

WORLD = 4
BATCH = {"train_micro_batch_size_per_gpu": 1, "steps_per_print": 100}
CASES: list[tuple[dict[str, Any], dict[str, int] | None]] = [
    (BATCH, None),
    ({**BATCH, "zero_optimization": {"stage": 3}}, None),
    ({**BATCH, "tensor_parallel": {"autotp_size": 2}}, None),
    ({**BATCH, "sequence_parallel_size": 2}, None),
    ({**BATCH, "sequence_parallel_size": 2, "data_parallel_size": 2}, None),
    (BATCH, {"pipe": 2, "model": 1}),
    (BATCH, {"pipe": 1, "model": 2}),
    (BATCH, {"pipe": 2, "model": 2}),
]


def _rank(rank: int, port: int, told: Any) -> None:
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": WORLD, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()} | {"GLOO_SOCKET_IFNAME": "lo"})
    import deepspeed
    from deepspeed.runtime import config as configuration
    from deepspeed.runtime.pipe.topology import PipelineParallelGrid, PipeModelDataParallelTopology

    deepspeed.init_distributed("gloo")
    for given, sizes in CASES:
        grid = None
        if sizes:
            data = WORLD // sizes["pipe"] // sizes["model"]
            grid = PipelineParallelGrid(topology=PipeModelDataParallelTopology(sizes["pipe"], sizes["model"], data))
        lines: list[str] = []
        mesh = None
        if "data_parallel_size" in given:
            shape = (given["data_parallel_size"], given["sequence_parallel_size"])
            mesh = deepspeed.comm.initialize_mesh_device(shape, ("data_parallel", "sequence_parallel"))
        made = configuration.DeepSpeedConfig(dict(given), grid, mesh_device=mesh)
        configuration.logger.info = lines.append
        made.print("DeepSpeedEngine configuration")
        printed = next(match for line in lines if (match := re.match(r"\s*world_size \.+ (\S+)", str(line))))
        if rank == 0:
            told.put(
                {"kind": "printed", "world": WORLD, "given": given, "grid": sizes, "line": printed.group().strip()}
            )


def main() -> None:
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [context.Process(target=_rank, args=(rank, port, told)) for rank in range(WORLD)]
    for process in ranks:
        process.start()
    facts = [told.get(timeout=300) for _ in CASES]
    for process in ranks:
        process.join()
    deliver(facts)


if __name__ == "__main__":
    main()
