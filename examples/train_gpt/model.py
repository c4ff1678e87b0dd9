"""One stage of the pipeline of a GPT: pre-norm blocks, learned positions, the table of the input tied to the output."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from train_gpt.attention import Ring, attend
from train_gpt.masks import Masks
from train_gpt.parallel import cross_entropy, embed, exchange, gather_positions, sum_to_positions
from train_gpt.place import Place
from train_gpt.settings import Settings
from train_gpt.weights import my_layers

SAMPLES, POSITIONS, HEADS = 0, 1, 2  # dimensions of queries, keys and values before they are exchanged


class Stage:
    """The layers of this rank; `weights` are its parts by name, `positions` what each rank along cp holds of a sample.

    Activations between the blocks are (samples, positions `here`, hidden).
    """

    def __init__(
        self,
        settings: Settings,
        place: Place,
        weights: dict[str, Tensor],
        masks: Masks,
        positions: list[Tensor],
        here: Tensor,
    ) -> None:
        self.settings = settings
        self.place = place
        self.weights = weights
        self.masks = masks
        self._tensor = place.handle(place.tensor)
        self._sep = place.handle("sep")
        self._ring = Ring(positions, place.index("cp"), place.handle("cp"))
        self._here = here

    def first(self, tokens: Tensor, micro: int) -> Tensor:
        """Embed tokens (samples, positions of the tensor group)."""
        rows = embed(tokens, self.weights["embedding"], self.place.index(self.place.tensor), self._tensor)
        return self._dropped(rows + self.weights["positions"][self._here], self.masks.embedding(micro))

    def blocks(self, x: Tensor, micro: int) -> Tensor:
        """The layers of this stage."""
        for number, layer in enumerate(my_layers(self.settings, self.place)):
            at, masks = f"layer{layer}", self.masks
            change = self._attention(self._norm(x, f"{at}.attention_norm"), at, masks.attention(number, micro))
            x = x + self._dropped(change, masks.activation(number, 0, micro))
            change = self._feed_forward(self._norm(x, f"{at}.norm"), at)
            x = x + self._dropped(change, masks.activation(number, 1, micro))
        return x

    def last(self, x: Tensor, labels: Tensor) -> Tensor:
        """The sum of the losses of all positions of the tensor group, in float64."""
        x = gather_positions(self._norm(x, "last_norm"), self._tensor)
        logits = functional.linear(x, self.weights["embedding"])
        return cross_entropy(logits, labels, self.place.index(self.place.tensor), self._tensor).sum()

    def _attention(self, x: Tensor, at: str, kept: Tensor) -> Tensor:
        x = gather_positions(x, self._tensor)
        weight = self.weights[f"{at}.query_key_value"]
        mixed = functional.linear(x, weight.flatten(0, 2))
        mixed = mixed.unflatten(-1, weight.shape[:3]).permute(0, 1, 3, 2, 4)  # samples, positions, heads, 3, size
        q, k, v = (part.transpose(1, 2) for part in exchange(mixed, HEADS, POSITIONS, self._sep).unbind(3))
        out = attend(q, k, v, kept, self.masks.keep, self._ring)
        out = exchange(out.transpose(1, 2), POSITIONS, HEADS, self._sep)
        return self._split_product(out.flatten(2), self.weights[f"{at}.attention_out"].flatten(1))

    def _feed_forward(self, x: Tensor, at: str) -> Tensor:
        x = functional.linear(gather_positions(x, self._tensor), self.weights[f"{at}.up"])
        return self._split_product(functional.gelu(x), self.weights[f"{at}.down"])

    def _split_product(self, x: Tensor, weight: Tensor) -> Tensor:
        return sum_to_positions(functional.linear(x, weight), self._tensor)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], self.weights[name])

    def _dropped(self, x: Tensor, kept: Tensor) -> Tensor:
        return x * kept / self.masks.keep


def as_dtype(name: str) -> torch.dtype:
    """float32 or float64."""
    return {"float32": torch.float32, "float64": torch.float64}[name]
