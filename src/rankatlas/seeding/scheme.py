"""Additive seed schemes written as text, `base+100*pp+10*dp`: a small parser, nothing is ever evaluated as code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rankatlas.core import Mesh
from rankatlas.core.notation import caret
from rankatlas.errors import SchemeError, shown

_MOST_DEPTH = 50
_MOST_DIGITS = 20
BASE = "base"

Places = Mapping[str, int]
Value = Callable[[Places], int]


class Family:
    """One family of streams: its `name` ("" for the unnamed one), the `axes` its seed depends on, and the seed.

    `seed(places)` takes axis → place, and "base" for the base seed.
    """

    __slots__ = ("axes", "name", "seed")

    def __init__(self, name: str, axes: tuple[str, ...], seed: Value) -> None:
        self.name = name
        self.axes = axes
        self.seed = seed

    def __repr__(self) -> str:
        return f"Family({self.name!r}, axes={self.axes!r})"


def parse_scheme(text: str, mesh: Mesh) -> list[Family]:
    """The families of `[family=]expression(;family=expression)*` over the axes of `mesh`.

    Names are axes or `base`, operators + − * and parentheses, numbers are integers.  A leading `+` adds the unnamed
    family where there is one, else the base seed, as Megatron's offsets are added to a seed that has its own terms.

    Cost: O(text).  Raises SchemeError with a caret.

    >>> families = parse_scheme("base+100*pp; expert=+1024+100*ep", Mesh(pp=2, ep=2))
    >>> [(family.name, family.axes) for family in families]
    [('', ('pp',)), ('expert', ('pp', 'ep'))]
    >>> families[1].seed({"base": 0, "pp": 1, "ep": 1})
    1224
    """
    if not isinstance(text, str):
        raise SchemeError(f"a scheme is text such as 'base+100*pp', not {type(text).__name__}", text="", position=0)
    if BASE in mesh.axes:
        raise SchemeError(f"{mesh} has an axis called 'base', which is the base seed here", text=text, position=0)
    families: list[Family] = []
    begin = 0
    whole = text.rstrip()[:-1] if text.rstrip().endswith(";") else text
    for part in whole.split(";"):
        end = begin + len(part)
        name, equals, _ = part.partition("=")
        start = begin + len(name) + 1 if equals else begin
        name = name.strip() if equals else ""
        if equals and not (name.isascii() and name.isidentifier()):
            raise _error(text, begin, f"{shown(name)} cannot name a family; names are letters, digits and _")
        if name in [family.name for family in families]:
            raise _error(
                text, begin, f"family {shown(name)} stands twice" if name else "only one family may have no name"
            )
        if families and not name:
            raise _error(text, begin, "the family without a name stands first, or has a name: name=expression")
        unnamed = families[0] if families and not families[0].name else None
        families.append(_Parser(text, start, end, mesh, unnamed).family(name))
        begin = end + 1
    return families


def _error(text: str, position: int, complaint: str) -> SchemeError:
    return SchemeError(f"{caret(text, position)}\n{complaint}", text=text, position=position)


class _Parser:
    """Recursive descent over `text[position:end]`: sum → product → factor."""

    def __init__(self, text: str, position: int, end: int, mesh: Mesh, unnamed: Family | None) -> None:
        self.text, self.position, self.end = text, position, end
        self.mesh, self.unnamed = mesh, unnamed
        self.axes: list[str] = []

    def family(self, name: str) -> Family:
        added: Value | None = None
        if self._peek() == "+":
            added = self.unnamed.seed if self.unnamed else lambda places: places[BASE]
            self.axes += self.unnamed.axes if self.unnamed else ()
            self.position += 1
        value = self._sum(0)
        if self._peek():
            raise _error(self.text, self.position, f"{shown(self._peek())} does not belong here")
        axes = tuple(axis for axis in self.mesh.axes if axis in self.axes)
        if added is None:
            return Family(name, axes, value)
        addend = added
        return Family(name, axes, lambda places: addend(places) + value(places))

    def _peek(self) -> str:
        while self.position < self.end and self.text[self.position].isspace():
            self.position += 1
        return self.text[self.position] if self.position < self.end else ""

    def _sum(self, depth: int) -> Value:
        terms = [(1, self._product(depth))]
        while self._peek() in ("+", "-", "−"):
            sign = 1 if self._peek() == "+" else -1
            self.position += 1
            terms.append((sign, self._product(depth)))
        return lambda places: sum(sign * term(places) for sign, term in terms)

    def _product(self, depth: int) -> Value:
        factors = [self._factor(depth)]
        while self._peek() == "*":
            self.position += 1
            factors.append(self._factor(depth))

        def value(places: Places) -> int:
            product = 1
            for factor in factors:
                product *= factor(places)
            return product

        return value

    def _factor(self, depth: int) -> Value:
        char = self._peek()
        if depth > _MOST_DEPTH:
            raise _error(self.text, self.position, f"more than {_MOST_DEPTH} parentheses inside each other")
        if char == "(":
            self.position += 1
            inner = self._sum(depth + 1)
            if self._peek() != ")":
                raise _error(self.text, self.position, "')' is missing here")
            self.position += 1
            return inner
        word, start = self._word()
        if word.isdigit():
            if len(word) > _MOST_DIGITS:
                raise _error(self.text, start, "no seed has that many digits")
            number = int(word)
            return lambda places: number
        if word == BASE:
            return lambda places: places[BASE]
        if word in self.mesh.axes:
            self.axes.append(word)
            return lambda places: places[word]
        known = ", ".join((BASE, *self.mesh.axes))
        complaint = (
            f"{shown(word)} is no axis of {self.mesh}; names are {known}"
            if word
            else f"a number or one of {known} is missing"
        )
        raise _error(self.text, start, complaint)

    def _word(self) -> tuple[str, int]:
        start = self.position
        while self.position < self.end and self._belongs(self.text[self.position]):
            self.position += 1
        return self.text[start : self.position], start

    @staticmethod
    def _belongs(char: str) -> bool:
        return char.isascii() and (char.isalnum() or char == "_")


def all_places(mesh: Mesh, axes: tuple[str, ...], base_seed: int) -> Iterator[dict[str, int]]:
    """Every combination of places along `axes`, with "base": what a family has to be tried on.

    >>> list(all_places(Mesh(dp=2, tp=4), ("dp",), 7))
    [{'base': 7, 'dp': 0}, {'base': 7, 'dp': 1}]
    """
    rest = {axis: 0 for axis in mesh.axes if axis not in axes}
    for rank in mesh.select(**rest):
        places = mesh.coordinate(rank)
        yield {BASE: base_seed, **{axis: places[axis] for axis in axes}}
