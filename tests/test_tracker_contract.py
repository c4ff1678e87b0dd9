"""The contract of a tracker, run on every backend there is: streams go on where they were, and so does the outside."""

import json
import random
from copy import deepcopy
from importlib.util import find_spec

import numpy
import pytest

from rankatlas.adapters.numpy import GeneratorState
from rankatlas.errors import InputError, IntegerError, RandomStateError, SeedError
from rankatlas.seeding import RngStateTracker
from rankatlas.seeding.backends import KeepsRandomState, adapter
from refusals import refused


class Backend:
    """Keepers of state and a way to draw from all of them at once."""

    def __init__(self, keepers, *draws, stores=True):
        self.keepers, self._draws, self.stores = keepers, draws, stores

    def draw(self):
        return [draw() for draw in self._draws]

    def drawn_after(self, seed, count):
        """What each backend draws after its own way of seeding; the state is as before."""
        kept = [keeper.get_state() for keeper in self.keepers]
        for keeper in self.keepers:
            keeper.seed(seed)
        drawn = [self.draw() for _ in range(count)]
        for keeper, state in zip(self.keepers, kept):
            keeper.set_state(state)
        return drawn


def python():
    # The normal distribution keeps its second value for the next call: that is state as well.
    return Backend([adapter("python").RandomState()], random.random, lambda: random.gauss(0, 1))


def numpy_legacy():
    return Backend([adapter("numpy").RandomState()], numpy.random.random, lambda: numpy.random.normal())


def numpy_generator(bits):
    keeper = GeneratorState(numpy.random.Generator(bits(99)))
    # 32-bit integers are halves of words, and a half is kept for the next call.
    return Backend([keeper], keeper.generator.normal, lambda: int(keeper.generator.integers(2**31, dtype=numpy.int32)))


def torch():
    module = pytest.importorskip("torch")
    return Backend([adapter("torch").RandomState()], lambda: module.rand(()).item(), lambda: module.randn(()).item())


def paddle():
    module = pytest.importorskip("paddle")
    keepers = [adapter("paddle").RandomState()]
    return Backend(keepers, lambda: module.rand([1]).item(), lambda: module.randn([1]).item(), stores=False)


def jax():
    module = pytest.importorskip("jax")
    keeper = adapter("jax").RandomState()
    return Backend([keeper], lambda: float(module.random.uniform(keeper.next_key())))


def several():
    parts = [python(), numpy_legacy(), torch()]
    return Backend([keeper for part in parts for keeper in part.keepers], *(part.draw for part in parts))


BACKENDS = {
    "python": python,
    "numpy": numpy_legacy,
    **{
        f"Generator({name})": lambda name=name: numpy_generator(getattr(numpy.random, name))
        for name in ("PCG64", "PCG64DXSM", "Philox", "SFC64", "MT19937")
    },
    "torch": torch,
    "paddle": paddle,
    "jax": jax,
    **({"python+numpy+torch": several} if find_spec("torch") else {}),
}


HERE = [name for name in BACKENDS if name not in ("torch", "paddle", "jax") or find_spec(name)]


@pytest.fixture(params=HERE)
def backend(request):
    found = BACKENDS[request.param]()
    kept = [keeper.get_state() for keeper in found.keepers]
    for keeper in found.keepers:
        keeper.seed(7)
    yield found
    for keeper, state in zip(found.keepers, kept):
        keeper.set_state(state)


@pytest.fixture
def tracker(backend):
    made = RngStateTracker(backend.keepers)
    made.add("a", 50)
    made.add("b", 60)
    return made


@pytest.fixture
def a(backend):
    """What stream a draws, one after another."""
    return backend.drawn_after(50, 8)


@pytest.fixture
def b(backend):
    return backend.drawn_after(60, 8)


@pytest.fixture
def outside(backend):
    """What is drawn outside, as if there were no tracker."""
    return backend.drawn_after(7, 8)


stores = pytest.mark.parametrize("backend", [name for name in HERE if name != "paddle"], indirect=True)


def drawn(backend, count=1):
    return [backend.draw() for _ in range(count)]


