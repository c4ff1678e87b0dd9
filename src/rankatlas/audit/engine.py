"""What an audit asks of a framework: the bytes of a tensor, and a small all-gather of integers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from hashlib import blake2b
from importlib import import_module
from types import MappingProxyType
from typing import Any, Protocol

from rankatlas.errors import JobError, shown


class ReadsTensors(Protocol):
    """How one framework's tensors are read, and integers exchanged."""

    rank: int
    world_size: int

    def world(self) -> Any:
        """The communicator of all ranks."""

    def gather(self, communicator: Any, numbers: list[int]) -> list[list[int]]:
        """The numbers of every member, in the order of the group; all give equally many, each of 64 bits."""

    def raw(self, tensor: Any) -> tuple[str, tuple[int, ...], Any]:
        """dtype, shape and the contiguous bytes of a tensor."""

    def numbers(self, tensor: Any, first: int, last: int) -> Sequence[float]:
        """Its elements first … last − 1, row-major: integers as such, else floats, of a complex number both parts."""

    def is_tensor(self, value: Any) -> bool:
        """Whether `value` is one of its tensors."""


# Framework → its adapter for audits.
_ADAPTERS = MappingProxyType({"torch": "rankatlas.adapters.torch_audit", "paddle": "rankatlas.adapters.paddle_audit"})


def current(engine: str | None = None) -> ReadsTensors:
    """The adapter of the framework whose job this process is in; `engine` names it where two are.  Raises JobError."""
    names = [engine] if engine else [name for name in _ADAPTERS if name in sys.modules]
    for name in names:
        if name not in _ADAPTERS:
            raise JobError(f"engine is one of {', '.join(_ADAPTERS)}, not {shown(name)}")
        found: ReadsTensors | None = import_module(_ADAPTERS[name]).current()
        if found is not None:
            return found
    raise JobError(
        "no distributed job is initialised in this process: call torch.distributed.init_process_group or"
        " paddle.distributed.init_parallel_env first"
    )


def checksum(dtype: str, shape: Sequence[int], content: Any) -> int:
    """64 bits of dtype, shape and bytes, as a signed integer.  −0.0 and 0.0 differ, NaNs are compared by their bits.

    Cost: O(bytes), about a gigabyte per second.

    >>> checksum("float32", (2,), bytes(8)) == checksum("float32", (2, 1), bytes(8))
    False
    """
    digest = blake2b(f"{dtype}{list(shape)}".encode(), digest_size=8)
    digest.update(content)
    return signed(digest.digest())


def signed(eight: bytes) -> int:
    """Eight bytes as an integer that every framework's int64 holds."""
    return int.from_bytes(eight, "little", signed=True)
