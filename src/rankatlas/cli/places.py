"""Where ranks run, as verbs take it: `--nodes` and `--hosts`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os.path import exists, isdir
from typing import Any

import click

from rankatlas.catalogue import said
from rankatlas.cli.common import covered, read
from rankatlas.cli.streams import say
from rankatlas.errors import ClusterError, InputError, NotationError, SourceError, shown
from rankatlas.job import Job, Offer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rankatlas.cluster import Cluster


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--nodes` and `--hosts`, which say where the ranks run."""
    command = click.option(
        "--hosts",
        metavar="HOSTS",
        callback=_host_text,
        help="Hosts in rank order: 'gpu[001-128]', a1,a2, n1:8,n2:4, or a host file.",
    )(command)
    return click.option("--nodes", metavar="NODES", help="Nodes and their devices: 16x8, or 4,2 for uneven ones.")(
        command
    )


def _host_text(ctx: click.Context, param: click.Parameter, hosts: str | None) -> str | None:
    """The hosts as text: a host file, which may be a pipe, is read once.  Raises SourceError.

    A word that is the name of a file is the file, and a note says so where it could be a host as well.
    """
    if hosts is None:
        return None
    sure = "/" in hosts or hosts.endswith(".txt")
    if not sure and (not exists(hosts) or isdir(hosts)):
        return hosts
    if not sure:
        say(
            f"note: --hosts {hosts} is read as the file of that name; a host of that name is written {hosts},", err=True
        )
    from rankatlas.dialects.sources import read_text

    return "\n".join(line.partition("#")[0] for line in read_text(hosts).splitlines())


def devices_offered(nodes: str | None, hosts: str | None) -> Offer | None:
    """How many devices `--nodes` or `--hosts` say there are; None where they do not.  Raises ClusterError.

    >>> devices_offered("2x8", None).world, devices_offered(None, "a[1-4]:2").world, devices_offered(None, "a[1-4]")
    (16, 8, None)
    """
    try:
        cluster = cluster_given(nodes, hosts, None)
    except ClusterError:
        if nodes is not None:
            raise
        return None  # hosts that share what ranks there are
    option = f"--nodes {nodes}" if nodes is not None else "--hosts"
    return Offer(cluster.slots, said("given.key", key=option)) if cluster else None


def read_beside(
    words: Iterable[str], format: str | None, world_size: int | None, nodes: str | None, hosts: str | None
) -> Job:
    """The job of these words; `--nodes` or `--hosts` say the number of ranks if nothing else does.

    Raises as `read`.
    """
    offered = devices_offered(nodes, hosts)
    try:
        return read(words, format, world_size, offered)
    except (NotationError, SourceError) as error:
        if hosts is None or offered is not None or "world size" not in str(error):
            raise
        hint = "or say how many devices hosts have: --hosts 'gpu[001-128]:8', or --nodes 16x8"
        raise type(error)(f"{error}\n{hint}", **error.__dict__) from None


def read_on(
    words: Iterable[str], format: str | None, world_size: int | None, nodes: str | None, hosts: str | None
) -> Job:
    """The job of these words with the places of `--nodes` or `--hosts`, which say the number of ranks if nothing else.

    Raises as `read`; ClusterError (fewer devices than ranks), InputError (a record, which says itself where it ran).
    """
    job = read_beside(words, format, world_size, nodes, hosts)
    cluster = cluster_given(nodes, hosts, job.layout.first_rank + job.layout.world_size)
    if cluster is None:
        return job
    if job.places:
        raise InputError(f"{shown(job.source)} says itself where its ranks ran; leave --nodes and --hosts out")
    from rankatlas.cluster import Places, placed

    ranks = covered(job.layout)[-1].stop
    job.places = Places(placed(cluster, job.launched), ranks)
    if ranks < cluster.slots:
        idle = said("noted.idle", idle=cluster.slots - ranks, slots=cluster.slots, cluster=str(cluster), ranks=ranks)
        job.notes = (*job.notes, idle)
    return job


def cluster_given(nodes: str | None, hosts: str | None, world_size: int | None) -> Cluster | None:
    """The cluster of `--nodes` or `--hosts`, None without them.  Raises ClusterError."""
    if nodes is None and hosts is None:
        return None
    from rankatlas.cluster import Cluster, parse_hosts, parse_nodes

    if hosts is None:
        return parse_nodes(nodes or "")
    if nodes is None:
        return parse_hosts(hosts, world_size)
    there = parse_nodes(nodes)
    named = parse_hosts(hosts, devices=1).hosts
    if there.even:
        return Cluster.of(there.nodes, there.even, named)
    return Cluster(there.sizes(), named)


def launched_cluster(job: Job) -> Cluster | None:
    """The nodes that the launcher of a command says it starts processes on, None where it does not."""
    from rankatlas.cluster import Cluster

    return None if job.launched is None else Cluster.of(*job.launched)


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
