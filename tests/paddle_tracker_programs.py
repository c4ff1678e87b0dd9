"""Runs random programs on Paddle's own tracker and on ours, and prints what both drew as JSON.

    python paddle_tracker_programs.py FIRST_SEED COUNT

A program is made from a seed before it runs, so both trackers get the same one.  It leaves out what the two mean
differently on purpose: Paddle burns the seed of a failed `add`, and brings a stream back that was reset while inside.
"""

import json
import random
import sys

import numpy
import paddle
from paddle.distributed.fleet.meta_parallel import get_rng_state_tracker
from paddle.distributed.fleet.meta_parallel.parallel_layers.random import RNGStatesTracker

from rankatlas import Topology, set_seed
from rankatlas.seeding import RngStateTracker, distributed_seeds

NAMES = ("model_parallel_rng", "a", "b")
DRAWS = (
    lambda: paddle.rand([2]).tolist(),
    lambda: paddle.randn([3]).tolist(),
    lambda: paddle.randint(0, 1000, [2]).tolist(),
    lambda: paddle.nn.functional.dropout(paddle.ones([8]), 0.5).tolist(),
    lambda: paddle.randperm(5).tolist(),
)


def block(dice, depth, started):
    """A list of steps; "inside" holds a block of its own and whether an exception ends it."""
    steps = []
    for _ in range(dice.randint(2, 6)):
        verb = dice.choice(("draw", "draw", "inside", "inside", "take", "set", "seed", "add"))
        if verb == "inside" and depth < 4:
            steps.append((verb, dice.choice(started), block(dice, depth + 1, started), dice.random() < 0.3))
        elif verb == "add" and len(started) < len(NAMES):
            name = NAMES[len(started)]
            started.append(name)
            steps.append((verb, name, dice.randrange(10**6) * 10 + len(started)))
        elif verb == "seed":
            steps.append((verb, dice.randrange(10**6)))
        elif verb in ("take", "set"):
            steps.append((verb,))
        else:
            steps.append(("draw", dice.randrange(len(DRAWS))))
    return steps


class Run:
    """One program on one tracker, and everything that was drawn."""

    def __init__(self, tracker):
        self.tracker, self.drawn, self.taken = tracker, [], {}

    def go(self, steps):
        for verb, *given in steps:
            getattr(self, verb)(*given)

    def draw(self, kind):
        self.drawn.append(DRAWS[kind]())

    def add(self, name, seed):
        self.tracker.add(name, seed)

    def seed(self, seed):
        paddle.seed(seed)

    def take(self):
        self.taken = self.tracker.get_states_tracker()

    def set(self):
        self.tracker.set_states_tracker(self.taken)

    def inside(self, name, steps, fails):
        try:
            with self.tracker.rng_state(name):
                self.go(steps)
                if fails:
                    raise KeyError(name)
        except KeyError:
            self.drawn.append("left")
        self.draw(0)


def drawn_by(tracker, seed):
    tracker.reset()
    dice = random.Random(seed)
    started = ["model_parallel_rng"]
    program = block(dice, 0, started)
    paddle.seed(seed + 1)
    run = Run(tracker)
    run.add("model_parallel_rng", seed)
    run.go(program)
    run.draw(1)
    return run.drawn


def seeded_by_set_seed(seed, topology):
    """What the three global states and the two streams draw after the Trainer's formula, by hand and by set_seed."""
    said = []
    seeds = distributed_seeds(seed, topology)
    for ours in (False, True):
        tracker = get_rng_state_tracker()
        if ours:
            from rankatlas import get_rng_state_tracker as our_tracker

            tracker = our_tracker()
            assert set_seed(seed, topology) == seeds
            assert tracker.backends == ("python", "numpy", "paddle")
        else:
            tracker.reset()
            tracker.add("global_seed", seeds.global_seed)
            tracker.add("local_seed", seeds.local_seed)
            paddle.seed(seeds.global_seed)
            random.seed(seeds.random_seed)
            numpy.random.seed(seeds.random_seed)
        drawn = [DRAWS[0](), random.random(), numpy.random.rand()]
        for name in ("global_seed", "local_seed"):
            with tracker.rng_state(name):
                drawn.append(DRAWS[3]())
                drawn.append(DRAWS[1]())
        said.append([*drawn, DRAWS[0]()])
    return said


first, count = int(sys.argv[1]), int(sys.argv[2])
programs = []
for number in range(first, first + count):
    own = drawn_by(get_rng_state_tracker(), number)
    programs.append([own, drawn_by(RNGStatesTracker(), number), drawn_by(RngStateTracker(["paddle"]), number)])
topologies = [None, Topology(0, 1), Topology(5, 8, pp_degree=2, mp_degree=2), Topology(7, 8, 2, 1, 2, 2)]
print(json.dumps({"programs": programs, "set_seed": [seeded_by_set_seed(42 + n, t) for n, t in enumerate(topologies)]}))
