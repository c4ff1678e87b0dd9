"""One rank of a job of PaddleFormers' Trainer with our callback; prints what came of it as JSON.

    python live_frameworks_paddleformers.py        (rank and world are in Paddle's own environment variables)

Three trainers, one after the other: `fine`; `mismatch`, where rank 2 has another seed; `wrong`, where the groups are
not those expected.  No step is taken: the optimizer wrappers of the trainer need an accelerator.
"""

import json
import os
from pathlib import Path

import paddle
import paddle.distributed as dist
from paddleformers.trainer import Trainer, TrainerCallback, TrainingArguments

from rankatlas import live
from rankatlas.adapters.paddle import separate_stores
from rankatlas.errors import GroupMismatch, LayoutMismatch

RANK = int(os.environ["PADDLE_TRAINER_ID"])
EXPECT = {"fine": "dp=2 mp=2", "mismatch": None, "wrong": "mp=2 dp=2"}


def trainer_made(job):
    arguments = TrainingArguments(  # the first ones make the groups, with fleet.init
        output_dir=str(Path.cwd() / "out"),
        device="cpu",
        local_rank=RANK,
        seed=7 if job == "mismatch" and RANK == 2 else 42,
        tensor_model_parallel_size=2,
        sharding="",
        amp_master_grad=False,
        max_steps=2,
        report_to=[],
        disable_tqdm=True,
    )
    callback = live.callback(expect=EXPECT[job], timeout=30)
    said = {"error": None}
    try:
        Trainer(model=paddle.nn.Linear(4, 1), args=arguments, callbacks=[callback])
    except (LayoutMismatch, GroupMismatch) as error:
        said = {"error": type(error).__name__, "text": str(error), **vars(error)}
    agreement, made = callback.watch.agreement, callback.watch.record
    return said | {
        "is a TrainerCallback": isinstance(callback, TrainerCallback),
        "agreed": agreement and agreement.world_size,
        "fields": agreement and agreement.fields,
        "layout": made and str(made.layout),
        "kinds": made and {kind.description: kind.axes for kind in made.kinds},
    }


paddle.set_device("cpu")
with separate_stores():
    answers = {job: trainer_made(job) for job in EXPECT}
print("\n" + json.dumps(answers), flush=True)
dist.barrier()  # rank 0 serves the store that others may still be asking
os._exit(0)
