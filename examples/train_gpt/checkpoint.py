"""Checkpoints that know no layout: each array whole, in one file, into which every owner writes its part.

    DIR/state.json                  step, data state, settings
    DIR/{weight,first,second}/NAME.npy

A directory is complete when it has its name; until then it is called DIR.part.  The one before is called DIR.old for
the moment in which the new one takes its place.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist

from rankatlas.errors import InputError, shown
from train_gpt.settings import Settings
from train_gpt.weights import Weight
from train_gpt.zero import KINDS, Optimizer

STATE = "state.json"
FORMAT, VERSION = "rankatlas.example.checkpoint", 1


def refuse_to_replace(text: str) -> None:
    """Raise InputError where a checkpoint saved under this name would delete something that is none."""
    if not text:
        raise InputError("--save needs the name of a directory, such as runs/first")
    folder = Path(text).resolve()
    for there in (folder, _beside(folder, "part"), _beside(folder, "old")):
        whole = there.exists() and not there.is_dir()
        names = [there.name] if whole else os.listdir(there) if there.exists() else []
        strange = [name for name in names if whole or name not in (*KINDS, STATE)]
        if strange:
            raise InputError(
                f"--save {shown(text)} would delete {there}, which holds {shown(sorted(strange))} and is no checkpoint;"
                " give a new directory, or one that --save has written"
            )


def _beside(folder: Path, what: str) -> Path:
    return folder.parent / f"{folder.name}.{what}"


def _wait() -> None:
    if dist.is_initialized():
        dist.barrier()


def save(folder: Path, settings: Settings, optimizer: Optimizer, rank: int, state: dict[str, Any]) -> None:
    """Write everything a run goes on from; `state` is plain data.  Every rank calls it."""
    folder = folder.resolve()
    part, old = _beside(folder, "part"), _beside(folder, "old")
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
                _allocate(_path(part, kind, weight))
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
        (part / STATE).write_text(json.dumps(head | state, indent=1))
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    _wait()


def _allocate(path: Path) -> None:
    """Raise OSError where there is no room: a page of a map that finds none would end the process."""
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)


def load(folder: Path, settings: Settings, optimizer: Optimizer) -> dict[str, Any]:
    """Give the optimizer its parts of what was saved, under whatever layout; returns the state that was saved.

    Raises InputError on all ranks for a directory that is no checkpoint, or one of another model or other data.
    """
    state, refusal = None, ""
    try:
        state = _state(folder, settings)
        for bucket in optimizer.buckets:
            for kind in KINDS:
                flat = bucket.empty()
                for weight, view in zip(bucket.weights, bucket.views(flat)):
                    view.copy_(torch.from_numpy(_whole(folder, kind, weight)[weight.slices].copy()))
                bucket.keep(kind, flat)
    except InputError as error:
        refusal = str(error)
    # Ranks read other files: who cannot read one must not leave the others waiting for it without a reason.
    refusals = [refusal]
    if dist.is_initialized():
        refusals *= dist.get_world_size()
        dist.all_gather_object(refusals, refusal)
    if state is None or any(refusals):
        raise InputError(next(filter(None, refusals)))
    return state


def _state(folder: Path, settings: Settings) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads((folder / STATE).read_text())
        head, saved = (state["format"], state["version"]), dict(state["settings"])
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _not_whole(folder, error) from None
    if head != (FORMAT, VERSION):
        raise InputError(f"{folder} is a checkpoint of another program or version, {head}; this one reads its own")
    other = [name for name, value in asdict(settings).items() if saved.get(name) != value]
    if other:
        told = ", ".join(f"{name} {saved.get(name)} there, {getattr(settings, name)} here" for name in other)
        raise InputError(f"{folder} was saved with other settings: {told}; resume with those it was saved with")
    if type(state.get("step")) is not int or state["step"] < 0 or "data" not in state:
        raise _not_whole(folder, f"its step is {shown(state.get('step'))}, its data {shown(state.get('data'))}")
    return state


def _whole(folder: Path, kind: str, weight: Weight) -> numpy.ndarray[Any, Any]:
    try:
        whole: numpy.ndarray[Any, Any] = numpy.load(_path(folder, kind, weight), mmap_mode="r")
    except (OSError, EOFError, ValueError) as error:
        raise _not_whole(folder, f"{kind}/{weight.name}.npy: {error}") from None
    if whole.shape != weight.shape or whole.dtype != numpy.float64:  # another shape may well fit by being repeated
        raise _not_whole(
            folder, f"{kind}/{weight.name}.npy is {whole.dtype} {whole.shape}, and float64 {weight.shape} was saved"
        )
    return whole


def _not_whole(folder: Path, error: object) -> InputError:
    return InputError(f"{folder} is no whole checkpoint: {error}; give a directory that --save has written")


def _path(folder: Path, kind: str, weight: Weight) -> Path:
    return folder / kind / f"{weight.name}.npy"
