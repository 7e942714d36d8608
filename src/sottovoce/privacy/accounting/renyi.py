"""Renyi accounting, for releases that have no better accountant: curves that add up, converted to (eps, delta).

A release's curve is its log-moment K(lambda) = lambda R(1 + lambda), R the Renyi divergence of that order, maximised
over neighbours in both directions. Adaptive composition adds the curves (Mironov 2017, Proposition 1). For every
lambda > 0

    eps = (K(lambda) - log(delta) - log(1 + lambda)) / lambda + log(lambda / (1 + lambda))

is enough (Canonne, Kamath & Steinke 2020, Proposition 12; Asoodeh et al. 2021). The smallest is looked for; each is
sound. The curves are proved in docs/proofs/laplace.md, objective-perturbation.md and selection.md.
"""

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from math import exp, log

import numpy as np
import scipy

from sottovoce.arrays import Floats
from sottovoce.errors import UnsupportedError
from sottovoce.privacy.accounting.gaussian import UNIT
from sottovoce.privacy.accounting.norm_laplace import log_moment, log_moment_of_positive
from sottovoce.privacy.accounting.pure import pure_cost, response_log_moment
from sottovoce.privacy.events import Event, Gaussian, NegativeBinomialRuns, PoissonRuns, RepeatAndSelect
from sottovoce.privacy.releases import (
    GaussianObjective,
    Laplace,
    NormLaplace,
    NormLaplaceObjective,
    PureRelease,
    leaves,
)

# Where the best lambda lies beyond either end, the bound is not the least any more, but still sound.
GRID = np.geomspace(1e-3, 1e7, 101)  # lambda = alpha - 1
FINE_GRID = np.geomspace(1e-3, 1e7, 2001)
ROUNDING = 1e-12  # of a sum of curves, relative


def renyi_epsilon(counts: Counter[Event], delta: float) -> float:
    """An epsilon at delta for all these releases together, never too low."""

    def bound(lam: Floats) -> Floats:
        total = curve(counts, lam) - log(delta) - np.log1p(lam)
        return total / lam - np.log1p(1 / lam)

    best, lam = _least(bound)
    return max(0.0, best + ROUNDING * (abs(best) + (1 - log(delta)) / lam + 1))


def renyi_log_delta(counts: Counter[Event], epsilon: float) -> float:
    """The log of a delta at epsilon for all these releases together, never too low."""

    def bound(lam: Floats) -> Floats:
        return curve(counts, lam) - lam * epsilon - lam * np.log1p(1 / lam) - np.log1p(lam)

    best, lam = _least(bound)
    return min(0.0, best + ROUNDING * (1 + abs(best) + lam * (epsilon + 1)))


def renyi_profile(counts: Counter[Event]) -> Callable[[float], float]:
    """A delta for every epsilon >= 0, never too low. It is cheap to evaluate, and a little above the least bound."""
    lam = FINE_GRID
    fixed = curve(counts, lam) - lam * np.log1p(1 / lam) - np.log1p(lam)

    def delta(epsilon: float) -> float:
        values = fixed - lam * epsilon
        at = int(np.argmin(values))
        return exp(min(0.0, values[at] + ROUNDING * (1 + abs(values[at]) + lam[at] * (epsilon + 1))))

    return delta


def curve(counts: Counter[Event], lam: Floats) -> Floats:
    """The sum of all log-moments at every lambda."""
    total = np.zeros_like(lam)
    for leaf, times in counts.items():
        total += times * leaf_curve(leaf, lam)
    return total


def leaf_curve(leaf: Event, lam: Floats) -> Floats:
    """K(lambda) of one release, never too low; inf where nothing is known."""
    match leaf:
        case Gaussian(sigma=sigma):
            return _gaussian(sigma, lam)
        case PureRelease(epsilon=epsilon):
            return response_log_moment(epsilon, lam)
        case Laplace(scale=scale):
            found = log_moment(1, 1 / scale, lam)
        case NormLaplace(scale=scale, d=d):
            found = log_moment(d, 1 / scale, lam)
        case NormLaplaceObjective(scale=scale, d=d, kappa=kappa, one_sided=one_sided):
            jump = log_moment_of_positive(d, 1 / scale, lam)
            found = lam * np.log1p(kappa) + (jump if one_sided else _both_sides(jump))
        case GaussianObjective(sigma=sigma, kappa=kappa):
            return np.minimum(_gaussian(sigma, lam) + _jacobian(kappa, lam), _crude_objective(sigma, kappa, lam))
        case RepeatAndSelect():
            return _searched(leaf, lam)
        case _:
            raise UnsupportedError(f"No Renyi curve for event={leaf!r}.")
    # A pure release never loses more than randomised response of the same epsilon.
    return np.minimum(found, response_log_moment(pure_cost(leaf), lam))


