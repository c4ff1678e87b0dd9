"""Checksums exchanged within a group and compared: who holds something else than the most."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from rankatlas.audit.engine import ReadsTensors, signed
from rankatlas.audit.report import Finding
from rankatlas.tensors import TensorLayout

_MOST_MEASURED = 8  # tensors of a group whose difference is measured
_MOST_ELEMENTS = 1 << 22  # of them that are compared
_CHUNK = 1 << 16  # elements in one message
_WORDS = 3  # of a thing in a message: checksums of its name, of its dtype and shape, of all of it

Held = dict[int, tuple[int, int]]  # checksum of a name → checksums of shape and of all
Groups = Callable[[TensorLayout], Iterable[list[int]]]


class Thing:
    """Something with a name, a layout and two checksums; `tensor` where there is one that can be measured."""

    __slots__ = ("key", "layout", "name", "shape", "tensor", "value")

    def __init__(self, name: str, layout: TensorLayout, shape: int, value: int, tensor: Any = None) -> None:
        self.name = name
        self.key = signed(blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest())
        self.layout = layout
        self.shape = shape
        self.value = value
        self.tensor = tensor


def exchange(engine: ReadsTensors, communicator: Any, copied: list[Thing], cut: list[Thing]) -> list[Held] | None:
    """What every member holds; None where all hold equal copies and nobody has shards to compare.

    One all-gather of three numbers; a second one of three numbers per thing unless that is all there is to know.
    Members may hold different things, and equally many messages are sent all the same.
    """
    whole = blake2b(digest_size=8)
    for thing in sorted(copied, key=lambda thing: thing.key):
        whole.update(struct.pack("<3q", thing.key, thing.shape, thing.value))
    heads = engine.gather(communicator, [len(copied), len(cut), signed(whole.digest())])
    if len(dict.fromkeys((head[0], head[2]) for head in heads)) == 1 and not any(head[1] for head in heads):
        return None
    longest = max(head[0] + head[1] for head in heads)
    words = [word for thing in (*copied, *cut) for word in (thing.key, thing.shape, thing.value)]
    rows = engine.gather(communicator, words + [0] * (_WORDS * longest - len(words)))
    return [
        {row[at]: (row[at + 1], row[at + 2]) for at in range(0, _WORDS * (head[0] + head[1]), _WORDS)}
        for head, row in zip(heads, rows)
    ]


def differing(things: list[Thing], held: Mapping[int, Held], groups: Groups) -> list[tuple[Thing, Finding]]:
    """What differs among copies that must be equal; `held` is rank → what it holds, `groups` who must be alike."""
    found = []
    for thing in things:
        axes = along(thing.layout, thing.layout.replicated)
        for ranks in groups(thing.layout):
            there = [held[rank].get(thing.key) for rank in ranks]
            if not any(there):
                continue
            if None in there:
                odd = [rank for rank, one in zip(ranks, there) if one is None]
                found.append((thing, Finding("missing", thing.name, axes, ranks, odd)))
            elif odd := split(ranks, [one and one[0] for one in there]):
                found.append((thing, Finding("shapes differ", thing.name, axes, ranks, odd)))
            elif odd := split(ranks, there):
                found.append((thing, Finding("copies differ", thing.name, axes, ranks, odd)))
    return found


def equal_shards(things: list[Thing], held: Mapping[int, Held], groups: Groups) -> list[Finding]:
    """What is equal among shards that must all differ; a rank without such a thing is none of them."""
    found = []
    for thing in things:
        for group in groups(thing.layout):
            ranks = [rank for rank in group if thing.key in held[rank]]
            odd = twins(ranks, [held[rank][thing.key] for rank in ranks])
            if odd:
                axes = along(thing.layout, thing.layout.sharded)
                found.append(Finding("shards equal", thing.name, axes, ranks, odd))
    return found


def measure(
    engine: ReadsTensors,
    communicator: Any,
    members: list[int],
    held: Mapping[int, Held],
    found: list[tuple[Thing, Finding]],
) -> None:
    """Write into findings by how much copies differ, for the first few things that every member has in one shape."""
    wanted: dict[int, tuple[Thing, list[Finding]]] = {}
    for thing, finding in found:
        shapes = [held[rank].get(thing.key, (None,))[0] for rank in members]
        if finding.kind == "copies differ" and thing.tensor is not None and not split(members, shapes):
            wanted.setdefault(thing.key, (thing, []))[1].append(finding)
    # Every member has come to the same list: it follows from what all have said.
    for key in sorted(wanted)[:_MOST_MEASURED]:
        thing, findings = wanted[key]
        for finding in findings:
            finding.amount = 0.0
        size = math.prod(engine.raw(thing.tensor)[1])
        for first in range(0, min(size, _MOST_ELEMENTS), _CHUNK):
            mine = engine.floats(thing.tensor, first, min(first + _CHUNK, size))
            bits = struct.unpack(f"<{len(mine)}q", struct.pack(f"<{len(mine)}d", *mine))
            rows = [
                struct.unpack(f"<{len(row)}d", struct.pack(f"<{len(row)}q", *row))
                for row in engine.gather(communicator, list(bits))
            ]
            at = dict(zip(members, rows))
            for finding in findings:
                base = at[next(rank for rank in finding.ranks if rank not in finding.odd_ranks)]
                finding.amount = max(
                    [finding.amount or 0.0, *(_apart(base, at[rank]) for rank in finding.odd_ranks)], key=_nan_last
                )


def _apart(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference of two elements, NaN where one of them is."""
    return max(
        (abs(a - b) for a, b in zip(one, other) if a != b and not (math.isnan(a) and math.isnan(b))),
        key=_nan_last,
        default=0.0,
    )


def _nan_last(value: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(value) else (False, value)


def split(ranks: Sequence[int], said: Sequence[Any]) -> list[int]:
    """The ranks that do not say what the most say; of equally many, what the lowest rank says is the measure.

    >>> split([0, 2, 4], ["a", "b", "a"]), split([0, 2], ["a", "b"]), split([0, 2], ["a", "a"])
    ([2], [2], [])
    """
    times = Counter(said)
    most = max(times.values(), default=0)
    usual = next((one for one in said if times[one] == most), None)
    return [rank for rank, one in zip(ranks, said) if one != usual]


def twins(ranks: Sequence[int], said: Sequence[Any]) -> list[int]:
    """The ranks that say what another one says, too.

    >>> twins([0, 2, 4], ["a", "b", "a"])
    [0, 4]
    """
    times = Counter(said)
    return [rank for rank, one in zip(ranks, said) if times[one] > 1]


def along(layout: TensorLayout, axes: Sequence[str]) -> tuple[str, ...]:
    """These axes in the order of the mesh, those of size 1 left out.

    >>> from rankatlas import Mesh
    >>> along(TensorLayout(Mesh(pp=2, dp=1, tp=2), sharded=("tp", "pp")), ("tp", "dp", "pp"))
    ('pp', 'tp')
    """
    return tuple(axis for axis in layout.mesh.axes if axis in axes and layout.mesh.size(axis) > 1)
