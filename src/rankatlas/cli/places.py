"""Where ranks run, as verbs take it: `--nodes` and `--hosts`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from rankatlas.cli.common import covered
from rankatlas.errors import InputError, shown
from rankatlas.job import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rankatlas.cluster import Cluster


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--nodes` and `--hosts`, which say where the ranks run."""
    command = click.option(
        "--hosts", metavar="HOSTS", help="Hosts in rank order: 'gpu[001-128]', a1,a2, n1:8,n2:4, or a host file."
    )(command)
    return click.option("--nodes", metavar="NODES", help="Nodes and their devices: 16x8, or 4,2 for uneven ones.")(
        command
    )


def cluster_given(nodes: str | None, hosts: str | None, world_size: int) -> Cluster | None:
    """The cluster of `--nodes` or `--hosts`, None without them.  Raises ClusterError, SourceError."""
    if nodes is None and hosts is None:
        return None
    from rankatlas.cluster import Cluster, parse_hosts, parse_nodes

    if hosts is None:
        return parse_nodes(nodes or "")
    if "/" in hosts or hosts.endswith(".txt"):
        from rankatlas.dialects.sources import read_text

        lines = read_text(hosts).splitlines()
        hosts = "\n".join(line.partition("#")[0] for line in lines)
    if nodes is None:
        return parse_hosts(hosts, world_size)
    there = parse_nodes(nodes)
    named = parse_hosts(hosts, devices=1).hosts
    if there.even:
        return Cluster.of(there.nodes, there.even, named)
    return Cluster(there.sizes(), named)


def placed(job: Job, nodes: str | None, hosts: str | None) -> Job:
    """The job with the places of `--nodes` or `--hosts`, if there are any.  Raises ClusterError, InputError."""
    cluster = cluster_given(nodes, hosts, job.layout.first_rank + job.layout.world_size)
    if cluster is None:
        return job
    if job.places:
        raise InputError(f"{shown(job.source)} says itself where its ranks ran; leave --nodes and --hosts out")
    from rankatlas.cluster import Places

    job.places = Places(cluster, covered(job.layout)[-1].stop)
    return job


def recorded_cluster(job: Job) -> Cluster | None:
    """The cluster that a recorded job ran on, None where its ranks do not fill hosts one after the other."""
    if not job.places:
        return None
    from itertools import groupby

    from rankatlas.cluster import Cluster

    ranks = sorted(job.places)
    runs = [(host, len(list(run))) for host, run in groupby(str(job.places[rank]["host"]) for rank in ranks)]
    hosts = [host for host, _ in runs]
    whole = ranks == list(range(len(ranks))) and len(dict.fromkeys(hosts)) == len(hosts)
    return Cluster([size for _, size in runs], hosts) if whole else None
