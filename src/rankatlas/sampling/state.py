"""The state of a sampler: how much of which order was read.  No rank and no layout is in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankatlas.batches import BatchPlan
from rankatlas.core.border import as_int
from rankatlas.core.sizes import divisors
from rankatlas.errors import DataResumeError, InputError, shown
from rankatlas.sampling.order import VERSION, order_epoch, order_seed, samples

KEYS = ("epoch", "consumed", "seed", "n", "global_batch", "version")
# What `load_state_dict` does where a state cannot simply be gone on from.
_NONE = "this is no state of a ShardedSampler"
POLICIES = ("exact", "continue", "restart_step", "restart_epoch", "next_epoch")


def state_of(epoch: int, consumed: int, seed: int | None, n: int, global_batch: int) -> dict[str, Any]:
    """The state as plain data.

    >>> state_of(1, 64, 7, 1000, 16)
    {'epoch': 1, 'consumed': 64, 'seed': 7, 'n': 1000, 'global_batch': 16, 'version': 1}
    """
    return dict(zip(KEYS, (epoch, consumed, seed, n, global_batch, VERSION)))


def resumed(
    state: object, own: Mapping[str, Any], plan: BatchPlan, length: int, policy: str
) -> tuple[int, int, int | None]:
    """(epoch, consumed, seed) with which a sampler that is set up as `own` says goes on from `state`.

    `length` is the positions of an epoch.  Raises DataResumeError, InputError (a policy of another name).

    >>> own = state_of(0, 0, 7, 1000, 16)
    >>> resumed(state_of(1, 64, 7, 1000, 16), own, BatchPlan(16, 2, 4), 992, "exact")
    (1, 64, 7)
    """
    if policy not in POLICIES:
        raise InputError(f"the policy for a state is {', '.join(POLICIES)}, not {shown(policy)}")
    saved = checked_state(state)
    changed = {key: (saved[key], own[key]) for key in ("n", "seed", "global_batch") if saved[key] != own[key]}
    if policy == "restart_epoch":
        return saved["epoch"], 0, own["seed"]
    if policy == "next_epoch":
        return saved["epoch"] + 1, 0, own["seed"]
    hindrance = _hindrance(saved, changed, plan, length, policy)
    if changed and policy != "continue":
        why = f"{_told(changed)}, so this state has no place in this sampler's order"
        raise _refusal(why, saved, changed, goes_on=_hindrance(saved, changed, plan, length, "continue") is None)
    if hindrance is not None:
        raise _refusal(hindrance, saved, changed)
    consumed = saved["consumed"]
    rest = consumed % plan.global_batch
    return saved["epoch"], consumed - rest if policy == "restart_step" else consumed, saved["seed"]


def _hindrance(
    saved: Mapping[str, Any], changed: Mapping[str, Any], plan: BatchPlan, length: int, policy: str
) -> str | None:
    """Why there is no going on from a state under `policy`, also with what has changed, or None."""
    if "n" in changed or ("seed" in changed and None in changed["seed"]):
        return f"{_told(changed)}: there is no going on in an order that is another one"
    consumed = saved["consumed"]
    if consumed > length:
        return f"{consumed} samples are consumed of an epoch that has {length} here"
    rest = consumed % plan.global_batch
    if "global_batch" in changed and rest:
        legal = [size for size in divisors(consumed) if size % plan.micro_step == 0]
        near = sorted(legal, key=lambda size: abs(size - plan.global_batch))[:4]
        return (
            f"{_told(changed)}, and the {consumed} samples consumed are no whole number of the new batches"
            f" (remainder {rest}); global batches that go on here: {', '.join(map(str, sorted(near))) or 'none'}"
        )
    if rest % plan.micro_step and policy != "restart_step":
        left = plan.global_batch - rest
        return (
            f"this state is {rest} samples into a global batch of {plan.global_batch}, and the {left} that are left"
            f" cannot be shared by micro batch {plan.micro_batch} × data size {plan.data_size} = {plan.micro_step}"
            f" (remainder {left % plan.micro_step})\npolicy='restart_step' begins this batch anew, which is right where"
            " the gradients of its first part are lost"
        )
    return None


def checked_state(state: object) -> dict[str, Any]:
    """The values of a state as plain ints, once it is one of ours.  Raises DataResumeError.

    >>> checked_state({**state_of(1, 64, 7, 1000, 16), "by": "somebody"})
    {'epoch': 1, 'consumed': 64, 'seed': 7, 'n': 1000, 'global_batch': 16, 'version': 1}
    """
    if not isinstance(state, Mapping):
        raise _bad(f"{_NONE}: it is a mapping with {', '.join(KEYS)}, and not {shown(state)}", state)
    missing = [key for key in KEYS if key not in state]
    if missing:
        raise _bad(
            f"{_NONE}: it lacks {', '.join(missing)}; its keys are"
            f" {shown([*state])}.  Per-rank states of other loaders: see check_loader_states",
            state,
        )
    try:
        saved: dict[str, Any] = {
            key: None if key == "seed" and state[key] is None else as_int(state[key], key) for key in KEYS
        }
        for key, check in (("epoch", order_epoch), ("n", samples), ("seed", order_seed)):
            if saved[key] is not None:
                check(saved[key])
    except InputError as error:
        raise _bad(f"{_NONE}, or a damaged one: {error}", state) from None
    if saved["version"] != VERSION:
        raise _bad(
            f"this state has version {saved['version']}, and this release makes the orders of version {VERSION}: its"
            " samples would come in another order\ngo on with the release that saved it, or begin an epoch anew",
            state,
        )
    wrong = [f"{key} = {saved[key]}" for key in ("consumed", "global_batch") if saved[key] < (key == "global_batch")]
    if wrong:
        raise _bad(f"{_NONE}, or a damaged one: {', '.join(wrong)}", state)
    return saved


def _told(changed: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{key} was {was} and is {now}" for key, (was, now) in changed.items())


def _refusal(
    why: str, saved: Mapping[str, Any], changed: Mapping[str, tuple[Any, Any]], *, goes_on: bool = False
) -> DataResumeError:
    ways = "policy='restart_epoch' reads this epoch again from its start, 'next_epoch' leaves the rest of it out"
    if goes_on:
        ways += ", 'continue' keeps the saved seed and the position"
    return DataResumeError(
        f"{why}\n{ways}", state=dict(saved), changed=dict(changed), orphaned_states=[], missing_states=[]
    )


def _bad(why: str, state: object) -> DataResumeError:
    kept = dict(state) if isinstance(state, Mapping) else None
    return DataResumeError(why, state=kept, changed={}, orphaned_states=[], missing_states=[])
