"""Training arguments of PaddleNLP and PaddleFormers, and the short degrees of their `llm/config` files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rankatlas.core import Mesh
from rankatlas.errors import SourceError, shown
from rankatlas.job import Fact, Job
from rankatlas.topology.training_args import known_keys, read_arguments

# Sets a size of the layout or looks as if it did; a virtual degree cuts layers, not ranks.
_LOOKS_LIKE_A_DEGREE = re.compile(r"^(?!virtual_).*(_degree|_parallel_size|_parallel_degree|_group_size)$")
_SHARED_WITH_MEGATRON = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


def read(content: Mapping[str, Any], source: str, format: str | None, world_size: int | None) -> Job:
    """The job of training arguments.  Cost: O(keys).

    Raises SourceError when nothing in them sets a degree, when their release cannot be told, or without a
    `world_size`; and the errors of `read_arguments`.
    """
    release = format or _release(content, source)
    if world_size is None:
        raise SourceError(
            f"{shown(source)} holds training arguments, which do not say how many ranks run them: give the world size"
            " (--world-size N)",
            source=source,
        )
    auto = content.get("enable_auto_parallel") in (True, 1)
    settled = read_arguments(content, world_size, release=release, auto_parallel=auto)
    mesh = Mesh.from_axes([(axis, settled.degrees[axis]) for axis in settled.order])
    facts = [Fact(axis, settled.degrees[axis], _origin(settled.origins[axis], world_size)) for axis in settled.order]
    return Job(mesh, format=release, source=source, facts=facts, notes=_notes(content, release, auto, mesh))


def _origin(origin: str, world_size: int) -> str:
    if origin == "inferred":
        return f"inferred from world size {world_size}"
    return origin if origin == "not set" else f"given: {origin}"


def _release(content: Mapping[str, Any], source: str) -> str:
    nlp, formers = known_keys("paddlenlp-2.8"), known_keys("paddleformers-1.2")
    if any(key in formers and key not in nlp and key not in _SHARED_WITH_MEGATRON for key in content):
        return "paddleformers-1.2"
    shared = [key for key in _SHARED_WITH_MEGATRON if key in content]
    if shared:
        raise SourceError(
            f"{', '.join(shared)} in {shown(source)} may be PaddleFormers (outer → inner dp, sharding, pp, sep, mp) or"
            " Megatron (pp, dp, ep, cp, tp): say --from paddleformers-1.2 if it is the first;"
            " Megatron is not read yet, write its layout as notation",
            source=source,
        )
    if any(key in nlp for key in content):
        return "paddlenlp-2.8"
    raise SourceError(
        f"nothing in {shown(source)} sets a parallel degree; known are {', '.join(known_keys('paddlenlp-2.8'))},"
        " the PaddleFormers names, and stored layouts",
        source=source,
    )


def _notes(content: Mapping[str, Any], release: str, auto: bool, mesh: Mesh) -> list[str]:
    known = known_keys(release)
    notes = [
        f"{key}={shown(content[key])} is not understood and was left out"
        for key in map(str, content)
        if _LOOKS_LIKE_A_DEGREE.match(key) and key not in known and content[key] not in (None, -1, 1)
    ]
    if auto and mesh.size("sep") > 1 and mesh.size("mp") > 1:
        notes.append(
            "with auto-parallel the scripts seed from this order (mp before sep), while the trainer communicates"
            " with sep before mp: seeds and groups follow other coordinates"
        )
    return notes
