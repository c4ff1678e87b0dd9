"""Training arguments of PaddleNLP and PaddleFormers, and the short degrees of their `llm/config` files."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rankatlas.catalogue import said
from rankatlas.core import Mesh
from rankatlas.dialects import paddle_experts, paddle_fleet
from rankatlas.dialects.given import Given
from rankatlas.dialects.paddle_settings import settings_of
from rankatlas.dialects.picking import refuse_unresolved, world_of
from rankatlas.dialects.slips import with_slips
from rankatlas.dialects.whose import ALSO_PADDLE, SHARED, names_of, only_megatron, only_paddle
from rankatlas.errors import SourceError, shown
from rankatlas.job import Fact, Job
from rankatlas.topology.argument_names import OTHER_ARGUMENTS, is_set, near_misses
from rankatlas.topology.training_args import (
    Settled,
    flag,
    implied_world_size,
    known_keys,
    layout_keys,
    read_arguments,
    read_auto_parallel,
)

# Sets a size of the layout or looks as if it did; a virtual degree cuts layers, not ranks.
_MOST_NOTES = 20
_LOOKS_LIKE_A_DEGREE = re.compile(r"^(?!virtual_).*(_degree|_parallel_size|_parallel_degree|_group_size)$")


LAYOUT = tuple(dict.fromkeys((*layout_keys("paddlenlp-2.8"), *layout_keys("paddleformers-1.2"))))


def evidence(given: Given) -> int:
    """2 where a name of Paddle's own is set, 1 where only names are that Megatron has as well."""
    names = names_of(given)
    if any(name in names for name in ("hybrid_configs", "hybrid_parallel_topo_order")):
        return 2
    nlp, formers = known_keys("paddlenlp-2.8"), known_keys("paddleformers-1.2")
    theirs = ALSO_PADDLE if only_megatron(given) else ()
    if any(name in formers and name not in nlp and name not in (*SHARED, *theirs) for name in names):
        return 2
    shared = [name for name in SHARED if name in names]
    if shared and only_paddle(given):
        return 2
    if any(name in nlp and name not in SHARED for name in names):
        return 2
    return 1 if shared else 0


def read(given: Given, release: str | None, world_size: int | None) -> Job:
    """The job of training arguments, or of fleet's `hybrid_configs`.  Cost: O(keys).

    Raises SourceError when nothing in them sets a degree, when their release cannot be told, or when neither they nor
    `world_size` say how many ranks there are; and the errors of `read_arguments`.
    """
    if release == "fleet" or (release is None and paddle_fleet.is_fleet(given)):
        return paddle_fleet.read(given, world_size)
    release = release or _release(given)
    refuse_unresolved(given, LAYOUT)
    world, _, notes = world_of(given, world_size)
    notes = [*given.notes, *notes, *_notes(given, release)]
    if paddle_experts.there(given, release):
        return paddle_experts.read(given, release, world, notes)
    if world is None:
        world = implied_world_size(given, release=release)
    if world is None:
        raise SourceError(
            f"{shown(given.source)} holds training arguments, which do not say how many ranks run them: give the world"
            " size (--world-size N), or set the data and the sharding degree too",
            source=given.source,
        )
    if flag(given, "enable_auto_parallel"):
        settled, more = _auto_parallel(given, release, world)
        notes += more
    else:
        settled = read_arguments(given, world, release=release)
        settled = settled._replace(origins=_told(given, settled.origins, world))
    mesh = Mesh.from_axes([(axis, settled.degrees[axis]) for axis in settled.order])
    facts = [Fact(axis, settled.degrees[axis], settled.origins[axis]) for axis in settled.order]
    seed = given.at("seed")
    found, more = settings_of(given, release, settled.degrees["dp"] * settled.degrees["sharding"])
    return Job(
        mesh,
        format=release,
        source=given.source,
        facts=facts,
        notes=with_slips(given, [*notes, *more]),
        seed=seed if isinstance(seed, int) and not isinstance(seed, bool) else None,
        settings=found,
    )


def _told(given: Given, origins: Mapping[str, str], world_size: int) -> dict[str, str]:
    """Where each size came from, for a reader."""
    words = {"inferred": said("inferred.world_size", world=world_size), "not set": said("not_set")}
    return {axis: words.get(origin, given.origin(origin)) for axis, origin in origins.items()}


def _auto_parallel(content: Given, release: str, world_size: int) -> tuple[Settled, list[str]]:
    """The axes the auto-parallel trainer communicates along, outer → inner, and a note where its seeds follow others.

    There sharding lies inside dp, which so holds the ranks of both.
    """
    settled = read_auto_parallel(content, world_size, release=release)
    sizes, told = settled.degrees, _told(content, settled.origins, world_size)
    told["dp"] = said(
        "paddle.data",
        dp=sizes["dp"],
        dp_origin=told["dp"],
        sharding=sizes["sharding"],
        sharding_origin=told["sharding"],
    )
    told["sharding"] = said("paddle.inside")
    sizes = {**sizes, "dp": sizes["dp"] * sizes["sharding"], "sharding": 1}
    notes = []
    if min(sizes["mp"], sizes["sep"]) > 1:
        seeded = read_arguments(content, world_size, release=release, auto_parallel=True)
        order = " ".join(f"{axis}={sizes[axis]}" for axis in seeded.order)
        notes.append(said("seeds.other", order=repr(order)))
    return settled._replace(degrees=sizes, origins=told), notes


def _release(given: Given) -> str:
    """The release whose names these are: PaddleNLP has none in common with PaddleFormers but the short ones."""
    names = names_of(given)
    nlp, formers = known_keys("paddlenlp-2.8"), known_keys("paddleformers-1.2")
    return "paddleformers-1.2" if any(name in formers and name not in nlp for name in names) else "paddlenlp-2.8"


def _notes(content: Given, release: str) -> list[str]:
    """What was given and sets nothing: names that are nearly an argument's, and others that look like a degree."""
    near = near_misses(content, release)
    known = known_keys(release)
    notes = []
    for key, value in content.items():
        if key in near and is_set(key, value):
            notes.append(said("unread.near", name=key, value=shown(value), meant=near[key]))
        elif _LOOKS_LIKE_A_DEGREE.match(key) and key not in (*known, *OTHER_ARGUMENTS) and value not in (None, -1, 1):
            notes.append(said("unread.setting", name=key, value=shown(value)))
    hidden = len(notes) - _MOST_NOTES
    return [*notes[:_MOST_NOTES], said("unread.more", count=hidden)] if hidden > 0 else notes
