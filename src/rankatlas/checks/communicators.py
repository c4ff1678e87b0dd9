"""How many communicators a layout makes, on devices and on CPUs."""

from __future__ import annotations

from collections.abc import Iterator

from rankatlas.checks.finding import Finding
from rankatlas.checks.numbers import Numbers
from rankatlas.derived import purposes

MOST_GROUPS = 100_000  # every process walks through all of them when groups are made one by one
MOST_CPU_MEMBERS = 1024  # of a group whose members all connect to each other over TCP


def too_many(numbers: Numbers) -> Iterator[Finding]:
    """RA190: more groups than processes make in reasonable time; RA191: CPU groups with very many members.

    >>> from rankatlas import Mesh
    >>> from rankatlas.job import Job
    >>> job = Job(Mesh(pp=2, dp=2**17, tp=2), format="megatron-0.16", source="")
    >>> [finding.code for finding in too_many(Numbers.of(job))]
    ['RA190', 'RA191']
    """
    mesh = numbers.mesh
    if mesh is None:
        return
    meshes = [mesh] if numbers.expert is None else [mesh, numbers.expert]
    made, mine = 0, 0
    for one in meshes:
        counts = [one.world_size // size for size in one.sizes if size > 1]
        counts += [purpose.count for purpose in purposes(one, 1)]
        made += sum(counts)
        mine += len(counts)
    if made > MOST_GROUPS:
        yield Finding("RA190", "warning", {"groups": made, "mine": mine, "world": mesh.world_size})
    members = numbers["dp"] * numbers["cp"]
    if numbers.written("megatron") and members > MOST_CPU_MEMBERS:
        yield Finding(
            "RA191",
            "note",
            {"members": members, "connections": members * (members - 1) // 2, "most": MOST_CPU_MEMBERS},
        )
