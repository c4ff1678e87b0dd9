"""Layouts that were published with measurements, as the jobs they were: what `check` must have nothing against."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from rankatlas import Atlas, Mesh
from rankatlas.checks import check_job
from rankatlas.cluster import Cluster
from rankatlas.job import Fact, Job

POINTS = json.loads(Path(__file__, "../cases/published_layouts.json").resolve().read_text(encoding="utf-8"))
NAMES = {"gbs": "global_batch", "mbs": "micro_batch", "seq": "sequence_length", "vpp": "virtual_stages"}
# Whose trainer each source used; Megatron's where none of these.
FAMILIES = {
    "torchtitan": "torchtitan",
    "nanotron": "nanotron",
    "2407.21783": "llama3",
    "2204.02311": "palm",
    "bigscience": "deepspeed",  # Megatron-DeepSpeed, whose pipeline module balances layers itself
}


def whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


def job_of(point):
    """The job of one published point, None where it does not say its sizes or its ranks."""
    layout = point["layout"]
    if not all(whole(layout.get(name)) for name in ("pp", "dp", "tp")) or not point["gpus"]:
        return None
    dense = Mesh.from_axes([(name, layout.get(name) or 1) for name in ("pp", "dp", "cp", "tp")])
    assert dense.world_size == point["gpus"], point["id"]
    mesh = dense
    ep, stage = layout.get("ep") or 1, dense.world_size // dense.size("pp")
    if ep > 1:
        expert = Mesh(pp=dense.size("pp"), edp=stage // ep, ep=ep)  # raises unless ep divides
        mesh = Atlas(dense=dense, expert=expert, shared=("pp",))
    said = {NAMES[name]: layout[name] for name in NAMES if name in layout}
    said |= {name: value for name, value in point["model"].items() if name != "name"} | point["facts"]
    family = next((family for word, family in FAMILIES.items() if word in point["source"]), "megatron")
    settings = [Fact(name, value, point["source"]) for name, value in said.items()]
    return Job(mesh, format=family, source=point["id"], settings=settings)


def cluster_of(point):
    """Its nodes; of a rack-wide domain as many devices as the job takes from each."""
    gpus, each = point["gpus"], point["gpus_per_node"]
    if each > 8:
        each = max(size for size in range(1, each + 1) if gpus % size == 0)
    return Cluster.of(-(-gpus // each), each)


def checked():
    """(point, findings) of every point that says its sizes."""
    for point in POINTS:
        job = job_of(point)
        if job is not None:
            yield point, check_job(job, cluster_of(point))


def summary():
    """How many points there are, were checked and are clean, and how many have each finding."""
    found = Counter()
    clean = total = 0
    for _, findings in checked():
        total += 1
        clean += not findings
        found.update({(finding.severity, finding.code) for finding in findings})
    return {"points": len(POINTS), "checked": total, "clean": clean, "found": dict(sorted(found.items()))}
