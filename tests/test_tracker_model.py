"""Random programs on a tracker against a model in which every stream is a generator of its own."""

import copy
import json
import random
import subprocess
import sys
from contextlib import ExitStack

import numpy
from hypothesis import given
from hypothesis import strategies as st

from rankatlas.errors import SeedError
from rankatlas.seeding import RngStateTracker

NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)
seeds = st.integers(0, 4)
steps = st.one_of(
    st.tuples(st.just("draw"), st.integers(1, 3)),
    st.tuples(st.just("enter"), names),
    st.tuples(st.just("leave"), st.booleans()),
    st.tuples(st.just("add"), names, seeds),
    st.tuples(st.just("restart"), st.dictionaries(names, seeds, min_size=1, max_size=2)),
    st.tuples(st.just("take")),
    st.tuples(st.just("set")),
    st.tuples(st.just("store")),
    st.tuples(st.just("load")),
    st.tuples(st.just("reset")),
)


class Boom(Exception):
    pass


class Model:
    """What a tracker means: named generators, one of which is drawn from."""

    def __init__(self):
        self.outside = random.Random(7)
        self.streams, self.seeds, self.inside = {}, {}, []
        self.current = self.outside

    def draw(self):
        # gauss keeps a second value, which is state as well
        return self.current.random(), self.current.gauss(0, 1)

    def add(self, name, seed):
        if name in self.seeds or seed in self.seeds.values():
            raise SeedError("taken")
        self._start(name, seed)

    def _start(self, name, seed):
        self.streams[name], self.seeds[name] = random.Random(seed), seed
        self._resume(name)

    def _resume(self, name):
        if self.inside and self.inside[-1] == name:
            self.current = self.streams[name]

    def restart(self, seeds):
        others = [seed for name, seed in self.seeds.items() if name not in seeds]
        if len(set(seeds.values())) < len(seeds) or any(seed in others for seed in seeds.values()):
            raise SeedError("taken")
        for name, seed in seeds.items():
            self._start(name, seed)

    def enter(self, name):
        if name not in self.streams:
            raise SeedError("unknown")
        self.inside.append(name)
        self.current = self.streams[name]

    def leave(self):
        self.inside.pop()
        if not self.inside:
            self.current = self.outside
        elif self.inside[-1] in self.streams:
            self.current = self.streams[self.inside[-1]]
        else:  # it was reset: draws go on from where they are, and belong to nobody
            self.current = copy.deepcopy(self.current)

    def reset(self):
        self.streams, self.seeds = {}, {}

    def take(self):
        return copy.deepcopy((self.streams, self.seeds))

    def set(self, taken):
        if not set(taken[0]) <= set(self.streams):
            raise SeedError("unknown")
        for name, generator in copy.deepcopy(taken[0]).items():
            self.streams[name] = generator
            self._resume(name)

    def load(self, taken):
        self.reset()
        streams, self.seeds = copy.deepcopy(taken)
        for name, generator in streams.items():
            self.streams[name] = generator
            self._resume(name)


def outcome(call, *given):
    try:
        return call(*given)
    except SeedError:
        return "refused"


@given(st.lists(steps, max_size=40))
def test_a_tracker_does_what_the_model_does(program):
    before = random.getstate()
    random.seed(7)
    tracker, model = RngStateTracker(["python"]), Model()
    taken, stored = (None, model.take()), (tracker.state_dict(), model.take())
    contexts = []
    try:
        for verb, *given in program:
            if verb == "draw":
                assert [(random.random(), random.gauss(0, 1)) for _ in range(*given)] == [
                    model.draw() for _ in range(*given)
                ]
            elif verb == "enter":
                context = ExitStack()
                entered = outcome(context.enter_context, tracker.rng_state(*given))
                assert entered == outcome(model.enter, *given)
                if entered != "refused":
                    contexts.append(context)
            elif verb == "leave" and contexts:
                leave(contexts.pop(), *given)
                model.leave()
            elif verb in ("add", "restart"):
                assert outcome(getattr(tracker, verb), *given) == outcome(getattr(model, verb), *given)
            elif verb == "take":
                taken = tracker.get_states_tracker(), model.take()
            elif verb == "set" and taken[0] is not None:
                assert outcome(tracker.set_states_tracker, taken[0]) == outcome(model.set, taken[1])
            elif verb == "store":
                stored = json.loads(json.dumps(tracker.state_dict())), model.take()
            elif verb == "load":
                tracker.load_state_dict(stored[0])
                model.load(stored[1])
            elif verb == "reset":
                tracker.reset()
                model.reset()
            assert tracker.seeds_ == set(model.seeds.values())
            assert set(tracker.states_) == set(model.streams)
        while contexts:
            contexts.pop().close()
        assert random.random() == model.outside.random()
    finally:
        random.setstate(before)


def leave(context, by_exception):
    if not by_exception:
        context.close()
        return
    try:
        with context:
            raise Boom
    except Boom:
        pass


# Which backends


def test_backends_none_means_python_and_what_is_imported_at_first_use(monkeypatch):
    for name in ("numpy", "torch", "paddle"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    early, late = RngStateTracker(), RngStateTracker()
    assert early.backends == ("python",)
    monkeypatch.setitem(sys.modules, "numpy", numpy)
    assert late.backends == ("python", "numpy")
    assert early.backends == ("python",)


def test_making_and_using_a_tracker_imports_no_framework():
    program = """
import sys
from rankatlas.seeding import RngStateTracker
tracker = RngStateTracker()
tracker.add("a", 1)
with tracker.rng_state("a"):
    pass
print([name for name in ("numpy", "torch", "paddle", "jax") if name in sys.modules], tracker.backends)
import numpy
tracker.add("b", 2)
print(tracker.backends, RngStateTracker().backends)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == "[] ('python',)\n('python',) ('python', 'numpy')\n"


def test_backends_may_be_one_name():
    assert RngStateTracker("python").backends == ("python",)
    assert RngStateTracker(["numpy", "python"]).backends == ("numpy", "python")
    assert RngStateTracker([]).backends == ()
