"""Which dialect a source is written in, and the job it describes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rankatlas.core import parse_layout
from rankatlas.core.description import ATLAS_FORMAT, MESH_FORMAT, layout_from_dict
from rankatlas.dialects import paddle, recorded
from rankatlas.dialects.content import notation_in, parse, settings
from rankatlas.dialects.sources import names_a_file, read_text
from rankatlas.errors import InputError, SourceError, shown
from rankatlas.job import Job
from rankatlas.records.record import FORMAT as RECORD_FORMAT

FORMATS = MappingProxyType(
    {
        "notation": "text such as 'pp=4 dp=2 tp=8'",
        "rankatlas": "a stored layout (Mesh.to_dict or Atlas.to_dict as JSON), or the record of a job",
        "paddlenlp-2.8": "training arguments of PaddleNLP, or the short degrees, as JSON or YAML",
        "paddleformers-1.2": "training arguments of PaddleFormers as JSON or YAML",
    }
)


def read_config(source: str, format: str | None = None, *, world_size: int | None = None) -> Job:
    """The job that `source` describes: notation, the path of a file or pipe, or "-" for standard input.

    Text with `=` that names no file is notation.  `format` is one of `FORMATS` and overrides what the content
    suggests.  Cost: O(bytes), at most 16 MiB.

    Raises SourceError (nothing there, unreadable, or no layout in it), and the errors of the reader.

    >>> read_config("pp=2 dp=? tp=4", world_size=16).layout
    Mesh(pp=2, dp=2, tp=4)
    """
    if format is not None and format not in FORMATS:
        raise SourceError(f"no format {shown(format)}; the formats are {', '.join(FORMATS)}", source=source)
    if not names_a_file(source):
        _refuse_notation_as(format, source, "is notation")
        return Job(parse_layout(source, world_size), format="notation", source=source)
    text = read_text(source).strip()
    notation = notation_in(text) or (text if format == "notation" else None)
    if notation:
        _refuse_notation_as(format, source, "holds notation")
        return Job(parse_layout(notation, world_size), format="notation", source=source)
    return _job(settings(parse(text, source), source), source, format, world_size)


def read_content(source: str) -> Any:
    """What a JSON or YAML file holds, a mapping or a list, whatever it describes.  Raises SourceError."""
    content = parse(read_text(source).strip(), source)
    return content if isinstance(content, list) else settings(content, source)


def _refuse_notation_as(format: str | None, source: str, what: str) -> None:
    if format not in (None, "notation"):
        raise SourceError(
            f"{shown(source)} {what}, which cannot be read as {format}; leave --from {format} out", source=source
        )


def _job(content: Mapping[str, Any], source: str, format: str | None, world_size: int | None) -> Job:
    detected = str(content.get("format", ""))
    if detected == RECORD_FORMAT and format in (None, "rankatlas"):
        return recorded.read(content, source, world_size)
    if format == "rankatlas" or (format is None and detected.startswith("rankatlas.")):
        if format is None and detected not in (MESH_FORMAT, ATLAS_FORMAT):
            raise SourceError(
                f"{shown(source)} has format {shown(detected)}, which this release does not know", source=source
            )
        layout = layout_from_dict(content)
        if world_size is not None and layout.world_size != world_size:
            raise InputError(f"the stored layout has {layout.world_size} ranks, the world size given is {world_size}")
        return Job(layout, format="rankatlas", source=source)
    return paddle.read(content, source, format, world_size)
