"""What the variables of a script hold, and words with them filled in, within bounds whatever the script does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rankatlas.dialects.arithmetic import integer
from rankatlas.dialects.launch_options import Item, mark
from rankatlas.dialects.shell_words import Word, quoted
from rankatlas.errors import SourceError, shown

_MOST_EXPANDED = 100_000  # characters of one value with its variables filled in
_MOST_FILLED = 1 << 24  # characters of all values together
_MOST_INSIDE = 8  # what is filled in inside a default
_MOST_WORDS = 1 << 17  # words that values are split into


class UnknownError(Exception):
    """A value that waits for variables; `names` are theirs."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self.names = names


class Value:
    """The items a variable holds.  One that grows shares what it had, so that growing costs what is added.

    >>> short = Value([Item("--tp 2")])
    >>> [item.held for item in short.grown([Item(" --pp 4")], glued=True).items], [item.held for item in short.items]
    (['--tp 2 --pp 4'], ['--tp 2'])
    """

    __slots__ = ("_count", "_items", "_parts", "_single", "size")

    def __init__(self, items: Sequence[Item]) -> None:
        self._parts: list[tuple[bool, Item]] = [(False, item) for item in items]  # whether glued to the one before
        self._count = len(self._parts)
        self._items: list[Item] | None = None
        self._single = len(items) <= 1
        self.size = sum(len(item.held) + 1 for item in items)

    def grown(self, items: Sequence[Item], *, glued: bool) -> Value:
        """This and more items, the first of them glued to the last one here or not.  Cost: O(what is added)."""
        longer = Value(())
        longer._parts = self._parts if len(self._parts) == self._count else self._parts[: self._count]
        longer._parts += [(glued and not place, item) for place, item in enumerate(items)]
        longer._count = len(longer._parts)
        longer._single = self._single and len(items) <= 1 and (glued or not self._count or not items)
        longer.size = self.size + sum(len(item.held) + 1 for item in items)
        return longer

    @property
    def single(self) -> bool:
        """Whether it is one text rather than several."""
        return self._single

    @property
    def items(self) -> list[Item]:
        """The items, fragments joined.  Cost: O(characters), once."""
        if self._items is None:
            found: list[tuple[Item, list[str]]] = []
            for glued, item in self._parts[: self._count]:
                if glued and found:
                    found[-1][1].append(item.held)
                else:
                    found.append((item, [item.held]))
            self._items = [item._replace(held="".join(held)) if len(held) > 1 else item for item, held in found]
        return self._items


