"""From scores in two worlds to a lower bound on epsilon.

**By counting** (`counted`). A threshold is fixed beforehand; of N runs in the two worlds together, half in each, some
are guessed right. Whoever guesses, the chance p of being right is at most (1 + TV) / 2, TV = delta(0) the total
variation between the worlds. Guesses are independent, with one chance in each world, so the number of right ones is no
more spread than binomial (Hoeffding 1956, Theorem 4), and Clopper and Pearson's bound on p holds. Nothing is assumed of
the scores. What epsilon a TV stands for depends on the kind of claim:

    pure             e^eps / (1 + e^eps) >= p
    Gaussian         mu = 2 Phi^-1(p), and epsilon at delta follows from mu
    other            the claimed mechanism with so much less noise that its TV is 2 p - 1

so it is the least epsilon of a claim of the same kind that these runs do not refute.

**For any mechanism** (`counted_for_any`). p1 <= e^eps p0 + delta, p1 and p0 the chances of passing a threshold in the
two worlds: nothing is assumed of the kind of claim either, and little can be shown with few runs.

**By the normal law** (`by_normal_law`). If scores are normal with one variance, mu is the distance of their means in
standard deviations, and its estimate has the variance 2/n + mu^2/(4 n) (Hedges and Olkin 1985). Sharper, and only as
good as that assumption: signs of normal numbers, say, lie farther apart than the numbers. So it raises no alarm.

**By the size of the noise** (`noise_size`). A chi-squared test, which assumes that noise is normal.
"""

from dataclasses import dataclass, replace
from math import exp, inf, log, sqrt
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, chdtr, ndtri, stdtrit

from sottovoce.arrays import Floats
from sottovoce.errors import UnsupportedError, expect
from sottovoce.privacy import (
    Event,
    Gaussian,
    GaussianObjective,
    Repeated,
    SampledGaussian,
    Sequence,
    delta,
    epsilon,
    epsilon_of_mu,
)
from sottovoce.privacy.accounting.accountant import plain_mu
from sottovoce.privacy.accounting.gaussian import mu_for
from sottovoce.settings import written_as

LEAST_NOISE, MOST_NOISE = 1e-3, 1e4  # times what is claimed; a bound on epsilon goes no further
_ROUNDING = 1e-9  # times the noise: what moves a message by less may be rounding
ASSUMPTION = "scores are normal, with the same variance in both worlds"


class Claim(NamedTuple):
    """The guarantee that was promised against the observer."""

    event: Event  # of which kind it is; what it costs may be less than epsilon
    epsilon: float
    delta: float  # 0 where the claim is pure

    @property
    def mu(self) -> float | None:
        """mu of Gaussian differential privacy; None if the claim is of another kind."""
        return mu_for(self.epsilon, self.delta) if self.delta > 0 and plain_mu(self.event) is not None else None

    def epsilon_at(self, chance: float) -> float:
        """The least epsilon of a claim of this kind under which a guess may be right with this chance."""
        if chance <= 0.5:
            return 0.0
        if self.delta == 0:
            return log(chance / (1 - chance)) if chance < 1 else inf
        if self.mu is not None:
            return epsilon_of_mu(2 * float(ndtri(chance)), self.delta) if chance < 1 else inf
        noise = self._noise_at(chance)
        return 0.0 if noise is None else epsilon(less_noise(self.event, noise), self.delta)

    def _noise_at(self, chance: float) -> float | None:
        """How many times the claimed noise allows for no more than this chance; None where no noise is known to.

        An accountant's total variation may have a floor: objective perturbation pays for its Jacobian whatever the
        noise. A chance below it says nothing against any claim of that kind.
        """

        def excess(log_noise: float) -> float:
            return delta(less_noise(self.event, exp(log_noise)), 0.0) - (2 * chance - 1)

        low, high = log(LEAST_NOISE), log(8.0)
        while excess(high) > 0:
            if high >= log(MOST_NOISE):
                return None
            high += log(8.0)
        if excess(low) < 0:
            return LEAST_NOISE
        return exp(float(brentq(excess, low, high, xtol=1e-4)))


