"""The piecewise exponential likelihood of times to an event: one log-hazard for each of K intervals.

Times are counted in intervals: a time of 2.5 is in the middle of the third. A label is that time, from above 0 to K. It
is positive if the time ended with the event, and negative if the row was censored then. With e_k the part of interval k
that a row was watched, z_k the log-hazard there, and j the interval of the event, if there was one,

    loss = C(sum_k e_k exp(z_k)) - z_j         slope_k = e_k exp(z_k) min(1, MOST / sum) - [k = j]

C(x) is x up to MOST and MOST (1 + ln(x / MOST)) beyond, so that the loss is convex and its slope is bounded. The model
is a (d, K) matrix, one column for each interval; hazards are proportional if columns differ in the intercept alone.
"""

# ruff: noqa: ARG004 (every formula has the same three arguments)

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, isfinite, log
from typing import final

import numpy as np

from sottovoce.arrays import Array, Bools, Floats
from sottovoce.errors import expect
from sottovoce.problem.losses.base import Loss
from sottovoce.problem.losses.labels import Times

MOST = 20.0  # cumulative hazard: one in five hundred million rows has no event before it
ROUNDED = 1e-9  # of an interval: times are no more exact, and none that is learnt is shorter
HIGHEST = 30.0  # log-hazards are cut to this where nothing else bounds them


@final
@dataclass(frozen=True)
class PiecewiseExponential(Loss):
    """Minus the logarithm of the likelihood, with hazards that are constant within each of K intervals.

    Args:
        ends: where the first interval begins, which is 0, and where all end, in the unit of time: two of them at least.

    Formal guarantees: no slope is longer than `slope_bound`, since its parts without the event add up to MOST at most.
    """

    name = "piecewise-exponential"
    slope_bound = hypot(MOST, 1.0)
    smoothness_bound = MOST
    ends: tuple[float, ...]

    def __post_init__(self) -> None:
        rises = len(self.ends) > 2 and self.ends[0] == 0 and bool(np.all(np.diff(self.ends) > 0))
        fine = rises and isfinite(self.ends[-1])
        expect(fine, "times that rise from 0, the ends of two intervals or more", "Say more bins", ends=self.ends)

    @property
    def outputs(self) -> int:
        """K, the number of intervals."""
        return len(self.ends) - 1

    @property
    def labels(self) -> Times:
        """Times up to the end of the last interval."""
        return Times(self.outputs)

    @property
    def theta(self) -> float:
        return float(self.outputs)

    def survival(self, z: Floats, times: Sequence[float]) -> Floats:
        """The share without an event until each of these times, (rows, times), at log-hazards z (rows, K). Times are in
        the unit of the ends; those below 0 or beyond the last end are refused.
        """
        within = all(0 <= time <= self.ends[-1] for time in times)
        expect(within, f"times from 0 to {self.ends[-1]:g}, until which hazards were learnt", times=list(times))
        parts = watched(np.interp(times, self.ends, np.arange(len(self.ends))), self.outputs)
        kept: Floats = np.exp(-np.exp(np.minimum(z, HIGHEST)) @ parts.T)
        return kept

    @staticmethod
    def value(z: Array, b: Array, theta: float) -> Array:
        total, _ = _cumulative(z, b)
        bent = np.exp(np.minimum(total, log(MOST))) + MOST * np.maximum(total - log(MOST), 0.0)
        loss: Array = bent - np.sum(z * _event(z, b), axis=-1)
        return loss

    @staticmethod
    def slope(z: Array, b: Array, theta: float) -> Array:
        total, shares = _cumulative(z, b)
        slope: Array = np.exp(np.minimum(total, log(MOST)))[..., None] * shares - _event(z, b)
        return slope

    @staticmethod
    def curvature(z: Array, b: Array, theta: float) -> Array:
        """On the last two axes."""
        total, p = _cumulative(z, b)
        beyond = (total > log(MOST))[..., None, None] * p[..., None, :]
        size = np.exp(np.minimum(total, log(MOST)))[..., None, None]
        curvature: Array = size * p[..., None] * (np.eye(p.shape[-1], dtype=p.dtype) - beyond)
        return curvature


def in_intervals(times: Floats, happened: Bools, ends: Sequence[float]) -> Floats:
    """Labels from times of 0 or more, in the unit of the ends, and whether they ended with the event. A row that was
    watched for longer than the last end is censored then, and no time is shorter than `ROUNDED` of an interval.
    """
    found = np.interp(times, ends, np.arange(len(ends)))
    # The end of an interval belongs to it, also where it was rounded.
    found = np.where(np.abs(found - np.rint(found)) < ROUNDED, np.rint(found), found)
    signed: Floats = np.maximum(found, ROUNDED) * np.where(happened & (times <= ends[-1] * (1 + ROUNDED)), 1.0, -1.0)
    return signed


def watched(b: Array, intervals: int) -> Array:
    """The part of every interval, on a new last axis, that a row with this label was watched: from 0 to 1."""
    parts: Array = np.clip(np.abs(b)[..., None] - np.arange(intervals), 0.0, 1.0)
    return parts


def event(b: Array, intervals: int) -> Array:
    """1 in the interval of the event, on a new last axis; 0 everywhere if there was none."""
    past = np.asarray(b)[..., None] - np.arange(intervals)
    return 1.0 * ((past > 0) & (past <= 1))


def _event(z: Array, b: Array) -> Array:
    return event(np.broadcast_to(b, z.shape[:-1]), z.shape[-1])


def _cumulative(z: Array, b: Array) -> tuple[Array, Array]:
    """The logarithm of the cumulative hazard, and the share of every interval in it."""
    parts = watched(np.broadcast_to(b, z.shape[:-1]), z.shape[-1])
    with np.errstate(divide="ignore"):
        logs = z + np.log(parts)
    most = np.max(logs, axis=-1, keepdims=True)
    grown = np.exp(logs - most)
    whole = np.sum(grown, axis=-1, keepdims=True)
    return (most + np.log(whole))[..., 0], grown / whole


def log_hazards(labels: Floats, intervals: int, weights: Floats | None = None) -> Floats:
    """The log-hazards of all rows alike that fit these labels best: events over the time that rows were watched."""
    counted = np.ones(len(labels)) if weights is None else weights
    events, times = counted @ event(labels, intervals), counted @ watched(labels, intervals)
    fitted: Floats = np.log(np.maximum(events, 0.5) / np.maximum(times, 0.5))
    return fitted
