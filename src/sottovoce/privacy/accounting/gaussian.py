"""The exact price of Gaussian releases: closed form, rounded to the safe side.

A run of T adaptive Gaussian releases with noise multiplier sigma is mu-GDP with mu = sqrt(T) / sigma, and

    delta(eps) = Phi(-a) - e^eps Phi(-b),    a = eps/mu - mu/2,    b = eps/mu + mu/2

is tight (Balle & Wang 2018, Theorem 8; Dong, Roth & Su 2019, Corollary 1 and Theorem 3).
"""

from math import exp, inf, isfinite, log, pi, sqrt, ulp

from scipy.optimize import brentq
from scipy.special import erfcx, ndtr

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
    above = density * _mills(a) if a >= 0 else float(ndtr(-a))
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
    root = float(brentq(excess, 0.0, high, xtol=1e-14 * min(1.0, high), rtol=4 * 2.0**-52))
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
    root = float(brentq(excess, low, high, xtol=1e-15 * low, rtol=4 * 2.0**-52))
    step = 2.0**-52
    while epsilon_of_mu(root, delta) > epsilon:
        root, step = root * (1 - step), 2 * step
    return root


def _mills(x: float) -> float:
    """R(x) = Phi(-x) / phi(x)."""
    return sqrt(pi / 2) * float(erfcx(x / sqrt(2)))


# -- discrete ---------------------------------------------------------------------------------------------------------
# What it costs that a real site adds discrete Gaussian noise, while the accountant prices a continuous one.
#
# On the integers, for every scale s >= 1,
#
#     KL( discrete Gaussian of scale s  ||  N(0, s^2) rounded to the nearest integer )  <=  1 / (128 s^4).
#
# Grid shifts commute with rounding, so the rounded Gaussian is post-processing of the continuous one: it costs just
# what the accountant says. Divergences of adaptive draws add up, and Pinsker turns their sum into a probability with
# which the two transcripts differ at all. The proof is in docs/proofs/discrete-gaussian.md.

_UP = 1 + 1e-12  # more than the rounding of any line here


def discretisation_divergence(draws: int, scale: float) -> float:
    """A bound on the KL divergence of `draws` discrete Gaussian numbers from rounded continuous ones.

    Args:
        draws: how many numbers are drawn, over all coordinates, steps and rounds.
        scale: the smallest of their scales, in units of the grid.
    """
    expect(draws >= 0, "draws >= 0", draws=draws)
    expect(1 <= scale < inf, "a scale of at least 1 grid unit", scale=scale)
    return draws / (128 * scale**4) * _UP


def delta_of_divergence(divergence: float, epsilon: float) -> float:
    """What has to be added to delta for noise that is off by this KL divergence in all.

    (1 + e^eps) sqrt(KL / 2) or (1 + 2 e^{eps/2}) sqrt(KL / 2), whichever is less.

    Args:
        divergence: of the real transcript from the ideal one, in nats.
        epsilon: of the guarantee that is to be kept.

    Formal guarantees:
        If the ideal transcript is (epsilon, delta)-DP, the real one is (epsilon, delta + result)-DP.
    """
    expect(divergence >= 0 and isfinite(divergence), "a finite divergence >= 0", divergence=divergence)
    if divergence == 0:
        return 0.0
    return min(1.0, _weight(epsilon) * sqrt(divergence / 2) * _UP)


def divergence_within(delta: float, epsilon: float) -> float:
    """About the largest divergence that adds at most this to delta, rounded down."""
    expect(0 <= delta < 1, "0 <= delta < 1", delta=delta)
    return 2 * (delta / _weight(epsilon)) ** 2 / _UP**4


def _weight(epsilon: float) -> float:
    """What one unit of total variation between real and ideal transcripts adds to delta, at most."""
    expect(epsilon >= 0, "epsilon >= 0", epsilon=epsilon)
    e = min(epsilon, 700.0)  # e^e is still a number, and no divergence is small enough for it
    return 1 + min(exp(e), 2 * exp(e / 2))


def discretisation_delta(draws: int, scale: float, epsilon: float) -> float:
    """What has to be added to delta for `draws` discrete Gaussian numbers of at least this scale, in grid units.

    Whoever writes a privacy statement for a real site calls this, and adds the result to its delta: the accountant
    prices continuous noise and knows of no grid. For a run, draws = rounds x noisy steps x d and scale = 2^grid_bits.
    A release that is repeated word by word is counted once.

    Formal guarantees:
        If the accountant's run is (epsilon, delta)-DP, the run with discrete noise is (epsilon, delta + result)-DP, for
        numbers that are truly random. What keyed noise adds to this is computational, and is no number.
    """
    return delta_of_divergence(discretisation_divergence(draws, scale), epsilon)


def shared_delta(draws: int, scale: float, shares: int, epsilon: float) -> float:
    """The same for numbers that hold the sum of so many discrete Gaussians, each of this scale, drawn by as many sites.

    The sum is not a discrete Gaussian, but its law differs from one of scale sqrt(shares) scale by a factor of at most
    e^tau, tau = 10 (shares - 1) exp(-pi^2 scale^2) (Kairouz, Liu & Steinke 2021); then as in `discretisation_delta`.

    Args:
        draws: how many numbers are opened, over all exchanges and attempts.
        scale: of one share, in grid units.
        shares: those that the observer does not know. Fewer shares are less noise: every observer has a number of his
            own.
        epsilon: what is promised against that observer.

    Formal guarantees: as for `discretisation_delta`; docs/proofs/masked.md, Lemma 5.
    """
    expect(shares >= 1, "shares >= 1", shares=shares)
    divergence = discretisation_divergence(draws, scale * sqrt(shares))
    expect(scale >= 1, "a scale of at least 1 grid unit", scale=scale)
    apart = draws * 10 * (shares - 1) * exp(-min(pi**2 * scale**2, 745.0)) * _UP
    return min(1.0, ((1 + exp(min(epsilon, 700.0))) * apart + _weight(epsilon) * sqrt(divergence / 2)) * _UP)
