"""Causal attention over a sequence whose keys and values travel round a ring of ranks.

Each rank keeps its queries and sees every block of keys once; the softmax is exact, put together block by block from
the running maximum and sum (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Liu et al.,
"Ring Attention with Blockwise Transformers", 2023).  With a ring of one it is plain attention.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Function

Blocks = list[Tensor]


class Ring:
    """The ranks of a context-parallel group, and which positions each of them holds."""

    def __init__(self, positions: Blocks, index: int, handle: Any) -> None:
        self.positions = positions  # of every rank
        self.index = index
        self._handle = handle

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.positions)

    def pass_on(self, tensor: Tensor) -> Tensor:
        """Give `tensor` to the next rank, and take that of the previous one."""
        ranks = dist.get_process_group_ranks(self._handle)
        received = torch.empty_like(tensor)
        sending = dist.isend(tensor.contiguous(), ranks[(self.index + 1) % self.size], group=self._handle)
        dist.recv(received, ranks[self.index - 1], group=self._handle)
        sending.wait()
        return received

    def source(self, hop: int) -> int:
        """Whose block is here after so many hops."""
        return (self.index - hop) % self.size

    def visible(self, source: int) -> Tensor | None:
        """Which keys of `source` each query may see, None where it is none of them."""
        seen = self.positions[self.index].unsqueeze(1) >= self.positions[source].unsqueeze(0)
        return seen if bool(seen.any()) else None


class _Attend(Function):
    """q, k, v are (samples, heads, positions, size); `kept` is (samples, heads, queries, all keys in order)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, kept: Tensor, keep: float, ring: Ring) -> Tensor:
        scale = q.shape[-1] ** -0.5
        highest = q.new_full((*q.shape[:-1], 1), -torch.inf)
        total, out = torch.zeros_like(highest), torch.zeros_like(q)
        block = torch.stack([k, v])
        for hop in range(ring.size):
            if hop:
                block = ring.pass_on(block)
            source = ring.source(hop)
            visible = ring.visible(source)
            if visible is None:
                continue
            scores = (q @ block[0].transpose(-1, -2) * scale).masked_fill(~visible, -torch.inf)
            now = torch.maximum(highest, scores.amax(-1, keepdim=True))
            # A query that has seen no key yet has no maximum: nothing is there to be scaled.
            old = torch.where(highest == -torch.inf, 0.0, (highest - now).exp())
            weights = torch.where(visible, (scores - now).exp(), 0.0)
            total = total * old + weights.sum(-1, keepdim=True)
            out = out * old + weights * kept[..., ring.positions[source]] @ block[1]
            highest = now
        out = out / (total * keep)
        ctx.save_for_backward(q, k, v, kept, out, highest + total.log())
        ctx.keep, ctx.ring = keep, ring
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, kept, out, normalizer = ctx.saved_tensors
        ring, scale = ctx.ring, q.shape[-1] ** -0.5
        through = (grad * out).sum(-1, keepdim=True)
        grad_q = torch.zeros_like(q)
        # A block travels with its own gradient, to which every rank adds, and is home after a full turn.
        block = torch.stack([k, v, torch.zeros_like(k), torch.zeros_like(v)])
        for hop in range(ring.size):
            if hop:
                block = ring.pass_on(block)
            source = ring.source(hop)
            visible = ring.visible(source)
            if visible is None:
                continue
            k, v, grad_k, grad_v = block
            scores = (q @ k.transpose(-1, -2) * scale).masked_fill(~visible, -torch.inf)
            chances = (scores - normalizer).exp()
            dropped = kept[..., ring.positions[source]] / ctx.keep
            grad_v += (chances * dropped).transpose(-1, -2) @ grad
            grad_scores = chances * (grad @ v.transpose(-1, -2) * dropped - through) * scale
            grad_q += grad_scores @ k
            grad_k += grad_scores.transpose(-1, -2) @ q
        if ring.size > 1:
            block = ring.pass_on(block)
        return grad_q, block[2], block[3], None, None, None


def attend(q: Tensor, k: Tensor, v: Tensor, kept: Tensor, keep: float, ring: Ring) -> Tensor:
    """Softmax attention of this rank's queries over all earlier positions, chances dropped where `kept` is 0.

    `kept` has a column for every position of the sequence; what is kept is divided by `keep`.
    """
    return _Attend.apply(q, k, v, kept.to(q.dtype), keep, ring)
