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


def key_of(name: str) -> int:
    """The checksum of a name, by which ranks speak of it."""
    return signed(blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest())


class Thing:
    """Something with a name, a layout and two checksums; `tensor` where there is one that can be measured.

    `key` and `meant` are checksums of the name and of the layout, as far as it says who is compared with whom.
    """

    __slots__ = ("key", "layout", "meant", "name", "shape", "tensor", "value")

    def __init__(self, name: str, layout: TensorLayout, shape: int, value: int, tensor: Any = None) -> None:
        self.name = name
        self.key = key_of(name)
        self.layout = layout
        said = f"{layout.mesh}\n{along(layout, layout.replicated)}\n{along(layout, layout.sharded)}"
        self.meant = signed(blake2b(said.encode(), digest_size=8).digest())
        self.shape = shape
        self.value = value
        self.tensor = tensor


def exchange(
    engine: ReadsTensors, communicator: Any, copied: list[Thing], cut: list[Thing], known: Sequence[Thing]
) -> tuple[list[Held], dict[int, list[int]]] | None:
    """What every member holds; None where all hold equal copies, nobody has shards, and layouts are one.

    `known` is all this rank has a layout for.  The second value is key → places of the members whose layout of that
    thing is another one than most have; such things are in nobody's part of the first, as no two of them would look for
    them in the same group.

    One all-gather of five numbers; one of two numbers per known thing where members know different things or layouts;
    one of three numbers per thing unless that is all there is to know.  Members may hold different things, and equally
    many messages are sent all the same.
    """
    digest = _digest((thing.key, thing.shape, thing.value) for thing in copied)
    meant = _digest((thing.key, thing.meant, 0) for thing in known)
    heads = engine.gather(communicator, [len(copied), len(cut), digest, len(known), meant])
    if not any(head[0] or head[1] for head in heads):
        return None
    disputed: dict[int, list[int]] = {}
    if len(dict.fromkeys((head[3], head[4]) for head in heads)) > 1:
        disputed = _disputed(_rows(engine, communicator, [(one.key, one.meant) for one in known], 2, heads, 3, 4))
    alike = len(dict.fromkeys((head[0], head[2]) for head in heads)) == 1
    if alike and not disputed and not any(head[1] for head in heads):
        return None
    words = [(thing.key, thing.shape, thing.value) for thing in (*copied, *cut)]
    rows = _rows(engine, communicator, words, _WORDS, heads, 0, 2)
    return [{key: (shape, value) for key, shape, value in row if key not in disputed} for row in rows], disputed


def _digest(words: Iterable[tuple[int, int, int]]) -> int:
    whole = blake2b(digest_size=8)
    for three in sorted(words):
        whole.update(struct.pack("<3q", *three))
    return signed(whole.digest())


def _rows(
    engine: ReadsTensors,
    communicator: Any,
    mine: Sequence[tuple[int, ...]],
    width: int,
    heads: list[list[int]],
    first: int,
    last: int,
) -> list[list[tuple[int, ...]]]:
    """Tuples of `width` numbers of every member, of which the columns first … last − 1 of `heads` say how many."""
    counts = [sum(head[first:last]) for head in heads]
    words = [word for row in mine for word in row]
    said = engine.gather(communicator, words + [0] * (width * max(counts) - len(words)))
    return [[tuple(row[at : at + width]) for at in range(0, width * count, width)] for row, count in zip(said, counts)]


def _disputed(rows: list[list[tuple[int, ...]]]) -> dict[int, list[int]]:
    meant: dict[int, dict[int, int]] = {}
    for place, row in enumerate(rows):
        for key, layout in row:
            meant.setdefault(key, {})[place] = layout
    return {
        key: split(list(places), list(places.values()))
        for key, places in meant.items()
        if len(dict.fromkeys(places.values())) > 1
    }


def of_other_layouts(things: Iterable[Thing], disputed: Mapping[int, list[int]], ranks: list[int]) -> list[Finding]:
    """Things that members of a group hold in different layouts."""
    return [
        Finding("layouts differ", thing.name, (), ranks, [ranks[place] for place in disputed[thing.key]])
        for thing in things
        if thing.key in disputed
    ]


def differing(
    things: list[Thing], held: Mapping[int, Held], groups: Groups, *, tied: bool = False
) -> list[tuple[Thing, Finding]]:
    """What differs among copies that must be equal; `held` is rank → what it holds, `groups` who must be alike.

    Groups that are `tied` lie along no axes.
    """
    found = []
    for thing in things:
        axes = () if tied else along(thing.layout, thing.layout.replicated)
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


