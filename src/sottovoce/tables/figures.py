"""Figures of one column with 95 % intervals, from noisy counts: mean, standard deviation, quantiles, differences.

All of this is post-processing. Intervals cover the noise and the drawing of the rows from a population; what is
estimated belongs to the population. In the unit of shares of a number's bounds, with T_j the count of bin j that begins
at k_j, V and W the two sums of places, B the number of rows with a value, and h the widest bin:

    sum of x      A = sum_j k_j T_j + h V           exactly
    sum of x^2    Q = sum_j k_j^2 T_j + 2 h W       exactly

    mean          A / B, by Fieller: all r with (A - r B)^2 <= z^2 var(A - r B)
    variance      Q / B - (A / B)^2, to first order in the noise and in the rows
    quantile q    from the ends of bins: all of which it cannot be said, at 2.5 % each, that fewer, or more, than the
                  share q of the rows lie below. A quantile within a bin is anywhere in it, so intervals end at ends of
                  bins, and cover 95 % or more
"""

from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from sottovoce.arrays import Floats, Ints
from sottovoce.tables.coding import Number
from sottovoce.tables.consistent import View
from sottovoce.tally.intervals import Interval, Z, ratio

QUARTILES = (0.25, 0.5, 0.75)
CLEAR = 2 * Z  # standard deviations: what is shown only if it is large must be larger, or it looks too large
HIDDEN = Interval(None, 0.0, 1.0)


@final
@dataclass(frozen=True, eq=False)
class Linear:
    """A figure to first order: its value, and what it takes from each noisy number.

    Args:
        value: of the figure; None where the noise hides it.
        of_cells: weights of the cells.
        of_places: weights of the two sums of places.
        sampling: variance from drawing the rows.
    """

    value: float | None
    of_cells: Floats
    of_places: tuple[float, float]
    sampling: float

    def noise(self, view: View, place_noise: float) -> float:
        """Variance from the noise."""
        return view.noise(self.of_cells, self.of_cells) + place_noise * sum(one**2 for one in self.of_places)


