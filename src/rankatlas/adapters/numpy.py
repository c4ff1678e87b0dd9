"""NumPy: the legacy global state, and one `Generator`."""

from __future__ import annotations

from typing import Any

import numpy

_WORD = 2**32
_WORDS = 624  # of a Mersenne twister


class RandomState:
    """The legacy global state, `numpy.random.seed` and friends, whose draws depend on no operating system.

    It takes seeds below 2^32; a larger one is given as its two 32-bit words.
    """

    name = "numpy"

    def seed(self, seed: int) -> None:
        """Seed as `numpy.random.seed`, with two words (low, high) from 2^32 on."""
        numpy.random.seed(seed if seed < _WORD else [seed % _WORD, seed // _WORD])

    def get_state(self) -> Any:
        """As `numpy.random.get_state`."""
        return numpy.random.get_state(legacy=False)

    def set_state(self, state: Any) -> None:
        """As `numpy.random.set_state`, which itself would read beyond a damaged state."""
        _check_twister(state)
        numpy.random.set_state(state)

    def pack(self, state: Any) -> Any:
        """The state with its arrays as lists."""
        return _plain(state)

    def unpack(self, data: Any) -> Any:
        """The state of `pack`."""
        inner = data["state"]
        return {**data, "state": {**inner, "key": numpy.asarray(inner["key"], dtype=numpy.uint32)}}


class GeneratorState:
    """One `numpy.random.Generator` of the caller's, as a keeper of state.

    >>> keeper = GeneratorState(numpy.random.default_rng(1))
    >>> keeper.seed(7)
    >>> keeper.generator.random() == numpy.random.default_rng(7).random()
    True
    """

    name = "numpy.Generator"

    def __init__(self, generator: numpy.random.Generator) -> None:
        self.generator = generator

    def seed(self, seed: int) -> None:
        """Give the generator the state a new one with this seed has."""
        bits = type(self.generator.bit_generator)
        self.generator.bit_generator.state = bits(seed).state

    def get_state(self) -> Any:
        """A copy of the bit generator's state."""
        return self.generator.bit_generator.state

    def set_state(self, state: Any) -> None:
        """Set the bit generator's state."""
        _check_twister(state)
        self.generator.bit_generator.state = state

    def pack(self, state: Any) -> Any:
        """The state with its arrays as lists."""
        return _plain(state)

    def unpack(self, data: Any) -> Any:
        """The state of `pack`; bit generators accept lists where they keep arrays."""
        return data


def _check_twister(state: Any) -> None:
    """Raise ValueError for a Mersenne twister whose position is outside its words."""
    inner = state["state"]
    if "pos" in inner and not (inner["pos"] in range(_WORDS + 1) and len(inner["key"]) == _WORDS):
        raise ValueError(f"position {inner['pos']} of {len(inner['key'])} words; a Mersenne twister has {_WORDS}")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, numpy.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, numpy.generic) else value


def generator(seed: int) -> numpy.random.Generator:
    """A new `Generator` (PCG64), as `numpy.random.default_rng` makes it."""
    return numpy.random.default_rng(seed)
