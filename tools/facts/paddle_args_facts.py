"""What PaddleNLP and PaddleFormers make of a launch configuration: sizes and order from training arguments.

    python paddle_args_facts.py paddlenlp|paddleformers OUT

The class around it imports a whole training framework and asks the machine, so only the statements that settle the
sizes are compiled as they stand, and run on a plain object. A fact's `kind` is "arguments" (`given`, then `result` or
`error`; what `given` leaves out has the header's default; `warnings` if any; `marks` where the five sizes do not make
up the world; a size of null was never set), "order" (the `order` that the dynamic trainer ends up with under `when`)
or "order-literal" (each list assigned to `order` in the file, with its line and the tests above it).
"""

from __future__ import annotations

import ast
import itertools
import math
import random
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any

from facts_io import definitions, deliver, error_of, installed_file, run


@dataclass(frozen=True)
class Dialect:
    """Where a peer keeps the statements, and what it calls the sizes (data, sharding, tensor, pipeline, sep)."""

    function: str
    sizes: tuple[str, ...]
    extra: tuple[str, ...]


DIALECTS = {
    "paddlenlp": Dialect(
        "__post_init__",
        (
            "data_parallel_degree",
            "sharding_parallel_degree",
            "tensor_parallel_degree",
            "pipeline_parallel_degree",
            "sep_parallel_degree",
        ),
        (),
    ),
    "paddleformers": Dialect(
        "_post_init_parallel_degree",
        (
            "data_parallel_size",
            "sharding_parallel_size",
            "tensor_model_parallel_size",
            "pipeline_model_parallel_size",
            "sep_parallel_size",
        ),
        ("context_parallel_size", "expert_model_parallel_size", "expert_tensor_model_parallel_size"),
    ),
}


# what else the statements read
OTHERS = ("sharding", "sharding_degree", "hybrid_parallel_topo_order", "enable_auto_parallel")


class Arguments:
    """The peer's own statements, ready to be run on one configuration after the other."""

    def __init__(self, peer: str) -> None:
        self.dialect = DIALECTS[peer]
        self.path = installed_file(peer, f"{peer}/trainer/training_args.py")
        options = installed_file(peer, f"{peer}/trainer/trainer_utils.py")
        self.tree = ast.parse(self.path.read_text(encoding="utf-8"), str(self.path))
        self.defaults = _defaults(self.tree, (*self.dialect.sizes[1:], *self.dialect.extra, *OTHERS))
        self._world = 1
        self._said: list[str] = []
        self._namespace: dict[str, Any] = {
            "Enum": Enum,
            "paddle": SimpleNamespace(distributed=SimpleNamespace(get_world_size=lambda: self._world)),
            "warnings": SimpleNamespace(warn=self._said.append),
            "logger": SimpleNamespace(warning=self._said.append),
        }
        run(definitions(options, "ExplicitEnum", "ShardingOption"), self._namespace, options)
        found = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.FunctionDef) and node.name == self.dialect.function and _settles(node.body)
        ]
        function = ast.FunctionDef(
            name="settle",
            args=ast.arguments(posonlyargs=[], args=[ast.arg("self")], kwonlyargs=[], kw_defaults=[], defaults=[]),
            body=list(_settles(found[0].body)),
            decorator_list=[],
        )
        run([ast.fix_missing_locations(function)], self._namespace, self.path)

    def settled(self, world: int, given: dict[str, Any]) -> SimpleNamespace | Exception:
        """The arguments once their sizes are settled, or what the peer raised."""
        arguments = SimpleNamespace(**self.defaults | given)
        self._world = world
        self._said.clear()
        try:
            self._namespace["settle"](arguments)
        except Exception as error:
            return error
        return arguments

    def ask(self, world: int, given: dict[str, Any]) -> dict[str, Any]:
        """One configuration; what it leaves out has the peer's default."""
        names = (*self.dialect.sizes[1:], *self.dialect.extra)
        fact: dict[str, Any] = {"kind": "arguments", "world": world, "given": given}
        arguments = self.settled(world, given)
        if isinstance(arguments, Exception):
            fact["error"] = error_of(arguments)
        else:
            result: dict[str, Any] = {name: getattr(arguments, name, None) for name in (self.dialect.sizes[0], *names)}
            result["use_hybrid_parallel"] = arguments.use_hybrid_parallel
            result["hybrid_parallel_topo_order"] = arguments.hybrid_parallel_topo_order
            result["sharding"] = [option.value for option in arguments.sharding]
            fact["result"] = result
            sizes = [int(result[name] or 0) for name in self.dialect.sizes]
            product = math.prod(sizes) if arguments.use_hybrid_parallel else world
            if product != world:
                fact["marks"] = [f"product {product} is not the world"]
        if self._said:
            fact["warnings"] = list(self._said)
        return fact


