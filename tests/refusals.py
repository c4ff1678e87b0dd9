"""How a test says that something is refused: the very class, its words, its fields, and that it survives a pickle."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rankatlas.errors import RankatlasError


@contextmanager
def refused(error: type[RankatlasError], *words: str, **fields: object) -> Iterator[None]:
    """The block raises exactly `error`; its message holds every word, its attributes are `fields`."""
    with pytest.raises(RankatlasError) as caught:
        yield
    value = caught.value
    assert type(value) is error, f"{type(value).__name__}: {value}"
    for word in words:
        assert word in str(value)
    for name, expected in fields.items():
        assert getattr(value, name) == expected, name
    again = pickle.loads(pickle.dumps(value))
    assert (type(again), str(again), again.__dict__) == (type(value), str(value), value.__dict__)
