"""Dropout masks that no layout changes: numbered by the element of the whole batch and model, drawn piece by piece."""

from __future__ import annotations

from torch import Tensor

from rankatlas.seeding import SeedPlan
from rankatlas.seeding.values import sharded_dropout_mask
from train_gpt.place import Place
from train_gpt.settings import DATA, SEQUENCE, Settings


class Masks:
    """The masks of this rank for one step after another; True where a value is kept.

    Layers are counted from the first one of this stage.  A sequence that is not split contiguously along cp is drawn
    whole, and its positions picked.
    """

    def __init__(
        self,
        settings: Settings,
        place: Place,
        plan: SeedPlan,
        micro_batch: int,
        positions: tuple[Tensor, Tensor] | None,
    ) -> None:
        self.keep = 1 - settings.dropout
        self._place = place
        self._plan = plan
        self._picked = positions
        whole, parts = settings.sequence, place.size(*DATA)
        # Micro-batch, data rank, sample: the order in which a batch is shared out.
        samples = (settings.batch // (parts * micro_batch), parts, micro_batch)
        at_samples = (None, DATA, None)
        along, queries = ((*SEQUENCE, place.tensor), "cp") if positions is None else (None, None)
        one = (*samples, whole, settings.hidden), (*at_samples, along, None)
        self._kinds = {
            "embedding": one,
            "activations": ((settings.layers, 2, *one[0]), ("pp", None, *one[1])),
            "attention": (
                (settings.layers, *samples, settings.heads, whole, whole),
                ("pp", *at_samples, (place.tensor, "sep"), queries, None),
            ),
        }
        self._drawn: dict[str, Tensor] = {}

    def begin(self, step: int) -> None:
        """Draw the masks of a step, from its number alone."""
        for name, (shape, spec) in self._kinds.items():
            if name == "embedding" and not self._place.is_first_stage:
                continue
            stream = self._plan.stream(f"dropout/{name}", same=self._plan.mesh.axes)
            self._drawn[name] = sharded_dropout_mask(
                stream, shape, spec, self._place.rank, keep=self.keep, draw=step, framework="torch"
            )

    def embedding(self, micro: int) -> Tensor:
        """For what enters the first layer: (samples, positions, hidden)."""
        return self._activation(self._drawn["embedding"][micro, 0])

    def activation(self, layer: int, number: int, micro: int) -> Tensor:
        """For the outcome of the attention (number 0) or of the feed-forward (1) of a layer of this stage."""
        return self._activation(self._drawn["activations"][layer, number, micro, 0])

    def attention(self, layer: int, micro: int) -> Tensor:
        """For the chances of a layer of this stage: (samples, heads, queries, keys)."""
        mask = self._drawn["attention"][layer, micro, 0]
        return mask if self._picked is None else mask[:, :, self._picked[0]]

    def _activation(self, mask: Tensor) -> Tensor:
        return mask if self._picked is None else mask[:, self._picked[1]]
