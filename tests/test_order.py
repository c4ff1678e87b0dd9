"""The order of an epoch: frozen values, its definition in plain Python, bijection laws, and how random it looks."""

import pickle
from hashlib import shake_128
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankatlas.errors import InputError, IntegerError, SeedError
from rankatlas.sampling import order as module
from rankatlas.sampling.order import MOST_SAMPLES, Order
from refusals import refused

seeds = st.integers(0, 2**64 - 1)
epochs = st.integers(0, 1000)
# One table, its border, powers of two and their neighbours, and sizes no array could hold.
edges = st.sampled_from([1, 2, 3, 2**16, 2**16 + 1, 2**17, 2**17 + 1, 2**31, 2**32 + 1, 10**12, 2**62 - 1, 2**62])
sizes = st.one_of(edges, st.integers(1, 2**62))

# An order that changes needs another VERSION: jobs that were stopped go on in it.
FROZEN = {
    (10, 7, 0): [7, 5, 2, 0, 8, 4, 1, 3, 9, 6],
    (10, 7, 1): [9, 8, 4, 3, 2, 7, 0, 1, 6, 5],
    (65536, 0, 0): [39824, 44388, 20185, 45487, 63679, 19937, 27938, 17427, 47423, 55163],
    (65537, 0, 0): [2826, 4964, 48640, 14333, 52373, 50088, 43720, 41015, 12757, 21602],
    (10**9, 1234, 3): [
        715128468,
        22597278,
        721092778,
        768512507,
        463952037,
        336295533,
        554296441,
        346575118,
        653487872,
        165661415,
    ],
    (2**62, 2**64 - 1, 10**6): [
        2722056919550765155,
        1921806666685085745,
        3723824158333292348,
        31345214343650971,
        368615998821079639,
        4070677022806978839,
        3738882158841023071,
        3436908546686859519,
        2388352040769683179,
        2567508242393986523,
    ],
}


def defined(n, seed, epoch, position):
    """The definition, one index at a time, in Python's own integers."""

    def digest(size):
        return shake_128(f"rankatlas.order 1\n{seed} {epoch} {n}".encode()).digest(size)

    def mixed(word):
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
        return word ^ (word >> 31)

    if n <= 2**16:
        start = int.from_bytes(digest(8), "little")
        hashes = [mixed((start + (index + 1) * 0x9E3779B97F4A7C15) % 2**64) for index in range(n)]
        return sorted(range(n), key=hashes.__getitem__)[position]
    keys = [int.from_bytes(digest(32)[at : at + 4], "little") for at in range(0, 32, 4)]
    bits = (n - 1).bit_length()
    low = bits // 2
    while True:
        halves = [position >> low, position % 2**low]
        for place, key in enumerate(keys):
            hashed = (halves[1 - place % 2] ^ key) * 0x7FEB352D % 2**32
            hashed = (hashed ^ (hashed >> 15)) * 0x846CA68B % 2**32
            halves[place % 2] ^= hashed >> (32 - (bits - low, low)[place % 2])
        position = halves[0] << low | halves[1]
        if position < n:
            return position


@pytest.mark.parametrize("case", FROZEN, ids=str)
def test_orders_are_the_frozen_ones(case):
    n, seed, epoch = case
    order = Order(n, seed, epoch)
    assert order(np.arange(min(n, 10))).tolist() == FROZEN[case]


@given(
    st.one_of(st.integers(1, 300), edges.filter(lambda n: n > 2**16), st.integers(2**16 + 1, 2**62)),
    seeds,
    epochs,
    st.data(),
)
def test_orders_are_as_defined(n, seed, epoch, data):
    position = data.draw(st.integers(0, n - 1))
    assert Order(n, seed, epoch)(position) == defined(n, seed, epoch, position)


@given(sizes, seeds, epochs, st.data())
def test_an_order_goes_back_and_forth(n, seed, epoch, data):
    places = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20)))
    order = Order(n, seed, epoch)
    samples = order(places)
    assert samples.dtype == np.int64
    assert (samples >= 0).all()
    assert (samples < n).all()
    assert (order.position(samples) == places).all()
    assert (order(order.position(places)) == places).all()


@pytest.mark.parametrize("n", [1, 2, 3, 97, 2**16 - 1, 2**16, 2**16 + 1, 100_003, 2**17, 2**17 + 1])
def test_an_order_is_a_bijection_of_all_it_orders(n):
    for seed in range(3):
        order = Order(n, seed)
        samples = order(np.arange(n))
        assert (np.bincount(samples, minlength=n) == 1).all()
        assert len(samples) == n
        assert (order.position(samples) == np.arange(n)).all()


