"""The drop-in, by itself: all 120 orders against numpy, every way of reading it, what it costs, what it refuses."""

import copy
import json
import pickle
import tracemalloc
from itertools import permutations
from math import prod
from operator import itemgetter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankatlas import GroupInfo, Mesh, Topology
from rankatlas.errors import ArgumentsError, IntegerError, RankError, SizeError, SizeTypeError, WorldSizeError
from refusals import refused

AXES = ("dp", "pp", "sharding", "mp", "sep")
INFOS = ("dp_info", "pp_info", "sharding_info", "mp_info", "sep_info")
ORDERS = list(permutations(AXES))
degrees_and_order = st.tuples(
    st.lists(st.integers(1, 5), min_size=5, max_size=5).filter(lambda sizes: prod(sizes) <= 240),
    st.sampled_from(ORDERS),
)


def topology_of(rank, degrees, order=AXES, world=None):
    return Topology(rank, prod(degrees) if world is None else world, *degrees, order=order)


def truth(degrees, order):
    """From numpy: the table of ranks, every rank's place along every axis, and every rank's data rank."""
    sizes = dict(zip(AXES, degrees))
    ids = np.arange(prod(degrees)).reshape([sizes[axis] for axis in order])
    places = dict(zip(order, np.indices(ids.shape).reshape(5, -1)))
    data = np.ravel_multi_index((places["dp"], places["sharding"]), (sizes["dp"], sizes["sharding"]))
    return ids, places, data.tolist()


def check_rank(topology, rank, degrees, order):
    ids, places, data = truth(degrees, order)
    world = ids.size
    for axis, size, name in zip(AXES, degrees, INFOS):
        at = tuple(slice(None) if other == axis else places[other][rank] for other in order)
        assert getattr(topology, name) == (size, places[axis][rank], ids[at].tolist())
    assert topology.world == (world, rank, list(range(world)))
    assert topology.data_info == (degrees[0] * degrees[2], data[rank], data)
    assert topology.data_info.rank == topology.dp_info.rank * degrees[2] + topology.sharding_info.rank
    assert topology.is_last is bool(places["pp"][rank] == degrees[1] - 1)
    assert topology.data_inner_times == world // (degrees[0] * degrees[2]) == data.count(0)
    assert topology.order == list(order)


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_every_order_and_every_rank_as_numpy_has_it(order):
    degrees = (2, 3, 2, 2, 1)
    for rank in range(24):
        check_rank(topology_of(rank, degrees, order), rank, degrees, order)


@given(degrees_and_order, st.data())
def test_any_layout_as_numpy_has_it(case, data):
    degrees, order = case
    rank = data.draw(st.integers(0, prod(degrees) - 1))
    topology = topology_of(rank, degrees, order)
    check_rank(topology, rank, degrees, order)
    assert topology.mesh == Mesh(**{axis: dict(zip(AXES, degrees))[axis] for axis in order})


# the table of defects: what the original does not do, or does wrong


def test_sharding_before_dp_works_on_every_rank():
    for order in ORDERS:
        if order.index("sharding") < order.index("dp"):
            for rank in range(6):
                check_rank(topology_of(rank, (2, 1, 3, 1, 1), order), rank, (2, 1, 3, 1, 1), order)


def test_the_data_degree_is_inferred_when_it_is_not_given():
    assert Topology(0, 8).dp_info.size == 8
    assert Topology(0, 8, pp_degree=2, mp_degree=2).dp_info.size == 2
    assert Topology(5, 8, None, 2, 1, 2, 1) == Topology(5, 8, 2, 2, 1, 2, 1)
    assert Topology(0, 1).dp_info == (1, 0, [0])
    with refused(WorldSizeError, "pp=3", "8", "remainder of 2", "pp_degree", product=3, world_size=8, remainder=2):
        Topology(0, 8, pp_degree=3)


@pytest.mark.parametrize(("world", "relation"), [(16, "fewer"), (4, "more"), (9, "fewer"), (7, "more"), (1, "more")])
def test_degrees_that_do_not_make_the_world_are_an_error(world, relation):
    factors = (("dp", 2), ("pp", 2), ("sharding", 1), ("mp", 2), ("sep", 1))
    with refused(WorldSizeError, "dp=2", "pp=2", "mp=2", "dp_degree", "= 8", str(world), relation, factors=factors):
        Topology(0, world, 2, 2, 1, 2, 1)


