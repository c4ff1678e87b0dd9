"""What PaddleNLP's Topology answers: every order, random layouts, what it refuses and what it lets pass.

    python paddlenlp_facts.py rules|random|repr OUT

A fact's `kind` is "order" (all 120 orders), "repr" or "special" in the rules, "random" in the random part; an `order`
of null was left to the default. Where Topology answers, `groups` holds [rank, start, step, count] for dp, pp,
sharding, mp, sep (a group's world is start, start + step, …; count is its size), and `data` holds [size, rank,
world[device_rank], digest of world]; the digest is the first 16 hex digits of the SHA-256 of the list as compact JSON.
The `world` field needs no place: it is proven here to be (world, rank, [0 … world - 1]). Where Topology raises,
`error` holds the type and the message. `marks` says why an answer that was given is none to rely on: the product of
the degrees is not the world size, an axis stands twice in the order, or data_info.world contradicts dp_info and
sharding_info of other ranks (in some orders with sharding before dp; the class notices only at some of the ranks).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from facts_io import deliver, error_of, installed_file, load_file, plain

AXES = ("dp", "pp", "sharding", "mp", "sep")
ORDER_DEGREES = ((2, 2, 2, 2, 2), (3, 2, 1, 4, 1), (1, 2, 3, 2, 2), (2, 3, 2, 1, 1))


def progression(world: Sequence[int]) -> list[int]:
    """[start, step, count] of a group's world, proven to be that progression."""
    step = world[1] - world[0] if len(world) > 1 else 1
    if list(world) != [world[0] + step * place for place in range(len(world))]:
        raise AssertionError(f"{world} is no progression")
    return [world[0], step, len(world)]


def digest(world: Sequence[int]) -> str:
    return hashlib.sha256(json.dumps(world, separators=(",", ":")).encode()).hexdigest()[:16]


def marks_of(topology: Any, world: int, degrees: Sequence[int], order: Sequence[str]) -> Iterator[str]:
    """Why this layout's answer, though given, is wrong or means little."""
    product = math.prod(degrees)
    if product != world:
        yield "product<world" if product < world else "product>world"
    if len(order) > len(AXES):
        yield "axis twice in order"
    elif topology.data_info.world != data_ranks(degrees, order):
        yield "data_info.world wrong"


def data_ranks(degrees: Sequence[int], order: Sequence[str]) -> list[int]:
    """Every rank's place over dp and sharding, dp major: what data_info.world says it holds."""
    sizes = dict(zip(AXES, degrees, strict=True))
    places = np.unravel_index(np.arange(math.prod(degrees)), [sizes[axis] for axis in order])
    at = dict(zip(order, places, strict=True))
    return list((at["dp"] * sizes["sharding"] + at["sharding"]).tolist())


def ask(module: Any, kind: str, rank: Any, world: Any, degrees: Sequence[Any], order: Any) -> dict[str, Any]:
    """One Topology, as a fact. `order` None leaves the argument away."""
    fact: dict[str, Any] = {"kind": kind, "rank": rank, "world": world, "degrees": list(degrees)}
    fact["order"] = order if order is None else " ".join(order)
    if isinstance(order, tuple):
        fact["order_type"] = "tuple"
    named = {f"{axis}_degree": degree for axis, degree in zip(AXES, degrees, strict=True)}
    if order is not None:
        named["order"] = order
    try:
        topology = module.Topology(rank, world, **named)
    except Exception as error:
        return fact | {"error": error_of(error)}
    infos = [getattr(topology, f"{axis}_info") for axis in AXES]
    for info in infos:
        if info.size != len(info.world):
            raise AssertionError(f"size {info.size} of {info.world}")
    if topology.world != (world, rank, list(range(world))):
        raise AssertionError(f"world is {topology.world}")
    marks = list(marks_of(topology, world, degrees, order or AXES))
    if marks:
        fact["marks"] = marks
    fact["groups"] = plain([[info.rank, *progression(info.world)] for info in infos])
    data = topology.data_info
    fact["data"] = plain([data.size, data.rank, data.world[rank], digest(data.world)])
    fact["is_last"] = plain(topology.is_last)
    fact["inner"] = plain(topology.data_inner_times)
    if kind == "repr":
        fact["repr"] = repr(topology)
    return fact


def layout(dice: random.Random, most: int = 96) -> list[int]:
    """Random degrees whose product is at most `most`."""
    while True:
        degrees = [dice.choice((1, 1, 2, 2, 3, 4, 5, 6, 8)) for _ in AXES]
        if math.prod(degrees) <= most:
            return degrees


def order_facts(module: Any, dice: random.Random) -> list[dict[str, Any]]:
    facts = []
    for order in itertools.permutations(AXES):
        for degrees in ORDER_DEGREES:
            world = math.prod(degrees)
            facts.append(ask(module, "order", dice.randrange(world), world, degrees, list(order)))
    return facts


