"""The groups that Paddle's fleet makes of a strategy's `hybrid_configs`, and of what two trainers give it.

    python paddle_fleet_facts.py fleet|paddleformers|paddlenlp OUT

Fleet runs whole, from the strategy to the last group of its constructor; only what talks to other processes is
replaced: a group to be made keeps its ranks, under the name of the axis or axes that fleet makes it for.

A fact's `kind` is "fleet" or "trainer". Of "fleet" it has the `world` and what is `given` as `hybrid_configs`, then
the `answer` (name → groups) or `error`; `stopped` are the ranks on which fleet fails though it does not on rank 0. Of
"trainer" it has training arguments as `given`, the `order` and `degrees` that the trainer tells fleet, the `answer` as
before, and what the trainer then says of its data: `data` holds [dataset_rank, dataset_world_size] of every rank, or
the error. The trainer's own statements are compiled as they stand.
"""

from __future__ import annotations

import ast
import random
import sys
import warnings
from types import SimpleNamespace
from typing import Any

warnings.simplefilter("ignore")

import paddle  # noqa: E402
from facts_io import answer, deliver, error_of, run  # noqa: E402
from paddle.distributed import fleet  # noqa: E402
from paddle.distributed.fleet.base import topology  # noqa: E402
from paddle_args_facts import Arguments, _builds_order  # noqa: E402


class Machine:
    """The processes there would be: which one this is, and the groups they would make."""

    def __init__(self) -> None:
        self.world = 1
        self.rank = 0
        self.groups: dict[str, list[list[int]]] = {}
        self.making = ""
        paddle.distributed.get_world_size = lambda *given: self.world
        paddle.distributed.get_rank = lambda *given: self.rank
        paddle.distributed.all_reduce = lambda *given, **named: None
        paddle.distributed.new_group = self.new_group
        plain, experts = topology.HybridCommunicateGroup, topology.EPHybridCommunicateGroup
        for owner, method, name in (
            (plain, "_set_comm_group", None),
            (plain, "create_fuse_group", None),
            (plain, "_set_check_group", ""),
            (experts, "build_sharding_group", "sharding"),
            (experts, "build_context_group", "context"),
            (experts, "build_context_sharding_group", "context_sharding"),
            (experts, "build_cp_mp_fuse_group", "context_model"),
        ):
            setattr(owner, method, self.told(getattr(owner, method), name))

    def told(self, method: Any, name: str | None) -> Any:
        """The method itself, and the groups it makes kept under `name`, or the axes given; "" is none."""

        def call(group: Any, first: Any, *rest: Any, **named: Any) -> Any:
            axes = first if isinstance(first, str) else "*".join(first) if isinstance(first, list) else ""
            self.making = axes if name is None else name
            return method(group, first, *rest, **named)

        return call

    def new_group(self, ranks: list[int], **named: Any) -> Any:
        if max(ranks) >= self.world:
            raise ValueError(f"a group of ranks {ranks} in a world of {self.world}")
        if self.making:
            self.groups.setdefault(self.making, []).append(list(ranks))
        place = ranks.index(self.rank) if self.rank in ranks else -1
        return SimpleNamespace(ranks=list(ranks), nranks=len(ranks), rank=place, process_group=None)

    def start(self, world: int, rank: int, given: dict[str, Any]) -> None:
        """Fleet on one of `world` ranks, as far as `fleet.init` goes once the processes know each other."""
        self.world, self.rank, self.groups = world, rank, {}
        started = fleet.fleet
        started._hcg = None
        strategy = fleet.DistributedStrategy()
        strategy.hybrid_configs = dict(given)
        started._user_defined_strategy = strategy
        started._init_hybrid_parallel_env()


MACHINE = Machine()


def asked(world: int, given: dict[str, Any]) -> dict[str, Any]:
    """What fleet does on rank 0, and which ranks it then stops."""
    fact = answer(lambda: MACHINE.start(world, 0, given) or MACHINE.groups)
    stopped = [] if "error" in fact else [rank for rank in range(world) if _stops(world, rank, given)]
    return fact | ({"stopped": stopped} if stopped else {})


def _stops(world: int, rank: int, given: dict[str, Any]) -> bool:
    try:
        MACHINE.start(world, rank, given)
    except AssertionError:
        return True
    return False


ORDER = ["dp", "pp", "sharding", "sep", "mp"]


