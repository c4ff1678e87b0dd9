"""Sizes against the number of ranks, sizes nobody chose, and settings nobody reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import islice
from itertools import product as combined
from math import log, prod
from typing import Any

from rankatlas.catalogue import Said, said, sentence_of
from rankatlas.checks.finding import Finding, Fix
from rankatlas.checks.numbers import Numbers, divisors_shown
from rankatlas.core.axis_errors import MOST_RANKS
from rankatlas.derived import DATA_AXES
from rankatlas.errors import ArgumentsError, DegreeError, WorldSizeError

_MOST_NEAR = 3  # divisors tried on either side of a size
_MOST_SIZES = 512  # combinations of sizes looked at for ones that fit everything
_SAID_ELSEWHERE = ("seeds.other", "noted.etp")  # by RA181 and RA112
# A name or a value that may be wrong.
_MISSPELT = ("unread.near", "unread.refused", "unread.setting", "unread.number", "unread.more")
_UNREAD = ("not understood", "left out", "ignored", "no effect")  # words of a third party's reader


def product(error: WorldSizeError) -> Finding:
    """The finding for sizes that are not the world's: RA101 when none is open, RA102 when the open one has no size.

    >>> from rankatlas import parse_mesh
    >>> try:
    ...     parse_mesh("dp=? tp=2 pp=3", 8)
    ... except WorldSizeError as problem:
    ...     finding = product(problem)
    >>> finding.code, finding.numbers["remainder"], [dict(fix.changes) for fix in finding.fixes[:2]]
    ('RA102', 2, [{'pp': 2, 'dp': 2}, {'pp': 4, 'dp': 1}])
    """
    factors = [(str(axis), int(size)) for axis, size in getattr(error, "factors", ())]
    total = error.product if isinstance(error.product, int) else prod(size for _, size in factors)
    world = error.world_size or 0
    unset = getattr(error, "open_axis", None)
    told = " × ".join(f"{axis}={size}" for axis, size in factors if size > 1)
    numbers = {
        "factors": told or "1",
        "taken": _taken(told, total),
        "product": total,
        "world": world,
        "remainder": error.remainder,
        "nearest": list(error.nearest_worlds),
        "axis": unset or "dp",
        "sizes": dict(factors),
    }
    open_size = unset is not None or (total and world % total != 0 and "no size" in str(error))
    fixes = [Fix(fix) for fix in error.fixes]
    fixes += [Fix({"world": near}) for near in error.nearest_worlds[:2] if near <= MOST_RANKS]
    return Finding("RA102" if open_size else "RA101", "error", numbers, fixes)


def by_role(numbers: Numbers, sizes: Mapping[str, Any], world: int | None) -> dict[str, Any]:
    """The sizes of axes under the names of their roles, those that are not among them as the layout has them.

    >>> from rankatlas import Mesh
    >>> from rankatlas.job import Job
    >>> numbers = Numbers.of(Job(Mesh(pp=2, dp=2, sharding=2, mp=2), format="paddlenlp-2.8", source=""))
    >>> by_role(numbers, {"pp": 4, "sharding": 1}, 16)
    {'pp': 4, 'tp': 2, 'cp': 1, 'sep': 1, 'dp': 2, 'other': 1, 'world': 16}
    """
    mesh = numbers.mesh
    found = {
        role: prod(
            sizes.get(axis) or (mesh.size(axis) if mesh is not None else 1) for axis in numbers.axes.get(role, ())
        )
        for role in ("pp", "tp", "cp", "sep", "dp")
    }
    known = [axis for axes in numbers.axes.values() for axis in axes]
    rest = [axis for axis in (mesh.axes if mesh is not None else ()) if axis not in known]
    found["other"] = prod(sizes.get(axis) or (mesh.size(axis) if mesh is not None else 1) for axis in rest)
    if "dp_replicate" in numbers.axes.get("dp", ()):
        found["replicas"] = sizes.get("dp_replicate") or numbers["replicas"]
    return {**found, "world": world}


def other_sizes(error: WorldSizeError) -> Iterator[Fix]:
    """Sizes that multiply to the world, nearest first; the open or data axis takes what the others leave.

    Cost: O(divisors of the world), bounded.

    >>> from rankatlas import parse_mesh
    >>> try:
    ...     parse_mesh("dp=? tp=8 pp=4", 120)
    ... except WorldSizeError as problem:
    ...     dict(next(other_sizes(problem)).changes)
    {'tp': 8, 'pp': 5, 'dp': 3}
    """
    sizes, world = dict(error.factors), error.world_size or 1
    rest = getattr(error, "open_axis", None) or next((axis for axis in sizes if axis in DATA_AXES), None)
    if rest is None:
        return
    whole = divisors_shown(world)
    choices = []
    for axis, size in sizes.items():
        if axis != rest:
            at = bisect_left(whole, size)
            choices.append([(axis, near) for near in whole[max(0, at - _MOST_NEAR) : at + _MOST_NEAR]])
    found = []
    for chosen in islice(combined(*choices), _MOST_SIZES):
        taken = prod(size for _, size in chosen)
        if world % taken == 0:
            found.append(
                (sum(abs(log(size / sizes[axis])) for axis, size in chosen), {**dict(chosen), rest: world // taken})
            )
    for _, changes in sorted(found, key=lambda one: one[0]):
        yield Fix(changes)


def changed_sizes(asked: Mapping[str, Any], changes: Mapping[str, Any]) -> int:
    """How many of the sizes asked for a change makes others; one that was left open follows by itself.

    >>> changed_sizes({"tp": 4, "world": 32, "dp": None}, {"world": 40, "tp": 4, "dp": 10})
    1
    """
    return sum(asked.get(name) not in (None, size) for name, size in changes.items())


def _taken(factors: str, product: int) -> str:
    """What sizes make together, which needs no word where there is one of them."""
    if "×" not in factors:
        return factors or str(product)
    return f"{factors} = {product:,}" if product >= 10**5 else f"{factors} = {product}"


def degree(error: DegreeError) -> Finding:
    """RA107: a size that a reader found not to divide its ranks, where no other code is about it."""
    legal = list(error.legal)
    numbers = {
        "name": error.name,
        "size": error.size,
        "ranks": error.ranks,
        "remainder": error.remainder,
        "legal": legal,
        "told": getattr(error, "told", said("ranks.some")),
    }
    below = [value for value in legal if value < error.size]
    return Finding("RA107", "error", numbers, [Fix({error.name: value}) for value in below[-1:]])


def contradiction(error: ArgumentsError) -> Finding:
    """RA108: settings that a framework takes in no combination; `names` are their keys.

    >>> contradiction(ArgumentsError("a=1 needs b", names=("a", "b"))).message
    'a=1 needs b'
    """
    sentence = sentence_of(error)
    detail = sentence if isinstance(sentence, Said) else str(error).replace("\n", "; ")
    return Finding("RA108", "error", {"detail": detail, "names": list(error.names)})


def product_of(numbers: Numbers) -> Iterator[Finding]:
    """RA101 for numbers that were never made a mesh."""
    if numbers.mesh is not None or numbers.get("world") is None or numbers.get("dp") is None:
        return
    sizes = {name: numbers[name] for name in ("pp", "dp", "cp", "sep", "tp", "other") if numbers[name] > 1}
    total, world = prod(sizes.values()), numbers["world"]
    if total != world:
        told = " × ".join(f"{name}={size}" for name, size in sizes.items())
        yield Finding(
            "RA101",
            "error",
            {
                "factors": told or "1",
                "taken": _taken(told, total),
                "product": total,
                "world": world,
                "remainder": world % total,
                "nearest": [total],
                "axis": "dp",
                "sizes": sizes,
            },
            [Fix({"world": total})],
        )


def defaults(numbers: Numbers) -> Iterator[Finding]:
    """RA103: a size above 1 that nobody gave."""
    for name in ("pp", "tp", "cp", "sep", "ep", "rollout_tp"):
        origin = numbers.origin(name)
        fits = name != "rollout_tp" or (numbers.get("rollout_world") or numbers["world"]) % numbers[name] == 0
        if numbers[name] > 1 and origin.startswith("default") and fits:  # RA160 says it where it does not
            yield Finding(
                "RA103",
                "note",
                {"size": numbers.label(name), "origin": origin, "name": name, "value": numbers[name]},
                [Fix({name: numbers[name]}), *(Fix({name: 1}) for _ in range(name != "ep"))],
            )


def sharding(numbers: Numbers) -> Iterator[Finding]:
    """RA103: PaddleFormers shards unless told not to, and sharding then takes the ranks that dp would have."""
    fact, mesh = numbers.facts.get("zero_stage"), numbers.mesh
    if fact is None or mesh is None or "sharding" not in mesh.axes or not fact.origin.startswith("default"):
        return
    if mesh.size("sharding") > 1 and not numbers.told("sharding").startswith("given"):
        size = f"sharding={mesh.size('sharding')}"
        facts = {"size": size, "origin": fact.origin, "name": "zero_stage", "value": fact.value}
        yield Finding("RA103", "note", facts, [Fix({"zero_stage": fact.value})])


def other_world(note: Said, asked: int | None = None) -> Finding:
    """RA100: the world size given is not the one that the source itself says; `asked` where it was read for another."""
    found = note.numbers["found"]
    facts = {"found": found, "origin": note.numbers["origin"], "asked": asked or note.numbers["asked"]}
    return Finding("RA100", "warning", facts, [Fix({"world": found}, [f"--world-size {found}"])])


def unread(numbers: Numbers) -> Iterator[Finding]:
    """RA104 for names that a reader left out, RA105 for what else it says, RA109 for options that exclude each other.

    RA100 for a world size that contradicts the source, RA174 for a launcher that contradicts Slurm.
    """
    for note in numbers.notes:
        if not isinstance(note, Said):
            lost = misspelt = any(words in note for words in _UNREAD)
        elif note.kind == "exclude":
            yield Finding("RA109", "error", {"names": note.numbers["names"]})
            continue
        elif note.kind == "placed":
            yield Finding("RA174", "warning", {"detail": note})
            continue
        elif note.code == "world.other":
            yield other_world(note)
            continue
        elif note.code in _SAID_ELSEWHERE:
            continue
        else:
            lost = note.kind in ("unread", "ignored")
            misspelt = note.code in _MISSPELT
        severity = "error" if getattr(note, "code", "") == "unread.refused" else "warning" if lost else "note"
        yield Finding("RA104" if misspelt else "RA105", severity, {"note": note})


def unsharded(numbers: Numbers) -> Iterator[Finding]:
    """RA106: a sharding degree that Paddle's trainer is given while sharding itself is off.

    Source: `__post_init__` in paddleformers/trainer/training_args.py (1.2), which warns.
    """
    mesh = numbers.mesh
    if mesh is None or not numbers.format.startswith(("paddlenlp", "paddleformers")) or numbers.get("zero_stage"):
        return
    size = mesh.size("sharding") if "sharding" in mesh.axes else 1
    if size > 1 and numbers.told("sharding").startswith("given"):
        facts = {"setting": f"sharding={size}", "reason": 'sharding=""', "name": "sharding"}
        yield Finding("RA106", "warning", facts, [Fix({"zero_stage": 1})])


def idle(numbers: Numbers) -> Iterator[Finding]:
    """RA106: settings that change nothing beside the others.

    Megatron turns sequence parallelism off where tp is 1 (validate_args in megatron/training/arguments.py, 0.16).
    """
    asked = numbers.value("sequence_parallel") is True and numbers.origin("sequence_parallel").startswith("given")
    if asked and numbers["tp"] == 1 and numbers.format.startswith(("megatron", "paddle")):
        facts = {"setting": "sequence_parallel=true", "reason": numbers.label("tp"), "name": "sequence_parallel"}
        yield Finding("RA106", "note", facts, [Fix({"sequence_parallel": False})])
    if numbers.get("microbatch_group") and (numbers.get("virtual_stages") or 1) == 1 and numbers.written("megatron"):
        setting = f"microbatch_group={numbers['microbatch_group']}"
        reason = f"virtual_stages={numbers['virtual_stages']}"
        yield Finding("RA106", "warning", {"setting": setting, "reason": reason, "name": "microbatch_group"})
    if numbers["pp"] == 1:
        for name in ("virtual_stages", "first_stage_layers", "last_stage_layers"):
            value = numbers.get(name)
            if numbers.written("megatron"):
                continue  # which refuses them: RA135, RA131
            if value is not None and not (name == "virtual_stages" and value == 1):
                yield Finding(
                    "RA106",
                    "warning",
                    {"setting": f"{name}={value}", "reason": "pp=1", "name": name},
                    [Fix({name: 1})] if name == "virtual_stages" else [],
                )
    if numbers["ep"] == 1 and numbers.get("etp") not in (None, 1, numbers["tp"]) and numbers.get("experts") is None:
        yield Finding("RA106", "warning", {"setting": numbers.label("etp"), "reason": "ep=1", "name": "etp"})


def legal_sizes(size: int, wanted: int) -> list[int]:
    """The sizes an axis of `wanted` can have so that it divides `size`, those that also divide `wanted` first.

    >>> legal_sizes(28, 8)
    [4, 2, 1]
    """
    found = [value for value in divisors_shown(wanted) if size % value == 0]
    return found[::-1]
