"""Cases from tests/cases: what users reported elsewhere, and ours beside them; one small function per kind.

A further case of a known kind needs data only.  The error classes in the file are proposals; ERRORS says which of
ours each became.
"""

import json
from pathlib import Path

import pytest

from rankatlas import Mesh, check_groups, parse_mesh
from rankatlas.errors import GroupError, GroupOrderError, MemberOrderError, WorldSizeError
from refusals import refused

CASES = json.loads(Path(__file__, "../cases/foundation.json").resolve().read_text(encoding="utf-8"))
ERRORS = {
    "GroupError": GroupError,
    "GroupOrderError": GroupOrderError,
    "MemberOrderError": MemberOrderError,
    "DegreeError": WorldSizeError,
}


def mesh_of(order, degrees):
    return Mesh.from_axes([(axis, degrees[axis]) for axis in order])


def axes_meant(name, mesh):
    """ "dp_cp", "dp+cp" and "model(pp,tp)" are several axes, unless an axis has that very name."""
    if name in mesh.axes:
        return [name]
    inside = name[name.find("(") + 1 :].rstrip(")")
    return inside.replace("+", ",").replace("_", ",").split(",")


def lists(groups):
    return [list(group) for group in groups]


def refuses(expected):
    """The context in which the error of a case must be raised, with its words and its fields."""
    error = expected["error"]
    fields = {name: value for name, value in expected.items() if name != "error"}
    return refused(ERRORS[error["cls"]], *error["must_mention"], **fields)


def check_a_groups_case(given, expected):
    mesh = mesh_of(given["order"], given["degrees"])
    rank = given["query_rank"]
    assert mesh.world_size == given["world_size"]
    for name, groups in expected["groups"].items():
        assert lists(mesh.groups(*axes_meant(name, mesh))) == groups, name
    assert dict(mesh.coordinate(rank)) == expected["coordinate_of_rank"]
    same_batch = [axis for axis in mesh.axes if axis != "dp"]
    assert mesh.group(*same_batch, rank=rank).ranks == expected["batch_group_of_rank"]


def check_a_validate_groups_case(given, expected):
    if "order" in given:
        mesh, axes = mesh_of(given["order"], given["degrees"]), given["axes"]
    else:
        size = len(given["claimed_groups"][0])
        mesh, axes = Mesh(dp=size, other=given["world_size"] // size), ["dp"]
    if "error" not in expected:
        check_groups(mesh, axes, given["claimed_groups"])
        return
    for claimed in (given["claimed_groups"], tuple(map(tuple, given["claimed_groups"]))):
        with refuses(expected):
            check_groups(mesh, axes, claimed)


def check_a_fused_axis_case(given, expected):
    mesh, fuse = mesh_of(given["order"], given["degrees"]), given["fuse"]
    assert lists(mesh.groups(*fuse)) == expected["groups"] != expected["not_groups"]
    first = mesh.axes.index(fuse[0])
    if list(mesh.axes[first : first + len(fuse)]) == fuse:
        assert lists(mesh.flatten(*fuse, into="fused").groups("fused")) == expected["groups"]


def check_a_degenerate_axes_case(given, expected):
    assert expected["ok"] is True
    mesh = mesh_of(given["order"], given["degrees"])
    flat = mesh.flatten(*given["fuse"], into="fused")
    wanted = ["fused" if "+" in axis else axis for axis in given["slice"]]
    assert lists(flat.groups(*wanted)) == expected["groups"]
    assert flat.groups(*wanted).axes == tuple(wanted)
    assert flat.unflatten("fused", **{axis: mesh.size(axis) for axis in given["fuse"]}) == mesh


def check_a_member_order_case(given, expected):
    mesh = mesh_of(given["order"], given["degrees"])
    with refuses(expected):
        check_groups(mesh, [given.get("axis", mesh.axes[-1])], given["shard_groups_given"])


def check_a_layout_diff_case(given, expected):
    before, after = (mesh_of(given[f"order_{when}"], given["degrees"]) for when in ("before", "after"))
    assert before.world_size == after.world_size == given["world_size"]
    for mesh, truth in ((before, expected["before"]), (after, expected["after"])):
        assert {axis: lists(mesh.groups(axis)) for axis in truth} == truth
    assert before.reorder(*after.axes) == after != before
    assert before.fingerprint() != after.fingerprint()
    shards = [after.coordinate(rank)["tp"] for rank in range(after.world_size)]
    assert shards == expected["checkpoint_shard_of_rank_after"]


def check_a_validate_case(given, expected):
    sizes = dict(given["degrees"])
    if "infer" in given:
        sizes[given["infer"]] = "?"
    notation = " ".join(f"{axis}={size}" for axis, size in sizes.items())
    if "error" not in expected:
        mesh = parse_mesh(notation, given["world_size"])
        assert dict(zip(mesh.axes, mesh.sizes)) == expected["sizes"]
        return
    with refuses(expected):
        parse_mesh(notation, given["world_size"])


def check_a_where_is_case(given, expected):
    mesh, rank = mesh_of(given["order"], given["degrees"]), given["rank"]
    assert dict(mesh.coordinate(rank)) == expected["coordinate"]
    for name, ranks in expected["groups"].items():
        group = mesh.group(*axes_meant(name, mesh), rank=rank)
        assert (group.ranks, group.ranks[group.group_rank]) == (ranks, rank), name
        assert group.index == expected.get("indexes", {}).get(name, group.index)


CHECKS = {
    "groups": check_a_groups_case,
    "validate-groups": check_a_validate_groups_case,
    "fused-axis": check_a_fused_axis_case,
    "degenerate-axes": check_a_degenerate_axes_case,
    "member-order": check_a_member_order_case,
    "layout-diff": check_a_layout_diff_case,
    "validate": check_a_validate_case,
    "where-is": check_a_where_is_case,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case):
    CHECKS[case["kind"]](case["input"], case["expected"])


def test_the_cases_of_this_issue_are_all_here():
    ids = [case["id"] for case in CASES]
    assert len(set(ids)) == len(ids)
    wanted = {"MAP-001", "MAP-003", "MAP-005", "MAP-007", "MAP-011", "MAP-015", "VAL-001", "VAL-003", "DIAG-001"}
    assert wanted <= set(ids)
