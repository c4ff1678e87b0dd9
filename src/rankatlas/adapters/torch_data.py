"""A ShardedSampler for torch's DataLoader and torchdata's StatefulDataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import BatchSampler, Sampler

from rankatlas.errors import DataResumeError, shown
from rankatlas.sampling import ShardedSampler

# Where a StatefulDataLoader keeps the state of its batch sampler, without and with workers.
_INDEX_SAMPLER = "_index_sampler_state"
_SNAPSHOT, _MAIN, _SINCE = "_snapshot", "_main_snapshot", "_steps_since_snapshot"


class TorchSampler(Sampler[int]):
    """Sample indexes one at a time, for `DataLoader(dataset, batch_size=micro_batch, sampler=...)`.

    The batch size must be the sampler's micro batch: the state counts whole micro-batches.  Everything else is the
    ShardedSampler's.

    >>> from rankatlas import Mesh
    >>> from rankatlas.sampling import DataShard
    >>> sharded = ShardedSampler(8, DataShard(Mesh(dp=2)), 1, global_batch=4, micro_batch=2, shuffle=False)
    >>> list(TorchSampler(sharded))
    [2, 3, 6, 7]
    """

    def __init__(self, sampler: ShardedSampler) -> None:
        self.sampler = sampler
        self._handed_out = 0  # of the micro-batch below
        self._inside = (0, 0)  # epoch and samples consumed where they were handed out

    def __iter__(self) -> Iterator[int]:
        for indexes in self.sampler:
            for place, index in enumerate(indexes.tolist()):
                self._handed_out, self._inside = place + 1, (self.sampler.epoch, self.sampler.consumed)
                yield index

    def __len__(self) -> int:
        return len(self.sampler) * self.sampler.plan.micro_batch

    def set_epoch(self, epoch: int) -> None:
        """As `ShardedSampler.set_epoch`."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """As `ShardedSampler.state_dict`.  Raises DataResumeError inside a micro-batch."""
        micro = self.sampler.plan.micro_batch
        if self._handed_out % micro and self._inside == (self.sampler.epoch, self.sampler.consumed):
            raise DataResumeError(
                f"{self._handed_out} of the {micro} samples of a micro-batch are handed out, and a state counts whole"
                f" micro-batches\ngive the loader batch_size={micro}, or use TorchBatchSampler",
                state=None,
                changed={},
                orphaned_states=[],
                missing_states=[],
            )
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], policy: str = "exact") -> None:
        """As `ShardedSampler.load_state_dict`."""
        self.sampler.load_state_dict(state, policy)
        self._handed_out = 0


class TorchBatchSampler(BatchSampler):
    """Micro-batches of sample indexes, for `DataLoader(dataset, batch_sampler=...)`; the state is the ShardedSampler's.

    A micro-batch counts as consumed when the loader takes it, and with workers it takes some ahead.  A
    StatefulDataLoader keeps the state that belongs to the batch it last gave, in its own `state_dict()`; beside a plain
    DataLoader save `ShardedSampler.state_after(micro-batches trained on in this epoch)`.

    >>> from rankatlas import Mesh
    >>> from rankatlas.sampling import DataShard
    >>> sharded = ShardedSampler(8, DataShard(Mesh(dp=2)), 1, global_batch=4, micro_batch=2, shuffle=False)
    >>> list(TorchBatchSampler(sharded))
    [[2, 3], [6, 7]]
    """

    def __init__(self, sampler: ShardedSampler) -> None:
        super().__init__(TorchSampler(sampler), sampler.plan.micro_batch, drop_last=False)
        self._sharded = sampler

    def __iter__(self) -> Iterator[list[int]]:
        for indexes in self._sharded:
            yield indexes.tolist()

    def __len__(self) -> int:
        return len(self._sharded)

    def set_epoch(self, epoch: int) -> None:
        """As `ShardedSampler.set_epoch`."""
        self._sharded.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """As `ShardedSampler.state_dict`."""
        return self._sharded.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], policy: str = "exact") -> None:
        """As `ShardedSampler.load_state_dict`."""
        self._sharded.load_state_dict(state, policy)


def sampler_state(loader_state: Mapping[str, Any]) -> dict[str, Any]:
    """The sampler's state in the `state_dict()` of a StatefulDataLoader that has a TorchBatchSampler.

    The rest of a loader's state belongs to its number of workers; this part fits any loader on any layout.
    Raises DataResumeError where there is none, or where it is older than the batch last given.

    >>> sampler_state({"_index_sampler_state": {"epoch": 0, "consumed": 4}, "_num_yielded": 1})
    {'epoch': 0, 'consumed': 4}
    """
    state: Any = loader_state
    why = ""
    if isinstance(state, Mapping) and _SNAPSHOT in state:
        if state.get(_SINCE):
            why = f": it is {state[_SINCE]} batches old; use snapshot_every_n_steps=1"
        state = state[_SNAPSHOT].get(_MAIN) if isinstance(state[_SNAPSHOT], Mapping) else None
    found = state.get(_INDEX_SAMPLER) if isinstance(state, Mapping) else None
    if why or not isinstance(found, Mapping):
        raise DataResumeError(
            f"no state of a TorchBatchSampler can be taken from {shown(loader_state)}{why}",
            state=None,
            changed={},
            orphaned_states=[],
            missing_states=[],
        )
    return dict(found)
