"""Records held against a plan: its partial sets are meant, what it creates must be there, and nothing else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankatlas import Atlas, Mesh
from rankatlas.creation import CreationPlan, first_and_last, neighbours
from rankatlas.errors import GroupMismatch
from rankatlas.records import check_record
from rankatlas.records.kinds import sort_kinds
from rankatlas.records.record import LayoutRecord, made_of

MESH = Mesh(pp=4, tp=1)


def opened(plan, engine, without=(), more=()):
    """The record of a job in which every rank has opened the plan, as the engine tells of its groups.

    Paddle has no descriptions; torch has, and where members act alone no numbers either.
    """
    world = plan.layout.world_size
    seen = {rank: [{"description": "default_pg", "ranks": range(world), "number": 0}] for rank in range(world)}
    made = [(group.names[0], tuple(group.ranks)) for group in plan.groups() if group.new]
    made = [(name, ranks) for name, ranks in made if ranks not in without]
    for number, (name, ranks) in enumerate([*made, *more], 1):
        for rank in ranks:
            described = "" if engine == "paddle" else name
            partial = any(name == one.name for one in plan.partial)
            place = number if engine == "paddle" or partial else None
            seen[rank].append({"description": described, "ranks": list(ranks), "number": place})
    return made_of([{"rank": rank, "host": "gpu"} for rank in range(world)], sort_kinds(seen), plan, engine)


@st.composite
def plans(draw):
    mesh = Mesh.from_axes([(name, draw(st.integers(1, 3))) for name in ("pp", "dp", "tp")])
    layout = mesh
    if draw(st.booleans()):
        layout = Atlas(dense=mesh, expert=Mesh(ep=draw(st.integers(1, mesh.world_size)), first_rank=0))
    axes = ["pp", "tp", "dp+tp"] if layout is mesh else ["dense.pp", "dense.tp", "expert.ep"]
    ranks = st.integers(0, mesh.world_size - 1)
    groups = st.lists(st.lists(ranks, min_size=1, max_size=3, unique=True).map(sorted), max_size=4, unique_by=tuple)
    sets = {"ends": first_and_last(mesh), "pairs": neighbours(mesh), "own": draw(groups), "more": draw(groups)}
    return CreationPlan(layout, draw(st.lists(st.sampled_from(axes), unique=True)), sets)


@settings(max_examples=150, deadline=None)
@given(plans(), st.sampled_from(["torch", "paddle"]), st.data())
def test_law_what_a_plan_opened_is_what_it_means_and_less_or_more_is_not(plan, engine, data):
    made = opened(plan, engine)
    check_record(made, plan)
    assert made.unexplained == []
    check_record(LayoutRecord.from_dict(made.to_dict()), plan)
    new = [tuple(group.ranks) for group in plan.groups() if group.new]
    if new:
        lost = data.draw(st.sampled_from(new))
        with pytest.raises(GroupMismatch) as caught:
            check_record(opened(plan, engine, without=[lost]), plan)
        assert set(lost) & set(caught.value.ranks)
    world = plan.layout.world_size
    if world > 1:
        known = {tuple(group.ranks) for group in plan.groups()}
        charts = [plan.layout] if isinstance(plan.layout, Mesh) else plan.layout.charts.values()
        known |= {tuple(ranks) for mesh in charts for axis in mesh.axes for ranks in mesh.groups(axis).ranges()}
        stray = (world - 1, 0)  # descending, as no group is
        assert stray not in known
        with pytest.raises(GroupMismatch):
            check_record(opened(plan, engine, more=[("strange", stray)]), plan)


@pytest.mark.parametrize("engine", ["torch", "paddle"])
def test_partial_sets_are_strange_to_the_layout_and_meant_by_the_plan(engine):
    plan = CreationPlan(MESH, ["pp"], {"pairs": neighbours(MESH), "own": [[0, 2, 3]]})
    with pytest.raises(GroupMismatch, match="is no group of pp=4 tp=1, whichever axes are taken"):
        check_record(opened(plan, engine), MESH)
    made = opened(plan, engine)
    check_record(made, plan)
    assert {"partial set pairs", "partial set own"} == {kind.axes for kind in made.kinds} - {"world"}


def test_what_is_missing_is_named():
    plan = CreationPlan("pp=4 tp=2", ["tp", "pp"], {"pairs": neighbours(Mesh(pp=4, tp=2)), "own": [[1, 2]]})
    with pytest.raises(
        GroupMismatch, match=r"pairs group 2 of the plan, \[2, 4\], was not made, and nor was 1 more"
    ) as caught:
        check_record(opened(plan, "torch", without=[(2, 4), (5, 7)]), plan)
    assert (caught.value.kind, caught.value.expected, caught.value.others) == ("pairs", [2, 4], [])
    with pytest.raises(GroupMismatch, match="no groups of the partial set own were made; there are world, tp, pp"):
        check_record(opened(plan, "torch", without=[(1, 2)]), plan)
    with pytest.raises(GroupMismatch, match="no groups over tp were made") as caught:
        check_record(opened(plan, "torch", without=[(0, 1), (2, 3), (4, 5), (6, 7), (1, 2)]), plan, ["tp"])
    assert caught.value.others == ["own"]


def test_what_is_strange_to_a_plan_is_named():
    plan = CreationPlan(MESH, ["pp"], {"ends": [[0, 3]], "pairs": neighbours(MESH)})
    for more, told, expected in (
        (("ends", (0, 2)), r"ends, number 2: \[0, 2\] is no group of the partial set ends$", None),
        (("pairs", (3, 2)), r"pairs.*: \[3, 2\] is no group of the partial set pairs; it has \[2, 3\], whose", [2, 3]),
        (("mine", (1, 3)), r"mine: \[1, 3\] is no group of pp=4 tp=1", None),
    ):
        with pytest.raises(GroupMismatch, match=told) as caught:
            check_record(opened(plan, "torch", more=[more]), plan)
        assert (caught.value.given, caught.value.expected) == (list(more[1]), expected)
    with pytest.raises(GroupMismatch, match=r"\[1, 0\] is no group of the plan of pp=4 tp=1, which has pp, "):
        check_record(opened(plan, "paddle", more=[("", (1, 0))]), plan)


def test_a_description_that_speaks_of_another_partial_set():
    """Both sets are meant; the groups of one say that they are the other."""
    plan = CreationPlan("pp=4 tp=2", ["tp"], {"embedding": [[0, 6], [1, 7]], "shared": [[0, 4], [1, 5]]})
    swapped = CreationPlan("pp=4 tp=2", ["tp"], {"embedding": [[0, 4], [1, 5]], "shared": [[0, 6], [1, 7]]})
    with pytest.raises(GroupMismatch, match=r"embedding: \[0, 4\] is no group of the partial set embedding") as caught:
        check_record(opened(swapped, "torch"), plan)
    assert caught.value.others == ["shared"]
