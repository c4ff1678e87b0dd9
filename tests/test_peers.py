"""Our groups and coordinates equal the lists that other frameworks answered, frozen in tests/golden.

Each test says in one place how the peer writes what we write: Megatron and HyperCommGrid name the innermost axis
first, ColossalAI numbers its axes, all others count as we do.
"""

from itertools import product

import numpy as np
import pytest

from golden import facts
from rankatlas import Mesh, check_groups
from rankatlas.errors import DuplicateAxisError, UnknownAxisError, WorldSizeError


def lists(groups):
    return [list(group) for group in groups]


def mesh_of(names, sizes, first_rank=0):
    return Mesh.from_axes(list(zip(names, sizes)), first_rank)


def check_coordinates(mesh, coords):
    for rank, places in coords:
        assert list(mesh.coordinate(rank).values()) == places
        assert mesh.rank(**dict(zip(mesh.axes, places))) == rank


def check_table(mesh, axes, table):
    """Equal as lists, accepted by check_groups, equal as an array."""
    assert lists(mesh.groups(*axes)) == table, (mesh, axes)
    check_groups(mesh, axes, table)
    assert np.asarray(mesh.groups(*axes)).tolist() == table


# Megatron: the order string is innermost first


@pytest.mark.parametrize("fact", facts("megatron", "generator"), ids=lambda fact: fact["order"])
def test_megatrons_rank_generator(fact):
    order = fact["order"].split("-")[::-1]
    mesh = mesh_of(order, [fact["sizes"][axis] for axis in order], fact["rank_offset"])
    for token, ranks in fact["ranks"].items():
        check_table(mesh, token.split("-"), ranks)


@pytest.mark.parametrize("fact", facts("megatron", "grid"), ids=lambda fact: "-".join(fact["dim_names"]))
def test_megatrons_hypercommgrid(fact):
    """Its groups are ours; it lists members in the order of the dims asked, which is ours when that is mesh order."""
    mesh = mesh_of(fact["dim_names"][::-1], fact["shape"][::-1], fact["rank_offset"])
    for dims, ranks in fact["calls"]:
        check_table(mesh, [dims] if isinstance(dims, str) else dims, ranks)


def test_megatrons_specials_that_have_an_answer():
    """Missing axes of size 1 are appended outermost, and names are compared in lower case."""
    answered = {fact["case"]: fact for fact in facts("megatron", "generator-special") if "answer" in fact}
    for case, mesh, axes in (
        ("an axis of size 1 missing in the order", Mesh(cp=1, pp=2, dp=2, tp=2), ["cp"]),
        ("missing axes are appended outermost", Mesh(pp=1, tp=1, dp=4), ["dp", "pp", "tp"]),
        ("upper case", Mesh(pp=2, dp=2, tp=2), ["tp"]),
    ):
        check_table(mesh, axes, answered[case]["answer"])


