"""The text, cut into samples; each rank reads its samples, and of each its positions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from rankatlas.sampling import DataShard, ShardedSampler
from rankatlas.sequence import label_slices, sequence_slices
from train_gpt.place import Place
from train_gpt.settings import DATA, Settings

TEXT = Path(__file__).resolve().parent / "data" / "coriolanus.txt"
STRIDE = 8  # bytes from one sample to the next


class Data:
    """The batches of this rank, step after step, through one epoch after another."""

    def __init__(
        self, settings: Settings, place: Place, micro_batch: int, split: str, mistake: str | None = None
    ) -> None:
        self._text = torch.from_numpy(numpy.frombuffer(TEXT.read_bytes(), dtype=numpy.uint8).astype(numpy.int64))
        length, parts, sep = settings.sequence, place.size("cp"), place.size("sep")
        self.positions = [_joined(parts_of) for parts_of in sequence_slices(length, parts, split)]
        labels = _joined(label_slices(length, parts, split)[place.index("cp")])
        self._tokens, self._labels = (
            whole.chunk(sep)[place.index("sep")] for whole in (self.positions[place.index("cp")], labels)
        )
        if mistake == "labels":
            self._labels = self._tokens.roll(-1)
        self.here = self._tokens.chunk(place.size(place.tensor))[place.index(place.tensor)]
        self._sampler = ShardedSampler(
            (len(self._text) - length - 1) // STRIDE + 1,
            DataShard(place.mesh, DATA),
            place.rank,
            global_batch=settings.batch,
            micro_batch=micro_batch,
            seed=settings.seed,
        )

    def steps(self) -> Iterator[tuple[numpy.ndarray[Any, Any], ...]]:
        """The sample numbers of this rank's micro-batches, one tuple per step, without end."""
        while True:  # when an epoch ends, the sampler begins the next
            yield from self._sampler.steps()

    def batch(self, samples: numpy.ndarray[Any, Any]) -> tuple[Tensor, Tensor]:
        """Tokens and labels (samples, positions of this rank)."""
        begins = torch.from_numpy(samples.astype(numpy.int64)).unsqueeze(1) * STRIDE
        return self._text[begins + self._tokens], self._text[begins + self._labels]

    def state_dict(self) -> dict[str, Any]:
        """How far the data has been read; the same on every rank."""
        return self._sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there, under this layout."""
        self._sampler.load_state_dict(state)


def _joined(parts: tuple[range, ...]) -> Tensor:
    return torch.tensor([at for part in parts for at in part])
