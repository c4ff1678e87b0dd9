"""torch: the CPU generator and, where there are devices, that of the current CUDA device; groups from a plan."""

from __future__ import annotations

import random
import struct
from importlib import import_module
from typing import Any

import torch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rankatlas.adapters.torch_groups import from_device_mesh, open_groups, to_device_mesh

__all__ = ["RandomState", "from_device_mesh", "generator", "open_groups", "tensor", "to_device_mesh"]

_SIGN = 2**63
_WORD = 2**32
_WORDS = 624  # of a Mersenne twister
_FIRST_WORD = 24  # where they begin in a CPU state: after the seed, two flags and the position


class RandomState:
    """The global state of torch: its CPU generator and the current CUDA device's.

    torch's CPU generator starts from the low 32 bits of a seed.  So that larger seeds count whole, as they do on a
    device, they start it as Python's `random` starts the same Mersenne twister.
    """

    name = "torch"

    def seed(self, seed: int) -> None:
        """Seed as `torch.manual_seed`, which seeds every device; from 2^32 on all 64 bits count on the CPU too."""
        _start(torch.default_generator, seed, torch.manual_seed)

    def get_state(self) -> Any:
        """CPU state and, with CUDA in use, that of the current device."""
        device = torch.cuda.get_rng_state() if _cuda() else None
        return torch.get_rng_state(), device

    def set_state(self, state: Any) -> None:
        """Restore what `get_state` gave."""
        host, device = state
        torch.set_rng_state(host)
        if device is not None:
            torch.cuda.set_rng_state(device)

    def pack(self, state: Any) -> Any:
        """The bytes of each state in hexadecimal."""
        return [None if part is None else bytes(part.tolist()).hex() for part in state]

    def unpack(self, data: Any) -> Any:
        """The state of `pack`."""
        return tuple(
            None if part is None else torch.tensor(list(bytes.fromhex(part)), dtype=torch.uint8) for part in data
        )


def _cuda() -> bool:
    # Asking for the state would start CUDA in a process that never uses it.
    return torch.cuda.is_available() and bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _signed(seed: int) -> int:
    """torch takes the upper half of the 64-bit seeds as negative numbers."""
    return seed if seed < _SIGN else seed - 2 * _SIGN


def _start(made: torch.Generator, seed: int, manual_seed: Any) -> None:
    """Seed by `manual_seed`, and where that would drop the upper half, fill a CPU generator's twister by all of it."""
    manual_seed(_signed(seed))
    if seed >= _WORD and made.device.type == "cpu":
        state = bytearray(made.get_state().tolist())
        words = random.Random(seed).getstate()[1][:_WORDS]
        struct.pack_into(f"={_WORDS}Q", state, _FIRST_WORD, *words)
        made.set_state(torch.tensor(list(state), dtype=torch.uint8))


def generator(seed: int, device: str = "cpu") -> torch.Generator:
    """A new `torch.Generator` on `device`, for which all 64 bits of the seed count."""
    made = torch.Generator(device=device)
    _start(made, seed, made.manual_seed)
    return made


def tensor(values: Any) -> torch.Tensor:
    """A tensor that shares the memory of a numpy array."""
    return torch.from_numpy(values)


def __getattr__(name: str) -> Any:
    # Groups need torch.distributed, which not every build has, and which seeding needs not.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("rankatlas.adapters.torch_groups"), name)