@final
@dataclass(frozen=True, eq=False)
class Measured:
    """What is known of a number in one group, or of all rows.

    Args:
        number: how it was coded.
        view: its cells.
        places: the noisy sums V and W, both times alpha.
        place_noise: variance of the noise in each of these.
    """

    number: Number
    view: View
    places: tuple[float, float]
    place_noise: float

    @property
    def _starts(self) -> Floats:
        """k_j of every cell; 0 of the one for missing values."""
        return np.array([*self.number.edges[:-1], *([0.0] * (self.number.cells - self.number.bins))])

    @property
    def _there(self) -> Floats:
        """1 for the bins, 0 for missing values."""
        return (np.arange(self.number.cells) < self.number.bins).astype(np.float64)

    @property
    def _sums(self) -> tuple[float, float, float]:
        """B, A and Q."""
        cells, h, starts = self.view.cells, self.number.widest, self._starts
        v, w = (one / self.number.alpha for one in self.places)
        return (
            float(self._there @ cells), float(starts @ cells) + h * v, float((starts**2) @ cells) + 2 * h * w,
        )  # fmt: skip

    @property
    def _per_place(self) -> float:
        """Variance of the noise in V or W."""
        return self.place_noise / self.number.alpha**2

    @property
    def _clear(self) -> bool:
        """True if the number of rows with a value is clear of the noise."""
        there = self._sums[0]
        return there > 0 and there**2 > Z**2 * self.view.noise(self._there, self._there)

    @property
    def _variance(self) -> float:
        """Of the number, as a share of its bounds squared; what the noise makes impossible is cut off."""
        there, total, squares = self._sums
        return min(max(squares / there - (total / there) ** 2, 0.0), 0.25)

    def mean(self) -> Interval:
        """The mean, in the unit of the column."""
        if not self._clear:
            return self._in_unit(HIDDEN)
        there, total, _ = self._sums
        a, b, h = self._starts, self._there, self.number.widest
        noise = self.view.noise(a, a) + h**2 * self._per_place
        spread = noise + self.view.together * there * self._variance, self.view.noise(a, b), self.view.noise(b, b)
        return self._in_unit(ratio(total, there, spread))

    def linear_mean(self) -> Linear:
        """The mean as a share of the bounds, to first order."""
        if not self._clear:
            return Linear(None, 0 * self._there, (0.0, 0.0), 0.0)
        there, total, _ = self._sums
        mean = total / there
        weights = (self._starts - mean * self._there) / there
        sampling = self.view.together * self._variance / there
        return Linear(mean, weights, (self.number.widest / there / self.number.alpha, 0.0), sampling)

    def linear_variance(self) -> Linear:
        """The variance as a share of the bounds squared, to first order."""
        if not self._clear:
            return Linear(None, 0 * self._there, (0.0, 0.0), 0.0)
        there, total, squares = self._sums
        k, h, mean = self._starts, self.number.widest, total / there
        value = squares / there - mean**2
        weights = self._there * (k**2 - 2 * mean * k + mean**2 - value) / there
        places = -2 * mean * h / there / self.number.alpha, 2 * h / there / self.number.alpha
        sampling = self.view.together * max(self._central(mean, 4) - self._variance**2, 0.0) / there
        return Linear(value, weights, places, sampling)

    @property
    def leaning(self) -> float:
        """Covariance of mean and variance from drawing the rows, as shares: the third moment over their number."""
        there, total, _ = self._sums
        return self.view.together * self._central(total / there, 3) / there

    def _central(self, mean: float, power: int) -> float:
        """A moment around the mean, from the middles of bins."""
        edges, likely = np.array(self.number.edges), np.maximum(self.view.cells[: self.number.bins], 0.0)
        return float(likely @ ((edges[:-1] + edges[1:]) / 2 - mean) ** power) / max(float(likely.sum()), 1.0)

    def spread(self) -> Interval:
        """The standard deviation, in the unit of the column, over one row less than there are."""
        found = self.linear_variance()
        low, high = self.number.column.bounds
        if found.value is None:
            return Interval(None, 0.0, (high - low) / 2)
        half = Z * sqrt(found.sampling + found.noise(self.view, self.place_noise))
        ends = (sqrt(min(max(found.value + side * half, 0.0), 0.25)) for side in (-1, 1))
        value = sqrt(min(found.value, 0.25)) if found.value > 0 else None
        there = self._sums[0]  # one of so many is used up by the mean
        return Interval(value, *ends).times((high - low) * sqrt(there / max(there - 1, 1.0)))

    def quantile(self, q: float, counts: Ints) -> Interval:
        """The q-quantile, in the unit of the column.

        Args:
            q: the share of rows below it.
            counts: of the bins, as they are shown. Within a bin, values are taken to lie evenly.
        """
        if not self._clear:
            return self._in_unit(HIDDEN)
        edges, bins = np.array(self.number.edges), self.number.bins
        low, high = 0, bins
        for up in range(1, bins):
            if self._below(up, q) >= -Z:
                break
            low = up
        for down in range(bins - 1, 0, -1):
            if self._below(down, q) <= Z:
                break
            high = down
        below = np.concatenate([[0], np.cumsum(counts[:bins])])
        value = None
        if below[-1] > 0 and (low > 0 or high < bins):  # else anything is possible
            wanted = q * below[-1]
            bin_ = min(int(np.searchsorted(below, wanted, side="left")), bins)
            start, end = below[bin_ - 1], below[bin_]
            inside = (wanted - start) / max(end - start, 1)
            value = float(edges[bin_ - 1] + inside * (edges[bin_] - edges[bin_ - 1]))
            value = min(max(value, float(edges[low])), float(edges[high]))
        return self._in_unit(Interval(value, float(edges[low]), float(edges[high])))

    def _below(self, edge: int, q: float) -> float:
        """By how many standard deviations more than the share q of the rows with a value are below that edge."""
        of = (np.arange(self.number.cells) < edge) - q * self._there
        there = max(self._sums[0], 0.0)
        variance = self.view.together * there * q * (1 - q) + self.view.noise(of, of)
        return float(of @ self.view.cells) / sqrt(max(variance, 1e-12))

    def _in_unit(self, one: Interval) -> Interval:
        low, high = self.number.column.bounds

        def of(share: float) -> float:
            return low + share * (high - low)

        return Interval(None if one.value is None else of(one.value), of(one.low), of(one.high))


