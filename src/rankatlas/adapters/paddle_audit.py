"""Paddle: the bytes of tensors, and small all-gathers of integers."""

from __future__ import annotations

from typing import Any

import numpy
import paddle
import paddle.distributed as dist
from paddle.distributed import collective


class PaddleReader:
    """Reads tensors, wherever they are, and exchanges integers over groups of the job."""

    def __init__(self) -> None:
        self.rank = int(dist.get_rank())
        self.world_size = int(dist.get_world_size())

    def world(self) -> Any:
        """The default group."""
        return collective._get_default_group()  # type: ignore[no-untyped-call]

    def gather(self, communicator: Any, numbers: list[int]) -> list[list[int]]:
        """The numbers of every member, in the order of the group."""
        if communicator.nranks == 1:
            return [numbers]
        parts: list[Any] = []
        dist.all_gather(parts, paddle.to_tensor(numbers, dtype="int64"), group=communicator)
        return [part.numpy().tolist() for part in parts]

    def raw(self, tensor: Any) -> tuple[str, tuple[int, ...], Any]:
        """dtype, shape and contiguous bytes."""
        held = numpy.ascontiguousarray(tensor.detach().numpy())
        return str(tensor.dtype), tuple(tensor.shape), held.reshape(-1).view(numpy.uint8).data

    def numbers(self, tensor: Any, first: int, last: int) -> list[float]:
        """Elements as integers or floats; of a complex number both parts."""
        part = tensor.detach().flatten()[first:last]
        if "complex" in str(part.dtype):
            part = paddle.as_real(part).flatten()
        integers = "int" in str(part.dtype)
        found: list[float] = (part if integers else part.astype("float64")).numpy().tolist()
        return found

    def is_tensor(self, value: Any) -> bool:
        """Whether this is a Paddle tensor."""
        return isinstance(value, paddle.Tensor)


def current() -> PaddleReader | None:
    """The reader of this process's job, or None before `init_parallel_env` or `fleet.init`."""
    return PaddleReader() if dist.is_initialized() else None
