"""Sums over all rows of times to an event, for proportional hazards: who was watched, events, gradients, Hessians.

A row has features x and a constant a. In public coordinates, with A symmetric, a centre o and a scale s,

    t = A x - o a,     b_k = (t, |s a| e_k)     z_k = <t, u> + |s a| v_k     its log-hazard in interval k

Its cumulative hazard H(t) = sum_k (part of interval k that it was watched) exp(z_k) counts up to a public reach R >= 1:
**a row is watched until its cumulative hazard, under the model at hand, reaches R**. Events after that do not count. If
the model is true, events less cumulative hazards are 0 in the mean however watching ends, as long as what ends it is
known before. So a reach costs events and moves no coefficient; cut slopes would. With h_k the cumulative hazard of
interval k that counts and d_k 1 for an event that counts, a row adds

    f sum_k (h_k - d_k) b_k       and       f sum_k h_k b_k b_k^T,        f = min(w, c^2 / |t|^2, S^2 / (s a)^2)

with w its weight: so f |b|^2 is at most c^2 + S^2. Proof: docs/proofs/hazards.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import hypot, sqrt
from typing import final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.oracle.row_sums import RowSums, half, summation_error
from sottovoce.problem.losses.hazards import event, watched
from sottovoce.problem.sites import NORM_SLACK, Sites

S = 2.0  # the largest size of a row's constant in these coordinates
EVENTS, WATCHED = 0.5, 0.3  # how much events and time watched weigh beside second moments
CURVED = 0.3  # the square of what a Hessian moves beside that of what a gradient does
_ROWS = 1 << 14  # rows at a time, so that intermediate results stay in cache
_LOW, _HIGH = -700.0, 30.0  # log-hazards are cut to this, so that all numbers are finite


@final
@dataclass(frozen=True, eq=False)
class Centred:
    """Public coordinates of rows and models, of one run. p features without the constant, K intervals.

    Args:
        A: symmetric, (p, p).
        centre: o, (p,).
        scale: s. Its sign does not matter, nor that of the next two: a proposal may have any.
        c: beyond which rows count less.
        reach: R; below 1 it counts as 1.
    """

    A: Floats
    centre: Floats
    scale: float
    c: float
    reach: float

    @staticmethod
    def size(p: int) -> int:
        """Length of `numbers`."""
        return p * (p + 1) // 2 + p + 3

    @property
    def numbers(self) -> Floats:
        """All that it consists of: the upper half of A first."""
        held = self.A[np.triu_indices(len(self.A))]
        return np.concatenate((held, self.centre, [self.scale, self.c, self.reach]))

    @classmethod
    def of(cls, numbers: Floats, p: int) -> "Centred":
        """The coordinates that have these `numbers`, bit by bit."""
        i, j = np.triu_indices(p)
        A = np.empty((p, p))
        A[i, j] = A[j, i] = numbers[: len(i)]
        scale, c, reach = numbers[len(i) + p :].tolist()
        return cls(A, numbers[len(i) : len(i) + p], scale, c, reach)

    @property
    def far(self) -> float:
        """R, 1 at least."""
        return max(abs(self.reach), 1.0)

    @property
    def length(self) -> float:
        """L, beyond which no row counts: sqrt(c^2 + S^2)."""
        return hypot(self.c, S)

    @property
    def eta(self) -> float:
        """How much Hessians weigh beside gradients."""
        return sqrt(CURVED) * (self.far + 1) / (self.far * self.length)

    @property
    def moves(self) -> float:
        """How far two rows' parts can be apart: docs/proofs/hazards.md, Lemma 2. By how many of them have events, and
        how much of their hazards counts.
        """
        c, s, R, bent = self.c**2, S**2, self.far, (self.eta * self.far * self.length**2) ** 2
        none = (2 * R) ** 2 * c + 2 * R**2 * s + 2 * bent
        one = (R + 1) ** 2 * (c + s) + bent
        later = (2 * R - 1) ** 2 * c + ((R + 1) ** 2 + R**2) * s + 2 * bent
        both = (2 * R - 2) ** 2 * c + (R**2 + 1 + (R + 1) ** 2) * s + 2 * bent
        soon = R**2 * c + (1 + (R + 1) ** 2) * s + bent
        return sqrt(max(none, one, later, both, soon))

    @property
    def largest(self) -> float:
        """The most that one row adds to one number, in size."""
        c, R = abs(self.c), self.far
        return R * max(c, S, self.eta * max(c**2, sqrt(2.0) * c * S, S**2))


def start_sum(site: RowSums, intervals: int) -> Floats:
    """Three sums over all rows: the `half` of a a^T in units of B, whatever they weigh; events by interval; and the
    parts of intervals that rows were watched. The last two no longer for a row than `EVENTS` and `WATCHED`: (numbers,).
    """
    norm = site.sites.data_norm

    def of_block(block: Sites) -> Floats:
        counted = block.factors.weighed(np.ones(len(block.labels)))
        moments = half(block.rows.moments()) / norm**2  # of all rows alike: they say how large the constant is
        parts = WATCHED / sqrt(intervals) * (counted @ watched(block.labels, intervals))
        return np.concatenate((moments, EVENTS * (counted @ event(block.labels, intervals)), parts))

    return site.summed(of_block)


def start_sum_sensitivity(site: RowSums, rows: int) -> float:
    """The l2 sensitivity of `start_sum` to one row replaced: sqrt(2 (1 + EVENTS^2 + WATCHED^2)), since the parts of two
    rows are at a right angle or less; times the rows of a person if people are protected, plus rounding.
    """
    length, changed = (1 + NORM_SLACK) ** 2 * sqrt(1 + EVENTS**2 + WATCHED**2), site.changed_in_sum(rows)
    return length * (sqrt(2.0) * changed + 2 * rows * float(summation_error(np.asarray(float(rows)))))


def hazard_sum(site: RowSums, at: Centred, u: Floats, v: Floats) -> Floats:
    """The gradient, (p + K,), and then eta times the Hessian that counts: the `half` of its part for t, sqrt(2) times
    that for t and intervals, (p K,), and that for intervals, which is diagonal, (K,).

    Formal guarantees: whatever the coordinates and the model are, rows' parts are finite, and no two are further apart
    than `Centred.moves`.
    """
    intervals, p = len(v), len(u)

    def of_block(block: Sites) -> Floats:
        found = np.zeros(p + intervals + p * (p + 1) // 2 + p * intervals + intervals)
        for rows in _some(block, p):
            t, a, counted = _placed(rows, at)
            with np.errstate(over="ignore", invalid="ignore"):
                z: Floats = (t @ u)[:, None] + a[:, None] * v
            h, d = counting(np.fmax(np.fmin(z, _HIGH), _LOW), rows.labels, at.far)
            off, weighed = h - d, counted[:, None] * h
            bent = weighed * a[:, None]
            parts = (
                t.T @ (counted * off.sum(axis=1)), off.T @ (counted * a),
                at.eta * half(t.T @ (weighed.sum(axis=1)[:, None] * t)), sqrt(2.0) * at.eta * (t.T @ bent).ravel(),
                at.eta * (a @ bent),
            )  # fmt: skip
            found += np.concatenate(parts)
        return found

    return site.summed(of_block)


def hazard_sum_sensitivity(site: RowSums, rows: int, at: Centred) -> float:
    """The l2 sensitivity of `hazard_sum` to one row replaced: `Centred.moves`, times the rows of a person if people are
    protected, plus the rounding of a sum of `rows` rows.
    """
    terms = float(summation_error(np.asarray(float(rows + len(at.centre) + 8))))
    return at.moves * ((1 + NORM_SLACK) * site.changed_in_sum(rows) + 2 * rows * terms)


def counting(z: Floats, labels: Floats, reach: float) -> tuple[Floats, Floats]:
    """What of the cumulative hazard of each interval counts, and the events that do, both (rows, K), at log-hazards z
    (rows, K): a row is watched until its cumulative hazard reaches `reach`.
    """
    intervals = z.shape[1]
    total = np.cumsum(watched(labels, intervals) * np.exp(z), axis=1)
    counted: Floats = total.clip(None, reach)
    counted[:, 1:] -= counted[:, :-1].copy()
    happened: Floats = np.where(total[:, -1:] <= reach, event(labels, intervals), 0.0)
    return counted, happened


def _some(block: Sites, p: int) -> Iterator[Sites]:
    """The rows of a block, as one site each, some at a time."""
    at_once, rows = max(_ROWS * 16 // (p + 16), 1), len(block.labels)
    ends = np.append(np.arange(0, rows, at_once), rows)
    pieces = block.regrouped(ends)
    return (pieces.part(i, i + 1) for i in range(pieces.n))


def _placed(rows: Sites, at: Centred) -> tuple[Floats, Floats, Floats]:
    """t (rows, p), |s a| (rows,), and how often each row counts (rows,)."""
    turned = np.concatenate((at.A, -at.centre[None]))
    last = np.zeros((len(turned), 1))
    last[-1] = at.scale
    t: Floats
    a: Floats
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        t, a = (rows.rows.predict(columns[None]).astype(np.float64) for columns in (turned, last))
        squares, constants = np.sum(t**2, axis=1), a[:, 0] ** 2
        shares = np.minimum(at.c**2 / squares, S**2 / constants)
        counted = np.minimum(rows.factors.weighed(np.ones(len(t))), np.where(np.isnan(shares), np.inf, shares))
    # Out of all bounds only if the coordinates are: such a row does not count.
    fine = np.isfinite(squares) & np.isfinite(constants)
    counted = np.where(fine, counted, 0.0)
    # Of one sign in all rows: else two could be further apart than events and hazards are.
    return np.where(fine[:, None], t, 0.0), np.where(fine, np.abs(a[:, 0]), 0.0), counted
