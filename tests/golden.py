"""Reading the frozen facts of tests/golden."""

import json
from functools import cache
from pathlib import Path

FOLDER = Path(__file__, "../golden").resolve()


@cache
def table(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def facts(name: str, *kinds: str) -> list[dict]:
    """The facts of one table, of the given kinds or all; an empty answer would make a test vacuous, so it fails."""
    found = [fact for fact in table(name)["facts"] if not kinds or fact["kind"] in kinds]
    assert found, (name, kinds)
    return found
