"""A rank's place along every axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from keyword import iskeyword

from rankatlas.errors import shown, unknown_axis

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Coordinate(Mapping[str, int]):
    """Axis → place, in mesh order; hashable, and readable by attribute (`c.tp`) as well as by key (`c["tp"]`).

    Where an axis has the name of a Mapping method (`keys`, `items` …), or begins with two underscores, only the key
    gives the place.
    Equal to any mapping with the same places, whatever the order.  Cost: O(axes).

    >>> c = Coordinate(pp=1, tp=3)
    >>> c["tp"], c.pp, dict(c), str(c)
    (3, 1, {'pp': 1, 'tp': 3}, 'pp=1 tp=3')
    """

    __module__ = "rankatlas"  # the public home: pickles must not depend on where the file is

    # Mangled, so that no axis name can be taken for one of them.
    __slots__ = ("__axes", "__places")

    def __init__(self, /, **places: int) -> None:
        self.__axes = tuple(places)
        self.__places = tuple(places.values())

    @classmethod
    def _of(cls, axes: tuple[str, ...], places: tuple[int, ...]) -> Coordinate:
        self = object.__new__(cls)
        self.__axes = axes
        self.__places = places
        return self

    def __getitem__(self, axis: str) -> int:
        try:
            return self.__places[self.__axes.index(axis)]
        except ValueError:
            raise unknown_axis(axis, self.__axes, what="this coordinate") from None

    def __getattr__(self, name: str) -> int:
        if name.startswith("__") or name.startswith("_Coordinate__"):
            # Python asks for its own names here too, and must not be answered with a place; the key always works.
            raise AttributeError(name)
        try:
            return self.__places[self.__axes.index(name)]
        except ValueError:
            raise AttributeError(
                f"this coordinate has no axis {shown(name)}; it has {', '.join(self.__axes)}"
            ) from None

    def __contains__(self, axis: object) -> bool:
        return axis in self.__axes

    def get(self, axis: str, default: Any = None) -> Any:
        """The place along `axis`, or `default` where there is no such axis.  Cost: O(axes)."""
        return self[axis] if axis in self.__axes else default

    def __iter__(self) -> Iterator[str]:
        return iter(self.__axes)

    def __len__(self) -> int:
        return len(self.__axes)

    def __hash__(self) -> int:
        # Mapping equality ignores order, so the hash must as well.
        return hash(frozenset(zip(self.__axes, self.__places)))

    def __repr__(self) -> str:
        if any(map(iskeyword, self.__axes)):
            return f"Coordinate(**{dict(self)!r})"
        return f"Coordinate({', '.join(f'{axis}={place}' for axis, place in self.items())})"

    def __str__(self) -> str:
        return " ".join(f"{axis}={place}" for axis, place in self.items())

    def __reduce__(self) -> tuple[object, ...]:
        return Coordinate._of, (self.__axes, self.__places)
