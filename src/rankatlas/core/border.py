"""The border: whatever counts as an integer, or as things in an order, comes in; plain ints and tuples go on."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index

from rankatlas.errors import InputError, IntegerError, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeGuard

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
    if number is not None:
        raise IntegerError(
            f"{what} must be an integer of at most {_MOST_BITS} bits, not {shown(number)}", what=what, value=value
        )
    raise IntegerError(f"{what} must be an integer, not {shown(value)} ({kind})", what=what, value=value)


def in_order(values: object, what: str) -> tuple[Any, ...]:
    """`values` as a tuple; text and bytes are no list of things, and a set has no order of its own.

    A set would come out in another order in every process, so each rank would build another layout.
    Cost: O(values).  Raises InputError naming `what`.

    >>> in_order(["dp", "tp"], "order")
    ('dp', 'tp')
    """
    if isinstance(values, (set, frozenset)) or not is_list(values):
        why = "which has no order" if isinstance(values, (set, frozenset)) else f"a {type(values).__name__}"
        raise InputError(f"{what} must be a list or tuple, not {shown(values)}, {why}")
    return tuple(values)


def is_list(values: object) -> TypeGuard[Iterable[Any]]:
    """Whether `values` are several things rather than one: not text, nor an array without dimensions.

    >>> is_list([1, 2]), is_list(range(2)), is_list("12"), is_list(1)
    (True, True, False, False)
    """
    text = isinstance(values, (str, bytes, bytearray))
    return isinstance(values, Iterable) and not text and getattr(values, "ndim", 1) != 0


def axis_names(axes: object, what: str) -> tuple[str, ...]:
    """One axis name, or several in an order, as plain text.  Raises InputError naming `what`.

    >>> axis_names("dp", "replicated"), axis_names(["dp", "tp"], "replicated")
    (('dp',), ('dp', 'tp'))
    """
    names = (axes,) if isinstance(axes, str) else in_order(axes, what)
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"{what} must be axis names, not {shown(name)}")
    return tuple(map(str.__str__, names))


def _may_be_integer(value: object) -> bool:
    """Whether `value` can be one integer: arrays of booleans, floats or several numbers know __index__ as well."""
    if isinstance(value, bool):
        return False
    dtype = getattr(value, "dtype", None)
    return dtype is None or ("int" in str(dtype) and not tuple(getattr(value, "shape", ())))
