"""Tests on runs. Lower is better throughout: the numbers are risks, or changes of a risk, all positive.

Means are compared on a log scale: where noise dominates, risks are skewed and spread in proportion to their size. Where
risks are close to each other it makes no difference.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from scipy import stats

from sottovoce.arrays import Floats

_WORST = 1e12  # stands for infinity, which cannot be averaged

Side: TypeAlias = Literal["less", "greater"]
SIDES: tuple[Side, Side] = ("less", "greater")


class MeanInterval(NamedTuple):
    """A mean over runs, and its 95 % interval. Of a single run there is no interval."""

    mean: float
    low: float
    high: float


class Test(NamedTuple):
    """One-sided p-values for "smaller" and "larger", and the difference of means with its relative size.

    Args:
        p: that ours are smaller only by chance.
        p_reverse: that ours are larger only by chance.
        effect: mean of ours less mean of theirs: negative is better.
        relative: the same, over the mean of theirs.
    """

    p: float
    p_reverse: float
    effect: float
    relative: float


def interval(values: Floats) -> MeanInterval:
    """The mean and its 95 % interval, by Student's t over runs; NaN ends where there is one run, or one overflowed."""
    mean = float(np.mean(values))
    if len(values) < 2 or not np.isfinite(values).all():
        return MeanInterval(mean, math.nan, math.nan)
    half = float(stats.t.ppf(0.975, len(values) - 1)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return MeanInterval(mean, mean - half, mean + half)


def welch(ours: Floats, theirs: Floats) -> Test:
    """Welch's test of whether ours are smaller on average: two independent samples of unequal variance."""
    return _test(ours, theirs, lambda a, b, side: stats.ttest_ind(a, b, equal_var=False, alternative=side).pvalue)


def paired(ours: Floats, theirs: Floats) -> Test:
    """Paired t-test of whether ours are smaller, where run q of both was drawn with the same noise."""
    return _test(ours, theirs, lambda a, b, side: stats.ttest_rel(a, b, alternative=side).pvalue)


def falling(matrix: Floats) -> float:
    """p-value of a falling trend along the columns of (runs, conditions): Page's test, runs being matched blocks."""
    if len(matrix) < 2 or matrix.shape[1] < 3:
        return 1.0
    # The test looks for a rise, and reads only the order within a row.
    return float(stats.page_trend_test(-_finite(matrix)).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: the chance of any false alarm among all of these stays below the level."""
    order = np.argsort(p_values)
    corrected, largest = np.empty(len(p_values)), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = largest
    return [float(p) for p in corrected]


def unsteadiness(curve: Floats, late: int) -> Floats:
    """Mean absolute change of the risk per round over the last `late` rounds: (rounds, runs) -> (runs,)."""
    end = curve[-(late + 1) :]
    # A curve that overflowed no longer changes, but is not steady.
    lost = ~(end < _WORST).all(axis=0)
    changes: Floats = np.abs(np.diff(np.where(lost, 0.0, end), axis=0)).mean(axis=0)
    return np.where(lost, _WORST, changes)


def _test(ours: Floats, theirs: Floats, p_value: Callable[[Floats, Floats, Side], float]) -> Test:
    """Both p-values and the effect; `p_value` gives the one-sided p-value of two samples of logarithms."""
    ours, theirs = _finite(ours), _finite(theirs)
    effect = float(np.mean(ours) - np.mean(theirs))
    relative = effect / float(np.mean(theirs)) if np.mean(theirs) else 0.0
    if len(ours) < 2 or len(theirs) < 2:
        return Test(1.0, 1.0, effect, relative)  # a single run says nothing about chance
    if np.ptp(ours) == 0 and np.ptp(theirs) == 0:
        # No spread at all: the difference is certain, whichever way it goes.
        return Test(float(effect >= 0), float(effect <= 0), effect, relative)
    # A risk of 0, which only a broken run has, counts as 1e-300.
    a, b = (np.log(np.maximum(sample, 1e-300)) for sample in (ours, theirs))
    with warnings.catch_warnings():
        # Runs that overflowed are all capped at the same number, which scipy warns of.
        warnings.filterwarnings("ignore", "Precision loss occurred", RuntimeWarning)
        p, reverse = (float(np.nan_to_num(p_value(a, b, side), nan=1.0)) for side in SIDES)
    return Test(p, reverse, effect, relative)


def _finite(values: Floats) -> Floats:
    """The values with overflows replaced by a very large number, which can be ranked and averaged."""
    capped: Floats = np.minimum(np.nan_to_num(values, nan=_WORST, posinf=_WORST), _WORST)
    return capped
