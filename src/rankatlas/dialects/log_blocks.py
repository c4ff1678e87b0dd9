"""Configurations that frameworks print into logs, found in one pass that keeps nothing but their lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from types import MappingProxyType
from typing import Any

from rankatlas.catalogue import said
from rankatlas.dialects.given import Given, nested
from rankatlas.dialects.literals import literal, value_of
from rankatlas.dialects.log_lines import before, plain, without
from rankatlas.errors import SourceError

_MOST_LINES = 20_000  # of one block
_MOST_CHARS = 4 << 20  # of one block
_MOST_STRAY = 200  # lines of something else inside a block, one after another
_LONGEST_LINE = 4 << 20  # bytes; what stands beyond is left out


class Block:
    """One printed configuration while its lines come in, and then its `values`, each name with its line.

    `title` tells several that belong together apart, `first` is the line it begins on, `whole` whether its end came.
    """

    __slots__ = ("count", "first", "lines", "title", "values", "whole")

    dialect: str

    def __init__(self, first: int) -> None:
        self.first = first
        self.title = ""
        self.values: dict[str, Any] = {}
        self.lines: dict[str, int] = {}
        self.whole = False
        self.count = 1

    def feed(self, line: str, number: int) -> bool:
        """Take a line, the first one included; whether the block ends with it."""
        raise NotImplementedError

    def begins_anew(self, line: str) -> bool:
        """Whether a block of this kind begins inside this one."""
        return False

    def close(self) -> None:
        """No further line comes."""


class Pairs(Block):
    """A name and a value on every line, between a line that begins and one that ends it."""

    __slots__ = ("stray",)

    begins: re.Pattern[str]
    ends: re.Pattern[str]
    pair: re.Pattern[str]

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.stray = 0

    def begins_anew(self, line: str) -> bool:
        """Whether this is a first line."""
        return bool(self.begins.search(line))

    def feed(self, line: str, number: int) -> bool:
        """One line of the block, or one that other ranks printed between."""
        if self.first == number:
            match = self.begins.search(line)
            self.title = (match.group(1) if match and match.groups() else "") or ""
            return match is None
        if self.ends.search(line) if self.ends.pattern else not before(line)[1].strip(" -"):
            self.whole = True
            return True
        found = self.pair.search(line)
        if found:
            self.stray = 0
            self.values[found.group(1)] = value_of(found.group(2))
            self.lines[found.group(1)] = number
        else:
            self.stray += 1
        return self.stray > _MOST_STRAY or len(self.lines) > _MOST_LINES


class MegatronArguments(Pairs):
    """`---- arguments ----`, then `  name ..... value`, then `---- end of arguments ----`."""

    __slots__ = ()
    dialect = "megatron"
    begins = re.compile(r"(?<!-)-{4,} ?(?:\w{1,40} )?arguments ?-{4,}")
    ends = re.compile(r"(?<!-)-{4,} ?end of (?:\w{1,40} )?arguments ?-{4,}")
    pair = re.compile(r"(?:^|[\s:\])>])([A-Za-z_]\w*) \.{1,48} (.*)$")


class PaddleArguments(Pairs):
    """`   Training Configuration Arguments   `, then `name      : value`, then an empty line."""

    __slots__ = ()
    dialect = "paddle"
    begins = re.compile(r"(?<!\w)(\w{1,40}) Configuration Arguments")
    ends = re.compile(r"")
    pair = re.compile(r"(?:^|[\s\])-])([A-Za-z_]\w*) *: (.*)$")


class Printed(Block):
    """JSON, or what Python's `pprint` makes of a mapping, over one line or many."""

    __slots__ = ("chars", "depth", "kept", "kinds", "opened", "quote")

    begins: re.Pattern[str]

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self.chars = 0
        self.depth = 0
        self.kept: list[str] = []
        self.kinds: tuple[int, ...] = ()
        self.opened = False
        self.quote = ""

    def feed(self, line: str, number: int) -> bool:
        """One line; the block ends where its last bracket closes."""
        if number == self.first:
            self.kinds, line = before(line)
            match = self.begins.search(line)
            if match is None:
                return True
            line = line[match.end() :]
        else:
            line = without(line, self.kinds)
        self.chars += len(line) + 1
        if not self.opened and line.strip():
            if not re.match(r"\s*(?:\{|\w+\()", line):
                return True
            self.opened = True
        closed = self._brackets(line)
        self.kept.append(line[:closed] if closed else line)
        self.whole = bool(closed)
        return (
            self.whole or self.chars > _MOST_CHARS or len(self.kept) > _MOST_LINES or number - self.first > _MOST_LINES
        )

    def _brackets(self, line: str) -> int:
        """Where the outermost bracket closes in this line, 0 where it does not."""
        escaped = False
        for place, char in enumerate(line):
            if self.quote:
                if escaped:
                    escaped = False
                elif char == "\\":
                    escaped = True
                elif char == self.quote:
                    self.quote = ""
            elif char in "\"'":
                self.quote = char
            elif char in "{[(":
                self.depth += 1
            elif char in "}])":
                self.depth -= 1
                if self.depth <= 0:
                    return place + 1
        self.quote = ""  # neither form has text over several lines
        return 0

    def close(self) -> None:
        """What the lines hold; nothing where they are cut off or damaged."""
        text = "\n".join(self.kept)
        self.kept = []
        try:
            held = json.loads(text)
        except (ValueError, RecursionError):
            try:
                held = literal(text, "")
            except SourceError:
                return
        if isinstance(held, Mapping):
            self.values = {str(name): value for name, value in held.items()}


