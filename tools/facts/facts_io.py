"""What the programs in this folder share: asking a peer, and writing down what it said.

They run inside a peer's environment, so this imports the standard library only (and never rankatlas: a peer's answer
must not pass through the code that it will be compared with).
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any


def plain(value: Any) -> Any:
    """`value` as JSON knows it: numpy scalars become int, float or bool, tuples become lists."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Iterable):
        return [plain(item) for item in value]
    raise TypeError(f"{type(value)} is no answer that JSON can hold")


def error_of(error: BaseException) -> dict[str, str]:
    """An exception as a fact: its type and its message."""
    return {"type": type(error).__name__, "message": str(error)}


def answer(function: Callable[..., Any], *arguments: Any, **named: Any) -> dict[str, Any]:
    """{"answer": …} or {"error": {"type", "message"}} of one call; whatever a peer raises is a fact about it."""
    try:
        return {"answer": plain(function(*arguments, **named))}
    except Exception as error:
        return {"error": error_of(error)}


def installed_file(distribution: str, relative: str) -> Path:
    """A file of an installed distribution, without importing the package around it."""
    return Path(str(importlib.metadata.distribution(distribution).locate_file(relative)))


def load_file(path: Path, name: str) -> ModuleType:
    """Import one file as a module of its own."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded as a module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def definitions(path: Path, *names: str) -> list[ast.stmt]:
    """The top-level statements of a file that define `names` (classes, functions, assignments), in the file's order.

    Files that import a whole training framework cannot be imported here, but the few definitions we ask about stand
    on their own: they are compiled as they are, in a namespace that has just what they use.
    """
    found: list[ast.stmt] = []
    seen: set[str] = set()
    for statement in ast.parse(path.read_text(encoding="utf-8"), str(path)).body:
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
            defined = {statement.name}
        elif isinstance(statement, ast.Assign):
            defined = {target.id for target in statement.targets if isinstance(target, ast.Name)}
        else:
            continue
        if defined & set(names):
            found.append(statement)
            seen |= defined
    missing = [name for name in names if name not in seen]
    if missing:
        raise LookupError(f"{path} defines no {', '.join(missing)}")
    return found


def run(statements: Sequence[ast.stmt], namespace: dict[str, Any], path: Path) -> dict[str, Any]:
    """Compile and run statements of a peer's file in `namespace`; their line numbers stay those of the file.

    Annotations stay unevaluated, since they name types of the framework that is not there.
    """
    flags = __import__("__future__").annotations.compiler_flag
    module = ast.Module(body=list(statements), type_ignores=[])
    exec(compile(module, str(path), "exec", flags=flags, dont_inherit=True), namespace)
    return namespace


def deliver(facts: Sequence[Mapping[str, Any]], **header: Any) -> None:
    """Write the facts and what is to be said about all of them to the file named on the command line.

    A file and not stdout, because several peers print to stdout when they are imported.
    """
    Path(sys.argv[-1]).write_text(json.dumps({"header": header, "facts": facts}), encoding="utf-8")
