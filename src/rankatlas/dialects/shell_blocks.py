"""The blocks of a script: what stands in a branch, what depends on another command, what a subshell forgets."""

from __future__ import annotations

from rankatlas.dialects.shell_values import Value
from rankatlas.dialects.shell_words import Word

CLOSES = ("fi", "done", "esac", "}")


class Blocks:
    """Where the reading stands: inside which blocks, and whether the command at hand runs in any case.

    `pending` is the name of the function whose body the next block is, "" for none.
    """

    __slots__ = ("_branches", "_chained", "_kinds", "_shells", "pending")

    def __init__(self) -> None:
        self._kinds: list[tuple[str, bool]] = []  # and whether it is a branch
        self._branches = 0  # how many of them are
        self._chained = False
        self._shells: list[dict[str, Value | None]] = []  # of every open subshell, what variables held before it
        self.pending = ""

    def __len__(self) -> int:
        return len(self._kinds)

    @property
    def unsure(self) -> bool:
        """Whether it is not known that the command at hand runs."""
        return self._chained or self._branches > 0

    @property
    def in_subshell(self) -> bool:
        """Whether the innermost block is a subshell, which a bracket ends."""
        return bool(self._kinds) and self._kinds[-1][0] == "("

    @property
    def in_shells(self) -> bool:
        """Whether any block around is a subshell, whose end is not that of the script."""
        return any(kind == "(" for kind, _ in self._kinds)

    def follow(self, operator: str, succeeds: bool) -> None:
        """The next command stands behind `operator`; `succeeds` is whether the one before cannot fail."""
        if operator in ("&&", "||"):
            self._chained = self._chained or operator == "||" or not succeeds
        elif operator != "|":
            self._chained = False

    def open(self, kind: str, branch: bool = True) -> None:
        """A block begins."""
        self._kinds.append((kind, branch))
        self._branches += branch
        if kind == "(":
            self._shells.append({})

    def open_group(self, kind: str) -> None:
        """A block begins that is a branch only where it is chained or the body of a function."""
        self.open(kind, self._chained or bool(self.pending))
        if self.pending and kind != "(":  # a body only sets what it does when it is called
            self._kinds[-1] = ("()", True)
            self._shells.append({})
        self.pending = ""

    def enter(self) -> bool:
        """Commands that stand elsewhere follow, all of which run if the command at hand does; what `leave` takes."""
        chained = self._chained
        self.open("{", chained)
        self._chained = False
        return chained

    def leave(self, chained: bool) -> None:
        """They are over, and their blocks closed."""
        self._chained = chained

    def close(self) -> dict[str, Value | None]:
        """The innermost block ends; what variables held before it, where it was a subshell."""
        if not self._kinds:
            return {}
        kind, branch = self._kinds.pop()
        self._branches -= branch
        return self._shells.pop() if kind in ("(", "()") else {}

    def remember(self, name: str, value: Value | None) -> None:
        """What a variable holds before it is written, for the end of the subshell around."""
        if self._shells:
            self._shells[-1].setdefault(name, value)

    def pattern(self, words: list[Word]) -> int:
        """How many words the pattern of a case takes, 0 where none stands here."""
        if not self._kinds or self._kinds[-1][0] != "case":
            return 0
        for place, word in enumerate(words):
            if word.text == ")":
                return place + 1
            if word.text == "(" and place:
                return 0
        return 0

    def ends(self, words: list[Word]) -> int:
        """How many words stand before the bracket that ends a subshell; all of them where none does."""
        depth = 0
        for place, word in enumerate(words if self.in_subshell else ()):
            if word.text in ("(", "(("):
                depth += len(word.text)
            elif word.text == ")":
                if not depth:
                    return place
                depth -= 1
        return len(words)