def _defaults(tree: ast.Module, names: Sequence[str]) -> dict[str, Any]:
    """The defaults of these fields of TrainingArguments; the two peers differ in one of them (sharding)."""
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "TrainingArguments")
    found = {
        node.target.id: ast.literal_eval(next(word.value for word in node.value.keywords if word.arg == "default"))
        for node in body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id in names
        and isinstance(node.value, ast.Call)
    }
    return {name: found[name] for name in names}


def _settles(body: list[ast.stmt]) -> list[ast.stmt]:
    """From `self.use_hybrid_parallel = False` to the `if` that undoes it under auto parallel; empty without them."""
    text = [ast.unparse(statement) for statement in body]
    first = [at for at, line in enumerate(text) if line == "self.use_hybrid_parallel = False"]
    end = "if self.use_hybrid_parallel and self.enable_auto_parallel:"
    last = [at for at, line in enumerate(text) if line.startswith(end)]
    return body[first[0] : last[0] + 1] if first and last else []


def argument_facts(arguments: Arguments, dice: random.Random, count: int) -> list[dict[str, Any]]:
    _, sharding, tensor, pipeline, sep = arguments.dialect.sizes
    facts = []
    for _ in range(count):
        world = dice.choice((1, 2, 4, 6, 8, 8, 12, 16, 16, 24, 32, 64))
        given: dict[str, Any] = {}
        for name, choices in (
            (tensor, (-1, 1, 1, 2, 2, 4, 8)),
            (pipeline, (-1, 1, 1, 2, 2, 3, 4)),
            (sharding, (-1, -1, 1, 2, 4, 8)),
            (sep, (-1, -1, 1, 1, 2)),
            ("sharding", ("", "", "stage1", "stage1", "stage2", "stage3")),
            ("hybrid_parallel_topo_order", (None, None, "pp_first", "sharding_first")),
        ):
            if dice.random() < 0.8:
                given[name] = dice.choice(choices)
        for name in arguments.dialect.extra[:2]:
            if dice.random() < 0.25:
                given[name] = 1
        facts.append(arguments.ask(world, given))
    return facts


def special_facts(arguments: Arguments) -> list[dict[str, Any]]:
    _, sharding, tensor, pipeline, sep = arguments.dialect.sizes
    cases: list[tuple[int, dict[str, Any]]] = [
        (1, {}),
        (8, {}),
        (8, {"sharding": "offload"}),
        (8, {"sharding": "stage2 offload"}),
        (8, {"sharding": "stage1 stage2"}),
        (8, {"sharding": "stage4"}),
        (8, {"sharding": True}),
        (8, {"sharding": "stage1", "sharding_degree": 4}),
        (8, {"sharding": "stage1", "sharding_degree": 2, sharding: 4}),
        (8, {sharding: 4}),
        (8, {sharding: 4, "sharding": "stage1", tensor: 4}),
        (8, {tensor: 16}),
        (8, {tensor: 3}),
        (8, {tensor: 2, pipeline: 3}),
        (8, {tensor: 0}),
        (8, {tensor: 4, sep: 4}),
        (8, {tensor: 2, sep: 3}),
        (12, {tensor: 2, sharding: 4, "sharding": "stage1"}),
        (8, {"hybrid_parallel_topo_order": "dp_first"}),
        (8, {tensor: 8, "enable_auto_parallel": True}),
        (1, {tensor: 8}),
    ]
    if arguments.dialect.extra:
        context, expert, expert_tensor = arguments.dialect.extra
        cases += [
            (8, {context: 2}),
            (8, {context: 2, sep: 2}),
            (8, {context: 2, sharding: 4, tensor: 2, "sharding": "stage1"}),
            (8, {expert: 4}),
            (8, {expert: 4, "sharding": ""}),
            (8, {expert: 8, sharding: 8, "sharding": "stage1"}),
            (16, {expert: 4, sharding: 8, tensor: 2, "sharding": "stage1"}),
            (16, {expert: 2, sharding: 4, tensor: 4, "sharding": "stage1"}),
            (8, {expert_tensor: 2}),
        ]
    return [arguments.ask(world, given) for world, given in cases]


