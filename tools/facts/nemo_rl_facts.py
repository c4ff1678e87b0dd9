"""How NeMo-RL shares out a cluster, and lays out the policy and the engines on their parts.

    RANKATLAS_NEMO_RL=CHECKOUT python nemo_rl_facts.py COMMIT OUT

What the package registry has under the name is an empty placeholder, so the source is a checkout of
github.com/NVIDIA-NeMo/RL at that commit. Importing it would need Ray and vLLM; the statements that settle sizes are
compiled as they stand, with a cluster in their namespace that knows its size. A fact's `kind` is "cluster" (`given`:
the cluster's and the engines' nodes and devices; `answer`: [devices, nodes] of training and of generation), "policy"
(`world`, `given`; `answer`: the names and the ranks of its sharding annotations), "worker" (names and shape of the
device mesh that a DTensor worker asks torch for) or "engines" (as "policy", of vLLM).
"""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from facts_io import answer, deliver, load_file, run

SOURCE = Path(os.environ.get("RANKATLAS_NEMO_RL", "no checkout: set RANKATLAS_NEMO_RL"))


def tree_of(path: str) -> ast.Module:
    return ast.parse((SOURCE / path).read_text(encoding="utf-8"), path)


def function(tree: ast.AST, name: str, within: str | None = None) -> ast.FunctionDef:
    """A function by name, of a class where `within` names one."""
    owner: ast.AST = tree
    if within is not None:
        owner = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == within)
    return next(node for node in ast.walk(owner) if isinstance(node, ast.FunctionDef) and node.name == name)


def between(body: list[ast.stmt], first: str, last: str) -> list[ast.stmt]:
    """The statements from the one whose text begins with `first` to the one that begins with `last`."""
    text = [ast.unparse(statement) for statement in body]
    start = next(at for at, line in enumerate(text) if line.startswith(first))
    end = next(at for at, line in enumerate(text) if at >= start and line.startswith(last))
    return body[start : end + 1]


class Sharding:
    """NeMo-RL's own class, loaded alone: it needs numpy only."""

    def __init__(self) -> None:
        self.made = load_file(SOURCE / "nemo_rl/distributed/named_sharding.py", "named_sharding").NamedSharding


class Cluster:
    """As much of a cluster of Ray as sizes are asked of."""

    def __init__(self, each: int, nodes: int) -> None:
        self.each, self.nodes = each, nodes

    def world_size(self) -> int:
        return self.each * self.nodes


def policy(world: int, given: dict[str, Any]) -> Any:
    body = function(tree_of("nemo_rl/models/policy/lm_policy.py"), "__init__", "Policy").body
    # Which class works on a policy depends on what is installed; its sizes do not.
    namespace = {
        "config": given,
        "cluster": Cluster(world, 1),
        "self": SimpleNamespace(),
        "np": np,
        "os": SimpleNamespace(environ={"TORCH_CUDA_ARCH_LIST": "9.0"}),
        "NamedSharding": Sharding().made,
        "resolve_policy_worker_cls": lambda name, config: name,
        "worker_extension_cls_fqn": None,
    }
    run(between(body, "tp_size = 1", "self.sharding_annotations ="), namespace, SOURCE / "lm_policy.py")
    made = namespace["self"].sharding_annotations
    return [list(made.names), made.layout]


def worker(world: int, given: dict[str, Any]) -> Any:
    path = "nemo_rl/models/policy/workers/dtensor_policy_worker.py"
    body = next(
        node.body
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef) and "init_device_mesh" in ast.unparse(node) and node.name == "__init__"
    )
    chosen = between(body, "tp_size = ", "assert world_size ==") + between(body, "device_mesh = ", "device_mesh = ")
    asked = SimpleNamespace(init_device_mesh=lambda kind, shape, mesh_dim_names: [list(mesh_dim_names), list(shape)])
    namespace = {
        "self": SimpleNamespace(cfg=given, enable_seq_packing=False),
        "world_size": world,
        "torch": SimpleNamespace(distributed=SimpleNamespace(device_mesh=asked)),
    }
    run(chosen, namespace, SOURCE / path)
    return namespace["device_mesh"]