def test_every_answer_is_a_plain_int_or_bool():
    given_as_numpy = Topology(*map(np.int64, (5, 8, 2, 2, 1, 2, 1)))
    for topology in (Topology(5, 8, 2, 2, 1, 2, 1), given_as_numpy):
        assert (type(topology.is_last), type(topology.data_inner_times)) == (bool, int)
        for name in ("world", *INFOS, "data_info"):
            info = getattr(topology, name)
            assert (type(info), type(info.size), type(info.rank)) == (GroupInfo, int, int)
            assert {type(rank) for rank in info.world} == {int}
    assert repr(given_as_numpy) == repr(Topology(5, 8, 2, 2, 1, 2, 1))


BAD_ORDERS = [
    *(
        ["dp", "pp", "sharding", "mp"],
        ["dp", "pp", "sharding", "mp", "sep", "ep"],
        ["dp", "pp", "sharding", "mp", "ep"],
    ),
    *([], "", "dp", "pp-first", "PP_FIRST", ["dp", "pp", "sharding", "mp", "sep", "dp"], ["dp"] * 5, None, 5, True),
    *(["dp", "pp", "sharding", "mp", ["sep"]], ["dp", "pp", "sharding", "mp", None], "dp pp sharding mp sep", b"dp"),
]


@pytest.mark.parametrize("order", BAD_ORDERS, ids=repr)
def test_an_order_that_is_none_is_refused(order):
    with refused(ArgumentsError, "order", "dp, pp, sharding, mp, sep", "pp_first", repr(order), names=("order",)):
        Topology(0, 8, 2, 2, 1, 2, 1, order=order)


@pytest.mark.parametrize("rank", [8, -1, 2**40])
def test_a_rank_outside_the_world_is_refused(rank):
    with refused(RankError, f"rank {rank}", "0 to 7", rank=rank, first_rank=0, world_size=8):
        Topology(rank, 8, 2, 2, 1, 2, 1)


@pytest.mark.parametrize("rank", [None, True, 1.0, "1", np.float32(1), np.True_, [1]])
def test_a_rank_that_is_no_integer_is_refused(rank):
    with refused(IntegerError, "rank", repr(rank), value=rank):
        Topology(rank, 8, 2, 2, 1, 2, 1)


@pytest.mark.parametrize("degree", [0, -1, -2])
@pytest.mark.parametrize("place", range(5))
def test_a_degree_below_one_is_refused(place, degree):
    degrees = [2, 2, 1, 2, 1]
    degrees[place] = degree
    with refused(SizeError, AXES[place], str(degree), axis=AXES[place], size=degree):
        Topology(0, 8, *degrees)


@pytest.mark.parametrize("degree", [True, 2.0, "2", np.float64(2), np.True_, [2]])
@pytest.mark.parametrize("place", range(5))
def test_a_degree_that_is_no_integer_is_refused(place, degree):
    degrees = [2, 2, 1, 2, 1]
    degrees[place] = degree
    with refused(SizeTypeError, AXES[place], repr(degree), axis=AXES[place], size=degree):
        Topology(0, 8, *degrees)


@pytest.mark.parametrize("place", range(1, 5))
def test_only_the_data_degree_may_be_left_open(place):
    degrees = [2, 2, 1, 2, 1]
    degrees[place] = None
    with refused(ArgumentsError, f"{AXES[place]}_degree", "dp_degree", names=(f"{AXES[place]}_degree",)):
        Topology(0, 8, *degrees)


@pytest.mark.parametrize("world", [None, True, 8.0, "8"])
def test_a_world_size_that_is_no_integer_is_refused(world):
    with pytest.raises(TypeError, match="world"):
        Topology(0, world, 2, 2, 1, 2, 1)


@pytest.mark.parametrize("world", [0, -8])
def test_a_world_size_below_one_is_refused(world):
    with pytest.raises(ValueError, match="world"):
        Topology(0, world, 2, 2, 1, 2, 1)


