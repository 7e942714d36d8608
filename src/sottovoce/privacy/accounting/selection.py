"""Searches: the number K of runs, which is random, and the price of the best of them.

One run has the profile B: its hockey-stick divergence at e^eps is at most B(eps), in both directions. The best of K
runs then has, for every eps,

    K negative binomial (eta, gamma)   E[K] B(eps - (1 + eta) l),    B(l) <= (e^l - 1) gamma / (1 - gamma)
    K Poisson (rate m)                 m E B(eps + e1 - m B(e1) - (e^e1 - 1) V),    V ~ Exp(1), any e1 >= 0

Koskela, Redberg & Wang 2024 have the first; `renyi` holds the bounds of Papernot & Steinke 2021, which need no B. A
search composes with other events through a pair of laws that has its profile. The proofs are in
docs/proofs/selection.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, exp, expm1, log, sqrt
from random import Random, SystemRandom

import numpy as np
import scipy

from sottovoce.arrays import Floats
from sottovoce.errors import UnsupportedError, expect
from sottovoce.privacy.accounting.gaussian import UNIT
from sottovoce.privacy.accounting.losses import Losses
from sottovoce.privacy.events import Event, Gaussian, NegativeBinomialRuns, PoissonRuns, Runs, Sequence

Profile = Callable[[float], float]  # an upper bound on delta for every epsilon >= 0, in both directions

POINTS = 1000  # of a tabulated profile
HIGHEST = 600.0  # losses above count as infinite; e^HIGHEST is still a number
MOST_RUNS = 1e5  # on average
_UP = 1 + 64 * UNIT


def gamma_for(mean: float, eta: float) -> float:
    """The gamma with which `NegativeBinomialRuns(eta, gamma)` has about this mean.

    Args:
        mean: the expected number of runs, from 1 to 100,000.
        eta: the law's shape: 0 is cheapest, 1 the geometric law.
    """
    expect(1 <= mean <= MOST_RUNS, f"a mean number of runs from 1 to {MOST_RUNS:g}", mean=mean)

    def excess(log_gamma: float) -> float:
        return log(NegativeBinomialRuns(eta, exp(log_gamma)).mean / mean)

    return 1.0 if mean == 1 else exp(float(scipy.optimize.brentq(excess, log(1e-99), 0.0, xtol=1e-15)))


def repetitions(runs: Runs, random: Random | None = None) -> int:
    """Draw K: how many runs to make. From the operating system's randomness, unless a test brings its own.

    Formal guarantees:
        K has the law `runs` up to a total variation of 1e-9, mostly far less. Nobody may learn K: see
        `RepeatAndSelect`.
    """
    source = SystemRandom() if random is None else random
    expect(runs.mean <= MOST_RUNS, f"at most {MOST_RUNS:g} runs on average", mean=runs.mean)
    match runs:
        case NegativeBinomialRuns(eta=eta, gamma=gamma):
            if gamma == 1:
                return 1
            first = (1 - gamma) * exp(eta * log(gamma)) / runs.slope
            return _draw(source, 1, first, lambda k: (1 - gamma) * (k + eta) / (k + 1))
        case PoissonRuns(rate=rate):
            # Poisson numbers add up. A part's e^-rate must not underflow.
            parts = ceil(rate / 100)
            each = rate / parts
            return sum(_draw(source, 0, exp(-each), lambda k: each / (k + 1)) for _ in range(parts))
    raise UnsupportedError(f"No sampler for runs={runs!r}.")


def scored(fit: Event, sigma: float) -> Event:
    """One run of a search: a fit, then the number of right answers on the same rows, with noise N(0, sigma^2).

    One row replaced by another moves that number by at most 1. As an accuracy over m rows the noise is sigma / m.
    """
    return Sequence((fit, Gaussian(sigma)))


def negative_binomial_shift(runs: NegativeBinomialRuns, profile: Profile) -> float:
    """(1 + eta) l, the part of a search's epsilon that does not depend on delta; l is the least, rounded up."""

    def enough(loss: float) -> bool:
        return profile(loss) * (1 - runs.gamma) * _UP <= runs.gamma * expm1(loss)

    if profile(0.0) == 0:
        return 0.0
    high = 1e-9
    while not enough(high):
        high *= 2
    low = high / 2
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return (1 + runs.eta) * high * _UP


