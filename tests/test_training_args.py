"""Topology.from_args: the rules of the trainers and of the auto-parallel scripts, and the peers' frozen answers."""

from types import SimpleNamespace

import numpy as np
import pytest

from golden import facts, table
from rankatlas import Topology
from rankatlas.errors import ArgumentsError, InputError, IntegerError, SizeError, WorldSizeError
from refusals import refused

AXES = ("dp", "pp", "sharding", "mp", "sep")
RELEASES = {"paddlenlp_args": "paddlenlp-2.8", "paddleformers_args": "paddleformers-1.2"}
LONG = {
    "paddlenlp-2.8": {
        "dp": "data_parallel_degree",
        "pp": "pipeline_parallel_degree",
        "sharding": "sharding_parallel_degree",
        "mp": "tensor_parallel_degree",
        "sep": "sep_parallel_degree",
    },
    "paddleformers-1.2": {
        "dp": "data_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "sharding": "sharding_parallel_size",
        "mp": "tensor_model_parallel_size",
        "sep": "sep_parallel_size",
    },
}


def sizes_of(topology):
    return {axis: topology.mesh.size(axis) for axis in AXES}


def settle(args, world, rank=0, **how):
    topology = Topology.from_args(args, rank, world, **how)
    return sizes_of(topology), topology.order


def sizes(dp=1, pp=1, sharding=1, mp=1, sep=1):
    return {"dp": dp, "pp": pp, "sharding": sharding, "mp": mp, "sep": sep}


PP_FIRST, SHARDING_FIRST = ["dp", "pp", "sharding", "sep", "mp"], ["dp", "sharding", "pp", "sep", "mp"]
AUTO_PP_FIRST, AUTO_SHARDING_FIRST = ["pp", "dp", "sharding", "mp", "sep"], ["dp", "sharding", "pp", "mp", "sep"]


# the peers' own answers


def settled_there(fact, release):
    """What the peer settled, or None where it says nothing that five sizes could hold."""
    result = fact["result"]
    names = LONG[release]
    if not result["use_hybrid_parallel"]:  # no axes at all: plain data parallelism
        return sizes(dp=fact["world"])
    return {axis: max(result[name] or 1, 1) for axis, name in names.items()}


def degrees_in(given):
    return {name: size for name, size in given.items() if type(size) is int} or {"": 1}


def beyond_five_axes(fact):
    names = ("context_parallel_size", "expert_model_parallel_size", "expert_tensor_model_parallel_size")
    return any(max(fact["given"].get(name, 1), 1) > 1 for name in names)


@pytest.mark.parametrize("name", RELEASES)
def test_sizes_and_order_are_what_the_peer_settles(name):
    release, agreed = RELEASES[name], 0
    for fact in facts(name, "arguments"):
        given = fact["given"]
        if "result" not in fact or fact.get("marks") or beyond_five_axes(fact) or given.get("enable_auto_parallel"):
            continue
        if fact["world"] == 1 and max(degrees_in(given).values()) > 1:
            continue  # ignored there, see test_one_rank_cannot_hold_degrees_that_the_trainer_would_ignore
        if "sharding_degree" in given and LONG[release]["sharding"] in given:
            continue  # the larger wins there, see test_two_names_of_one_axis_that_contradict_each_other_are_refused
        order = {"pp_first": PP_FIRST, "sharding_first": SHARDING_FIRST}
        expected = settled_there(fact, release), order[fact["result"]["hybrid_parallel_topo_order"]]
        for args in (given, SimpleNamespace(**table(name)["defaults"] | given)):
            assert settle(args, fact["world"], release=release) == expected, fact
        agreed += 1
    assert agreed >= 150


@pytest.mark.parametrize("name", RELEASES)
def test_where_the_peers_sizes_are_not_the_world_we_refuse(name):
    marked = [fact for fact in facts(name, "arguments") if fact.get("marks") and not beyond_five_axes(fact)]
    for fact in marked:
        with pytest.raises(WorldSizeError):
            settle(fact["given"], fact["world"], release=RELEASES[name])
    assert len(marked) >= 20


