"""One line of a log without what launchers and terminals put around it."""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\r(?=.)")
# What stands before the text of a line: who printed it, when, and how loud.
_BEFORE = tuple(
    re.compile(pattern)
    for pattern in (
        r"\[(?:default|rank|Rank )?\d+(?:,\d+)?\]:?(?:<std(?:out|err)>:)? ?",  # torchrun, mpirun
        r" {0,4}\d{1,7}: ",  # srun --label
        r"\([A-Za-z_][\w.]* (?:rank=\d+ )?pid=\d+(?:, ip=[\d.]+)?\) ?",  # ray
        r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?(?: - |[ :,]*)",
        r"\[ *(?:DEBUG|INFO|WARNING|ERROR) *\](?:: | - | )?",
        r"\[[\w.]+\.py:\d+(?::\w+)?\] {0,2}",
        r"\[titan\] ",
        r"(?:- )?(?:root|\w+(?:\.\w+)*) - (?:INFO|DEBUG|WARNING) - ",
        r"\[NeMo [IWDE] [^\]\n]{0,80}\] ?",
        r"[A-Za-z][\w.-]{0,63}: (?=.*(?:- arguments -|Configuration Arguments|json = \{))",  # pdsh
    )
)


def plain(line: str) -> str:
    """`line` without the codes that colour it and without its end.

    >>> plain("\\x1b[32mtp .... 2\\x1b[0m\\n")
    'tp .... 2'
    """
    return _ANSI.sub("", line).rstrip("\r\n")


def before(line: str) -> tuple[tuple[int, ...], str]:
    """Which kinds of prefix stand before the text of a line, in order, and the text.

    >>> before("[rank0]:[titan] 2026-01-02 03:04:05,678 - root - INFO - Running")
    ((0, 6, 3, 7), 'Running')
    >>> before("  text: more")
    ((), '  text: more')
    """
    kinds: list[int] = []
    while True:
        for kind, pattern in enumerate(_BEFORE):
            match = pattern.match(line)
            if match and match.end():
                kinds.append(kind)
                line = line[match.end() :]
                break
        else:
            return tuple(kinds), line
        if len(kinds) > 8:
            return tuple(kinds), line


def without(line: str, kinds: tuple[int, ...]) -> str:
    """`line` without prefixes of these kinds, each taken off where it is there.

    >>> without("[rank0]:  'tp': 2", (0, 6, 3, 7))
    " 'tp': 2"
    """
    for kind in kinds:
        match = _BEFORE[kind].match(line)
        if match:
            line = line[match.end() :]
    return line
