"""Public configurations, their relevant parts as facts, read in the styles people have: logs, dumps, scripts, files.

`tests/cases/launches.json` names the source of each; its layout was worked out from the framework's rules by hand.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from launch_texts import STYLES
from rankatlas.dialects import read_config

CASES = json.loads(Path(__file__, "../cases/launches.json").resolve().read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_public_configuration(tmp_path, case):
    write, name = STYLES[case["style"]]
    path = tmp_path / name
    path.write_text(write(case["facts"]), encoding="utf-8")
    job = read_config(str(path), case.get("format"), world_size=case.get("world"))
    assert str(job.layout) == case["layout"]
    found = {name: fact.value for name, fact in job.settings.items()}
    assert {name: found.get(name) for name in case["settings"]} == case["settings"]
    assert all(fact.origin for fact in (*job.facts, *job.settings.values()))
    assert not any("not understood" in note for note in job.notes), job.notes


def test_there_are_enough_of_each():
    assert len(CASES) >= 40
    kinds = Counter(case["id"].split("-")[0].rstrip("21") for case in CASES)
    megatron = sum(count for kind, count in kinds.items() if kind.startswith("megatron")) + kinds["bridge"]
    paddle = sum(kinds[kind] for kind in ("paddlenlp", "formers", "ernie45"))
    assert min(megatron, paddle, kinds["titan"], kinds["verl"], kinds["deepspeed"]) >= 8, kinds
    assert 2 * sum("script" not in case["style"] for case in CASES) >= len(CASES)
    assert len({case["id"] for case in CASES}) == len(CASES)
    assert all(case["source"] for case in CASES)