@pytest.mark.parametrize("name", RELEASES)
def test_what_the_peer_refuses_because_of_sizes_we_refuse(name):
    refusals = 0
    for fact in facts(name, "arguments"):
        if "error" not in fact or "harding" in fact["error"]["message"]:
            continue  # which words `sharding` may hold is the trainer's business, not the layout's
        with pytest.raises(InputError):
            settle(fact["given"], fact["world"], release=RELEASES[name])
        refusals += 1
    assert refusals >= 30


@pytest.mark.parametrize("name", RELEASES)
def test_axes_beyond_the_five_are_refused_by_name(name):
    for fact in facts(name, "arguments"):
        if beyond_five_axes(fact):
            with pytest.raises(InputError):
                settle(fact["given"], fact["world"], release=RELEASES[name])


@pytest.mark.parametrize("name", RELEASES)
def test_the_trainers_orders(name):
    """By running the peer's own ifs; without segment support the peer has no sep axis, which then is of size 1."""
    agreed = 0
    for fact in facts(name, "order"):
        if not set(fact["order"]) <= set(AXES):
            continue
        when = fact["when"]
        args = {
            "hybrid_parallel_topo_order": when["topo_order"],
            "use_expert_parallel": when["use_expert_parallel"],
            "reorder_pipeline_priority": when.get("reorder_pipeline_priority", False),
        }
        order = settle(args, 8, release=RELEASES[name])[1]
        assert [axis for axis in order if axis != "sep"] == [axis for axis in fact["order"] if axis != "sep"]
        assert order == fact["order"] or "sep" not in fact["order"]
        agreed += 1
    assert agreed >= 8


def test_one_rank_cannot_hold_degrees_that_the_trainer_would_ignore():
    """With one process both trainers drop every degree in silence; a layout that is not there is no answer."""
    with refused(WorldSizeError, "mp=8 (tensor_parallel_degree)", world_size=1, product=8):
        settle({"tensor_parallel_degree": 8}, 1)


# the rules, one by one


@pytest.mark.parametrize(
    ("args", "world", "expected", "order"),
    [
        ({}, 8, sizes(dp=8), PP_FIRST),
        ({}, 1, sizes(), PP_FIRST),
        ({"tensor_parallel_degree": 2, "pipeline_parallel_degree": 2}, 8, sizes(dp=2, pp=2, mp=2), PP_FIRST),
        ({"tensor_parallel_degree": 2, "sharding": "stage1"}, 8, sizes(sharding=4, mp=2), PP_FIRST),
        ({"sharding": "stage2 offload", "sharding_parallel_degree": -1}, 8, sizes(sharding=8), PP_FIRST),
        ({"sharding": ["stage3"], "sharding_parallel_degree": 4}, 8, sizes(dp=2, sharding=4), PP_FIRST),
        ({"sharding": "", "sharding_parallel_degree": -1}, 8, sizes(dp=8), PP_FIRST),
        ({"sharding": "   "}, 8, sizes(dp=8), PP_FIRST),
        ({"sharding": []}, 8, sizes(dp=8), PP_FIRST),
        ({"sharding": "stage1", "sharding_parallel_degree": 1}, 8, sizes(dp=8), PP_FIRST),
        ({"sharding_parallel_degree": 4}, 8, sizes(dp=2, sharding=4), PP_FIRST),
        ({"mp_degree": 2, "pp_degree": 2, "sharding_degree": 2}, 16, sizes(dp=2, pp=2, sharding=2, mp=2), PP_FIRST),
        ({"sep_parallel_degree": 2, "tensor_parallel_degree": 2}, 8, sizes(dp=2, mp=2, sep=2), PP_FIRST),
        ({"data_parallel_degree": 8}, 8, sizes(dp=8), PP_FIRST),
        ({"data_parallel_degree": 4, "mp_degree": 2}, 8, sizes(dp=4, mp=2), PP_FIRST),
        ({"data_parallel_degree": 1, "sharding": "stage1"}, 8, sizes(sharding=8), PP_FIRST),
        ({"data_parallel_degree": -1, "mp_degree": 4}, 8, sizes(dp=2, mp=4), PP_FIRST),
        ({"hybrid_parallel_topo_order": "sharding_first"}, 8, sizes(dp=8), SHARDING_FIRST),
        ({"hybrid_parallel_topo_order": None}, 8, sizes(dp=8), PP_FIRST),
        ({"context_parallel_degree": 1}, 8, sizes(dp=8), PP_FIRST),
        ({"context_parallel_degree": -1, "sep_parallel_degree": 2}, 8, sizes(dp=4, sep=2), PP_FIRST),
        ({"mp_degree": np.int64(2), "pp_degree": np.int32(-1)}, 8, sizes(dp=4, mp=2), PP_FIRST),
        ({"tensor_parallel_degree": 2, "mp_degree": 2}, 8, sizes(dp=4, mp=2), PP_FIRST),
        ({"tensor_parallel_degree": -1, "mp_degree": 2}, 8, sizes(dp=4, mp=2), PP_FIRST),
        ({"learning_rate": 1e-4, "bf16": True, "data": [1, 2]}, 8, sizes(dp=8), PP_FIRST),
    ],
)
def test_paddlenlp_as_the_trainer_does(args, world, expected, order):
    for given in (args, SimpleNamespace(**args)):
        assert settle(given, world) == (expected, order)


