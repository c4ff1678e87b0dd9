"""Stand-ins until the library has them."""
import numpy, torch.distributed as dist
from rankatlas.derived import data_rank
class DataShard:
    def __init__(self, mesh, axes=("dp","sharding")):
        self.mesh=mesh
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
    def state_dict(self): return {"epoch":self.epoch,"consumed":self.consumed}
    def load_state_dict(self,s): self.epoch=s["epoch"]; self.consumed=s["consumed"]
class Handles:
    def __init__(self, mesh, axes, partial=()):
        self.h={}; rank=dist.get_rank() if dist.is_initialized() else 0
        seen={}
        self.own=[]
        for a in axes:
            for g in mesh.groups(*a):
                if g.size==1: continue
                k=tuple(g.ranks)
                if k not in seen:
                    seen[k]=dist.new_group(list(k))
                    if rank in k: self.own.append(seen[k])
                if rank in g: self.h[a]=self.h[tuple(x for x in mesh.axes if x in a)]=seen[k]
        for k in partial:
            k=tuple(k)
            if k not in seen: seen[k]=dist.new_group(list(k))
            if rank in k: self.h["tied"]=seen[k]
    def __getitem__(self,a): return self.h[a]
    def get(self,a): return self.h.get(a)
    def __enter__(self): return self
    def __exit__(self,*e):
        for h in self.own: dist.destroy_process_group(h)
