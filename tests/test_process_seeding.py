"""set_seed, init_seed and the tracker of the process."""

import random
import subprocess
import sys
from types import MappingProxyType, SimpleNamespace

import numpy
import pytest

import rankatlas
from rankatlas import Topology, get_rng_state_tracker, seeding, set_seed
from rankatlas.errors import ArgumentsError, InputError, IntegerError, SeedError
from rankatlas.seeding import RngStateTracker, distributed_seeds, init_seed, process
from rankatlas.topology import Topology as AlsoTopology
from refusals import refused

TOPOLOGY = Topology(5, 8, pp_degree=2, mp_degree=2)
SEEDS = distributed_seeds(42, TOPOLOGY)


class Framework:
    """A keeper that only remembers what it was seeded with, as torch or Paddle would be."""

    name = "framework"

    def __init__(self):
        self.state = None

    def seed(self, seed):
        self.state = seed

    def get_state(self):
        return self.state

    def set_state(self, state):
        self.state = state

    def pack(self, state):
        return state

    def unpack(self, data):
        return data


@pytest.fixture(autouse=True)
def process_as_it_was(monkeypatch):
    """A tracker of the process for each test, without Paddle, and the global states as they were afterwards."""
    kept = random.getstate(), numpy.random.get_state()
    monkeypatch.delitem(sys.modules, "paddle", raising=False)
    monkeypatch.setattr(process, "_TRACKER", RngStateTracker(["python", "numpy", Framework()]))
    yield
    random.setstate(kept[0])
    numpy.random.set_state(kept[1])


def framework():
    return get_rng_state_tracker().keepers[2]


def seeded_with():
    """What Python, NumPy and the framework draw from now."""
    return random.random(), numpy.random.random(), framework().state


def draws(host, framework):
    return random.Random(host).random(), numpy.random.RandomState(host).random(), framework


def test_the_example_of_the_trainer():
    assert set_seed(42, TOPOLOGY) == SEEDS == (46, 55, 42)
    assert seeded_with() == draws(42, 46)
    with get_rng_state_tracker().rng_state("global_seed"):
        assert seeded_with() == draws(46, 46)
    with get_rng_state_tracker().rng_state("local_seed"):
        assert seeded_with() == draws(55, 55)
    assert repr(get_rng_state_tracker()) == "RngStateTracker(global_seed=46, local_seed=55)"


def test_the_host_gets_the_seed_of_its_stage():
    topology = Topology(4, 8, pp_degree=2, mp_degree=2, order=["pp", "dp", "sharding", "mp", "sep"])
    assert set_seed(42, topology) == (44, 52, 142)
    assert seeded_with() == draws(142, 44)


def test_alone_and_by_default():
    assert set_seed() == (1234, 1235, 1234)
    assert set_seed(7) == (7, 8, 7)


def test_a_second_call_starts_its_two_streams_anew_and_touches_no_other():
    set_seed(42, TOPOLOGY)
    tracker = get_rng_state_tracker()
    tracker.add("own", 1)
    for name in ("own", "global_seed"):
        with tracker.rng_state(name):
            random.random()
    assert set_seed(43, TOPOLOGY) == (47, 56, 43)
    assert tracker.seeds_ == {47, 56, 1}
    assert seeded_with() == draws(43, 47)
    with tracker.rng_state("global_seed"):
        assert random.random() == random.Random(47).random()
    with tracker.rng_state("own"):
        own = random.Random(1)
        own.random()
        assert random.random() == own.random()


def test_a_second_call_whose_global_seed_is_the_first_ones_local_seed():
    set_seed(42, TOPOLOGY)
    assert set_seed(51, TOPOLOGY) == (55, 64, 51)
    assert get_rng_state_tracker().seeds_ == {55, 64}


def test_a_seed_that_another_stream_has_is_refused_and_nothing_is_seeded():
    tracker = get_rng_state_tracker()
    tracker.add("own", 55)
    random.seed(1)
    before = random.getstate(), framework().state
    with refused(SeedError, "55", "'own'", earlier_name="own", earlier_seed=55):
        set_seed(42, TOPOLOGY)
    assert (random.getstate(), framework().state) == before
    assert tracker.seeds_ == {55}


def test_what_else_set_seed_refuses_changes_nothing():
    random.seed(1)
    before = random.getstate()
    for bad in (-1, 2**64):
        with refused(SeedError, seed=bad):
            set_seed(bad)
    with refused(IntegerError, "seed"):
        set_seed(1.0)
    with refused(SeedError, "2**64"):
        set_seed(2**64 - 1)  # the local seed would have 65 bits
    with refused(SeedError, "'cupy'"):
        set_seed(1, backends=["python", "cupy"])
    with refused(InputError, "Topology"):
        set_seed(1, "pp=2")
    assert random.getstate() == before
    assert get_rng_state_tracker().seeds_ == set()


