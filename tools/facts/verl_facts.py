"""The meshes verl's FSDP engine and its rollout ask for.

    python verl_facts.py OUT

verl imports a whole serving stack, so its `create_device_mesh` is compiled as it stands, with a torch function in its
namespace that keeps what it was asked ("fsdp": world, size, names, shape). The rollout's mesh is made inside a method:
the statements of it that settle the shape are compiled as well ("rollout": given, names, shape, or the error). Of the
engine's own method that makes the mesh of sequences the whole is run ("ulysses": world, size, names, shape).
"""

from __future__ import annotations

import ast
import random
from types import SimpleNamespace
from typing import Any

from facts_io import answer, definitions, deliver, installed_file, run


def fsdp(world: int, size: int) -> list[Any]:
    path = installed_file("verl", "verl/workers/engine/fsdp/utils.py")
    namespace = {
        "get_device_name": lambda: "cpu",
        "init_device_mesh": lambda device, mesh_shape, mesh_dim_names: [list(mesh_dim_names), list(mesh_shape)],
    }
    return run(definitions(path, "create_device_mesh"), namespace, path)["create_device_mesh"](world, size)


def rollout(world: int, given: dict[str, int]) -> list[Any]:
    path = installed_file("verl", "verl/workers/engine_workers.py")
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    wanted = ("infer_tp", "infer_pp", "infer_world_size", "dp", "rollout_device_mesh")
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and any(
            "infer_world_size" in ast.unparse(one) for one in function.body
        ):
            block = next(body for body in _bodies(function) if any(_sets(one) == "infer_world_size" for one in body))
            chosen = [one for one in block if _sets(one) in wanted or isinstance(one, ast.Assert)]
            namespace = {
                "rollout_config": SimpleNamespace(**given),
                "self": SimpleNamespace(world_size=world),
                "get_device_name": lambda: "cpu",
                "init_device_mesh": lambda device, mesh_shape, mesh_dim_names: [list(mesh_dim_names), list(mesh_shape)],
            }
            return run(chosen, namespace, path)["rollout_device_mesh"]
    raise LookupError("no rollout mesh in verl")


class Asked(list):
    """What torch was asked for, in the place of the mesh that it would give."""

    def __getitem__(self, name: Any) -> Any:
        return SimpleNamespace(get_group=lambda: None) if isinstance(name, str) else super().__getitem__(name)


def ulysses(world: int, size: int) -> Any:
    path = installed_file("verl", "verl/workers/engine/fsdp/transformer_impl.py")
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    wanted = ("_init_device_mesh", "get_data_parallel_size")
    methods = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in wanted]
    for method in methods:  # the mesh is asked for under torch's name, which the namespace gives
        method.body = [one for one in method.body if not isinstance(one, ast.ImportFrom)]
    engine = ast.ClassDef(name="Engine", bases=[], keywords=[], body=list(methods), decorator_list=[])
    namespace = {
        "torch": SimpleNamespace(distributed=SimpleNamespace(get_world_size=lambda: world)),
        "create_device_mesh": lambda world_size, fsdp_size: None,
        "device_name": "cpu",
        "init_device_mesh": lambda device, mesh_shape, mesh_dim_names: Asked([list(mesh_dim_names), list(mesh_shape)]),
    }
    made = run([ast.fix_missing_locations(engine)], namespace, path)["Engine"]()
    made.engine_config = SimpleNamespace(fsdp_size=-1, ulysses_sequence_parallel_size=size)
    made._init_device_mesh()
    return made.ulysses_device_mesh


def _bodies(node: ast.AST) -> list[list[ast.stmt]]:
    return [getattr(inner, "body") for inner in ast.walk(node) if isinstance(getattr(inner, "body", None), list)]


def _sets(statement: ast.stmt) -> str:
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    return target.id if isinstance(target, ast.Name) else ""


def main() -> None:
    dice = random.Random(10)
    facts: list[dict[str, Any]] = []
    for _ in range(30):
        world = dice.choice((4, 8, 12, 16, 32))
        size = dice.choice((-1, 2, 4, world, 2 * world))
        facts.append({"kind": "fsdp", "world": world, "fsdp_size": size} | answer(fsdp, world, size))
        given = {
            "tensor_model_parallel_size": dice.choice((1, 2, 4)),
            "data_parallel_size": dice.choice((1, 1, 2)),
            "pipeline_model_parallel_size": dice.choice((1, 1, 2)),
        }
        facts.append({"kind": "rollout", "world": world, "given": given} | answer(rollout, world, given))
    for _ in range(24):
        world, size = dice.choice((4, 8, 12, 16, 32)), dice.choice((1, 2, 2, 4, 4))
        facts.append({"kind": "ulysses", "world": world, "size": size} | answer(ulysses, world, size))
    deliver(facts)


if __name__ == "__main__":
    main()
