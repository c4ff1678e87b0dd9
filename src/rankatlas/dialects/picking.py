"""What several dialects do with given settings: take numbers under other names, find the world, report the rest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any

from rankatlas.catalogue import said
from rankatlas.dialects.given import Given
from rankatlas.dialects.launch_options import waiting
from rankatlas.dialects.slips import with_slips
from rankatlas.errors import DegreeError, SourceError, shown
from rankatlas.job import Fact

_LOOKS_LIKE_A_DEGREE = re.compile(
    r"^(?!virtual_).*(_degree|_parallel_size|_parallel_degree|_group_size|_parallel_shards|_num_weight_shards)$"
)
_MOST_NOTES = 20
_MOST = 1 << 62


def numbers(given: Given, names: Mapping[str, tuple[str, ...]]) -> tuple[list[Fact], list[str]]:
    """The settings of a job that are positive integers, setting → the names (dotted paths) it may have, first wins.

    What is given there and is no such number is noted.

    >>> numbers(Given({"num_layers": 24}, source=""), {"layers": ("num_layers",)})[0]
    [Fact('layers', 24, 'given: num_layers')]
    """
    facts: list[Fact] = []
    notes: list[str] = []
    for setting, paths in names.items():
        for path in paths:
            value = given.at(path)
            if path in given.unresolved:
                waits = [waiting(wait) for wait in given.unresolved[path]]
                notes.append(said("noted.unknown", path=path, waits=waits, setting=setting))
                break
            if value is None or value is False or value in (-1, 0):
                continue
            if isinstance(value, float) and value.is_integer() and 0 < value < _MOST:
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _MOST:
                notes.append(said("unread.number", name=path, value=shown(value)))
                break
            facts.append(Fact(setting, value, given.origin(path)))
            break
    return facts, notes


def refuse_unresolved(given: Given, layout: Iterable[str]) -> None:
    """Raise SourceError when a value that decides groups waits for variables: all of them, and how to give them."""
    waiting = [name for name in layout if name in given.unresolved]
    if not waiting:
        return
    lines = [
        f"line {given.lines.get(name, '?')}: {name} waits for {', '.join(given.unresolved[name])}"
        for name in waiting[:6]
    ]
    names = dict.fromkeys(wait for name in waiting for wait in given.unresolved[name])
    plain = [name.split(",")[0] for name in names]
    offered = " ".join(f"--set {name}=…" for name in plain if re.fullmatch(r"\w+", name))
    direct = " ".join(f"--set {name}=…" for name in waiting[:6])
    raise SourceError(
        f"{shown(given.source)} does not say these values, and nothing in it is executed: {'; '.join(lines)}\n"
        f"give them: {offered or direct}" + (f"; or the options themselves: {direct}" if offered else ""),
        source=given.source,
        unresolved=list(names),
    )


def world_of(
    given: Given, asked: int | None, paths: Iterable[str] = ("world_size",)
) -> tuple[int | None, str, list[str]]:
    """The number of ranks, where it came from, and notes: what was asked for wins over what the source says.

    `paths` are the places in the source that hold it, or several joined by "*" that multiply to it.
    """
    found: tuple[int, str] | None = None
    for path in (*paths, "launcher.world_size"):
        parts = path.split("*")
        sizes = [given.at(part) for part in parts]
        if all(isinstance(size, int) and not isinstance(size, bool) and 0 < size < _MOST for size in sizes):
            product = 1
            for size in sizes:
                product *= size
            origin = reduce(lambda one, other: said("times", first=one, second=other), map(given.origin, parts))
            found = (product, origin)
            break
    if asked is None:
        return (*found, []) if found else (None, "", [])
    if found and found[0] != asked:
        return (
            asked,
            said("given.world_size"),
            [said("world.other", found=found[0], origin=found[1], asked=asked)],
        )
    return asked, said("given.world_size"), []


def world_needed(given: Given, what: str) -> SourceError:
    """The error for settings that do not say how many ranks run them."""
    lines = [
        f"{shown(given.source)} holds {what}, which do not say how many ranks run them: give the world size"
        " (--world-size N)",
        *with_slips(given, ()),
    ]
    return SourceError("\n".join(lines), source=given.source)


def not_understood(given: Mapping[str, Any], known: Iterable[str], before: str = "") -> list[str]:
    """Notes on names that look like a degree, are set to something that matters, and are none of `known`.

    >>> not_understood({"ring_degree": 4, "tp_degree": 2, "x_degree": 1}, ["tp_degree"])
    ['ring_degree=4 is not understood and was left out']
    """
    known = tuple(known)
    notes = [
        said("unread.setting", name=f"{before}{name}", value=shown(value))
        for name, value in given.items()
        if _LOOKS_LIKE_A_DEGREE.match(name)
        and name not in known
        and value not in (None, -1, 0, 1, False, "")
        and not isinstance(value, Mapping)
    ]
    hidden = len(notes) - _MOST_NOTES
    return [*notes[:_MOST_NOTES], said("unread.more", count=hidden)] if hidden > 0 else notes


_MOST_TRIALS = 1 << 16


def divides(name: str, size: int, ranks: int, told: str, also: int | None = None, origin: str | None = None) -> None:
    """Raise DegreeError unless `size` divides `ranks`, which `told` describes; `also` must be divided too where given.

    `origin` is where the size came from.

    >>> divides("ep", 2, 8, "dp_shard*cp*tp")
    """
    if ranks % size == 0:
        return
    limit = min(ranks, _MOST_TRIALS)
    legal = [trial for trial in range(1, limit + 1) if ranks % trial == 0 and (also is None or also % trial == 0)]
    shown_legal = ", ".join(map(str, legal[:12])) + (", …" if len(legal) > 12 else "")
    label = f"{name}={size} ({origin})" if origin else f"{name}={size}"
    raise DegreeError(
        f"{label} must divide {told}={ranks}, and leaves a remainder of {ranks % size}\nlegal sizes: {shown_legal}",
        name=name,
        size=size,
        ranks=ranks,
        remainder=ranks % size,
        legal=legal,
        told=told,
        origins={name: origin} if origin else {},
    )


def built_upon(given: Given) -> list[str]:
    """A note where a configuration only changes another one, which its `defaults` name.

    >>> built_upon(Given({"defaults": "base.yaml"}, source=""))[0][:24]
    "it builds on 'base.yaml'"
    """
    base = given.at("defaults")
    names = base if isinstance(base, list) else [base]
    told = [shown(name) for name in names if name not in (None, "", "_self_")]
    return [said("unread.base", base=", ".join(told[:4]))] if told else []


def refuse_open_references(given: Given, paths: Iterable[str], how: str) -> None:
    """Raise SourceError when a value is still a reference such as `${a.b}` or `???`; `how` says how to resolve it."""
    for path in paths:
        value = given.at(path)
        if isinstance(value, str) and (value.startswith("${") or value == "???"):
            raise SourceError(
                f"{path} in {shown(given.source)} is {shown(value)}, which only the framework resolves\n{how};"
                f" or --set {path}=…",
                source=given.source,
            )
