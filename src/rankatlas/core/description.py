"""The stored description of a layout: plain data, versioned, and its fingerprint."""

from __future__ import annotations

from collections.abc import Mapping

from rankatlas.core.atlas import Atlas
from rankatlas.core.mesh import Mesh
from rankatlas.errors import DescriptionError, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MESH_FORMAT = "rankatlas.mesh"
ATLAS_FORMAT = "rankatlas.atlas"
VERSION = 1


def mesh_to_dict(mesh: Mesh) -> dict[str, Any]:
    """Plain data from which `mesh_from_dict` makes an equal mesh.  Cost: O(axes).

    >>> mesh_to_dict(Mesh(dp=2))["axes"]
    [['dp', 2]]
    """
    return {
        "format": MESH_FORMAT,
        "version": VERSION,
        "axes": [[axis, size] for axis, size in zip(mesh.axes, mesh.sizes)],
        "first_rank": mesh.first_rank,
    }


def mesh_from_dict(description: object) -> Mesh:
    """The mesh of a stored description.  Raises DescriptionError, and the errors of `Mesh`.  Cost: O(axes).

    >>> mesh_from_dict(mesh_to_dict(Mesh(dp=2)))
    Mesh(dp=2)
    """
    fields = checked(description, MESH_FORMAT, ("axes", "first_rank"))
    axes = _pairs(fields["axes"], "'axes' must be [name, size] pairs, major to minor")
    return Mesh.from_axes(axes, fields["first_rank"])


def _pairs(value: object, rule: str) -> list[tuple[Any, Any]]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in value):
        raise DescriptionError(f"{rule}; got {value!r:.80}")
    return [(first, second) for first, second in value]


def checked(description: object, format_name: str, keys: tuple[str, ...]) -> Mapping[str, Any]:
    """`description` once its format, version and keys are exactly those expected.  Raises DescriptionError.

    >>> checked(mesh_to_dict(Mesh(dp=2)), MESH_FORMAT, ("axes", "first_rank"))["first_rank"]
    0
    """
    if not isinstance(description, Mapping):
        raise DescriptionError(f"a stored layout is a dict, not {type(description).__name__}")
    if description.get("format") != format_name:
        raise DescriptionError(
            f"a stored description has format {shown(format_name)} here, not {shown(description.get('format'))}"
        )
    version = description.get("version")
    if type(version) is not int or version != VERSION:
        raise DescriptionError(
            f"version {shown(version)} of {format_name} is not known; this release reads version {VERSION}."
            " Was it written by a newer rankatlas?"
        )
    expected = ("format", "version", *keys)
    unknown = [shown(key) for key in description if key not in expected]
    missing = [key for key in expected if key not in description]
    if unknown or missing:
        raise DescriptionError(
            f"a {format_name} has the keys {', '.join(expected)};"
            + (f" unknown: {', '.join(unknown)}" if unknown else "")
            + (";" if unknown and missing else "")
            + (f" missing: {', '.join(missing)}" if missing else "")
        )
    return description


def fingerprint(description: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of the compact JSON with sorted keys.  Cost: O(description).

    >>> fingerprint(mesh_to_dict(Mesh(pp=4, dp=2, tp=8)))[:16]
    '79f19846e81d1d07'
    """
    import json
    from hashlib import sha256

    return sha256(json.dumps(description, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def atlas_to_dict(atlas: Atlas) -> dict[str, Any]:
    """Plain data from which `atlas_from_dict` makes an equal atlas.  Cost: O(charts × axes).

    >>> atlas_to_dict(Atlas(dense=Mesh(dp=2), shared=("dp",)))["shared"]
    ['dp']
    """
    return {
        "format": ATLAS_FORMAT,
        "version": VERSION,
        "charts": [[name, mesh_to_dict(mesh)] for name, mesh in atlas.charts.items()],
        "shared": list(atlas.shared),
    }


def atlas_from_dict(description: object) -> Atlas:
    """The atlas of a stored description.  Raises DescriptionError, and the errors of `Atlas`.

    >>> print(atlas_from_dict(atlas_to_dict(Atlas(dense=Mesh(dp=2), expert=Mesh(ep=2)))))
    dense: dp=2; expert: ep=2
    """
    fields = checked(description, ATLAS_FORMAT, ("charts", "shared"))
    charts = _pairs(fields["charts"], "'charts' must be [name, mesh] pairs")
    if len({str(name) for name, _ in charts}) != len(charts):
        raise DescriptionError(f"a chart stands twice in {[name for name, _ in charts]}")
    shared = fields["shared"]
    if not isinstance(shared, (list, tuple)) or not all(isinstance(axis, str) for axis in shared):
        raise DescriptionError(f"'shared' must be a list of axis names; got {shared!r:.80}")
    if not all(isinstance(name, str) for name, _ in charts):
        raise DescriptionError("chart names must be text")
    return Atlas.from_charts({name: mesh_from_dict(mesh) for name, mesh in charts}, shared)


def layout_from_dict(description: object) -> Mesh | Atlas:
    """The mesh or atlas of a stored description, whichever its format says.  Raises DescriptionError.

    >>> layout_from_dict(mesh_to_dict(Mesh(dp=2)))
    Mesh(dp=2)
    """
    if isinstance(description, Mapping) and description.get("format") == ATLAS_FORMAT:
        return atlas_from_dict(description)
    return mesh_from_dict(description)
