"""Losses of one prediction per row: scalar functions of z = <w, a> and the label b.

The formulas are static methods of plain numbers, `f(z, b, theta)`, where theta is the loss's one shape
parameter. They keep to ufuncs and arithmetic, so the same lines work on NumPy arrays and, compiled with
`numba.njit`, on scalars. None of them branches, and none overflows for |z| up to 1e6.

    margin losses      m = b z, labels -1 and +1
    residual losses    r = z - b, labels are finite numbers
    Poisson            z is the logarithm of the mean, labels are counts
"""

# ruff: noqa: ARG004 (every formula has the same three arguments, so that a kernel can call any of them)

from dataclasses import dataclass
from math import isfinite, log
from typing import final

import numpy as np

from sottovoce.arrays import Array, Floats
from sottovoce.errors import InputError, expect
from sottovoce.problem.losses.base import BESIDE, Loss
from sottovoce.problem.losses.labels import Counts, Reals, Signs

LEAST_WEIGHT = 1e-6  # of a class relative to the other
LEAST_COUNT, MOST_COUNT = 1.0, 1e6  # bounds on `Poisson.most`
_CELLS = 4096  # cells of the grid on which `Logistic.spread` bounds its maximum


def _check_positive(**shape: float) -> None:
    """Refuse a shape parameter that is not a finite number > 0."""
    (value,) = shape.values()
    expect(isfinite(value) and value > 0, "a finite number > 0", **shape)


@final
@dataclass(frozen=True)
class Logistic(Loss):
    """ln(1 + exp(-m)). Its slope is at most 1, its curvature at most 1/4, at m = 0."""

    name = "logistic"
    labels = Signs()
    theta = 0.0
    slope_bound = 1.0
    smoothness_bound = 0.25

    def spread(self, reach: Floats) -> Floats:
        """max over c in [0, 1] of sqrt(1 + x^2 + 2 x (1 - 2 c^2)), x = tanh(reach c / 2): from 1 at reach 0 up to 2.

        Proved in docs/proofs/masked.md, Lemma 2. The maximum is bounded from above, cell by cell: x grows with c.
        """
        c = np.linspace(0.0, 1.0, _CELLS + 1)
        x = np.tanh(np.asarray(reach, dtype=np.float64)[..., None] * c[1:] / 2) * (1 + 1e-15)
        most = np.max(x * (x + 2 - 4 * c[:-1] ** 2), axis=-1)
        spread: Floats = np.minimum(np.sqrt(1 + np.maximum(most, 0.0)) * (1 + 1e-12), 2.0)
        return spread

    def steepness(self, reach: Floats) -> Floats:
        """sigma sqrt(1 + 16 BESIDE^2 (1 - sigma)^2) with sigma = 1 / (1 + exp(-reach)): from 0.87 at reach 0 up to 1.

        It grows with sigma, since 16 BESIDE^2 <= 8: docs/proofs/inference.md, Lemma 4.
        """
        sigma = 1 / (1 + np.exp(-np.asarray(reach, dtype=np.float64)))
        steepness: Floats = np.minimum(sigma * np.sqrt(1 + 16 * BESIDE**2 * (1 - sigma) ** 2) * (1 + 1e-12), 1.0)
        return steepness

    @staticmethod
    def value(z: Array, b: Array, theta: float) -> Array:
        """ln(1 + exp(-m)), with the large part taken out of the exponential."""
        m = b * z
        e: Array = np.exp(-np.abs(m))
        return np.maximum(-m, 0.0) + np.log1p(e)

    @staticmethod
    def parts(z: Array, b: Array, theta: float) -> tuple[Array, Array]:
        """max(-m, 0) and 1 + exp(-|m|)."""
        m = b * z
        return np.maximum(-m, 0.0), 1 + np.exp(-np.abs(m))

    @staticmethod
    def slope(z: Array, b: Array, theta: float) -> Array:
        """-b / (1 + exp(m)); the numerator is 1 for m < 0 and exp(-m) otherwise, so nothing overflows."""
        m = b * z
        e: Array = np.exp(-np.abs(m))
        return -b * (e + (m < 0) * (1 - e)) / (1 + e)

    @staticmethod
    def curvature(z: Array, b: Array, theta: float) -> Array:
        """exp(m) / (1 + exp(m))^2, which is even in m."""
        e: Array = np.exp(-np.abs(b * z))
        return e / ((1 + e) * (1 + e))


