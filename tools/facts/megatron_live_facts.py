"""The process groups that Megatron-Core really makes, asked over torch's fake backend.

    python megatron_live_facts.py OUT

`initialize_model_parallel` builds two layouts over the same ranks, one for dense layers (tp, cp, dp, pp) and one for
experts (expert tp, ep, expert dp, pp). A fact holds what was asked for (`given`, of `world` ranks), and for a few
ranks `seen`: the ranks of each group by the name of its getter, or the error.
"""

from __future__ import annotations

import math
import random
from typing import Any

import torch.distributed as dist
from facts_io import deliver, error_of
from megatron.core import parallel_state
from torch.testing._internal.distributed.fake_pg import FakeStore

GETTERS: tuple[tuple[str, dict[str, bool]], ...] = (
    ("tensor_model_parallel", {}),
    ("pipeline_model_parallel", {}),
    ("context_parallel", {}),
    ("data_parallel", {}),
    ("data_parallel", {"with_context_parallel": True}),
    ("model_parallel", {}),
    ("tensor_and_context_parallel", {}),
    ("tensor_and_data_parallel", {}),
    ("tensor_and_data_parallel", {"with_context_parallel": True}),
    ("expert_model_parallel", {}),
    ("expert_tensor_parallel", {}),
    ("expert_tensor_and_model_parallel", {}),
    ("expert_tensor_model_pipeline_parallel", {}),
    ("expert_data_parallel", {}),
)
ORDERS = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "tp-dp-pp", "tp-pp-dp", "tp-ep-dp-pp")


def seen_by(rank: int, world: int, given: dict[str, Any]) -> dict[str, Any]:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    try:
        parallel_state.initialize_model_parallel(create_gloo_process_groups=False, **given)
        groups = {
            name + (" with cp" if options else ""): dist.get_process_group_ranks(
                getattr(parallel_state, f"get_{name}_group")(**options)
            )
            for name, options in GETTERS
        }
        return {"rank": rank, "groups": groups}
    except (AssertionError, RuntimeError, ValueError) as error:
        return {"rank": rank, "error": error_of(error)}
    finally:
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()


def layout_facts(dice: random.Random, count: int) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = []
    refused = 0
    while len(facts) < count:
        dense = {
            "tensor_model_parallel_size": dice.choice((1, 2, 2, 4)),
            "context_parallel_size": dice.choice((1, 1, 2, 4)),
            "pipeline_model_parallel_size": dice.choice((1, 2, 3)),
        }
        world = math.prod(dense.values()) * dice.choice((1, 2, 3, 4))
        if not 4 <= world <= 48:
            continue
        given: dict[str, Any] = {axis: size for axis, size in dense.items() if size > 1}
        expert = dice.choice((1, 1, 2, 2, 4, 8))
        if expert > 1:
            given["expert_model_parallel_size"] = expert
            if dice.random() < 0.5:
                given["expert_tensor_parallel_size"] = dice.choice((1, 2))
        if dice.random() < 0.4:
            given["order"] = dice.choice(ORDERS)
        some = sorted(dice.sample(range(world), k=3))
        seen = [seen_by(rank, world, given) for rank in some]
        if "error" in seen[0]:
            refused += 1
            if refused > count // 4:
                continue
            seen = seen[:1]
        facts.append({"kind": "live", "world": world, "given": given, "seen": seen})
    return facts


def main() -> None:
    deliver(layout_facts(random.Random(1), 64))


if __name__ == "__main__":
    main()
