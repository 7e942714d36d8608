"""Numbers as people read them. What is promised, spent or left is never rounded to the better side."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal


def exactly(value: float) -> str:
    """The shortest text that reads back as the same number, without a trailing .0."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def up(value: float) -> str:
    """Six significant digits, never rounded down: neither a cost nor a needed noise may be understated."""
    return _round(value, ROUND_CEILING)


def down(value: float) -> str:
    """Six significant digits, never rounded up: what is left may not be overstated."""
    return _round(value, ROUND_FLOOR)


def _round(value: float, direction: str) -> str:
    if not math.isfinite(value):
        return str(value)
    # Of the shortest text that reads back as the value: 0.1 is 0.1, though its bits are a little more.
    return f"{float(Context(prec=6, rounding=direction).create_decimal(Decimal(repr(float(value))))):g}"


def duration(seconds: float) -> str:
    """Seconds as hours, minutes and seconds: 1:02:05."""
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def counted(number: int, what: str) -> str:
    """A number with its noun, plural with s unless it is 1: 1 round, 2 rounds."""
    return f"{number} {what}{'' if number == 1 else 's'}"
