"""The drop-in against the original's own frozen answers: equal wherever the original is right."""

import json
from hashlib import sha256
from math import prod

import pytest

from golden import facts, table
from rankatlas import Topology
from rankatlas.errors import ArgumentsError, IntegerError, RankError, SizeError, WorldSizeError

TABLES = ("paddlenlp", "paddlenlp_random", "paddlenlp_numpy1")
INFOS = ("dp_info", "pp_info", "sharding_info", "mp_info", "sep_info")
DATA_WORLD_WRONG = "data_info.world wrong"
MISFIT = ("product<world", "product>world", "axis twice in order")
SHARDING_FIRST = "Data rank caculate error!"


def topology_of(fact):
    order = {} if fact["order"] is None else {"order": fact["order"].split()}
    if fact.get("order_type") == "tuple":
        order["order"] = tuple(order["order"])
    return Topology(fact["rank"], fact["world"], *fact["degrees"], **order)


def digest(world):
    return sha256(json.dumps(list(world), separators=(",", ":")).encode()).hexdigest()[:16]


def misfits(fact):
    return any(mark in MISFIT for mark in fact.get("marks", ()))


def check_answers(topology, fact):
    rank, world = fact["rank"], fact["world"]
    for name, (place, start, step, count) in zip(INFOS, fact["groups"]):
        assert getattr(topology, name) == (count, place, [start + step * at for at in range(count)])
    assert topology.world == (world, rank, list(range(world)))
    size, data_rank, _, world_digest = fact["data"]
    assert (topology.data_info.size, topology.data_info.rank) == (size, data_rank)
    assert (topology.is_last, topology.data_inner_times) == (fact["is_last"], fact["inner"])
    if DATA_WORLD_WRONG not in fact.get("marks", ()):
        assert topology.data_info.world[rank] == fact["data"][2]
        assert digest(topology.data_info.world) == world_digest


@pytest.mark.parametrize("name", TABLES)
def test_equal_attribute_for_attribute_where_the_original_answers_rightly(name):
    answered = [fact for fact in facts(name) if "groups" in fact and not misfits(fact)]
    for fact in answered:
        check_answers(topology_of(fact), fact)
    assert len(answered) >= 60


@pytest.mark.parametrize("name", TABLES)
def test_the_printed_form_is_the_originals_letter_for_letter_but_for_numpy_2(name):
    printed = [fact for fact in facts(name) if "repr" in fact and DATA_WORLD_WRONG not in fact.get("marks", ())]
    for fact in printed:
        expected = fact["repr"].replace("np.int64(", "").replace("), world", ", world")
        if fact.get("order_type") == "tuple":
            inside = expected[expected.rindex("(") + 1 : -1]
            expected = expected.replace(f"({inside})", f"[{inside}]")
        assert repr(topology_of(fact)) == expected
    assert printed or name == "paddlenlp_random"


@pytest.mark.parametrize("name", TABLES)
def test_the_original_is_wrong_or_trips_only_with_sharding_before_dp(name):
    for fact in facts(name):
        if DATA_WORLD_WRONG in fact.get("marks", ()) or fact.get("error", {}).get("message") == SHARDING_FIRST:
            order = fact["order"].split()
            assert order.index("sharding") < order.index("dp")


def test_layouts_on_which_the_original_trips_work_here():
    tripped = [
        fact for name in TABLES for fact in facts(name) if fact.get("error", {}).get("message") == SHARDING_FIRST
    ]
    worked = 0
    for fact in tripped:
        if prod(fact["degrees"]) == fact["world"]:
            topology = topology_of(fact)
            dp, sharding = topology.dp_info, topology.sharding_info
            assert topology.data_info.rank == dp.rank * sharding.size + sharding.rank
            assert topology.data_info.world[fact["rank"]] == topology.data_info.rank
            worked += 1
    assert worked >= 100


def test_layouts_that_do_not_make_the_world_are_refused_whatever_the_original_says():
    refused = 0
    for fact in (fact for name in TABLES for fact in facts(name)):
        degrees = fact["degrees"]
        usable = all(type(degree) is int and degree > 0 for degree in degrees)
        if usable and prod(degrees) != fact["world"]:
            with pytest.raises(WorldSizeError):
                topology_of(fact)
            refused += 1
    assert refused >= 150


def test_what_else_the_original_refuses_or_lets_pass():
    """The special facts: an open data degree works here, everything else has its own error."""
    expected = {"rank": RankError, "size": SizeError, "order": ArgumentsError, "none": ArgumentsError}
    seen = set()
    for fact in facts("paddlenlp", "special"):
        degrees, order = fact["degrees"], (fact["order"] or "dp pp sharding mp sep").split()
        if degrees[0] is None:
            assert topology_of(fact).dp_info.size == fact["world"] // prod(degrees[1:])
            continue
        if None in degrees:
            kind = "none"
        elif sorted(order) != ["dp", "mp", "pp", "sep", "sharding"] or fact["order"] == "":
            kind = "order"
        elif any(type(degree) is not int or degree < 1 for degree in degrees):
            kind = "size"
        elif prod(degrees) == fact["world"] and not 0 <= fact["rank"] < fact["world"]:
            kind = "rank"
        else:
            continue
        seen.add(kind)
        with pytest.raises(expected[kind]):
            topology_of(fact)
    assert seen == set(expected)


def test_the_types_are_what_the_original_says_they_should_have_been():
    plain = {"int": int, "numpy.int64": int, "numpy.bool": bool, "numpy.bool_": bool, "list": list}
    topology = Topology(0, 8, 2, 2, 1, 2, 1)
    for path, given in table("paddlenlp")["types"].items():
        value = topology
        for part in path.removesuffix("[0]").split("."):
            value = getattr(value, part)
        value = value[0] if path.endswith("[0]") else value
        if path not in ("world.world", "data_info.world"):  # lazy sequences, equal to the lists
            assert type(value) is plain[given], path


def test_a_topology_raises_our_errors_only():
    for bad in (0.5, "0", None):
        with pytest.raises(IntegerError):
            Topology(bad, 8)