def fleet_facts(dice: random.Random, count: int) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = []
    while len(facts) < count:
        sizes = {axis: dice.choice((1, 1, 2, 2, 3)) for axis in ORDER}
        world = 1
        for size in sizes.values():
            world *= size
        if not 4 <= world <= 36:
            continue
        given: dict[str, Any] = {
            f"{axis}_degree": size for axis, size in sizes.items() if size > 1 or dice.random() < 0.5
        }
        way = len(facts) % 8
        if way == 1:
            given.pop("dp_degree", None)
        elif way == 2:
            given["dp_degree"] = -1
        elif way == 3:
            given["order"] = [*ORDER[:-1], "cp", "mp"]
        if way in (3, 7):
            given["cp_degree"] = 2
            world *= dice.choice((1, 2))
        if way in (4, 5, 6, 7):
            given["order"] = dice.sample(ORDER, k=5) if dice.random() < 0.8 else list(ORDER)
        facts.append({"kind": "fleet", "world": world, "given": given} | asked(world, given))
    for given, world in (
        ({}, 8),
        ({"mp_degree": 2}, 8),
        ({"mp_degree": 2}, 2),
        ({"mp_degree": 2, "sharding_degree": 2}, 8),
        ({"mp_degree": 2, "sharding_degree": 2, "dp_degree": 2}, 8),
        ({"mp_degree": 3}, 8),
        ({"dp_degree": 0, "mp_degree": 8}, 8),
        ({"dp_degree": 2, "mp_degree": 0, "pp_degree": 4}, 8),
        ({"dp_degree": 8, "sharding_degree": 0}, 8),
        ({"dp_degree": 8, "sharding_degree": -1}, 8),
        ({"dp_degree": 8, "sep_degree": -1}, 8),
        ({"dp_degree": 2, "cp_degree": 4}, 8),
        ({"dp_degree": 8, "cp_degree": 4, "order": list(ORDER)}, 8),
        ({"dp_degree": 8, "order": ["dp", "pp", "mp"]}, 8),
        ({"dp_degree": 8, "order": [*ORDER, "dp"]}, 8),
        ({"dp_degree": 8, "order": [*ORDER, "tp"]}, 8),
        ({"dp_degree": 8, "order": [*ORDER, "ep"]}, 8),
        ({"dp_degree": 8, "ep_degree": 4}, 8),
        ({"dp_degree": 8, "ep_degree": 4, "order": [*ORDER, "ep"]}, 8),
        ({"sharding_degree": 8, "ep_degree": 4, "moe_sharding_degree": 2, "order": [*ORDER, "ep"]}, 8),
        ({"tp_degree": 8}, 8),
    ):
        facts.append({"kind": "fleet", "world": world, "given": given} | asked(world, given))
    for _ in range(40):  # experts
        inner, moe, mp, pp = dice.choice((1, 2)), dice.choice((1, 2, 3)), dice.choice((1, 2)), dice.choice((1, 2, 3))
        if inner * mp == 1:
            continue
        order = ["dp", "pp", "moe_sharding", "cp", "sharding", "sep", "ep", "mp"]
        if dice.random() < 0.4:
            order = ["dp", "moe_sharding", "cp", "sharding", "pp", "sep", "ep", "mp"]
        elif dice.random() < 0.6:
            dice.shuffle(order)
        given = {"dp_degree": 1, "mp_degree": mp, "pp_degree": pp, "sharding_degree": moe * inner}
        given |= {"ep_degree": inner * mp, "moe_sharding_degree": moe, "order": order}
        given |= {"cp_degree": dice.choice((1, inner))}
        world = mp * pp * moe * inner
        facts.append({"kind": "fleet", "world": world, "given": given} | asked(world, given))
    return facts


