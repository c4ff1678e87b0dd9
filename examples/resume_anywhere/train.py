"""One rank of a small training job with data parallelism; `run.py` starts it, kills it, and resumes it elsewhere."""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from rankatlas import parse_mesh
from rankatlas.adapters.torch_data import TorchBatchSampler
from rankatlas.sampling import DataShard, ShardedSampler

SAMPLES, GLOBAL_BATCH, MICRO_BATCH = 1000, 24, 2
EVERY = 5  # steps between checkpoints


class Waves(Dataset):
    """Sample i: its number, eight inputs and one target."""

    def __len__(self):
        """The number of samples."""
        return SAMPLES

    def __getitem__(self, index):
        """One sample."""
        inputs = torch.sin(torch.arange(1, 9, dtype=torch.float64) * (index + 1))
        return index, inputs, inputs.prod() + inputs[0]


def main(notation, folder, log, until, dies_in):
    """Train until a step, or die in the middle of one."""
    mesh, rank = parse_mesh(notation), int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/{log}.store", rank=rank, world_size=mesh.world_size)
    shard = DataShard(mesh)
    mine = shard.data_group(rank)
    for group in mesh.groups(*shard.axes):  # every rank takes part in making every group
        made = dist.new_group(list(group.ranks))
        if group == mine:
            data_group = made

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    sampler = ShardedSampler(SAMPLES, shard, rank, global_batch=GLOBAL_BATCH, micro_batch=MICRO_BATCH, seed=7)
    loader = DataLoader(Waves(), batch_sampler=TorchBatchSampler(sampler))

    step, checkpoint = 0, os.path.join(folder, "checkpoint.pt")
    if os.path.exists(checkpoint):
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        sampler.load_state_dict(saved["data"])  # one state, whoever saved it and on however many ranks
        step = saved["step"]
    dist.barrier()  # nobody writes the next checkpoint before all have read this one

    with open(os.path.join(folder, f"{log}.rank{rank}.jsonl"), "w", buffering=1) as lines:
        total = torch.zeros((), dtype=torch.float64)
        while step < until:
            for numbers, inputs, targets in loader:  # what is left of this epoch; then the next one begins
                loss = ((model(inputs).squeeze(1) - targets) ** 2).sum() / GLOBAL_BATCH
                loss.backward()
                total += loss.detach()
                read = {"step": step, "data_rank": shard.data_rank(rank), "samples": numbers.tolist()}
                print(json.dumps(read), file=lines)
                if step == dies_in and rank == mesh.world_size - 1:
                    os._exit(9)  # as if the machine had gone
                if sampler.consumed % GLOBAL_BATCH:
                    continue
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad, group=data_group)
                dist.all_reduce(total, group=data_group)
                optimizer.step()
                optimizer.zero_grad()
                print(json.dumps({"step": step, "loss": total.item()}), file=lines)
                total.zero_()
                step += 1
                if step % EVERY == 0:
                    dist.barrier()  # all ranks have done this step, also those of other data groups
                    if rank == 0:
                        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                        torch.save({**state, "data": sampler.state_dict(), "step": step}, f"{checkpoint}.new")
                        os.replace(f"{checkpoint}.new", checkpoint)
                    dist.barrier()
                if step == until:
                    break
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
