"""The text of a source: a file, a pipe or standard input, read whole and never more than a configuration needs."""

from __future__ import annotations

import os
import stat

from rankatlas.errors import RankatlasError, SourceError, shown

_MOST_BYTES = 16 << 20  # no launch configuration is larger; a wrong path (a checkpoint, a device) often is
_ENDINGS = (".json", ".yaml", ".yml", ".txt")


def names_a_file(source: str) -> bool:
    """Whether `source` is the path of something, or cannot be notation and so must be meant as one.

    >>> names_a_file("pp=2 dp=2"), names_a_file("runs/lr=0.1.json"), names_a_file("-")
    (False, True, True)
    """
    return "=" not in source or "/" in source or source.endswith(_ENDINGS) or os.path.exists(source)


def read_text(source: str) -> str:
    """The text of the file, pipe or character device `source`, or of standard input for "-".

    A pipe is read to its end, so it takes as long as its writer does.  Cost: O(bytes), at most 16 MiB.
    Raises SourceError (nothing there, unreadable, too large, no UTF-8).
    """
    try:
        data = _read(source)
    except (OSError, ValueError) as error:
        if isinstance(error, RankatlasError):
            raise
        raise SourceError(f"cannot read {shown(source)}: {_cause(error)}", source=source) from None
    if len(data) > _MOST_BYTES:
        raise SourceError(
            f"{shown(source)} is larger than {_MOST_BYTES >> 20} MiB; that is no configuration", source=source
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{shown(source)} is not UTF-8 text (byte {error.start})", source=source) from None


def _read(source: str) -> bytes:
    if source == "-":
        import sys

        return sys.stdin.buffer.read(_MOST_BYTES + 1)
    if not os.path.exists(source):
        near = "" if "=" in source else "; and without '=' it is no notation such as 'pp=4 dp=2 tp=8'"
        raise SourceError(f"no such file: {shown(source)}{near}", source=source)
    mode = os.stat(source).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        kind = "a directory" if stat.S_ISDIR(mode) else "no file, pipe or character device"
        raise SourceError(f"{shown(source)} is {kind}; a file is needed", source=source)
    with open(source, "rb") as file:
        return file.read(_MOST_BYTES + 1)


def _cause(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
