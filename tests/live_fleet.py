"""fleet, configured by `hybrid_configs(mesh)`, in real processes; prints notation → what every rank found.

python live_fleet.py FOLDER LAYOUT...
"""

import importlib
import json
import os
import sys
from pathlib import Path

from forked import Ranks
from rankatlas import parse_mesh
from test_live_groups import free_ports, paddle_environments

FOLDER, *LAYOUTS = sys.argv[1:]
# The getters of the communicate group: (group, rank, world size, first rank of the group) → the axis.
GETTERS = {
    "dp": ("get_data_parallel_group", "get_data_parallel_rank", "get_data_parallel_world_size"),
    "mp": ("get_model_parallel_group", "get_model_parallel_rank", "get_model_parallel_world_size"),
    "pp": ("get_pipe_parallel_group", "get_stage_id", "get_pipe_parallel_world_size"),
    "sharding": ("get_sharding_parallel_group", "get_sharding_parallel_rank", "get_sharding_parallel_world_size"),
    "sep": ("get_sep_parallel_group", "get_sep_parallel_rank", "get_sep_parallel_world_size"),
}
SOURCES = {
    "dp": "get_data_parallel_group_src_rank",
    "mp": "get_model_parallel_group_src_rank",
    "sharding": "get_sharding_parallel_group_src_rank",
    "sep": "get_sep_parallel_group_src_rank",
}


def job(mesh, ports):
    def work(rank):
        os.environ.update(paddle_environments(ports[0], ports[1:])[rank])
        import paddle
        import paddle.distributed as dist
        from paddle.distributed import fleet

        from rankatlas.adapters.paddle import hybrid_configs, separate_stores

        paddle.set_device("cpu")
        dist.init_parallel_env()
        strategy = fleet.DistributedStrategy()
        strategy.hybrid_configs = hybrid_configs(mesh)
        with separate_stores():
            fleet.init(is_collective=True, strategy=strategy)
        hcg = fleet.get_hybrid_communicate_group()
        said = {}
        for axis, (group, place, size) in GETTERS.items():
            if axis == "sep" and "sep" not in mesh.axes:
                continue
            made = getattr(hcg, group)()
            number = paddle.to_tensor([2**rank], dtype="int64")
            if made.nranks > 1:
                dist.all_reduce(number, group=made)
            members = [one for one in range(mesh.world_size) if number.item() >> one & 1]
            said[axis] = [list(made.ranks), members, getattr(hcg, place)(), getattr(hcg, size)()]
            said[f"{axis} source"] = getattr(hcg, SOURCES[axis])() if axis in SOURCES else None
        said["global rank"] = hcg.get_global_rank()
        said["check"] = list(hcg.get_check_parallel_group().ranks)
        if hcg.get_sharding_parallel_world_size() > 1:
            said["check sharding"] = list(hcg.get_check_parallel_group(sharding=True).ranks)
        if hcg.get_sep_parallel_world_size() > 1:
            said["dp+sep"] = list(hcg.get_dp_sep_parallel_group().ranks)
            said["pp+mp"] = list(hcg.get_pp_mp_parallel_group().ranks)
        stages = hcg.get_pipe_parallel_world_size()
        said["stages"] = [hcg.get_rank_from_stage(stage) for stage in range(stages)]
        said["ends"] = [hcg.is_first_stage, hcg.is_last_stage]
        if stages > 1:
            said["neighbours"] = [hcg._get_p2p_prev_rank(), hcg._get_p2p_next_rank()]
        dist.barrier()
        return said

    return work


importlib.import_module("paddle")
said = {}
for layout in LAYOUTS:
    mesh = parse_mesh(layout)
    folder = Path(FOLDER, str(len(said)))
    folder.mkdir()
    said[layout] = Ranks(job(mesh, free_ports(mesh.world_size + 1)), mesh.world_size, folder, 60).wait()
print(json.dumps(said), flush=True)
os._exit(0)
