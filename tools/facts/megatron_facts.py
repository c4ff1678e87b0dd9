"""What Megatron-Core's RankGenerator and HyperCommGrid answer.

    python megatron_facts.py OUT

Both write the order innermost first: in "tp-cp-dp-pp" it is tp that is adjacent. A fact's `kind` is "generator" (one
RankGenerator, `ranks` by token), "generator-special" (one call, with its answer or error), "grid" (one HyperCommGrid,
`calls` as [dims asked, rank enumeration]) or "grid-special".
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from facts_io import answer, deliver
from megatron.core.hyper_comm_grid import HyperCommGrid
from megatron.core.parallel_state import RankGenerator

NAMES = ("tp", "ep", "dp", "pp", "cp")


def sizes_of(dice: random.Random, axes: Sequence[str], most: int) -> dict[str, int]:
    while True:
        sizes = {axis: dice.choice((1, 2, 2, 3, 4, 5, 8)) for axis in axes}
        if math.prod(sizes.values()) <= most:
            return sizes


def generator(sizes: dict[str, int], order: str, offset: int = 0) -> RankGenerator:
    full = dict.fromkeys(NAMES, 1) | sizes
    return RankGenerator(**full, order=order, rank_offset=offset)


def generator_facts(dice: random.Random, count: int) -> list[dict[str, Any]]:
    facts = []
    for place in range(count):
        second = "ep" if place % 3 == 2 else "cp"
        axes = ["tp", second, "dp", "pp"]
        sizes = sizes_of(dice, axes, 48)
        order = "-".join(("tp", second, "dp", "pp") if place % 5 == 0 else dice.sample(axes, k=4))
        offset = 0 if place % 4 else dice.choice((0, 8, 16, 100))
        pairs = ["-".join(dice.sample(axes, k=2)) for _ in range(2)]
        tokens = dict.fromkeys([*axes, "tp-pp", *pairs, "-".join(dice.sample(axes, k=3)), "-".join(axes)])
        made = generator(sizes, order, offset)
        facts.append(
            {
                "kind": "generator",
                "sizes": sizes,
                "order": order,
                "rank_offset": offset,
                "ranks": {token: made.get_ranks(token) for token in tokens},
            }
        )
    return facts


def generator_specials() -> list[dict[str, Any]]:
    cases: list[tuple[str, dict[str, int], str, int, str]] = [
        ("an axis twice in the order", {"tp": 2, "dp": 2, "pp": 2}, "tp-dp-tp-pp", 0, "tp"),
        ("an axis twice in the order", {"tp": 2, "dp": 2, "pp": 2}, "tp-dp-tp-pp", 0, "dp"),
        ("an axis twice in the order", {"tp": 2, "dp": 2, "pp": 2}, "tp-dp-tp-pp", 0, "pp"),
        ("an axis of size 1 twice in the order", {"tp": 1, "dp": 4, "pp": 2}, "tp-dp-tp-pp", 0, "dp"),
        ("an axis twice in the token", {"tp": 2, "dp": 2, "pp": 2}, "tp-dp-pp", 0, "tp-tp"),
        ("an unknown axis in the token", {"tp": 2, "dp": 2, "pp": 2}, "tp-dp-pp", 0, "sp"),
        ("an unknown axis in the order", {"tp": 2, "dp": 2, "pp": 2}, "tp-dp-pp-sp", 0, "tp"),
        ("an empty token", {"tp": 2, "dp": 2, "pp": 2}, "tp-dp-pp", 0, ""),
        ("a size without a place in the order", {"tp": 2, "cp": 2, "dp": 2, "pp": 2}, "tp-dp-pp", 0, "tp"),
        ("an axis of size 1 missing in the order", {"tp": 2, "dp": 2, "pp": 2}, "tp-dp-pp", 0, "cp"),
        ("missing axes are appended outermost", {"dp": 4}, "dp", 0, "dp-pp-tp"),
        ("upper case", {"tp": 2, "dp": 2, "pp": 2}, "TP-DP-PP", 0, "tp"),
        ("cp and ep together", {"tp": 2, "cp": 2, "ep": 2}, "tp-cp-ep-dp-pp", 0, "tp"),
        ("size 0", {"tp": 0, "dp": 2}, "tp-dp", 0, "tp"),
        ("a negative rank_offset is ignored", {"tp": 2, "dp": 2}, "tp-dp", -4, "tp"),
    ]
    return [
        {
            "kind": "generator-special",
            "case": case,
            "sizes": sizes,
            "order": order,
            "rank_offset": offset,
            "token": token,
        }
        | answer(lambda *given: generator(*given[:3]).get_ranks(given[3]), sizes, order, offset, token)
        for case, sizes, order, offset, token in cases
    ]


def grid_facts(dice: random.Random, count: int) -> list[dict[str, Any]]:
    facts = []
    names = ["tp", "cp", "ep", "dp", "pp", "replica", "A1"]
    for place in range(count):
        axes = dice.sample(names, k=dice.choice((2, 3, 4, 5)))
        sizes = sizes_of(dice, axes, 48)
        offset = 0 if place % 4 else dice.choice((1, 8, 64))
        os.environ["WORLD_SIZE"] = str(math.prod(sizes.values()) + offset)
        grid = HyperCommGrid(list(sizes.values()), list(sizes), rank_offset=offset)
        pair = dice.sample(axes, k=2)
        several = dice.sample(axes, k=min(3, len(axes)))
        asked: list[Any] = [axes[0], axes[-1], [axes[0]], pair, pair[::-1], several, several[::-1], axes]
        facts.append(
            {
                "kind": "grid",
                "shape": list(sizes.values()),
                "dim_names": list(sizes),
                "rank_offset": offset,
                "calls": [[dims, grid.get_rank_enum(dims)] for dims in asked],
            }
        )
    return facts


def grid_specials() -> list[dict[str, Any]]:
    cases: list[tuple[str, list[int], list[str], int, int, Any]] = [
        ("a name twice", [2, 2, 2], ["tp", "dp", "tp"], 0, 8, "tp"),
        ("a name twice", [2, 2, 2], ["tp", "dp", "tp"], 0, 8, "dp"),
        ("a name twice in the dims asked", [2, 2, 2], ["tp", "dp", "pp"], 0, 8, ["tp", "tp"]),
        ("an unknown dim", [2, 2, 2], ["tp", "dp", "pp"], 0, 8, "sp"),
        ("an unknown dim in a list", [2, 2, 2], ["tp", "dp", "pp"], 0, 8, ["tp", "sp"]),
        ("no dims", [2, 2, 2], ["tp", "dp", "pp"], 0, 8, []),
        ("a tuple of dims", [2, 2, 2], ["tp", "dp", "pp"], 0, 8, ("tp", "dp")),
        ("smaller than the world", [2, 2], ["tp", "dp"], 0, 8, "dp"),
        ("larger than the world", [2, 8], ["tp", "dp"], 0, 8, "dp"),
        ("past the end of the world", [2, 2], ["tp", "dp"], 6, 8, "dp"),
        ("a negative rank_offset", [2, 2], ["tp", "dp"], -1, 8, "dp"),
        ("fewer names than sizes", [2, 2], ["tp"], 0, 4, "tp"),
        ("size 0", [2, 0], ["tp", "dp"], 0, 4, "tp"),
        ("a name einops does not take", [2, 2], ["tp", "_dp"], 0, 4, "tp"),
        ("a name with a blank", [2, 2], ["tp", "d p"], 0, 4, "tp"),
    ]
    facts = []
    for case, shape, names, offset, world, dims in cases:
        os.environ["WORLD_SIZE"] = str(world)

        def ask(shape: list[int], names: list[str], offset: int, dims: Any) -> Any:
            return HyperCommGrid(shape, names, rank_offset=offset).get_rank_enum(dims)

        fact = {"kind": "grid-special", "case": case, "shape": shape, "dim_names": names, "rank_offset": offset}
        facts.append(fact | {"world": world, "dims": dims} | answer(ask, shape, names, offset, dims))
    return facts


def main() -> None:
    facts = generator_facts(random.Random(1), 70) + generator_specials()
    deliver(facts + grid_facts(random.Random(2), 45) + grid_specials(), numpy=np.__version__)


if __name__ == "__main__":
    main()