def engines(world: int, given: dict[str, Any]) -> Any:
    path = "nemo_rl/models/generation/vllm/vllm_generation.py"
    body = function(tree_of(path), "__init__", "VllmGeneration").body
    chosen = between(body, "self.tp_size =", "if self.ep_size > 1") + between(
        body, "self.sharding_annotations =", "self.sharding_annotations ="
    )
    namespace = {
        "self": SimpleNamespace(cfg={"vllm_cfg": given}),
        "cluster": Cluster(world, 1),
        "np": np,
        "NamedSharding": Sharding().made,
    }
    run(chosen, namespace, SOURCE / path)
    made = namespace["self"].sharding_annotations
    return [list(made.names), made.layout]


def cluster(given: dict[str, Any]) -> Any:
    path = "nemo_rl/algorithms/grpo.py"
    body = function(tree_of(path), "setup").body
    chosen = between(body, "total_nodes = ", "if total_nodes == 1")
    split = next(node for node in body if isinstance(node, ast.If) and ast.unparse(node.test) == "colocated_inference")
    kept = [
        node for node in ast.walk(split) if isinstance(node, ast.Call) and ast.unparse(node.func) == "RayVirtualCluster"
    ]
    assert len(kept) == 3, "the clusters of colocated generation, of training and of generation"
    made: list[list[int]] = []

    def made_of(**named: Any) -> Any:
        counts = named["bundle_ct_per_node_list"]
        made.append([counts[0], len(counts)])
        return SimpleNamespace(get_placement_groups=lambda: None)

    namespace = {
        "cluster_config": given["cluster"],
        "generation_config": given["generation"],
        "colocated_inference": given["generation"]["colocated"]["enabled"],
        "policy_config": {},
        "rm_env_enabled": False,
        "Optional": __import__("typing").Optional,
        "RayVirtualCluster": made_of,
        "prepare_segment_topology": lambda size, nodes, **named: (None, [], {}),
        "print": lambda *told, **named: None,
    }
    run([*chosen, split], namespace, SOURCE / path)
    return made if len(made) == 2 else made * 2


def part(dice: random.Random, backend: str) -> dict[str, Any]:
    sizes = [dice.choice((1, 1, 2, 2, 4)), dice.choice((1, 1, 2)), dice.choice((1, 1, 2, 3))]
    if backend == "megatron":
        names = ("tensor_model_parallel_size", "context_parallel_size", "pipeline_model_parallel_size")
        return {"megatron_cfg": {"enabled": True, **dict(zip(names, sizes))}, "dtensor_cfg": {"enabled": False}}
    names = ("tensor_parallel_size", "context_parallel_size")
    held = {"enabled": True, "sequence_parallel": False, "_v2": False, **dict(zip(names, sizes))}
    return {"dtensor_cfg": held, "megatron_cfg": {"enabled": False}}


def main() -> None:
    found = subprocess.run(["git", "-C", str(SOURCE), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if found.stdout.strip() != sys.argv[1]:
        raise SystemExit(f"RANKATLAS_NEMO_RL must name a checkout of NVIDIA-NeMo/RL at {sys.argv[1]}; {found.stderr}")
    dice = random.Random(21)
    facts: list[dict[str, Any]] = []
    for at in range(36):
        given = part(dice, "megatron" if at % 2 else "dtensor")
        world = dice.choice((4, 8, 8, 12, 16, 24))
        facts.append({"kind": "policy", "world": world, "given": given} | answer(policy, world, given))
        if not at % 2:
            facts.append({"kind": "worker", "world": world, "given": given} | answer(worker, world, given))
    for _ in range(30):
        world = dice.choice((4, 8, 8, 12, 16))
        given = {
            "tensor_parallel_size": dice.choice((1, 2, 2, 4)),
            "pipeline_parallel_size": dice.choice((1, 1, 2, 3)),
            "expert_parallel_size": 1,
            "async_engine": True,
        }
        facts.append({"kind": "engines", "world": world, "given": given} | answer(engines, world, given))
    for at in range(64):
        nodes, each = dice.choice((1, 2, 3, 4)), dice.choice((4, 8))
        alone, several = (1, 1, 2, 3, 4, None), (each, each, each, each, 2, None)
        resources = {
            "gpus_per_node": dice.choice(alone if nodes == 1 else several),
            "num_nodes": dice.choice((None, None, None, 1, 2) if nodes == 1 else (1, 1, 1, 2, 0)),
        }
        given = {
            "cluster": {"gpus_per_node": each, "num_nodes": nodes},
            "generation": {"backend": "vllm", "colocated": {"enabled": at % 5 == 0, "resources": resources}},
        }
        facts.append({"kind": "cluster", "given": given} | answer(cluster, given))
    deliver(facts, source="https://github.com/NVIDIA-NeMo/RL")


if __name__ == "__main__":
    main()