class TorchtitanConfig(Printed):
    """`Running with configs: {…}`, in older releases `Running with args: {…}`, as JSON."""

    __slots__ = ()
    dialect = "torchtitan"
    begins = re.compile(r"Running with (?:configs?|args): (?=\{)")


class DeepspeedConfig(Printed):
    """`json = {…}`, the configuration as the user gave it, which the engine prints after its own."""

    __slots__ = ()
    dialect = "deepspeed"
    begins = re.compile(r"^\s*json = (?=\{)")


class VerlConfig(Printed):
    """The resolved configuration that a task runner prints with `pprint`."""

    __slots__ = ()
    dialect = "verl"
    begins = re.compile(r"^(?=\{'actor_rollout_ref': )")


class NemoRlConfig(Printed):
    """`Final config:`, then the resolved configuration with `pprint`."""

    __slots__ = ()
    dialect = "nemo-rl"
    begins = re.compile(r"^Final config: *")


class BuiltMesh(Block):
    """The line in which torchtitan says what it built, which alone shows the sizes that were left open."""

    __slots__ = ()
    dialect = "torchtitan"
    begins = re.compile(r"Building (?:\d-D )?device mesh with (?:parallelism: (.*)|\[(.*?)\], \[(.*?)\])")
    axes = ("pp", "dp_replicate", "dp_shard", "cp", "tp")

    def feed(self, line: str, number: int) -> bool:
        """The one line; in older releases it lists the names and the sizes of axes above 1."""
        match = self.begins.search(line)
        if match is None:
            return True
        if match[1] is not None:
            sizes = re.findall(r"(\w+)=(-?\d{1,18})\b", match[1])
        else:
            names = re.findall(r"\w+", match[2])
            sizes = [*((axis, "1") for axis in self.axes), *zip(names, re.findall(r"\d{1,18}", match[3]))]
        self.title = "built"
        self.values = {("dp_shard" if name == "dp" else name): int(size) for name, size in sizes}
        if all(self.values.get(axis, 0) > 0 for axis in self.axes):
            self.values["world_size"] = prod(self.values[axis] for axis in self.axes)
        self.lines = dict.fromkeys(self.values, number)
        self.whole = True
        return True


class EngineWorld(Block):
    """The line in which DeepSpeed's engine says over how many ranks batches are split, as `2.0` where it divided."""

    __slots__ = ()
    dialect = "deepspeed"
    begins = re.compile(r"\bworld_size \.{3,} (\d{1,18})(?:\.0)?\s*$")

    def feed(self, line: str, number: int) -> bool:
        """The one line."""
        match = self.begins.search(line)
        if match:
            self.title = "engine"
            self.values["data_size"] = int(match.group(1))
            self.lines["data_size"] = number
            self.whole = True
        return True


