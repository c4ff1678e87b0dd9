"""Standard streams as they come: closed, a pipe nobody reads, or an encoding that has no arrows."""

from __future__ import annotations

import codecs
import os
import sys
from types import MappingProxyType

from rankatlas.views.text import printable

# What is printed instead where an encoding lacks a character.
_STAND_INS = MappingProxyType({"→": "->", "─": "-", "·": "*", "×": "x", "…": "...", "−": "-", "–": "-"})


def prepare_streams() -> None:
    """Make the standard streams ones that can be written to, whatever the process was started with."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (open as long as the process)
    codecs.register_error("rankatlas", stand_ins)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="rankatlas")


def say(text: str, err: bool = False) -> None:
    """Print a line.  `click.echo` would write UTF-8 to a stream whose encoding is ASCII.

    >>> say("rank 3")
    rank 3
    """
    print(printable(text), file=sys.stderr if err else sys.stdout)


def stand_ins(error: UnicodeError) -> tuple[str, int]:
    """A handler for `codecs.register_error`: ASCII in the place of what cannot be encoded.

    >>> codecs.register_error("rankatlas", stand_ins)
    >>> "outer → inner …".encode("ascii", "rankatlas")
    b'outer -> inner ...'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end]
    return "".join(_STAND_INS.get(char, "?") for char in lost), error.end


def leave_pipe() -> None:
    """Point standard output at nothing, so that the interpreter's last flush does not complain."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
