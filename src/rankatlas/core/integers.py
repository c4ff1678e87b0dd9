"""The border: whatever counts as an integer comes in, a plain int goes on."""

from __future__ import annotations

from operator import index

from rankatlas.errors import IntegerError, shown

_MOST_BITS = 128  # no rank, size or seed is longer; much longer ones could not even be printed


def as_int(value: object, what: str) -> int:
    """`value` as a plain int: ints and numpy integers pass; bools, floats, arrays and text do not.

    Cost: O(1).  Raises IntegerError naming `what`.

    >>> as_int(3, "rank")
    3
    """
    number: int | None = None
    if type(value) is int:
        number = value
    elif _may_be_integer(value):
        try:
            number = index(value)  # type: ignore[arg-type]
        except Exception:  # whatever somebody's __index__ raises
            number = None
    if number is not None and number.bit_length() <= _MOST_BITS:
        return number
    kind = type(value).__name__
    raise IntegerError(f"{what} must be an integer, not {shown(value)} ({kind})", what=what, value=value)


def _may_be_integer(value: object) -> bool:
    """Whether `value` can be one integer: arrays of booleans, floats or several numbers know __index__ as well."""
    if isinstance(value, bool):
        return False
    dtype = getattr(value, "dtype", None)
    return dtype is None or ("int" in str(dtype) and not tuple(getattr(value, "shape", ())))