@pytest.mark.parametrize(
    ("args", "world", "expected", "order"),
    [
        ({}, 8, sizes(sharding=8), SHARDING_FIRST),  # its default is sharding="stage1"
        ({"sharding": ""}, 8, sizes(dp=8), SHARDING_FIRST),
        ({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}, 8, None, SHARDING_FIRST),
        ({"sharding_parallel_size": 2, "sep_parallel_size": 2}, 8, sizes(dp=2, sharding=2, sep=2), SHARDING_FIRST),
        ({"mp_degree": 2, "sharding": ""}, 8, sizes(dp=4, mp=2), SHARDING_FIRST),
        ({"hybrid_parallel_topo_order": "pp_first"}, 8, sizes(sharding=8), PP_FIRST),
    ],
)
def test_paddleformers_as_its_trainer_does(args, world, expected, order):
    expected = expected or sizes(pp=2, sharding=2, mp=2)
    assert settle(args, world, release="paddleformers-1.2") == (expected, order)


@pytest.mark.parametrize(
    ("args", "how", "expected", "order"),
    [
        ({}, {}, sizes(dp=8), AUTO_PP_FIRST),
        ({"hybrid_parallel_topo_order": "sharding_first"}, {}, sizes(dp=8), AUTO_SHARDING_FIRST),
        ({"sep_parallel_degree": 2}, {}, sizes(dp=4, sep=2), AUTO_PP_FIRST),
        ({"sep_parallel_degree": 2, "context_parallel_degree": 4}, {}, sizes(dp=2, sep=4), AUTO_PP_FIRST),
        ({"sep_parallel_degree": 2, "context_parallel_degree": 1}, {}, sizes(dp=4, sep=2), AUTO_PP_FIRST),
        ({"sep_parallel_degree": 2, "context_parallel_degree": -1}, {}, sizes(dp=4, sep=2), AUTO_PP_FIRST),
        ({"sharding": "stage1", "mp_degree": 2}, {}, sizes(dp=4, mp=2), AUTO_PP_FIRST),
        ({"sharding": "stage1", "sharding_parallel_degree": 2}, {}, sizes(dp=8), AUTO_PP_FIRST),
        ({"sharding": "stage1", "mp_degree": 2}, {"gpt3": True}, sizes(dp=4, mp=2), AUTO_PP_FIRST),
        ({"pp_degree": 2, "mp_degree": 2}, {"gpt3": True}, sizes(dp=2, pp=2, mp=2), AUTO_PP_FIRST),
    ],
)
def test_the_auto_parallel_scripts(args, how, expected, order):
    assert settle(args, 8, auto_parallel=True, **how) == (expected, order)


def test_with_gpt3_data_and_sharding_degrees_are_not_multiplied():
    """max(2, 2) is 2, so a world of 8 with mp=2 is not filled: the script would build a wrong Topology."""
    args = {"sharding": "stage1", "sharding_parallel_degree": 2, "mp_degree": 2}
    assert settle(args, 8, auto_parallel=True) == (sizes(dp=4, mp=2), AUTO_PP_FIRST)
    with pytest.raises(WorldSizeError):
        settle(args, 8, auto_parallel=True, gpt3=True)


