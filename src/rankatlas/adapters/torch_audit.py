"""torch: the bytes of tensors, and small all-gathers of integers."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from rankatlas.errors import InputError, JobError


class TorchReader:
    """Reads tensors, wherever they are, and exchanges integers over groups of the job."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()

    def world(self) -> Any:
        """The default process group."""
        return dist.group.WORLD

    def gather(self, communicator: Any, numbers: list[int]) -> list[list[int]]:
        """The numbers of every member, in the order of the group."""
        count = dist.get_world_size(communicator)
        if count == 1:
            return [numbers]
        device = "cpu"
        if dist.get_backend(communicator) == "fake":
            raise JobError("under torch's fake backend there is one process, and nobody to compare with; run the job")
        if dist.get_backend(communicator) == "nccl":
            device = f"cuda:{torch.cuda.current_device()}"
        mine = torch.tensor(numbers, dtype=torch.int64, device=device)
        parts = [torch.empty_like(mine) for _ in range(count)]
        dist.all_gather(parts, mine, group=communicator)
        return [part.tolist() for part in parts]

    def raw(self, tensor: Any) -> tuple[str, tuple[int, ...], Any]:
        """dtype, shape and contiguous bytes."""
        held = _plain(tensor)
        content = held.reshape(-1).view(torch.uint8) if held.numel() else torch.empty(0, dtype=torch.uint8)
        return str(held.dtype), tuple(held.shape), content.numpy().data

    def numbers(self, tensor: Any, first: int, last: int) -> list[float]:
        """Elements as integers or floats; of a complex number both parts."""
        part = _plain(tensor).reshape(-1)[first:last]
        if part.is_complex():
            whole = part.to(torch.complex128) if part.dtype is torch.complex32 else part
            part = torch.view_as_real(whole).reshape(-1)
        integers = not part.is_floating_point() and part.dtype is not torch.bool
        found: list[float] = part.tolist() if integers else part.double().tolist()
        return found

    def is_tensor(self, value: Any) -> bool:
        """Whether this is a torch tensor."""
        return isinstance(value, torch.Tensor)


def _plain(tensor: Any) -> Any:
    """The dense local part of a tensor, in memory of the host and contiguous."""
    held = (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach()
    kind = "nested" if held.is_nested else "quantized" if held.is_quantized else str(held.layout)
    if held.layout is not torch.strided or held.is_quantized or held.is_meta or held.is_nested:
        raise InputError(f"a {kind} tensor on {held.device} has no bytes to compare; make it dense, or leave it out")
    return held.resolve_conj().resolve_neg().cpu().contiguous()


def current() -> TorchReader | None:
    """The reader of this process's job, or None before `init_process_group`."""
    return TorchReader() if dist.is_available() and dist.is_initialized() else None
