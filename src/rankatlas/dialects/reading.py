"""Which dialect a source is written in, and the job it describes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rankatlas.core import parse_layout
from rankatlas.core.description import ATLAS_FORMAT, MESH_FORMAT, layout_from_dict
from rankatlas.dialects import paddle, recorded
from rankatlas.errors import InputError, RankatlasError, SourceError, shown
from rankatlas.job import Job
from rankatlas.records.record import FORMAT as RECORD_FORMAT

_MOST_BYTES = 16 << 20  # no launch configuration is larger; a wrong path (a checkpoint, a device) often is

FORMATS = MappingProxyType(
    {
        "notation": "text such as 'pp=4 dp=2 tp=8'",
        "rankatlas": "a stored layout (Mesh.to_dict or Atlas.to_dict as JSON), or the record of a job",
        "paddlenlp-2.8": "training arguments of PaddleNLP, or the short degrees, as JSON or YAML",
        "paddleformers-1.2": "training arguments of PaddleFormers as JSON or YAML",
    }
)


def read_config(source: str, format: str | None = None, *, world_size: int | None = None) -> Job:
    """The job that `source` describes: notation, the path of a file, or "-" for standard input.

    Text with `=` that names no file is notation.  `format` is one of `FORMATS` and overrides what the content
    suggests.  Cost: O(bytes), at most 16 MiB.

    Raises SourceError (nothing there, unreadable, or no layout in it), and the errors of the reader.

    >>> read_config("pp=2 dp=? tp=4", world_size=16).layout
    Mesh(pp=2, dp=2, tp=4)
    """
    if format is not None and format not in FORMATS:
        raise SourceError(f"no format {shown(format)}; the formats are {', '.join(FORMATS)}", source=source)
    if format == "notation" or (format is None and _is_notation(source)):
        return Job(parse_layout(source, world_size), format="notation", source=source)
    text = _text(source).strip()
    if "=" in text and "\n" not in text and not text.startswith(("{", "[")):
        return Job(parse_layout(text, world_size), format="notation", source=source)
    return _job(_content(text, source), source, format, world_size)


def read_content(source: str) -> Mapping[str, Any]:
    """The mapping in a JSON or YAML file, whatever it describes.  Raises SourceError."""
    return _content(_text(source).strip(), source)


def _is_notation(source: str) -> bool:
    return "=" in source and not os.path.exists(source)


def _text(source: str) -> str:
    try:
        if source == "-":
            import sys

            data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        elif not os.path.exists(source):
            raise SourceError(
                f"{shown(source)} names no file, and without '=' it is no notation such as 'pp=4 dp=2 tp=8'",
                source=source,
            )
        elif not os.path.isfile(source):
            raise SourceError(f"{shown(source)} is no regular file", source=source)
        else:
            with open(source, "rb") as file:
                data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, RankatlasError):
            raise
        raise SourceError(f"cannot read {shown(source)}: {error}", source=source) from None
    if len(data) > _MOST_BYTES:
        raise SourceError(
            f"{shown(source)} is larger than {_MOST_BYTES >> 20} MiB; that is no configuration", source=source
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(f"{shown(source)} is not UTF-8 text (byte {error.start})", source=source) from None


def _content(text: str, source: str) -> Mapping[str, Any]:
    """The mapping in JSON or YAML text."""
    if not text.startswith(("{", "[")):
        content = _yaml(text, source)
    else:
        try:
            content = json.loads(text, object_pairs_hook=lambda pairs: _unique(pairs, source))
        except RecursionError:
            raise SourceError(f"{shown(source)} is nested too deeply", source=source) from None
        except ValueError as error:
            if isinstance(error, RankatlasError):
                raise
            raise SourceError(f"{shown(source)} is not valid JSON: {error}", source=source) from None
    if not isinstance(content, Mapping):
        raise SourceError(f"{shown(source)} holds a {type(content).__name__}, not a mapping of settings", source=source)
    return content


def _yaml(text: str, source: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            _unique([(key.value, None) for key, _ in node.value], source)
            return super().construct_mapping(node, deep)

    try:
        for token in yaml.scan(text, Loader=Loader):
            # Aliases and merges could blow a small file up; no launch configuration needs them.
            if isinstance(token, yaml.AliasToken) or (isinstance(token, yaml.ScalarToken) and token.value == "<<"):
                raise SourceError(f"{shown(source)} uses YAML aliases or merges, which are not read", source=source)
        return yaml.load(text, Loader=Loader)
    except RankatlasError:
        raise
    except Exception as error:  # tagged values fail inside the reader in many ways
        detail = " ".join(str(error).split())[:200] or type(error).__name__
        raise SourceError(f"{shown(source)} is neither notation, JSON nor YAML: {detail}", source=source) from None


def _unique(pairs: list[tuple[Any, Any]], source: str) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if str(key) in found:
            raise SourceError(f"{shown(source)} sets {shown(key)} twice", source=source)
        found[str(key)] = value
    return found


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
