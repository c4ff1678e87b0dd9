"""Every weight of the model, said once: its whole shape, which axis splits which dimension, how it begins.

Which part a rank holds, who writes it to a checkpoint, over whom its gradient is summed and how it is drawn all follow.
No product has a bias: that of the keys would have no gradient but rounding noise, which Adam divides by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from rankatlas.seeding import SeedPlan
from rankatlas.seeding.values import sharded_normal
from rankatlas.tensors import TensorLayout
from train_gpt.place import Place
from train_gpt.settings import DATA, SEQUENCE, Settings


class Weight:
    """One weight as this rank sees it: `shape` is that of the whole, `spec` says which axis splits each dimension."""

    def __init__(
        self,
        place: Place,
        name: str,
        shape: tuple[int, ...],
        spec: tuple[str | None, ...],
        spread: float | None,
        mistake: str | None,
    ) -> None:
        self.name = name
        self.shape = shape
        self.spec = spec
        self.spread = spread  # of its first values; None: all ones
        self._place = place
        self._mistake = mistake
        # Every stage has weights of its own, so along pp they are parts.
        self.split = ("pp", *(axis for axis in spec if axis))
        self.layout = TensorLayout(
            place.mesh, replicated=[axis for axis in place.mesh.axes if axis not in self.split], sharded=self.split
        )

    @property
    def gradient_axes(self) -> tuple[str, ...]:
        """The axes over which the gradient is summed: those of the data and of the sequence.

        A weight that is whole along tp has seen the positions of one rank only, so its gradient is summed there too.
        """
        place = self._place
        whole = place.tensor not in self.split and not (self._mistake == "norms" and self.name.endswith("norm"))
        also = (place.tensor,) if whole else ()
        return self.layout.gradient_group(place.rank, data=(*DATA, *SEQUENCE), also=also).axes

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where the part of this rank lies in the whole."""
        found = []
        for size, axis in zip(self.shape, self.spec):
            part = size // (self._place.size(axis) if axis else 1)
            first = part * (self._place.index(axis) if axis else 0)
            found.append(slice(first, first + part))
        return tuple(found)

    @property
    def is_tied(self) -> bool:
        """Whether the first and the last stage both have it: the table of the input is that of the output."""
        return self.name == "embedding"

    @property
    def is_tied_copy(self) -> bool:
        """Whether another stage counts it and writes it."""
        return self.is_tied and not self._place.is_first_stage

    @property
    def is_mine_to_write(self) -> bool:
        """Whether this rank writes its part to a checkpoint."""
        return self.layout.is_owner(self._place.rank) and not self.is_tied_copy

    def first_values(self, plan: SeedPlan) -> Tensor:
        """The part of this rank of an array that is the same under every layout, in float64."""
        shape = [part.stop - part.start for part in self.slices]
        if self.spread is None:
            return torch.ones(shape, dtype=torch.float64)
        stream = plan.stream(f"weight/{self.name}", same=plan.mesh.axes)
        return self.spread * sharded_normal(stream, self.shape, self.spec, self._place.rank, framework="torch")


def my_layers(settings: Settings, place: Place) -> range:
    """The layers of this rank's stage."""
    count = settings.layers // place.size("pp")
    return range(place.index("pp") * count, (place.index("pp") + 1) * count)


def my_weights(settings: Settings, place: Place, mistake: str | None = None) -> list[Weight]:
    """The weights of this rank's stage, in an order that is the same on all ranks of the stage."""
    return [Weight(place, *entry, mistake) for entry in _table(settings, place)]


def _table(
    settings: Settings, place: Place
) -> Iterator[tuple[str, tuple[int, ...], tuple[str | None, ...], float | None]]:
    hidden, heads, size, tensor = settings.hidden, settings.heads, settings.head_size, place.tensor
    spread = 0.05
    narrow = spread / (2 * settings.layers) ** 0.5
    if place.is_first_stage or place.is_last_stage:
        yield "embedding", (settings.vocabulary, hidden), (tensor, None), spread
    if place.is_first_stage:
        yield "positions", (settings.sequence, hidden), (None, None), spread
    for layer in my_layers(settings, place):
        at = f"layer{layer}"
        yield f"{at}.attention_norm", (hidden,), (None,), None
        yield f"{at}.query_key_value", (3, heads, size, hidden), (None, tensor, None, None), spread
        yield f"{at}.attention_out", (hidden, heads, size), (None, tensor, None), narrow
        yield f"{at}.norm", (hidden,), (None,), None
        yield f"{at}.up", (4 * hidden, hidden), (tensor, None), spread
        yield f"{at}.down", (hidden, 4 * hidden), (None, tensor), narrow
    if place.is_last_stage:
        yield "last_norm", (hidden,), (None,), None
