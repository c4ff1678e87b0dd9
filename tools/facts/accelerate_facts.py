"""The mesh that accelerate's ParallelismConfig asks for.

    python accelerate_facts.py OUT

A fact has the sizes (`given`) and the names and shape of the mesh, outer → inner (axes of size 1 are not in it), or
`error`.
"""

from __future__ import annotations

import random
from typing import Any

from accelerate.parallelism_config import ParallelismConfig
from facts_io import answer, deliver


def ask(given: dict[str, int]) -> list[Any]:
    # A handler of its own would ask which release of transformers is there.
    names, shape = ParallelismConfig(**given, tp_handler=object())._get_mesh()
    return [list(names), list(shape)]


def main() -> None:
    dice = random.Random(9)
    facts: list[dict[str, Any]] = []
    for _ in range(48):
        given = {
            "dp_replicate_size": dice.choice((1, 1, 2)),
            "dp_shard_size": dice.choice((2, 3, 4, 1)),
            "cp_size": dice.choice((1, 1, 2)),
            "tp_size": dice.choice((1, 2, 4)),
        }
        if given["cp_size"] == 1 and dice.random() < 0.3:
            given["sp_size"] = 2
        facts.append({"kind": "mesh", "given": given} | answer(ask, given))
    deliver(facts)


if __name__ == "__main__":
    main()
