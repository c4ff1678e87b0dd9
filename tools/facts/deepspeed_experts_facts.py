"""Where DeepSpeed puts experts: expert and expert-data groups beside tensor and pipeline ranks.

    python deepspeed_experts_facts.py OUT

A fact holds the arguments of `_get_expert_parallel_ranks` and its two lists of groups, or the error.
"""

from __future__ import annotations

import random
from typing import Any

from deepspeed.utils.groups import _get_expert_parallel_ranks
from facts_io import answer, deliver


def main() -> None:
    dice = random.Random(7)
    facts: list[dict[str, Any]] = []
    while len(facts) < 48:
        given = {
            "tensor_parallel_size_": dice.choice((1, 2, 2, 4)),
            "expert_parallel_size_": dice.choice((2, 2, 4, 3)),
            "pipeline_parallel_size_": dice.choice((1, 2, 3)),
            "use_data_before_expert_parallel_": dice.random() < 0.3,
        }
        data = dice.choice((2, 4, 6, 8))
        world = data * given["tensor_parallel_size_"] * given["pipeline_parallel_size_"]
        if world <= 64:
            facts.append(
                {"kind": "experts", "world": world, "given": given}
                | answer(lambda size, named: _get_expert_parallel_ranks(size, **named), world, given)
            )
    deliver(facts)


if __name__ == "__main__":
    main()