@final
@dataclass(frozen=True)
class WeightedLogistic(Loss):
    """The logistic loss where rows with the label +1 count `weight` times, for a rare class.

    The weight is public. It may come from a rate that is known without these rows, never from counting them. The model
    predicts +1 where `weight` times the chance of +1 is more than that of -1. Its log-odds are larger by `tilt` than
    those of equal weights, so probabilities are computed from z - tilt.

    Args:
        weight: the number of rows with the label -1 that one with +1 counts for. Above 1, the noise grows with it.
    """

    name = "weighted-logistic"
    labels = Signs()
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not (isfinite(self.weight) and LEAST_WEIGHT <= self.weight <= 1 / LEAST_WEIGHT):
            raise InputError(
                f"Expected a weight of a class from {LEAST_WEIGHT:g} to {1 / LEAST_WEIGHT:g}, relative to the other, "
                f"got weight={self.weight!r}. Give a public number > 0, such as (1 - rate) / rate of a known rate."
            )

    @property
    def theta(self) -> float:
        return self.weight

    @property
    def slope_bound(self) -> float:
        """The larger of the two weights."""
        return max(1.0, self.weight)

    @property
    def smoothness_bound(self) -> float:
        """A quarter of `slope_bound`, as in the logistic loss."""
        return self.slope_bound / 4

    @property
    def tilt(self) -> float:
        """ln(weight), by which the weight moves the log-odds."""
        return log(self.weight)

    def spread(self, reach: Floats) -> Floats:
        """The logistic loss's spread times `slope_bound` (docs/proofs/masked.md, Lemma 3)."""
        return self.slope_bound * Logistic().spread(reach)

    @staticmethod
    def value(z: Array, b: Array, theta: float) -> Array:
        """The logistic loss, times 1 for b = -1 and times the weight for b = 1. The factor is linear in b."""
        m = b * z
        e: Array = np.exp(-np.abs(m))
        found: Array = ((theta + 1) / 2 + (theta - 1) / 2 * b) * (np.maximum(-m, 0.0) + np.log1p(e))
        return found

    @staticmethod
    def slope(z: Array, b: Array, theta: float) -> Array:
        """The logistic slope, times the same factor as in `value`."""
        m = b * z
        e: Array = np.exp(-np.abs(m))
        return -b * ((theta + 1) / 2 + (theta - 1) / 2 * b) * (e + (m < 0) * (1 - e)) / (1 + e)

    @staticmethod
    def curvature(z: Array, b: Array, theta: float) -> Array:
        """The logistic curvature, times the same factor as in `value`."""
        e: Array = np.exp(-np.abs(b * z))
        return ((theta + 1) / 2 + (theta - 1) / 2 * b) * e / ((1 + e) * (1 + e))


@dataclass(frozen=True)
class _Kinked(Loss):
    """A piecewise linear loss: its slope jumps, so it is not smooth."""

    smoothness_bound = None

    @staticmethod
    def curvature(z: Array, b: Array, theta: float) -> Array:
        """0 between the kinks."""
        return 0.0 * z


@final
@dataclass(frozen=True)
class Hinge(_Kinked):
    """max(1 - m, 0). Its slope is -b or 0, and jumps at m = 1."""

    name = "hinge"
    labels = Signs()
    theta = 0.0
    slope_bound = 1.0

    @staticmethod
    def value(z: Array, b: Array, theta: float) -> Array:
        return np.maximum(1 - b * z, 0.0)

    @staticmethod
    def slope(z: Array, b: Array, theta: float) -> Array:
        """-b below the margin, 0 from m = 1 on."""
        return -b * (b * z < 1)


