"""What the shell's own commands set: which variables have another value after them, and how to say so."""

from __future__ import annotations

import re

SETTING = frozenset(("read", "mapfile", "readarray", "getopts", "unset", "printf", "eval"))  # commands that may
# Commands that only name what they are given, however much it looks like a launch.
STARTS_NOTHING = frozenset(
    ("echo", "[", "[[", "test", "cat", "tee", "grep", "sed", "awk", "ls", "cp", "mv", "rm", "tail", "head", "trap",
     "alias", "pkill", "pgrep", "kill", "killall", "which", "type", "chmod", "scp", "rsync")
)  # fmt: skip
_ASSIGNED = re.compile(r"(?<![\w.-])([A-Za-z_]\w*)\+?=")


def changed(name: str, words: list[str]) -> tuple[str, list[str]]:
    """How a command of that name sets variables, in words, and which.  Cost: O(words).

    >>> changed("read", ["-r", "TP", "PP"]), changed("eval", ["TP=4"]), changed("ls", ["-l"])
    (('read', ['TP', 'PP']), ('set by eval', ['TP']), ('', []))
    """
    end = next((at for at, word in enumerate(words) if word.startswith("<")), len(words))
    plain = [word for word in words[:end] if word.isidentifier()]
    if name in ("read", "mapfile", "readarray"):
        return "read", plain
    if name == "getopts":
        return "read", plain[-1:]
    if name == "unset":
        return "unset in a branch", plain
    if name == "printf" and words[:1] == ["-v"]:
        return "printed", words[1:2]
    if name == "eval":
        return "set by eval", _ASSIGNED.findall(" ".join(words))
    return "", []