# order and text


def test_order_takes_lists_tuples_iterators_arrays_and_two_names():
    plain = ["pp", "dp", "sharding", "mp", "sep"]
    one = Topology(3, 8, 2, 2, 1, 2, 1, order=plain)
    for same in (tuple(plain), iter(plain), dict.fromkeys(plain), "pp_first", np.array(plain)):
        other = Topology(3, 8, 2, 2, 1, 2, 1, order=same)
        assert (other, other.order, type(other.order)) == (one, plain, list)
        assert {type(axis) for axis in other.order} == {str}
    assert Topology(3, 8, 2, 2, 1, 2, 1, order="sharding_first").order == ["dp", "sharding", "pp", "mp", "sep"]
    assert Topology(3, 8).order == list(AXES)


def test_order_reads_as_a_list_of_its_own():
    order = ["pp", "dp", "sharding", "mp", "sep"]
    topology = Topology(3, 8, 2, 2, 1, 2, 1, order=order)
    order.reverse()
    assert (topology.order, topology.order.index("mp"), topology.order[::-1][0]) == (
        *(["pp", "dp", "sharding", "mp", "sep"], 3, "sep"),
    )
    assert json.dumps(topology.order) == '["pp", "dp", "sharding", "mp", "sep"]'


def test_the_printed_form():
    assert str(Topology(5, 8, 2, 2, 1, 2, 1)) == (
        "dp_info:\n\t GroupInfo(size=2, rank=1, world=[1, 5]), \n"
        "pp_info:\n\t GroupInfo(size=2, rank=0, world=[5, 7]), \n"
        "sharding_info:\n\t GroupInfo(size=1, rank=0, world=[5]), \n"
        "mp_info:\n\t GroupInfo(size=2, rank=1, world=[4, 5]), \n"
        "sep_info:\n\t GroupInfo(size=1, rank=0, world=[5]), \n"
        "data_info:\n\t GroupInfo(size=2, rank=1, world=[0, 0, 0, 0, 1, 1, 1, 1]), \n"
        "order:\n\t ['dp', 'pp', 'sharding', 'mp', 'sep']"
    )


def test_the_printed_form_holds_whole_lists_however_long():
    topology = Topology(1, 3000)
    assert f"GroupInfo(size=3000, rank=1, world={list(range(3000))}), \n" in repr(topology)
    assert repr(topology.world) == f"GroupInfo(size=3000, rank=1, world={list(range(3000))})"
    assert repr(topology.data_info) == repr(topology.dp_info)


# every way of reading a GroupInfo finds a plain list


def unpacked(size, rank, world):
    return world