def less_noise(event: Event, part: float) -> Event:
    """The event with every noise multiplier times `part`; refuses noise that is not Gaussian."""
    match event:
        case Gaussian() | SampledGaussian() | GaussianObjective():
            return replace(event, sigma=event.sigma * part)
        case Repeated(event=inner, times=times):
            return Repeated(less_noise(inner, part), times)
        case Sequence(events=events):
            return Sequence(tuple(less_noise(inner, part) for inner in events))
    raise UnsupportedError(f"Expected Gaussian noise where delta > 0, got {type(event).__name__}.")


def clopper_pearson(hits: int, of: int, confidence: float) -> float:
    """Lower one-sided confidence bound on a chance, from `hits` in `of` trials."""
    expect(0 <= hits <= of and of >= 1, "0 <= hits <= of", hits=hits, of=of)
    return float(betaincinv(hits, of - hits + 1, 1 - confidence)) if hits else 0.0


class EventCounts(NamedTuple):
    """Number of runs in each world whose score is above a fixed threshold."""

    first: int  # in the first world, where it is a mistake
    second: int
    runs: int  # of each world

    @classmethod
    def of(cls, first: Floats, second: Floats, threshold: float) -> "EventCounts":
        """Count the scores (runs,) above the threshold; refuses different numbers of runs in the two worlds."""
        expect(len(first) == len(second), "as many runs in both worlds", first=len(first), second=len(second))
        return cls(int(np.sum(first > threshold)), int(np.sum(second > threshold)), len(first))

    @property
    def right(self) -> int:
        """Number of right guesses, over both worlds."""
        return self.second + self.runs - self.first


def counted(counts: EventCounts, claim: Claim, confidence: float) -> float:
    """Lower bound on epsilon for a claim of this kind, by counting right guesses."""
    return claim.epsilon_at(clopper_pearson(counts.right, 2 * counts.runs, confidence))


def counted_for_any(counts: EventCounts, at: float, confidence: float) -> float:
    """Lower bound on epsilon at delta `at`, for any mechanism. Each of two chances gets half of the error."""
    each = (1 + confidence) / 2
    n, found = counts.runs, 0.0
    for more, less in ((counts.second, counts.first), (n - counts.first, n - counts.second)):
        low, high = clopper_pearson(more, n, each), 1 - clopper_pearson(n - less, n, each)
        if low > at and high > 0:
            found = max(found, log((low - at) / high))
    return found


class Distance(NamedTuple):
    """Distance between the mean scores of the two worlds, in standard deviations."""

    mu: float
    runs: int  # of each world

    @classmethod
    def of(cls, first: Floats, second: Floats) -> "Distance":
        """Estimate it from scores (runs,) in the two worlds."""
        spread = sqrt((float(np.var(first, ddof=1)) + float(np.var(second, ddof=1))) / 2)
        return cls(float(second.mean() - first.mean()) / max(spread, np.finfo(np.float64).tiny), len(first))

    def lower(self, confidence: float) -> float:
        """Lower confidence bound on the true distance if scores are normal, at least 0."""
        n = self.runs
        error = sqrt(2 / n + self.mu**2 / (4 * n))
        return max(self.mu - float(stdtrit(2 * n - 2, confidence)) * error, 0.0)


def by_normal_law(distance: Distance, claim: Claim, confidence: float) -> float | None:
    """Lower bound on epsilon if scores are normal; None for a pure claim, which normal scores cannot bound."""
    if claim.delta == 0:
        return None
    return epsilon_of_mu(min(distance.lower(confidence), 1e3), claim.delta)


class NoiseSize(NamedTuple):
    """The noise of one round's messages, relative to what the claim needs for the two rows."""

    round: int
    size: float  # standard deviation, over that; at least 1 if the claim holds, up to chance
    p: float  # how likely so little noise is, if the claim holds and noise is normal


