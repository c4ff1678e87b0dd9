"""Values out of text: what a log, a command line or `repr` wrote, back as plain data; nothing is ever evaluated."""

from __future__ import annotations

import ast
import re
from typing import Any

from rankatlas.dialects.content import bracket_depth
from rankatlas.errors import SourceError, shown

_LONGEST_VALUE = 4096  # characters of one value in a block or on a command line
_LONGEST_TEXT = 4 << 20  # characters of a whole printed configuration
_MOST_DEPTH = 100
_INTEGER = re.compile(r"[-+]?\d{1,40}")
_FLOAT = re.compile(r"[-+]?(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][-+]?\d{1,4})?")
_WORDS = {"None": None, "null": None, "True": True, "true": True, "False": False, "false": False}


def value_of(text: str) -> Any:
    """One value as Python, JSON or a shell would write it; text where it is nothing else.  Cost: O(text).

    >>> value_of("8"), value_of("None"), value_of("[1, 2]"), value_of("bf16"), value_of("1e-5")
    (8, None, [1, 2], 'bf16', 1e-05)
    """
    text = text.strip()
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > _LONGEST_VALUE:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if text[:1] in ("[", "(", "{", "'", '"'):
        try:
            return literal(text, "")
        except SourceError:
            return text
    return text


def literal(text: str, source: str) -> Any:
    """A configuration as Python's `repr` or `pprint` writes it, also one inside a call such as `Config(a=1, b={…})`.

    What is no plain value (an object's own repr) becomes None.  Cost: O(text), at most 4 Mi characters.
    Raises SourceError.

    >>> literal("{'tp': 2, 'kind': Config(size=4)}", "")
    {'tp': 2, 'kind': {'size': 4}}
    """
    if len(text) > _LONGEST_TEXT or bracket_depth(text, "[{(", "]})") > _MOST_DEPTH:
        raise SourceError(
            f"the configuration printed in {shown(source)} is too long or nested too deeply", source=source
        )
    try:
        tree = ast.parse(_without_objects(text).strip(), mode="eval")
        return _plain(tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SourceError(f"the configuration printed in {shown(source)} is damaged", source=source) from None


def _plain(node: ast.AST) -> Any:
    if isinstance(node, ast.Constant):
        value = node.value
        return value if value is None or isinstance(value, (bool, int, float, str)) else None
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [_plain(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        return {str(_plain(key)): _plain(item) for key, item in zip(node.keys, node.values) if key is not None}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _plain(node.operand)
        return -inner if isinstance(inner, (int, float)) and not isinstance(inner, bool) else None
    if isinstance(node, ast.Call):
        return {word.arg: _plain(word.value) for word in node.keywords if word.arg is not None}
    return None


def _without_objects(text: str) -> str:
    """`<…>`, as Python writes what has no repr of its own, is no syntax: the value of an enumeration, else None."""
    text = re.sub(r"<[A-Za-z_][\w.]*: ('[^'\n]*'|-?\d+)>", r"\1", text)
    return re.sub(r"<[A-Za-z_][^<>\n'\"]{0,300}>", "None", text)
