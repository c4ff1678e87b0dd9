"""Clusters: which rank is where, which groups leave a node, and how hosts are written."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankatlas import Mesh
from rankatlas.cluster import (
    Cluster,
    Places,
    crossing,
    differing_places,
    expand,
    natural_order,
    parse_hosts,
    parse_nodes,
    string_order,
)
from rankatlas.errors import ClusterError, SizeError, SizeTypeError
from refusals import refused

node_sizes = st.lists(st.integers(1, 20), min_size=1, max_size=8)


@st.composite
def standing(draw):
    """A small mesh and a cluster it has room on, even or not."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    first = draw(st.sampled_from([0, 0, 1, 7]))
    mesh = Mesh.from_axes(zip("abcd", sizes), first)
    last = first + mesh.world_size
    if draw(st.booleans()):
        each = draw(st.integers(1, 40))
        return mesh, Cluster.of(-(-last // each) + draw(st.integers(0, 2)), each)
    nodes = draw(node_sizes)
    return mesh, Cluster([*nodes, last])


@given(standing())
def test_crossing_groups_are_those_with_members_on_several_nodes(case):
    mesh, cluster = case
    for axis in mesh.axes:
        nodes = [list(dict.fromkeys(map(cluster.node, group))) for group in mesh.groups(axis)]
        truth = [index for index, there in enumerate(nodes) if len(there) > 1]
        found = crossing(mesh, axis, cluster)
        assert list(found.indices()) == truth
        assert (found.count, found.first) == (len(truth), truth[0] if truth else None)
        assert found.most_nodes == (len(nodes[truth[0]]) if truth else 1)
        assert found.groups == len(nodes)


@given(node_sizes)
def test_ranks_fill_the_nodes_in_order(sizes):
    cluster = Cluster(sizes)
    truth = [(node, place) for node, size in enumerate(sizes) for place in range(size)]
    assert [(cluster.node(rank), cluster.local_rank(rank)) for rank in range(cluster.slots)] == truth
    assert cluster.sizes() == sizes
    assert parse_nodes(",".join(map(str, sizes))).sizes() == sizes
    assert list(cluster.borders(0, cluster.slots)) == [cluster.first(node) for node in range(1, len(sizes))]
    for rank in (-1, cluster.slots):
        with refused(ClusterError, "has no device"):
            cluster.node(rank)


@given(node_sizes, st.integers(0, 9))
def test_places_are_made_as_they_are_asked_for(sizes, spare):
    hosts = [f"n{number}" for number in range(len(sizes))]
    cluster = Cluster(sizes, hosts)
    world = max(1, cluster.slots - spare)
    places = Places(cluster, world)
    assert list(places) == list(range(world))
    assert {rank: place["host"] for rank, place in places.items()} == {r: hosts[cluster.node(r)] for r in range(world)}
    assert [rank for host in hosts for rank in places.on(host)] == list(range(world))
    assert -1 not in places
    assert world not in places
    with refused(ClusterError, "more devices"):
        Places(cluster, cluster.slots + 1)
    with pytest.raises(KeyError):
        places.on("elsewhere")


def test_a_world_nobody_can_enumerate():
    mesh = Mesh(pp=2**20, dp=2**17, tp=8)
    cluster = Cluster.of(2**37, 8)
    assert crossing(mesh, "tp", cluster).count == 0
    assert crossing(mesh, "dp", cluster).count == 2**23
    thirds = crossing(Mesh(dp=2**38, tp=3), "tp", Cluster.of(2**38, 4))
    assert next(thirds.indices()) == 1
    assert thirds.count == 2**37  # of every four groups the second and third cross
    assert parse_nodes("137438953472x8").node(2**40 - 1) == 2**37 - 1


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("16x8", [8] * 16),
        ("2 x 4", [4, 4]),
        ("4,2", [4, 2]),
        ("2x8,1x4", [8, 8, 4]),
        ("8", [8]),
        ("2×3", [3, 3]),
        ("2*3", [3, 3]),
    ],
)
def test_nodes(text, sizes):
    assert parse_nodes(text).sizes() == sizes


