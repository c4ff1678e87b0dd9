"""Where this process stands, and the live groups it talks in."""

from __future__ import annotations

from typing import Any

from rankatlas import Mesh
from rankatlas.derived import stage_neighbours
from train_gpt.settings import tensor_axis

TIED = "first and last stage"


class Place:
    """This rank of a mesh with the handles of its groups; over axes of size 1 there is nobody to talk to."""

    def __init__(self, mesh: Mesh, rank: int, handles: Any = None) -> None:
        self.mesh = mesh
        self.rank = rank
        self.tensor = tensor_axis(mesh)
        self.coordinate = mesh.coordinate(rank)
        self.previous, self.next = stage_neighbours(mesh, rank)
        self._handles = handles

    def size(self, *axes: str) -> int:
        """The number of ranks that differ along `axes`."""
        return self.mesh.group(*axes, rank=self.rank).size

    def index(self, *axes: str) -> int:
        """The place along `axes`, composed in the order written: first is major."""
        index = 0
        for axis in axes:
            index = index * self.mesh.size(axis) + self.coordinate[axis]
        return index

    def handle(self, *axes: str) -> Any:
        """The communicator over `axes`, or None where this rank would be alone in it."""
        return self._handles[axes] if self.size(*axes) > 1 else None

    @property
    def tied(self) -> Any:
        """The communicator of the first and the last stage, None where this rank is in neither or in both."""
        return self._handles[TIED] if self.is_first_stage != self.is_last_stage else None

    @property
    def is_first_stage(self) -> bool:
        """Whether the tokens enter here."""
        return self.previous is None

    @property
    def is_last_stage(self) -> bool:
        """Whether the loss is computed here."""
        return self.next is None
