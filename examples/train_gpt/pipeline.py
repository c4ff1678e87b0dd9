"""One batch through the pipeline: one forward, one backward (Narayanan et al., "PipeDream", 2019).

A stage first runs as many forwards as there are stages after it, then alternates, then finishes the backwards; so it
never holds more micro-batches than that.  Sends are begun and left, receives are waited for: nobody blocks another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from train_gpt.model import Stage

Batch = tuple[Tensor, Tensor]  # tokens and labels of this rank's positions


class Pipeline:
    """The stage of this rank and its neighbours; `shape` is that of what is sent between them."""

    def __init__(self, stage: Stage, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self._stage = stage
        self._place = stage.place
        self._handle = stage.place.handle("pp")
        self._shape = shape
        self._dtype = dtype
        self._sending: list[tuple[Any, Tensor]] = []

    def run(self, batches: list[Batch], scale: float, after_backward: Callable[[], None]) -> float:
        """All micro-batches; returns the sum of the losses here (0 before the last stage).

        `scale` is what a loss counts for in the gradient; `after_backward` is called after each backward.
        """
        stages, here = self._place.size("pp"), self._place.index("pp")
        ahead = min(len(batches), stages - 1 - here)
        held: list[tuple[Tensor | None, Tensor]] = []
        total = 0.0
        for micro in range(len(batches) + ahead):
            if micro < len(batches):
                entered, left = self._forward(batches[micro], micro)
                held.append((entered, left))
                if self._place.is_last_stage:
                    total += float(left.detach())
            if micro >= ahead:
                self._backward(*held.pop(0), micro - ahead, len(batches), scale)
                after_backward()
        for work, _ in self._sending:
            work.wait()
        self._sending.clear()
        return total

    def _forward(self, batch: Batch, micro: int) -> tuple[Tensor | None, Tensor]:
        """What entered this stage, None at the first, and what leaves it: activations, or the sum of the losses."""
        tokens, labels = batch
        if self._place.previous is None:
            entered, x = None, self._stage.first(tokens, micro)
        else:
            entered = x = self._receive(self._place.previous, micro).requires_grad_()
        x = self._stage.blocks(x, micro)
        if self._place.next is None:
            return entered, self._stage.last(x, labels)
        self._send(x.detach(), self._place.next, micro)
        return entered, x

    def _backward(self, entered: Tensor | None, left: Tensor, micro: int, count: int, scale: float) -> None:
        tag = count + micro  # of another kind than the tags of activations
        if self._place.next is None:
            (left * scale).backward()
        else:
            left.backward(self._receive(self._place.next, tag))
        if entered is not None:
            self._send(entered.grad, self._place.previous, tag)

    def _send(self, tensor: Tensor, to: int, tag: int) -> None:
        tensor = tensor.contiguous()
        self._sending.append((dist.isend(tensor, to, group=self._handle, tag=tag), tensor))

    def _receive(self, source: int, tag: int) -> Tensor:
        tensor = torch.empty(self._shape, dtype=self._dtype)
        dist.recv(tensor, source, group=self._handle, tag=tag)
        return tensor
