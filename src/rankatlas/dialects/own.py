"""rankatlas's own way to write a job down: a layout in notation and the settings by their names, as YAML or JSON.

`job.schema.json` beside this file is its JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankatlas.catalogue import said
from rankatlas.core import parse_layout
from rankatlas.errors import SourceError, shown
from rankatlas.job import SETTINGS, Fact, Job
from rankatlas.pipeline import POLICIES

FORMAT = "rankatlas.job"
VERSION = 1
_KEYS = ("format", "version", "layout", "world_size", "seed", "settings")
_WORDS = ("fsdp", "cp_split", "recompute", "precision")
_SWITCHES = ("sequence_parallel", "linear_bias")
_MOST = 1 << 62


def read(content: Mapping[str, Any], source: str, world_size: int | None) -> Job:
    """The job of a mapping as `job.schema.json` describes it.  Cost: O(keys).

    Raises SourceError (a key, a setting or a value that the format does not have), NotationError, WorldSizeError.
    """
    if content.get("version") != VERSION:
        raise SourceError(
            f"{shown(source)} has version {shown(content.get('version'))} of {FORMAT}; this release reads {VERSION}",
            source=source,
        )
    _refuse_unknown(content, _KEYS, "key", source)
    layout = content.get("layout")
    if not isinstance(layout, str):
        raise SourceError(
            f"layout in {shown(source)} is notation such as 'pp=4 dp=2 tp=8', not {shown(layout)}", source=source
        )
    world = world_size if world_size is not None else content.get("world_size")
    if world is not None and not _positive(world):
        raise SourceError(f"world_size in {shown(source)} is a positive integer, not {shown(world)}", source=source)
    seed = content.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise SourceError(f"seed in {shown(source)} is an integer, not {shown(seed)}", source=source)
    read_layout = parse_layout(layout, world)
    charts = [read_layout] if not hasattr(read_layout, "charts") else list(read_layout.charts.values())
    origin = said("given.key", key="layout")
    facts = {axis: Fact(axis, mesh.size(axis), origin) for mesh in charts for axis in mesh.axes}
    return Job(
        read_layout,
        format="rankatlas",
        source=source,
        facts=facts.values(),
        seed=seed,
        settings=_settings(content.get("settings"), source),
    )


def _settings(given: object, source: str) -> list[Fact]:
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise SourceError(f"settings in {shown(source)} is a mapping, not {shown(given)}", source=source)
    _refuse_unknown(given, tuple(SETTINGS), "setting", source)
    facts = []
    for name, value in given.items():
        if value is None:
            continue
        if not _fits(name, value):
            wanted = {
                "stage_layers": "a list of positive integers",
                "zero_stage": "0, 1, 2 or 3",
                "cp_split": "contiguous or balanced",
                **dict.fromkeys(_SWITCHES, "true or false"),
                "layer_split": f"one of {', '.join(POLICIES)}",
            }
            told = wanted.get(name, "text" if name in _WORDS else "a positive integer")
            raise SourceError(f"settings.{name} in {shown(source)} is {told}, not {shown(value)}", source=source)
        facts.append(Fact(name, value, said("given.key", key=f"settings.{name}")))
    return facts


def _fits(name: str, value: object) -> bool:
    if name == "stage_layers":
        return isinstance(value, list) and 0 < len(value) <= 1 << 16 and all(map(_positive, value))
    if name == "zero_stage":
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 3
    if name in _SWITCHES:
        return isinstance(value, bool)
    if name == "cp_split":
        return value in ("contiguous", "balanced")
    if name == "layer_split":
        return isinstance(value, str) and value in POLICIES
    return isinstance(value, str) and bool(value) if name in _WORDS else _positive(value)


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST


def _refuse_unknown(given: Mapping[str, Any], known: tuple[str, ...], what: str, source: str) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        from difflib import get_close_matches

        near = get_close_matches(unknown[0][:60], known, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
        raise SourceError(f"{shown(source)} has no such {what}: {shown(unknown[0])}{hint}", source=source)