def everything(tracker):
    """All that a tracker holds, to see that nothing changed; states are compared by what they draw."""
    found = {}
    kept = [keeper.get_state() for keeper in tracker.keepers]
    for name, states in tracker.get_states_tracker().items():
        packed = []
        for keeper, state in zip(tracker.keepers, states):
            packed.append(keeper.pack(state) if keeper.name != "paddle" else str(state))
        found[name] = packed
    for keeper, state in zip(tracker.keepers, kept):
        keeper.set_state(state)
    return found, sorted(tracker.seeds_), repr(tracker)


def test_every_keeper_keeps_the_protocol(backend):
    wanted = [name for name in vars(KeepsRandomState) if not name.startswith("_")]
    assert wanted == ["seed", "get_state", "set_state", "pack", "unpack"]
    for keeper in backend.keepers:
        assert isinstance(keeper.name, str)
        assert all(callable(getattr(keeper, name)) for name in wanted)


def test_the_backends_seed_differently(a, b, outside):
    assert a != b != outside != a


def test_a_stream_starts_with_its_seed(backend, tracker, a, b):
    with tracker.rng_state("a"):
        assert drawn(backend, 3) == a[:3]
    with tracker.rng_state("b"):
        assert drawn(backend, 3) == b[:3]


def test_a_stream_goes_on_where_it_was(backend, tracker, a, b):
    for place in range(4):
        with tracker.rng_state("a"):
            assert drawn(backend) == [a[place]]
        with tracker.rng_state("b"):
            assert drawn(backend) == [b[place]]


def test_outside_draws_go_on_as_if_nothing_had_happened(backend, outside):
    seen = drawn(backend)
    tracker = RngStateTracker(backend.keepers)
    tracker.add("a", 50)
    seen += drawn(backend)
    with tracker.rng_state("a"):
        drawn(backend, 3)
        tracker.add("b", 60)
    seen += drawn(backend)
    with tracker.rng_state("b"), tracker.rng_state("a"):
        drawn(backend)
        tracker.get_states_tracker()
    tracker.set_states_tracker(tracker.states_)
    seen += drawn(backend)
    tracker.restart({"a": 51})
    with tracker.rng_state("a"):
        drawn(backend)
    tracker.reset()
    seen += drawn(backend, 4)
    assert seen == outside


def test_the_same_name_inside_itself_continues_its_stream(backend, tracker, a, outside):
    with tracker.rng_state("a"):
        seen = drawn(backend)
        with tracker.rng_state("a"):
            seen += drawn(backend)
            with tracker.rng_state("a"):
                seen += drawn(backend)
            seen += drawn(backend)
        seen += drawn(backend)
    with tracker.rng_state("a"):
        seen += drawn(backend)
    assert seen == a[:6]
    assert drawn(backend) == outside[:1]


def test_a_inside_b_inside_a_continues_a(backend, tracker, a, b, outside):
    with tracker.rng_state("a"):
        assert drawn(backend) == a[:1]
        with tracker.rng_state("b"):
            assert drawn(backend) == b[:1]
            with tracker.rng_state("a"):
                assert drawn(backend) == a[1:2]
            assert drawn(backend) == b[1:2]
        assert drawn(backend) == a[2:3]
    assert drawn(backend) == outside[:1]


def test_an_exception_leaves_the_stream(backend, tracker, a, b, outside):
    def fails():
        with tracker.rng_state("a"):
            drawn(backend)
            with tracker.rng_state("b"):
                drawn(backend)
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert drawn(backend) == outside[:1]
    with tracker.rng_state("a"):
        assert drawn(backend) == a[1:2]
        with pytest.raises(KeyboardInterrupt), tracker.rng_state("b"):
            raise KeyboardInterrupt
        assert drawn(backend) == a[2:3]
    with tracker.rng_state("b"):
        assert drawn(backend) == b[1:2]


def test_a_stream_can_decorate_a_function(backend, tracker, a, outside):
    @tracker.rng_state("a")
    def layer():
        return drawn(backend)

    assert layer() + layer() == a[:2]
    assert drawn(backend) == outside[:1]