def noise_size(k: int, noise: Floats, moved: Floats, mu: float) -> NoiseSize:
    """A chi-squared test of the noise in messages of round k, along the direction in which two rows move them.

    Args:
        k: the round.
        noise: what noise has added to the messages, (numbers, runs).
        moved: by how much the other row would have moved them, given all that was said before: (numbers, runs).
        mu: what the round costs. It may move a message by mu standard deviations at most, so the noise along that
            direction has a standard deviation of at least |moved| / mu.
    """
    squared = np.sum(moved**2, axis=0)
    there = squared > _ROUNDING**2 * np.mean(noise**2)
    if not there.any():
        return NoiseSize(k, inf, 1.0)
    along = mu * np.sum(noise * moved, axis=0)[there] / squared[there]
    squares, n = float(along @ along), int(there.sum())
    return NoiseSize(k, sqrt(squares / n), float(chdtr(n, squares)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Verdict:
    """The result of an attack on the claim of an algorithm or of a release.

    `lower` and `lower_any` assume nothing of the scores; `lower_gaussian` assumes what `assumption` says, and is None
    for a pure claim. `noise` assumes that noise is normal and fresh. `alarm`: the claim is wrong, or something happened
    that happens once in a million audits.
    """

    claim: Claim  # what was asked for, which is what is attacked
    confidence: float
    lower: float
    lower_gaussian: float | None
    lower_any: float
    distance: float  # of the scores, in standard deviations
    counts: EventCounts
    noise: NoiseSize | None  # of the round where it looks smallest; None where it cannot be solved for
    tests: int  # that could raise the alarm
    alarm: bool
    runs: int
    seed: int | None
    seconds: float
    first: Floats  # scores, (runs,), in the first world
    second: Floats
    threshold: float
    assumption: str = ASSUMPTION

    @property
    def watched(self) -> str:
        """What the observer sees, in a few words."""
        raise NotImplementedError

    @property
    def ratio(self) -> float:
        """Lower bound by counting, over the claimed epsilon."""
        return self.lower / self.claim.epsilon

    @property
    def ratio_gaussian(self) -> float | None:
        """Lower bound by the normal law, over the claimed epsilon; None for a pure claim."""
        return None if self.lower_gaussian is None else self.lower_gaussian / self.claim.epsilon

    def prose(self) -> str:
        """The verdict as one paragraph."""
        raise NotImplementedError

    def told(self) -> dict[str, Any]:
        """All numbers of the verdict but the scores, for JSON."""
        n = self.counts.runs
        return {
            "claimed": self.claim.epsilon,
            "delta": self.claim.delta,
            "lower": self.lower,
            "lower_gaussian": self.lower_gaussian,
            "lower_any": self.lower_any,
            "ratio": self.ratio,
            "ratio_gaussian": self.ratio_gaussian,
            "confidence": self.confidence,
            "assumption": self.assumption,
            "alarm": self.alarm,
            "tests": self.tests,
            "mu": {"claimed": self.claim.mu, "estimated": self.distance},
            "rates": {"false_positives": self.counts.first / n, "true_positives": self.counts.second / n},
            "noise": self.noise,
            "runs": self.runs,
            "seed": self.seed,
            "seconds": self.seconds,
        }


written_as(Verdict, lambda verdict: verdict.told())


def claimed_curve(claim: Claim, grid: Floats) -> Floats:
    """Largest share of the second world's runs that may pass a threshold, for each share `grid` of the first's."""
    if claim.mu is not None:
        from scipy.special import ndtr

        curve: Floats = ndtr(ndtri(grid) + claim.mu)
        return curve
    lines, most = [], exp(claim.epsilon)
    for e in np.linspace(0, claim.epsilon, 9).tolist():
        # The worst pure mechanism is randomised response, whose total variation falls to 0 at its epsilon.
        pure = max(most - exp(e), 0.0) / (1 + most)
        lines.append((e, delta(claim.event, e) if claim.delta > 0 else pure))
    bounds = [np.minimum(exp(e) * grid + d, 1 - exp(-e) * np.maximum(1 - d - grid, 0.0)) for e, d in lines]
    found: Floats = np.minimum(np.min(bounds, axis=0), 1.0)
    return found
