"""The price of discrete instead of continuous Gaussian noise, as an addition to delta.

A real site adds discrete noise, while the accountant prices a continuous one.

On the integers, for every scale s >= 1,

    KL( discrete Gaussian of scale s  ||  N(0, s^2) rounded to the nearest integer )  <=  1 / (128 s^4).

Grid shifts commute with rounding, so the rounded Gaussian is post-processing of the continuous one: it costs just
what the accountant says. Divergences of adaptive draws add up, and Pinsker turns their sum into a probability with
which the two transcripts differ at all. The proof is in docs/proofs/discrete-gaussian.md.
"""

from math import exp, inf, isfinite, pi, sqrt

from sottovoce.errors import expect

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
    """The addition to delta for noise that is off by this KL divergence in all.

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
    """The most that one unit of total variation between real and ideal transcripts adds to delta."""
    expect(epsilon >= 0, "epsilon >= 0", epsilon=epsilon)
    e = min(epsilon, 700.0)  # e^e is still a number, and no divergence is small enough for it
    return 1 + min(exp(e), 2 * exp(e / 2))


def discretisation_delta(draws: int, scale: float, epsilon: float) -> float:
    """The addition to delta for `draws` discrete Gaussian numbers of at least this scale, in grid units.

    Whoever writes a privacy statement for a real site calls this, and adds the result to its delta: the accountant
    prices continuous noise and knows of no grid. For a run, draws = rounds x noisy steps x d and scale = 2^grid_bits.
    A release that is repeated word by word is counted once.

    Formal guarantees:
        If the accountant's run is (epsilon, delta)-DP, the run with discrete noise is (epsilon, delta + result)-DP, for
        numbers that are truly random. What keyed noise adds to this is computational, and is no number.
    """
    return delta_of_divergence(discretisation_divergence(draws, scale), epsilon)


def shared_delta(draws: int, scale: float, shares: int, epsilon: float) -> float:
    """The addition to delta for sums of `shares` discrete Gaussians, each of this scale and drawn by another site.

    The sum is not a discrete Gaussian, but its law differs from one of scale sqrt(shares) scale by a factor of at most
    e^tau, tau = 10 (shares - 1) exp(-pi^2 scale^2) (Kairouz, Liu & Steinke 2021); then as in `discretisation_delta`.

    Args:
        draws: how many numbers are opened, over all exchanges and attempts.
        scale: of one share, in grid units.
        shares: number of shares that the observer does not know. It differs between observers.
        epsilon: what is promised against that observer.

    Formal guarantees: as for `discretisation_delta`; docs/proofs/masked.md, Lemma 5.
    """
    expect(shares >= 1, "shares >= 1", shares=shares)
    divergence = discretisation_divergence(draws, scale * sqrt(shares))
    expect(scale >= 1, "a scale of at least 1 grid unit", scale=scale)
    apart = draws * 10 * (shares - 1) * exp(-min(pi**2 * scale**2, 745.0)) * _UP
    return min(1.0, ((1 + exp(min(epsilon, 700.0))) * apart + _weight(epsilon) * sqrt(divergence / 2)) * _UP)
