"""Adaptive composition of discretised losses by one tilted FFT, with a proved error budget.

The losses of the steps add up (Zhu, Dong & Wang 2022, Theorem 10), so their distribution is a convolution. Each step's
masses are first tilted, m(L) e^{theta L} / M(theta), which centres the sum where delta is decided. Rounding then
costs a tiny fraction of delta itself, however small delta is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil, exp, inf, log, log2, sqrt

import numpy as np
import scipy

from sottovoce.arrays import Floats
from sottovoce.privacy.accounting.gaussian import UNIT
from sottovoce.privacy.accounting.sampled import Step, discretise, highest_loss, second_moment

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
        values = [scipy.special.logsumexp(theta * self._grid(m), b=m) for m in self.masses]
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
            part = np.asarray(scipy.fft.rfft(self._wrapped(mass, theta, size)))
            spectrum *= _power(part, times)
            envelope *= (np.abs(part) + _fft_error(size)) ** (times - 1)
        # The sum is known modulo `size`: turned so that the window ends at `last`.
        masses = np.roll(np.asarray(scipy.fft.irfft(spectrum, size)), -(last + 1))
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
        tilted = mass * np.exp(tilt - scipy.special.logsumexp(tilt, b=mass))
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
        """Losses between which the tilted sum lies but for about 1e-9 on either side. Only tightness depends on it."""
        here = self._sketched(theta) - log(1e9)
        down = self._least(lambda s: (self._sketched(theta - s) - here) / s)
        up = self._least(lambda s: (self._sketched(theta + s) - here) / s)
        return (here - self._sketched(theta - down)) / down, (self._sketched(theta + up) - here) / up

    def _least(self, bound: Callable[[float], float]) -> float:
        """The theta > 0 with about the least bound. Every theta gives a valid one, so the search need not be exact."""
        low, high = log(1e-3 / self.scale), log(100 / self.scale)
        found = scipy.optimize.minimize_scalar(
            lambda t: bound(exp(t)), bounds=(low, high), method="bounded", options={"xatol": 0.02}
        )
        return exp(float(found.x))

    def _sketched(self, theta: float) -> float:
        """About K(theta), computed from few bins."""
        values = [scipy.special.logsumexp(theta * losses, b=mass) for losses, mass in self.sketch]
        return float(np.dot(self.times, values))

    @cached_property
    def sketch(self) -> list[tuple[Floats, Floats]]:
        """(mean loss, mass) of blocks of bins, per step: one bin wide near zero and ever wider away from it."""
        found = []
        for mass in self.masses:
            half = len(mass) // 2
            away = np.unique(np.geomspace(1, half, 1500).astype(np.int64))
            starts = np.concatenate((half - away[::-1], [half], half + away))
            sums = np.add.reduceat(mass, starts)
            # Masses near the end of the numbers would make a mean of 0 / 0.
            sums[sums < 1e-290] = 0.0
            means = np.add.reduceat(mass * self._grid(mass), starts) / np.where(sums > 0, sums, 1.0)
            found.append((means, sums))
        return found

    def _grid(self, mass: Floats) -> Floats:
        """The losses at which these masses lie."""
        half = len(mass) // 2
        return np.arange(-half, half + 1, dtype=np.float64) * self.interval


@dataclass(frozen=True)
class Composed:
    """The losses of a whole run, which give its epsilon and delta.

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

    @property
    def words(self) -> str:
        """Size and interval of the grid, and the mass that was cut off, in words."""
        return f"{len(self.losses)} losses, {self.interval:.3g} apart; {self.lost:.3g} of probability cut off"

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta at this epsilon."""
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
        root = float(scipy.optimize.brentq(lambda e: log(self.delta(e) / delta), low, high, xtol=1e-12, rtol=1e-12))
        step = 1e-12 * max(root, self.interval)
        while self.delta(root) > delta:
            root, step = root + step, 2 * step
        return root * (1 + 4 * UNIT)


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
    """A bound on the error of one tilted mass by transforms and powers.

    With e the error of a transform, |(f + e)^T - f^T| <= T e (|f| + e)^(T-1) at every frequency, powers add 3 T UNIT of
    that, and the inverse averages over the frequencies: `envelope` is the mean of (|f| + e)^(T-1), over half of them.
    The inverse adds e times the mean of |f|^T. Doubled for the halves and again for terms of second order.
    """
    return 4 * envelope * (_fft_error(size) * (total + 1) + 3 * UNIT * total)
