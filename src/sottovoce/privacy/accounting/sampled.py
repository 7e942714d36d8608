"""One sampled Gaussian step under replace-one: a curve that bounds its privacy profile, and its losses on a grid.

J is how often the replaced row is drawn, p_j = P(J = j), gamma = P(J >= 1), H_a(P||Q) the hockey-stick divergence
integral of max(P - a Q, 0), N_j the pair N(j/sigma, 1) against N(0, 1). For eps' >= 0

    B(eps') = sum_{j >= 1} p_j H_{e^eps}(N_j),      e^eps' = 1 + gamma (e^eps - 1)

bounds the profile of the step in both directions (advanced joint convexity: Balle, Barthe & Gaboardi 2018, Theorem
2). With B(-eps') = 1 - e^-eps' + e^-eps' B(eps') it is the profile of one dominating pair, so it composes adaptively
(Zhu, Dong & Wang 2022, Theorem 10). The proof is in docs/proofs/sampling.md.
"""

from dataclasses import dataclass
from math import exp, expm1, log, log1p, sqrt

import numpy as np
import scipy

from sottovoce.arrays import Floats
from sottovoce.errors import UnsupportedError, expect
from sottovoce.privacy.accounting.gaussian import UNIT, delta_of_mu
from sottovoce.privacy.events import SampledGaussian, Sampling


@dataclass(frozen=True)
class Step:
    """A release with B(eps') = sum_j weights[j] H_{e^eps}(N(mus[j], 1) || N(0, 1)) + beyond.

    A plain Gaussian is gamma = 1 with one weight.

    Args:
        gamma: the probability that the replaced row is drawn at all.
        weights: that it is drawn just 1, 2, ... times.
        mus: how far it then moves the sum, in standard deviations of the noise.
        beyond: the probability of multiplicities too rare to follow; they are priced as if they gave the row away.
        relative_error: of the weights.
    """

    gamma: float
    weights: tuple[float, ...]
    mus: tuple[float, ...]
    beyond: float
    relative_error: float  # of the weights

    @staticmethod
    def gaussian(mu: float) -> "Step":
        """A plain Gaussian release, or a whole run of them, that is mu-GDP."""
        return Step(1.0, (1.0,), (mu,), 0.0, 0.0)

    @staticmethod
    def sampled(event: SampledGaussian, beyond: float) -> "Step":
        """A sampled step. Multiplicities of total probability at most `beyond` are given up."""
        gamma, weights, rest, error = multiplicities(event.sampling, beyond)
        mus = tuple(j / event.sigma for j in range(1, len(weights) + 1))
        return Step(gamma, weights, mus, rest, error)


def multiplicities(sampling: Sampling, beyond: float) -> tuple[float, tuple[float, ...], float, float]:
    """(gamma, (p_1, ..., p_J), P(J > that), relative error of the p_j).

    With replacement J ~ Binomial(batch, 1/rows), else J ~ Bernoulli(batch/rows).
    """
    rows, batch = sampling.rows, sampling.batch
    if sampling.scheme == "poisson":
        return batch / rows, (batch / rows,), 0.0, 2 * UNIT
    if rows == 1:
        return 1.0, (*(0.0 for _ in range(batch - 1)), 1.0), 0.0, 0.0
    start = batch * log1p(-1 / rows)
    # (1 - 1/rows)^batch is then below the smallest number, and all weights with it.
    if start < -700:
        raise UnsupportedError(f"Expected a batch that is not hundreds of times the rows, got sampling={sampling!r}.")
    weights, rest = [exp(start)], 1.0
    while len(weights) <= batch and (len(weights) - 1 <= batch / rows or rest > beyond):
        j = len(weights)
        weights.append(weights[-1] * (batch - j + 1) / (j * (rows - 1.0)))
        # Past the mode the ratio of neighbours falls, so the tail is below a geometric one.
        ratio = (batch - j) / ((j + 1) * (rows - 1.0))
        rest = weights[-1] * ratio / (1 - ratio) if ratio < 1 else 1.0
    error = 4 * UNIT * (len(weights) + 1 - start)
    return -expm1(start), tuple(weights[1:]), rest * (1 + error), error


def profile(event: SampledGaussian, epsilon: float) -> float:
    """B(epsilon), an upper bound on delta for one sampled step.

    Formal guarantees:
        delta(epsilon) of the step under replace-one, in both directions, is at most the result (epsilon >= 0).
    """
    expect(epsilon >= 0, "epsilon >= 0", epsilon=epsilon)
    step = Step.sampled(event, beyond=1e-300)
    inner = float(_inner(np.array([epsilon]), step.gamma)[0]) * (1 - 8 * UNIT)  # B falls, so a smaller one is safe
    total = sum(p * delta_of_mu(mu, inner) for p, mu in zip(step.weights, step.mus, strict=True))
    return float(min(1.0, total * (1 + step.relative_error + 8 * UNIT) + step.beyond))


