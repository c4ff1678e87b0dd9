"""Where random state lives: one small protocol, and a registry of who implements it for which framework.

Nothing here imports a framework: an adapter is named by its dotted path and loaded when it is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from types import MappingProxyType

from rankatlas.errors import SeedError, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol
else:
    Protocol = object  # a protocol is for the type checker; importing typing would double the time of this import


class KeepsRandomState(Protocol):
    """The global random state of one framework.

    A state is an opaque value that `set_state` accepts; `pack` and `unpack` turn it into plain data and back.
    """

    name: str

    def seed(self, seed: int) -> None:
        """Seed the global state with 0 … 2^64 − 1."""

    def get_state(self) -> Any:
        """A copy of the global state."""

    def set_state(self, state: Any) -> None:
        """Make `state` the global state."""

    def pack(self, state: Any) -> Any:
        """`state` as plain data: numbers, text, lists and dicts."""

    def unpack(self, data: Any) -> Any:
        """The state that `pack` made plain."""


# Name → (dotted path of the adapter, how to install what it needs).
KNOWN = MappingProxyType(
    {
        "python": ("rankatlas.adapters.python", "nothing to install"),
        "numpy": ("rankatlas.adapters.numpy", "pip install numpy"),
        "torch": ("rankatlas.adapters.torch", "pip install torch"),
        "paddle": ("rankatlas.adapters.paddle", "pip install paddlepaddle"),
        "jax": ("rankatlas.adapters.jax", "pip install jax"),
    }
)
_PROTOCOL = ("name", "seed", "get_state", "set_state", "pack", "unpack")
_FOLLOWED = ("numpy", "torch", "paddle")  # seeded when a program has them already; JAX keeps no global state


def adapter(name: str) -> Any:
    """The adapter module of a framework, loaded now.

    Raises SeedError for an unknown name, ImportError saying what to install when the framework is absent.

    >>> adapter("python").RandomState().name
    'python'
    """
    if name not in KNOWN:
        raise SeedError(
            f"no random backend {shown(name)}; known are {', '.join(KNOWN)}",
            name=name,
        )
    path, install = KNOWN[name]
    try:
        return import_module(path)
    except ImportError as error:
        raise ImportError(f"the {name} backend needs {name}: {install} ({error})") from error


def states(names: Iterable[str | KeepsRandomState] | None = None) -> tuple[KeepsRandomState, ...]:
    """The keepers of random state with these names; None means Python and the frameworks already imported.

    A keeper of one's own passes through.  Raises as `adapter`, and SeedError for a name given twice.
    """
    if names is None:
        names = ("python", *(name for name in _FOLLOWED if name in sys.modules))
    found: list[KeepsRandomState] = []
    for name in (names,) if isinstance(names, str) else names:
        keeper = adapter(name).RandomState() if isinstance(name, str) else name
        if not all(hasattr(keeper, part) for part in _PROTOCOL) or keeper.name in [other.name for other in found]:
            raise SeedError(
                f"{shown(name)} keeps no random state (or stands twice); backends are {', '.join(KNOWN)}",
            )
        found.append(keeper)
    return tuple(found)


def seed_globally(seed: int, names: Iterable[str | KeepsRandomState] | None = None) -> None:
    """Seed the global state of every keeper in `names` (None as in `states`) with the same number."""
    for keeper in states(names):
        keeper.seed(seed)


def generator(name: str, seed: int, *options: Any) -> Any:
    """A generator of the framework's own kind, seeded with 64 bits.  Raises as `adapter`."""
    return adapter(name).generator(seed, *options)
