"""The hardware a job stands on: hosts, their devices, which rank is where, and which groups leave a node."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import gcd
from typing import Any

from rankatlas.core import Mesh
from rankatlas.core.border import in_order
from rankatlas.core.sizes import checked_size
from rankatlas.errors import ClusterError, shown

_MOST_HOSTS = 1 << 20
_MOST_STEPS = 1 << 20  # node borders looked at one by one before a number is left open
_PART = re.compile(r"(?:(\d{1,19})\s*[xX×*]\s*)?(\d{1,19})$", re.ASCII)
_SLOTS = re.compile(r"[ \t]+slots[ \t]*=[ \t]*")
_PIECES = re.compile(r"(\d+)", re.ASCII)


class Cluster:
    """Nodes with their devices, ranks laid over them in order: node 0 has the first ranks.

    `nodes` is how many there are, `slots` how many devices; `even` is the devices of every node where all have as
    many, else None.  `hosts` are the names, empty where none were given.  Cost: O(1) for even nodes, else O(nodes).

    >>> cluster = Cluster([4, 2])
    >>> [cluster.node(rank) for rank in range(6)], cluster.local_rank(5)
    ([0, 0, 0, 0, 1, 1], 1)
    """

    __slots__ = ("_starts", "even", "hosts", "nodes", "slots")

    def __init__(self, sizes: Iterable[int], hosts: Iterable[str] = ()) -> None:
        listed = [checked_size("devices of a node", size) for size in in_order(sizes, "nodes")]
        if not listed:
            raise ClusterError("a cluster has at least one node", text="")
        even = listed[0] if min(listed) == max(listed) else None
        self._settle(even, len(listed), hosts)
        if even is None:
            self._starts += accumulate(listed, initial=0)
            self.slots = self._starts.pop()

    @classmethod
    def of(cls, nodes: int, devices: int, hosts: Iterable[str] = ()) -> Cluster:
        """`nodes` nodes of `devices` devices each, whatever their number.  Cost: O(hosts).

        >>> Cluster.of(16, 8).slots
        128
        """
        self = object.__new__(cls)
        self._settle(
            checked_size("devices", devices, label="devices"), checked_size("nodes", nodes, label="nodes"), hosts
        )
        return self

    def _settle(self, even: int | None, nodes: int, hosts: Iterable[str]) -> None:
        self.hosts = tuple(hosts)
        self.nodes = nodes
        self.even = even
        self._starts: list[int] = []
        self.slots = nodes * (even or 0)
        if self.hosts and len(self.hosts) != nodes:
            raise ClusterError(
                f"there are {len(self.hosts)} hosts and {nodes} nodes; give one name per node",
                text=", ".join(self.hosts[:8]),
            )

    def node(self, rank: int) -> int:
        """The number of the node `rank` runs on.  Cost: O(1), with uneven nodes O(log nodes).  Raises ClusterError."""
        if not 0 <= rank < self.slots:
            raise ClusterError(
                f"rank {shown(rank)} has no device: {self} has {self.slots:,}, for ranks 0 to {self.slots - 1:,}",
                text=str(self),
            )
        return rank // self.even if self.even else bisect_right(self._starts, rank) - 1

    def first(self, node: int) -> int:
        """The first rank of a node; of the one after the last, the number of devices.  Cost: O(1)."""
        if self.even:
            return node * self.even
        return self._starts[node] if node < self.nodes else self.slots

    def local_rank(self, rank: int) -> int:
        """The place of `rank` on its node.  Cost and errors as `node`."""
        node = self.node(rank)
        return rank % self.even if self.even else rank - self._starts[node]

    def host(self, rank: int) -> str:
        """The name of the host `rank` runs on, "node 3" where hosts have no names."""
        node = self.node(rank)
        return self.hosts[node] if self.hosts else f"node {node}"

    def sizes(self) -> list[int]:
        """The devices of every node.  Cost: O(nodes)."""
        if self.even:
            return [self.even] * self.nodes
        return [end - begin for begin, end in zip(self._starts, [*self._starts[1:], self.slots])]

    def border_after(self, rank: int) -> int | None:
        """The first rank of the next node, None on the last one.  Cost: as `node`."""
        if self.even:
            border = (rank // self.even + 1) * self.even
            return border if border < self.slots else None
        place = bisect_right(self._starts, rank)
        return self._starts[place] if place < len(self._starts) else None

    def borders(self, first: int, last: int) -> Iterator[int]:
        """The first ranks of all nodes that lie after `first` and up to `last`, ascending.  Cost: O(1) each."""
        if self.even:
            begin = (first // self.even + 1) * self.even
            yield from range(begin, min(last, self.slots - 1) + 1, self.even)
        else:
            begin = bisect_right(self._starts, first)
            yield from (start for start in self._starts[begin:] if start <= last)

    def __str__(self) -> str:
        if self.even:
            return f"{self.nodes}x{self.even}"
        sizes = self.sizes()
        return ",".join(map(str, sizes[:16])) + (",…" if len(sizes) > 16 else "")

    def __repr__(self) -> str:
        return f"<Cluster {self}: {self.nodes:,} nodes, {self.slots:,} devices>"


class Places(Mapping[int, dict[str, Any]]):
    """Where the ranks 0 to `world` − 1 run on a cluster: rank → its host and local rank, made when asked for.

    Raises ClusterError when there are fewer devices.

    >>> places = Places(Cluster.of(2, 4, ["a", "b"]), 6)
    >>> places[5], places.on("b"), 6 in places
    ({'host': 'b', 'local_rank': 1}, range(4, 6), False)
    """

    __slots__ = ("cluster", "world")

    def __init__(self, cluster: Cluster, world: int) -> None:
        if world > cluster.slots:
            raise ClusterError(
                f"{world:,} ranks need {world - cluster.slots:,} more devices than {cluster} has ({cluster.slots:,})",
                text=str(cluster),
            )
        self.cluster = cluster
        self.world = world

    def __getitem__(self, rank: int) -> dict[str, Any]:
        if not 0 <= rank < self.world:
            raise KeyError(rank)
        return {"host": self.cluster.host(rank), "local_rank": self.cluster.local_rank(rank)}

    def __contains__(self, rank: object) -> bool:
        return isinstance(rank, int) and 0 <= rank < self.world

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.world))

    def __len__(self) -> int:
        return self.world

    def on(self, host: str) -> range:
        """The ranks on a host.  Cost: O(hosts).  Raises KeyError for one there is not."""
        hosts = self.cluster.hosts
        if host not in hosts:
            raise KeyError(host)
        return self.by_node(hosts.index(host))

    def by_node(self, node: int) -> range:
        """The ranks on a node, empty where it has none.  Cost: O(1)."""
        first = self.cluster.first(node)
        return range(min(first, self.world), min(self.cluster.first(node + 1), self.world))


class Crossing:
    """Which groups along one axis have members on several nodes.

    `count` of `groups` do, None where counting would take too long; `most_nodes` is how many nodes the first
    of them touches (at least), `first` its number.  Nothing enumerates the ranks.

    >>> mesh = Mesh(dp=2, pp=2, cp=1, tp=4)
    >>> list(crossing(mesh, "dp", Cluster.of(2, 8)).indices()), crossing(mesh, "tp", Cluster.of(2, 8)).count
    ([0, 1, 2, 3, 4, 5, 6, 7], 0)
    """

    __slots__ = ("axis", "cluster", "count", "first", "groups", "mesh", "most_nodes")

    def __init__(self, mesh: Mesh, axis: str, cluster: Cluster) -> None:
        self.mesh, self.axis, self.cluster = mesh, axis, cluster
        self.groups = mesh.world_size // mesh.size(axis)
        self.count = _count(self)
        self.first = next(self.indices(), None) if self.count != 0 else None
        self.most_nodes = 1 if self.first is None else self._nodes(self.first)

    def indices(self) -> Iterator[int]:
        """The numbers of the groups that leave a node, ascending and made as they are asked for.

        Cost: O(1) each where a group that leaves is near; nodes between two of them are passed one by one.
        """
        stride = self.mesh.stride(self.axis)
        block = stride * self.mesh.size(self.axis)
        index = 0
        while index < self.groups:
            number, place = divmod(index, stride)
            first = self.mesh.first_rank + number * block + place
            border = self.cluster.border_after(first)
            if border is None:
                return
            short = border - (first + block - stride)  # by how many ranks the last member stays before it
            if short <= 0:
                yield index
                index += 1
            elif place + short < stride:
                index += short
            else:  # no group of this block reaches it
                index = (number + 1) * stride

    def _nodes(self, index: int) -> int:
        ranks = self.mesh.groups(self.axis)[index].ranks
        return len(dict.fromkeys(self.cluster.node(rank) for rank in ranks[:4096]))


def placed(cluster: Cluster, launched: tuple[int, int] | None) -> Cluster:
    """Where ranks really stand: a launcher lays as many on every node as it starts there, whatever devices there are.

    >>> str(placed(Cluster.of(16, 8), (4, 4))), str(placed(Cluster.of(16, 8), None))
    ('16x4', '16x8')
    """
    if launched is None or cluster.even is None or 0 < len(cluster.hosts) < launched[0]:
        return cluster
    return Cluster.of(max(cluster.nodes, launched[0]), launched[1], cluster.hosts)


def crossing(mesh: Mesh, axis: str, cluster: Cluster) -> Crossing:
    """The groups of `mesh` along `axis` that leave a node.  Cost: O(1) for the usual sizes, whatever the world.

    Members of a group ascend and nodes hold neighbouring ranks, so a group leaves its node exactly when a border lies
    between its first and last member.  Raises UnknownAxisError, and ClusterError when there are too few devices.
    """
    last = mesh.first_rank + mesh.world_size - 1
    if last >= cluster.slots:
        raise ClusterError(
            f"{mesh} needs devices for ranks {mesh.first_rank:,} to {last:,}; {cluster} has {cluster.slots:,}",
            text=str(cluster),
        )
    return Crossing(mesh, axis, cluster)


def _begun(of: Crossing, offset: int) -> int:
    """How many groups begin before `offset`, counted from the first rank."""
    stride = of.mesh.stride(of.axis)
    whole, rest = divmod(offset, stride * of.mesh.size(of.axis))
    return whole * stride + min(rest, stride)


def _before(of: Crossing, border: int) -> tuple[int, int]:
    """The numbers of the groups with members on both sides of `border`, as begin and end."""
    offset = border - of.mesh.first_rank
    span = of.mesh.stride(of.axis) * (of.mesh.size(of.axis) - 1)
    return _begun(of, max(0, offset - span)), _begun(of, offset)


def _count(of: Crossing) -> int | None:
    mesh, even = of.mesh, of.cluster.even
    first, last = mesh.first_rank, mesh.first_rank + mesh.world_size - 1
    size, stride = mesh.size(of.axis), mesh.stride(of.axis)
    if size == 1 or of.cluster.node(first) == of.cluster.node(last):
        return 0
    span, block = stride * (size - 1), stride * size
    if even and span >= even:
        return of.groups  # longer than any node
    found = done = 0
    if even and (last - first) // even > (period := block // gcd(block, even)) and first == 0:
        # Borders repeat their position within a block of the axis after `period` of them.
        if period > _MOST_STEPS:
            return None
        borders = (last // even) // period
        more = (last // even) % period
        for step in range(1, period + 1):
            begin, end = _before(of, step * even)
            found += (end - begin) * (borders + (step <= more))
        return found
    for step, border in enumerate(of.cluster.borders(first, last)):
        if step == _MOST_STEPS:
            return None
        begin, end = _before(of, border)
        found += max(0, end - max(begin, done))
        done = max(done, end)
    return found


def parse_nodes(text: str) -> Cluster:
    """The cluster of "16x8" (16 nodes of 8 devices), "4,2" (a node of 4 and one of 2) or "2x8,1x4".

    Raises ClusterError.

    >>> parse_nodes("2x8,1x4").slots, parse_nodes("4,2").nodes
    (20, 2)
    """
    parts = [_PART.match(part.strip()) for part in str(text).split(",", _MOST_HOSTS)]
    runs = [(int(part[1] or 1), int(part[2])) for part in parts if part is not None]
    if len(runs) != len(parts) or not all(count and size for count, size in runs):
        raise ClusterError(
            f"nodes are given as 16x8 (16 nodes of 8 devices), 4,2 or 2x8,1x4, not {shown(text)}", text=str(text)
        )
    if len({size for _, size in runs}) == 1:
        return Cluster.of(sum(count for count, _ in runs), runs[0][1])
    if sum(count for count, _ in runs) > _MOST_HOSTS:
        raise ClusterError(f"{shown(text)} has more than {_MOST_HOSTS:,} uneven nodes", text=str(text))
    return Cluster(size for count, size in runs for _ in range(count))


def parse_hosts(text: str, world_size: int | None = None, devices: int | None = None) -> Cluster:
    """The cluster of "gpu[001-128]", "a1,a2,b[3-4]" or "n1:8,n2:4"; also one per line, with `slots=8` behind it.

    A host without a number of devices has `devices`, or its even share of `world_size`.  Raises ClusterError.

    >>> parse_hosts("gpu[08-11]", world_size=32).hosts
    ('gpu08', 'gpu09', 'gpu10', 'gpu11')
    >>> parse_hosts("n1:4,n2:2").node(4)
    1
    """
    hosts: list[str] = []
    slots: list[int | None] = []
    for item in _items(text):
        name, count = _slots(item)
        for host in expand(name):
            hosts.append(host)
            slots.append(count)
        if len(hosts) > _MOST_HOSTS:
            raise ClusterError(f"{shown(text)} names more than {_MOST_HOSTS:,} hosts", text=str(text))
    if not hosts:
        raise ClusterError(f"hosts are given as gpu[001-128] or a1,a2, not {shown(text)}", text=str(text))
    if len(dict.fromkeys(hosts)) < len(hosts):
        twice = next(host for host, after in pairwise(string_order(hosts)) if host == after)
        raise ClusterError(f"host {shown(twice)} is named twice; each has its devices once", text=str(text))
    unset = slots.count(None)
    if unset and devices is None:
        left = (world_size or 0) - sum(count or 0 for count in slots)
        if world_size is None or left <= 0 or left % unset:
            raise ClusterError(
                f"{unset} hosts without a number of devices cannot share {max(0, left)} ranks evenly;"
                f" give it, as in {hosts[0]}:8",
                text=str(text),
            )
        devices = left // unset
    sizes = [devices if count is None else count for count in slots]
    return Cluster([size for size in sizes if size is not None], hosts)


def _items(text: str) -> Iterator[str]:
    """The parts of a list of hosts; commas in brackets do not separate."""
    depth = 0
    part = ""
    for char in _SLOTS.sub(":", str(text)):
        depth += (char == "[") - (char == "]")
        if depth == 0 and char in ",; \t\r\n":
            if part.strip():
                yield part.strip()
            part = ""
        else:
            part += char
    if depth:
        raise ClusterError(f"a bracket is not closed in {shown(text)}", text=str(text))
    if part.strip():
        yield part.strip()


def _slots(item: str) -> tuple[str, int | None]:
    name, colon, count = item.rpartition(":")
    if not colon:
        return item, None
    if not (count.isascii() and count.isdigit() and len(count) < 10 and int(count)):
        raise ClusterError(f"a host is given as n1 or n1:8, not {shown(item)}", text=item)
    return name, int(count)


def expand(name: str) -> list[str]:
    """The hosts of one bracketed name, in the order written; leading zeros are kept.

    >>> expand("gpu[08-10,12]-ib"), expand("a[1-2]b[1-2]")
    (['gpu08-ib', 'gpu09-ib', 'gpu10-ib', 'gpu12-ib'], ['a1b1', 'a1b2', 'a2b1', 'a2b2'])
    """
    head, bracket, rest = name.partition("[")
    if not bracket:
        if not head or "]" in head or "=" in head:
            raise ClusterError(f"{shown(name)} is no name of a host", text=name)
        return [head]
    inside, closed, tail = rest.partition("]")
    tails = expand(tail) if tail else [""]
    found = []
    for part in inside.split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        numbers = first.isascii() and last.isascii() and first.isdigit() and last.isdigit()
        if not closed or not numbers or len(first) > 12 or int(last) < int(first):
            raise ClusterError(f"a range of hosts is written as in gpu[001-128]; got {shown(name)}", text=name)
        if (int(last) - int(first) + 1) * len(tails) > _MOST_HOSTS:
            raise ClusterError(f"{shown(name)} names more than {_MOST_HOSTS:,} hosts", text=name)
        width = len(first)
        found += [f"{head}{number:0{width}d}{end}" for number in range(int(first), int(last) + 1) for end in tails]
    return found


def natural_order(hosts: Iterable[str]) -> list[str]:
    """Hosts sorted so that n2 stands before n10.  Cost: O(n log n).

    >>> natural_order(["n2", "n10", "n1"]), string_order(["n2", "n10", "n1"])
    (['n1', 'n2', 'n10'], ['n1', 'n10', 'n2'])
    """
    return sorted(hosts, key=_natural)


def string_order(hosts: Iterable[str]) -> list[str]:
    """Hosts sorted letter by letter, as many launchers do: n10 stands before n2."""
    return sorted(hosts)


def _natural(host: str) -> list[tuple[int, int, str]]:
    parts = _PIECES.split(host)
    return [(1, int(part[:40]), part) if part.isascii() and part.isdigit() else (0, 0, part) for part in parts]


def differing_places(first: Sequence[str], second: Sequence[str]) -> list[int]:
    """The places at which two orders of the same hosts differ.

    >>> differing_places(["n1", "n10", "n2"], ["n1", "n2", "n10"])
    [1, 2]
    """
    return [place for place, (mine, theirs) in enumerate(zip(first, second)) if mine != theirs]