def highest_loss(step: Step, beyond: float) -> float:
    """A loss that the step exceeds with probability at most `beyond`, apart from `step.beyond`. Its grid may end
    there.
    """
    share = beyond / len(step.weights)
    losses = [_outer(step.mus[0] ** 2 / 2 + step.mus[0], step.gamma)]
    for p, mu in zip(step.weights, step.mus, strict=True):
        if p > share:
            losses.append(_outer(mu * mu / 2 - mu * float(scipy.special.ndtri(min(0.5, share / p))), step.gamma))
    return max(losses)


def second_moment(step: Step, top: float) -> float:
    """About E[L^2], to choose a grid by: no bound depends on it."""
    losses = np.concatenate(([0.0], np.geomspace(1e-9 * top, top, 1000)))
    above, scaled, _ = _tails(step, losses)
    middle = (losses[1:] + losses[:-1]) / 2
    return float(np.sum(middle**2 * -(np.diff(above) + np.diff(scaled * np.exp(-losses)))))


def discretise(step: Step, interval: float, size: int) -> tuple[Floats, float]:
    """The losses of the step on the grid interval * (-size, ..., size), and the mass at +infinity.

    Connect the dots (Doroshenko et al. 2022): the mass p under P, q under Q of a cell goes to its two ends so that
    p and q are kept. The discrete profile then joins the points of B on the grid by lines in e^eps. B is convex
    there, so the lines lie above it. For L > 0, with S the upper tail under P and E = e^L times that under Q, the cell
    from L to L + h gives its lower end

        (E(L) - e^-h E(L+h) - e^-h (S(L) - S(L+h))) / (1 - e^-h).

    The pair is symmetric: the mass at -L is e^-L times the mass at L. What is left lies at 0.

    Formal guarantees:
        The discrete profile is at least B on the whole line. S and E are right up to `error`; twice that much of
        hockey-stick is added at each grid point by moving (or, where there is none, adding) mass one bin up.
    """
    losses = np.arange(size + 1, dtype=np.float64) * interval
    above, scaled, error = _tails(step, losses)
    width = -expm1(-interval)
    mass = -np.diff(above)
    # Less goes to the lower end of each cell than the formula says, by what rounding may have added: that is the safe
    # side.
    lower = (scaled[:-1] - exp(-interval) * (scaled[1:] + mass) - 2 * error[:-1]) / width
    upper = np.maximum(mass - lower, 0.0)
    positive = np.concatenate(([0.0], upper))
    positive[1:-1] += np.maximum(lower[1:], 0.0)
    negative = positive * np.exp(-losses)
    infinite = float(above[-1] + error[-1]) + step.beyond
    zero = max(0.0, 1.0 - infinite - float(np.sum(positive)) - float(np.sum(negative))) + 64 * UNIT
    return np.concatenate((negative[:0:-1], [zero], positive[1:])), infinite


def _tails(step: Step, losses: Floats) -> tuple[Floats, Floats, Floats]:
    """P(L > loss), e^loss Q(L > loss), and a bound on the rounding error of either, for losses >= 0.

    Inside, l = log(1 + (e^L - 1) / gamma), Q(l > t) = sum_j w_j Phi(-b), e^t Q(l > t) = sum_j w_j phi(a) R(b), and
    P1(l > t) = sum_j w_j Phi(-a), with a, b = t/mu -+ mu/2. Then P = (1 - gamma) Q + gamma P1, w_j = p_j / gamma.
    """
    inner = _inner(losses, step.gamma)
    above, scaled, error = np.zeros_like(losses), np.zeros_like(losses), np.zeros_like(losses)
    for p, mu in zip(step.weights, step.mus, strict=True):
        if p == 0:
            continue
        a, b = inner / mu - mu / 2, inner / mu + mu / 2
        outside = (1 - step.gamma) / step.gamma * scipy.special.ndtr(-b)
        inside = scipy.special.ndtr(-a)
        above += p * (outside + inside)
        scaled += p * (outside + np.exp(-a * a / 2) * scipy.special.erfcx(b / sqrt(2)) / 2)
        # Rounding moves a and b by at most 8 UNIT b, and the hazard of a normal law at a is at most 1 + |a|.
        error += p * (16 * UNIT * (4 + (1 + np.abs(a)) * b) + step.relative_error) * (outside + inside)
    return above, scaled, error


def _inner(losses: Floats, gamma: float) -> Floats:
    """log(1 + (e^L - 1) / gamma), stable for small and for large L."""
    small = np.log1p(np.expm1(np.minimum(losses, 1.0)) / gamma)
    large = losses - log(gamma) + np.log1p(-(1 - gamma) * np.exp(-np.maximum(losses, 1.0)))
    return np.where(losses < 1.0, small, large)


def _outer(loss: float, gamma: float) -> float:
    """log(1 + gamma (e^l - 1)), the inverse of `_inner`."""
    return log1p(gamma * expm1(loss)) if loss < 1.0 else loss + log(gamma + (1 - gamma) * exp(-loss))
