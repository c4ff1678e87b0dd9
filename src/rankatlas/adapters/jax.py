"""JAX: keys, which are values and no global state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy

from rankatlas.errors import SeedError, shown
from rankatlas.seeding.integers import as_seed

_WORD = 2**32


def generator(seed: int) -> Any:
    """The threefry key whose two words are those of `seed` (high, low): all 64 bits enter, whatever jax_enable_x64.

    `jax.random.key` would keep the low 32 bits only while 64-bit types are off.
    """
    words = numpy.array([seed // _WORD, seed % _WORD], dtype=numpy.uint32)
    return jax.random.wrap_key_data(jax.numpy.asarray(words), impl="threefry2x32")


class RandomState:
    """One key that moves on at every draw, as a keeper of state: JAX has no global state to keep.

    >>> keeper = RandomState()
    >>> keeper.seed(7)
    >>> state = keeper.get_state()
    >>> first = jax.random.uniform(keeper.next_key())
    >>> keeper.set_state(state)
    >>> bool(jax.random.uniform(keeper.next_key()) == first)
    True
    """

    name = "jax"

    def __init__(self) -> None:
        self._key = generator(0)

    def next_key(self) -> Any:
        """A key for one draw; the kept one moves on."""
        self._key, key = jax.random.split(self._key)
        return key

    def seed(self, seed: int) -> None:
        """Start with the key of `seed`."""
        self._key = generator(seed)

    def get_state(self) -> Any:
        """The key."""
        return self._key

    def set_state(self, state: Any) -> None:
        """Set the key.  Raises ValueError for anything that is no single key."""
        dtype = getattr(state, "dtype", None)
        if dtype is None or not jax.numpy.issubdtype(dtype, jax.dtypes.prng_key) or state.shape:
            raise ValueError(f"a state of JAX is one key, not {shown(state)}")
        self._key = state

    def pack(self, state: Any) -> list[int]:
        """The words of the key."""
        return [int(word) for word in jax.random.key_data(state)]

    def unpack(self, data: Any) -> Any:
        """The key of `pack`."""
        return jax.random.wrap_key_data(jax.numpy.asarray(data, dtype=jax.numpy.uint32), impl="threefry2x32")


class Keys:
    """Named streams of keys as a value: nothing changes in place, so it goes through `jax.jit` and `jax.lax.scan`.

    >>> keys = Keys().add("dropout", 50)
    >>> key, keys = keys.take("dropout")
    >>> other, keys = keys.take("dropout")
    >>> bool((jax.random.key_data(key) == jax.random.key_data(other)).all())
    False
    """

    __slots__ = ("_keys", "_seeds")

    def __init__(self, keys: Mapping[str, Any] | None = None, seeds: Mapping[str, int] | None = None) -> None:
        self._keys = dict(keys or {})
        self._seeds = dict(seeds or {})

    def add(self, name: str, seed: int) -> Keys:
        """These keys and a stream `name` more.  Raises SeedError when name or seed is taken, IntegerError."""
        seed = as_seed(seed)
        holder = name if name in self._seeds else next((n for n, used in self._seeds.items() if used == seed), None)
        if holder is not None:
            raise SeedError(
                f"stream {shown(name)} with seed {seed} meets {shown(holder)}, which has seed {self._seeds[holder]}",
                name=name,
                seed=seed,
                earlier_name=holder,
                earlier_seed=self._seeds[holder],
            )
        return Keys({**self._keys, name: generator(seed)}, {**self._seeds, name: seed})

    def take(self, name: str) -> tuple[Any, Keys]:
        """A key of the stream for one draw, and the keys that go on after it.  Raises SeedError."""
        if name not in self._keys:
            raise SeedError(
                f"no stream {shown(name)}; the streams are {', '.join(self._keys) or 'none yet'}",
                name=name,
            )
        kept, key = jax.random.split(self._keys[name])
        return key, Keys({**self._keys, name: kept}, self._seeds)


def _flatten(keys: Keys) -> tuple[tuple[Any, ...], tuple[tuple[str, ...], tuple[tuple[str, int], ...]]]:
    return tuple(keys._keys.values()), (tuple(keys._keys), tuple(keys._seeds.items()))


def _unflatten(names: tuple[tuple[str, ...], tuple[tuple[str, int], ...]], keys: tuple[Any, ...]) -> Keys:
    return Keys(dict(zip(names[0], keys)), dict(names[1]))


jax.tree_util.register_pytree_node(Keys, _flatten, _unflatten)
