"""What DeepSpeed's ProcessTopology answers.

    python deepspeed_facts.py OUT

A fact's `kind` is "layout" (all about one topology), "special" (one call, with its answer or error), "ready-made" (an
order that DeepSpeed writes down) or "dense" (the groups of the topology that it makes of three sizes).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from deepspeed.runtime.pipe import topology as peer
from facts_io import answer, deliver


def layout_facts(dice: random.Random, count: int) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = []
    names = ["pipe", "data", "model", "sequence", "expert"]
    while len(facts) < count:
        axes = ["pipe", "data", "model"] if len(facts) % 5 == 0 else dice.sample(names, k=dice.choice((1, 2, 3, 4, 5)))
        dims = [dice.choice((1, 2, 2, 3, 4, 5, 8)) for _ in axes]
        world = math.prod(dims)
        if world > 48:
            continue
        topology = peer.ProcessTopology(axes, dims)
        some = sorted(dice.sample(range(world), k=min(world, 4)))
        coords = {rank: topology.get_coord(rank)._asdict() for rank in some}
        kept = dice.sample(axes, k=dice.randrange(1, len(axes) + 1))
        filters = [{axis: coords[rank][axis] for axis in kept} for rank in some[:2]]
        filters.append({axes[0]: dims[0]})
        facts.append(
            {
                "kind": "layout",
                "axes": axes,
                "dims": dims,
                "world": topology.world_size(),
                "coords": [[rank, list(coords[rank].values())] for rank in some],
                "ranks": [topology.get_rank(**coords[rank]) for rank in some],
                "comm_lists": {axis: topology.get_axis_comm_lists(axis) for axis in axes},
                "filter_match": [[wanted, topology.filter_match(**wanted)] for wanted in filters],
                "axis_list": [[axis, at, topology.get_axis_list(axis, at)] for axis in axes for at in (0, 1)],
                "rank_repr": [
                    [rank, topology.get_rank_repr(rank), topology.get_rank_repr(rank, omit_axes=[])] for rank in some
                ],
            }
        )
    return facts


def special_facts() -> list[dict[str, Any]]:
    three = (["pipe", "data", "model"], [2, 2, 2])
    cases: list[tuple[str, str, list[str], list[int], Callable[[Any], Any]]] = [
        ("an unknown axis", "get_axis_comm_lists('expert')", *three, lambda t: t.get_axis_comm_lists("expert")),
        ("an unknown axis", "get_dim('expert')", *three, lambda t: t.get_dim("expert")),
        ("an unknown axis", "get_axis_list('expert', 0)", *three, lambda t: t.get_axis_list("expert", 0)),
        ("an unknown axis", "filter_match(expert=0)", *three, lambda t: t.filter_match(expert=0)),
        (
            "an unknown axis",
            "get_rank(pipe=0, data=0, expert=0)",
            *three,
            lambda t: t.get_rank(pipe=0, data=0, expert=0),
        ),
        ("too few coordinates", "get_rank(pipe=0, data=0)", *three, lambda t: t.get_rank(pipe=0, data=0)),
        (
            "a coordinate out of range",
            "get_rank(pipe=2, data=0, model=0)",
            *three,
            lambda t: t.get_rank(pipe=2, data=0, model=0),
        ),
        (
            "a negative coordinate",
            "get_rank(pipe=-1, data=0, model=0)",
            *three,
            lambda t: t.get_rank(pipe=-1, data=0, model=0),
        ),
        ("a rank out of range", "get_coord(8)", *three, lambda t: t.get_coord(8)),
        ("a negative rank", "get_coord(-1)", *three, lambda t: t.get_coord(-1)),
        ("no filter", "filter_match()", *three, lambda t: t.filter_match()),
        ("an index out of range", "get_axis_list('pipe', 2)", *three, lambda t: t.get_axis_list("pipe", 2)),
        ("more dims than axes", "world_size()", ["pipe", "data"], [2, 2, 3], lambda t: t.world_size()),
        ("more dims than axes", "mapping", ["pipe", "data"], [2, 2, 3], mapping),
        (
            "more dims than axes",
            "get_axis_comm_lists('data')",
            ["pipe", "data"],
            [2, 2, 3],
            lambda t: t.get_axis_comm_lists("data"),
        ),
        ("more dims than axes", "get_coord(0)", ["pipe", "data"], [2, 2, 3], lambda t: t.get_coord(0)),
        ("more axes than dims", "world_size()", ["pipe", "data", "model"], [2, 2], lambda t: t.world_size()),
        ("an axis twice", "world_size()", ["pipe", "pipe"], [2, 2], lambda t: t.world_size()),
        ("a Python keyword", "world_size()", ["pipe", "class"], [2, 2], lambda t: t.world_size()),
        ("a name that begins with _", "world_size()", ["pipe", "_data"], [2, 2], lambda t: t.world_size()),
        ("size 0", "world_size()", ["pipe", "data"], [2, 0], lambda t: t.world_size()),
        ("size 0", "get_axis_comm_lists('pipe')", ["pipe", "data"], [2, 0], lambda t: t.get_axis_comm_lists("pipe")),
        ("a negative size", "world_size()", ["pipe", "data"], [2, -2], lambda t: t.world_size()),
        ("no axes", "world_size()", [], [], lambda t: t.world_size()),
    ]
    return [
        {"kind": "special", "case": case, "axes": axes, "dims": dims, "call": call}
        | answer(lambda *given: given[2](peer.ProcessTopology(*given[:2])), axes, dims, function)
        for case, call, axes, dims, function in cases
    ]


def mapping(topology: Any) -> list[Any]:
    """The whole table of a topology, as [coordinate, rank]."""
    return [[list(coord), rank] for coord, rank in topology.mapping.items()]


def ready_made_facts() -> list[dict[str, Any]]:
    """The two orders that DeepSpeed itself writes down."""
    made = {
        "PipeDataParallelTopology(num_pp=2, num_dp=3)": peer.PipeDataParallelTopology(num_pp=2, num_dp=3),
        "PipeModelDataParallelTopology(num_pp=2, num_mp=3, num_dp=4)": peer.PipeModelDataParallelTopology(
            num_pp=2, num_mp=3, num_dp=4
        ),
    }
    return [
        {"kind": "ready-made", "call": call, "axes": topology.axes, "dims": topology.dims}
        for call, topology in made.items()
    ]


def dense_facts(dice: random.Random, count: int) -> list[dict[str, Any]]:
    """The groups of the topology that its pipeline engine makes of the three sizes."""
    facts: list[dict[str, Any]] = []
    while len(facts) < count:
        sizes = {
            "num_pp": dice.choice((1, 2, 3, 4)),
            "num_mp": dice.choice((1, 2, 4)),
            "num_dp": dice.choice((1, 2, 3, 6)),
        }
        topology = peer.PipeModelDataParallelTopology(**sizes)
        if topology.world_size() > 48:
            continue
        lists = {axis: topology.get_axis_comm_lists(axis) for axis in topology.axes}
        facts.append({"kind": "dense", "world": topology.world_size(), "given": sizes, "comm_lists": lists})
    return facts


def main() -> None:
    facts = layout_facts(random.Random(1), 70) + ready_made_facts() + special_facts()
    deliver(facts + dense_facts(random.Random(2), 32))


if __name__ == "__main__":
    main()