@pytest.mark.parametrize(
    "text", ["", "0x8", "8x0", "x", "8x", "-1", "4,", "4,,2", "1.5x8", "٣x8", "16x8x2", "1x" + "9" * 30]
)
def test_nodes_that_cannot_be_read(text):
    with pytest.raises(ClusterError):
        parse_nodes(text)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu[001-003]", ["gpu001", "gpu002", "gpu003"]),
        ("gpu[9-11]", ["gpu9", "gpu10", "gpu11"]),
        ("a,b, c", ["a", "b", "c"]),
        ("a1 a2\na3", ["a1", "a2", "a3"]),
        ("r[1-2]n[1,3]", ["r1n1", "r1n3", "r2n1", "r2n3"]),
        ("n[1-2].local,m", ["n1.local", "n2.local", "m"]),
    ],
)
def test_hosts(text, hosts):
    assert list(parse_hosts(text, devices=8).hosts) == hosts


def test_hosts_with_devices_of_their_own():
    assert parse_hosts("a:4,b:2").sizes() == [4, 2]
    assert parse_hosts("a slots=4\nb slots=2\n").sizes() == [4, 2]
    assert parse_hosts("n[1-2]:4").sizes() == [4, 4]
    assert parse_hosts("a:2,b,c", world_size=8).sizes() == [2, 3, 3]
    assert parse_hosts("a,b", world_size=16).sizes() == [8, 8]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "a[",
        "a]",
        "a[1",
        "a[3-1]",
        "a[x-y]",
        "a[]",
        "a:0",
        "a:x",
        "a,a",
        "a[1-2],a1",
        "a[0-99999999999]",
        "[1-2]]",
    ],
)
def test_hosts_that_cannot_be_read(text):
    with pytest.raises(ClusterError):
        parse_hosts(text, devices=8)


def test_hosts_that_cannot_share_the_world():
    for world in (None, 7, 1):
        with refused(ClusterError, "cannot share", "a:8"):
            parse_hosts("a,b", world_size=world)
    with refused(ClusterError, "3 hosts and 2 nodes"):
        Cluster.of(2, 8, ["a", "b", "c"])


@pytest.mark.parametrize("value", [True, 1.5, None, "8"])
def test_sizes_of_nodes_are_integers(value):
    with pytest.raises(SizeTypeError):
        Cluster([value])
    with pytest.raises(SizeTypeError):
        Cluster.of(2, value)
    with pytest.raises(SizeError):
        Cluster([0])
    with pytest.raises(ClusterError):
        Cluster([])


@given(st.lists(st.integers(0, 300), unique=True, min_size=1, max_size=30))
def test_natural_order_is_the_order_of_the_numbers(numbers):
    hosts = [f"n{number}" for number in numbers]
    assert natural_order(hosts) == [f"n{number}" for number in sorted(numbers)]
    padded = [f"n{number:03d}" for number in numbers]
    assert natural_order(padded) == string_order(padded)
    assert differing_places(natural_order(padded), string_order(padded)) == []


def test_names_in_brackets_keep_their_zeros():
    assert expand("x[08-11]") == ["x08", "x09", "x10", "x11"]
    assert expand("plain") == ["plain"]


@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=4),
    st.one_of(st.integers(1, 9), st.lists(st.integers(1, 6), min_size=1, max_size=5)),
    st.integers(0, 3),
)
def test_the_groups_that_leave_are_those_with_members_on_several_nodes(sizes, nodes, first):
    mesh = Mesh.from_axes([(f"a{place}", size) for place, size in enumerate(sizes)], first_rank=first)
    last = first + mesh.world_size
    cluster = Cluster.of(-(-last // nodes), nodes) if isinstance(nodes, int) else Cluster(nodes * last)
    for axis in mesh.axes:
        leaving = [group.index for group in mesh.groups(axis) if len({cluster.node(rank) for rank in group.ranks}) > 1]
        assert list(crossing(mesh, axis, cluster).indices()) == leaving


def test_the_first_groups_that_leave_are_found_at_once_in_any_world():
    mesh = Mesh(pp=16, dp=2**33, tp=8)
    found = crossing(mesh, "dp", Cluster.of(2**37, 8)).indices()
    assert list(islice(found, 64)) == list(range(64))
