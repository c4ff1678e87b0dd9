"""Training arguments of PaddleNLP and PaddleFormers, and the short degrees of their `llm/config` files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rankatlas.core import Mesh
from rankatlas.dialects.content import READ, keys_in
from rankatlas.errors import SourceError, shown
from rankatlas.job import Fact, Job
from rankatlas.topology.argument_names import OTHER_ARGUMENTS, is_set, near_misses
from rankatlas.topology.training_args import (
    Settled,
    flag,
    implied_world_size,
    known_keys,
    read_arguments,
    read_auto_parallel,
)

# Sets a size of the layout or looks as if it did; a virtual degree cuts layers, not ranks.
_MOST_NOTES = 20
_LOOKS_LIKE_A_DEGREE = re.compile(r"^(?!virtual_).*(_degree|_parallel_size|_parallel_degree|_group_size)$")
_SHARED_WITH_MEGATRON = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
# What Megatron has not: one of these beside a shared name settles whose it is.
_PADDLE_SIGNS = ("sharding", "sharding_degree", "hybrid_parallel_topo_order", "enable_auto_parallel", "dp_degree")
_FORMERS_STAGES = ("PT", "SFT", "DPO", "KTO", "RM", "VL-SFT", "VL-PT", "DPO-VL")


def read(content: Mapping[str, Any], source: str, format: str | None, world_size: int | None) -> Job:
    """The job of training arguments.  Cost: O(keys).

    Raises SourceError when nothing in them sets a degree, when their release cannot be told, or when neither they nor
    `world_size` say how many ranks there are; and the errors of `read_arguments`.
    """
    release = format or _release(content, source)
    if world_size is None:
        world_size = implied_world_size(content, release=release)
    if world_size is None:
        raise SourceError(
            f"{shown(source)} holds training arguments, which do not say how many ranks run them: give the world size"
            " (--world-size N), or set the data and the sharding degree too",
            source=source,
        )
    notes = _notes(content, release)
    if flag(content, "enable_auto_parallel"):
        settled, more = _auto_parallel(content, release, world_size)
        notes += more
    else:
        settled = read_arguments(content, world_size, release=release)
        settled = settled._replace(origins=_told(settled.origins, world_size))
    mesh = Mesh.from_axes([(axis, settled.degrees[axis]) for axis in settled.order])
    facts = [Fact(axis, settled.degrees[axis], settled.origins[axis]) for axis in settled.order]
    seed = content.get("seed")
    given = seed if isinstance(seed, int) and not isinstance(seed, bool) else None
    return Job(mesh, format=release, source=source, facts=facts, notes=notes, seed=given)


def _told(origins: Mapping[str, str], world_size: int) -> dict[str, str]:
    """Where each size came from, for a reader."""
    words = {"inferred": f"inferred from world size {world_size}", "not set": "not set"}
    return {axis: words.get(origin, f"given: {origin}") for axis, origin in origins.items()}


def _auto_parallel(content: Mapping[str, Any], release: str, world_size: int) -> tuple[Settled, list[str]]:
    """The axes the auto-parallel trainer communicates along, outer → inner, and a note where its seeds follow others.

    There sharding lies inside dp, which so holds the ranks of both.
    """
    settled = read_auto_parallel(content, world_size, release=release)
    sizes, told = settled.degrees, _told(settled.origins, world_size)
    told["dp"] = f"data degree {sizes['dp']} ({told['dp']}) × sharding degree {sizes['sharding']} ({told['sharding']})"
    told["sharding"] = "always 1 with auto-parallel, where it lies inside dp"
    sizes = {**sizes, "dp": sizes["dp"] * sizes["sharding"], "sharding": 1}
    notes = []
    if min(sizes["mp"], sizes["sep"]) > 1:
        seeded = read_arguments(content, world_size, release=release, auto_parallel=True)
        order = " ".join(f"{axis}={sizes[axis]}" for axis in seeded.order)
        notes.append(
            "seeds and groups follow other coordinates: with auto-parallel the trainer communicates along these axes,"
            f" while the scripts seed from {order!r} (mp before sep)"
        )
    return settled._replace(degrees=sizes, origins=told), notes


def _release(content: Mapping[str, Any], source: str) -> str:
    nlp, formers = known_keys("paddlenlp-2.8"), known_keys("paddleformers-1.2")
    if any(key in formers and key not in nlp and key not in _SHARED_WITH_MEGATRON for key in content):
        return "paddleformers-1.2"
    shared = [key for key in _SHARED_WITH_MEGATRON if key in content]
    if shared and (any(key in content for key in _PADDLE_SIGNS) or content.get("stage") in _FORMERS_STAGES):
        return "paddleformers-1.2"
    if shared:
        raise SourceError(
            f"{', '.join(shared)} in {shown(source)} may be PaddleFormers (outer → inner dp, sharding, pp, sep, mp) or"
            " Megatron (pp, dp, ep, cp, tp)\n"
            "say --from paddleformers-1.2 if it is the first; Megatron is not read yet, write its layout as notation",
            source=source,
        )
    if any(key in nlp for key in content):
        return "paddlenlp-2.8"
    raise _no_degree(content, source)


def _no_degree(content: Mapping[str, Any], source: str) -> SourceError:
    """The error for a file that sets no degree: what is in it, what was probably meant, what is read."""
    lines = [f"nothing in {shown(source)} sets a parallel degree; {keys_in(content)}"]
    slips = near_misses(content, "paddlenlp-2.8")
    asked = [f"{shown(key)}: did you mean {name}?" for key, name in slips.items() if is_set(key, content[key])]
    lines += ["; ".join(asked[:3])] if asked else []
    inner = [key for key, value in content.items() if isinstance(value, Mapping) and any(map(_known, value))]
    lines += [f"there are degrees below {shown(inner[0])}: give that part as a file of its own"] if inner else []
    return SourceError("\n".join([*lines, READ]), source=source)


def _known(key: object) -> bool:
    return key in known_keys("paddlenlp-2.8") or key in known_keys("paddleformers-1.2")


def _notes(content: Mapping[str, Any], release: str) -> list[str]:
    """What was given and sets nothing: names that are nearly an argument's, and others that look like a degree."""
    near = near_misses(content, release)
    known = known_keys(release)
    notes = []
    for key, value in content.items():
        if key in near and is_set(key, value):
            notes.append(f"{key}={shown(value)} is not understood and was left out; did you mean {near[key]}?")
        elif _LOOKS_LIKE_A_DEGREE.match(key) and key not in (*known, *OTHER_ARGUMENTS) and value not in (None, -1, 1):
            notes.append(f"{key}={shown(value)} is not understood and was left out")
    hidden = len(notes) - _MOST_NOTES
    return [*notes[:_MOST_NOTES], f"{hidden} more settings are not understood"] if hidden > 0 else notes
