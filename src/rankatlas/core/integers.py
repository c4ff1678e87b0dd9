"""The border: whatever counts as an integer comes in, a plain int goes on."""

from __future__ import annotations

from operator import index

from rankatlas.errors import IntegerError


def as_int(value: object, what: str) -> int:
    """`value` as a plain int: ints and numpy integers pass; bools, floats and text do not.

    Cost: O(1).  Raises IntegerError naming `what`.

    >>> as_int(3, "rank")
    3
    """
    if type(value) is int:
        return value
    # Booleans of numpy and torch know __index__ too; their dtype tells.
    if not isinstance(value, bool) and not str(getattr(value, "dtype", "")).endswith("bool"):
        try:
            return index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
    raise IntegerError(f"{what} must be an integer, not {value!r} ({type(value).__name__})", what=what, value=value)
