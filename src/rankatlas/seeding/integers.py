"""What a seed may be."""

from __future__ import annotations

from rankatlas.core.border import as_int
from rankatlas.errors import SeedError

MOST = 2**64 - 1


def as_seed(seed: object, what: str = "seed") -> int:
    """`seed` as a plain int that every backend can take: 0 to 2^64 − 1.

    Raises IntegerError (no integer), SeedError (negative, or more than 64 bits).

    >>> as_seed(1234)
    1234
    """
    number = as_int(seed, what)
    if not 0 <= number <= MOST:
        raise SeedError(f"{what} must be 0 to 2**64 - 1, not {number}", seed=number)
    return number
