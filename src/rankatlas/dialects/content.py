"""What the text of a file holds: settings, a list, notation on one line or several."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from rankatlas.errors import RankatlasError, SourceError, shown

READ = (
    "what is read: notation such as 'pp=4 dp=2 tp=8', stored layouts and records of rankatlas, and what these are"
    " launched with or print: Megatron-LM, PaddleNLP 2.8, PaddleFormers 1.2, DeepSpeed, torchtitan, accelerate, verl,"
    " NeMo-RL"
)
_MOST_YAML = 1 << 18  # characters; the reader is slow, and a configuration of that size is not written by hand
_MOST_DEPTH = 100
_MOST_KEYS = 8  # keys of a file that a message lists
_MOST_TEXT = 1 << 16  # characters of a file that may be notation

_COMMENT = re.compile(r"(^|\s)#.*")
_CHART = re.compile(r"^\s*\w+\s*:")
_ITEM = re.compile(r"^[A-Za-z_]\w*=\S*$")
_SECTION = re.compile(r"\[[A-Za-z_][\w.-]*\]\s*(#.*)?")
_ASSIGNED = re.compile(r"[A-Za-z_][\w.-]*\s*=\s*\S")
_SIZE = re.compile(r"=(\d+|\?|-1)$")


def notation_in(text: str) -> str | None:
    """The notation that the text of a file is, on one line, or None where it is something else.

    Comments (`# …`) are left out; charts may stand on lines of their own.  Cost: O(text).

    >>> notation_in("dp=2  # outer\\ntp=4"), notation_in("mp_degree: 2 # a=b"), notation_in("a: dp=2\\nb: ep=2")
    ('dp=2 tp=4', None, 'a: dp=2; b: ep=2')
    """
    if len(text) > _MOST_TEXT or text.lstrip().startswith(("{", "[")):
        return None
    joined = ""
    for line in text.splitlines():
        part = _COMMENT.sub("", line).strip()
        if part:
            between = "; " if _CHART.match(part) and not joined.endswith(";") else " "
            joined = f"{joined}{between}{part}" if joined else part
    words: list[str] = []
    for chart in joined.split(";"):
        name, colon, body = chart.rpartition(":")
        if colon and name.strip() == "shared":
            continue
        if colon and not name.strip().isidentifier():
            return None
        words += body.split()
    if words and all(map(_ITEM.match, words)) and any(map(_SIZE.search, words)):
        return joined
    return None


def parse(text: str, source: str) -> Any:
    """The JSON or YAML in `text`, each key of a mapping a str that stands once.  Raises SourceError."""
    if not text.startswith(("{", "[")) and is_log(text):
        raise no_configuration(source)
    if _is_toml(text):
        return _toml(text, source)
    if not text.startswith(("{", "[")):
        return _yaml(text, source)
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _unique(pairs, source))
    except RecursionError:
        raise SourceError(f"{shown(source)} is nested too deeply", source=source) from None
    except ValueError as error:
        if isinstance(error, RankatlasError):
            raise
        raise SourceError(f"{shown(source)} is not valid JSON: {error}", source=source) from None


_LOG_LINE = re.compile(
    r"\b(iteration|iter|step|loss|epoch|grad[ _]norm|learning rate|INFO|WARNING|ERROR|DEBUG)\b|\d\d:\d\d:\d\d"
)
_A_LOOK = 1 << 16  # characters looked at to tell a log


def is_log(text: str) -> bool:
    """Whether most of the first lines are what a program reports while it runs, and not settings.

    >>> is_log("iteration 1 | loss: 3.2\\niteration 2 | loss: 3.1\\n"), is_log("tp: 2\\nloss: mse\\n")
    (True, False)
    """
    lines = [line.strip() for line in text[:_A_LOOK].splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")][:200]
    told = sum(len(line.split()) >= 4 and bool(_LOG_LINE.search(line[:400])) for line in lines)
    return len(lines) >= 2 and 2 * told > len(lines)


def no_configuration(source: str) -> SourceError:
    """The error for a log in which no framework printed its configuration."""
    return SourceError(
        f"{shown(source)} looks like a log, and no framework's arguments are printed in it\n"
        "give the log of the first rank from its beginning, where they are printed, or the script that started the run",
        source=source,
    )


def settings(content: Any, source: str) -> Mapping[str, Any]:
    """`content` where it is a mapping of settings.  Raises SourceError, which says what it is and what is read."""
    if isinstance(content, Mapping):
        return {key if isinstance(key, str) else shown(key): value for key, value in content.items()}
    if content is None:
        raise SourceError(f"{shown(source)} is empty\n{READ}", source=source)
    what = {"str": "text that is no notation", "list": "a list"}.get(type(content).__name__, f"only {shown(content)}")
    held = f": {shown(content)}" if isinstance(content, str) else ""
    raise SourceError(f"{shown(source)} holds {what}, not a mapping of settings{held}\n{READ}", source=source)


def options_as_settings(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options that stand in a file as a mapping, as settings: Megatron-LM keeps its test cases so, below MODEL_ARGS.

    >>> options_as_settings({"MODEL_ARGS": {"--tensor-model-parallel-size": 2, "--bf16": True}})
    {'tensor_model_parallel_size': 2, 'bf16': True}
    >>> options_as_settings({"tp": 2})
    {'tp': 2}
    """
    inner = content.get("MODEL_ARGS", content)
    if not isinstance(inner, Mapping) or not any(isinstance(key, str) and key.startswith("--") for key in inner):
        return content
    return {str(key).lstrip("-").replace("-", "_"): value for key, value in inner.items()}


