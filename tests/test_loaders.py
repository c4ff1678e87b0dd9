"""Our samplers in the loaders people use: torch's DataLoader, Paddle's, and torchdata's StatefulDataLoader."""

import itertools

import numpy as np
import pytest

from rankatlas import Mesh
from rankatlas.errors import DataResumeError
from rankatlas.sampling import DataShard, Order, ShardedSampler
from refusals import refused

N, BATCH = 480, 24


class Numbers:
    """A data set whose sample is its index."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        return np.int64(index)


def sharded(size, rank, micro=2):
    return ShardedSampler(N, DataShard(Mesh(dp=size)), rank, global_batch=BATCH, micro_batch=micro, seed=3)


def in_order(batches_by_rank):
    """The samples of all data ranks in the order of micro-steps and data ranks."""
    return [int(sample) for micro_step in zip(*batches_by_rank) for batch in micro_step for sample in batch]


def expected(first, stop, epoch=0):
    return Order(N, 3, epoch)(np.arange(first, stop)).tolist()


class TestTorch:
    torch_data = pytest.importorskip("rankatlas.adapters.torch_data")

    def loader(self, sampler, **named):
        from torch.utils.data import DataLoader

        return DataLoader(Numbers(), batch_sampler=self.torch_data.TorchBatchSampler(sampler), **named)

    def test_an_epoch_and_the_next(self):
        samplers = [sharded(3, rank) for rank in range(3)]
        loaders = [self.loader(sampler) for sampler in samplers]
        assert [len(loader) for loader in loaders] == [80] * 3
        assert in_order(loaders) == expected(0, N)
        assert in_order(loaders) == expected(0, N, epoch=1)
        loaders[0].batch_sampler.set_epoch(5)
        assert samplers[0].epoch == 5

    def test_a_state_goes_through_the_batch_sampler(self):
        loader = self.loader(sharded(4, 1))
        for _ in zip(range(6), loader):
            pass
        state = loader.batch_sampler.state_dict()
        after = [self.loader(sharded(6, rank)) for rank in range(6)]
        for other in after:
            other.batch_sampler.load_state_dict(state)
        assert in_order(after) == expected(48, N)
        with refused(DataResumeError, "seed"):
            after[0].batch_sampler.load_state_dict(state | {"seed": 4})
        after[0].batch_sampler.load_state_dict(state | {"seed": 4}, policy="continue")

    def test_indexes_one_at_a_time(self):
        from torch.utils.data import DataLoader

        samplers = [self.torch_data.TorchSampler(sharded(4, rank, micro=3)) for rank in range(4)]
        loaders = [DataLoader(Numbers(), batch_size=3, sampler=sampler) for sampler in samplers]
        assert (len(samplers[0]), len(loaders[0])) == (120, 40)
        assert in_order([itertools.islice(loader, 4) for loader in loaders]) == expected(0, 48)
        assert samplers[0].state_dict()["consumed"] == 48
        reading = iter(samplers[0])
        next(reading)
        with refused(DataResumeError, "1 of the 3", "batch_size=3"):
            samplers[0].state_dict()
        samplers[0].set_epoch(0)  # the current one: nothing changes
        with refused(DataResumeError, "1 of the 3"):
            samplers[0].state_dict()
        samplers[0].set_epoch(1)
        assert samplers[0].state_dict() == sharded(4, 0, micro=3).state_dict() | {"epoch": 1}
        own = [expected(first, first + 3, epoch=1) for first in (0, 12)]
        assert [batch.tolist() for batch in itertools.islice(loaders[0], 2)] == own
        samplers[0].load_state_dict(samplers[1].state_dict())
        samplers[0].set_epoch(2)
        assert samplers[0].state_dict()["epoch"] == 2

    def test_states_of_loaders_that_hold_none(self):
        for state in (
            None,
            {},
            {"_index_sampler_state": None},
            {"_snapshot": 3},
            {"_snapshot": {"_main_snapshot": {}}},
        ):
            with refused(DataResumeError, "TorchBatchSampler"):
                self.torch_data.sampler_state(state)
        late = {"_snapshot": {"_main_snapshot": {"_index_sampler_state": {}}}, "_steps_since_snapshot": 2}
        with refused(DataResumeError, "2 batches old", "snapshot_every_n_steps=1"):
            self.torch_data.sampler_state(late)

    @pytest.mark.filterwarnings("ignore")  # torchdata uses what torch deprecates
    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("whole", [True, False])
    def test_a_stateful_loader_resumes_on_another_layout(self, workers, whole):
        """With prefetching workers the loader's own state decides: the sampler is ahead, the state is not."""
        stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

        def loader(sampler):
            batches = self.torch_data.TorchBatchSampler(sampler)
            return stateful(Numbers(), batch_sampler=batches, num_workers=workers)

        before, samplers = [], [sharded(4, rank) for rank in range(4)]
        loaders = [loader(sampler) for sampler in samplers]
        before = in_order([[batch.tolist() for batch in itertools.islice(one, 6)] for one in loaders])
        state = loaders[2].state_dict()
        assert samplers[2].consumed == (48 if workers == 0 else 80)
        read = []
        for rank in range(6):
            sampler = sharded(6, rank)
            one = loader(sampler)
            if whole:
                one.load_state_dict(state)
            else:
                sampler.load_state_dict(self.torch_data.sampler_state(state))
            read.append([batch.tolist() for batch in one])
        assert before + in_order(read) == expected(0, N)


class TestPaddle:
    @pytest.mark.filterwarnings("ignore")
    def test_an_epoch_and_a_resume(self):
        paddle = pytest.importorskip("paddle")
        from rankatlas.adapters.paddle_data import PaddleBatchSampler

        class Data(Numbers, paddle.io.Dataset):
            pass

        def loader(size, rank):
            batches = PaddleBatchSampler(sharded(size, rank))
            return batches, paddle.io.DataLoader(Data(), batch_sampler=batches, places=paddle.CPUPlace())

        pairs = [loader(2, rank) for rank in range(2)]
        assert len(pairs[0][1]) == len(pairs[0][0]) == 120
        read = in_order([[batch.numpy() for batch in one] for _, one in pairs])
        assert read == expected(0, N)
        pairs[0][0].set_epoch(3)
        state = pairs[0][0].state_dict() | {"consumed": 24}
        for batches, _ in pairs:
            batches.set_state_dict(state)
        read = in_order([[batch.numpy() for batch in one] for _, one in pairs])
        assert read == expected(24, N, epoch=3)


def test_a_state_beside_a_loader_that_runs_ahead():
    sampler = sharded(4, 0)
    ahead = list(itertools.islice(sampler, 10))
    assert len(ahead) == 10
    after = sharded(2, 1)
    after.load_state_dict(sampler.state_after(6))
    assert next(iter(after)).tolist() == expected(50, 52)
    assert sampler.state_after(60)["consumed"] == N
    for wrong in (-1, 61):
        with pytest.raises(ValueError, match="0 to 60"):
            sampler.state_after(wrong)
