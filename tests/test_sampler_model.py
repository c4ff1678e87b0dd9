"""A job that crashes, is resumed on other layouts and with other micro batches, held against the one global order."""

import json

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rankatlas import Mesh
from rankatlas.errors import DataResumeError
from rankatlas.sampling import DataShard, Order, ShardedSampler

STEPS = 120  # of each of the runs: 3,000 together


class Job(RuleBasedStateMachine):
    """All data ranks of a job in lockstep; `read` is what the present epoch has read, in the order handed out."""

    @initialize(
        batch=st.sampled_from([12, 24, 60]),
        batches=st.integers(1, 6),
        rest=st.integers(0, 11),
        tail=st.sampled_from(["drop", "pad"]),
        shuffle=st.booleans(),
    )
    def begin(self, batch, batches, rest, tail, shuffle):
        self.common = {"global_batch": batch, "seed": 4, "tail": tail, "shuffle": shuffle}
        self.n = batch * batches + rest
        self.length = batch * (batches + (rest > 0 and tail == "pad"))
        self.epoch, self.read = 0, []
        self.saved = None  # (state, what was read when it was saved)
        self.start(2, 1)

    def start(self, size, micro):
        """New processes: nothing is left of the old samplers."""
        self.size, self.micro = size, micro
        shard = DataShard(Mesh(dp=size, tp=2))
        self.ranks = [ShardedSampler(self.n, shard, 2 * rank, micro_batch=micro, **self.common) for rank in range(size)]

    def legal(self, size, micro):
        return self.common["global_batch"] % (size * micro) == 0

    def expected(self, count):
        order = Order(self.n, 4, self.epoch, shuffle=self.common["shuffle"])
        return order(np.arange(count) % self.n).tolist()

    @rule(count=st.integers(1, 7))
    def train(self, count):
        for _ in range(count):
            if not len(self.ranks[0]):
                break
            for own in self.ranks:
                self.read += next(iter(own)).tolist()

    @precondition(lambda self: len(self.read) < self.length)
    @rule()
    def train_a_whole_step(self):
        for micro_batches in zip(*[next(own.steps()) for own in self.ranks]):
            self.read += np.concatenate(micro_batches).tolist()

    @precondition(lambda self: len(self.read) == self.length)
    @rule()
    def end_the_epoch(self):
        for own in self.ranks:
            own.set_epoch(self.epoch)
            assert len(own) == 0
            own.set_epoch(self.epoch + 1)
        self.next_epoch()

    @precondition(lambda self: len(self.read) < self.length)
    @rule()
    def finish_the_epoch(self):
        for micro_batches in zip(*[list(own) for own in self.ranks]):
            self.read += np.concatenate(micro_batches).tolist()
        assert self.read == self.expected(self.length)
        self.next_epoch()

    def next_epoch(self):
        if self.common["tail"] == "drop" or self.length == self.n:
            assert len({*self.read}) == len(self.read) == self.length
        self.epoch, self.read = self.epoch + 1, []
        assert {own.epoch for own in self.ranks} == {self.epoch}

    @rule(rank=st.integers(0, 100))
    def save(self, rank):
        state = self.ranks[rank % self.size].state_dict()
        self.saved = json.loads(json.dumps(state)), self.epoch, list(self.read)

    @precondition(lambda self: self.saved is not None)
    @rule(size=st.sampled_from([1, 2, 3, 4, 5, 6, 10, 12]), micro=st.sampled_from([1, 2, 3, 4, 5]))
    def crash_and_resume(self, size, micro):
        if not self.legal(size, micro):
            return
        state, self.epoch, read = self.saved
        self.read = list(read)
        self.start(size, micro)
        inside = state["consumed"] % self.common["global_batch"]
        for own in self.ranks:
            if inside % (size * micro) == 0:
                own.load_state_dict(state)
                continue
            try:
                own.load_state_dict(state)
            except DataResumeError:
                own.load_state_dict(state, policy="restart_step")
                self.read = read[: len(read) - inside]
            else:
                raise AssertionError("a step that cannot be shared was gone on with")
            own.set_epoch(self.epoch)

    @invariant()
    def what_is_read_is_a_prefix_of_the_order(self):
        if hasattr(self, "ranks"):
            assert self.read == self.expected(len(self.read))
            assert {own.consumed for own in self.ranks} == {len(self.read)}
            assert {len(own) for own in self.ranks} == {(self.length - len(self.read)) // (self.size * self.micro)}
            assert len({str(own.state_dict()) for own in self.ranks}) == 1


TestJob = Job.TestCase
TestJob.settings = settings(max_examples=25, stateful_step_count=STEPS, deadline=None)
