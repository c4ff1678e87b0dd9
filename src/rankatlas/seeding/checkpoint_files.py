"""Random states on disk: their form, checked whenever they are read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from rankatlas.core import Mesh
from rankatlas.errors import InputError, RandomStateError, shown
from rankatlas.whole_file import whole_file

FORMAT = "rankatlas.rng-checkpoint"
VERSION = 1
POLICIES = ("error", "reset-all", "keep-old-and-seed-new")
_MOST_BYTES = 256 << 20


def write_states(saved: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Store a checkpoint as JSON, or compressed where `path` ends in `.npz`; whole or not at all, and no pickle.

    Raises RandomStateError for what is no plain data, SourceError when it cannot be written.
    """
    try:
        text = json.dumps(saved, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise refusal(f"these random states are no plain data: {error}") from None
    if os.fspath(path).endswith(".npz"):
        import numpy

        with whole_file(path, binary=True) as file:
            numpy.savez_compressed(file, rankatlas=numpy.frombuffer(text.encode(), dtype=numpy.uint8))
    else:
        with whole_file(path) as file:
            file.write(text)


def read_states(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The checkpoint of `write_states`.  Raises RandomStateError when the file holds none, or more than 256 MiB."""
    name = os.fspath(path)
    try:
        if not os.path.isfile(name) or os.path.getsize(name) > _MOST_BYTES:
            raise OSError("it is no regular file of at most 256 MiB")
        saved = json.loads(_stored_text(name))
    except Exception as error:  # a damaged archive fails in a dozen ways
        raise refusal(f"{shown(name)} holds no random states: {error}") from None
    check_format(saved, POLICIES[0])
    return dict(saved)


def _stored_text(name: str) -> str:
    if not name.endswith(".npz"):
        with open(name, encoding="utf-8") as file:
            return file.read()
    import zipfile

    import numpy

    with zipfile.ZipFile(name) as members:
        if sum(member.file_size for member in members.infolist()) > _MOST_BYTES:
            raise OSError("unpacked it is larger than 256 MiB")
    with open(name, "rb") as archive, numpy.load(archive, allow_pickle=False) as stored:
        return bytes(stored["rankatlas"].tobytes()).decode()


def check_format(saved: object, policy: str) -> None:
    """Refuse what is no whole checkpoint of this version, and a policy that is none.  Raises RandomStateError."""
    fields = saved if isinstance(saved, Mapping) else {}
    if fields.get("format") != FORMAT or type(fields.get("version")) is not int or fields["version"] != VERSION:
        raise refusal(f"this is no {FORMAT} of version {VERSION}")
    try:
        if Mesh.from_dict(fields.get("mesh")).fingerprint() != fields.get("fingerprint"):  # type: ignore[arg-type]
            raise refusal("this checkpoint of random states is damaged: its mesh is not that of its fingerprint")
    except InputError as error:
        raise refusal(f"this checkpoint of random states is damaged: {error}") from None
    streams = fields.get("streams")
    whole = (
        isinstance(streams, Mapping)
        and isinstance(fields.get("backends"), list)
        and all(isinstance(entry, Mapping) and _is_whole(entry) for entry in streams.values())
    )
    if not whole:
        raise refusal("this checkpoint of random states is damaged: its streams are not whole")
    if policy not in POLICIES:
        raise refusal(f"policy is one of {', '.join(POLICIES)}, not {shown(policy)}")


def _is_whole(entry: Mapping[str, Any]) -> bool:
    axes, states = entry.get("axes"), entry.get("states")
    return (
        isinstance(axes, list)
        and all(isinstance(axis, str) for axis in axes)
        and isinstance(states, Mapping)
        and all(isinstance(kept, Mapping) and {"seed", "states"} <= set(kept) for kept in states.values())
    )


def refusal(message: str, axes: tuple[str, ...] = (), ranks: list[int] | None = None) -> RandomStateError:
    """The error about states, with the axes and ranks it is about."""
    return RandomStateError(message, axes=axes, ranks=ranks or [])