def order_facts(arguments: Arguments) -> list[dict[str, Any]]:
    """The dynamic trainer's order, by running its own ifs: those that stand side by side and build `order`."""
    blocks = [
        list(itertools.takewhile(_builds_order, itertools.dropwhile(lambda node: not _builds_order(node), body)))
        for node in ast.walk(arguments.tree)
        for body in (getattr(node, "body", None), getattr(node, "orelse", None))
        if isinstance(body, list) and any("is_segment_parallel_supported" in ast.unparse(item) for item in body)
    ]
    block = next(part for part in blocks if len(part) >= 3)
    flags: tuple[str, ...] = ("segment", "use_expert_parallel")
    if arguments.dialect.extra:
        flags += ("context", "reorder_pipeline_priority", "expert_sizes")
    facts = []
    for name in ("pp_first", "sharding_first"):
        for values in itertools.product((True, False), repeat=len(flags)):
            when = dict(zip(flags, values, strict=True))
            self = SimpleNamespace(
                hybrid_parallel_topo_order=name,
                use_expert_parallel=when["use_expert_parallel"],
                reorder_pipeline_priority=when.get("reorder_pipeline_priority", False),
                moe_sharding_parallel_size=1,
                expert_model_parallel_size=2 if when.get("expert_sizes") else 1,
            )
            supported = {
                "is_segment_parallel_supported": lambda when=when: when["segment"],
                "is_context_parallel_supported": lambda when=when: when.get("context", False),
            }
            made = run(block, {"self": self, **supported}, arguments.path)
            facts.append({"kind": "order", "when": {"topo_order": name, **when}, "order": made["order"]})
    return facts


def _builds_order(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(
        ast.unparse(inner).startswith(("order =", "order.insert"))
        for inner in ast.walk(node)
        if isinstance(inner, ast.stmt)
    )


def literal_facts(tree: ast.Module) -> list[dict[str, Any]]:
    return [
        {"kind": "order-literal", "line": line, "order": order, "under": under}
        for line, order, under in _literals(tree.body, [])
    ]


def _literals(body: list[ast.stmt], under: list[str]) -> Iterator[tuple[int, list[str], list[str]]]:
    for statement in body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "order":
            if isinstance(statement.value, ast.List):
                yield statement.lineno, ast.literal_eval(statement.value), under
        elif isinstance(statement, ast.If):
            test = ast.unparse(statement.test)
            yield from _literals(statement.body, [*under, test])
            yield from _literals(statement.orelse, [*under, f"not ({test})"])
        else:
            for part in ("body", "orelse", "finalbody"):
                yield from _literals(getattr(statement, part, []), under)


def main() -> None:
    warnings.simplefilter("error")
    arguments = Arguments(sys.argv[1])
    facts = argument_facts(arguments, random.Random(1), 320) + special_facts(arguments)
    deliver(facts + order_facts(arguments) + literal_facts(arguments.tree), defaults=arguments.defaults)


if __name__ == "__main__":
    main()