def test_the_rank_is_the_one_given():
    topology = Topology.from_args({"mp_degree": 2, "pp_degree": 2}, 5, 8)
    assert topology == Topology(5, 8, 2, 2, 1, 2, 1, order=PP_FIRST)
    assert Topology.from_args({"mp_degree": 2, "pp_degree": 2}, rank=np.int64(5), world_size=np.int64(8)) == topology


# refusals


def test_a_data_degree_that_disagrees_is_an_error():
    with refused(WorldSizeError, "data_parallel_degree", "dp=4", "8", world_size=8, product=16):
        settle({"data_parallel_degree": 4, "tensor_parallel_degree": 4}, 8)
    with refused(WorldSizeError, "dp=2", world_size=8, product=4):
        settle({"dp_degree": 2, "mp_degree": 2}, 8)
    with pytest.raises(InputError, match="data_parallel_degree"):
        settle({"data_parallel_degree": 2, "sharding": "stage1"}, 8)


def test_sizes_that_do_not_divide_the_world_say_where_they_came_from():
    with refused(WorldSizeError, "mp=3 (tensor_parallel_degree)", "8", remainder=2):
        settle({"tensor_parallel_degree": 3}, 8)
    with refused(WorldSizeError, "sep=3 (sep_degree)", "8"):
        settle({"sep_degree": 3, "sharding": "stage1"}, 8)


@pytest.mark.parametrize("degree", [0, -2])
def test_a_degree_below_one_and_not_minus_one_is_refused(degree):
    with refused(SizeError, "tensor_parallel_degree", str(degree), size=degree):
        settle({"tensor_parallel_degree": degree}, 8)


@pytest.mark.parametrize("degree", [True, 2.0, "2", "", [2], np.float64(2)])
def test_a_degree_that_is_no_integer_is_refused(degree):
    with refused(IntegerError, "tensor_parallel_degree", repr(degree), value=degree):
        settle({"tensor_parallel_degree": degree}, 8)


def test_two_names_of_one_axis_that_contradict_each_other_are_refused():
    both = ("tensor_parallel_degree", "mp_degree")
    with refused(ArgumentsError, "tensor_parallel_degree=2", "mp_degree=4", names=both):
        settle({"tensor_parallel_degree": 2, "mp_degree": 4}, 8)
    both = ("sharding_parallel_degree", "sharding_degree")
    with refused(ArgumentsError, "sharding_parallel_degree=4", "sharding_degree=2", names=both):
        settle({"sharding_degree": 2, "sharding_parallel_degree": 4, "sharding": "stage1"}, 8)


def test_another_releases_names_are_refused_instead_of_overlooked():
    with refused(ArgumentsError, "tensor_model_parallel_size", "paddleformers-1.2"):
        settle({"tensor_model_parallel_size": 2}, 8)
    with refused(ArgumentsError, "tensor_parallel_degree", "paddlenlp-2.8"):
        settle({"tensor_parallel_degree": 2}, 8, release="paddleformers-1.2")
    with refused(ArgumentsError, "release", "paddlenlp-2.8, paddleformers-1.2", "'paddlenlp'"):
        settle({}, 8, release="paddlenlp")


@pytest.mark.parametrize("order", ["dp_first", "", 3, ["dp", "pp", "sharding", "mp", "sep"], "PP_FIRST"])
def test_an_unknown_topo_order_is_refused(order):
    with refused(ArgumentsError, "hybrid_parallel_topo_order", "pp_first", "sharding_first", repr(order)):
        settle({"hybrid_parallel_topo_order": order}, 8)


def test_axes_that_five_names_cannot_hold_are_refused():
    with refused(
        ArgumentsError, "context_parallel_degree=2", "sep_parallel_degree=2", names=("context_parallel_degree",)
    ):
        settle({"context_parallel_degree": 2}, 8)
    with refused(ArgumentsError, "expert_parallel_degree=4", "Atlas", names=("expert_parallel_degree",)):
        settle({"expert_parallel_degree": 4}, 8)


@pytest.mark.parametrize("world", [0, -1, None, True, 8.0, "8"])
def test_a_world_size_that_is_none_is_refused(world):
    with pytest.raises(InputError, match="world"):
        settle({}, world)


def test_arguments_that_are_no_arguments_are_not_taken_for_defaults():
    for nothing in (None, "mp_degree=2", [("mp_degree", 2)], 8):
        with pytest.raises(InputError):
            settle(nothing, 8)
