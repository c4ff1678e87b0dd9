"""The groups that Paddle's fleet makes of expert, context and sharding sizes, without the processes.

    python paddle_experts_facts.py OUT

`EPHybridCommunicateGroup` makes its groups in its constructor; here each call that would make one keeps the lists of
ranks it was to be made of. A fact has the trainer's order (`order`; `names` are fleet's, outer → inner), the `sizes`,
and the groups by fleet's name (`answer`) or `error`. The orders are those PaddleFormers' trainer gives.
"""

from __future__ import annotations

import math
import random
from typing import Any

import paddle
from facts_io import answer, deliver
from paddle.distributed.fleet.base.topology import EPHybridCommunicateGroup

ORDERS = {
    "pp_first": ["data", "pipe", "moe_sharding", "context", "sharding", "sep", "expert", "model"],
    "sharding_first": ["data", "moe_sharding", "context", "sharding", "pipe", "sep", "expert", "model"],
    "reorder_pipeline_priority": ["sharding", "moe_sharding", "pipe", "sep", "context", "data", "expert", "model"],
}


class Groups(EPHybridCommunicateGroup):
    """The class itself, with what would talk to other processes replaced by keeping the ranks."""

    def __init__(self, *given: Any) -> None:
        self.kept: dict[str, Any] = {}
        super().__init__(*given)

    def _keep(self, name: str, lists: Any) -> Any:
        self.kept[name] = lists
        return next((ranks for ranks in lists if self.global_rank in ranks), []), None

    def _set_comm_group(self, name: str, topology: Any = None, nccl_config: Any = None) -> Any:
        return self._keep(name, topology.get_comm_list(name))

    def build_sharding_group(self, topology: Any, nccl_config: Any = None) -> Any:
        return self._keep("sharding", self.merge_inner_comm_list(topology, "moe_sharding", "dense_sharding"))

    def build_context_group(self, topology: Any, nccl_config: Any = None) -> Any:
        return self._keep("context", self.split_context_comm_list(topology))

    def build_context_sharding_group(self, topology: Any, nccl_config: Any = None) -> Any:
        return self._keep("context_sharding", self.split_context_sharding_comm_list(topology))

    def build_cp_mp_fuse_group(self, topology: Any, nccl_config: Any = None) -> Any:
        return self._keep("context_model", self.fuse_context_tensor_parallel_comm_list(topology))

    def _set_check_group(self, *given: Any, **named: Any) -> Any:
        return [], None

    def _set_p2p_prev_next(self) -> None:
        return None

    def _set_four_directions_p2p_group(self) -> None:
        return None


def ask(order: str, sizes: dict[str, int]) -> dict[str, Any]:
    world = sizes["pipe"] * sizes["sharding"] * sizes["model"]
    paddle.distributed.get_world_size = lambda *given: world
    paddle.distributed.get_rank = lambda *given: 0
    paddle.distributed.all_reduce = lambda *given, **named: None
    names = ORDERS[order]
    return Groups(names, [sizes.get(name, 1) for name in names]).kept


def main() -> None:
    dice = random.Random(6)
    facts: list[dict[str, Any]] = []
    while len(facts) < 60:
        sizes = {
            "pipe": dice.choice((1, 1, 2, 2, 3)),
            "moe_sharding": dice.choice((1, 2, 2, 3)),
            "model": dice.choice((1, 2, 2, 4)),
            "context": dice.choice((1, 1, 2)),
        }
        inner = dice.choice((1, 2, 4))
        sizes["sharding"] = sizes["moe_sharding"] * inner
        sizes["expert"] = inner * sizes["model"]
        if sizes["expert"] < 2 or sizes["sharding"] % sizes["context"]:
            continue
        if math.prod((sizes["pipe"], sizes["sharding"], sizes["model"])) > 48:
            continue
        order = dice.choice(list(ORDERS))
        fact: dict[str, Any] = {"kind": "experts", "order": order, "names": ORDERS[order], "sizes": sizes}
        facts.append(fact | answer(ask, order, sizes))
    deliver(facts)


if __name__ == "__main__":
    main()
