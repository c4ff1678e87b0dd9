"""Layers over pipeline stages: each exactly once, under every policy, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankatlas.errors import IntegerError, PipelineSplitError, SizeError, SizeTypeError
from rankatlas.pipeline import POLICIES, PipelineSplit, pipeline_split, shared_out
from refusals import refused

sizes = st.integers(1, 12)


def outcome(*asked):
    """The split and None, or None and why not."""
    try:
        return pipeline_split(*asked), None
    except PipelineSplitError as error:
        return None, error


def held_once(split):
    """Every layer stands in exactly one chunk, and chunks follow each other in the order of the model."""
    chunks = [split.chunks(stage) for stage in range(split.stages)]
    in_model_order = [chunks[stage][chunk] for chunk in range(split.virtual) for stage in range(split.stages)]
    assert [layer for chunk in in_model_order for layer in chunk] == list(range(split.layers))
    assert [chunk.start for chunk in in_model_order] == split.offsets
    assert [sum(map(len, mine)) for mine in chunks] == split.sizes
    for stage, mine in enumerate(chunks):
        for place, chunk in enumerate(mine):
            assert {split.place(layer) for layer in chunk} <= {(stage, place)}


@given(st.integers(1, 200), sizes, sizes, st.sampled_from(list(POLICIES)))
def test_every_policy_holds_every_layer_once_or_refuses(layers, stages, virtual, policy):
    split, error = outcome(layers, stages, virtual, policy)
    if split is None:
        if error.offered_chunks is not None:
            again = pipeline_split(layers, stages, virtual, explicit=error.offered_chunks)
            held_once(again)
            assert again.layers == layers
            assert error.offered_split == again.sizes
        assert error.dropped_by_floor == layers % (stages * virtual)
        return
    held_once(split)
    assert (split.layers, split.stages, split.virtual) == (layers, stages, virtual)
    chunks = split.chunk_sizes
    counted = [*chunks]
    counted[0] += policy in ("embedding", "embedding-and-loss")
    counted[-1] += policy in ("loss", "embedding-and-loss")
    assert max(counted) - min(counted) <= policy.startswith("remainder")
    if policy == "remainder-first":
        assert chunks == sorted(chunks, reverse=True)
    if policy == "remainder-last":
        assert chunks == sorted(chunks)


@given(st.integers(1, 200), sizes, sizes)
def test_even_is_refused_exactly_when_it_does_not_divide(layers, stages, virtual):
    fits = layers % (stages * virtual) == 0
    split, error = outcome(layers, stages, virtual)
    assert (split is not None) == fits
    assert fits or str(layers) in str(error)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), sizes)
def test_explicit_sizes_are_taken_as_they_are_when_they_add_up(given_sizes, layers):
    total = sum(given_sizes)
    if total == layers:
        split = pipeline_split(layers, len(given_sizes), explicit=given_sizes)
        held_once(split)
        assert split.sizes == given_sizes
        assert split.offsets == [sum(given_sizes[:stage]) for stage in range(len(given_sizes))]
    else:
        with refused(PipelineSplitError, str(total), str(layers), str(abs(total - layers))):
            pipeline_split(layers, len(given_sizes), explicit=given_sizes)


@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 3), st.integers(1, 20), st.integers(1, 20))
def test_ends_of_their_own(layers, stages, virtual, first, last):
    for ends in ({"first": first}, {"last": last}, {"first": first, "last": last}):
        inner, rest = stages - len(ends), layers - sum(ends.values())
        try:
            split = pipeline_split(layers, stages, virtual, **ends)
        except PipelineSplitError:
            whole = [first] * ("first" in ends) + [last] * ("last" in ends)
            shares = rest >= 0 and ((inner > 0 and rest % inner == 0) or (inner == 0 and rest == 0))
            assert not shares or any(size % virtual for size in (*whole, rest // inner if inner else 0))
            continue
        held_once(split)
        assert split.layers == layers
        assert split.sizes[0] == ends.get("first", split.sizes[0])
        assert split.sizes[-1] == ends.get("last", split.sizes[-1])
        assert len(set(split.sizes["first" in ends : stages - ("last" in ends)])) <= 1


def test_one_size_per_chunk_or_one_per_stage():
    by_chunk = pipeline_split(9, 2, 2, explicit=[3, 2, 2, 2])
    assert [by_chunk.chunks(stage) for stage in range(2)] == [[range(3), range(5, 7)], [range(3, 5), range(7, 9)]]
    assert pipeline_split(8, 2, 2, explicit=[4, 4]) == pipeline_split(8, 2, 2)
    with refused(PipelineSplitError, "stage 0 has 5 layers", "2 chunks"):
        pipeline_split(9, 2, 2, explicit=[5, 4])
    with refused(PipelineSplitError, "3 sizes", "2 stages need 2", "or 4 of them"):
        pipeline_split(9, 2, 2, explicit=[3, 3, 3])


def test_an_odd_stage_is_no_multiple_of_its_number():
    split = pipeline_split(31, 4, explicit=[8, 8, 8, 7])
    assert split.offsets == [0, 8, 16, 24]
    assert pipeline_split(31, 4, explicit=[7, 8, 8, 8]).offsets == [0, 7, 15, 23]


def test_the_embedding_and_the_loss_count_as_layers():
    assert pipeline_split(126, 16, policy="embedding-and-loss").sizes == [7, *[8] * 14, 7]
    assert pipeline_split(31, 4, policy="embedding").sizes == [7, 8, 8, 8]
    assert pipeline_split(31, 4, policy="loss").sizes == [8, 8, 8, 7]
    with refused(PipelineSplitError, "32 layers, with loss counted 33", layers=32, dropped_by_floor=0):
        pipeline_split(32, 4, policy="loss")


@pytest.mark.parametrize("value", [True, 2.0, None, "4", float("nan"), b"4", [4]])
def test_what_is_no_integer_is_refused(value):
    for ask in (
        lambda: pipeline_split(value, 4),
        lambda: pipeline_split(8, value),
        lambda: pipeline_split(8, 4, value),
    ):
        with pytest.raises(SizeTypeError):
            ask()
    if value is not None:
        with pytest.raises(IntegerError):
            pipeline_split(8, 2, explicit=[value, 4])
        with pytest.raises(SizeTypeError):
            pipeline_split(8, 2, first=value)


@pytest.mark.parametrize("number", [0, -1, 2**40, 10**30])
def test_what_is_out_of_range_is_refused(number):
    with pytest.raises((SizeError, PipelineSplitError)):
        pipeline_split(number, 4)
    with pytest.raises((SizeError, PipelineSplitError)):
        pipeline_split(8, number)
    with pytest.raises((SizeError, PipelineSplitError)):
        pipeline_split(8, 4, number)
    with pytest.raises(SizeError):
        PipelineSplit(2, 1, [4, 4]).place(number if number else 8)


def test_other_refusals():
    with refused(PipelineSplitError, "no policy 'fair'", "remainder-first"):
        pipeline_split(8, 2, policy="fair")
    with refused(PipelineSplitError, "exclude each other"):
        pipeline_split(8, 2, explicit=[4, 4], first=4)
    with refused(PipelineSplitError, "negative"):
        pipeline_split(8, 2, explicit=[9, -1])
    with refused(PipelineSplitError, "fewer than 4 stages", offered_split=None):
        pipeline_split(3, 4)


@given(st.integers(0, 500), st.integers(1, 50))
def test_shared_out_is_as_even_as_whole_numbers_allow(layers, pieces):
    shared = shared_out(layers, pieces)
    assert (sum(shared), len(shared)) == (layers, pieces)
    assert max(shared) - min(shared) <= 1
    assert shared == sorted(shared, reverse=True)
    assert shared_out(layers, pieces, last=True) == shared[::-1]
