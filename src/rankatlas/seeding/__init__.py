"""Every random seed of a job: the reference scheme exactly, the scheme we recommend, and what checks any scheme."""

from rankatlas.seeding.plan import SeedPlan as SeedPlan
from rankatlas.seeding.plan import Stream as Stream
from rankatlas.seeding.process import get_rng_state_tracker as get_rng_state_tracker
from rankatlas.seeding.process import init_seed as init_seed
from rankatlas.seeding.process import set_seed as set_seed
from rankatlas.seeding.reference import DistributedSeeds as DistributedSeeds
from rankatlas.seeding.reference import distributed_seeds as distributed_seeds
from rankatlas.seeding.tracker import RngStateTracker as RngStateTracker
