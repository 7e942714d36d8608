"""Losses, and the labels that each takes.

A loss is a set of formulas and two bounds. The noise of every private algorithm is calibrated to `slope_bound`, so a
wrong bound breaks the guarantee.
"""

from sottovoce import settings
from sottovoce.problem.losses.base import Loss, expect_one_output
from sottovoce.problem.losses.hazards import PiecewiseExponential
from sottovoce.problem.losses.labels import Classes, Counts, LabelSet, Reals, Signs, Times
from sottovoce.problem.losses.scalar import (
    Absolute,
    Hinge,
    Huber,
    Logistic,
    Poisson,
    Quantile,
    SmoothedHinge,
    SmoothedQuantile,
    WeightedLogistic,
)
from sottovoce.problem.losses.softmax import Softmax

_SCALAR: tuple[type[Loss], ...] = (Logistic, Hinge, SmoothedHinge, Absolute, Huber, Quantile, SmoothedQuantile)
_ALL: tuple[type[Loss], ...] = (*_SCALAR, Softmax, WeightedLogistic, Poisson, PiecewiseExponential)
_BY_NAME: dict[str, type[Loss]] = {loss.name: loss for loss in _ALL}
# The losses of one prediction per row that need no more than their name: softmax needs a number of classes, a weighted
# loss a weight, Poisson a label that counts, and the piecewise exponential one a number of intervals.
NAMES: tuple[str, ...] = tuple(loss.name for loss in _SCALAR)
settings.tagged(Loss, "name", _BY_NAME)  # in files: { name = "huber", threshold = 1.0 }


def by_name(name: str, **shape: float) -> Loss:
    """The loss of that name; `shape` sets its parameter, as in `by_name("huber", threshold=2.0)` or
    `by_name("softmax", classes=3)`.
    """
    return settings.read(Loss, {"name": name, **shape}, f"options of {name}")  # type: ignore[type-abstract]


__all__ = [
    "NAMES",
    "Absolute",
    "Classes",
    "Counts",
    "Hinge",
    "Huber",
    "LabelSet",
    "Logistic",
    "Loss",
    "PiecewiseExponential",
    "Poisson",
    "Quantile",
    "Reals",
    "Signs",
    "SmoothedHinge",
    "SmoothedQuantile",
    "Softmax",
    "Times",
    "WeightedLogistic",
    "by_name",
    "expect_one_output",
]
