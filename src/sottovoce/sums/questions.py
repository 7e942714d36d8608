"""The questions that models, standard errors and least squares are made of: moments, gradients and Hessians.

| question | sum over all rows of | L2 sensitivity |
| --- | --- | --- |
| `Moments` | a a^T, its half | sqrt(2) B^2 |
| `DiagonalMoments` | its diagonal | sqrt(2) B^2 |
| `CrossMoments` | (a, b) (a, b)^T, its half | sqrt(2) (B^2 + 1) |
| `Gradient` | the gradient of the loss at w | at most 2 c1, less where w is small |
| `WhitenedGradient` | the same in whitened coordinates | as for rows of length c |
| `Hessian` | the Hessian of the loss at w, its half | sqrt(2) L B^2 |
| `CountHessian` | the same, and two numbers on the variation of counts | 1.5 L B^2 |

Each sum and its sensitivity lie side by side in `RowSums` or `LossSums`; docs/proofs/masked.md and
docs/proofs/inference.md prove them. For a person, sensitivities are as many times larger as a person has rows.
"""

from dataclasses import dataclass, replace
from typing import Self, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.oracle.plain import Oracle
from sottovoce.oracle.whitening import Whitening
from sottovoce.sums.program import AtPoint, Question

# Sums are bounded by rows times what one adds. A little more, since that is computed in floating point.
_SLACK = 1 + 1e-6


@final
@dataclass(frozen=True, eq=False)
class Moments(Question):
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
class DiagonalMoments(Question):
    """The squares of each feature, for wide tables."""

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        return site.moments(full=False)[:, None]

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        return np.full((1, 1), site.moments_sensitivity(rows))

    def largest(self, site: Oracle) -> float:
        return site.sites.data_norm**2 * _SLACK


@final
@dataclass(frozen=True, eq=False)
class CrossMoments(Question):
    """Second moments of features and label together, labels cut to [-1, 1]."""

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        return site.cross_moments()[:, None]

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        return np.full((1, 1), site.cross_moments_sensitivity(rows))

    def largest(self, site: Oracle) -> float:
        return (site.sites.data_norm**2 + 1) * _SLACK


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


@final
@dataclass(frozen=True, eq=False)
class WhitenedGradient(Question):
    """The gradient of all records' losses in whitened coordinates, where long rows count less.

    Args:
        u: the model in these coordinates, (d, runs).
        whitening: the coordinates.
    """

    u: Floats
    whitening: Whitening

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        found: Floats = site.whitened_gradient_sum(self.u[None], self.whitening)[0].astype(np.float64)
        return found

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        found: Floats = site.whitened_gradient_sum_sensitivity(self.u[None], rows, self.whitening)[0]
        return found

    def largest(self, site: Oracle) -> float:
        norm, A = site.sites.data_norm, self.whitening
        return site.c1 * float(np.max(A.length / norm * (1 + norm * A.rounding))) * _SLACK

    @property
    def point(self) -> Floats:
        return np.concatenate((self.u, self.whitening.numbers))

    def at(self, point: Floats) -> Self:
        d = len(self.u)
        return replace(self, u=point[:d], whitening=self.whitening.of(point[d:]))


def _curvature(site: Oracle) -> float:
    """L, with which the Hessian of one record is at most L a a^T."""
    bound = site.loss.smoothness_bound
    assert bound is not None  # losses without are refused when an analysis is made
    return bound


@final
@dataclass(frozen=True, eq=False)
class Hessian(AtPoint):
    """The Hessian of all records' losses at w: its half."""

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        found: Floats = site.hessian_sum(self.w[None])[0].astype(np.float64, copy=False)
        return found

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        return np.full((1, 1), site.hessian_sum_sensitivity(rows))

    def largest(self, site: Oracle) -> float:
        return _curvature(site) * site.sites.data_norm**2 * _SLACK


@final
@dataclass(frozen=True, eq=False)
class CountHessian(AtPoint):
    """The Hessian at w, then two numbers: how far counts are from their means, squared, and those means."""

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        hessian, variation = site.hessian_sum(self.w[None])[0], site.variation_sum(self.w[None])[0]
        return np.concatenate((hessian, variation)).astype(np.float64, copy=False)

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        return np.full((1, 1), site.varied_hessian_sensitivity(rows))

    def largest(self, site: Oracle) -> float:
        return _curvature(site) * site.sites.data_norm**2 * _SLACK