# Bytes that stand in the line a block begins with → the block.
_KINDS: Mapping[bytes, type[Block]] = MappingProxyType(
    {
        b"arguments ----": MegatronArguments,
        b" Configuration Arguments": PaddleArguments,
        b"Running with config": TorchtitanConfig,
        b"Running with args: ": TorchtitanConfig,
        b"Building device mesh with parallelism": BuiltMesh,
        b"-D device mesh with [": BuiltMesh,
        b"json = {": DeepspeedConfig,
        b"world_size ....": EngineWorld,
        b"{'actor_rollout_ref': ": VerlConfig,
        b"Final config:": NemoRlConfig,
    }
)


def find(chunks: Iterable[bytes]) -> list[Block]:
    """The last whole block of every kind and title in a log, in the order they begin, `values` filled.

    Cost: O(bytes) time; memory for one chunk, the longest line (at most 4 MiB) and the blocks themselves.
    """
    found: dict[tuple[type[Block], str], Block] = {}
    for block in _blocks(chunks):
        block.close()
        if not block.values:
            continue
        kind = type(block), block.title
        last = found.get(kind)
        block.count = last.count + 1 if last else 1
        if last and last.whole and not block.whole:
            last.count = block.count
        else:
            found[kind] = block
    return sorted(found.values(), key=lambda block: block.first)


def _blocks(chunks: Iterable[bytes]) -> Iterator[Block]:
    """Every block of a log, one after another."""
    block: Block | None = None
    number = 1
    for data in _whole_lines(chunks):
        place = 0
        nexts = dict.fromkeys(_KINDS, -1)
        while place < len(data):
            if block is None:
                needle = _nearest(data, place, nexts)
                if needle is None:
                    number += data.count(b"\n", place)
                    break
                start = data.rfind(b"\n", place, nexts[needle]) + 1 or place
                number += data.count(b"\n", place, start)
                place = start
                block = _KINDS[needle](number)
            end = data.find(b"\n", place) + 1 or len(data)
            text = plain(data[place:end].decode("utf-8", "replace"))
            if number != block.first and block.begins_anew(text):
                yield block  # a job that was started again before the block ended
                block = type(block)(number)
            ended = block.feed(text, number)
            number += 1
            place = end
            if ended:
                yield block
                block = None
    if block is not None:
        yield block


def _nearest(data: bytes, place: int, nexts: dict[bytes, int]) -> bytes | None:
    """The needle that comes first from `place` on, None without any; `nexts` remembers where each is."""
    best = None
    for needle, known in nexts.items():
        if known < place:
            nexts[needle] = data.find(needle, place) % (len(data) + 1)  # -1 becomes the end
        if nexts[needle] < len(data) and (best is None or nexts[needle] < nexts[best]):
            best = needle
    return best


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes cut at line ends; of a line beyond the longest only the beginning."""
    rest: list[bytes] = []
    held = 0
    for chunk in chunks:
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield b"".join([*rest, chunk[:cut]])
            rest, held = [chunk[cut:]], len(chunk) - cut
        elif held < _LONGEST_LINE:
            rest.append(chunk)
            held += len(chunk)
    if held:
        yield b"".join(rest)


def given_in(blocks: list[Block], source: str) -> Given | None:
    """The settings of the blocks of a log, None without any; where several frameworks print, the first.

    A wrapper prints its own configuration before the framework inside it prints another.
    """
    titles = [block for block in blocks if block.title not in ("built", "engine")]
    if not titles:
        return None
    dialect = titles[0].dialect
    own = [block for block in blocks if block.dialect == dialect]
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    notes = []
    for block in sorted(own, key=lambda block: block.title == "Training"):  # what the others repeat counts less
        part = f"{block.title}." if block.title in ("built", "engine") else ""
        values.update({part + name: value for name, value in block.values.items()})
        lines.update({part + name: line for name, line in block.lines.items()})
        if block.count > 1 and not part:
            notes.append(said("noted.restarted", count=block.count, line=block.first))
        if not block.whole:
            notes.append(said("noted.no_end", line=block.first))
    others = list(dict.fromkeys(block.dialect for block in titles if block.dialect != dialect))
    if others:
        notes.append(said("unread.dialect", names=others))
    return Given(nested(values), source=source, kind="arguments block", dialect=dialect, lines=lines, notes=notes)
