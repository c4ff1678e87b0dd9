"""What Paddle's CommunicateTopology answers.

    python paddle_facts.py OUT

A fact's `kind` is "layout" (all about one topology) or "special" (one call, with its answer or error). The groups of
get_fused_ranks come out of a set in Paddle, so they are stored sorted by their first rank; inside a group nothing is
touched.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
from facts_io import answer, deliver
from paddle.distributed.fleet.base.topology import CommunicateTopology

NAMES = ["data", "pipe", "sharding", "sep", "model"]


def layout_facts(dice: random.Random, count: int) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = []
    while len(facts) < count:
        names = NAMES if len(facts) % 4 == 0 else dice.sample(NAMES, k=dice.choice((2, 3, 4, 5)))
        dims = [dice.choice((1, 2, 2, 3, 4, 5, 8)) for _ in names]
        world = math.prod(dims)
        if world > 48:
            continue
        topology = CommunicateTopology(names, dims)
        some = sorted(dice.sample(range(world), k=min(world, 4)))
        coords = {rank: topology.get_coord(rank)._asdict() for rank in some}
        moved = dice.choice(names)
        at = dice.randrange(dims[names.index(moved)])
        fused = [dice.sample(names, k=2), dice.sample(names, k=2)]
        facts.append(
            {
                "kind": "layout",
                "names": names,
                "dims": dims,
                "world": topology.world_size(),
                "coords": [[rank, list(coords[rank].values())] for rank in some],
                "ranks": [topology.get_rank(**coords[rank]) for rank in some],
                "comm_list": {name: topology.get_comm_list(name) for name in names},
                "axis_list": [[name, 0, topology.get_axis_list(name, 0)] for name in names],
                "fused_ranks": [[pair, sorted(topology.get_fused_ranks(pair))] for pair in fused],
                "rank_from_stage": [
                    [rank, moved, at, topology.get_rank_from_stage(rank, **{moved: at})] for rank in some
                ],
            }
        )
    return facts


def special_facts() -> list[dict[str, Any]]:
    three = (["data", "pipe", "model"], [2, 2, 2])
    cases: list[tuple[str, str, list[str], list[int], Callable[[Any], Any]]] = [
        ("two negative sizes", "world_size()", ["data", "pipe", "model"], [-2, -2, 2], lambda t: t.world_size()),
        (
            "two negative sizes",
            "get_comm_list('model')",
            ["data", "pipe", "model"],
            [-2, -2, 2],
            lambda t: t.get_comm_list("model"),
        ),
        ("two negative sizes", "get_coord(0)", ["data", "pipe", "model"], [-2, -2, 2], lambda t: t.get_coord(0)),
        ("one negative size", "world_size()", ["data", "pipe"], [-2, 2], lambda t: t.world_size()),
        ("size 0", "world_size()", ["data", "pipe"], [0, 2], lambda t: t.world_size()),
        ("an unknown name", "get_comm_list('expert')", *three, lambda t: t.get_comm_list("expert")),
        ("an unknown name", "get_axis_list('expert', 0)", *three, lambda t: t.get_axis_list("expert", 0)),
        ("an unknown name", "get_dim('expert')", *three, lambda t: t.get_dim("expert")),
        (
            "an unknown name",
            "get_rank(data=0, pipe=0, expert=0)",
            *three,
            lambda t: t.get_rank(data=0, pipe=0, expert=0),
        ),
        (
            "an unknown name",
            "get_fused_ranks(['data', 'expert'])",
            *three,
            lambda t: sorted(t.get_fused_ranks(["data", "expert"])),
        ),
        ("too few coordinates", "get_rank(data=0, pipe=0)", *three, lambda t: t.get_rank(data=0, pipe=0)),
        (
            "a coordinate out of range",
            "get_rank(data=2, pipe=0, model=0)",
            *three,
            lambda t: t.get_rank(data=2, pipe=0, model=0),
        ),
        ("a rank out of range", "get_coord(8)", *three, lambda t: t.get_coord(8)),
        ("an index out of range", "get_axis_list('pipe', 2)", *three, lambda t: t.get_axis_list("pipe", 2)),
        ("a name twice", "world_size()", ["data", "data"], [2, 2], lambda t: t.world_size()),
        (
            "a name twice fused",
            "get_fused_ranks(['data', 'data'])",
            *three,
            lambda t: sorted(t.get_fused_ranks(["data", "data"])),
        ),
        ("nothing fused", "get_fused_ranks([])", *three, lambda t: sorted(t.get_fused_ranks([]))),
        ("more dims than names", "world_size()", ["data", "pipe"], [2, 2, 3], lambda t: t.world_size()),
        ("more dims than names", "get_coord(0)", ["data", "pipe"], [2, 2, 3], lambda t: t.get_coord(0)),
        ("more names than dims", "world_size()", ["data", "pipe", "model"], [2, 2], lambda t: t.world_size()),
        (
            "the defaults",
            "get_hybrid_group_names()",
            ["data", "pipe"],
            [1, 1],
            lambda t: CommunicateTopology().get_hybrid_group_names(),
        ),
    ]
    return [
        {"kind": "special", "case": case, "names": names, "dims": dims, "call": call}
        | answer(lambda *given: given[2](CommunicateTopology(*given[:2])), names, dims, function)
        for case, call, names, dims, function in cases
    ]


def main() -> None:
    deliver(layout_facts(random.Random(1), 70) + special_facts(), numpy=np.__version__)


if __name__ == "__main__":
    main()