def held_by_nobody(
    names: Iterable[str], held: Mapping[int, Held], groups: Callable[[str], list[list[int]]]
) -> list[Finding]:
    """Names that a whole group should hold and none of it does: misspelt, mostly."""
    return [
        Finding("missing", name, (), ranks, ranks)
        for name in names
        for ranks in groups(name)
        if not any(key_of(name) in held.get(rank, {}) for rank in ranks)
    ]


def equal_shards(things: list[Thing], held: Mapping[int, Held], groups: Groups, over: Sequence[str]) -> list[Finding]:
    """What is equal among shards that must all differ; a rank without such a thing is none of them.

    `over` are the axes of the groups, none where they are all that a thing is sharded along.
    """
    found = []
    for thing in things:
        for group in groups(thing.layout):
            ranks = [rank for rank in group if thing.key in held[rank]]
            axes = along(thing.layout, over or thing.layout.sharded)
            for odd in twins(ranks, [held[rank][thing.key] for rank in ranks]):
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
        _measure(engine, communicator, members, *wanted[key])


def _measure(
    engine: ReadsTensors, communicator: Any, members: list[int], thing: Thing, findings: list[Finding]
) -> None:
    dtype, shape, _ = engine.raw(thing.tensor)
    size = math.prod(shape)
    chunks = range(0, min(size, _MOST_ELEMENTS), _CHUNK)
    unlike: list[dict[str, None]] = [{} for _ in findings]
    amounts: list[float] = [0.0 for _ in findings]
    for first in chunks:
        try:
            mine = list(engine.numbers(thing.tensor, first, min(first + _CHUNK, size)))
        except (RuntimeError, TypeError, ValueError):  # a dtype of which the framework makes no numbers
            mine = []
        if min(row[0] for row in engine.gather(communicator, [len(mine)])) == 0:
            for finding in findings:
                finding.how = f"{dtype} is compared by its bits only"
            return
        whole = isinstance(mine[0], int)
        rows = [_unpacked(row, whole, dtype) for row in engine.gather(communicator, _packed(mine, whole))]
        at = dict(zip(members, rows))
        for number, finding in enumerate(findings):
            base = at[next(rank for rank in finding.ranks if rank not in finding.odd_ranks)]
            for rank in finding.odd_ranks:
                amounts[number] = max(amounts[number], _apart(base, at[rank], unlike[number]), key=_nan_last)
    for finding, amount, kinds in zip(findings, amounts, unlike):
        if amount != 0:
            finding.amount = amount
        elif size > _MOST_ELEMENTS:
            finding.how = f"beyond the first {_MOST_ELEMENTS:,} elements"
        else:
            finding.how = " and ".join(kinds) or "in bits that are no part of its numbers"


def _packed(numbers: Sequence[float], whole: bool) -> list[int]:
    """Each as 64 signed bits."""
    if whole:
        return [(int(one) + 2**63) % 2**64 - 2**63 for one in numbers]
    return list(struct.unpack(f"<{len(numbers)}q", struct.pack(f"<{len(numbers)}d", *numbers)))


def _unpacked(row: Sequence[int], whole: bool, dtype: str) -> Sequence[float]:
    if whole:
        return [one % 2**64 for one in row] if "uint" in dtype else list(row)
    return struct.unpack(f"<{len(row)}d", struct.pack(f"<{len(row)}q", *row))


def _apart(one: Sequence[float], other: Sequence[float], unlike: dict[str, None]) -> float:
    """The largest difference of two elements, NaN where one of them is; `unlike` is told of signs of zeros and NaNs."""
    most = 0.0
    for a, b in zip(one, other):
        if a == b:
            if a == 0 and math.copysign(1, a) != math.copysign(1, b):
                unlike["in the sign of a zero"] = None
        elif math.isnan(a) and math.isnan(b):
            unlike["in the bits of a NaN"] = None
        else:
            most = max(most, abs(a - b), key=_nan_last)
    return most


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


def twins(ranks: Sequence[int], said: Sequence[Any]) -> list[list[int]]:
    """The ranks that say the same as another one, those that agree together.

    >>> twins([0, 1, 2, 3, 4], ["a", "b", "a", "c", "b"])
    [[0, 2], [1, 4]]
    """
    same: dict[Any, list[int]] = {}
    for rank, one in zip(ranks, said):
        same.setdefault(one, []).append(rank)
    return [together for together in same.values() if len(together) > 1]


def along(layout: TensorLayout, axes: Sequence[str]) -> tuple[str, ...]:
    """These axes in the order of the mesh, those of size 1 left out.

    >>> from rankatlas import Mesh
    >>> along(TensorLayout(Mesh(pp=2, dp=1, tp=2), sharded=("tp", "pp")), ("tp", "dp", "pp"))
    ('pp', 'tp')
    """
    return tuple(axis for axis in layout.mesh.axes if axis in axes and layout.mesh.size(axis) > 1)
