"""How Megatron-LM is told to share layers out: a picture of its pipeline, or ends that count as a layer.

Source: `PipelineParallelLayerLayout` in megatron/core/transformer/pipeline_parallel_layer_layout.py (0.16).
"""

from __future__ import annotations

import re

from rankatlas.catalogue import said
from rankatlas.dialects.given import Given
from rankatlas.errors import ArgumentsError, shown
from rankatlas.job import Fact

PICTURE = "pipeline_model_parallel_layout"
_ENDS = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
_POLICIES = {(True, False): "embedding", (False, True): "loss", (True, True): "embedding-and-loss"}
_REPEATED = re.compile(r"\(([^()]{1,4096})\)\*(\d{1,5})|([A-Za-z|])\*(\d{1,5})")
_LONGEST = 1 << 16


def layers_in(picture: str) -> list[int] | None:
    """The layers of every chunk in a picture such as "Et*3|(tt|)*2tL", None where it is none.

    Letters are E the embedding, t a layer, m a prediction head, L the loss; a bar ends a chunk; x*3 repeats.

    >>> layers_in("Et*3|(tt|)*2tL"), layers_in("Etx")
    ([3, 2, 2, 1], None)
    """
    text = re.sub(r"[\s,'\"]", "", picture)
    for _ in range(8):  # what is repeated may be repeated
        if len(text) > _LONGEST:
            return None
        whole = sum(len(found[1] or found[3]) * int(found[2] or found[4]) for found in _REPEATED.finditer(text))
        if whole > _LONGEST:
            return None
        changed = _REPEATED.sub(lambda found: (found[1] or found[3]) * int(found[2] or found[4]), text)
        if changed == text:
            break
        text = changed
    if not re.fullmatch(r"[EtmL|]+", text):
        return None
    return [chunk.count("t") for chunk in text.split("|")]


def shared_out(given: Given, stages: int) -> dict[str, Fact]:
    """The settings `stage_layers` and `virtual_stages`, or `layer_split`, where the arguments say them.

    Raises ArgumentsError where the stages do not divide the parts of a picture.
    """
    picture = given.at(PICTURE)
    layers = layers_in(picture) if isinstance(picture, str) else None
    if layers is not None and len(layers) % stages:
        raise ArgumentsError(
            said(
                "refused.picture",
                name=PICTURE,
                picture=shown(picture),
                origin=given.origin(PICTURE),
                parts=len(layers),
                stages=stages,
            ),
            names=(PICTURE,),
        )
    if layers is not None:
        origin = given.origin(PICTURE)
        found = {"stage_layers": Fact("stage_layers", layers, origin)}
        if len(layers) > stages:
            found["virtual_stages"] = Fact("virtual_stages", len(layers) // stages, origin)
        return found
    counted = tuple(given.at(name) is True for name in _ENDS)
    if not any(counted):
        return {}
    origins = [given.origin(name) for name, on in zip(_ENDS, counted) if on]
    return {
        "layer_split": Fact(
            "layer_split",
            _POLICIES[counted[0], counted[1]],
            said("both", first=origins[0], second=origins[1]) if len(origins) > 1 else origins[0],
        )
    }