class Trainer:
    """A trainer's arguments as far as they settle sizes, tell fleet, and ask it for a place in the data."""

    PROPERTIES = ("data_parallel_rank", "sharding_parallel_rank", "cp_sharding_degree", "cp_sharding_rank")

    def __init__(self, peer: str) -> None:
        self.arguments = Arguments(peer)
        tree, path = self.arguments.tree, self.arguments.path
        supported = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
            and node.name in ("is_segment_parallel_supported", "is_context_parallel_supported")
        ]
        body = next(
            part
            for node in ast.walk(tree)
            for part in (getattr(node, "body", None),)
            if isinstance(part, list) and supported[0] in part
        )
        chosen = [
            one
            for one in body
            if one in supported
            or _builds_order(one)
            or (isinstance(one, ast.If) and "hybrid_configs = {" in _text(one))
        ]
        chosen += [one for one in body if isinstance(one, ast.If) and "hybrid_configs['ep_degree']" in _text(one)]
        self.tell = [one for at, one in enumerate(chosen) if one not in chosen[:at]]
        whole = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "TrainingArguments")
        held = [
            node
            for node in whole.body
            if isinstance(node, ast.FunctionDef)
            and node.name in (*self.PROPERTIES, "dataset_rank", "dataset_world_size")
        ]
        place = ast.ClassDef(name="Place", bases=[], keywords=[], body=list(held), decorator_list=[])
        namespace: dict[str, Any] = {"fleet": fleet, "paddle": paddle}
        self.place = run([ast.fix_missing_locations(place)], namespace, path)["Place"]

    def ask(self, world: int, given: dict[str, Any]) -> dict[str, Any]:
        told = {"use_expert_parallel": False, "reorder_pipeline_priority": False, **given}
        fact: dict[str, Any] = {"kind": "trainer", "world": world, "given": given}
        MACHINE.world, MACHINE.rank = world, 0
        settled = self.arguments.settled(world, told)
        if isinstance(settled, Exception):
            return fact | {"error": error_of(settled)}
        if not settled.use_hybrid_parallel:
            return {}  # plain data parallelism, which the trainer does not tell fleet about
        namespace: dict[str, Any] = {
            "self": settled,
            "fleet": fleet,
            "logger": SimpleNamespace(warning=lambda *given: None, info=lambda *given: None),
        }
        run(self.tell, namespace, self.arguments.path)
        configs = namespace["hybrid_configs"]
        fact |= {"order": configs["order"], "degrees": {k: v for k, v in configs.items() if k != "order"}}
        fact |= asked(world, configs)
        if "error" in fact or "stopped" in fact:
            return fact
        held = self.place()
        held.__dict__.update(vars(settled))
        try:
            data = []
            for rank in range(world):
                MACHINE.start(world, rank, configs)
                data.append([held.dataset_rank, held.dataset_world_size])
            return fact | {"data": data}
        except Exception as error:
            return fact | {"data": {"error": error_of(error)}}


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def drawn_for_paddleformers(dice: random.Random, way: int) -> dict[str, Any]:
    given: dict[str, Any] = {
        "tensor_model_parallel_size": dice.choice((1, 2, 2, 4)),
        "pipeline_model_parallel_size": dice.choice((1, 1, 2, 3)),
        "sharding": dice.choice(("stage1", "stage1", "stage2", "")),
    }
    if way in (0, 1):
        given["expert_model_parallel_size"] = dice.choice((2, 2, 4, 8))
        given["use_expert_parallel"] = True
        given["sharding"] = "stage1"
        given["reorder_pipeline_priority"] = dice.random() < 0.3
    if way in (1, 2):
        given["context_parallel_size"] = 2
    elif dice.random() < 0.3:
        given["sep_parallel_size"] = 2
    if dice.random() < 0.6:
        given["hybrid_parallel_topo_order"] = dice.choice(("pp_first", "sharding_first"))
    if way == 3 and dice.random() < 0.5:
        given["sharding_parallel_size"] = dice.choice((1, 2))
    return given


def drawn_for_paddlenlp(dice: random.Random, way: int) -> dict[str, Any]:
    given: dict[str, Any] = {
        "tensor_parallel_degree": dice.choice((1, 2, 2, 4)),
        "pipeline_parallel_degree": dice.choice((1, 1, 2, 3)),
        "sharding": dice.choice(("stage1", "stage2", "")),
        "sep_parallel_degree": dice.choice((1, 1, 2)),
    }
    if way in (0, 1):
        given["use_expert_parallel"] = True
    if dice.random() < 0.6:
        given["hybrid_parallel_topo_order"] = dice.choice(("pp_first", "sharding_first"))
    if given["sharding"] and dice.random() < 0.7:
        given["sharding_parallel_degree"] = dice.choice((1, 2, 2, 4))
    return given


def trainer_facts(peer: str, dice: random.Random, count: int) -> list[dict[str, Any]]:
    trainer = Trainer(peer)
    drawn = {"paddleformers": drawn_for_paddleformers, "paddlenlp": drawn_for_paddlenlp}[peer]
    facts: list[dict[str, Any]] = []
    for _ in range(20 * count):
        if len(facts) == count:
            break
        world = dice.choice((4, 8, 8, 12, 16, 16, 24))
        given = drawn(dice, len(facts) % 4)
        fact = trainer.ask(world, given)
        refused = sum("error" in other for other in facts)
        if not fact or ("error" in fact and refused * 4 >= len(facts)):
            continue  # most of what is drawn does not fit; a few of those are enough
        facts.append(fact)
    return facts


def main() -> None:
    dice = random.Random(33)
    asked = sys.argv[1]
    facts = fleet_facts(dice, 64) if asked == "fleet" else trainer_facts(asked, dice, 96)
    deliver(facts, paddle=paddle.__version__)


if __name__ == "__main__":
    main()