READERS = {
    "attribute": lambda info: info.world,
    "index": lambda info: info[2],
    "negative index": lambda info: info[-1],
    "slice": lambda info: info[1:][1],
    "unpacking": lambda info: unpacked(*info),
    "star": lambda info: [*info][2],
    "list": lambda info: list(info)[2],
    "tuple": lambda info: tuple(info)[2],
    "_asdict": lambda info: info._asdict()["world"],
    "_replace": lambda info: info._replace(size=9).world,
    "_make": lambda info: GroupInfo._make(info).world,
    "getattr": lambda info: getattr(info, "world"),  # noqa: B009
    "itemgetter": itemgetter(2),
    "json": lambda info: json.loads(json.dumps(info))[2],
    "json of a dict": lambda info: json.loads(json.dumps(info._asdict()))["world"],
    "pickle": lambda info: pickle.loads(pickle.dumps(info)).world,
    "raw pickle": lambda info: tuple.__getitem__(pickle.loads(pickle.dumps(info)), 2),
    "copy": lambda info: copy.copy(info).world,
    "deepcopy": lambda info: copy.deepcopy(info).world,
    "sum": lambda info: (info + (1,))[2],  # noqa: RUF005
    "right sum": lambda info: ((0, 1, 2) + info)[5],  # noqa: RUF005
    "product": lambda info: (info * 2)[5],
    "right product": lambda info: (2 * info)[2],
    "reversed": lambda info: next(reversed(info)),
    "zip": lambda info: dict(zip(info._fields, info))["world"],
    "max": lambda info: max([info]).world,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("name", INFOS)
def test_a_group_info_gives_a_plain_list_by_every_way_of_reading(read, name):
    ids, places, _ = truth((2, 2, 2, 2, 2), AXES)
    info = getattr(topology_of(21, (2, 2, 2, 2, 2)), name)
    world = read(info)
    at = tuple(slice(None) if f"{axis}_info" == name else places[axis][21] for axis in AXES)
    assert (type(world), world) == (list, ids[at].tolist())
    assert json.loads(json.dumps(world)) == world


def test_a_group_info_is_the_named_tuple_it_was():
    info = Topology(5, 8, 2, 2, 1, 2, 1).mp_info
    plain = (2, 1, [4, 5])
    assert (info, info == plain, plain == info, len(info), info.world is info.world) == (plain, True, True, 3, True)
    assert info == GroupInfo(2, 1, [4, 5]) == GroupInfo(size=2, rank=1, world=[4, 5]) == GroupInfo._make(plain)
    assert info != (2, 1, [4, 6])
    assert GroupInfo._fields == ("size", "rank", "world")
    assert isinstance(info, tuple)
    assert (info < (2, 1, [4, 6]), info <= plain, info > (2, 0, [9]), info >= (3,), info > (1,)) == (
        *(True, True, True, False, True),
    )
    assert sorted([Topology(rank, 8, 2, 2, 1, 2, 1).mp_info for rank in (7, 5, 3, 1)])[0].world == [0, 1]
    assert (info.index([4, 5]), info.count([4, 5]), [4, 5] in info, [4] in info) == (2, 1, True, False)
    assert "{} {} {}".format(*info) == "%s %s %s" % info == f"{info.size} {info.rank} {info.world}"  # noqa: UP031
    assert repr(info) == str(info) == "GroupInfo(size=2, rank=1, world=[4, 5])"
    assert json.dumps(info) == "[2, 1, [4, 5]]"
    with pytest.raises(TypeError, match="unhashable"):
        hash(info)
    with pytest.raises(AttributeError):
        info.size = 3
    match info:
        case GroupInfo(size, rank, world):
            assert (size, rank, world) == plain
    match info:
        case (2, 1, [first, *_]):
            assert first == 4
        case _:
            pytest.fail("a GroupInfo must match as a sequence")


def test_world_and_data_world_are_lazy_sequences_equal_to_the_lists():
    topology = Topology(5, 12, 2, 2, 3, 1, 1, order=("sharding", "pp", "dp", "mp", "sep"))
    _, _, data = truth((2, 2, 3, 1, 1), ("sharding", "pp", "dp", "mp", "sep"))
    for lazy, plain in ((topology.world.world, list(range(12))), (topology.data_info.world, data)):
        assert (lazy == plain, plain == lazy, lazy == tuple(plain), list(lazy), len(lazy)) == (
            *(True, True, True, plain, 12),
        )
        assert (lazy != plain[::-1], lazy[::-1] == plain[::-1], lazy[-1], lazy[2:5] == plain[2:5]) == (
            *(True, True, plain[-1], True),
        )
        assert [lazy.index(value) for value in plain] == [plain.index(value) for value in plain]
        assert [lazy.count(value) for value in range(-1, 14)] == [plain.count(value) for value in range(-1, 14)]
        assert [value in lazy for value in range(-1, 14)] == [value in plain for value in range(-1, 14)]
        assert (repr(lazy), np.asarray(lazy).tolist()) == (repr(plain), plain)
        assert np.asarray(lazy[1::3]).tolist() == plain[1::3]
        for again in (pickle.loads(pickle.dumps(lazy)), copy.deepcopy(lazy), pickle.loads(pickle.dumps(lazy[3:]))):
            assert list(again) == plain[-len(again) :]
        with pytest.raises(IndexError):
            lazy[12]
        with pytest.raises(TypeError, match="unhashable"):
            hash(lazy)


# cost

HUGE = (2**10, 2**6, 2**8, 2**12, 2**4)


def test_2_to_the_40_ranks_cost_no_more_than_a_few_kibibytes_until_read():
    rank = 2**39 + 12345
    order = ("sharding", "pp", "dp", "mp", "sep")
    topology_of(rank, HUGE, order)
    tracemalloc.start()
    try:
        topology = topology_of(rank, HUGE, order)
        world, data = topology.world.world, topology.data_info.world
        read = (len(world), world[-1], world[5], rank in world, len(data), data[rank], data[-1], data[7:9])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    place = topology.data_info.rank
    assert read == (2**40, 2**40 - 1, 5, True, 2**40, place, 2**18 - 1, [0, 0])
    assert topology.data_inner_times == 2**22
    assert topology.dp_info.world[topology.dp_info.rank] == rank
    assert peak < 8192


def test_asking_a_huge_data_world_for_what_it_does_not_hold_ends_at_once():
    topology = topology_of(0, HUGE)
    data = topology.data_info.world
    assert (2**18 in data, -1 in data, 2**18 - 1 in data, "x" in data, None in data) == (
        *(False, False, True, False, False),
    )


# a topology is a value


@given(degrees_and_order, st.data())
def test_pickles_copies_equality_and_hash(case, data):
    degrees, order = case
    rank = data.draw(st.integers(0, prod(degrees) - 1))
    topology = topology_of(rank, degrees, order)
    for again in (pickle.loads(pickle.dumps(topology)), copy.copy(topology), copy.deepcopy(topology)):
        assert (again, hash(again), repr(again)) == (topology, hash(topology), repr(topology))
        assert again.order == topology.order


def test_rank_degrees_and_order_all_count():
    one = Topology(5, 8, 2, 2, 1, 2, 1)
    others = [
        *(Topology(4, 8, 2, 2, 1, 2, 1), Topology(5, 8, 2, 1, 2, 2, 1), Topology(5, 8, 4, 2, 1, 1, 1)),
        *(Topology(5, 8, 2, 2, 1, 2, 1, order="pp_first"), Topology(5, 16, 2, 2, 2, 2, 1), Topology(5, 8)),
    ]
    assert one not in others
    assert len({one, *others}) == 7
    assert one != one.mesh
    assert one != repr(one)


def test_a_topology_cannot_be_changed():
    topology = Topology(5, 8, 2, 2, 1, 2, 1)
    for name in ("world", "mp_info", "is_last", "order", "mesh"):
        with pytest.raises(AttributeError, match=name):
            setattr(topology, name, 3)
    with pytest.raises(AttributeError, match="mp_info"):
        del topology.mp_info


class Extended(Topology):
    def __init__(self, *args, name="mine", **degrees):
        super().__init__(*args, **degrees)
        self.name = name


def test_a_subclass_may_add_to_it_and_travels_whole():
    topology = Extended(5, 8, 2, 2, 1, 2, 1, name="other")
    for twin in (copy.copy(topology), copy.deepcopy(topology), pickle.loads(pickle.dumps(topology))):
        assert (type(twin), twin.name, twin) == (Extended, "other", topology)
        assert twin.mp_info == topology.mp_info


def test_what_a_caller_does_to_a_list_he_was_given():
    topology = Topology(5, 8, 2, 2, 1, 2, 1)
    topology.order.reverse()
    assert topology.order == list(AXES)
    members = topology.pp_info.world
    members.append(99)  # the original hands out one list as well
    assert topology.pp_info == (2, 0, members)
    assert topology.pp_info.index(members) == 2
    assert copy.copy(topology).pp_info.world == [5, 7]


def test_the_signature_takes_every_argument_by_name_and_by_place():
    by_name = Topology(
        device_rank=5, world_size=8, dp_degree=2, pp_degree=2, sharding_degree=1, mp_degree=2, sep_degree=1, order=AXES
    )
    assert by_name == Topology(5, 8, 2, 2, 1, 2, 1, AXES)
    assert Topology(5, 8, mp_degree=8).mp_info == (8, 5, list(range(8)))


def test_it_works_without_assert_statements():
    """`python -O` drops asserts; a drop-in whose checks vanish there checks nothing."""
    import subprocess
    import sys

    code = "from rankatlas import Topology\nTopology(0, 16, 2, 2, 1, 2, 1)"
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "WorldSizeError" in done.stderr
