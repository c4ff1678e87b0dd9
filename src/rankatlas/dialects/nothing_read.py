"""The error for a source in which nothing sets a layout: what is in it, what was probably meant, what is read."""

from __future__ import annotations

from collections.abc import Mapping

from rankatlas.dialects.content import READ, keys_in
from rankatlas.dialects.given import Given
from rankatlas.dialects.megatron_names import slips
from rankatlas.errors import NoLayoutError, SourceError, shown
from rankatlas.topology.argument_names import is_set, near_misses
from rankatlas.topology.training_args import known_keys


def nothing_in(given: Given) -> SourceError:
    """The error for settings that set no degree.  Cost: O(keys)."""
    if given.kind == "script":
        return _no_options(given)
    lines = [f"nothing in {shown(given.source)} sets a parallel degree; {keys_in(given)}"]
    slips = near_misses(given, "paddlenlp-2.8")
    asked = [f"{shown(key)}: did you mean {name}?" for key, name in slips.items() if is_set(key, given[key])]
    asked = asked or _megatron(given)
    lines += ["; ".join(asked[:3])] if asked else []
    inner = [key for key, value in given.items() if isinstance(value, Mapping) and any(map(_known, value))]
    lines += [f"there are degrees below {shown(inner[0])}: give that part as a file of its own"] if inner else []
    kind = SourceError if asked or inner else NoLayoutError
    return kind("\n".join([*lines, READ]), source=given.source)


def _no_options(given: Given) -> SourceError:
    names = ", ".join(f"--{name}" for name, _ in zip(given.lines, range(8)))
    said = f"its options are {names}" if names else "it starts nothing with options"
    lines = [f"no option in {shown(given.source)} sets a parallel size or degree; {said}"]
    lines += list(given.notes[:2])
    asked = _megatron(given)
    lines += ["; ".join(asked[:3])] if asked else []
    lines.append(
        "a script that gets its settings elsewhere is not followed: give the file it reads, or the log of a run"
    )
    return SourceError("\n".join(lines), source=given.source)


def _megatron(given: Given) -> list[str]:
    return [f"{shown(key)}: did you mean {name}?" for key, name in slips(given, ()).items()]


def _known(key: object) -> bool:
    return key in known_keys("paddlenlp-2.8") or key in known_keys("paddleformers-1.2")