def test_the_groups_that_megatron_really_makes():
    """Two layouts over the same ranks, dense and expert, from the sizes it was given."""
    dense_axes = {
        "tensor_model_parallel": ["tp"],
        "pipeline_model_parallel": ["pp"],
        "context_parallel": ["cp"],
        "data_parallel": ["dp"],
        "data_parallel with cp": ["dp", "cp"],
        "model_parallel": ["pp", "tp"],
        "tensor_and_context_parallel": ["tp", "cp"],
        "tensor_and_data_parallel": ["tp", "dp"],
        "tensor_and_data_parallel with cp": ["tp", "cp", "dp"],
    }
    expert_axes = {
        "expert_model_parallel": ["ep"],
        "expert_tensor_parallel": ["tp"],
        "expert_tensor_and_model_parallel": ["tp", "ep"],
        "expert_tensor_model_pipeline_parallel": ["tp", "ep", "pp"],
        "expert_data_parallel": ["dp"],
    }
    compared = 0
    for fact in facts("megatron_live", "live"):
        given, world = fact["given"], fact["world"]
        order = given.get("order", "tp-cp-ep-dp-pp").split("-")[::-1]
        tp, pp = given.get("tensor_model_parallel_size", 1), given.get("pipeline_model_parallel_size", 1)
        cp, ep = given.get("context_parallel_size", 1), given.get("expert_model_parallel_size", 1)
        etp = given.get("expert_tensor_parallel_size") or tp
        if any("error" in seen for seen in fact["seen"]):
            continue
        dense = megatron_mesh(order, {"tp": tp, "pp": pp, "cp": cp, "dp": world // (tp * pp * cp)}, without="ep")
        expert = megatron_mesh(order, {"tp": etp, "pp": pp, "ep": ep, "dp": world // (etp * pp * ep)}, without="cp")
        for seen in fact["seen"]:
            for mesh, table in ((dense, dense_axes), (expert, expert_axes)):
                for name, axes in table.items():
                    if name in seen["groups"]:
                        assert mesh.group(*axes, rank=seen["rank"]).ranks == seen["groups"][name], (fact, name)
                        compared += 1
    assert compared >= 300


def megatron_mesh(order, sizes, without):
    axes = [axis for axis in order if axis != without]
    missing = [axis for axis in sizes if axis not in axes]
    return mesh_of([*missing, *axes], [sizes[axis] for axis in (*missing, *axes)])


# the others write the outermost axis first, as we do


@pytest.mark.parametrize("fact", facts("deepspeed", "layout"), ids=lambda fact: "-".join(fact["axes"]))
def test_deepspeed(fact):
    mesh = mesh_of(fact["axes"], fact["dims"])
    assert mesh.world_size == fact["world"]
    check_coordinates(mesh, fact["coords"])
    for axis, table in fact["comm_lists"].items():
        check_table(mesh, [axis], table)
    for places, ranks in fact["filter_match"]:
        if all(place < mesh.size(axis) for axis, place in places.items()):
            assert mesh.select(**places) == ranks
    for axis, place, ranks in fact["axis_list"]:
        if place < mesh.size(axis):
            assert mesh.select(**{axis: place}) == ranks


@pytest.mark.parametrize("fact", facts("paddle", "layout"), ids=lambda fact: "-".join(fact["names"]))
def test_paddle(fact):
    mesh = mesh_of(fact["names"], fact["dims"])
    assert mesh.world_size == fact["world"]
    check_coordinates(mesh, fact["coords"])
    for axis, table in fact["comm_list"].items():
        check_table(mesh, [axis], table)
    for axis, place, ranks in fact["axis_list"]:
        assert mesh.select(**{axis: place}) == ranks
    for axes, table in fact["fused_ranks"]:
        assert [sorted(members) for members in table] == lists(mesh.groups(*axes))
    for rank, axis, place, other in fact["rank_from_stage"]:
        assert mesh.rank(**{**mesh.coordinate(rank), axis: place}) == other


@pytest.mark.parametrize("fact", facts("torch", "layout"), ids=lambda fact: "-".join(fact["dims"]))
def test_torch(fact):
    mesh = mesh_of(fact["dims"], fact["sizes"])
    assert np.asarray(mesh.select()).reshape(mesh.sizes).tolist() == fact["mesh"]
    for dim, table in fact["all_groups"].items():
        check_table(mesh, [dim], table)
    for seen in fact["seen"]:
        rank = seen["rank"]
        assert list(mesh.coordinate(rank).values()) == seen["coordinate"] == seen["local_rank"]
        assert {dim: mesh.group(dim, rank=rank).ranks for dim in seen["groups"]} == seen["groups"]
        for dims, table in seen["slices"]:
            group = mesh.group(*dims, rank=rank)
            assert np.asarray(group.ranks).reshape([mesh.size(dim) for dim in group.axes]).tolist() == table
        for dims, ranks in seen["flattened"]:
            assert mesh.group(*dims, rank=rank).ranks == ranks


def test_torchs_unflatten():
    """Ours also takes one open size (-1), and refuses what torch lets pass: two dims of one name."""
    for fact in facts("torch", "unflatten"):
        mesh = mesh_of(fact["dims"], fact["sizes"])
        parts = dict(zip(fact["names"], fact["parts"]))
        rest = [dim for dim in fact["dims"] if dim != fact["dim"]]
        if -1 in fact["parts"]:
            assert mesh.unflatten(fact["dim"], **parts).world_size == mesh.world_size
        elif "error" in fact or set(rest) & set(parts):
            with pytest.raises((WorldSizeError, UnknownAxisError, DuplicateAxisError)):
                mesh.unflatten(fact["dim"], **parts)
        else:
            split, answer = mesh.unflatten(fact["dim"], **parts), fact["answer"]
            assert list(split.axes) == answer["dims"]
            assert np.asarray(split.select()).reshape(split.sizes).tolist() == answer["mesh"]
            assert list(split.coordinate(fact["rank"]).values()) == answer["coordinate"]
            assert [split.group(axis, rank=fact["rank"]).ranks for axis in split.axes] == answer["groups"]


@pytest.mark.parametrize("fact", facts("jax", "layout"), ids=lambda fact: "-".join(fact["axes"]))
def test_jax(fact):
    check_jax(mesh_of(fact["axes"], fact["sizes"]), fact)


def test_jaxs_make_mesh_leaves_cpu_devices_in_our_order():
    for fact in facts("jax", "make_mesh"):
        check_jax(mesh_of(fact["axes"], fact["sizes"]), fact["answer"])


def check_jax(mesh, answer):
    assert (mesh.world_size, dict(zip(mesh.axes, mesh.sizes))) == (answer["size"], answer["shape"])
    assert np.asarray(mesh.select()).reshape(mesh.sizes).tolist() == answer["ids"]
    for axis, table in answer["groups"].items():
        check_table(mesh, [axis], table)


@pytest.mark.parametrize("fact", facts("colossalai", "layout"), ids=lambda fact: str(fact["sizes"]))
def test_colossalai(fact):
    names = [f"axis{place}" for place in range(len(fact["sizes"]))]
    mesh = mesh_of(names, fact["sizes"])
    check_coordinates(mesh, fact["coords"])
    for seen in fact["seen"]:
        rank = seen["rank"]
        assert list(mesh.coordinate(rank).values()) == seen["coordinate"]
        assert [mesh.group(name, rank=rank).ranks for name in names] == seen["groups"]
        if seen["pair_group"] is not None:
            pair = mesh.group(*[names[place] for place in seen["pair"]], rank=rank)
            assert pair.ranks == sorted(seen["pair_group"])


def test_every_order_of_three_axes_by_hand():
    """No peer involved: a table small enough to be read, so that a mistake shared with all peers would show."""
    expected = {
        ("pp", "dp", "tp"): {"pp": [0, 4], "dp": [0, 2], "tp": [0, 1]},
        ("pp", "tp", "dp"): {"pp": [0, 4], "tp": [0, 2], "dp": [0, 1]},
        ("dp", "pp", "tp"): {"dp": [0, 4], "pp": [0, 2], "tp": [0, 1]},
        ("dp", "tp", "pp"): {"dp": [0, 4], "tp": [0, 2], "pp": [0, 1]},
        ("tp", "pp", "dp"): {"tp": [0, 4], "pp": [0, 2], "dp": [0, 1]},
        ("tp", "dp", "pp"): {"tp": [0, 4], "dp": [0, 2], "pp": [0, 1]},
    }
    for order, axis in product(expected, ("pp", "dp", "tp")):
        assert mesh_of(order, (2, 2, 2)).group(axis, rank=0).ranks == expected[order][axis]
