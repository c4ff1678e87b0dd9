"""Checkpoints that know no layout: each array whole, in one file, into which every owner writes its part.

    DIR/state.json                  step, data state, settings
    DIR/{weight,first,second}/NAME.npy

A directory is complete when it has its name; until then it is called DIR.part.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist

from rankatlas.errors import InputError
from train_gpt.settings import Settings
from train_gpt.weights import Weight
from train_gpt.zero import KINDS, Optimizer

FORMAT, VERSION = "rankatlas.example.checkpoint", 1


def _wait() -> None:
    if dist.is_initialized():
        dist.barrier()


def save(folder: Path, settings: Settings, optimizer: Optimizer, rank: int, state: dict[str, Any]) -> None:
    """Write everything a run goes on from; `state` is plain data.  Every rank calls it."""
    part = folder.with_name(folder.name + ".part")
    if rank == 0:
        shutil.rmtree(part, ignore_errors=True)
        for kind in KINDS:
            (part / kind).mkdir(parents=True)
    _wait()
    weights = [weight for bucket in optimizer.buckets for weight in bucket.weights]
    for weight in weights:
        if weight.is_mine_to_write and all(piece.start == 0 for piece in weight.slices):
            for kind in KINDS:
                numpy.lib.format.open_memmap(_path(part, kind, weight), "w+", numpy.float64, weight.shape).flush()
    _wait()
    for kind in KINDS:
        values = optimizer.by_name([bucket.whole(kind) for bucket in optimizer.buckets])
        for weight in weights:
            if weight.is_mine_to_write:
                whole = numpy.load(_path(part, kind, weight), mmap_mode="r+")
                whole[weight.slices] = values[weight.name].numpy()
                whole.flush()
    _wait()
    if rank == 0:
        head = {"format": FORMAT, "version": VERSION, "settings": asdict(settings)}
        (part / "state.json").write_text(json.dumps(head | state, indent=1))
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    _wait()


def load(folder: Path, settings: Settings, optimizer: Optimizer) -> dict[str, Any]:
    """Give the optimizer its parts of what was saved, under whatever layout; returns the state that was saved.

    Raises InputError for a directory that is no checkpoint, or one of another model or other data.
    """
    try:
        state: dict[str, Any] = json.loads((folder / "state.json").read_text())
        head, saved = (state["format"], state["version"]), dict(state["settings"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise _not_whole(folder, error) from None
    if head != (FORMAT, VERSION):
        raise InputError(f"{folder} is a checkpoint of another program or version, {head}; this one reads its own")
    other = [name for name, value in asdict(settings).items() if saved.get(name) != value]
    if other:
        told = ", ".join(f"{name} {saved.get(name)} there, {getattr(settings, name)} here" for name in other)
        raise InputError(f"{folder} was saved with other settings: {told}; resume with those it was saved with")
    try:
        for bucket in optimizer.buckets:
            for kind in KINDS:
                flat = bucket.empty()
                for weight, view in zip(bucket.weights, bucket.views(flat)):
                    whole = numpy.load(_path(folder, kind, weight), mmap_mode="r")
                    view.copy_(torch.from_numpy(whole[weight.slices].copy()))
                bucket.keep(kind, flat)
    except (OSError, ValueError, RuntimeError) as error:
        raise _not_whole(folder, error) from None
    return state


def _not_whole(folder: Path, error: Exception) -> InputError:
    return InputError(f"{folder} is no whole checkpoint: {error}; give a directory that --save has written")


def _path(folder: Path, kind: str, weight: Weight) -> Path:
    return folder / kind / f"{weight.name}.npy"
