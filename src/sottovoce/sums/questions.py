"""The questions that tables, models, standard errors and least squares are made of.

| question | sum over all rows of | L2 sensitivity |
| --- | --- | --- |
| `Totals` | a, its negative numbers as 0 | sqrt(2) B |
| `Moments` | a a^T, its half | sqrt(2) B^2 |
| `DiagonalMoments` | its diagonal | sqrt(2) B^2 |
| `StartMoments` | a a^T, the gradient at 0 and a, weighed | 2.21 with the logistic loss, else 2.43; in units of B |
| `Gradient` | the gradient of the loss at w | at most 2 c1, less where w is small |
| `WhitenedGradient` | the same in whitened coordinates | as for rows of length c |
| `WhitenedHessian` | the Hessian in whitened coordinates, its half | sqrt(2) L c^2 |
| `WhitenedCountHessian` | the same, and two numbers on the variation of counts | 1.5 L c^2 |
| `FocusedGradient` | the gradient along a few directions, and their part of the Hessian | at most 2 `Loss.steepness` |
| `ResidualMoments` | (t, c e) (t, c e)^T for rows t in whitened coordinates and residuals e, its half | 2 sqrt(2) c^2 |

Each sum and its sensitivity lie side by side in `RowSums` or `LossSums`; docs/proofs/masked.md,
docs/proofs/inference.md and docs/proofs/tables.md prove them. For a person, sensitivities are as many times larger as a
person has rows.
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Self, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.oracle.loss_sums import weights_of
from sottovoce.oracle.plain import Oracle
from sottovoce.oracle.row_sums import RowSums
from sottovoce.oracle.whitening import Whitening
from sottovoce.sums.program import AtPoint, Question

# Sums are bounded by rows times what one adds. A little more, since that is computed in floating point.
_SLACK = 1 + 1e-6


@final
@dataclass(frozen=True, eq=False)
class Totals(Question[RowSums]):
    """The sum of the rows themselves, none of whose numbers is negative: counts, of rows that are coded as 0 and 1."""

    def of(self, site: RowSums, rows: int) -> Floats:  # noqa: ARG002
        return site.totals()[:, None]

    def sensitivity(self, site: RowSums, rows: int) -> Floats:
        return np.full((1, 1), site.totals_sensitivity(rows))

    def largest(self, site: RowSums) -> float:
        return site.sites.data_norm * _SLACK


@final
@dataclass(frozen=True, eq=False)
class Moments(Question[Oracle]):
    """Second moments of the features: the upper half of the matrix."""

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        return site.moments(full=True)[:, None]

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        return np.full((1, 1), site.moments_sensitivity(rows))

    def largest(self, site: Oracle) -> float:
        # Off the diagonal, sqrt(2) |a_i a_j| <= B^2 / sqrt(2).
        return site.sites.data_norm**2 * _SLACK


@final
@dataclass(frozen=True, eq=False)
class DiagonalMoments(Question[Oracle]):
    """The squares of each feature, for wide tables."""

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        return site.moments(full=False)[:, None]

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        return np.full((1, 1), site.moments_sensitivity(rows))

    def largest(self, site: Oracle) -> float:
        return site.sites.data_norm**2 * _SLACK


@final
@dataclass(frozen=True, eq=False)
class StartMoments(Question[Oracle]):
    """Second moments of the features, the gradient of all records' losses at 0, and for the logistic loss the features'
    means, in units of B.
    """

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        return site.start_moments()[:, None]

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        return np.full((1, 1), site.start_moments_sensitivity(rows))

    def largest(self, site: Oracle) -> float:
        return max(1.0, *weights_of(site.loss, in_slopes=True)) * _SLACK


@final
@dataclass(frozen=True, eq=False)
class Gradient(AtPoint):
    """The gradient of all records' losses at w, without a regulariser."""

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        found: Floats = site.gradient_sum(self.w[None])[0].astype(np.float64)
        return found

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        found: Floats = site.gradient_sum_sensitivity(self.w[None], rows)[0]
        return found

    def largest(self, site: Oracle) -> float:
        return site.c1 * _SLACK


