"""The survival curve of one group from its noisy counts: Kaplan-Meier's at the ends of bins, with 95 % intervals.

With d_j the events of bin j, n_j the rows that are watched when it begins, and l_j what censored rows lack of it,

    m_j = n_j - l_j            rows at risk in the bin, each for the part of it that it is watched
    q_j = d_j / m_j            share of these with an event
    S_j = prod (1 - q_i)       over i <= j: the share without an event until the end of bin j

If all times are ends of bins, that is Kaplan-Meier's curve. Between ends of bins it is a straight line. All counts are
sums of noisy cells, so to first order S_j has the variance

    S_j^2 (sum q_i / (m_i (1 - q_i)) + noise of sum (d_i - q_i m_i) / (m_i (1 - q_i)))

Greenwood's, and that of the noise. An interval is Wilson's, for so many rows that their share S_j would have the first,
widened by the second. From the bin on in which those at risk are not clear of the noise, nothing is told.
"""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import NamedTuple, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.tables.consistent import View
from sottovoce.tables.figures import CLEAR
from sottovoce.tally.intervals import Interval, Z, share

HALF = 0.5


@final
@dataclass(frozen=True)
class Reached:
    """A time with its 95 % interval. None: not within the time that rows were watched, or the noise hides it."""

    value: float | None
    low: float
    high: float | None


class _Hazards(NamedTuple):
    """What is known of the bins before the first that the noise hides: (told,) each."""

    at_risk: Floats  # m
    share: Floats  # q, as it is
    kept: Floats  # 1 - q, at least something
    likely: Floats  # q within 0 and 1