class Variables:
    """What every variable holds; those of `sets` are given from outside, and no command changes them."""

    __slots__ = ("_filled", "_held", "_source", "_words", "sets", "used")

    def __init__(self, sets: Mapping[str, str], source: str) -> None:
        self.sets = sets
        self.used: set[str] = set()
        self._held: dict[str, Value] = {}
        self._source = source
        self._filled = 0
        self._words = 0

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def empty(self, name: str) -> bool:
        """Whether a variable is not set, or to nothing."""
        value = self._held.get(name)
        return value is None or (value.size <= 2 and not any(item.held for item in value.items))

    def get(self, name: str) -> Value | None:
        """What a variable holds, None where nothing is known."""
        return self._held.get(name)

    def write(self, name: str, value: Value | None) -> None:
        """A variable holds `value` from here on, or is unset."""
        if value is None:
            self._held.pop(name, None)
        else:
            self._held[name] = value

    def expand(self, word: Word) -> list[Item]:
        """The items a word becomes; a lone variable that holds several stays several.

        Raises SourceError where the script makes too much text.
        """
        if len(word.pieces) == 1 and word.pieces[0][0] == "variable":
            _, name, fallback = word.pieces[0]
            fills = name in self.sets or (fallback is not None and self.empty(name))
            value = None if fills else self._held.get(name)
            if value is not None and value.size <= _MOST_EXPANDED:
                self._spend(value.size)
                if word.quoted:
                    return [item for item in value.items if item.text or item.waits]
                return [part for item in value.items for part in self._split(item)]
            if name in self.sets and self.sets[name].startswith("-"):  # options, whatever quotes stand around them
                return self._split(Item(self._value("variable", name, None, word.line), word.line))
        item = Item(self.fill(word), word.line)
        return self._split(item) if not word.quoted and has_variable(word) else [item]

    def fill(self, word: Word) -> str:
        """The text a word becomes, marks in it for what is not known.  Raises SourceError as `expand`."""
        texts = []
        size = 0
        for kind, what, fallback in word.pieces:
            try:
                texts.append(self._value(kind, what, fallback, word.line))
            except UnknownError as unknown:
                texts.append("".join(mark("\0", name) for name in unknown.names))
            size += len(texts[-1])
            if size > _MOST_EXPANDED:
                return mark("\0", "too long a value")
        self._spend(size)
        return texts[0] if len(texts) == 1 else "".join(texts)

    def number(self, name: str) -> int:
        """The whole number a variable holds.  Raises UnknownError."""
        item = Item(self._value("variable", name, None, 0))
        if item.waits:
            raise UnknownError(item.waits)
        if not re.fullmatch(r"-?(0|[1-9]\d{0,17})", item.text.strip()):
            raise UnknownError((name,))
        return int(item.text)

    def _value(self, kind: str, what: str, fallback: str | None, line: int) -> str:
        """The text of one piece.  Raises UnknownError."""
        if kind == "text":
            return what
        if kind == "arithmetic":
            try:
                return str(integer(what, self.number))
            except SourceError:
                raise UnknownError((f"$(({what[:40]}))",)) from None
        if kind == "instead":
            return self._filled_default(fallback or "", line) if self._value("variable", what, None, line) else ""
        if kind not in ("variable", "unset"):
            raise UnknownError((what if len(what) < 40 else f"{what[:40]}…",))
        if what in self.sets:
            self.used.add(what)
            return mark("\2", what) + self.sets[what]
        value = self._held.get(what)
        if value is not None and (kind == "unset" or fallback is None or not self.empty(what)):
            if value.size > _MOST_EXPANDED:
                raise UnknownError((f"{what}, too long a value",))
            items = value.items
            return items[0].held if len(items) == 1 else " ".join(item.held for item in items)
        if fallback is None:
            raise UnknownError((what,))
        return mark("\2", f"{what} {line}") + self._filled_default(fallback, line)

    def _filled_default(self, text: str, line: int) -> str:
        """What `${NAME:-text}` becomes.  Raises UnknownError where that waits for anything."""
        if text.count("$") > _MOST_INSIDE or "`" in text:
            raise UnknownError((text if len(text) < 40 else f"{text[:40]}…",))
        held = self.fill(quoted(text, line))
        waits = Item(held).waits
        if waits:
            raise UnknownError(waits)
        return held

    def _split(self, item: Item) -> list[Item]:
        """The words a text becomes when a shell fills it in outside quotes."""
        parts = item.held.split()
        self._words += len(parts)
        if self._words > _MOST_WORDS:
            raise self._too_much(f"{_MOST_WORDS:,} words")
        found = [item._replace(held=part.strip("\"'")) for part in parts]
        return [part for part in found if part.text or part.waits]

    def _spend(self, characters: int) -> None:
        self._filled += characters
        if self._filled > _MOST_FILLED:
            raise self._too_much(f"{_MOST_FILLED >> 20} Mi characters")

    def _too_much(self, what: str) -> SourceError:
        return SourceError(
            f"the variables of {shown(self._source)} filled in are more than {what}, which is more than is read of a"
            " script; give the command that it starts itself, or the log of the job",
            source=self._source,
        )


def default(name: str, fallback: str, line: int) -> str:
    """The text of `${NAME:-fallback}` where NAME is not set."""
    if "$" in fallback or "`" in fallback:
        return mark("\0", name)
    return mark("\2", f"{name} {line}") + fallback.strip("\"'")


def has_variable(word: Word) -> bool:
    """Whether anything in a word is filled in."""
    return any(piece[0] != "text" for piece in word.pieces)


def goes_on(name: str, values: Sequence[Word]) -> bool:
    """Whether a value is `"$NAME …"`, the old one and more words."""
    if len(values) != 1:
        return any(("variable", name, None) in word.pieces for word in values)
    pieces = values[0].pieces
    place = next((at for at, piece in enumerate(pieces) if piece[:2] == ("variable", name)), None)
    if place is None:
        return False
    beside = pieces[:place][-1:] + pieces[place + 1 : place + 2]
    return any(kind == "text" and re.search(r"^\s|\s\Z", text) for kind, text, _ in beside)


def raw(word: Word) -> str:
    """A word as it stands in the script, without its quotes."""
    return "".join(f"${piece[1]}" if piece[0] == "variable" else piece[1] for piece in word.pieces)