def test_named_backends_are_seeded_and_no_other():
    random.seed(1)
    numpy.random.seed(1)
    framework().state = "untouched"
    set_seed(42, TOPOLOGY, backends=["python"])
    assert seeded_with() == (random.Random(42).random(), numpy.random.RandomState(1).random(), "untouched")
    set_seed(42, TOPOLOGY, backends=("numpy", framework()))
    assert numpy.random.random() == numpy.random.RandomState(42).random()
    assert framework().state == 46


def test_large_seeds_reach_legacy_numpy_as_two_words():
    set_seed(2**40 + 3)
    assert numpy.random.random() == numpy.random.RandomState([3, 2**8]).random()


def paddle_program(monkeypatch, group, world):
    """As if Paddle were imported, with this live fleet group and this many processes."""
    stand_in = SimpleNamespace(live_group=lambda: group, world_size=lambda: world)
    monkeypatch.setitem(sys.modules, "paddle", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "rankatlas.adapters.paddle", stand_in)
    # The package remembers a submodule it has loaded.
    monkeypatch.setattr(sys.modules["rankatlas.adapters"], "paddle", stand_in, raising=False)


class Group:
    nranks = 8

    def get_model_parallel_rank(self):
        return 1

    get_stage_id = get_model_parallel_rank

    def get_model_parallel_world_size(self):
        return 2

    get_pipe_parallel_world_size = get_data_parallel_world_size = get_model_parallel_world_size

    def get_data_parallel_rank(self):
        return 0

    get_sharding_parallel_rank = get_data_parallel_rank


def test_without_a_topology_the_live_group_is_asked(monkeypatch):
    paddle_program(monkeypatch, Group(), 8)
    assert set_seed(42) == (44, 53, 142)
    assert set_seed(42, TOPOLOGY) == SEEDS  # a topology wins


def test_without_topology_and_group_the_number_of_processes_counts(monkeypatch):
    paddle_program(monkeypatch, None, 16)
    assert set_seed(42) == distributed_seeds(42, world_size=16) == (42, 58, 42)
    paddle_program(monkeypatch, Group(), 1)
    assert set_seed(42) == (42, 43, 42)


# init_seed

ARGS = {"seed": 42, "mp_degree": 2, "pp_degree": 2}


def test_init_seed_without_arguments_seeds_everything_alike():
    assert init_seed(7) is None
    assert seeded_with() == draws(7, 7)
    assert init_seed() is None
    assert seeded_with() == draws(1234, 1234)


@pytest.mark.parametrize("form", [dict, MappingProxyType, lambda args: SimpleNamespace(**args)])
def test_init_seed_with_arguments_uses_theirs(form):
    assert init_seed(7, form(ARGS)) is None
    assert seeded_with() == draws(42, 42)
    topology = AlsoTopology.from_args(ARGS, 5, 8, auto_parallel=True)
    expected = distributed_seeds(42, topology)
    assert init_seed(7, form(ARGS), 5, 8) == expected == (44, 53, 142)
    assert seeded_with() == draws(142, 53)


def test_init_seed_leaves_the_tracker_alone():
    tracker = get_rng_state_tracker()
    tracker.add("own", 53)
    init_seed(args=ARGS, rank=5, world_size=8)
    assert tracker.seeds_ == {53}


def test_what_init_seed_refuses_changes_nothing():
    random.seed(1)
    before = random.getstate()
    with refused(SeedError, seed=-1):
        init_seed(-1)
    with refused(IntegerError, "seed"):
        init_seed(args={**ARGS, "seed": "42"})
    with pytest.raises(InputError):
        init_seed(args=ARGS, rank=8, world_size=8)
    with pytest.raises(InputError):
        init_seed(args={**ARGS, "mp_degree": 3}, rank=0, world_size=8)
    for absent in ({"mp_degree": 2}, SimpleNamespace(mp_degree=2)):
        with refused(ArgumentsError, "seed", names=("seed",)):
            init_seed(args=absent)
    assert random.getstate() == before


# The one object of the process


def test_there_is_one_tracker():
    assert get_rng_state_tracker() is get_rng_state_tracker() is seeding.get_rng_state_tracker()
    assert rankatlas.set_seed is seeding.set_seed is process.set_seed


def test_seeding_imports_no_framework():
    program = """
import sys
import rankatlas
rankatlas.get_rng_state_tracker()
rankatlas.set_seed(42, rankatlas.Topology(5, 8, pp_degree=2, mp_degree=2))
with rankatlas.get_rng_state_tracker().rng_state("local_seed"):
    pass
from rankatlas.seeding import SeedPlan, init_seed
init_seed(args={"seed": 1, "mp_degree": 2}, world_size=8)
SeedPlan(1, rankatlas.Mesh(dp=2)).seed_everything(1)
print([name for name in ("numpy", "torch", "paddle", "jax", "click", "rich", "yaml") if name in sys.modules])
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == "[]\n"
