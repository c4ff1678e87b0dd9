"""Numbers as people read them."""

from __future__ import annotations


def time_of(seconds: float) -> str:
    """Seconds with two digits and a unit."""
    unit, size = next(((unit, size) for unit, size in (("s", 1.0), ("ms", 1e-3)) if seconds >= size), ("µs", 1e-6))
    number = seconds / size
    return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"


def multiple_of(ratio: float) -> str:
    """A ratio with two or three digits: more would be noise."""
    if ratio < 100:
        return f"{ratio:.1f}×"
    digits = len(str(int(ratio)))
    return f"{round(ratio, -max(0, digits - 3)):,.0f}×"
