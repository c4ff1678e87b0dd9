"""A ShardedSampler for Paddle's DataLoader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import paddle

from rankatlas.sampling import ShardedSampler


class PaddleBatchSampler(paddle.io.BatchSampler):
    """Micro-batches of sample indexes, for `paddle.io.DataLoader(dataset, batch_sampler=...)`.

    In place of DistributedBatchSampler, which shards over the ranks of the world unless it is told better.  A
    micro-batch counts as consumed when the loader takes it.  With workers the loader takes some ahead: save
    `ShardedSampler.state_after(micro-batches trained on in this epoch)` there.

    >>> from rankatlas import Mesh
    >>> from rankatlas.sampling import DataShard
    >>> sharded = ShardedSampler(8, DataShard(Mesh(dp=2)), 1, global_batch=4, micro_batch=2, shuffle=False)
    >>> list(PaddleBatchSampler(sharded))
    [[2, 3], [6, 7]]
    """

    def __init__(self, sampler: ShardedSampler) -> None:
        super().__init__(sampler=_Indexes(sampler), batch_size=sampler.plan.micro_batch, drop_last=False)
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

    set_state_dict = load_state_dict  # Paddle's own name for it


class _Indexes(Iterable[int]):
    """The same indexes one at a time, which Paddle asks a batch sampler to have."""

    def __init__(self, sampler: ShardedSampler) -> None:
        self._sharded = sampler

    def __iter__(self) -> Iterator[int]:
        for indexes in self._sharded:
            yield from indexes.tolist()

    def __len__(self) -> int:
        return len(self._sharded) * self._sharded.plan.micro_batch
