"""The strength of a guarantee: a default delta for so many rows, and targets that are doubted or refused.

The number of rows is public. Nothing here looks at a row.
"""

from math import floor, log10
from typing import NamedTuple

LARGEST_DELTA = 0.01  # from here on one row in a hundred may be published as it is
LARGEST_EPSILON = 20.0  # e^20: a conclusion may become half a thousand million times as probable
_PAPER = 1e-5
_MARGIN = 100  # a default delta is so many times smaller than one in the number of rows


def default_delta(rows: int) -> float:
    """Delta for so many rows in all: the paper's 1e-5, and never more than 1 / (100 rows). One digit, rounded down."""
    most = 1 / (_MARGIN * rows)
    if most >= _PAPER:
        return _PAPER
    power = floor(log10(most))
    digit = max(1, floor(most / 10.0**power * (1 + 1e-12)))
    return float(f"{digit}e{power}")


class Doubt(NamedTuple):
    """A doubt about a guarantee: a note for readers of the statement, and advice for whoever set the target."""

    note: str
    advice: str

    def __str__(self) -> str:
        return f"{self.note} {self.advice}"


def no_delta(delta: float) -> Doubt | None:
    """The doubt about a delta that is too large for any number of rows; None if it is not.

    A delta of 1 or more is refused by the algorithms.
    """
    if not LARGEST_DELTA < delta < 1:
        return None
    return Doubt(
        f"delta={delta:g} is above {LARGEST_DELTA:g}: with that chance the guarantee may fail altogether.",
        "Choose one far below 1 / rows, or leave it out.",
    )


def no_epsilon(epsilon: float) -> Doubt | None:
    """The doubt about an epsilon that is too large to protect anything; None if it is not."""
    if not epsilon > LARGEST_EPSILON:
        return None
    return Doubt(
        f"epsilon={epsilon:g} is above {LARGEST_EPSILON:g}: that protects next to nothing.",
        "Choose a smaller one; 1 is usual, 10 is a lot.",
    )


def large_delta(delta: float, rows: int) -> Doubt | None:
    """The doubt about a delta that is too large for so many rows; None if it is not."""
    if not 1 / rows < delta < 1:
        return None
    return Doubt(
        f"delta={delta:g} is more than 1 in {rows:,}, the number of rows: such a guarantee would allow "
        "publishing a row as it is.",
        f"Leave delta out, which gives {default_delta(rows):g} here.",
    )


def refusal(doubt: Doubt) -> str:
    """The text of the error that refuses a target for this doubt."""
    return f"Expected a guarantee that protects private rows, got {doubt.note} {doubt.advice}"
