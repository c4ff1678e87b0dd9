"""The whole numbers of `$((…))`: + - * / % and brackets over plain names, nothing a shell could do besides."""

from __future__ import annotations

import re
from collections.abc import Callable

from rankatlas.errors import SourceError, shown

_TOKEN = re.compile(r"\s*(?:(0[xX][\da-fA-F]{1,15}|\d{1,18})(?![\w#])|\$?\{?([A-Za-z_]\w*)\}?|([-+*/%()]))")
_ASSIGNS = re.compile(r"\s*([A-Za-z_]\w*)\s*(<<|>>|[-+*/%&|^])?=(?!=)(.*)", re.DOTALL)
_STEPS = re.compile(r"\s*(?:([A-Za-z_]\w*)\s*(\+\+|--)|(\+\+|--)\s*([A-Za-z_]\w*))\s*")
_MOST_TEXT = 4096
_MOST_TOKENS = 200
_MOST = 1 << 62


def integer(text: str, value: Callable[[str], int]) -> int:
    """The value of an expression, names looked up with `value`.  Raises SourceError, and whatever `value` does.

    >>> integer("GPUS * $NODES - 1", {"GPUS": 8, "NODES": 2}.__getitem__)
    15
    """
    tokens: list[int | str] = []
    place = 0
    text = text.strip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if not match or len(tokens) > _MOST_TOKENS:
            raise SourceError(f"$(({shown(text)})) is more than whole numbers and + - * / %", source=text)
        number, name, sign = match.groups()
        tokens.append(_number(number) if number else value(name) if name else sign)
        place = match.end()
    result, rest = _sum(tokens, 0, 0)
    if rest != len(tokens):
        raise SourceError(f"$(({shown(text)})) cannot be read", source=text)
    return result


def assigned(text: str) -> list[tuple[str, str]]:
    """The names that `((text))` gives a value, each with the expression of it.

    >>> assigned("TP=4, PP*=2+1"), assigned("n++"), assigned("a == 2")
    ([('TP', '4'), ('PP', 'PP*(2+1)')], [('n', 'n+1')], [])
    """
    found = []
    for part in text[:_MOST_TEXT].split(","):
        match = _ASSIGNS.fullmatch(part)
        if match:
            name, sign, value = match.groups()
            found.append((name, f"{name}{sign}({value})" if sign else value.strip()))
        step = _STEPS.fullmatch(part)
        if step:
            name, sign = step[1] or step[4], (step[2] or step[3])[0]
            found.append((name, f"{name}{sign}1"))
    return found


def _number(text: str) -> int:
    """A number as a shell writes it: 0x10 and 020 are 16."""
    try:
        return int(text, 16 if text[:2] in ("0x", "0X") else 8 if text[0] == "0" else 10)
    except ValueError:
        raise SourceError(f"$((…)) holds {text}, which begins with 0 and is not octal", source=text) from None


def _sum(tokens: list[int | str], place: int, depth: int) -> tuple[int, int]:
    total, place = _product(tokens, place, depth)
    while place < len(tokens) and tokens[place] in ("+", "-"):
        sign = 1 if tokens[place] == "+" else -1
        term, place = _product(tokens, place + 1, depth)
        total += sign * term
    return _bounded(total), place


def _product(tokens: list[int | str], place: int, depth: int) -> tuple[int, int]:
    total, place = _atom(tokens, place, depth)
    while place < len(tokens) and tokens[place] in ("*", "/", "%"):
        sign = tokens[place]
        factor, place = _atom(tokens, place + 1, depth)
        if sign != "*" and factor == 0:
            raise SourceError("a division by 0 in $((…))", source="")
        whole = 0 if sign == "*" else abs(total) // abs(factor) * (1 if (total < 0) == (factor < 0) else -1)
        total = total * factor if sign == "*" else whole if sign == "/" else total - whole * factor
    return _bounded(total), place


def _atom(tokens: list[int | str], place: int, depth: int) -> tuple[int, int]:
    if place < len(tokens) and isinstance(tokens[place], int):
        return int(tokens[place]), place + 1
    if place < len(tokens) and tokens[place] == "(" and depth < 50:
        inner, place = _sum(tokens, place + 1, depth + 1)
        if place < len(tokens) and tokens[place] == ")":
            return inner, place + 1
    if place < len(tokens) and tokens[place] == "-" and depth < 50:
        inner, place = _atom(tokens, place + 1, depth + 1)
        return -inner, place
    raise SourceError("$((…)) cannot be read: a number is missing", source="")


def _bounded(number: int) -> int:
    if abs(number) > _MOST:
        raise SourceError("a number in $((…)) is too large", source="")
    return number
