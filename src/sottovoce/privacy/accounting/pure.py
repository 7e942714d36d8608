"""Pure releases: the price of each, their sum, and their optimal composition.

Every epsilon-DP release is a post-processing of randomised response, which tells the truth with probability
e^eps / (1 + e^eps) (Kairouz, Oh & Viswanath 2015). So bounds for randomised response hold for all, adaptively composed.
"""

from collections import Counter
from functools import lru_cache
from math import fsum, inf, log, log1p, ulp

import numpy as np
import scipy

from sottovoce.arrays import Floats
from sottovoce.privacy.accounting.gaussian import UNIT
from sottovoce.privacy.events import Event
from sottovoce.privacy.releases import Laplace, NormLaplace, NormLaplaceObjective, PureRelease

LONGEST = 10**6  # releases whose optimal composition is computed


def pure_cost(leaf: Event) -> float:
    """The pure epsilon of one release; inf if it has none."""
    match leaf:
        case PureRelease(epsilon=epsilon):
            return epsilon
        case Laplace(scale=scale) | NormLaplace(scale=scale):
            return 1 / scale
        case NormLaplaceObjective(scale=scale, kappa=kappa):
            return 1 / scale + log1p(kappa)
    return inf


def pure_sum(counts: Counter[Event]) -> float:
    """The sum of all pure epsilons, rounded up."""
    return fsum(times * pure_cost(leaf) for leaf, times in counts.items()) * (1 + 4 * UNIT)


def response_log_moment(epsilon: float, lam: Floats) -> Floats:
    """lambda times the Renyi divergence of order 1 + lambda of randomised response, rounded up."""
    total: Floats = np.logaddexp((1 + lam) * epsilon, -lam * epsilon) - np.logaddexp(0.0, epsilon)
    bound: Floats = np.minimum(total + 64 * UNIT * (1 + (1 + lam) * epsilon), lam * epsilon * (1 + 4 * UNIT))
    return bound


def optimal_delta(each: float, times: int, epsilon: float) -> float:
    """delta(epsilon) of `times` releases that cost `each` (Kairouz, Oh & Viswanath 2015, Theorem 3.3).

        sum_i C(T, i) max(e^{(T-i) e} - e^{eps + i e}, 0) / (1 + e^e)^T,    T = times,  e = each

    Formal guarantees:
        Never below the formula's value, and the formula bounds every adaptive composition of such releases. 1 for more
        than LONGEST releases.
    """
    if times > LONGEST:
        return 1.0
    losses, masses = _responses(each, times)
    # A loss is off by a few units of rounding of `times each`, and so is its distance from epsilon.
    gap = losses - epsilon + 8 * UNIT * (times * each + epsilon)
    gap = gap[gap > 0]
    if not gap.size:
        return 0.0
    return float(min(1.0, np.sum(masses[: gap.size] * -np.expm1(-gap)) + (times + 1) * ulp(0.0)))


def optimal_epsilon(each: float, times: int, delta: float) -> float:
    """The smallest epsilon with `optimal_delta` at most delta, rounded up; the sum for more than LONGEST releases."""
    high = times * each * (1 + 4 * UNIT)
    # Where the optimum is not computed, or is lost in rounding, the plain sum holds.
    if times > LONGEST or high < 1e-200 or optimal_delta(each, times, high) > delta:
        return high
    if optimal_delta(each, times, 0.0) <= delta:
        return 0.0
    root = float(scipy.optimize.brentq(lambda e: optimal_delta(each, times, e) - delta, 0.0, high, xtol=1e-13 * high))
    step = 1e-13 * high
    while optimal_delta(each, times, root) > delta:
        root, step = root + step, 2 * step
    return min(root, high)


@lru_cache(maxsize=4)
def _responses(each: float, times: int) -> tuple[Floats, Floats]:
    """The losses of `times` randomised responses, falling, and their masses, rounded up.

    Masses too small for a number are left out from the middle of the list on; each is below `ulp(0.0)`. Those at its
    head stay, as zeros.
    """
    wrong = np.arange(times + 1, dtype=np.float64)
    choices = (
        scipy.special.gammaln(times + 1) - scipy.special.gammaln(wrong + 1) - scipy.special.gammaln(times - wrong + 1)
    )
    log_mass = choices - times * np.logaddexp(0.0, -each) - wrong * each
    last = int(np.flatnonzero(log_mass > -745.0)[-1]) + 1
    error = 32 * UNIT * (4 + times * (log(times + 1) + each))
    return (times - 2 * wrong[:last]) * each, np.exp(log_mass[:last]) * (1 + error)