def test_a_failed_add_changes_nothing_and_says_what_is_in_the_way(backend, tracker, a, outside):
    before = everything(tracker)
    with refused(SeedError, "'a'", "50", name="a", seed=51, earlier_name="a", earlier_seed=50):
        tracker.add("a", 51)
    with refused(SeedError, "'b'", "60", name="c", seed=60, earlier_name="b", earlier_seed=60):
        tracker.add("c", 60)
    with refused(SeedError, earlier_name="a", earlier_seed=50):
        tracker.add("a", 50)
    for bad in (-1, 2**64):
        with refused(SeedError, "2**64", seed=bad):
            tracker.add("c", bad)
    for bad in (1.5, True, "1", None):
        with refused(IntegerError, "seed"):
            tracker.add("c", bad)
    for bad in ("", None, 3):
        with refused(SeedError, "named by text"):
            tracker.add(bad, 70)
    with tracker.rng_state("a"):
        with refused(SeedError, earlier_name="a"):
            tracker.add("a", 51)
        assert drawn(backend) == a[:1]
    assert drawn(backend) == outside[:1]
    tracker.set_states_tracker({})
    assert before[1:] == everything(tracker)[1:]
    tracker.add("c", 51)  # the seed of the failed add was not used up


@stores
def test_a_failed_add_leaves_the_very_states(backend, tracker):
    before = everything(tracker)
    for name, seed in (("a", 51), ("c", 60)):
        with pytest.raises(SeedError):
            tracker.add(name, seed)
    assert everything(tracker) == before


def test_add_inside_a_context(backend, tracker, a, outside):
    with tracker.rng_state("a"):
        seen = drawn(backend)
        tracker.add("c", 70)
        seen += drawn(backend)
        with tracker.rng_state("c"):
            assert drawn(backend, 2) == backend.drawn_after(70, 2)
        seen += drawn(backend)
    assert seen == a[:3]
    assert drawn(backend) == outside[:1]


def test_an_unknown_stream_is_refused_and_nothing_entered(backend, tracker, outside):
    with refused(SeedError, "'model_parallel_rng'", "a, b", name="model_parallel_rng"), tracker.rng_state():
        pytest.fail("entered")
    with refused(SeedError, "'model-parallel-rng'", name="model-parallel-rng"), tracker.fork():
        pytest.fail("entered")
    with refused(SeedError, "none yet"), RngStateTracker(backend.keepers).rng_state("a"):
        pytest.fail("entered")
    assert drawn(backend) == outside[:1]


def test_the_default_names_are_those_of_paddle_and_megatron(backend):
    tracker = RngStateTracker(backend.keepers)
    tracker.add("model_parallel_rng", 1)
    tracker.add("model-parallel-rng", 2)
    with tracker.rng_state():
        assert drawn(backend) == backend.drawn_after(1, 1)
    with tracker.fork():
        assert drawn(backend) == backend.drawn_after(2, 1)
    with tracker.fork("model_parallel_rng"):
        assert drawn(backend) == backend.drawn_after(1, 2)[1:]


def test_reset_forgets_every_stream(backend, tracker, a, outside):
    with tracker.rng_state("a"):
        drawn(backend)
    tracker.reset()
    assert (tracker.states_, tracker.seeds_, repr(tracker)) == ({}, set(), "RngStateTracker()")
    with refused(SeedError, "none yet"), tracker.rng_state("a"):
        pass
    tracker.add("b", 50)
    with tracker.rng_state("b"):
        assert drawn(backend) == a[:1]
    assert drawn(backend) == outside[:1]


def test_reset_inside_a_context(backend, tracker, a, outside):
    with tracker.rng_state("a"):
        assert drawn(backend) == a[:1]
        tracker.reset()
        assert drawn(backend) == a[1:2]
        tracker.add("a", 60)
        assert drawn(backend) == backend.drawn_after(60, 1)
    assert drawn(backend) == outside[:1]
    with tracker.rng_state("a"):
        assert drawn(backend) == backend.drawn_after(60, 2)[1:]
    assert drawn(backend) == outside[1:2]


