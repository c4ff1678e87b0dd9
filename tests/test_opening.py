"""Opening a plan without a framework: what ranks agree on before, and what handles say of names that are none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankatlas import Mesh
from rankatlas.adapters.opening import Handles, _agreed_on, _make_all
from rankatlas.creation import CreationPlan
from rankatlas.errors import HandleError
from rankatlas.live.fields import flat

MESH = Mesh(pp=2, cp=2, tp=2)


class Engine:
    """Makes a group by naming its members."""

    name = "none"
    rank, world_size = 5, 8

    def alike(self):
        return True

    def alive(self):
        return True

    def by_members(self, family):
        return True

    def world(self):
        return tuple(range(self.world_size))

    def alone(self):
        return (self.rank,)

    def make_own(self, family, group, description):
        return tuple(group.ranks)

    def make(self, ranks, description, name):
        return tuple(ranks) if self.rank in ranks else None


def opened(plan):
    handles = Handles(plan, Engine.rank, None, Engine())
    _make_all(Engine(), handles)
    return handles


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "emb",
            "no group 'emb' in this plan, which has pp, cp, tp, embedding:"
            " mesh has no axis 'emb'; its axes are 'pp', 'cp', 'tp'.",
        ),
        (
            "tpp",
            "no group 'tpp' in this plan, which has pp, cp, tp, embedding:"
            " mesh has no axis 'tpp'; its axes are 'pp', 'cp', 'tp'. Did you mean 'tp' or 'pp'?",
        ),
        ("cp+tp", "no group 'cp+tp' in this plan, which has pp, cp, tp, embedding"),
        (
            None,
            "no group None in this plan, which has pp, cp, tp, embedding:"
            " groups are named by their axes, such as 'tp' or ('dp', 'cp'), not None",
        ),
        ((), "groups are named by their axes, such as 'tp' or ('dp', 'cp'), not ()"),
        ({"tp"}, "axes must be a list or tuple, not {'tp'}, which has no order"),
        ("embedding", "rank 5 is in no group of 'embedding'; ask `name in handles` first"),
    ],
)
def test_a_name_that_is_none_is_told_in_whole_sentences(name, told):
    handles = opened(CreationPlan(MESH, MESH.axes, {"embedding": [[0, 4]]}))
    with pytest.raises(HandleError) as caught:
        handles[name]
    assert told in str(caught.value)
    assert ".;" not in str(caught.value)
    assert caught.value.known == ("pp", "cp", "tp", "embedding")


def agreed(plan):
    return flat(_agreed_on(plan))


def test_a_partial_set_that_differs_goes_by_its_name():
    one, other = (
        agreed(CreationPlan(MESH, ["tp"], {"embedding": [[0, 4]], "mine": groups})) for groups in ([[0, 1]], [[0, 3]])
    )
    assert {name for name in one if one[name] != other[name]} == {"partial.mine"}
    assert (one["partial.mine"], other["partial.mine"]) == ([[0, 1]], [[0, 3]])


def test_a_long_set_is_told_by_a_digest():
    line = Mesh(dp=4096)
    pairs = [[rank, rank + 1] for rank in range(4095)]
    one, other = (agreed(CreationPlan(line, ["dp"], {"pairs": [*pairs, [0, last]]})) for last in (2, 3))
    assert one["partial.pairs"].startswith("4096 groups, [0, 1] to [0, 2] (")
    assert len(one["partial.pairs"]) < 80
    middle = agreed(CreationPlan(line, ["dp"], {"pairs": [*pairs[:9], [7, 9], *pairs[9:], [0, 2]]}))
    assert len({found["partial.pairs"] for found in (one, other, middle)}) == 3


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_law_ranks_agree_exactly_where_they_create_the_same_under_the_same_names(data):
    """The layout is agreed on beside this."""
    groups = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=2, unique=True), max_size=2, unique_by=frozenset)
    sets = st.lists(st.tuples(st.sampled_from(["a", "b", "a.b"]), groups), max_size=3, unique_by=lambda one: one[0])
    axes = st.lists(st.sampled_from(["pp", "tp", "cp+tp"]), unique=True)
    one, other = (CreationPlan(MESH, data.draw(axes), data.draw(sets)) for _ in range(2))
    assert (agreed(one) == agreed(other)) == (one.fingerprint() == other.fingerprint())


def test_very_many_sets_are_agreed_on_together():
    plans = [CreationPlan(MESH, (), [[[0, 1 + number % last]] for number in range(3000)]) for last in (6, 7)]
    one, other = map(agreed, plans)
    assert len(one) == 2
    assert one["axes"] == other["axes"]
    assert one["partial_sets"] != other["partial_sets"]