def profile_of_best(runs: Runs, profile: Profile, least: float) -> Profile:
    """The profile of the best of K runs, from that of one. It need not be tight where it is below `least`."""
    match runs:
        case NegativeBinomialRuns():
            # Once, and not for every epsilon: it is the costly part.
            shift = negative_binomial_shift(runs, profile)
            return lambda epsilon: min(1.0, runs.mean * _UP * _anywhere(profile, (epsilon - shift) * (1 - 4 * UNIT)))
        case PoissonRuns(rate=rate):
            return _poisson(rate, profile, least)
    raise UnsupportedError(f"No price for runs={runs!r}.")


def reach(profile: Profile, least: float) -> float:
    """About the smallest epsilon with profile at most `least`; HIGHEST if there is none below."""
    low, high = 0.0, 1e-3
    while profile(high) > least:
        low, high = high, 2 * high
        if high > HIGHEST:
            return HIGHEST
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if profile(middle) <= least else (middle, high)
    return high


@dataclass(frozen=True)
class ProfileTable:
    """A profile at 0, step, 2 step, ...: falling, each value an upper bound.

    Between two places it is the chord in e^eps, which lies above, since a profile is convex there. A table is cheap to
    evaluate, while a profile may take an FFT.
    """

    step: float
    values: Floats

    @staticmethod
    def of(profile: Profile, step: float, points: int) -> "ProfileTable":
        """A table of the profile. A true profile falls, so the least value so far is also a bound."""
        values = np.array([min(1.0, profile(k * step)) for k in range(points + 1)])
        return ProfileTable(step, np.minimum.accumulate(values))

    def __call__(self, epsilon: Floats) -> Floats:
        """An upper bound anywhere on the line: a true profile is convex in e^eps, so it lies below its chords."""
        away = np.abs(epsilon)
        at = np.minimum(away // self.step, len(self.values) - 1).astype(np.int64)
        after = np.minimum(at + 1, len(self.values) - 1)
        past = np.clip(away - at * self.step, 0.0, self.step)
        share = np.expm1(past) / expm1(self.step)
        found = (self.values[at] * (1 - share) + self.values[after] * share) * _UP
        mirrored = -np.expm1(-away) + np.exp(-away) * found
        bound: Floats = np.minimum(1.0, np.where(epsilon >= 0, found, mirrored * _UP))
        return bound

    def masses(self) -> tuple[Floats, float]:
        """(masses at step, 2 step, ..., the mass at +infinity) of a symmetric pair whose profile is no lower.

        The largest convex function of a = e^eps below the points, by merging neighbours until the slopes -q rise. The
        pair has the mass a (change of q) there, and e^-loss of it at the opposite loss. Masses are used from the top
        until there is no more to give.

        Formal guarantees:
            The pair's profile is at least that of every release whose profile lies below the table: both are convex
            and symmetric, and below the last mass that was used the pair's is a straight line.
        """
        losses = self.step * np.arange(len(self.values))
        slopes = _falling_slopes(np.exp(losses), self.values)
        mirrored = 1 + np.exp(-losses[1:])
        # Rounding takes less than POINTS units from the sums that make up the profile.
        masses = np.maximum(np.exp(losses[1:]) * (slopes - np.append(slopes[1:], 0.0)), 0.0) * (1 + 1e-9)
        infinite = float(self.values[-1]) * (1 + 1e-9)
        above = np.append(np.cumsum((masses * mirrored)[:0:-1])[::-1], 0.0) + infinite
        return np.minimum(masses, np.maximum(1 - above, 0.0) / mirrored), infinite


def tabulated_losses(parts: list[tuple[Profile, int]], least: float) -> Losses:
    """Discretised losses of parts with these profiles, each as often as said, on one grid.

    Formal guarantees:
        The pairs dominate the parts. At most about `least` of each part's mass counts as infinite without need.
    """
    tops = [reach(profile, least) for profile, _ in parts]
    step = max(tops) / POINTS
    tables = [
        ProfileTable.of(profile, step, max(2, ceil(top / step))) for (profile, _), top in zip(parts, tops, strict=True)
    ]
    pairs = [table.masses() for table in tables]
    times = tuple(count for _, count in parts)
    # For the scale of the composition only, which nothing sound depends on.
    squares = [float(np.sum(mass * (step * np.arange(1, len(mass) + 1)) ** 2)) for mass, _ in pairs]
    return Losses(
        interval=step,
        masses=tuple(_both_sides(mass, infinite, step) for mass, infinite in pairs),
        times=times,
        infinite=sum(count * infinite for count, (_, infinite) in zip(times, pairs, strict=True)),
        scale=sqrt(float(np.dot(times, squares))),
    )


def _both_sides(positive: Floats, infinite: float, step: float) -> Floats:
    """Masses on step * (-n, ..., n): the mirrored ones, what is left at 0, and those given."""
    negative = positive * np.exp(-step * np.arange(1, len(positive) + 1))
    zero = max(0.0, 1 - infinite - float(np.sum(positive)) - float(np.sum(negative))) + 64 * UNIT
    return np.concatenate((negative[::-1], [zero], positive))


def _falling_slopes(places: Floats, values: Floats) -> Floats:
    """The slopes, without their sign, of the largest convex function below the points, one for each gap."""
    merged: list[tuple[float, float, int]] = []  # (fall, width, gaps)
    for fall, width in zip(values[:-1] - values[1:], np.diff(places), strict=True):
        part = (float(fall), float(width), 1)
        while merged and merged[-1][0] * part[1] < part[0] * merged[-1][1]:
            last = merged.pop()
            part = (last[0] + part[0], last[1] + part[1], last[2] + part[2])
        merged.append(part)
    return np.concatenate([np.full(gaps, fall / width) for fall, width, gaps in merged])


def _anywhere(profile: Profile, epsilon: float) -> float:
    """The profile B at any epsilon, by B(-x) = 1 - e^-x + e^-x B(x)."""
    return profile(epsilon) if epsilon >= 0 else -expm1(epsilon) + exp(epsilon) * profile(-epsilon)


def _poisson(rate: float, profile: Profile, least: float) -> Profile:
    """The profile of the best of Poisson runs. The mean over V is taken by chords: between two places B lies below its
    chord in e^eps, and that has a closed integral.

    With V from v to v + h, the chord's share of the left end is (e^{-c (V - v)} - e^{-c h}) / (1 - e^{-c h}).
    """
    negligible = 0.01 * least / max(rate, 1.0)
    table = ProfileTable.of(profile, reach(profile, negligible) / POINTS, POINTS)
    c, h = np.geomspace(1e-4, 4.0, 64)[:, None], 0.2
    left = (-np.expm1(-(1 + c) * h) / (1 + c) + np.exp(-c * h) * expm1(-h)) / -np.expm1(-c * h)
    places = h * np.arange(2 + ceil(-log(negligible) / h))
    shares = np.exp(-places) * left
    shares[:, -1] = exp(-places[-1])  # beyond, B is at most 1
    shares[:, 1:] += np.exp(-places[:-1]) * (-expm1(-h) - left)
    moved = np.log1p(c) - rate * table(np.log1p(c)) - c * places

    def bound(epsilon: float) -> float:
        found = table(epsilon + moved - 8 * UNIT * (epsilon + np.abs(moved)))
        found[:, -1] = 1.0
        return float(min(1.0, rate * np.min(np.sum(shares * found, axis=1)) * (1 + 1e-9)))

    return bound


def _draw(random: Random, least: int, first: float, ratio: Callable[[int], float]) -> int:
    """Draw K by inverse transform: P(K = least) = first, P(K = k + 1) = ratio(k) P(K = k)."""
    u, k, mass = random.random(), least, first
    total = mass
    # Ends also where what is left is below 1e-18: u has 53 bits, and rounding may keep the sum below it for ever.
    while u >= total and (ratio(k) >= 1 or mass > 1e-18 * (1 - ratio(k))):
        mass *= ratio(k)
        total, k = total + mass, k + 1
    return k