# -- standardised differences -----------------------------------------------------------------------------------------


def difference(value: float, pooled: float, variance: float, pooled_noise: float) -> Interval:
    """A standardised difference; None, without bounds, where the spread that it is divided by drowns in noise.

    Args:
        value: the difference itself, over sqrt(pooled).
        pooled: the square of what it is divided by.
        variance: of `value`.
        pooled_noise: variance of `pooled`.
    """
    if pooled <= CLEAR * sqrt(pooled_noise) or not np.isfinite(value):
        return Interval(None, -np.inf, np.inf)
    half = Z * sqrt(variance)
    return Interval(value, value - half, value + half)


def level_difference(first: View, second: View, level: int, shared: float) -> Interval:
    """(p_2 - p_1) / sqrt((p_1 (1 - p_1) + p_2 (1 - p_2)) / 2) of the shares of one level in two groups.

    Args:
        first: the group that is compared with.
        second: the other.
        level: of the column.
        shared: covariance of the noise in two cells or sums of two groups, per unit of the product of weights' sums.
    """
    if not (first.clear and second.clear):
        return Interval(None, -np.inf, np.inf)
    shares, variances, weights = [], [], []
    for view in (first, second):
        p = float(view.cells[level]) / view.size
        own = (np.arange(len(view.cells)) == level) - p
        shares.append(p)
        kept = min(max(p, 0.0), 1.0)
        variances.append((view.together * view.size * kept * (1 - kept) + view.noise(own, own)) / view.size**2)
        weights.append(float(own.sum()) / view.size)
    p1, p2 = shares
    pooled = (p1 * (1 - p1) + p2 * (1 - p2)) / 2
    if pooled <= 0:
        return Interval(None, -np.inf, np.inf)
    d = (p2 - p1) / sqrt(pooled)
    slopes = [-1 / sqrt(pooled) - d * (1 - 2 * p1) / (4 * pooled), 1 / sqrt(pooled) - d * (1 - 2 * p2) / (4 * pooled)]
    between = 2 * slopes[0] * slopes[1] * shared * weights[0] * weights[1]
    variance = sum(slope**2 * own for slope, own in zip(slopes, variances, strict=True)) + between
    noise = sum(((1 - 2 * p) / 2) ** 2 * own for p, own in zip(shares, variances, strict=True))
    return difference(d, pooled, max(variance, 0.0), noise)


def number_difference(first: Measured, second: Measured, shared: float) -> Interval:
    """(mean_2 - mean_1) / sqrt((variance_1 + variance_2) / 2) of a number in two groups; `shared` as above."""
    both = [(one.linear_mean(), one.linear_variance()) for one in (first, second)]
    (m1, v1), (m2, v2) = both
    if m1.value is None or m2.value is None or v1.value is None or v2.value is None:
        return Interval(None, -np.inf, np.inf)
    pooled = (v1.value + v2.value) / 2
    if pooled <= 0:
        return Interval(None, -np.inf, np.inf)
    d = (m2.value - m1.value) / sqrt(pooled)
    slopes = [(-1 / sqrt(pooled), -d / (4 * pooled)), (1 / sqrt(pooled), -d / (4 * pooled))]
    variance, combined, spreads = 0.0, list[float](), list[float]()
    for one, (mean, spread), (by_mean, by_spread) in zip((first, second), both, slopes, strict=True):
        cells = by_mean * mean.of_cells + by_spread * spread.of_cells
        places = tuple(by_mean * a + by_spread * b for a, b in zip(mean.of_places, spread.of_places, strict=True))
        variance += one.view.noise(cells, cells) + one.place_noise * sum(place**2 for place in places)
        variance += by_mean**2 * mean.sampling + by_spread**2 * spread.sampling + 2 * by_mean * by_spread * one.leaning
        combined.append(float(cells.sum()))
        spreads.append(spread.sampling + spread.noise(one.view, one.place_noise))
    variance += 2 * shared * combined[0] * combined[1]
    return difference(d, pooled, max(variance, 0.0), sum(spreads) / 4)
