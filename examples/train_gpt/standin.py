"""Stand-ins until the library has them."""
import numpy
from rankatlas.derived import data_rank
class DataShard:
    def __init__(self, mesh, axes=("dp","sharding")):
        self.mesh=mesh; self.axes=axes
    def agreement_group(self,r): return self.mesh.group(*[a for a in self.mesh.axes if a not in self.axes],rank=r)
    def data_group(self,r): return self.mesh.group(*self.axes,rank=r)
    def data_rank(self,r): return data_rank(self.mesh,r)[0]
class ShardedSampler:
    def __init__(self, n, shard, rank, *, global_batch, micro_batch, seed=0, shuffle=True, tail="drop"):
        self.n=n; self.d,self.D=data_rank(shard.mesh,rank); self.B=global_batch; self.mb=micro_batch; self.seed=seed; self.epoch=0; self.consumed=0
    def order(self):
        return numpy.random.default_rng([self.seed,self.epoch]).permutation(self.n)
    def set_epoch(self,e): self.epoch=e; self.consumed=0
    def steps(self):
        o=self.order()
        while self.consumed+self.B<=self.n:
            base=self.consumed
            M=self.B//self.D//self.mb
            out=[o[base+(m*self.D+self.d)*self.mb:][:self.mb] for m in range(M)]
            self.consumed+=self.B
            yield out
        self.set_epoch(self.epoch+1)
    def state_dict(self): return {"epoch":self.epoch,"consumed":self.consumed}
    def load_state_dict(self,s): self.epoch=s["epoch"]; self.consumed=s["consumed"]
