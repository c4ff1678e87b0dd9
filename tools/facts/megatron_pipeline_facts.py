"""How Megatron-core shares layers out over stages, and where each chunk begins.

    python megatron_pipeline_facts.py OUT

A fact has what was asked (`given`) and [layers to build, offset] of every chunk in model order, or `error`; the same of
a picture of a pipeline.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from facts_io import answer, deliver
from megatron.core import parallel_state
from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
from megatron.core.transformer.transformer_block import get_num_layers_to_build
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset

PICTURES = (
    ("Et*3|(tt|)*29m|L", 16),
    ("Ettt|(tt|)*29,m|L", 32),
    ("E|t*3|t*4|tL", 4),
    ("Et*2|t*3|t*2|t*3L", 2),
    ("Et*8|t*8|t*7|t*7L", 4),
    ("E|(t|)*6L", 8),
    ("Et|t|tL", 2),
    ("Ex|tL", 2),
    ("(Et|tt|)*1tt|tL", 4),
)


def shared(given: dict[str, Any]) -> list[list[int]]:
    config = SimpleNamespace(
        num_layers=given["layers"],
        pipeline_model_parallel_size=given["pp"],
        virtual_pipeline_model_parallel_size=given["vpp"],
        num_layers_in_first_pipeline_stage=given["first"],
        num_layers_in_last_pipeline_stage=given["last"],
        account_for_embedding_in_pipeline_split=given["embedding"],
        account_for_loss_in_pipeline_split=given["loss"],
        pipeline_model_parallel_layout=None,
    )
    chunks = []
    for chunk in range(given["vpp"] or 1):
        stage = chunk if given["vpp"] else None
        for rank in range(given["pp"]):
            built = get_num_layers_to_build(config, vp_stage=stage, pp_rank=rank)
            chunks.append([built, get_transformer_layer_offset(config, vp_stage=stage, pp_rank=rank)])
    return chunks


def pictured(picture: str, pp: int) -> list[list[int]]:
    layout = PipelineParallelLayerLayout(picture, pp)
    virtual = layout.virtual_pipeline_model_parallel_size
    parallel_state._VIRTUAL_PIPELINE_MODEL_PARALLEL_WORLD_SIZE = virtual
    chunks = []
    for chunk in range(virtual):
        for rank in range(pp):
            built = layout.get_num_layers_to_build(vp_stage=chunk, pp_rank=rank)
            chunks.append([built, layout.get_layer_offset(vp_stage=chunk, pp_rank=rank)])
    return chunks


def main() -> None:
    dice = random.Random(6)
    facts: list[dict[str, Any]] = []
    for _ in range(260):
        pp, vpp = dice.choice((2, 2, 3, 4, 8)), dice.choice((None, None, 2, 3))
        pieces = pp * (vpp or 1)
        ends = dice.choice(((None, None), (None, None), (3, None), (None, 2), (4, 6), (2, 2)))
        counted = [False, False] if ends != (None, None) else [dice.random() < 0.4 for _ in range(2)]
        layers = pieces * dice.randint(1, 6) - sum(counted) + dice.choice((0, 0, 0, 1, -1))
        if ends != (None, None):
            left = pp - sum(end is not None for end in ends)
            layers = sum(end or 0 for end in ends) + left * (vpp or 1) * dice.randint(1, 5) + dice.choice((0, 0, 1))
        given = {
            "layers": max(1, layers),
            "pp": pp,
            "vpp": vpp,
            "first": ends[0],
            "last": ends[1],
            "embedding": counted[0],
            "loss": counted[1],
        }
        facts.append({"kind": "shared", "given": given} | answer(shared, given))
    for picture, pp in PICTURES:
        facts.append({"kind": "pictured", "picture": picture, "pp": pp} | answer(pictured, picture, pp))
    deliver(facts)


if __name__ == "__main__":
    main()
