"""Sizes against a world: the open one inferred, and a mismatch explained with the nearest ways out."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping
from itertools import combinations, islice
from math import isqrt, log, prod

from rankatlas.core.border import as_int
from rankatlas.errors import IntegerError, SizeError, SizeTypeError, WorldSizeError

_MOST_FIXES = 8
_MOST_PAIRS = 64  # pairs of axes tried for a fix
_MOST_NEAR = 64  # divisors tried on either side of a size
_MOST_TRIALS = 1 << 20  # beyond this factor only small divisors are offered as fixes


def checked_size(axis: str, size: object, label: str = "") -> int:
    """`size` as a plain int of at least 1; `label` names it in messages instead of "the size of axis".

    Cost: O(1).  Raises SizeError (below 1) or SizeTypeError (no integer).

    >>> checked_size("dp", 8)
    8
    """
    label = label or f"the size of {axis}"
    try:
        number = as_int(size, label)
    except IntegerError as error:
        raise SizeTypeError(str(error), axis=axis, size=size) from None
    if number < 1:
        hint = f"; to infer it, use parse_mesh('{axis}=? …', world_size=…)" if number == -1 else ""
        raise SizeError(f"{label} must be 1 or more, not {number}{hint}", axis=axis, size=number)
    return number


def checked_open(axis: str, size: object) -> bool:
    """Whether `size` is -1, the size to be inferred.  Raises SizeTypeError when it is no integer at all.

    >>> checked_open("dp", -1), checked_open("dp", 2)
    (True, False)
    """
    try:
        return as_int(size, f"the size of {axis}") == -1
    except IntegerError as error:
        raise SizeTypeError(str(error), axis=axis, size=size) from None


def resolve(
    sizes: Mapping[str, int | None],
    world_size: int,
    *,
    whole: str = "world size",
    origins: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """All sizes, the one left open (None) being what `world_size` leaves over.

    `whole` says in messages what the sizes must multiply to; `origins` says where a size came from.
    Cost: O(axes), on an error up to a million divisions.  Raises SizeError, SizeTypeError, WorldSizeError.

    >>> resolve({"pp": 4, "dp": None, "tp": 8}, 64)
    {'pp': 4, 'dp': 2, 'tp': 8}
    """
    world_size = checked_size(whole, world_size, label=whole)
    fixed = {axis: checked_size(axis, size) for axis, size in sizes.items() if size is not None}
    product = prod(fixed.values())
    unset = [axis for axis, size in sizes.items() if size is None]
    if len(unset) > 1:
        raise WorldSizeError(
            f"only one size may be left open, not {len(unset)}: {', '.join(unset)}",
            **_facts(fixed, product, world_size, [], []),
            open_axis=None,
        )
    if unset and world_size % product == 0:
        return {axis: fixed.get(axis, world_size // product) for axis in sizes}
    if not unset and product == world_size:
        return fixed
    raise _mismatch(sizes, fixed, product, world_size, whole, origins or {})


def _facts(
    fixed: Mapping[str, int],
    product: int,
    world_size: int,
    nearest: list[int],
    fixes: list[dict[str, int]],
) -> dict[str, object]:
    return {
        "factors": tuple(fixed.items()),
        "product": product,
        "world_size": world_size,
        "remainder": world_size % product,
        "nearest_worlds": nearest,
        "fixes": fixes,
    }


def _mismatch(
    sizes: Mapping[str, int | None],
    fixed: Mapping[str, int],
    product: int,
    world_size: int,
    whole: str,
    origins: Mapping[str, str],
) -> WorldSizeError:
    unset = next((axis for axis, size in sizes.items() if size is None), None)
    factors = " * ".join(
        f"{axis}={size}" + (f" ({origins[axis]})" if axis in origins else "") for axis, size in fixed.items()
    )
    if unset:
        below = world_size // product * product
        nearest = [world for world in (below, below + product) if world]
        told = (
            f"{whole} {world_size} cannot be shared out: {factors} = {product}"
            f" leaves a remainder of {world_size % product}, so {unset} has no size"
        )
    else:
        nearest = [product]
        relation = "more" if product > world_size else "fewer"
        told = (
            f"{factors} = {product} is {relation} than the {whole} {world_size}"
            f" (remainder {world_size % product}); each axis takes ranks of its own"
        )
    fixes = _fixes(sizes, fixed, world_size)
    lines = [told, f"fits {whole} {' or '.join(map(str, nearest))}"]
    if fixes:
        shown = "; or ".join(" ".join(f"{axis}={size}" for axis, size in fix.items()) for fix in fixes)
        lines.append(f"for {world_size}: {shown}")
    return WorldSizeError(
        "\n".join(lines), **_facts(fixed, product, world_size, nearest, fixes), origins=dict(origins), open_axis=unset
    )


def _fixes(sizes: Mapping[str, int | None], fixed: Mapping[str, int], world_size: int) -> list[dict[str, int]]:
    """The nearest sizes that fit: first one axis changed, then two.

    With an open axis a fix shows the axis to change and what the open one becomes, nearest below and above;
    without one it shows all sizes, because then every choice is the user's own.
    """
    unset = next((axis for axis, size in sizes.items() if size is None), None)
    product = prod(fixed.values())
    whole = divisors(world_size)
    if unset is None:
        ways = {tuple(fix.values()): fix for fix in _changed(fixed, world_size, whole)}
        return list(ways.values())[:_MOST_FIXES]
    found: list[dict[str, int]] = []
    for axis, size in fixed.items():
        others = product // size
        if world_size % others == 0 and len(found) < _MOST_FIXES:
            room = world_size // others
            found += [{axis: near, unset: room // near} for near in _nearest(room, size, whole) if near != size]
    return found[:_MOST_FIXES]


def _changed(fixed: Mapping[str, int], world_size: int, divisors: list[int]) -> Iterator[dict[str, int]]:
    """All sizes with one axis changed, then with two, the nearest of those first."""
    product = prod(fixed.values())
    for axis, size in fixed.items():
        if world_size % (product // size) == 0:
            yield {**fixed, axis: world_size // (product // size)}
    found = []
    for axis, other in islice(combinations(fixed, 2), _MOST_PAIRS):
        rest = product // (fixed[axis] * fixed[other])
        if world_size % rest:
            continue
        room = world_size // rest
        near = bisect(divisors, fixed[axis])
        sizes = [size for size in divisors[max(0, near - _MOST_NEAR) : near + _MOST_NEAR] if room % size == 0]
        distances = [_distance(size, fixed[axis]) + _distance(room // size, fixed[other]) for size in sizes]
        nearest = sorted(zip(distances, sizes))[:_MOST_FIXES]
        found += [(distance, axis, other, size, room // size) for distance, size in nearest]
    found.sort(key=lambda fix: fix[0])
    for _, axis, other, size, other_size in found:
        yield {**fixed, axis: size, other: other_size}


def _distance(size: int, wanted: int) -> float:
    return round(abs(log(size / wanted)), 9)


def _nearest(number: int, size: int, divisors: list[int]) -> list[int]:
    """The divisors of `number` (all among `divisors`) next below or at, and next above, `size`."""
    near = bisect(divisors, size)
    below = next((divisor for divisor in reversed(divisors[:near]) if number % divisor == 0), None)
    above = next((divisor for divisor in divisors[near:] if number % divisor == 0), None)
    return [divisor for divisor in (below, above) if divisor is not None]


def divisors(number: int) -> list[int]:
    """The divisors of `number`, ascending; of a number beyond 2^40 only those found by trying up to 2^20.

    Cost: O(√number), at most a million divisions.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [trial for trial in range(1, min(isqrt(number), _MOST_TRIALS) + 1) if number % trial == 0]
    return sorted({*small, *(number // trial for trial in small)})
