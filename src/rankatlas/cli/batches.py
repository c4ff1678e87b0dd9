"""`rankatlas batches`: who reads which samples, each proven to be read once; or what is wrong with a sampler."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import product
from typing import Any

import click
from click.core import ParameterSource

from rankatlas.cli.common import axes_given, leave, print_json, read, source_options, strict_option, tell_notes
from rankatlas.cli.streams import say
from rankatlas.core import Mesh
from rankatlas.core.sizes import checked_size
from rankatlas.derived import data_axes
from rankatlas.errors import InputError, shown
from rankatlas.job import Job
from rankatlas.sampling import DataShard, ShardedSampler
from rankatlas.sampling.sampler import TAILS
from rankatlas.sampling.shard import DEFAULT_AXES
from rankatlas.sampling.state import POLICIES, checked_state
from rankatlas.views.text import members, table

_PAGE = 16  # data ranks that are listed
_SAMPLES = 8  # samples of a micro-batch that are listed
_PROVEN_UNASKED = 1 << 22  # positions that take a second or two
_MOST_DATA_RANKS = 1 << 16  # of which a proof goes through every one
_WAYS = (
    "give --samples and the --batch whose rest of {} samples fills none",
    "give --samples, the --batch that {} more samples fill up, and --tail pad",
)
# Options that say nothing beside another one, or without it.
_EXCLUDED = (
    *product(("check",), ("seed", "no_shuffle", "epoch", "policy", "micro", "prove", "rank")),
    ("resume", "epoch"),
    ("no_shuffle", "seed"),
)
_NEEDED = (("policy", "resume"),)


@click.command(
    name="batches",
    epilog="Examples: rankatlas batches 'pp=2 dp=4 tp=2' --samples 1000 --batch 64 --micro 4;"
    " rankatlas batches 'dp=6 tp=2' --micro 4 --resume state.json; rankatlas batches 'dp=4 tp=2' --check samples.json",
)
@click.argument("words", nargs=-1, required=True, metavar="LAYOUT")
@source_options
@click.option("--samples", "-s", type=int, metavar="N", help="Samples of the data set.")
@click.option("--batch", "-b", type=int, metavar="B", help="Global batch, in samples; by default the configuration's.")
@click.option("--micro", "-m", type=int, metavar="M", help="Micro batch, in samples; by default the configuration's.")
@click.option("--data", "axes", multiple=True, metavar="AXES", help="Data axes, such as dp,sharding (the default).")
@click.option("--seed", type=int, metavar="S", help="Seed of the order; by default the configuration's, else 0.")
@click.option("--no-shuffle", is_flag=True, help="Read in the order of the data.")
@click.option("--tail", type=click.Choice(TAILS), default="drop", show_default=True, help="What fills no batch.")
@click.option("--epoch", type=int, default=0, show_default=True, help="The epoch that is shown.")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="What this rank reads, and no other.")
@click.option("--resume", metavar="STATE.json", help="Go on from this state of a ShardedSampler.")
@click.option("--policy", type=click.Choice(POLICIES), default="exact", show_default=True, help="With --resume.")
@click.option("--check", metavar="SAMPLES.json", help="Hold samples by rank, {rank: [samples]}, against LAYOUT.")
@click.option("--prove", is_flag=True, help="Prove the whole epoch, however long it is.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@strict_option
@click.pass_context
def command(
    ctx: click.Context,
    words: tuple[str, ...],
    world_size: int | None,
    format: str | None,
    samples: int | None,
    batch: int | None,
    micro: int | None,
    axes: tuple[str, ...],
    seed: int | None,
    no_shuffle: bool,
    tail: str,
    epoch: int,
    rank: int | None,
    resume: str | None,
    policy: str,
    check: str | None,
    prove: bool,
    as_json: bool,
    strict: bool,
) -> None:
    """Which data rank of LAYOUT reads which samples, proven to be each read once.

    With --check, what a sampler of your own gave each rank is held against LAYOUT instead; exit code 1 where samples
    are read twice or never, or peers disagree.
    """
    _refuse_useless(ctx)
    _need_numpy()
    state = checked_state(_content(resume)) if resume is not None else {}
    job = read(words, format, world_size)
    tell_notes(job)
    shard = DataShard(job.layout, axes_given(axes) if axes else _data_axes(job))
    if check is not None:
        if state:
            samples, batch = _of_state(state, samples, batch)
        batch = _setting(batch, None, job, "global_batch")
        leave(ctx, [job], strict, _check(check, shard, samples, batch, tail, as_json))
    batch = _setting(batch, state.get("global_batch"), job, "global_batch")
    micro = _setting(micro, None, job, "micro_batch")
    accumulation = _setting(None, None, job, "accumulation")
    if batch is None and micro is not None and accumulation is not None:
        batch = micro * accumulation * shard.data_size
    samples = state.get("n") if samples is None else samples
    missing = [
        f"--{name}" for name, value in (("samples", samples), ("batch", batch), ("micro", micro)) if value is None
    ]
    if missing:
        raise InputError(f"{', '.join(missing)} must be given: LAYOUT says nothing of it")
    if seed is None:
        seed = state.get("seed") if state else job.seed
    setup = {
        "global_batch": batch,
        "micro_batch": micro,
        "seed": 0 if seed is None else seed,
        "shuffle": not (no_shuffle or (bool(state) and state.get("seed", 0) is None)),
        "tail": tail,
    }

    def sampler(data_rank: int) -> ShardedSampler:
        made = ShardedSampler(samples, shard, shard.ranks(data_rank)[0], **setup)  # type: ignore[arg-type]
        made.set_epoch(epoch)
        if resume is not None:
            made.load_state_dict(state, policy)
        return made

    first = sampler(0)
    positions = first.micro_batches * first.plan.micro_step
    proof = None
    unproven = "" if prove else _unproven(shard, positions)
    if not unproven:
        proof = _prove([sampler(rank) for rank in range(_few_enough(shard))], positions)
    shown_ranks = range(min(shard.data_size, _PAGE)) if rank is None else [shard.data_rank(rank)]
    rows = [_row(sampler(rank)) for rank in shown_ranks]
    facts = _facts(job, shard, first, positions, proof, rows)
    if rank is not None:
        facts["rank"] = rank
    if as_json:
        print_json(facts)
    else:
        say("\n".join(_lines(first, facts, unproven)))
    leave(ctx, [job], strict)


def _need_numpy() -> None:
    try:
        import numpy  # noqa: F401
    except ModuleNotFoundError:
        raise InputError("rankatlas batches needs numpy: pip install rankatlas[numpy]") from None


def _data_axes(job: Job) -> tuple[str, ...]:
    """The data axes of a job whose framework is known, whatever it calls them; of other layouts the default."""
    mesh = job.layout
    if job.format in ("notation", "rankatlas") or not isinstance(mesh, Mesh):
        return DEFAULT_AXES
    axes = tuple(axis for axis in data_axes(mesh) if mesh.size(axis) > 1)
    return axes if any(axis not in DEFAULT_AXES for axis in axes) else DEFAULT_AXES


def _refuse_useless(ctx: click.Context) -> None:
    """Raise UsageError where an option would be given and change nothing."""

    def given(name: str) -> bool:
        return ctx.get_parameter_source(name) is not ParameterSource.DEFAULT

    def option(name: str) -> str:
        return f"--{name.replace('_', '-')}"

    for name, useless in _EXCLUDED:
        if given(name) and given(useless):
            raise click.UsageError(f"{option(useless)} says nothing beside {option(name)}: leave one of them out", ctx)
    for name, needed in _NEEDED:
        if given(name) and not given(needed):
            raise click.UsageError(f"{option(name)} says nothing without {option(needed)}", ctx)
    for name in ("batch", "tail"):
        if given("check") and given(name) and not (given("samples") or given("resume")):
            raise click.UsageError(
                f"--{name} says nothing beside --check without --samples, whose rest it is about", ctx
            )


def _content(path: str) -> Any:
    """Whatever the JSON in `path` is."""
    from rankatlas.dialects.content import parse
    from rankatlas.dialects.sources import read_text

    return parse(read_text(path).strip(), path)


def _of_state(state: Mapping[str, Any], samples: int | None, batch: int | None) -> tuple[int, int]:
    """The samples and the global batch of a state, for a check; options that say something else are refused."""
    for name, given, saved in (("samples", samples, state["n"]), ("batch", batch, state["global_batch"])):
        if given not in (None, saved):
            raise InputError(
                f"--{name} is {given}, and in the state of --resume it is {saved}; leave one of the two out"
            )
    say(f"note: samples {state['n']} and global batch {state['global_batch']} are those of the state", err=True)
    return state["n"], state["global_batch"]


def _setting(given: int | None, saved: object, job: Job, setting: str) -> Any:
    """The option as given, else what a saved state says, else what the configuration says."""
    if given is not None:
        return given
    fact = job.settings.get(setting)
    return saved if saved is not None or fact is None else fact.value


def _check(path: str, shard: DataShard, samples: int | None, batch: int | None, tail: str, as_json: bool) -> int:
    """Hold what a sampler gave against the layout and print what was found; the exit code."""
    from rankatlas.sampling.coverage import examined

    given = _content(path)
    if not isinstance(given, Mapping):
        raise InputError(f"{shown(path)} holds no samples by rank: it must be a JSON object, not {shown(given)}")
    if batch is not None:
        batch = checked_size("batch", batch, label="the global batch")
    rest = samples % batch if samples and batch else 0
    allowed: dict[str, Any] = (
        {"dropped": rest} if tail == "drop" else {"padded": (batch or 0) - rest if rest and tail == "pad" else 0}
    )
    found = examined(given, shard, samples, ways=_WAYS, **allowed)
    if as_json:
        print_json({"notation": str(shard.mesh), "data_axes": list(shard.axes), **found.to_dict()})
    else:
        say("\n".join(found.lines()))
    return 0 if found.ok else 1


def _unproven(shard: DataShard, positions: int) -> str:
    """Why an epoch is not proven unasked, or nothing."""
    if shard.data_size > _MOST_DATA_RANKS:
        return f"{shard.data_size:,} data ranks; a proof goes through at most {_MOST_DATA_RANKS:,}"
    if positions > _PROVEN_UNASKED:
        return f"{positions:,} positions; --prove goes through every one"
    return ""


def _few_enough(shard: DataShard) -> int:
    if shard.data_size > _MOST_DATA_RANKS:
        raise InputError(
            f"{shard.data_size:,} data ranks are too many to prove each; {_MOST_DATA_RANKS:,} are the most"
        )
    return shard.data_size


def _prove(samplers: list[ShardedSampler], positions: int) -> int:
    """The number of positions proven; on a terminal with a bar that grows, when it takes a while."""
    from rankatlas.sampling.proof import proven

    done = 0
    if positions <= _PROVEN_UNASKED or not sys.stderr.isatty():
        return max(proven(samplers))
    with click.progressbar(length=positions, label="proving", file=sys.stderr) as bar:
        for reached in proven(samplers):
            bar.update(reached - done)
            done = reached
    return done


def _row(sampler: ShardedSampler) -> dict[str, Any]:
    """Who reads the next micro-batch of a data rank, and what it is."""
    taken = sampler.consumed // sampler.plan.micro_step
    shard, rank = sampler.shard, sampler.data_rank
    ranks = shard.ranks(rank)
    row: dict[str, Any] = {"data_rank": rank, "ranks": ranks, "positions": None, "samples": []}
    if len(sampler) and sampler.plan.micro_batch <= 1 << 20:
        places = sampler.positions(taken, 1)[0]
        row["positions"] = [int(places[0]), int(places[-1])]
        row["samples"] = sampler.indexes(taken, 1)[0][:_SAMPLES].tolist()
    return row


def _facts(
    job: Job, shard: DataShard, first: ShardedSampler, positions: int, proof: int | None, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "notation": str(job.layout),
        "data_axes": list(shard.axes),
        "data_size": shard.data_size,
        "ranks_per_data_rank": shard.agreement_group(shard.mesh.first_rank).size,
        "global_batch": first.plan.global_batch,
        "micro_batch": first.plan.micro_batch,
        "accumulation": first.plan.accumulation,
        "samples": first.order.n,
        "steps": positions // first.plan.global_batch,
        "micro_batches_per_rank": first.micro_batches,
        "dropped": first.dropped,
        "padded": first.padded,
        "proven_positions": proof,
        "next": {
            "step": first.consumed // first.plan.global_batch,
            "micro_step": first.consumed % first.plan.global_batch // first.plan.micro_step,
            "micro_batches_left": len(first),
        },
        "state": first.state_dict(),
        "data_ranks": rows,
    }


def _lines(first: ShardedSampler, facts: dict[str, Any], unproven: str) -> list[str]:
    plan, place, epoch = first.plan, facts["next"], first.epoch
    along = " × ".join(f"{axis}={first.shard.mesh.size(axis)}" for axis in first.shard.axes) or "no data axis"
    same = facts["ranks_per_data_rank"]
    told = [
        f"{facts['notation']}: {plan.data_size} data ranks ({along}), {same} rank{'s read' if same > 1 else ' reads'}"
        " each share",
        f"global batch {plan.global_batch} = micro batch {plan.micro_batch} × accumulation {plan.accumulation} ×"
        f" data size {plan.data_size}; {facts['steps']:,} steps an epoch, {facts['micro_batches_per_rank']:,}"
        " micro-batches on every rank",
        first.tail_told(),
    ]
    if first.consumed:
        told.append(f"{first.consumed:,} samples of epoch {epoch} are consumed")
    proof = facts["proven_positions"]
    if proof is None:
        told.append(f"not proven ({unproven})")
    else:
        what = "once" if not first.padded else f"once and {first.padded} again"
        told.append(f"proven: all {proof:,} positions of epoch {epoch} are read by one data rank, every sample {what}")
    if not len(first):
        return [*told, "", f"epoch {epoch} is at its end"]
    rows = [("data rank", "ranks", "positions", "samples")]
    for row in facts["data_ranks"]:
        span = "-" if row["positions"] is None else f"{row['positions'][0]}-{row['positions'][1]}"
        more = " …" if plan.micro_batch > _SAMPLES else ""
        listed = ", ".join(map(str, row["samples"]))
        rows.append((str(row["data_rank"]), members(row["ranks"], most=_SAMPLES), span, f"{listed}{more}"))
    told += ["", f"next, step {place['step']}, micro-step {place['micro_step']} of epoch {epoch}:", *table(rows)]
    if "rank" in facts:
        told.append(f"rank {facts['rank']} is data rank {facts['data_ranks'][0]['data_rank']} of {plan.data_size}")
    elif plan.data_size > _PAGE:
        told.append(f"{plan.data_size - _PAGE:,} more data ranks")
    return told
