"""Context-parallel slices against their definition, position by position."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rankatlas.errors import RankError, SequenceError, SizeError, SizeTypeError
from rankatlas.sequence import SPLITS, label_slices, sequence_slice, sequence_slices
from refusals import refused

splits = st.sampled_from(SPLITS)


def positions(parts):
    return [position for part in parts for position in part]


@given(st.integers(1, 16), st.integers(1, 9), splits)
def test_every_position_once_and_equally_many_each(piece, cp, split):
    length = piece * (2 * cp if split == "balanced" and cp > 1 else cp)
    slices = sequence_slices(length, cp, split)
    held = [positions(parts) for parts in slices]
    assert sorted(position for each in held for position in each) == list(range(length))
    assert [len(each) for each in held] == [length // cp] * cp
    assert slices == tuple(sequence_slice(length, cp, rank, split) for rank in range(cp))
    if split == "balanced":  # the work of a causal mask: position p looks at p + 1 tokens
        assert len({sum(each) for each in held}) == 1


@given(st.integers(1, 16), st.integers(1, 9), splits)
def test_labels_are_the_next_tokens_across_every_border(piece, cp, split):
    length = piece * 2 * cp
    followed = [f"token {position}" for position in range(length)] + ["none"]
    for held, labelled in zip(sequence_slices(length, cp, split), label_slices(length, cp, split)):
        labels = [followed[position] for position in positions(labelled)]
        assert labels == [followed[position + 1] for position in positions(held)]


@given(st.integers(1, 200), st.integers(1, 40), splits)
def test_what_an_error_calls_legal_is_legal(length, cp, split):
    pieces = 2 * cp if split == "balanced" and cp > 1 else cp
    assume(length % pieces)
    with pytest.raises(SequenceError) as caught:
        sequence_slices(length, cp, split)
    error = caught.value
    assert error.remainder == length % pieces
    for near in error.nearest_lengths:
        assert len(sequence_slices(near, cp, split)) == cp
    for legal in error.legal_cp:
        assert len(sequence_slices(length, legal, split)) == legal
    nearest = [n for n in range(1, length + 1) if n == 1 or length % (2 * n if split == "balanced" else n) == 0]
    below = [n for n in nearest if n < cp]
    assert error.legal_cp == below[-8:] + [n for n in nearest if n > cp][:1]


def test_the_mirrored_pieces_of_the_last_rank_touch():
    assert sequence_slices(12, 3, "balanced")[2] == (range(4, 6), range(6, 8))
    assert sequence_slices(7, 1, "balanced") == ((range(7),),)


@pytest.mark.parametrize("bad", [True, 2.0, None, "8", 2**200])
def test_no_integers(bad):
    with refused(SizeTypeError):
        sequence_slices(bad, 2)
    with refused(SizeTypeError):
        sequence_slices(8, bad)


@pytest.mark.parametrize("bad", [0, -8])
def test_sizes_below_one(bad):
    with refused(SizeError):
        sequence_slices(bad, 2)
    with refused(SizeError):
        sequence_slices(8, bad)


@pytest.mark.parametrize("bad", ["zigzag", "", None, 1, ["balanced"]])
def test_a_split_of_another_name(bad):
    with refused(SequenceError, "contiguous or balanced"):
        sequence_slices(8, 2, bad)


def test_a_rank_outside():
    for rank in (-1, 2):
        with refused(RankError, str(rank), world_size=2):
            sequence_slice(8, 2, rank)


def test_huge_sequences():
    assert sequence_slice(2**60, 2**40, 2**40 - 1)[0].stop == 2**60
    with refused(SequenceError, "sequence_slice"):
        sequence_slices(2**60, 2**40)
    with refused(SequenceError, remainder=1):
        sequence_slices(2**61 + 1, 2**20)