def test_reset_inside_two_contexts(backend, tracker, b, outside):
    with tracker.rng_state("a"):
        drawn(backend)
        with tracker.rng_state("b"):
            assert drawn(backend) == b[:1]
            tracker.reset()
        assert drawn(backend) == b[1:2]  # there is no stream to go back to: draws go on from where they are
    assert drawn(backend) == outside[:1]
    assert tracker.states_ == {}


def test_states_can_be_taken_and_set(backend, tracker, a, b, outside):
    with tracker.rng_state("a"):
        drawn(backend, 2)
    taken = tracker.get_states_tracker()
    assert list(taken) == ["a", "b"]
    for _ in range(2):
        with tracker.rng_state("a"):
            assert drawn(backend, 2) == a[2:4]
        with tracker.rng_state("b"):
            assert drawn(backend, 2) == b[:2]
        tracker.set_states_tracker(taken)
    with tracker.rng_state("a"):
        drawn(backend)
        tracker.set_states({"b": tracker.get_states()["b"]})  # one of them
        assert drawn(backend) == a[3:4]
    assert drawn(backend) == outside[:1]


def test_states_taken_inside_a_context_hold_what_was_drawn_so_far(backend, tracker, a, outside):
    with tracker.rng_state("a"):
        drawn(backend, 2)
        taken = tracker.get_states_tracker()
        assert drawn(backend) == a[2:3]
        tracker.set_states_tracker(taken)
        assert drawn(backend) == a[2:3]
    with tracker.rng_state("a"):
        assert drawn(backend) == a[3:4]
    assert drawn(backend) == outside[:1]


def test_states_of_an_unknown_stream_are_refused_and_nothing_is_set(backend, tracker, a):
    taken = tracker.get_states_tracker()
    with tracker.rng_state("a"):
        drawn(backend)
    with refused(SeedError, "'z'", "a, b", name="z"):
        tracker.set_states_tracker({"a": taken["a"], "z": taken["a"]})
    with tracker.rng_state("a"):
        assert drawn(backend) == a[1:2]


def test_states_that_do_not_fit_are_refused_when_they_are_set(backend, tracker, a, outside):
    (state,) = {"a": tracker.states_["a"]}.values()
    for bad in ((), (*state, state[0]), None, 7, tuple(object() for _ in state)):
        with refused(SeedError):
            tracker.set_states_tracker({"b": state, "a": bad})
    with tracker.rng_state("a"):
        assert drawn(backend) == a[:1]
    assert drawn(backend) == outside[:1]


def test_what_is_handed_out_is_a_copy(backend, tracker, a):
    tracker.states_.clear()
    tracker.seeds_.clear()
    tracker.get_states_tracker().pop("a")
    assert (set(tracker.states_), tracker.seeds_) == ({"a", "b"}, {50, 60})
    assert all(len(states) == len(backend.keepers) for states in tracker.states_.values())
    with tracker.rng_state("a"):
        assert drawn(backend) == a[:1]


def test_restart_starts_streams_anew_and_touches_no_other(backend, tracker, a, b, outside):
    for name in ("a", "b"):
        with tracker.rng_state(name):
            drawn(backend, 2)
    tracker.restart({"a": 50, "c": 70})
    with tracker.rng_state("a"):
        assert drawn(backend) == a[:1]
    with tracker.rng_state("b"):
        assert drawn(backend) == b[2:3]
    with tracker.rng_state("c"):
        assert drawn(backend) == backend.drawn_after(70, 1)
    tracker.restart({"a": 70, "c": 50})  # each takes the seed of the other
    with tracker.rng_state("c"):
        assert drawn(backend) == a[:1]
        tracker.restart({"c": 80})
        assert drawn(backend) == backend.drawn_after(80, 1)
    assert tracker.seeds_ == {70, 60, 80}
    assert drawn(backend) == outside[:1]


def test_a_failed_restart_changes_nothing(backend, tracker, a, outside):
    with tracker.rng_state("a"):
        drawn(backend)
    for seeds in ({"a": 51, "c": 60}, {"a": 52, "c": 52}, {"c": 1, "a": -1}, {"a": 51, "": 3}):
        with pytest.raises(SeedError):
            tracker.restart(seeds)
        assert tracker.seeds_ == {50, 60}
    with tracker.rng_state("a"):
        assert drawn(backend) == a[1:2]
    assert drawn(backend) == outside[:1]


