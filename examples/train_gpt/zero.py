"""Adam whose state is split over the sharding axis (Rajbhandari et al., "ZeRO", 2020, stage 1).

Weights whose gradients are summed over the same axes lie in one flat buffer.  Gradients are added up, and weights kept
beside their copies in the model, in float64, as float32 is kept beside bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from rankatlas.tensors import TensorLayout
from train_gpt.collectives import gathered, summed
from train_gpt.place import Place
from train_gpt.weights import Weight

MOMENTS = 0.9, 0.95
EPSILON = 1e-8
KINDS = ("weight", "first", "second")  # what is kept of each element


class Bucket:
    """Weights with one gradient group, flat one after the other, padded to equal parts along the sharding axis."""

    def __init__(self, place: Place, axes: tuple[str, ...], weights: list[Weight]) -> None:
        self.weights = weights
        self._place = place
        self._rest = tuple(axis for axis in axes if axis != "sharding")
        self._shapes = [[part.stop - part.start for part in weight.slices] for weight in weights]
        counts = [torch.Size(shape).numel() for shape in self._shapes]
        self._begins = [sum(counts[:number]) for number in range(len(counts) + 1)]
        parts = place.size("sharding")
        self.part = -(-self._begins[-1] // parts)
        first = place.index("sharding") * self.part
        self._mine = slice(first, first + self.part)
        self._gradient = torch.zeros(self.part * parts, dtype=torch.float64)
        self.kept = {kind: torch.zeros(self.part, dtype=torch.float64) for kind in KINDS}
        self.gradients = list(self.views(self._gradient))
        self._counts = self._norm_weights()[self._mine]

    def _norm_weights(self) -> Tensor:
        """What the square of each element counts in a norm over all ranks, each element of the model once."""
        found = torch.zeros_like(self._gradient)
        for weight, view in zip(self.weights, self.views(found)):
            split = (*weight.split, "sharding")
            same = [axis for axis in self._place.mesh.axes if axis not in split]
            part = TensorLayout(self._place.mesh, replicated=same, sharded=split)
            view.fill_(0.0 if weight.is_tied_copy else part.norm_weight(self._place.rank))
        return found

    def views(self, flat: Tensor) -> Iterator[Tensor]:
        """The weights' places in a flat buffer, in their shapes."""
        for begin, end, shape in zip(self._begins, self._begins[1:], self._shapes):
            yield flat[begin:end].view(shape)

    def whole(self, kind: str) -> Tensor:
        """A kept value of all parts along the sharding axis."""
        handle = self._place.handle("sharding")
        if handle is None:
            return self.kept[kind]
        return gathered(self.kept[kind], handle).flatten()

    def keep(self, kind: str, flat: Tensor) -> None:
        """Take this rank's part of a whole flat buffer."""
        self.kept[kind].copy_(flat[self._mine])

    def empty(self) -> Tensor:
        """A whole flat buffer."""
        return torch.zeros_like(self._gradient)

    def reduce(self) -> float:
        """Sum the gradient over all ranks that have a part in it; returns what this rank's part adds to the norm²."""
        sharding, rest = self._place.handle("sharding"), self._place.handle(*self._rest)
        if sharding is None:
            self._sum = self._gradient.clone()
        else:
            self._sum = summed(self._gradient.view(-1, self.part), sharding)
        if rest is not None:
            dist.all_reduce(self._sum, group=rest)
        self._gradient.zero_()
        return float((self._sum.square() * self._counts).sum())

    def update(self, step: int, rate: float, factor: float) -> None:
        """One step of Adam on this rank's part; `factor` scales the gradient."""
        gradient = self._sum * factor
        near, far = MOMENTS
        first, second = self.kept["first"], self.kept["second"]
        first.mul_(near).add_(gradient, alpha=1 - near)
        second.mul_(far).addcmul_(gradient, gradient, value=1 - far)
        spread = (second / (1 - far ** (step + 1))).sqrt_().add_(EPSILON)
        self.kept["weight"].addcdiv_(first, spread, value=-rate / (1 - near ** (step + 1)))


class Optimizer:
    """The buckets of this rank's weights."""

    def __init__(self, place: Place, weights: list[Weight]) -> None:
        self._place = place
        groups: dict[tuple[str, ...], list[Weight]] = {}
        for weight in weights:
            groups.setdefault(weight.gradient_axes, []).append(weight)
        self.buckets = [Bucket(place, axes, members) for axes, members in groups.items()]

    def by_name(self, buffers: list[Tensor]) -> dict[str, Tensor]:
        """The weights' places in whole flat buffers, one per bucket."""
        return {
            weight.name: view
            for bucket, flat in zip(self.buckets, buffers)
            for weight, view in zip(bucket.weights, bucket.views(flat))
        }

    def take_gradients(self, model: dict[str, Tensor]) -> None:
        """Add the gradients of one micro-batch to the sums, and forget them."""
        for bucket in self.buckets:
            for weight, total in zip(bucket.weights, bucket.gradients):
                parameter = model[weight.name]
                if parameter.grad is not None:
                    total.add_(parameter.grad)
                    parameter.grad = None

    def step(self, step: int, rate: float, clip: float, loss: float, model: dict[str, Tensor]) -> tuple[float, float]:
        """Update the weights from the summed gradients; returns the loss and the gradient's norm over all ranks.

        `loss` is what this rank adds to the loss.  It travels with the norm, in one message.
        """
        if self._place.tied is not None:
            for bucket in self.buckets:
                for weight, total in zip(bucket.weights, bucket.gradients):
                    if weight.is_tied:
                        dist.all_reduce(total, group=self._place.tied)
        told = torch.tensor([loss, sum(bucket.reduce() for bucket in self.buckets)], dtype=torch.float64)
        if self._place.mesh.world_size > 1:
            dist.all_reduce(told)
        norm = float(told[1].sqrt())
        for bucket in self.buckets:
            bucket.update(step, rate, min(1.0, clip / norm) if norm else 1.0)
        self.write_to(model)
        return float(told[0]), norm

    def write_to(self, model: dict[str, Tensor]) -> None:
        """Copy the kept weights into the model, whose type they take."""
        for name, values in self.by_name([bucket.whole("weight") for bucket in self.buckets]).items():
            model[name].data.copy_(values)
