"""JAX: keys, which are values and no global state."""

from __future__ import annotations

from typing import Any

import jax
import numpy

_WORD = 2**32


def generator(seed: int) -> Any:
    """The raw threefry key whose two words are those of `seed` (high, low): all 64 bits enter, whatever jax_enable_x64.

    `jax.random.key` would keep the low 32 bits only while 64-bit types are off.
    """
    words = numpy.array([seed // _WORD, seed % _WORD], dtype=numpy.uint32)
    return jax.random.wrap_key_data(jax.numpy.asarray(words), impl="threefry2x32")