@final
@dataclass(frozen=True, eq=False)
class LifeTable:
    """The counts of one group, or of all rows.

    Args:
        view: of the cells: events by bin, censored rows by bin, rows that were watched beyond the last bin.
        lost: what censored rows lack of each bin, (K,).
        lost_noise: variance of the noise in each of these.
        times: where the first bin begins, and where all end, (K + 1,).
    """

    view: View
    lost: Floats
    lost_noise: float
    times: Floats

    @property
    def bins(self) -> int:
        """K."""
        return len(self.lost)

    @property
    def watched(self) -> Floats:
        """Which cells are of rows that are watched when a bin begins, 0 or 1, and beyond the last: (K + 1, cells)."""
        return watched(self.bins)

    @property
    def at_start(self) -> Floats:
        """n_j of every bin, and the rows beyond the last: (K + 1,)."""
        numbers: Floats = self.watched @ self.view.cells
        return numbers

    def at_risk(self, j: int, rows: int) -> Interval:
        """How many of so many rows in all are watched when bin j begins, or beyond the last."""
        return self.view.counted(self.watched[j], float(rows))

    @cached_property
    def _hazards(self) -> _Hazards:
        m = self.at_start[:-1] - self.lost
        noise = np.array([self.view.noise(one, one) + self.lost_noise for one in self.watched[:-1]])
        told = clear(m, noise)
        q = self.view.cells[:told] / m[:told]
        return _Hazards(m[:told], q, np.maximum(1 - q, 1e-9), np.clip(q, 0.0, 1.0))

    @property
    def told(self) -> int:
        """How many bins there are before the first that the noise hides."""
        return len(self._hazards.at_risk)

    @cached_property
    def _survived(self) -> Floats:
        """S_j as it comes, from 1 on: (told + 1,)."""
        return np.concatenate([[1.0], np.cumprod(self._hazards.kept)])

    @property
    def _sampling(self) -> Floats:
        """What each bin adds to the variance of log S from drawing rows, (told,)."""
        m, _, _, q = self._hazards
        terms: Floats = self.view.together * q / (m * np.maximum(1 - q, 1e-9))
        return terms

    def _noise(self, weights: Floats) -> float:
        """Variance from the noise of the sum of weights times -log(1 - q_i), (told,)."""
        m, q, kept, _ = self._hazards
        each, told = weights / (m * kept), self.told
        of_cells = -((each * q) @ self.watched[:told])
        of_cells[:told] += each
        return self.view.noise(of_cells, of_cells) + self.lost_noise * float(np.sum((each * q) ** 2))

    @cached_property
    def curve(self) -> tuple[Interval, ...]:
        """The share without an event until each of `times`, (K + 1,). Estimates never rise; intervals hold them."""
        from scipy.optimize import isotonic_regression

        found, high = [Interval(1.0, 1.0, 1.0)], 1.0
        falling = isotonic_regression(np.clip(self._survived, 0.0, 1.0), increasing=False).x.tolist()
        greenwood, likely = np.cumsum(self._sampling) / self.view.together, np.cumprod(1 - self._hazards.likely)
        for j in range(1, self.bins + 1):
            if j > self.told:
                found.append(Interval(None, 0.0, high))
                continue
            raw, spread = float(self._survived[j]), float(likely[j - 1] * greenwood[j - 1])
            many = (1 - float(likely[j - 1])) / spread if spread > 0 else float(self._hazards.at_risk[0])
            noise = raw**2 * self._noise((np.arange(self.told) < j).astype(np.float64))
            one = share(min(max(raw, 0.0), 1.0) * many, many, (noise * many**2, 0.0, 0.0), self.view.together)
            value = falling[j] if one.value is not None else None
            held = (one.low, one.high) if value is None else (min(one.low, value), max(one.high, value))
            found.append(Interval(value, *held))
            high = held[1]
        return tuple(found)

    def mean(self) -> Interval:
        """The restricted mean: the mean time without an event, up to the end of the last bin. The area below the
        curve.
        """
        widths = np.diff(self.times)
        weights = np.concatenate([[0.0], widths / 2]) + np.concatenate([widths / 2, [0.0]])
        low, high = (float(weights @ [getattr(one, end) for one in self.curve]) for end in ("low", "high"))
        if self.told < self.bins:
            return Interval(None, low, high)
        area = np.cumsum((weights * self._survived)[::-1])[::-1]
        value = min(max(float(area[0]), 0.0), float(self.times[-1]))
        half = Z * sqrt(float(area[1:] ** 2 @ self._sampling) + self._noise(area[1:]))
        return Interval(value, max(value - half, 0.0), min(value + half, float(self.times[-1])))

    def median(self) -> Reached:
        """The time until which half of the rows have an event. Where in a bin events lie is not known, so the interval
        takes in whole bins.
        """
        value, low, high = (self._half([getattr(one, end) for one in self.curve]) for end in _ENDS)
        between = None if value is None else float(np.interp(value[1], [0, 1], self.times[value[0] - 1 : value[0] + 1]))
        return Reached(
            between, float(self.times[-1 if low is None else low[0] - 1]),
            None if high is None else float(self.times[high[0]]),
        )  # fmt: skip

    def _half(self, curve: list[float | None]) -> tuple[int, float] | None:
        """The bin in which a curve through these shares first is 1/2, and which part of it is over then; None if it
        never is.
        """
        before = 1.0
        for j, share_ in enumerate(curve[1:], start=1):
            if share_ is None:
                return None
            if share_ <= HALF:
                return j, (before - HALF) / (before - share_)
            before = share_
        return None


_ENDS = ("value", "low", "high")


def watched(bins: int) -> Floats:
    """Which cells are of rows that are watched when a bin begins, 0 or 1, and beyond the last: (bins + 1, cells)."""
    of_bin = np.concatenate([np.arange(bins), np.arange(bins), [bins]])
    later: Floats = (of_bin >= np.arange(bins + 1)[:, None]).astype(np.float64)
    return later


def clear(at_risk: Floats, noise: Floats) -> int:
    """How many bins there are before the first in which the rows at risk are not clear of the noise.

    Args:
        at_risk: m_j, (K,).
        noise: its variance.
    """
    hidden = np.flatnonzero(at_risk <= np.maximum(CLEAR * np.sqrt(noise), 1e-9))
    return int(hidden[0]) if len(hidden) else len(at_risk)