def _searched(search: RepeatAndSelect, lam: Floats) -> Floats:
    """K(lambda) of a search: Papernot & Steinke 2021, Theorems 2 and 6; with K = 0 counted for Poisson."""
    one, mean = curve(leaves(search.event), lam), search.runs.mean
    match search.runs:
        case NegativeBinomialRuns(eta=eta):
            total = one + lam * (1 + eta) * _tail_ratio(search) + log(mean)
        case PoissonRuns():
            deltas = np.array([_one_run(search)(epsilon) for epsilon in np.log1p(1 / lam)])
            total = np.logaddexp(-mean, log(mean) + one + lam * mean * deltas)
        case _:
            raise UnsupportedError(f"No Renyi curve for runs={search.runs!r}.")
    return total * (1 + 64 * UNIT) + 64 * UNIT * (1 + log(mean + 1))


@lru_cache(maxsize=64)
def _tail_ratio(search: RepeatAndSelect) -> float:
    """min (K(lambda) + log(1/gamma)) / (1 + lambda): the log of how much likelier a better score can become."""
    assert isinstance(search.runs, NegativeBinomialRuns)
    one, certain = leaves(search.event), -log(search.runs.gamma)
    return _least(lambda lam: (curve(one, lam) + certain) / (1 + lam))[0] * (1 + 64 * UNIT)


@lru_cache(maxsize=64)
def _one_run(search: RepeatAndSelect) -> Callable[[float], float]:
    """The profile of one run of the search. Cached, since it is evaluated at every lambda."""
    return renyi_profile(leaves(search.event))


def _gaussian(sigma: float, lam: Floats) -> Floats:
    """K(lambda) of a plain Gaussian with this noise multiplier: lambda (1 + lambda) / (2 sigma^2)."""
    return lam * (1 + lam) / 2 / sigma / sigma


def _jacobian(kappa: float, lam: Floats) -> Floats:
    """-log(1 - alpha lambda kappa^2 / (1 + kappa)) for lambda kappa < 1, the price of the unknown curvature.

    The rounding of the argument is divided by 1 - argument, so the last thousandth of the range is left out.
    """
    good = lam * kappa < 0.999
    inside = np.where(good, lam, 0.0) * kappa
    price = -np.log1p(-inside * (kappa + inside) / (1 + kappa))
    return np.where(good, price * (1 + 8 * UNIT) + 1e4 * UNIT * inside**2, np.inf)


def _crude_objective(sigma: float, kappa: float, lam: Floats) -> Floats:
    """lambda J + log(2 E e^{lambda max(X, 0)} - 1), X ~ N(1/(2 sigma^2), 1/sigma^2): for large kappa or lambda."""
    still = np.full_like(lam, scipy.special.log_ndtr(-0.5 / sigma))
    moved = _gaussian(sigma, lam) + scipy.special.log_ndtr((0.5 + lam) / sigma)
    jump: Floats = np.logaddexp(still, moved)
    bound: Floats = lam * np.log1p(kappa) + _both_sides(jump)
    return bound * (1 + 64 * UNIT) + 64 * UNIT


def _both_sides(log_mean: Floats) -> Floats:
    """log(2 M - 1) from log M >= 0: a slope of either sign makes the larger of two mirrored jumps count."""
    return log_mean + np.log1p(-np.expm1(-log_mean))


def _least(bound: Callable[[Floats], Floats]) -> tuple[float, float]:
    """(about the least bound, its lambda): a grid, then a search between the neighbours of its best point."""
    values = bound(GRID)
    at = int(np.argmin(values))
    low, high = GRID[max(at - 1, 0)], GRID[min(at + 1, len(GRID) - 1)]

    def scalar(log_lam: float) -> float:
        return float(bound(np.array([exp(log_lam)]))[0])

    found = scipy.optimize.minimize_scalar(
        scalar, bounds=(log(low), log(high)), method="bounded", options={"xatol": 1e-5}
    )
    if found.fun < values[at]:
        return float(found.fun), exp(float(found.x))
    return float(values[at]), float(GRID[at])
