"""The proof of an epoch: it passes what is right, and it can fail."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankatlas import Mesh
from rankatlas.errors import DataCoverageError, InputError
from rankatlas.sampling import DataShard, Order, ShardedSampler
from rankatlas.sampling import proof as module
from rankatlas.sampling.proof import proven
from refusals import refused


def samplers(n, size, micro=1, accumulation=1, **named):
    shard, batch = DataShard(Mesh(dp=size)), size * micro * accumulation
    return [ShardedSampler(n, shard, rank, global_batch=batch, micro_batch=micro, **named) for rank in range(size)]


@settings(max_examples=30)
@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.sampled_from(["drop", "pad"]), st.data())
def test_epochs_are_proven_to_their_end(size, micro, accumulation, tail, data):
    batch = size * micro * accumulation
    n = data.draw(st.integers(batch if tail == "drop" else 1, 7 * batch))
    made = samplers(n, size, micro, accumulation, tail=tail)
    assert list(proven(made))[-1] == made[0].micro_batches * size * micro


def test_pieces_are_bounded_and_add_up(monkeypatch):
    monkeypatch.setattr(module, "_PIECE", 1000)
    reached = list(proven(samplers(100_003, 3, 2)))
    assert reached[-1] == 100_002
    assert {after - before for before, after in zip([0, *reached], reached)} == {996, 100_002 % 996}


def test_positions_that_nobody_or_two_take_are_found():
    made = samplers(96, 2, 2)
    for some in (made[:1], [*made, made[1]]):
        with refused(DataCoverageError, "is not read exactly once"):
            list(proven(some))


@pytest.mark.parametrize("wrong", ["twice", "shifted back"])
def test_orders_that_are_no_bijections_are_found(monkeypatch, wrong):
    right = Order._walked

    def walked(self, places, inverse):
        found = right(self, places, inverse)
        if wrong == "twice" and not inverse:
            found[found == 5] = 6
        if wrong == "shifted back" and inverse:
            found[:1] ^= np.uint64(1)
        return found

    monkeypatch.setattr(Order, "_walked", walked)
    with refused(DataCoverageError, "defect", kinds=("defect",)):
        list(proven(samplers(96, 2, 2)))


def test_a_micro_step_that_cannot_be_held():
    with refused(InputError, str(1 << 26)):
        next(proven(samplers(2**40, 2, 2**30)))