def random_facts(module: Any, dice: random.Random, count: int) -> list[dict[str, Any]]:
    facts = []
    for _ in range(count):
        degrees = layout(dice)
        product = math.prod(degrees)
        world, rank = product, dice.randrange(product)
        turn = dice.random()
        if turn < 0.08:
            world = product + dice.randrange(1, product + 1)  # silently accepted: ranks beyond the product are lost
            rank = dice.randrange(world)
        elif turn < 0.12 and product > 1:
            world = dice.randrange(1, product)
        # most of the cases in an order that PaddleNLP's own launcher can ask for: dp before sharding
        order = dice.sample(AXES, k=5)
        if dice.random() < 0.7 and order.index("sharding") < order.index("dp"):
            low, high = order.index("sharding"), order.index("dp")
            order[low], order[high] = order[high], order[low]
        facts.append(ask(module, "random", rank, world, degrees, order))
    return facts


def repr_facts(module: Any, dice: random.Random, count: int) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = []
    while len(facts) < count:
        degrees = layout(dice, 48)
        world = math.prod(degrees)
        shuffled = dice.sample(AXES, k=5)
        # mostly a list, now and then the default, now and then a tuple: each prints as what it is
        order = {0: None, 5: tuple(shuffled)}.get(len(facts) % 6, shuffled)
        fact = ask(module, "repr", dice.randrange(world), world, degrees, order)
        if "error" not in fact:
            facts.append(fact)
    return facts


def special_facts(module: Any) -> list[dict[str, Any]]:
    default = list(AXES)
    cases: list[tuple[Any, Any, Sequence[Any], Any]] = [
        (0, 8, (None, 2, 2, 2, 1), None),
        (0, 8, (None, 1, 1, 1, 1), None),
        (0, 1, (1, 1, 1, 1, 1), None),
        (8, 8, (2, 2, 1, 2, 1), None),
        (-1, 8, (2, 2, 1, 2, 1), None),
        (9, 16, (2, 2, 1, 2, 1), None),
        (3, 16, (2, 2, 1, 2, 1), None),
        (3, 4, (2, 2, 1, 2, 1), None),
        (6, 4, (2, 2, 1, 2, 1), None),
        (0, 0, (0, 1, 1, 1, 1), None),
        (0, 8, (0, 2, 2, 2, 1), None),
        (0, 8, (-1, 2, 2, 2, 1), None),
        (0, 8, (-2, -2, 1, 2, 1), None),
        (0, 8, (2, None, 2, 2, 1), None),
        (0, 8, (2.0, 2, 1, 2, 1), None),
        (0, 8, ("2", 2, 1, 2, 1), None),
        (0, 8, (2, 2, 1, 2, 1), default[:4]),
        (0, 8, (2, 2, 1, 2, 1), [*default, "ep"]),
        (0, 8, (2, 2, 1, 2, 1), [*default[:4], "ep"]),
        (0, 8, (2, 2, 1, 2, 1), []),
        (0, 8, (2, 2, 1, 2, 1), [*default, "dp"]),
        (0, 8, (2, 2, 1, 2, 1), [*default, "sep"]),
        (0, 8, (1, 2, 2, 2, 1), [*default, "dp"]),
        (5, 8, (2, 1, 2, 2, 1), ["sharding", "dp", "pp", "mp", "sep"]),
        (0, 8, (2, 1, 2, 2, 1), ["sharding", "dp", "pp", "mp", "sep"]),
        (7, 8, (2, 1, 2, 2, 1), ["sharding", "dp", "pp", "mp", "sep"]),
        (2, 6, (2, 1, 3, 1, 1), ["sharding", "dp", "pp", "mp", "sep"]),
    ]
    return [ask(module, "special", *case) for case in cases]


def types_of(module: Any) -> dict[str, str]:
    """The types that `plain` turns into int and bool above."""
    topology = module.Topology(5, 16, dp_degree=2, pp_degree=2, sharding_degree=2, mp_degree=2)

    def named(value: Any) -> str:
        kind = type(value)
        return kind.__name__ if kind.__module__ == "builtins" else f"numpy.{kind.__name__}"

    infos = ("world", "dp_info", "pp_info", "sharding_info", "mp_info", "sep_info", "data_info")
    types = {
        f"{info}.{part}": named(getattr(getattr(topology, info), part)) for info in infos for part in ("size", "rank")
    }
    types |= {f"{info}.world[0]": named(getattr(topology, info).world[0]) for info in infos}
    types |= {f"{info}.world": named(getattr(topology, info).world) for info in infos}
    return types | {name: named(getattr(topology, name)) for name in ("is_last", "data_inner_times", "order")}


def main() -> None:
    module = load_file(installed_file("paddlenlp", "paddlenlp/ops/distributed/utils/topo.py"), "topo")
    part = sys.argv[1]
    if part == "random":
        facts = random_facts(module, random.Random(3), 1600)
    elif part == "repr":
        facts = repr_facts(module, random.Random(2), 60)
    else:
        facts = order_facts(module, random.Random(1)) + repr_facts(module, random.Random(2), 60) + special_facts(module)
    deliver(facts, numpy=np.__version__, types=types_of(module), axes=list(AXES))


if __name__ == "__main__":
    main()