def test_names_of_the_tracker(backend, tracker):
    assert tracker.backends == tuple(keeper.name for keeper in backend.keepers)
    assert tracker.keepers == tuple(backend.keepers)
    assert repr(tracker) == "RngStateTracker(a=50, b=60)"


@pytest.mark.parametrize("seed", [0, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
def test_seeds_of_64_bits(backend, seed):
    tracker = RngStateTracker(backend.keepers)
    tracker.add("x", seed)
    with tracker.rng_state("x"):
        assert drawn(backend, 2) == backend.drawn_after(seed, 2)
    assert tracker.seeds_ == {seed}


# Plain data


@stores
def test_states_go_through_json_and_come_back(backend, tracker, a, b, outside):
    with tracker.rng_state("a"):
        drawn(backend, 3)
    data = json.loads(json.dumps(tracker.state_dict()))
    with tracker.rng_state("a"):
        drawn(backend)
    other = RngStateTracker(backend.keepers)
    other.add("z", 99)
    for loaded in (tracker, other):
        loaded.load_state_dict(data)
        assert (set(loaded.states_), loaded.seeds_) == ({"a", "b"}, {50, 60})
        with loaded.rng_state("a"):
            assert drawn(backend, 2) == a[3:5]
        with loaded.rng_state("b"):
            assert drawn(backend, 2) == b[:2]
    assert drawn(backend) == outside[:1]


@stores
def test_loading_inside_a_context_takes_effect_at_once(backend, tracker, a, outside):
    data = json.loads(json.dumps(tracker.state_dict()))
    with tracker.rng_state("a"):
        drawn(backend, 2)
        tracker.load_state_dict(data)
        assert drawn(backend) == a[:1]
        inside = json.loads(json.dumps(tracker.state_dict()))
        tracker.load_state_dict({**data, "streams": {"b": data["streams"]["b"]}})
    assert list(tracker.states_) == ["b"]
    assert drawn(backend) == outside[:1]
    tracker.load_state_dict(inside)
    with tracker.rng_state("a"):
        assert drawn(backend) == a[1:2]


def test_an_empty_tracker_is_stored_too(backend, tracker):
    empty = RngStateTracker(backend.keepers).state_dict()
    assert empty == json.loads(json.dumps(empty))
    assert empty["streams"] == {}
    tracker.load_state_dict(empty)
    assert (tracker.states_, tracker.seeds_) == ({}, set())


def test_a_backend_without_states_says_so(backend, tracker, a):
    if backend.stores:
        tracker.state_dict()
        return
    with refused(RandomStateError, "Paddle", "handles", axes=(), ranks=[]):
        tracker.state_dict()
    stored = {"a": {"seed": 1, "states": [1]}}
    with pytest.raises(RandomStateError):
        tracker.load_state_dict({"format": "rankatlas.rng", "version": 1, "backends": ["paddle"], "streams": stored})
    with tracker.rng_state("a"):
        assert drawn(backend) == a[:1]


def damages(data):
    """The data with one thing wrong at a time."""
    yield from (None, [], "", 5, {})
    for key in data:
        yield {name: value for name, value in data.items() if name != key}
    for change in (
        *({"format": "rankatlas.mesh"}, {"version": 2}, {"backends": []}, {"backends": ["cupy"]}, {"backends": None}),
        *({"backends": 5}, {"backends": "python"}, {"backends": data["backends"] * 2}),
        *({"streams": None}, {"streams": []}, {"streams": {"a": None}}, {"streams": {"a": {}}}, {"streams": 3}),
    ):
        yield {**data, **change}
    for change in (
        *({"seed": -1}, {"seed": "50"}, {"seed": 1.5}, {"seed": None}, {"seed": 60}),
        *({"states": None}, {"states": []}, {"states": 7}, {"states": {}}, {"states": "x"}),
        *({"states": data["streams"]["a"]["states"] * 2}, {"states": [None] * len(data["backends"])}),
        *({"states": ["zz"] * len(data["backends"])}, {"states": [[1, 2, 3]] * len(data["backends"])}),
        {"states": [{}] * len(data["backends"])},
    ):
        damaged = deepcopy(data)
        damaged["streams"]["a"].update(change)
        yield damaged
    yield from damaged_inside(data)


def damaged_inside(data):
    """Every list inside a state cut by one, and every number in it replaced by text or something absurd."""

    def places(value, path=()):
        if isinstance(value, dict):
            for key in value:
                yield from places(value[key], (*path, key))
        elif isinstance(value, list):
            yield path, value[:-1]
            if value:
                yield from places(value[0], (*path, 0))
                yield from places(value[-1], (*path, len(value) - 1))
        elif not isinstance(value, str):
            yield path, "text"

    streams = data["streams"]
    for path, replacement in places(streams["a"]["states"]):
        if not path:
            continue
        damaged = deepcopy(data)
        inner = damaged["streams"]["a"]["states"]
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = replacement
        yield damaged


def refusal(tracker, data):
    """The type of the error that loading raises, or None."""
    try:
        tracker.load_state_dict(data)
    except InputError as error:
        return type(error)


@stores
def test_damaged_states_are_refused_and_nothing_changes(backend, tracker, a, b, outside):
    with tracker.rng_state("a"):
        drawn(backend)
    data = json.loads(json.dumps(tracker.state_dict()))
    before = everything(tracker)
    for damaged in damages(data):
        assert refusal(tracker, damaged) in (SeedError, IntegerError), damaged
        assert everything(tracker) == before
    with tracker.rng_state("b"):
        with pytest.raises(SeedError):
            tracker.load_state_dict({**data, "version": 2})
        assert drawn(backend) == b[:1]
    assert drawn(backend) == outside[:1]
    tracker.load_state_dict(data)
    with tracker.rng_state("a"):
        assert drawn(backend) == a[1:2]


@pytest.mark.parametrize("position", [-1, 625, 10**6, 2**31, 0.5])
def test_a_position_outside_the_state_of_numpy_is_refused(position):
    """numpy itself does not look, and reads whatever lies there."""
    for keeper in (adapter("numpy").RandomState(), GeneratorState(numpy.random.Generator(numpy.random.MT19937(1)))):
        tracker = RngStateTracker([keeper])
        tracker.add("a", 50)
        data = tracker.state_dict()
        data["streams"]["a"]["states"][0]["state"]["pos"] = position
        before = everything(tracker)
        with pytest.raises(SeedError):
            tracker.load_state_dict(data)
        assert everything(tracker) == before


def test_the_order_of_backends_does_not_matter_to_stored_states():
    """A program that imports its frameworks in another order keeps them in another order."""
    torch = pytest.importorskip("torch")
    saved = RngStateTracker(backends=["torch", "numpy", "python"])
    saved.add("a", 7)
    with saved.rng_state("a"):
        random.random()
    stored = json.loads(json.dumps(saved.state_dict()))
    tracker = RngStateTracker(backends=["python", "numpy", "torch"])
    tracker.load_state_dict(stored)
    with saved.rng_state("a"):
        expected = random.random(), numpy.random.random(), torch.rand(1).item()
    with tracker.rng_state("a"):
        assert (random.random(), numpy.random.random(), torch.rand(1).item()) == expected
    with pytest.raises(SeedError, match=r"this tracker keeps python, numpy$"):
        RngStateTracker(backends=["python", "numpy"]).load_state_dict(stored)


def test_a_keeper_that_cannot_be_loaded_leaves_nothing_entered():
    class Keeper:
        name, value, bad = "keeper", 100, False

        def seed(self, seed):
            self.value = seed

        def get_state(self):
            return self.value

        def set_state(self, state):
            if self.bad:
                raise OSError("the device is gone")
            self.value = state

        def pack(self, state):
            return state

        unpack = pack

    keeper = Keeper()
    tracker = RngStateTracker([keeper])
    tracker.add("x", 7)
    keeper.value, keeper.bad = 100, True
    with pytest.raises(OSError, match="the device is gone"), tracker.rng_state("x"):
        pass
    keeper.bad, keeper.value = False, 100
    with tracker.rng_state("x"):
        keeper.value = 55
    assert keeper.value == 100
