"""Batch plans: every position once, and what is legal when the sizes do not fit."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rankatlas.batches import BatchPlan
from rankatlas.errors import BatchError, InputError, RankError, SizeError, SizeTypeError
from refusals import refused

small = st.integers(1, 12)


@given(small, small, small, st.integers(0, 5))
def test_a_batch_holds_its_positions_once_in_order(micro, size, accumulation, step):
    plan = BatchPlan(micro * size * accumulation, micro, size, accumulation=accumulation)
    taken = [
        position
        for micro_step in range(plan.accumulation)
        for rank in range(size)
        for position in plan.positions(step, micro_step, rank)
    ]
    assert taken == list(range(step * plan.global_batch, (step + 1) * plan.global_batch))
    assert plan.micro_step == micro * size


@given(st.integers(1, 300), small, small)
def test_what_an_error_calls_legal_is_legal_and_complete(whole, micro, size):
    assume(whole % (micro * size))
    with pytest.raises(BatchError) as caught:
        BatchPlan(whole, micro, size)
    error = caught.value
    assert error.remainder == whole % (micro * size)
    fits = [other for other in range(1, whole + 1) if whole % (micro * other) == 0]
    assert error.legal_data_sizes == [n for n in fits if n <= size] + [n for n in fits if n > size][:1]
    fits = [other for other in range(1, whole + 1) if whole % (other * size) == 0]
    assert error.legal_micro_batches == [n for n in fits if n <= micro] + [n for n in fits if n > micro][:1]
    for near in error.legal_global_batches:
        assert abs(BatchPlan(near, micro, size).global_batch - whole) < micro * size


@given(st.integers(1, 600), small, small, small)
def test_what_is_offered_beside_an_accumulation_is_taken_as_it_is_offered(whole, micro, size, accumulation):
    assume(whole != micro * size * accumulation)
    with pytest.raises(BatchError) as caught:
        BatchPlan(whole, micro, size, accumulation=accumulation)
    error = caught.value
    (batch,) = error.legal_global_batches
    assert BatchPlan(batch, micro, size, accumulation=accumulation).global_batch == batch
    for other in error.legal_data_sizes:
        assert BatchPlan(whole, micro, other).data_size == other
    for other in error.legal_micro_batches:
        assert BatchPlan(whole, other, size).micro_batch == other
    kept, _, left_out = str(error).partition("\n")[2].partition("\n")
    offers = dict(part.removeprefix("the ").rsplit(" ", 1) for part in kept.partition(": ")[2].split("; "))
    assert str(batch) == offers.pop("global batch")
    for name, offer in offers.items():
        changed = {"micro batch": (whole, int(offer), size), "dp": (whole, micro, int(offer))}[name]
        assert BatchPlan(*changed, accumulation=accumulation).global_batch == whole
    assert ("micro batch" in offers) is (whole % (size * accumulation) == 0)
    assert ("dp" in offers) is (whole % (micro * accumulation) == 0)
    if left_out.startswith("the accumulation that fits is "):
        assert BatchPlan(whole, micro, size, accumulation=int(left_out.rpartition(" ")[2]))
    else:
        assert "accumulation left out" in left_out


def test_another_accumulation_than_the_one_that_follows():
    with refused(BatchError, "accumulation 4", "accumulation that fits is 2", product=32, remainder=0, accumulation=4):
        BatchPlan(16, 2, 4, accumulation=4)


def test_resized_keeps_both_batches_or_says_what_the_size_was():
    assert BatchPlan(24, 1, 2).resized(8) == BatchPlan(24, 1, 8)
    with refused(BatchError, "dp=16", "dp=2", "copied from checkpoint", remainder=8):
        BatchPlan(24, 1, 2).resized(16)


@pytest.mark.parametrize("bad", [0, -1, -(2**70)])
@pytest.mark.parametrize("place", range(3))
def test_sizes_below_one(bad, place):
    sizes = [8, 2, 2]
    sizes[place] = bad
    with refused(SizeError, str(bad)):
        BatchPlan(*sizes)


@pytest.mark.parametrize("bad", [True, 2.0, None, "2", [2], b"2", 2**200])
@pytest.mark.parametrize("place", range(3))
def test_sizes_that_are_no_integers(bad, place):
    sizes = [8, 2, 2]
    sizes[place] = bad
    with refused(SizeTypeError):
        BatchPlan(*sizes)


def test_huge_sizes_answer_at_once():
    plan = BatchPlan(2**62, 2**20, 2**21)
    assert plan.positions(2**30, 2**21 - 1, 2**21 - 1).stop == (2**30 + 1) * 2**62
    with refused(BatchError, remainder=2**61 - 1):
        BatchPlan(2**61 - 1, 2**59, 2**60)


def test_places_outside_the_plan():
    plan = BatchPlan(8, 2, 2)
    with refused(RankError, "2", "0 to 1"):
        plan.positions(0, 0, 2)
    for step, micro_step in ((-1, 0), (0, 2), (0, -1)):
        with refused(InputError):
            plan.positions(step, micro_step, 0)


def test_a_plan_is_a_value():
    plan = BatchPlan(8, 2, 2)
    assert eval(repr(plan)) == plan == BatchPlan(8, 2, 2, accumulation=2) != BatchPlan(8, 2, 4)
    assert hash(plan) == hash(BatchPlan(8, 2, 2))
    assert plan != 8
    assert "along='data'" in repr(BatchPlan(8, 2, 2, along="data"))
