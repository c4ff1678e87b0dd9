"""Layouts that were published with measurements, as the jobs they were: what `check` must have nothing against."""

from __future__ import annotations

from rankatlas import Atlas, Mesh
from rankatlas.cluster import Cluster
from rankatlas.job import Fact, Job

FAMILIES = (
    ("torchtitan", "torchtitan"),
    ("nanotron", "nanotron"),
    ("2407.21783", "llama3"),
    ("2204.02311", "palm"),
    ("bigscience", "megatron"),
)


def whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


def family_of(source):
    return next((family for word, family in FAMILIES if word in source), "megatron")


def job_of(point):
    """The job of one published point, None where it does not say its sizes or its ranks."""
    layout, model = point["layout"], point["model"]
    sizes = {name: layout.get(name) or 1 for name in ("pp", "dp", "cp", "tp")}
    if not all(whole(layout.get(name)) for name in ("pp", "dp", "tp")) or not point["hw"].get("n_gpus"):
        return None
    dense = Mesh.from_axes(sizes.items())
    ep = layout.get("ep") or 1
    stage = dense.world_size // dense.size("pp")
    mesh = dense
    if ep > 1 and stage % ep == 0:
        expert = Mesh(pp=dense.size("pp"), edp=stage // ep, ep=ep)
        mesh = Atlas(dense=dense, expert=expert, shared=("pp",))
    numbers = {
        "global_batch": layout.get("gbs"),
        "micro_batch": layout.get("mbs"),
        "sequence_length": layout.get("seq"),
        "virtual_stages": layout.get("vpp"),
        **{name: model.get(name) for name in ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")},
        **(point.get("facts") or {}),
    }
    settings = [Fact(name, value, point["source"]) for name, value in numbers.items() if value]
    return Job(mesh, format=family_of(point["source"]), source=point["id"], settings=settings)


def cluster_of(point):
    nodes = -(-point["hw"]["n_gpus"] // point["hw"]["gpus_per_node"])
    return Cluster.of(nodes, point["hw"]["gpus_per_node"])
