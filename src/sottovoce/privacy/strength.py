"""How strong a guarantee must be to mean anything: a delta for so many rows, and what is doubted or refused.

The number of rows is public. Nothing here looks at a row.
"""

from math import floor, isfinite, log10

LARGEST_DELTA = 0.01  # from here on one row in a hundred may be published as it is
LARGEST_EPSILON = 20.0  # e^20: a conclusion may become half a thousand million times as probable
_PAPER = 1e-5
_MARGIN = 100  # a default delta is so many times smaller than one in the number of rows


def default_delta(rows: int) -> float:
    """For so many rows in all: the paper's 1e-5, and never more than 1 / (100 rows). One digit, rounded down."""
    most = 1 / (_MARGIN * rows)
    if most >= _PAPER:
        return _PAPER
    power = floor(log10(most))
    digit = max(1, floor(most / 10.0**power * (1 + 1e-12)))
    return float(f"{digit}e{power}")


def too_weak(epsilon: float, delta: float) -> str | None:
    """Why a guarantee like this is none, with what to do; None if it is one."""
    if delta > LARGEST_DELTA:
        return (
            f"Expected delta <= {LARGEST_DELTA:g} for private rows, got delta={delta:g}: with that chance the "
            "guarantee may fail altogether. Choose one far below 1 / rows, or leave it out."
        )
    if epsilon > LARGEST_EPSILON:
        came = f"{epsilon:g}"
        return (
            f"Expected epsilon <= {LARGEST_EPSILON:g} for private rows, got epsilon={came}: that protects next to "
            "nothing. Choose a smaller one; 1 is usual, 10 is a lot."
        )
    return None


def doubts(delta: float, rows: int) -> str | None:
    """What to say of a delta that is large for so many rows; None if it is not."""
    if not isfinite(delta) or delta <= 1 / rows:
        return None
    return (
        f"delta={delta:g} is more than 1 in {rows:,}, the number of rows: a guarantee like that would allow to publish "
        f"a row as it is. Leave delta out, which gives {default_delta(rows):g} here."
    )