@dataclass(frozen=True, eq=False)
class Whitened(Question[Oracle]):
    """A question in whitened coordinates, where long rows count less.

    Args:
        u: the model in these coordinates, (d, runs).
        whitening: the coordinates.
    """

    u: Floats
    whitening: Whitening

    @property
    def point(self) -> Floats:
        return np.concatenate((self.u, self.whitening.numbers))

    def at(self, point: Floats) -> Self:
        d = len(self.u)
        return replace(self, u=point[:d], whitening=self.whitening.of(point[d:]))


@final
@dataclass(frozen=True, eq=False)
class WhitenedGradient(Whitened):
    """The gradient of all records' losses, without a regulariser."""

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        found: Floats = site.whitened_gradient_sum(self.u[None], self.whitening)[0].astype(np.float64)
        return found

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        found: Floats = site.whitened_gradient_sum_sensitivity(self.u[None], rows, self.whitening)[0]
        return found

    def largest(self, site: Oracle) -> float:
        norm, A = site.sites.data_norm, self.whitening
        return site.c1 * float(np.max(A.length / norm * (1 + norm * A.rounding))) * _SLACK


def _most_curved(site: Oracle, A: Whitening) -> float:
    """L c^2, the most that one row adds to a number of the Hessian, or to what goes with it."""
    bound = site.loss.smoothness_bound
    assert bound is not None  # losses without are refused when an analysis is made
    return bound * float(np.max(A.length * (1 + site.sites.data_norm * A.rounding))) ** 2 * _SLACK


@final
@dataclass(frozen=True, eq=False)
class WhitenedHessian(Whitened):
    """The Hessian of all records' losses: its half."""

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        found: Floats = site.whitened_hessian_sum(self.u[None], self.whitening)[0].astype(np.float64, copy=False)
        return found

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        return site.whitened_hessian_sum_sensitivity(rows, self.whitening)

    def largest(self, site: Oracle) -> float:
        return _most_curved(site, self.whitening)


@final
@dataclass(frozen=True, eq=False)
class WhitenedCountHessian(Whitened):
    """The Hessian, then two numbers: how far counts are from their means, squared, and those means. In these two every
    row counts once.
    """

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        asked = self.u[None], self.whitening
        found: Floats = np.concatenate((site.whitened_hessian_sum(*asked)[0], site.variation_sum(*asked)[0]))
        return found.astype(np.float64, copy=False)

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        return site.varied_hessian_sensitivity(rows, self.whitening)

    def largest(self, site: Oracle) -> float:
        return _most_curved(site, self.whitening)


@final
@dataclass(frozen=True, eq=False)
class FocusedGradient(Whitened):
    """The gradient along a few directions, and what the Hessian makes of these: `LossSums.focused_sum`.

    Args:
        directions: X, in whitened coordinates, (p k, runs).
    """

    directions: Floats

    @property
    def point(self) -> Floats:
        return np.concatenate((super().point, self.directions))

    def at(self, point: Floats) -> Self:
        numbers = len(point) - len(self.directions)
        return replace(super().at(point[:numbers]), directions=point[numbers:])

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        return site.focused_sum(self.u[None], self.whitening, self.directions)

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        return site.focused_sum_sensitivity(self.u[None], rows, self.whitening)

    def largest(self, site: Oracle) -> float:
        return site.loss.slope_bound * (1 + site.sites.data_norm * float(np.max(self.whitening.rounding))) * _SLACK


@final
@dataclass(frozen=True, eq=False)
class ResidualMoments(Whitened):
    """Second moments of rows and residuals together, in whitened coordinates.

    Args:
        reach: beyond which a residual counts as this, (1, runs). Its sign does not matter: a proposal may have any.
    """

    reach: Floats

    @property
    def point(self) -> Floats:
        return np.concatenate((super().point, self.reach))

    def at(self, point: Floats) -> Self:
        return replace(super().at(point[:-1]), reach=point[-1:])

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        found: Floats = site.residual_moments(self.u, self.whitening, self.reach).astype(np.float64, copy=False)
        return found

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        return site.residual_moments_sensitivity(rows, self.whitening)

    def largest(self, site: Oracle) -> float:
        A = self.whitening  # off the diagonal, sqrt(2) f |A a| c |e| <= sqrt(2) c^2
        return sqrt(2.0) * float(np.max(A.length * (1 + site.sites.data_norm * A.rounding))) ** 2 * _SLACK
