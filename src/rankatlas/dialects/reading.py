"""Which dialect a source is written in, and the job it describes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rankatlas.catalogue import Said
from rankatlas.core.description import ATLAS_FORMAT, MESH_FORMAT, layout_from_dict
from rankatlas.dialects import own, recorded
from rankatlas.dialects.content import notation_in, options_as_settings, parse, settings
from rankatlas.dialects.given import Given
from rankatlas.dialects.log_blocks import given_in
from rankatlas.dialects.nothing_read import nothing_in
from rankatlas.dialects.offers import of_notation, with_offer
from rankatlas.dialects.registry import detect, dialect, named
from rankatlas.dialects.scripts import is_script, read_script
from rankatlas.dialects.sources import Held, hold, names_a_file, read_text
from rankatlas.errors import InputError, RankatlasError, SourceError, shown
from rankatlas.job import Job, Offer
from rankatlas.records.record import FORMAT as RECORD_FORMAT

_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")


def read_config(
    source: str,
    format: str | None = None,
    *,
    world_size: int | None = None,
    sets: Mapping[str, str] | None = None,
    offered: Offer | None = None,
    kept: dict[str, Held] | None = None,
) -> Job:
    """The job that `source` describes: notation, a command line, the path of a file or pipe, or "-" (standard input).

    Text with `=` that names no file is notation, and text with options such as `--tensor-model-parallel-size 2` a
    command line.  `format` is NAME or NAME@release, a name of `FORMATS`, and overrides what the content suggests.
    `sets` gives variables of a script, or settings, name → text; `offered` a number of ranks for a source that needs
    one and says none, which the job then has as its fact `world`.  `kept` holds what sources were found to hold: a
    pipe can be read only once, and a long log need not be scanned again.  Logs are scanned as a stream for the
    configuration that a framework printed.  Cost: O(bytes); of all but logs at most 16 MiB are read.

    Raises SourceError (nothing there, unreadable, no layout in it, or what it may mean is two things), and the errors
    of the reader.

    >>> read_config("pp=2 dp=? tp=4", world_size=16).layout
    Mesh(pp=2, dp=2, tp=4)
    >>> read_config("train.py --tensor-model-parallel-size 2", "megatron", world_size=4).layout
    Mesh(pp=1, dp=2, cp=1, tp=2)
    """
    sets = dict(sets or {})
    name, release = named(format, source) if format is not None else (None, None)
    if is_command_line(source):
        return _job(read_script(source, "the command line", sets), name, release, world_size, offered)
    if not names_a_file(source):
        _refuse_notation(format, source, sets, "is notation")
        return of_notation(source, source, world_size, offered)
    held = kept[source] if kept is not None and source in kept else hold(source)
    if kept is not None:
        kept[source] = held
    given = None if name in ("notation", "rankatlas") else given_in(held.blocks, source)
    if given is not None:
        return _job(given.with_settings(sets) if sets else given, name, release, world_size, offered)
    text = held.text.strip()
    notation = notation_in(text) or (text if name == "notation" else None)
    if notation:
        _refuse_notation(format, source, sets, "holds notation")
        return of_notation(notation, source, world_size, offered)
    return _of_text(text, source, name, release, world_size, sets, offered)


def is_command_line(source: str) -> bool:
    """Whether `source` is itself a command line with options, and no file of that name exists.

    >>> is_command_line("train.py --tp 2"), is_command_line("dp=2 tp=4")
    (True, False)
    """
    options = " --" in source or (source.startswith("--") and len(source) > 2)
    return (options or (" " in source and is_script(source))) and not os.path.exists(source)


def read_content(source: str) -> Any:
    """What a JSON or YAML file holds, a mapping or a list, whatever it describes.  Raises SourceError."""
    content = parse(read_text(source).strip(), source)
    return content if isinstance(content, list) else settings(content, source)


def _of_text(
    text: str,
    source: str,
    name: str | None,
    release: str | None,
    world_size: int | None,
    sets: dict[str, str],
    offered: Offer | None,
) -> Job:
    """The job of text that is no notation and in which no framework printed its configuration."""
    if is_script(text) or source.endswith(_SCRIPTS):
        return _job(read_script(text, source, sets), name, release, world_size, offered)
    content = options_as_settings(settings(parse(text, source), source))
    detected = str(content.get("format", ""))
    if detected == RECORD_FORMAT and name in (None, "rankatlas"):
        return recorded.read(content, source, world_size)
    if name == "rankatlas" or (name is None and detected.startswith("rankatlas.")):
        return with_offer(lambda world: _stored(content, source, name, world), world_size, offered)
    given = Given(content, source=source)
    return _job(given.with_settings(sets) if sets else given, name, release, world_size, offered)


def _refuse_notation(format: str | None, source: str, sets: Mapping[str, str], what: str) -> None:
    if format not in (None, "notation"):
        raise SourceError(
            f"{shown(source)} {what}, which cannot be read as {format}; leave --from {format} out", source=source
        )
    if sets:
        raise SourceError(f"{shown(source)} {what}, which has no settings: leave --set out", source=source)


def _stored(content: Mapping[str, Any], source: str, name: str | None, world_size: int | None) -> Job:
    detected = str(content.get("format", ""))
    if detected == own.FORMAT:
        return own.read(content, source, world_size)
    if name is None and detected not in (MESH_FORMAT, ATLAS_FORMAT):
        raise SourceError(
            f"{shown(source)} has format {shown(detected)}, which this release does not know", source=source
        )
    layout = layout_from_dict(content)
    if world_size is not None and layout.world_size != world_size:
        raise InputError(f"the stored layout has {layout.world_size} ranks, the world size given is {world_size}")
    return Job(layout, format="rankatlas", source=source)


def _job(
    given: Given, name: str | None, release: str | None, world_size: int | None, offered: Offer | None = None
) -> Job:
    if not given:
        raise nothing_in(given)
    if name in ("notation", "rankatlas"):
        raise SourceError(
            f"{shown(given.source)} holds options or settings of a launch, which cannot be read as {name}; leave"
            f" --from {name} out",
            source=given.source,
        )
    name = name or detect(given, world_size or (offered.world if offered else None))
    if name is None:
        raise nothing_in(given)
    found = dialect(name)
    try:
        job = with_offer(lambda world: found.read(given.afresh(), release, world), world_size, offered)
    except RankatlasError as error:
        error.__dict__.setdefault("dialect", name)  # whose words they are is known all the same
        raise
    job.launched = _launched(given, job.layout.world_size)
    return job


def _launched(given: Given, world: int) -> tuple[int, int] | None:
    """The nodes and the processes on each that the launcher says; None where it says another number of ranks."""
    if not isinstance(given.at("launcher.world_size"), int):
        return None
    origin = given.origin("launcher.world_size")
    if not isinstance(origin, Said) or origin.code != "launcher.nodes":
        return None
    nodes, each = int(origin.numbers["nodes"]), int(origin.numbers["each"])
    return (nodes, each) if nodes * each == world else None
