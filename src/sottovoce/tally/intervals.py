"""95 % intervals from noisy counts, for the randomness of the rows and that of the noise.

All of this is post-processing: it sees noisy counts and public numbers, and no row. Rows are taken for N independent
draws from a population; what is estimated belongs to the population, not to these rows.

With c the noisy counts of D cells, shifted alike so that they add up to the public N, and s the noise of each,

    noise     cov(<a, c>, <b, c>) = s^2 (<a, b> - sum a sum b / D)
    sampling  cov(<a, c>, <b, c>) = sum a b q - sum a q sum b q / N,      q the nearest counts >= 0 that add up to N

A share A/B is all r with (A - r B)^2 <= z^2 var(A - r B), as Fieller has it, its sampling part taken at r: without
noise that is Wilson's interval. Where B may be nothing but noise, it is [0, 1], and there is no estimate.
"""

from dataclasses import dataclass
from math import sqrt
from typing import final

import numpy as np

from sottovoce.arrays import Floats

Z = 1.959963984540054  # 97.5 % of a normal law lie below
_DRAWS = 600  # of a parametric bootstrap


@final
@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % interval. The estimate is None if the noise hides it."""

    value: float | None
    low: float
    high: float

    def times(self, factor: float) -> "Interval":
        """The interval in another unit: every number times `factor`, which is positive."""
        return Interval(None if self.value is None else factor * self.value, factor * self.low, factor * self.high)


def nearest_counts(noisy: Floats, total: float) -> Floats:
    """The counts >= 0 with this total that are nearest to the noisy ones, along the last axis: the noisy ones less one
    number, cut at 0.
    """
    falling = np.sort(noisy, axis=-1)[..., ::-1]
    level = (np.cumsum(falling, axis=-1) - total) / np.arange(1, noisy.shape[-1] + 1)
    last = np.maximum((falling > level).sum(axis=-1, keepdims=True), 1) - 1  # for a total of 0 the largest alone
    kept: Floats = np.maximum(noisy - np.take_along_axis(level, last, axis=-1), 0.0)
    return kept


@final
class ScoreCells:
    """Noisy counts of cells, with every row in exactly one of them.

    Args:
        noisy: (D,), as released.
        std: of the noise in each.
        rows: N, which all counts without noise add up to.
    """

    def __init__(self, noisy: Floats, std: float, rows: int) -> None:
        self.size, self.std, self.rows = len(noisy), std, rows
        self.counts: Floats = noisy - (noisy.sum() - rows) / self.size
        self.likely = nearest_counts(self.counts, rows)

    def noise(self, a: Floats, b: Floats) -> float:
        """Covariance of the weighted sums <a, c> and <b, c> that is due to the noise."""
        return float(self.std**2 * (a @ b - a.sum() * b.sum() / self.size))

    def sampling(self, a: Floats, b: Floats) -> float:
        """Covariance of the weighted sums <a, c> and <b, c> that is due to the draw of the rows."""
        return float((a * b) @ self.likely - (a @ self.likely) * (b @ self.likely) / self.rows)

    def share(self, part: Floats, whole: Floats) -> Interval:
        """Share of the rows of the cells `whole` that are in the cells `part`. Both are weights 0 and 1, (D,)."""
        spread = self.noise(part, part), self.noise(part, whole), self.noise(whole, whole)
        return share(float(part @ self.counts), float(whole @ self.counts), spread)

    def expected(self, part: Floats) -> Interval:
        """Number of the N rows that are in these cells."""
        return self.share(part, np.ones(self.size)).times(float(self.rows))

    def resampled(self) -> Floats:
        """Likely counts of other rows with other noise, by a bootstrap from the likely counts: (draws, D)."""
        # Nothing private is drawn here, so the draws may be known; the same histogram gives the same interval.
        random = np.random.default_rng(1)
        counts = random.multinomial(self.rows, self.likely / self.likely.sum(), size=_DRAWS)
        noisy = counts + self.std * random.standard_normal((_DRAWS, self.size))
        return nearest_counts(noisy - (noisy.sum(axis=1, keepdims=True) - self.rows) / self.size, self.rows)


def share(part: float, whole: float, noise: tuple[float, float, float], together: int = 1) -> Interval:
    """The share part / whole of a population, from noisy counts.

    Args:
        part: a count.
        whole: the count that it is a part of.
        noise: var(part), cov(part, whole) and var(whole) of the noise.
        together: how many rows may be alike since they belong together: the sampling part is so many times as large.
    """
    pp, pw, ww = noise
    found = min(max(part, 0.0), max(whole, 0.0))
    many, z2 = together * max(whole, 0.0), Z * Z
    square, middle = whole * whole + z2 * (many - ww), 2 * found * whole + z2 * (many - 2 * pw)
    low, high = _between(square, middle, found * found - z2 * pp, whole > 0)
    return Interval(found / whole if whole > 0 and (low, high) != (0.0, 1.0) else None, low, high)


def _between(square: float, middle: float, rest: float, found: bool) -> tuple[float, float]:
    """The r within [0, 1] with square r^2 - middle r + rest <= 0; all of them where the noise bounds nothing."""
    root = middle * middle - 4 * square * rest
    if not found or square <= 0 or root < 0:
        return 0.0, 1.0
    low, high = ((middle + side * sqrt(root)) / (2 * square) for side in (-1, 1))
    return min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)


def ratio(top: float, bottom: float, spread: tuple[float, float, float]) -> Interval:
    """top / bottom within [0, 1] by Fieller, with var(top), cov(top, bottom) and var(bottom)."""
    tt, tb, bb = spread
    z2, clear = Z * Z, bottom > 0
    low, high = _between(bottom**2 - z2 * bb, 2 * (top * bottom - z2 * tb), top**2 - z2 * tt, clear)
    value = min(max(top / bottom, 0.0), 1.0) if clear and (low, high) != (0.0, 1.0) else None
    return Interval(value, low, high)


def mean(total: float, variance: float, noise: float, rows: int) -> Interval:
    """Mean of numbers within [0, 1], from their noisy sum, the variance of each, and the noise in the sum."""
    value, width = total / rows, Z * sqrt(max(variance, 0.0) / rows + (noise / rows) ** 2)
    low, high = max(value - width, 0.0), min(value + width, 1.0)
    return Interval(min(max(value, 0.0), 1.0), min(low, 1.0), max(high, 0.0))
