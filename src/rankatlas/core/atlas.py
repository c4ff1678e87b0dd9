"""The atlas: several meshes of one job, and what they share proven."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from keyword import iskeyword

from rankatlas.core.border import as_int, axis_names
from rankatlas.core.compare import first_difference, ranks_shown
from rankatlas.core.coordinate import Coordinate
from rankatlas.core.group import Group, Groups
from rankatlas.core.mesh import Mesh
from rankatlas.errors import AtlasError, InputError, RankError, SharedAxisError, UnknownChartError, shown, unknown_axis

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RESERVED = "shared"  # the notation's word for the list of shared axes


class Atlas:
    """Several named charts (meshes) of one job, over the same ranks, overlapping or disjoint.

    Axes declared `shared` must give identical groups in every chart that has them, which is proven when the atlas
    is made.  Nothing is shared by having the same name.  An axis is addressed as "ep" where only one chart has it
    or it is shared, else as "expert.ep"; axes of two charts are not mixed in one group.

    Raises AtlasError, SharedAxisError (with the first difference), UnknownAxisError.  Cost: O(charts × axes).

    >>> atlas = Atlas(dense=Mesh(pp=2, dp=4, tp=2), expert=Mesh(pp=2, edp=2, ep=4), shared=("pp",))
    >>> atlas.group("ep", rank=5).ranks, atlas.group("pp", rank=5).ranks
    ([4, 5, 6, 7], [5, 13])
    >>> print(atlas)
    dense: pp=2 dp=4 tp=2; expert: pp=2 edp=2 ep=4; shared: pp
    """

    __module__ = "rankatlas"  # the public home: pickles must not depend on where the file is

    __slots__ = ("_charts", "_shared")

    def __init__(self, /, *, shared: Iterable[str] = (), **charts: Mesh) -> None:
        self._build(charts, shared)

    @classmethod
    def from_charts(cls, charts: Mapping[str, Mesh], shared: Iterable[str] = ()) -> Atlas:
        """An atlas from a mapping name → mesh; the order of the charts is kept.  As `Atlas(…)`."""
        if not isinstance(charts, Mapping):
            raise AtlasError(f"charts must be a mapping name → mesh, not {shown(charts)}")
        self = object.__new__(cls)
        self._build(dict(charts), shared)
        return self

    def _build(self, charts: dict[str, Mesh], shared: Iterable[str]) -> None:
        if not charts:
            raise AtlasError("an atlas needs at least one chart, such as Atlas(dense=Mesh(dp=8))")
        for name, mesh in charts.items():
            if type(name) is not str or not (name.isascii() and name.isidentifier()) or name == RESERVED:
                raise AtlasError(
                    f"{shown(name)} cannot name a chart; names are letters, digits and _, and not 'shared'"
                )
            if not isinstance(mesh, Mesh):
                raise AtlasError(f"chart {shown(name)} must be a Mesh, not {type(mesh).__name__}")
        try:
            names = axis_names(shared, "shared")
        except InputError as error:
            raise AtlasError(str(error)) from None
        for position, axis in enumerate(names):
            if axis in names[:position]:
                raise AtlasError(f"axis {shown(axis)} is declared shared twice")
            _prove_shared(axis, charts)
        self._charts = charts
        self._shared = names

    @property
    def charts(self) -> dict[str, Mesh]:
        """Name → mesh, in the order given (a copy)."""
        return dict(self._charts)

    @property
    def shared(self) -> tuple[str, ...]:
        """The axes proven to have identical groups in every chart that has them."""
        return self._shared

    @property
    def first_rank(self) -> int:
        """The lowest rank any chart covers."""
        return min(mesh.first_rank for mesh in self._charts.values())

    @property
    def world_size(self) -> int:
        """The number of ranks covered by at least one chart.  Cost: O(charts log charts).

        >>> Atlas(train=Mesh(dp=4), rollout=Mesh(tp=2, first_rank=4)).world_size
        6
        """
        covered = reached = 0
        for mesh in sorted(self._charts.values(), key=lambda mesh: mesh.first_rank):
            end = mesh.first_rank + mesh.world_size
            covered += max(0, end - max(reached, mesh.first_rank))
            reached = max(reached, end)
        return covered

    def __getitem__(self, chart: str) -> Mesh:
        try:
            return self._charts[chart]
        except (KeyError, TypeError):
            raise UnknownChartError(
                f"no chart {shown(chart)}; the charts are {', '.join(self._charts)}",
                name=chart,
                known=tuple(self._charts),
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._charts)

    def __len__(self) -> int:
        return len(self._charts)

    def __contains__(self, chart: object) -> bool:
        return isinstance(chart, str) and chart in self._charts

    def coordinate(self, rank: int) -> dict[str, Coordinate]:
        """Chart → coordinate of `rank`; a chart that does not cover the rank is absent.  Cost: O(axes).

        Raises RankError when no chart covers it.

        >>> Atlas(train=Mesh(dp=4), rollout=Mesh(tp=2, first_rank=4)).coordinate(5)
        {'rollout': Coordinate(tp=1)}
        """
        rank = as_int(rank, "rank")
        found = {}
        for name, mesh in self._charts.items():
            if 0 <= rank - mesh.first_rank < mesh.world_size:
                found[name] = mesh.coordinate(rank)
        if not found:
            raise RankError(
                f"rank {rank} is in no chart of {self}",
                rank=rank,
                first_rank=self.first_rank,
                world_size=self.world_size,
            )
        return found

    def group(self, *axes: str, rank: int) -> Group:
        """The group of `rank` over axes of one chart.  Errors and cost as `Mesh.group`, and AtlasError.

        >>> atlas = Atlas(dense=Mesh(dp=4, tp=2), expert=Mesh(edp=2, tp=4))
        >>> atlas.group("expert.tp", rank=1).ranks
        [0, 1, 2, 3]
        """
        mesh, names = self.resolve(*axes)
        return mesh.group(*names, rank=rank)

    def groups(self, *axes: str) -> Groups:
        """All groups over axes of one chart.  Errors and cost as `Mesh.groups`, and AtlasError."""
        mesh, names = self.resolve(*axes)
        return mesh.groups(*names)

    def resolve(self, *axes: str) -> tuple[Mesh, tuple[str, ...]]:
        """The chart that these addresses name, and the bare axis names in it.  Cost: O(charts × axes).

        Raises UnknownAxisError, AtlasError (an address that several charts answer, or no single chart does).
        """
        if not axes:
            raise AtlasError(f"a group of an atlas needs at least one axis, which says the chart it is of: {self}")
        candidates = list(self._charts)
        names = []
        for address in axes:
            charts, name = self._charts_of(address)
            candidates = [chart for chart in candidates if chart in charts]
            names.append(name)
        if not candidates:
            raise AtlasError(f"axes of two charts cannot be mixed in one group: {', '.join(axes)} of {self}")
        return self._charts[candidates[0]], tuple(names)

    def _charts_of(self, address: str) -> tuple[list[str], str]:
        chart, dot, axis = str(address).partition(".")
        if dot:
            if axis not in self[chart].axes:
                raise unknown_axis(axis, self[chart].axes, what=f"chart {shown(chart)}")
            # A shared axis has the same groups everywhere, so it may join axes of another chart.
            charts = [name for name, mesh in self._charts.items() if axis in mesh.axes]
            return (charts if axis in self._shared else [chart]), axis
        charts = [name for name, mesh in self._charts.items() if chart in mesh.axes]
        if not charts:
            known = dict.fromkeys(axis for mesh in self._charts.values() for axis in mesh.axes)
            raise unknown_axis(address, tuple(known), what="atlas")
        if len(charts) > 1 and chart not in self._shared:
            choices = " or ".join(f"{name}.{chart}" for name in charts)
            raise AtlasError(f"axis {shown(chart)} is in several charts and not shared: ask for {choices}")
        return charts, chart

    def to_dict(self) -> dict[str, Any]:
        """The stored description of this layout: plain data for JSON, see `from_dict`."""
        from rankatlas.core.description import atlas_to_dict

        return atlas_to_dict(self)

    @classmethod
    def from_dict(cls, description: dict[str, Any]) -> Atlas:
        """The atlas of a stored description.  Raises DescriptionError on unknown keys and versions.

        >>> atlas = Atlas(dense=Mesh(dp=4), expert=Mesh(ep=4))
        >>> Atlas.from_dict(atlas.to_dict()) == atlas
        True
        """
        from rankatlas.core.description import atlas_from_dict

        return atlas_from_dict(description)

    def fingerprint(self) -> str:
        """SHA-256 (hex) of the stored description: equal exactly when the atlases are."""
        from rankatlas.core.description import fingerprint

        return fingerprint(self.to_dict())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Atlas):
            return NotImplemented
        return (list(self._charts.items()), self._shared) == (list(other._charts.items()), other._shared)

    def __hash__(self) -> int:
        return hash((tuple(self._charts.items()), self._shared))

    def __str__(self) -> str:
        parts = [f"{name}: {mesh}" for name, mesh in self._charts.items()]
        if self._shared:
            parts.append(f"{RESERVED}: {' '.join(self._shared)}")
        return "; ".join(parts)

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __repr__(self) -> str:
        shared = f", shared={self._shared!r}" if self._shared else ""
        if any(map(iskeyword, self._charts)):
            return f"Atlas.from_charts({self._charts!r}{shared})"
        return f"Atlas({', '.join(f'{name}={mesh!r}' for name, mesh in self._charts.items())}{shared})"

    def __reduce__(self) -> tuple[object, ...]:
        return Atlas.from_charts, (self._charts, self._shared)


def _prove_shared(axis: str, charts: dict[str, Mesh]) -> None:
    """Raise SharedAxisError unless `axis` has the same groups in every chart that has it.  Cost: O(charts)."""
    having = [name for name, mesh in charts.items() if axis in mesh.axes]
    if not having:
        known = dict.fromkeys(axis for mesh in charts.values() for axis in mesh.axes)
        raise unknown_axis(axis, tuple(known), what="atlas")
    first = charts[having[0]]
    for name in having[1:]:
        difference = first_difference(first, charts[name], axis)
        if difference is None:
            continue
        mine, theirs = having[0], name
        raise SharedAxisError(
            f"axis {shown(axis)} is declared shared, but its groups differ between {mine} and {theirs}: group"
            f" {difference.group} is {ranks_shown(difference.first)} in {mine}"
            f" and {ranks_shown(difference.second)} in {theirs}",
            axis=axis,
            charts=(mine, theirs),
            index=difference.group,
            first=difference.first,
            second=difference.second,
        )
