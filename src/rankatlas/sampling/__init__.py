"""Who reads which samples: one global order, shared out over the data ranks of any layout, each sample read once."""

from rankatlas.sampling.coverage import coverage as coverage
from rankatlas.sampling.loader_states import check_loader_states as check_loader_states
from rankatlas.sampling.order import Order as Order
from rankatlas.sampling.sampler import ShardedSampler as ShardedSampler
from rankatlas.sampling.shard import DataShard as DataShard
