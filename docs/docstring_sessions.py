"""For mkdocstrings: the `>>>` sessions of docstrings as code blocks, which plain Markdown takes for quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

_SESSION = re.compile(r"^>>> .*?(?=\n\n(?!>>> )|\Z)", re.MULTILINE | re.DOTALL)


class DocstringSessions(griffe.Extension):
    """Puts a fence around every session, once, when an object is loaded."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for every object that griffe reads."""
        if not obj.is_alias and obj.docstring is not None:
            obj.docstring.value = _SESSION.sub(lambda found: f"```python\n{found[0]}\n```", obj.docstring.value)
