"""Tensor parallelism with activations that are split along the sequence, and the exchange of heads for positions.

Between the large products every rank of the tensor axis holds other positions; before a product they are gathered, and
its partial sums are added up and handed out again by position (Korthikanti et al., "Reducing Activation Recomputation
in Large Transformer Models", 2022).  Each operation below is the other's backward.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

from train_gpt.collectives import gathered, summed, swapped


def _gathered(mine: Tensor, handle: Any) -> Tensor:
    """(samples, positions, …) of every rank, put together along the positions."""
    return torch.cat(gathered(mine, handle).unbind(0), 1)


def _summed(whole: Tensor, handle: Any) -> Tensor:
    """The sum over all ranks, of which each keeps its positions."""
    return summed(torch.stack(whole.chunk(dist.get_world_size(handle), 1)), handle)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, mine: Tensor, handle: Any) -> Tensor:
        ctx.handle = handle
        return _gathered(mine, handle)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _summed(grad, ctx.handle), None


class _Sum(Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, handle: Any) -> Tensor:
        ctx.handle = handle
        return _summed(whole, handle)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _gathered(grad, ctx.handle), None


def gather_positions(mine: Tensor, handle: Any) -> Tensor:
    """All positions of the tensor group, before a product whose output is split."""
    return mine if handle is None else _Gather.apply(mine, handle)


def sum_to_positions(whole: Tensor, handle: Any) -> Tensor:
    """This rank's positions of the sum over the tensor group, after a product whose input was split."""
    return whole if handle is None else _Sum.apply(whole, handle)


def _exchanged(tensor: Tensor, split: int, join: int, handle: Any) -> Tensor:
    """Give each rank its part along `split`, and put what it receives together along `join`."""
    parts = torch.stack(tensor.chunk(dist.get_world_size(handle), split))
    return torch.cat(swapped(parts, handle).unbind(0), join)


class _Exchange(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, split: int, join: int, handle: Any) -> Tensor:
        ctx.split, ctx.join, ctx.handle = split, join, handle
        return _exchanged(tensor, split, join, handle)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _exchanged(grad, ctx.join, ctx.split, ctx.handle), None, None, None


def exchange(tensor: Tensor, split: int, join: int, handle: Any) -> Tensor:
    """All-to-all: what was whole along `split` becomes whole along `join` (Jacobs et al., DeepSpeed Ulysses, 2023)."""
    return tensor if handle is None else _Exchange.apply(tensor, split, join, handle)


def embed(tokens: Tensor, table: Tensor, index: int, handle: Any) -> Tensor:
    """Rows of a table whose entries are split over the tensor group; (samples, positions of this rank, hidden)."""
    local = tokens - index * table.shape[0]
    here = (local >= 0) & (local < table.shape[0])
    rows = torch.nn.functional.embedding(local.clamp(0, table.shape[0] - 1), table) * here.unsqueeze(-1)
    return sum_to_positions(rows, handle)


class _CrossEntropy(Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, index: int, handle: Any) -> Tensor:
        scores = logits.double()
        local = labels.unsqueeze(-1) - index * logits.shape[-1]
        here = (local >= 0) & (local < logits.shape[-1])
        local = local.clamp(0, logits.shape[-1] - 1)
        highest = scores.amax(-1, keepdim=True)
        weights = (scores - highest).exp()
        right = scores.gather(-1, local) * here
        told = torch.stack([highest, weights.sum(-1, keepdim=True), right])
        # Every rank learns the maximum, sum and right score of all parts, in one message.
        maxima, sums, rights = (told.unsqueeze(0) if handle is None else gathered(told, handle)).unbind(1)
        top = maxima.amax(0)
        total = (sums * (maxima - top).exp()).sum(0)
        weights = weights * (highest - top).exp()
        right = rights.sum(0)
        ctx.save_for_backward(weights / total, local, here)
        ctx.dtype = logits.dtype
        return (total.log() + top - right).squeeze(-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        chances, local, here = ctx.saved_tensors
        out = chances.scatter_add(-1, local, -here.double()) * grad.unsqueeze(-1)
        return out.to(ctx.dtype), None, None, None


def cross_entropy(logits: Tensor, labels: Tensor, index: int, handle: Any) -> Tensor:
    """The loss of every position in float64, from logits whose entries are split over the tensor group."""
    return _CrossEntropy.apply(logits, labels, index, handle)
