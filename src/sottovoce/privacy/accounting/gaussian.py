"""The exact price of Gaussian releases: closed form, rounded to the safe side.

A run of T adaptive Gaussian releases with noise multiplier sigma is mu-GDP with mu = sqrt(T) / sigma, and

    delta(eps) = Phi(-a) - e^eps Phi(-b),    a = eps/mu - mu/2,    b = eps/mu + mu/2

is tight (Balle & Wang 2018, Theorem 8; Dong, Roth & Su 2019, Corollary 1 and Theorem 3).
"""

from math import exp, inf, isfinite, log, pi, sqrt, ulp

import scipy

from sottovoce.errors import expect

UNIT = 2.0**-53  # rounding error of one floating-point operation


def delta_of_mu(mu: float, epsilon: float) -> float:
    """delta(eps) of a mu-GDP mechanism, never below the true value.

    With phi the normal density and R the Mills ratio, e^eps phi(b) = phi(a), so that for a >= 0

        delta = phi(a) (R(a) - R(b)),    R(x) = sqrt(pi/2) erfcx(x / sqrt 2)

    and nothing overflows. For a < 0 the first term is Phi(-a), of order one.

    Args:
        mu: sqrt(T) / sigma for T Gaussian releases of noise multiplier sigma.
        epsilon: at least 0.

    Formal guarantees:
        The result is an upper bound, as long as erfcx, ndtr and exp are right to 32 units in the last place. mu = 0
        gives 0. An underflow gives the smallest positive number.
    """
    expect(mu >= 0 and isfinite(mu), "mu to be finite and >= 0", mu=mu)
    expect(epsilon >= 0 and isfinite(epsilon), "epsilon to be finite and >= 0", epsilon=epsilon)
    if mu == 0:
        return 0.0
    ratio = epsilon / mu
    if ratio == inf:
        return ulp(0.0)
    a, b = ratio - mu / 2, ratio + mu / 2
    density = exp(-a * a / 2) / sqrt(2 * pi)
    above = density * _mills(a) if a >= 0 else float(scipy.special.ndtr(-a))
    # Rounding moves a by at most a few UNIT * b, and so either term by a factor 1 +- UNIT * (constant + |a| b), or, for
    # a < 0, by phi(a) b UNIT. Both terms are at most `above`, and phi(a) <= above for a < 0, up to a factor below one.
    slack = 8 * UNIT * (8 + (1 + abs(a)) * b) * above
    return min(1.0, max(above - density * _mills(b), 0.0) + slack + ulp(0.0))


def epsilon_of_mu(mu: float, delta: float) -> float:
    """The smallest eps with delta(eps) <= delta, rounded up.

    Formal guarantees:
        `delta_of_mu(mu, result) <= delta`, and `delta_of_mu` never is too low: so the result never is either.
        It is within 1e-9 of the truth for mu <= 100 and delta in [1e-300, 0.5] (measured against mpmath).
    """
    expect(0 < delta < 1, "delta strictly between 0 and 1", delta=delta)
    if delta_of_mu(mu, 0.0) <= delta:
        return 0.0
    # There a = sqrt(2 ln(1/delta)), and Phi(-a) <= delta / 2; the second term leaves room for any slack.
    high = mu * mu / 2 + mu * sqrt(2 * log(1 / delta))

    def excess(epsilon: float) -> float:
        return log(delta_of_mu(mu, epsilon)) - log(delta)

    while excess(high) > 0:  # never seen; rounding alone could cause it
        high = 1.001 * high + 1e-12
    root = float(scipy.optimize.brentq(excess, 0.0, high, xtol=1e-14 * min(1.0, high), rtol=4 * 2.0**-52))
    step = max(root, 1e-300) * 2.0**-52
    while delta_of_mu(mu, root) > delta:
        root, step = root + step, 2 * step
    return root


def mu_for(epsilon: float, delta: float) -> float:
    """The largest mu whose epsilon at delta stays within `epsilon`, rounded down.

    Formal guarantees:
        `epsilon_of_mu(result, delta) <= epsilon`, and `epsilon_of_mu` never is too low: the target is met.
    """
    expect(epsilon > 0 and isfinite(epsilon), "epsilon to be positive and finite", epsilon=epsilon)
    expect(0 < delta < 1, "delta strictly between 0 and 1", delta=delta)

    def excess(mu: float) -> float:
        return log(delta_of_mu(mu, epsilon)) - log(delta)

    # mu^2/2 + mu s <= eps, s = sqrt(2 ln(1/delta)), is enough (see epsilon_of_mu): mu = sqrt(s^2 + 2 eps) - s.
    s = sqrt(2 * log(1 / delta))
    low = 2 * epsilon / (sqrt(s * s + 2 * epsilon) + s)
    high = 2 * low
    # Doubled until the target is missed: the root then lies in between.
    while excess(high) <= 0:
        high *= 2
    low = low / 2  # room for rounding at the bracket's end
    root = float(scipy.optimize.brentq(excess, low, high, xtol=1e-15 * low, rtol=4 * 2.0**-52))
    step = 2.0**-52
    while epsilon_of_mu(root, delta) > epsilon:
        root, step = root * (1 - step), 2 * step
    return root


def _mills(x: float) -> float:
    """The Mills ratio R(x) = Phi(-x) / phi(x)."""
    return sqrt(pi / 2) * float(scipy.special.erfcx(x / sqrt(2)))
