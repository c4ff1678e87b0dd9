"""The seeds that PaddleNLP and PaddleFormers give to a rank.

    python paddle_seeds_facts.py paddlenlp|paddleformers OUT

Their modules import a whole training framework, so the function `_get_distributed_seeds` is compiled as it stands in
the file, together with the peer's own Topology class; the little that it asks of Paddle is stood in for here. A
fact's `seeds` are [global, local, random]. Its `kind` says where the ranks come from: "topology" (the peer's class),
"live" (a hybrid communicate group, whose ranks and sizes are then in `live`) or "alone" (neither).
"""

from __future__ import annotations

import collections
import math
import random
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from facts_io import answer, definitions, deliver, installed_file, load_file, run

AXES = ("dp", "pp", "sharding", "mp", "sep")
SEEDS = (0, 1, 42, 1234, 2024, 99999, 2**31 - 1)
FILES = {
    "paddlenlp": "paddlenlp/trainer/trainer_utils.py",
    "paddleformers": "paddleformers/trainer/trainer_utils.py",
}


class LiveGroup:
    """Stands in for Paddle's hybrid communicate group: it answers with the ranks and sizes that it was given."""

    def __init__(self, places: Mapping[str, Sequence[int]], with_sep: bool, sharding_with_cp: int) -> None:
        for axis, words in (
            ("mp", "model_parallel"),
            ("dp", "data_parallel"),
            ("pp", "pipe_parallel"),
            ("cp", "context_parallel"),
            *([("sep", "sep_parallel")] if with_sep else []),
        ):
            self._answers(f"get_{words}_rank", places[axis][0])
            self._answers(f"get_{words}_world_size", places[axis][1])
        self._answers("get_stage_id", places["pp"][0])
        self._sharding = places["sharding"][0]
        self._sharding_with_cp = sharding_with_cp

    def _answers(self, method: str, value: int) -> None:
        setattr(self, method, lambda: value)

    def get_sharding_parallel_rank(self, with_context_parallel: bool = False) -> int:
        return self._sharding_with_cp if with_context_parallel else self._sharding


class Seeds:
    """The peer's seed function with a world of our making around it."""

    def __init__(self, peer: str) -> None:
        path = installed_file(peer, FILES[peer])
        self._fleet = SimpleNamespace(fleet=SimpleNamespace())
        self._world = 1
        paddle = SimpleNamespace(distributed=SimpleNamespace(get_world_size=lambda: self._world))
        namespace: dict[str, Any] = {"np": np, "namedtuple": collections.namedtuple, "paddle": paddle}
        namespace["fleet"] = self._fleet
        if peer == "paddlenlp":
            topology_path = installed_file(peer, "paddlenlp/ops/distributed/utils/topo.py")
            self.topology = load_file(topology_path, "topo").Topology
            run(definitions(path, "_get_distributed_seeds"), namespace, path)
        else:
            run(definitions(path, "GroupInfo", "Topology", "_get_distributed_seeds"), namespace, path)
            self.topology = namespace["Topology"]
        self._function = namespace["_get_distributed_seeds"]

    def ask(self, seed: int, world: int, topology: Any, live: LiveGroup | None = None, with_cp: bool = False) -> Any:
        """[global, local, random] or the error. `with_cp` says that this Paddle knows context parallelism."""
        self._world = world
        vars(self._fleet).clear()
        self._fleet.fleet = SimpleNamespace()
        if live is not None:
            self._fleet.fleet._hcg = live
            self._fleet.get_hybrid_communicate_group = lambda: live
        if with_cp:
            self._fleet.get_context_parallel_rank = lambda: 0
        given = answer(self._function, seed, topology)
        return {"seeds": given["answer"]} if "answer" in given else given


def topology_facts(seeds: Seeds, dice: random.Random, count: int) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = []
    while len(facts) < count:
        degrees = [dice.choice((1, 1, 2, 2, 3, 4, 5, 8)) for _ in AXES]
        product = math.prod(degrees)
        if product > 256:
            continue
        order = dice.sample(AXES, k=5)
        rank = dice.randrange(product)
        # every tenth time the live world is not the topology's: the function mixes both
        world = product if dice.random() < 0.9 else dice.choice((1, 2 * product, product + 3))
        named = {f"{axis}_degree": degree for axis, degree in zip(AXES, degrees, strict=True)}
        try:
            topology = seeds.topology(rank, product, **named, order=order)
        except AssertionError:
            continue  # an order that the class refuses; paddlenlp.json holds those
        seed = dice.choice(SEEDS)
        fact = {
            "kind": "topology",
            "seed": seed,
            "degrees": degrees,
            "order": " ".join(order),
            "rank": rank,
            "world": world,
        }
        facts.append(fact | seeds.ask(seed, world, topology))
    return facts


def live_facts(seeds: Seeds, dice: random.Random, count: int, knows_cp: bool) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = []
    axes = (*AXES, "cp")
    while len(facts) < count:
        sizes = {axis: dice.choice((1, 2, 2, 3, 4)) for axis in axes}
        with_cp = knows_cp and len(facts) % 3 != 0
        if not with_cp:
            sizes["cp"] = 1
        elif sizes["cp"] > 1 and len(facts) % 7:
            sizes["sep"] = 1  # both at once is refused; a few of those are kept
        places = {axis: [dice.randrange(sizes[axis]), sizes[axis]] for axis in axes}
        with_sep = len(facts) % 5 != 0
        sharding_with_cp = dice.randrange(sizes["sharding"])
        world = math.prod(sizes.values())
        seed = dice.choice(SEEDS)
        fact: dict[str, Any] = {"kind": "live", "seed": seed, "live": places, "world": world}
        fact |= {"has_sep": with_sep, "has_cp": with_cp}
        if with_cp:
            fact["sharding_rank_with_cp"] = sharding_with_cp
        facts.append(fact | seeds.ask(seed, world, None, LiveGroup(places, with_sep, sharding_with_cp), with_cp))
    return facts


def alone_facts(seeds: Seeds) -> list[dict[str, Any]]:
    return [
        {"kind": "alone", "seed": seed, "world": world} | seeds.ask(seed, world, None)
        for seed in (0, 42, 1234)
        for world in (1, 2, 8)
    ]


def types_of(seeds: Seeds) -> list[str]:
    """The types of [global, local, random] when they come from a Topology, before they are turned into int."""
    topology = seeds.topology(5, 16, dp_degree=2, pp_degree=2, sharding_degree=2, mp_degree=2)
    seeds._world = 16
    return [f"{type(seed).__module__}.{type(seed).__name__}" for seed in seeds._function(1234, topology)]


def main() -> None:
    peer = sys.argv[1]
    seeds = Seeds(peer)
    dice = random.Random(1)
    bulk = 600 if peer == "paddlenlp" else 200
    facts = (
        topology_facts(seeds, dice, bulk) + live_facts(seeds, dice, 150, peer == "paddleformers") + alone_facts(seeds)
    )
    deliver(facts, numpy=np.__version__, types=types_of(seeds), axes=list(AXES))


if __name__ == "__main__":
    main()