@final
@dataclass(frozen=True)
class SmoothedHinge(Loss):
    """The hinge with its kink rounded off. With h = 1 - m: 0, then h^2 / (2 width), then h - width / 2.

    Args:
        width: of the parabola, in margin. The curvature is 1 / width there.
    """

    name = "smoothed-hinge"
    labels = Signs()
    slope_bound = 1.0
    width: float = 0.5

    def __post_init__(self) -> None:
        _check_positive(width=self.width)

    @property
    def theta(self) -> float:
        return self.width

    @property
    def smoothness_bound(self) -> float:
        return 1 / self.width

    @staticmethod
    def value(z: Array, b: Array, theta: float) -> Array:
        """All three pieces at once: with c = h clipped to [0, width], c (h - c / 2) / width."""
        h = 1 - b * z
        c = np.minimum(np.maximum(h, 0.0), theta)
        return c * (h - c / 2) / theta

    @staticmethod
    def slope(z: Array, b: Array, theta: float) -> Array:
        """-b c / width."""
        return -b * np.minimum(np.maximum(1 - b * z, 0.0), theta) / theta

    @staticmethod
    def curvature(z: Array, b: Array, theta: float) -> Array:
        """1 / width inside the parabola."""
        h = 1 - b * z
        return b * b * ((h > 0) & (h < theta)) / theta


@final
@dataclass(frozen=True)
class Absolute(_Kinked):
    """|r|, whose minimiser is a median. Its slope is the sign of r, and jumps at 0."""

    name = "absolute"
    labels = Reals()
    theta = 0.0
    slope_bound = 1.0

    @staticmethod
    def value(z: Array, b: Array, theta: float) -> Array:
        return np.abs(z - b)

    @staticmethod
    def slope(z: Array, b: Array, theta: float) -> Array:
        """The sign of r, 0 at 0."""
        return np.sign(z - b)


@final
@dataclass(frozen=True)
class Huber(Loss):
    """r^2 / 2 up to |r| = threshold, from there on threshold (|r| - threshold / 2).

    Args:
        threshold: in units of the label. It is also the bound on the slope, so the noise grows with it.
    """

    name = "huber"
    labels = Reals()
    smoothness_bound = 1.0
    fully_curved = True
    threshold: float = 1.0

    def __post_init__(self) -> None:
        _check_positive(threshold=self.threshold)

    @property
    def theta(self) -> float:
        return self.threshold

    @property
    def slope_bound(self) -> float:
        return self.threshold

    @staticmethod
    def value(z: Array, b: Array, theta: float) -> Array:
        """Both pieces at once: with c = min(|r|, threshold), c (|r| - c / 2)."""
        r = np.abs(z - b)
        c = np.minimum(r, theta)
        return c * (r - c / 2)

    @staticmethod
    def slope(z: Array, b: Array, theta: float) -> Array:
        """The residual clipped to [-threshold, threshold]."""
        return np.minimum(np.maximum(z - b, -theta), theta)

    @staticmethod
    def curvature(z: Array, b: Array, theta: float) -> Array:
        """1 inside the threshold; computed from a sign, which keeps single precision."""
        return np.maximum(np.sign(theta - np.abs(z - b)), 0.0)


@dataclass(frozen=True)
class _Pinball(Loss):
    """Common base of the two quantile losses: the level, and the bound on the slope."""

    labels = Reals()
    level: float = 0.5

    def __post_init__(self) -> None:
        expect(0 < self.level < 1, "0 < level < 1", level=self.level)

    @property
    def theta(self) -> float:
        return self.level

    @property
    def slope_bound(self) -> float:
        """The steeper of the two sides."""
        return max(self.level, 1 - self.level)


@final
@dataclass(frozen=True)
class Quantile(_Pinball, _Kinked):
    """The pinball loss, whose minimiser is the `level` quantile: level max(-r, 0) + (1 - level) max(r, 0).

    Args:
        level: strictly between 0 and 1; 1/2 is half of `Absolute`.
    """

    name = "quantile"

    @staticmethod
    def value(z: Array, b: Array, theta: float) -> Array:
        """The larger of the two lines."""
        r = z - b
        return np.maximum(-theta * r, (1 - theta) * r)

    @staticmethod
    def slope(z: Array, b: Array, theta: float) -> Array:
        """-level for r < 0, 1 - level for r > 0, the middle of the two at 0."""
        return (np.sign(z - b) + 1) / 2 - theta


