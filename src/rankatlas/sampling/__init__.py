"""Who reads which samples: one global order, shared out over the data ranks of any layout, each sample read once."""

from rankatlas.sampling.order import Order as Order
from rankatlas.sampling.sampler import ShardedSampler as ShardedSampler
from rankatlas.sampling.shard import DataShard as DataShard
