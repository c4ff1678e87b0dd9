"""A layout, or a framework's own arguments, as flat fields that every rank can compare."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from hashlib import sha256
from math import isfinite
from typing import Any

from rankatlas.core import Atlas, Mesh, parse_layout
from rankatlas.errors import InputError, shown

# What of a framework's arguments concerns the layout; anything a rank knows of itself does not.
_CONCERNS = re.compile(
    r"parallel|degree|topo_order|mapping|_size$|^(dp|pp|tp|cp|ep|etp|sp|fsdp|spmd)(_|$)|^(order|axes|dims)$|^sharding$"
    r"|^seed$|num_layers"
)
_OWN = re.compile(r"(^|_)(rank|ranks|device|local|host|port|addr|master|path|dir|file|name|id)(_|$)")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the `repr` of what has none of its own: another in every process
_MOST_FIELDS = 2000
_DEEPEST = 20
_LISTED = 64  # elements of an array or a list that are told one by one
_AXIS = re.compile(r"[dpsectm]p|sep|etp|edp|sharding|fsdp|hsdp|dp_replicate|dp_shard")


def layout_fields(layout: object) -> dict[str, Any]:
    """Field → plain value of a mesh, an atlas, notation, a mapping, or a framework's arguments.

    Of an object (Megatron's namespace, ParallelDims, ParallelismConfig, ProcessTopology, training arguments) those
    attributes count whose names concern the layout and whose values are numbers, text, or lists of them.  Of a mapping
    everything counts, and where its keys are axes, their order too.  Raises InputError when nothing is left.

    >>> layout_fields("pp=2 tp=4")
    {'order': 'pp tp', 'pp': 2, 'tp': 4, 'first_rank': 0}
    """
    if isinstance(layout, str):
        layout = parse_layout(layout)
    if isinstance(layout, Mesh):
        return _mesh_fields(layout)
    if isinstance(layout, Atlas):
        fields: dict[str, Any] = {}
        for chart, mesh in layout.charts.items():
            fields.update({f"{chart}.{name}": value for name, value in _mesh_fields(mesh).items()})
        return {"charts": " ".join(layout.charts), "shared": " ".join(layout.shared), **fields}
    if isinstance(layout, Mapping):
        found = flat(layout)
        if found and all(_AXIS.fullmatch(name) for name in found):
            found = {"order": " ".join(found), **found}
    else:
        found = {name: _brief(value) for name, value in _attributes(layout).items() if _concerns(name)}
    if not found:
        raise InputError(
            f"nothing in {type(layout).__name__} says anything about a layout: give a Mesh, an Atlas, notation, a dict,"
            " or the framework's own arguments"
        )
    return found


def flat(values: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted names and plain values; what is no plain value is told by its `repr`.

    >>> flat({"batch": {"global": 512}, "seed": 1})
    {'batch.global': 512, 'seed': 1}
    """
    if prefix.count(".") > _DEEPEST:
        raise InputError(f"values to agree on are nested at most {_DEEPEST} deep; give a hash of what is deeper")
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        inner = flat(value, f"{name}.") if isinstance(value, Mapping) and value else {name: plain(value)}
        twice = next((one for one in inner if one in found), None)
        if twice is not None:
            raise InputError(f"two keys to agree on read the same, {shown(twice)}: give each another name")
        found.update(inner)
        if len(found) > _MOST_FIELDS:
            raise InputError(f"more than {_MOST_FIELDS} fields to agree on; give those that matter, or a hash of them")
    return found


def plain(value: Any, depth: int = 0) -> Any:
    """`value` as JSON has it: numbers, text, booleans, None and lists of them; anything else as text.

    Of an array with more than 64 elements, the hash of its elements.  Raises InputError for what is nested too deeply
    and for arrays without values.
    """
    if depth > _DEEPEST:
        raise InputError(f"values to agree on are nested at most {_DEEPEST} deep; give a hash of what is deeper")
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= 64 else f"{value:#x}"
    if isinstance(value, float):
        return float(value) if isfinite(value) else repr(float(value))
    if isinstance(value, (Mesh, Atlas)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((plain(item, depth + 1) for item in value), key=repr)  # another order in every process
    if isinstance(value, Mapping):
        return sorted(([str(key), plain(item, depth + 1)] for key, item in value.items()), key=repr)
    if hasattr(value, "shape") and hasattr(value, "tolist"):
        return _elements(value, depth)
    try:
        return _ADDRESS.sub("", repr(value))
    except Exception as error:
        raise InputError(f"a {type(value).__name__} cannot be told to other ranks: {error!s:.100}") from None


def _elements(array: Any, depth: int) -> Any:
    """The elements of an array or tensor, exactly: what it prints is rounded and cut short."""
    try:
        found = plain(array.tolist(), depth)
    except Exception as error:
        raise InputError(f"{type(array).__name__} holds no values to agree on: {error!s:.100}") from None
    count = 1
    for size in array.shape:
        count *= int(size)
    if count <= _LISTED:
        return found
    digest = sha256(json.dumps(found).encode()).hexdigest()
    return f"{array.dtype} {tuple(map(int, array.shape))} {digest[:16]}"


def _mesh_fields(mesh: Mesh) -> dict[str, Any]:
    return {"order": " ".join(mesh.axes), **dict(zip(mesh.axes, mesh.sizes)), "first_rank": mesh.first_rank}


def _attributes(layout: object) -> dict[str, Any]:
    try:
        return {name: plain(value) for name, value in vars(layout).items() if not _is_table(value)}
    except TypeError:
        raise InputError(
            f"a layout to agree on is a Mesh, an Atlas, notation, a dict or a framework's arguments, not {layout!r:.80}"
        ) from None


def _is_table(value: object) -> bool:
    """Whether this is a table by ranks or coordinates, as DeepSpeed's topology has one: it follows from the rest."""
    return isinstance(value, Mapping) and not all(isinstance(key, str) for key in value)


def _concerns(name: str) -> bool:
    return not name.startswith("_") and bool(_CONCERNS.search(name)) and not _OWN.search(name)


def _brief(value: Any) -> Any:
    """A long list as the hash of its elements: every field travels to rank 0."""
    if not isinstance(value, list) or len(value) <= _LISTED:
        return value
    return f"{len(value)} elements {sha256(json.dumps(value).encode()).hexdigest()[:16]}"