def keys_in(content: Mapping[str, Any]) -> str:
    """The top-level keys of a file, for a message.

    >>> keys_in({"optimizer": {}, "fp16": {}})
    "its keys are 'optimizer', 'fp16'"
    """
    if not content:
        return "it has no keys"
    listed = ", ".join(shown(key) for key, _ in zip(content, range(_MOST_KEYS)))
    return f"its keys are {listed}" + (f", … ({len(content)} keys)" if len(content) > _MOST_KEYS else "")


def _is_toml(text: str) -> bool:
    """Whether the first line that is neither a comment nor `name = value` is `[section]`."""
    for line in text[:_MOST_YAML].splitlines():
        held = line.strip()
        if held and not held.startswith("#") and not _ASSIGNED.match(held):
            return bool(_SECTION.fullmatch(held))
    return False


def _toml(text: str, source: str) -> Any:
    if len(text) > _MOST_YAML or bracket_depth(text) > _MOST_DEPTH:
        raise SourceError(f"{shown(source)} is too large or nested too deeply for TOML", source=source)
    try:
        from importlib import import_module

        loads = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads
        return loads(text)
    except ImportError:
        raise SourceError(
            f"{shown(source)} is TOML, which Python before 3.11 reads with tomli: pip install tomli", source=source
        ) from None
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{shown(source)} is not valid TOML: {error}", source=source) from None


def _yaml(text: str, source: str) -> Any:
    if len(text) > _MOST_YAML:
        raise SourceError(f"{shown(source)} is larger than 256 KiB; only JSON is read at that size", source=source)
    if bracket_depth(text) > _MOST_DEPTH:
        raise SourceError(f"{shown(source)} is nested too deeply", source=source)
    from rankatlas.dialects.careful_yaml import load

    try:
        return load(text, lambda keys: _unique([(key, None) for key in keys], source))
    except RankatlasError:
        raise
    except RecursionError:
        raise SourceError(f"{shown(source)} is nested too deeply", source=source) from None
    except Exception as error:  # tagged values fail inside the reader in many ways
        detail = " ".join(str(error).split())[:200] or type(error).__name__
        raise SourceError(
            f"{shown(source)} is neither notation, JSON nor YAML: {detail}\n{READ}", source=source
        ) from None


def bracket_depth(text: str, opening: str = "[{", closing: str = "]}") -> int:
    """The most brackets open at once, those in quotes counted too: reading them costs the square of their depth.

    >>> bracket_depth("[{}, [[]]]"), bracket_depth("([])"), bracket_depth("([])", "[{(", "]})")
    (3, 1, 2)
    """
    deepest = depth = 0
    for char in text:
        if char in opening:
            depth += 1
            deepest = max(deepest, depth)
        elif char in closing:
            depth -= 1
    return deepest


def _unique(pairs: list[tuple[Any, Any]], source: str) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if str(key) in found:
            raise SourceError(f"{shown(source)} sets {shown(key)} twice", source=source)
        found[str(key)] = value
    return found
