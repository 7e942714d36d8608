"""Round numbers near given ones: 1, 2 or 5 times a power of ten."""

from decimal import Decimal
from math import ceil, floor, isfinite, log10

SMALLEST, LARGEST = 1e-300, 1e300  # beyond these a range or a step may not be a number any more
_PARTS = 20  # bounds move by less than one part in so many of the range


def bounds_around(low: float, high: float) -> tuple[float, float] | None:
    """Round bounds that hold both; None if the numbers are too large for that."""
    if not (isfinite(low) and isfinite(high)) or max(abs(low), abs(high)) > LARGEST:
        return None
    spread = high - low or max(abs(low), 1.0)
    # A range that is tiny beside its numbers has no round numbers within a float's digits.
    step = _round_step(max(spread / _PARTS, max(abs(low), abs(high)) * 1e-12, SMALLEST))
    first, last = floor(Decimal(low) / step), ceil(Decimal(high) / step)
    return min(float(first * step), low), max(float(max(last, first + 1) * step), high)


def edges_between(low: float, high: float, bins: int) -> tuple[float, ...]:
    """Round edges strictly between two bounds, that make about this many bins."""
    step = _round_step((high - low) / bins)
    first, last = floor(Decimal(low) / step), ceil(Decimal(high) / step)
    edges = sorted({float(k * step) for k in range(first, last + 1)})
    return tuple(edge for edge in edges if low < edge < high) or (high,)


def _round_step(size: float) -> Decimal:
    """The nearest of 1, 2, 5 times a power of ten, by ratio."""
    ten = floor(log10(size))
    candidates = [(digit, ten + shift) for shift in (0, 1) for digit in (1, 2, 5)]
    digit, power = min(candidates, key=lambda pair: abs(log10(pair[0]) + pair[1] - log10(size)))
    return Decimal(digit).scaleb(power)
