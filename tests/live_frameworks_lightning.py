"""One rank of a job of Lightning's Trainer with our callback; prints what came of it as JSON.

    python live_frameworks_lightning.py lightning.pytorch|pytorch_lightning JOB

The launcher's variables say which rank this is, as torchrun sets them.  Jobs: `ddp`; `parallel`, a model over a device
mesh; `mismatch`, where rank 2 has another layout; `wrong`, where the mesh is not the one expected; `alone`, where there
is one process.
"""

import json
import logging
import os
import sys
import time
import warnings
from importlib import import_module

PACKAGE, JOB = sys.argv[1:]
pl = import_module(PACKAGE)
strategies = import_module(f"{PACKAGE}.strategies")

import torch  # noqa: E402  after the trainer, as in a user's program
from torch.distributed.fsdp import fully_shard  # noqa: E402

from rankatlas import live  # noqa: E402
from rankatlas.errors import GroupMismatch, LayoutMismatch  # noqa: E402

RANK = int(os.environ.get("RANK", "0"))


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.steps = 0

    def configure_model(self):
        if JOB in ("parallel", "wrong"):
            fully_shard(self.layer, mesh=self.device_mesh["data_parallel"])

    def training_step(self, batch, _):
        self.steps += 1
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trainer(callback):
    strategy = {
        "alone": "auto",
        "parallel": strategies.ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=2),
        "wrong": strategies.ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=2),
    }.get(JOB, strategies.DDPStrategy(process_group_backend="gloo"))
    return pl.Trainer(
        accelerator="cpu",
        devices=1 if JOB == "alone" else 4,
        strategy=strategy,
        max_steps=2,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def main():
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    layout = "dp=2 tp=2" if JOB == "mismatch" and RANK == 2 else "data_parallel=2 tensor_parallel=2"
    expect = {"parallel": layout, "wrong": "tensor_parallel=2 data_parallel=2"}.get(JOB)
    callback = live.callback(layout, expect=expect, axes=["tensor_parallel"] if JOB == "parallel" else (), timeout=20)
    model = Model()
    said = {"error": None}
    started = time.monotonic()
    try:
        trainer(callback).fit(model, torch.utils.data.DataLoader(torch.ones(16, 4), batch_size=2))
    except (LayoutMismatch, GroupMismatch) as error:
        said = {"error": type(error).__name__, "text": str(error), **vars(error)}
    made = callback.watch.record
    said |= {
        "seconds": time.monotonic() - started,
        "steps": model.steps,
        "is a Callback": isinstance(callback, pl.Callback),
        "agreed": callback.watch.agreement and callback.watch.agreement.world_size,
        "layout": made and str(made.layout),
        "kinds": made and {kind.description: kind.axes for kind in made.kinds},
    }
    print(json.dumps(said), flush=True)
    os._exit(0)  # ranks that raised leave their groups as they are


if __name__ == "__main__":
    main()
