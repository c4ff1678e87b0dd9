"""The text of a source: a file, a pipe or standard input, read whole up to a bound and as a stream beyond it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, BinaryIO

from rankatlas.errors import RankatlasError, SourceError, shown

if TYPE_CHECKING:
    from rankatlas.dialects.log_blocks import Block

_MOST_BYTES = 16 << 20  # no launch configuration is larger; a wrong path (a checkpoint, a device) often is
_MOST_PIPED = 4 << 30  # bytes of a log in a pipe, which may never end
_CHUNK = 1 << 20
_ENDINGS = (".json", ".yaml", ".yml", ".toml", ".txt", ".log", ".out", ".err", ".sh")


class Held:
    """What a source holds: the `blocks` found in it, and its `text` unless it is larger than a configuration."""

    __slots__ = ("blocks", "data", "source")

    def __init__(self, source: str, data: bytes | None, blocks: list[Block]) -> None:
        self.source = source
        self.data = data
        self.blocks = blocks

    @property
    def text(self) -> str:
        """The whole text.  Raises SourceError (too large, no UTF-8)."""
        if self.data is None:
            raise SourceError(
                f"{shown(self.source)} is larger than {_MOST_BYTES >> 20} MiB; that is no configuration, and no log"
                " with one: no framework's arguments are printed in it",
                source=self.source,
            )
        try:
            return self.data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{shown(self.source)} is not UTF-8 text (byte {error.start}); if it is text, store it as UTF-8:"
                " iconv -f OLD -t UTF-8",
                source=self.source,
            ) from None


def names_a_file(source: str) -> bool:
    """Whether `source` is the path of something, or cannot be notation and so must be meant as one.

    >>> names_a_file("pp=2 dp=2"), names_a_file("runs/lr=0.1.json"), names_a_file("-")
    (False, True, True)
    """
    return "=" not in source or "/" in source or source.endswith(_ENDINGS) or os.path.exists(source)


def hold(source: str) -> Held:
    """What the file, pipe or character device `source` holds, or standard input for "-".

    A pipe is read to its end, so it takes as long as its writer does.  Cost: O(bytes) time, at most about 40 MiB.
    Raises SourceError (nothing there, unreadable).
    """
    try:
        if source == "-":
            import sys

            try:
                mode = os.fstat(sys.stdin.fileno()).st_mode
            except (OSError, ValueError):  # a program put something else in its place
                mode = stat.S_IFIFO
            return _hold(source, sys.stdin.buffer, mode)
        mode = _mode(source)
        with open(source, "rb") as file:
            return _hold(source, file, mode)
    except (OSError, ValueError) as error:
        if isinstance(error, RankatlasError):
            raise
        raise SourceError(f"cannot read {shown(source)}: {_cause(error)}", source=source) from None


def read_text(source: str) -> str:
    """The text of a source, whole.  Cost: O(bytes), at most 16 MiB.  Raises SourceError (also: too large, no UTF-8)."""
    return hold(source).text


def _hold(source: str, file: BinaryIO, mode: int) -> Held:
    from rankatlas.dialects.log_blocks import find  # telling notation from a path needs no reader of logs

    head = file.read(_MOST_BYTES + 1)
    if len(head) <= _MOST_BYTES:
        return Held(source, head, find([head]))
    if stat.S_ISCHR(mode):  # a device never ends
        return Held(source, None, [])
    most = None if stat.S_ISREG(mode) else _MOST_PIPED
    return Held(source, None, find(chain([head], _chunks(source, file, most))))


def _chunks(source: str, file: BinaryIO, most: int | None) -> Iterator[bytes]:
    left = most
    while chunk := file.read(_CHUNK):
        yield chunk
        if left is not None:
            left -= len(chunk)
            if left < 0:
                raise SourceError(
                    f"{shown(source)} is a pipe of more than {_MOST_PIPED >> 30} GiB; give the file", source=source
                )


def _mode(source: str) -> int:
    if not os.path.exists(source):
        near = "" if "=" in source else "; and without '=' it is no notation such as 'pp=4 dp=2 tp=8'"
        raise SourceError(f"no such file: {shown(source)}{near}", source=source)
    mode = os.stat(source).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        kind = "a directory" if stat.S_ISDIR(mode) else "no file, pipe or character device"
        raise SourceError(f"{shown(source)} is {kind}; a file is needed", source=source)
    return mode


def _cause(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
