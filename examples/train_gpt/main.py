"""The command line: one launch trains under any number of layouts, one after the other."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rankatlas import Mesh
from rankatlas.errors import InputError, RankatlasError, shown
from rankatlas.live.launch import Launch
from train_gpt.checkpoint import refuse_to_replace
from train_gpt.mistakes import MISTAKES
from train_gpt.settings import Settings, check, mesh_of
from train_gpt.train import Result, Run, train

RUN_TEXTS = ("layout", "split", "save", "resume", "mistake")
UNUSABLE, LOST, INTERRUPTED = 2, 1, 130
SECONDS = 120  # after which a rank gives up on one that says nothing


def parser() -> argparse.ArgumentParser:
    """Every option; those that are not given keep what `Settings` and `Run` say."""
    made = argparse.ArgumentParser(
        prog="train_gpt.py", description="Train a small GPT; the loss of every step is the same under every layout."
    )
    add = made.add_argument
    add("--layout", action="append", metavar="TEXT", help='such as "pp=2 dp=2 tp=2"; give it again for another run')
    add("--runs", type=Path, metavar="FILE", help="JSON: a list of runs, each with layout, steps, save, resume, …")
    add("--steps", type=_natural, help=f"counted from the very beginning; default {Run.steps}")
    add("--micro-batch", type=int, help="samples; by default as many as keep all stages busy")
    add("--split", choices=("contiguous", "balanced"), help="of the sequence along cp")
    add("--save", metavar="DIR", help="write a checkpoint when the steps are done")
    add("--mistake", choices=MISTAKES, help="make one on purpose: the losses must not be the same any more")
    add("--resume", metavar="DIR", help="go on from a checkpoint, of whatever layout")
    for field in fields(Settings):
        kind = type(getattr(Settings, field.name))
        add(f"--{field.name.replace('_', '-')}", type=kind, help=f"default {getattr(Settings, field.name)}")
    add("--every", type=_positive, default=50, help="steps between the lines that are printed; default 50")
    add("--json", type=Path, metavar="FILE", help="write losses, samples and times there")
    return made


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps from 1 on")
    return int(text)


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of steps from 0 on")
    return int(text)


def runs_of(asked: argparse.Namespace) -> list[tuple[Run, dict[str, Any]]]:
    """The runs that are asked for, each with what it sets otherwise in `Settings`.  Raises InputError."""
    known = [field.name for field in fields(Run)]
    common = {name: getattr(asked, name) for name in known if getattr(asked, name, None) is not None}
    given: list[dict[str, Any]] = [{"layout": layout} for layout in asked.layout or []]
    common.pop("layout", None)
    if asked.runs:
        try:
            listed = json.loads(asked.runs.read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{asked.runs} cannot be read as JSON: {error}") from None
        if not isinstance(listed, list) or not all(isinstance(one, dict) and "layout" in one for one in listed):
            raise InputError(f'{asked.runs} must be a list of runs, such as [{{"layout": "pp=2 dp=2 tp=2"}}]')
        given += [{name: value for name, value in one.items() if value is not None} for one in listed]
    if not given:
        given = [{"layout": "dp=?"}]
    kinds = dict.fromkeys(RUN_TEXTS, str) | {"steps": int, "micro_batch": int}
    kinds |= {field.name: type(getattr(Settings, field.name)) for field in fields(Settings)}
    for one in given:
        _refuse_strange(one, kinds)
    return [
        (
            Run(**{**common, **{name: value for name, value in one.items() if name in known}}),
            {name: value for name, value in one.items() if name not in known},
        )
        for one in given
    ]


def _refuse_strange(one: dict[str, Any], kinds: dict[str, type]) -> None:
    strange = [name for name in one if name not in kinds]
    if strange:
        raise InputError(f"a run has no {', '.join(strange)}; it has {', '.join(kinds)}")
    for name, value in one.items():
        if type(value) is not kinds[name] and (kinds[name], type(value)) != (float, int):
            raise InputError(f"{name} of a run is of type {kinds[name].__name__}, not {shown(value)}")
    if one.get("steps", 0) < 0:
        raise InputError(f"steps of a run is {one['steps']}; it must be 0 or more")
    if one.get("mistake") not in (None, *MISTAKES):
        raise InputError(f"there is no mistake {shown(one['mistake'])}; there are {', '.join(MISTAKES)}")


def settings_of(asked: argparse.Namespace, otherwise: dict[str, Any]) -> Settings:
    """The settings of one run."""
    given = {field.name: getattr(asked, field.name) for field in fields(Settings)}
    return Settings(**{**{name: value for name, value in given.items() if value is not None}, **otherwise})


def launched() -> tuple[int, int]:
    """Rank and world size as the launcher said; one process where none has said anything.  Raises LaunchError."""
    if not any(name in os.environ for name in ("RANK", "WORLD_SIZE")):
        return 0, 1
    launch = Launch.detect()
    return launch.rank, launch.world_size


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of it; returns the exit code.  Layouts are checked before any process waits for another."""
    asked = parser().parse_args(arguments)
    torch.set_num_threads(1)  # the ranks share the processors
    try:
        return _run(asked)
    except KeyboardInterrupt:  # also one that came while gloo was waiting, which lets it through only afterwards
        return INTERRUPTED


def _run(asked: argparse.Namespace) -> int:
    rank = 0
    try:
        rank, world = launched()
        work = [(run, mesh_of(run.layout, world), settings_of(asked, otherwise)) for run, otherwise in runs_of(asked)]
        for run, mesh, settings in work:
            check(settings, mesh, run.micro_batch, run.split)
            if run.save is not None:
                refuse_to_replace(run.save)
        if asked.json and not (asked.json.name and asked.json.parent.is_dir() and not asked.json.is_dir()):
            raise InputError(f"--json {shown(str(asked.json))} is no file that can be written; name one in a directory")
        if world > 1:
            dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=SECONDS))
        told: list[dict[str, Any]] = []
        for run, mesh, settings in work:
            result = _one(run, mesh, settings, rank, asked.every)
            told.append(result.told(result.all_samples(rank)))
            if asked.json and rank == 0:  # after each, so that an interrupted launch has told of those before
                _write(asked.json, told)
        if world > 1:
            dist.barrier()
            dist.destroy_process_group()
    except RankatlasError as error:
        if rank == 0 or not isinstance(error, InputError):  # what was asked is the same on every rank
            print(f"train_gpt.py: {error}", file=sys.stderr)
        return UNUSABLE
    except OSError as error:
        print(f"train_gpt.py: {error}", file=sys.stderr)
        return UNUSABLE
    except RuntimeError as error:  # what gloo says when a peer is gone; that one has told why itself, if it could
        print(f"train_gpt.py: rank {rank} stops: {str(error).split('. ')[0]}", file=sys.stderr)
        return LOST
    return 0


def _one(run: Run, mesh: Mesh, settings: Settings, rank: int, every: int) -> Result:
    def tell(step: int, loss: float) -> None:
        if rank == 0 and (step + 1) % every == 0:
            print(f"{run.layout}: step {step + 1}, loss {loss:.9f}", flush=True)

    result = train(run, mesh, settings, rank, tell)
    if rank == 0:
        last = f"last loss {result.losses[-1]:.9f}, " if result.losses else ""
        print(f"{run.layout}: {len(result.losses)} steps of {settings.dtype}, {last}{result.seconds:.1f} s", flush=True)
        if result.audit and not result.audit.ok:
            print(f"{run.layout}: {result.audit.line}", flush=True)
    return result


def _write(path: Path, told: list[dict[str, Any]]) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(told, indent=1))
    part.replace(path)