@given(st.integers(2**16 + 1, 2**20), seeds, st.integers(1, 200_000), st.integers(1, 70_000))
def test_blocks_and_shapes_change_nothing(n, seed, first, count):
    order = Order(n, seed)
    places = np.arange(first, first + count) % n
    samples = order(places)
    assert samples[::997].tolist() == [order(int(place)) for place in places[::997]]
    even = places[: len(places) // 2 * 2].reshape(2, -1)
    assert (order(even) == samples[: even.size].reshape(2, -1)).all()
    assert (order(places.astype(np.uint32)[::-1]) == samples[::-1]).all()
    assert order(places[:0]).shape == (0,)
    assert order(np.array(places[0])).shape == ()


def test_what_is_given_is_left_as_it_is():
    places = np.arange(100_000, dtype=np.uint64)
    Order(100_000)(places)
    assert (places == np.arange(100_000)).all()


def surprise(observed, expected):
    """Standard deviations by which a chi-square lies from what chance gives."""
    freedom = observed.size - 1
    return ((((observed - expected) ** 2) / expected).sum() - freedom) / sqrt(2 * freedom)


def shuffled_by_numpy(n, seed):
    return np.random.default_rng(seed).permutation(n)


def shuffled(n, seed):
    return Order(n, seed)(np.arange(n))


@pytest.fixture(params=["table", "network"])
def _construction(request, monkeypatch):
    """Small orders by either construction: the network is worst where its halves are narrowest."""
    if request.param == "network":
        monkeypatch.setattr(module, "_TABLE", 0)


@pytest.mark.usefixtures("_construction")
@pytest.mark.parametrize("n", [50, 257, 1000])
def test_positions_and_adjacent_pairs_look_as_in_numpys_shuffle(n):
    trials = 600_000 // n
    for make in (shuffled, shuffled_by_numpy):
        orders = np.stack([make(n, seed) for seed in range(trials)])
        # Where a sample stands: position × a tenth of the samples.
        tenth = orders * 10 // n
        share = np.bincount(np.arange(n) * 10 // n) / n
        at = np.stack([(tenth == which).sum(0) for which in range(10)], axis=1)
        assert surprise(at, np.outer(np.ones(n), share * trials)) < 5, make
        # What follows a sample, and what stands half the network's width behind it.
        for apart in (1, 1 << (n - 1).bit_length() // 2):
            steps = (orders[:, apart:] - orders[:, :-apart]) % n
            counts = np.bincount(steps.ravel(), minlength=n)[1:]
            assert abs(surprise(counts, steps.size / (n - 1))) < 5, (make, apart)
        # Which tenths stand next to each other.
        pairs = np.bincount((tenth[:, :-1] * 10 + tenth[:, 1:]).ravel(), minlength=100)
        sizes_ = np.bincount(np.arange(n) * 10 // n)
        expected = np.outer(sizes_, sizes_) - np.diag(sizes_)
        assert abs(surprise(pairs, expected.ravel() / (n * (n - 1)) * trials * (n - 1))) < 5, make


@pytest.mark.parametrize("n", [2**24 + 1, 10**9, 2**33 + 1, 10**12])  # of many of which we look at few
def test_large_orders_look_random(n):
    count = 1 << 18
    samples = Order(n, seed=5)(np.arange(count)).astype(float) / n
    grid = np.bincount((samples * 4096).astype(int), minlength=4096)
    assert abs(surprise(grid, count / 4096)) < 5
    pairs = (samples[:-1] * 64).astype(int) * 64 + (samples[1:] * 64).astype(int)
    assert abs(surprise(np.bincount(pairs, minlength=4096), (count - 1) / 4096)) < 5
    assert abs(np.corrcoef(samples[:-1], samples[1:])[0, 1]) < 5 / sqrt(count)


def test_other_seeds_and_epochs_are_other_orders():
    n, count = 10**6, 1 << 16
    first = Order(n, 1, 0)(np.arange(count)).astype(float)
    for other in (Order(n, 1, 1), Order(n, 2, 0), Order(n, 1 << 63, 0)):
        samples = other(np.arange(count)).astype(float)
        assert abs(np.corrcoef(first, samples)[0, 1]) < 5 / sqrt(count)
        assert (samples == first).sum() < 10
    assert Order(n + 1, 1, 0)(0) != Order(n, 1, 0)(0)


def test_without_shuffling_the_order_is_that_of_the_data():
    order = Order(2**62, shuffle=False)
    assert (order(2**61 + 1), order.position(5)) == (2**61 + 1, 5)


@pytest.mark.parametrize("bad", [0, -1, 2**62 + 1, 2**100])
def test_numbers_of_samples_that_cannot_be(bad):
    with refused(InputError, "1 to 2**62"):
        Order(bad)


@pytest.mark.parametrize("bad", [True, 2.5, None, "3", 2**200])
def test_things_that_are_no_integers(bad):
    for make in (lambda: Order(bad), lambda: Order(8, bad), lambda: Order(8, 1, bad), lambda: Order(8)(bad)):
        with refused(IntegerError):
            make()


def test_places_seeds_and_epochs_outside():
    order = Order(10**6)
    for place in (-1, 10**6, np.array([0, 10**6]), np.array([-1]), np.array([2**64 - 1], dtype=np.uint64)):
        for ask in (order, order.position):
            with refused(InputError, "0 to 999999"):
                ask(place)
    for wrong in (np.array([1.0]), np.array([True]), np.array(["1"]), np.array([None])):
        with refused(IntegerError):
            order(wrong)
    for seed in (-1, 2**64):
        with refused(SeedError, str(seed)):
            Order(8, seed)
    with refused(InputError, "-1"):
        Order(8, 0, -1)


def test_an_order_is_a_value():
    order = Order(10**6, seed=3, epoch=2)
    again = pickle.loads(pickle.dumps(order))
    assert eval(repr(order)) == again == order != Order(10**6, 3, 2, shuffle=False)
    assert (hash(again), again(17), again.n, again.seed, again.epoch) == (hash(order), order(17), 10**6, 3, 2)
    assert MOST_SAMPLES == 2**62
