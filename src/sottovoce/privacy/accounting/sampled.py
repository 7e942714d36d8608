"""Adaptive composition of discretised losses by one tilted FFT, with a proved error budget.

The losses of the steps add up (Zhu, Dong & Wang 2022, Theorem 10), so their distribution is a convolution. Each step's
masses are first tilted, m(L) e^{theta L} / M(theta), which centres the sum where delta is decided. Rounding then
costs a tiny fraction of delta itself, however small delta is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil, exp, expm1, inf, log, log1p, log2, sqrt

import numpy as np
from scipy.fft import irfft, rfft
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx, logsumexp, ndtr, ndtri

from sottovoce.arrays import Floats
from sottovoce.errors import UnsupportedError, expect
from sottovoce.privacy.accounting.gaussian import UNIT, delta_of_mu
from sottovoce.privacy.events import SampledGaussian, Sampling

RESOLUTION = 0.005  # grid interval, over the root mean square loss of a step
LARGEST = 2**20  # grid points on either side of zero, per step
WIDEST = 2**21  # bins of a composition; wrapping round what does not fit is sound
NEGLIGIBLE = 1e-7  # share of delta that may be lost in each of the cut tails


@dataclass(frozen=True)
class Losses:
    """Discretised losses of steps that are to be composed, `times[i]` times each.

    Args:
        interval: between two neighbouring losses of the grid, which all steps share.
        masses: for each step, probabilities at interval * (-K .. K). They dominate the step's true losses.
        times: how often each step happens.
        infinite: a bound on the mass of the composition at +infinity, which counts as delta in full.
        scale: about the standard deviation of the composition; only searches start from it.
    """

    interval: float
    masses: tuple[Floats, ...]  # per step, on interval * (-K..K)
    times: tuple[int, ...]
    infinite: float  # a bound on the mass of the composition at +infinity
    scale: float  # about the standard deviation of the composition

    @staticmethod
    def of(steps: "tuple[tuple[Step, int], ...]", beyond: float) -> "Losses":
        """Choose a grid and discretise. At most about `beyond` of the total mass is cut off, to +infinity."""
        total = sum(times for _, times in steps)
        tops = [highest_loss(step, beyond / total) for step, _ in steps]
        moments = [second_moment(step, top) for (step, _), top in zip(steps, tops, strict=True)]
        variance = sum(times * moment for (_, times), moment in zip(steps, moments, strict=True))
        interval = max(RESOLUTION * sqrt(variance / total), max(tops) / LARGEST)
        pieces = [
            discretise(step, interval, max(2, ceil(top / interval))) for (step, _), top in zip(steps, tops, strict=True)
        ]
        infinite = sum(times * mass for (_, times), (_, mass) in zip(steps, pieces, strict=True))
        counts = tuple(times for _, times in steps)
        return Losses(interval, tuple(m for m, _ in pieces), counts, infinite, sqrt(variance))

    def log_moment(self, theta: float) -> float:
        """K(theta) = sum_i times_i log M_i(theta), M_i(theta) = E[e^{theta L}; L finite]."""
        values = [logsumexp(theta * self._grid(m), b=m) for m in self.masses]
        return float(np.dot(self.times, values))

    def tail(self, epsilon: float) -> tuple[float, float]:
        """(log of a bound on P(epsilon < L < inf), the theta that gives it): Chernoff."""
        theta = self._least(lambda t: self._sketched(t) - t * epsilon)
        return self.log_moment(theta) - theta * epsilon, theta

    def quantile(self, log_tail: float) -> tuple[float, float]:
        """(a loss exceeded, if finite, with probability at most e^log_tail, the theta that gives it): Chernoff."""
        theta = self._least(lambda t: (self._sketched(t) - log_tail) / t)
        return (self.log_moment(theta) - log_tail) / theta, theta

    def compose(self, theta: float, log_tail: float) -> "Composed":
        """The sum of the losses, tilted by theta, in a window whose upper end is passed with e^log_tail at most."""
        reach, _ = self.quantile(log_tail)
        theta, bottom, top = self._tilt(theta, reach)
        size = min(WIDEST, 2 ** ceil(log2(max(16.0, (top - bottom) / self.interval + 4))))
        last = min(ceil(bottom / self.interval) + size, ceil(top / self.interval)) + 1
        last = max(last, ceil(reach / self.interval) + 1)
        # Transforms are multiplied; the envelope bounds how rounding grows along the way.
        spectrum, envelope = np.ones(size // 2 + 1, dtype=np.complex128), np.ones(size // 2 + 1)
        for mass, times in zip(self.masses, self.times, strict=True):
            part = np.asarray(rfft(self._wrapped(mass, theta, size)))
            spectrum *= _power(part, times)
            envelope *= (np.abs(part) + _fft_error(size)) ** (times - 1)
        # The sum is known modulo `size`: turned so that the window ends at `last`.
        masses = np.roll(np.asarray(irfft(spectrum, size)), -(last + 1))
        total = sum(self.times)
        return Composed(
            interval=self.interval,
            losses=np.arange(last + 1 - size, last + 1, dtype=np.float64) * self.interval,
            tilted=np.maximum(masses, 0.0),
            theta=theta,
            log_moment=self.log_moment(theta) + 1e-12 * total,
            rounding=_rounding(size, total, float(np.mean(envelope))),
            lost=self.infinite + exp(log_tail),
        )

    def _wrapped(self, mass: Floats, theta: float, size: int) -> Floats:
        """One step's masses, tilted, modulo `size`.

        The sum is needed modulo `size` only. What is wrapped round can only add mass to the window; what truly lies
        above the window is counted by log_tail.
        """
        tilt = theta * self._grid(mass)
        tilted = mass * np.exp(tilt - logsumexp(tilt, b=mass))
        half = len(mass) // 2
        wrapped = np.zeros(size)
        np.add.at(wrapped, np.arange(-half, half + 1) % size, tilted)
        return wrapped

    def _tilt(self, theta: float, reach: float) -> tuple[float, float, float]:
        """(theta, bottom, top): the tilt asked for, or less of it.

        Draws with replacement have losses with a heavy tail: tilting may lift rare high losses to a second hump, far
        away. Less tilt keeps it down.
        """
        for _ in range(8):
            bottom, top = self._window(theta)
            top = max(top, reach)
            if top - bottom <= min(4 * (reach - bottom), (WIDEST - 4) * self.interval):
                break
            # Every tilt gives a valid bound. Eight steps of this size take 96 % of the tilt away.
            theta /= 1.5
        return theta, bottom, top

    def _window(self, theta: float) -> tuple[float, float]:
        """Losses between which the tilted sum lies but for about 1e-9 on either side. Only tightness hangs on it."""
        here = self._sketched(theta) - log(1e9)
        down = self._least(lambda s: (self._sketched(theta - s) - here) / s)
        up = self._least(lambda s: (self._sketched(theta + s) - here) / s)
        return (here - self._sketched(theta - down)) / down, (self._sketched(theta + up) - here) / up

    def _least(self, bound: Callable[[float], float]) -> float:
        """The theta > 0 with about the least bound. Every theta gives a valid one, so the search need not be exact."""
        low, high = log(1e-3 / self.scale), log(100 / self.scale)
        found = minimize_scalar(lambda t: bound(exp(t)), bounds=(low, high), method="bounded", options={"xatol": 0.02})
        return exp(float(found.x))

    def _sketched(self, theta: float) -> float:
        """About K(theta), from few bins."""
        values = [logsumexp(theta * losses, b=mass) for losses, mass in self.sketch]
        return float(np.dot(self.times, values))

    @cached_property
    def sketch(self) -> list[tuple[Floats, Floats]]:
        """(mean loss, mass) of blocks of bins that widen by about one percent away from zero, per step."""
        return [_blocks(self._grid(mass), mass) for mass in self.masses]

    def _grid(self, mass: Floats) -> Floats:
        """The losses at which these masses lie."""
        half = len(mass) // 2
        return np.arange(-half, half + 1, dtype=np.float64) * self.interval


@dataclass(frozen=True)
class Composed:
    """The losses of a whole run, from which epsilon and delta are read.

    Formal guarantees:
        `delta(eps)` is at least sum_i P(L_i) max(0, 1 - e^{eps - L_i}) of the discretised losses, and those dominate
        the run. `rounding` bounds what the FFT can have taken from any one tilted mass.
    """

    interval: float  # between neighbouring losses of the grid
    losses: Floats
    tilted: Floats  # masses e^{theta L} / e^{log_moment}
    theta: float
    log_moment: float
    rounding: float
    lost: float  # mass that was cut off, counted as if every such run gave the row away

    def describe(self) -> str:
        """How fine the grid is."""
        return f"{len(self.losses)} losses, {self.interval:.3g} apart; {self.lost:.3g} of probability cut off"

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta(epsilon)."""
        start = int(np.searchsorted(self.losses, epsilon, side="right"))
        gap = epsilon - self.losses[start:]
        # Relative to e^{K - theta eps} all weights are in [0, 1]: nothing overflows.
        weights = -np.expm1(gap) * np.exp(self.theta * gap)
        inside = float(np.sum((self.tilted[start:] + self.rounding) * weights))
        height = self.log_moment - self.theta * epsilon
        return min(1.0, self.lost + exp(min(height, 700.0)) * inside)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 with `self.delta(epsilon) <= delta`, rounded up; inf if there is none here."""
        low, high = max(0.0, float(self.losses[0])), float(self.losses[-1])
        if self.delta(low) <= delta:
            return low
        # Beyond the last loss only `lost` is left, which no epsilon buys back.
        if self.delta(high) > delta:
            return inf
        root = float(brentq(lambda e: log(self.delta(e) / delta), low, high, xtol=1e-12, rtol=1e-12))
        step = 1e-12 * max(root, self.interval)
        while self.delta(root) > delta:
            root, step = root + step, 2 * step
        return root * (1 + 4 * UNIT)


def _blocks(losses: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """(mean loss, mass) of blocks of bins, one bin wide near zero and ever wider away from it: `Losses.sketch`."""
    half = len(mass) // 2
    away = np.unique(np.geomspace(1, half, 1500).astype(np.int64))
    starts = np.concatenate((half - away[::-1], [half], half + away))
    sums = np.add.reduceat(mass, starts)
    # Masses near the end of the numbers would make a mean of 0 / 0.
    sums[sums < 1e-290] = 0.0
    return np.add.reduceat(mass * losses, starts) / np.where(sums > 0, sums, 1.0), sums


def _power(values: np.ndarray, times: int) -> np.ndarray:
    """values ** times by squaring: the relative error is below 3 `times` UNIT."""
    result, square = np.ones_like(values), values
    while times:
        if times & 1:
            result = result * square
        times >>= 1
        if times:
            square = square * square
    return result


def _fft_error(size: int) -> float:
    """How far a transform of `size` numbers can be off, anywhere, per unit of their l1 norm.

    Each input reaches each output through log2(size) multiplications by a root of unity and as many additions, so its
    coefficient is off by a factor (1 + 8 UNIT)^log2(size) at most (compare Higham 2002, Section 24.1).
    """
    return 8 * UNIT * (log2(size) + 1)


def _rounding(size: int, total: int, envelope: float) -> float:
    """What transforms and powers can take from one tilted mass.

    With e the error of a transform, |(f + e)^T - f^T| <= T e (|f| + e)^(T-1) at every frequency, powers add 3 T UNIT of
    that, and the inverse averages over the frequencies: `envelope` is the mean of (|f| + e)^(T-1), over half of them.
    The inverse adds e times the mean of |f|^T. Doubled for the halves and again for terms of second order.
    """
    return 4 * envelope * (_fft_error(size) * (total + 1) + 3 * UNIT * total)


# -- sampled ----------------------------------------------------------------------------------------------------------
# One sampled Gaussian step under replace-one: a curve that bounds its privacy profile, and its losses on a grid.
#
# J is how often the replaced row is drawn, p_j = P(J = j), gamma = P(J >= 1), H_a(P||Q) the hockey-stick divergence
# integral of max(P - a Q, 0), N_j the pair N(j/sigma, 1) against N(0, 1). For eps' >= 0
#
#     B(eps') = sum_{j >= 1} p_j H_{e^eps}(N_j),      e^eps' = 1 + gamma (e^eps - 1)
#
# bounds the profile of the step in both directions (advanced joint convexity: Balle, Barthe & Gaboardi 2018, Theorem
# 2). With B(-eps') = 1 - e^-eps' + e^-eps' B(eps') it is the profile of one dominating pair, so it composes adaptively
# (Zhu, Dong & Wang 2022, Theorem 10). The proof is in docs/proofs/sampling.md.


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
    """A loss that the step exceeds with probability at most `beyond`, apart from `step.beyond`: its grid may
    end there.
    """
    share = beyond / len(step.weights)
    losses = [_outer(step.mus[0] ** 2 / 2 + step.mus[0], step.gamma)]
    for p, mu in zip(step.weights, step.mus, strict=True):
        if p > share:
            losses.append(_outer(mu * mu / 2 - mu * float(ndtri(min(0.5, share / p))), step.gamma))
    return max(losses)


def second_moment(step: Step, top: float) -> float:
    """About E[L^2], to choose a grid by: nothing sound hangs on it."""
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
        outside = (1 - step.gamma) / step.gamma * ndtr(-b)
        inside = ndtr(-a)
        above += p * (outside + inside)
        scaled += p * (outside + np.exp(-a * a / 2) * erfcx(b / sqrt(2)) / 2)
        # Rounding moves a and b by at most 8 UNIT b, and the hazard of a normal law at a is at most 1 + |a|.
        error += p * (16 * UNIT * (4 + (1 + np.abs(a)) * b) + step.relative_error) * (outside + inside)
    return above, scaled, error


def _inner(losses: Floats, gamma: float) -> Floats:
    """log(1 + (e^L - 1) / gamma), stable for small and for large L."""
    small = np.log1p(np.expm1(np.minimum(losses, 1.0)) / gamma)
    large = losses - log(gamma) + np.log1p(-(1 - gamma) * np.exp(-np.maximum(losses, 1.0)))
    return np.where(losses < 1.0, small, large)


def _outer(loss: float, gamma: float) -> float:
    """log(1 + gamma (e^l - 1)), the way back."""
    return log1p(gamma * expm1(loss)) if loss < 1.0 else loss + log(gamma + (1 - gamma) * exp(-loss))
