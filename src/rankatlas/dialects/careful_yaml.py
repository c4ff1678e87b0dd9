"""YAML without what a launch configuration never needs: aliases, merges, tags, and numbers in base 60."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from rankatlas.errors import SourceError


def load(text: str, check_keys: Callable[[list[Any]], object]) -> Any:
    """The value of YAML text.  `check_keys` is called with the keys of every mapping, and may refuse them.

    Raises SourceError (an alias or merge), and whatever PyYAML raises on text that is no YAML.

    >>> load("a: 1:30", list)
    {'a': '1:30'}
    """

    class Loader(_PlainLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            check_keys([key.value for key, _ in node.value])
            return super().construct_mapping(node, deep)

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise SourceError("YAML aliases are not read: they could blow a small file up", source="")
            node = super().compose_node(parent, index)
            if isinstance(node, yaml.ScalarNode) and node.value == "<<":
                raise SourceError("YAML merges are not read: write the settings out", source="")
            return node

    return yaml.load(text, Loader=Loader)


class _PlainLoader(yaml.SafeLoader):
    """SafeLoader whose integers are decimal: in YAML 1.1 `1:30` is 90, and long ones of that kind take minutes."""


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:int"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_PlainLoader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]{1,40}$"), list("-+0123456789"))
