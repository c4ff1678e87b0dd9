"""The functions of a script: what stands in their bodies, read again with every call."""

from __future__ import annotations

from rankatlas.dialects.launch_options import Item
from rankatlas.dialects.shell_values import Value, Variables
from rankatlas.dialects.shell_words import Word

_MOST_CALLS = 8  # inside one another
_MOST_PARAMETERS = 64  # what a script shifts one by one
_MOST_WORDS = 1 << 14  # of all bodies that are read again
_PARAMETERS = (*"@*#", *(str(place) for place in range(1, 10)))


class Functions:
    """The bodies of functions as commands, and what a call sets aside."""

    __slots__ = ("_bodies", "_called", "_locals", "_open", "_words")

    def __init__(self) -> None:
        self._bodies: dict[str, list[list[Word]]] = {}
        self._called: set[str] = set()
        self._open: tuple[str, int] | None = None  # the function whose body is read, and how deep its block stands
        self._locals: list[dict[str, Value | None]] = []  # of every call under way, what variables held before
        self._words = 0

    @property
    def defining(self) -> bool:
        """Whether what is read now is the body of a function, which runs when it is called."""
        return self._open is not None

    @property
    def running(self) -> bool:
        """Whether a call is under way."""
        return bool(self._locals)

    def define(self, name: str, depth: int, words: list[Word]) -> None:
        """A body begins in a block at `depth` with `words`, which may be none."""
        if self._open is None:
            self._open = (name, depth)
            self._bodies[name] = [list(words)] if words else []

    def take(self, words: list[Word], depth: int) -> None:
        """The next command has left the reading at `depth`: it belongs to the open body, or that has ended."""
        if self._open is not None:
            name, inside = self._open
            if depth < inside:
                self._open = None
            else:
                self._bodies[name].append(words)

    def __contains__(self, name: str) -> bool:
        return name in self._bodies

    def body(self, name: str) -> list[list[Word]] | None:
        """The commands that a call of `name` runs; None where it is no function, or too much is called already."""
        body = self._bodies.get(name) if self._open is None else None
        if body is None:
            return None
        self._called.add(name)
        self._words += sum(map(len, body)) + 1
        if len(self._locals) == _MOST_CALLS or self._words > _MOST_WORDS:
            return None
        return [list(words) for words in body]

    def uncalled(self) -> list[str]:
        """The functions that no command called, in their order."""
        return [name for name in self._bodies if name not in self._called]

    def enter(self, variables: Variables, items: list[Item] | None) -> None:
        """A call begins; `items` are what it is called with, None where that is not known."""
        self._locals.append({name: variables.get(name) for name in _PARAMETERS})
        parameters(variables, items)

    def local(self, name: str, variables: Variables) -> None:
        """A variable is the call's own."""
        if self._locals:
            self._locals[-1].setdefault(name, variables.get(name))

    def leave(self, variables: Variables) -> None:
        """The call ends: its own variables hold again what they did."""
        for name, value in self._locals.pop().items():
            variables.write(name, value)


def parameters(variables: Variables, items: list[Item] | None) -> None:
    """`$1`, `$@` and `$#` are these from here on, or not known."""
    if items is not None and len(items) > _MOST_PARAMETERS:
        items = None
    for place, name in enumerate(_PARAMETERS[3:]):
        variables.write(name, Value([items[place]]) if items is not None and place < len(items) else None)
    for name in "@*":
        variables.write(name, None if items is None else Value(items))
    variables.write("#", None if items is None else Value([Item(str(len(items)))]))