@final
@dataclass(frozen=True)
class SmoothedQuantile(_Pinball):
    """`Quantile` averaged over shifts of the label by up to 1/10: its slope rises from -level to 1 - level, evenly,
    between r = -1/10 and 1/10, and is the same beyond.

    The width is fixed, since kernels take one shape parameter: a tenth of half the range of labels that were scaled to
    -1..1, as estimators and schemas do. Its minimiser is the quantile of labels with as much even noise.

    Args:
        level: strictly between 0 and 1.
    """

    name = "smoothed-quantile"
    smoothness_bound = 5.0

    @staticmethod
    def value(z: Array, b: Array, theta: float) -> Array:
        """All three pieces at once: with c = r clipped to +-1/10, 5/2 (c + 1/10)^2 + max(r - 1/10, 0) - level r."""
        r = z - b
        c = np.minimum(np.maximum(r, -0.1), 0.1) + 0.1
        return 2.5 * c * c + np.maximum(r - 0.1, 0.0) - theta * r

    @staticmethod
    def slope(z: Array, b: Array, theta: float) -> Array:
        """From -level to 1 - level; clipped before it is multiplied, so that nothing overflows."""
        return 5 * np.minimum(np.maximum(z - b, -0.1), 0.1) + 0.5 - theta

    @staticmethod
    def curvature(z: Array, b: Array, theta: float) -> Array:
        """5 where the slope rises."""
        return 5 * np.maximum(np.sign(0.1 - np.abs(z - b)), 0.0)


@final
@dataclass(frozen=True)
class Poisson(Loss):
    """exp(z) - b z, the negative log-likelihood of a count b whose mean is exp(z); both are clipped to `most`.

    Counts above `most` are clipped to `most`, negative ones to 0. Where exp(z) > `most`, the exponential is replaced by
    its tangent, so that the loss stays convex, and the mean is `most`. So the loss is the likelihood itself wherever
    the mean of a row is at most `most`, and no mean of clipped counts is larger.

    Args:
        most: Y, the largest count. It is also the bound on slope and curvature. 1 if counts are divided by the largest
            before they are learnt, as estimators and schemas do: b = y / Y, and exp(z) is the mean over Y.

    Formal guarantees: the bounds hold for every label, also one that was never clipped: docs/proofs/poisson.md.
    """

    name = "poisson"
    most: float = 1.0

    def __post_init__(self) -> None:
        if not (isfinite(self.most) and LEAST_COUNT <= self.most <= MOST_COUNT):
            raise InputError(
                f"Expected the largest count, from {LEAST_COUNT:g} to {MOST_COUNT:g}, got most={self.most!r}. Give a "
                "public number; larger counts are clipped to it."
            )

    @property
    def labels(self) -> Counts:
        """Counts up to `most`, the bound on the predicted mean."""
        return Counts(self.most)

    @property
    def theta(self) -> float:
        return self.most

    @property
    def slope_bound(self) -> float:
        """The largest count, since mean and count are in [0, most]."""
        return self.most

    @property
    def smoothness_bound(self) -> float:
        """The largest count: the curvature is the mean, or 0 where the mean is clipped."""
        return self.most

    @staticmethod
    def value(z: Array, b: Array, theta: float) -> Array:
        """exp(z), up to most, and from there on most (1 + z - ln(most)), less c z, c the clipped count."""
        c = np.minimum(np.maximum(b, 0.0), theta)
        mean = np.minimum(np.exp(np.minimum(z, 30.0)), theta)
        loss: Array = mean + theta * np.maximum(z - log(theta), 0.0) - c * z
        return loss

    @staticmethod
    def slope(z: Array, b: Array, theta: float) -> Array:
        """Mean minus count, both clipped; z is cut at 30, beyond ln(most), so nothing overflows."""
        mean: Array = np.minimum(np.exp(np.minimum(z, 30.0)), theta)
        return mean - np.minimum(np.maximum(b, 0.0), theta)

    @staticmethod
    def curvature(z: Array, b: Array, theta: float) -> Array:
        """The mean where it is not clipped, else 0."""
        e: Array = np.exp(np.minimum(z, 30.0))
        return e * (e < theta)
