"""Proportional hazards from noisy sums: the two questions, and what all sums so far say together.

All is in the coordinates of `sottovoce.oracle.hazard_sums`. Unknown are u, of the features, and the log-hazards gamma_k
of the intervals, for a row at the centre. A sum says, over N, with noise,

    g = gradient for u     q_k = that for gamma_k     H, S, D = the Hessian: for u, for both (p, K), for gamma_k

A centre near the rows that are at risk keeps S small, and so the noise in q out of u. With m_k = S_k / D_k, the mean of
the rows at risk in interval k beside the centre, the log-hazards drop out of the equations for u:

    (H - sum_k D_k m_k m_k^T) d = -(g - sum_k m_k q_k)

Late intervals say little: m_k and gamma_k are taken to change slowly from one interval to the next (`_smooth`).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Self, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.oracle.hazard_sums import (
    EVENTS,
    WATCHED,
    Centred,
    S,
    hazard_sum,
    hazard_sum_sensitivity,
    start_sum,
    start_sum_sensitivity,
)
from sottovoce.oracle.plain import Oracle
from sottovoce.oracle.row_sums import whole
from sottovoce.sums.curvature import FLOOR, TINY
from sottovoce.sums.inference import Evidence
from sottovoce.sums.program import Known, Opened, Question
from sottovoce.sums.whitening import GRID, LongRows

_SLACK = 1 + 1e-6  # of bounds on what one row adds, which are computed in floating point
# Chosen on some tables and judged on others: docs/proofs/hazards.md says which, and how well they do.
LONG_ROWS = LongRows(6e4, 96.0)
TYPICAL = 1.5  # c^2 over the mean of |t|^2
# R: 1 where a release of the gradient has the noise LARGE, REACH at most, and AHEAD of what hazards come to at most.
REACH, LARGE, FALL, AHEAD = 5.0, 6e-3, 0.3, 2.0
WALK, SPREAD = 0.5, 2.0  # of gamma: how far apart are those of neighbours, and of all, about
MEANS_WALK, MEANS_SPREAD = 0.3, 0.7  # of m, in whitened coordinates
APART = 0.3  # squared error in what a sum says, over the squared distance of its point, as in a descent
LEAST = 0.3  # of the curvature that is expected along a direction, of which less is not believed while steps are taken
FARTHEST = 3.0  # that a step goes
PASSES = 2  # of weighing sums by how near they are


@final
@dataclass(frozen=True, eq=False)
class HazardStart(Question[Oracle]):
    """Second moments of the features, events by interval, and the time that rows were watched in each."""

    intervals: int

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        return start_sum(site, self.intervals)[:, None]

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        return np.full((1, 1), start_sum_sensitivity(site, rows))

    def largest(self, site: Oracle) -> float:  # noqa: ARG002
        return _SLACK


@final
@dataclass(frozen=True, eq=False)
class HazardGradient(Question[Oracle]):
    """The gradient of the likelihood that counts, and its Hessian beside it, at a public model: `hazard_sum`.

    Args:
        model: u, then v: (p + K, runs).
        coordinates: `Centred.numbers` of each run, (numbers, runs).
        intervals: K.
    """

    model: Floats
    coordinates: Floats
    intervals: int

    @property
    def p(self) -> int:
        """Number of features without the constant."""
        return len(self.model) - self.intervals

    @property
    def point(self) -> Floats:
        return np.concatenate((self.model, self.coordinates))

    def at(self, point: Floats) -> Self:
        first = len(self.model)
        return type(self)(point[:first], point[first:], self.intervals)

    def run(self, run: int) -> tuple[Centred, Floats, Floats]:
        """Coordinates, u and v of one run."""
        model = self.model[:, run]
        return Centred.of(self.coordinates[:, run], self.p), model[: self.p], model[self.p :]

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        return np.stack([hazard_sum(site, *self.run(run)) for run in range(self.model.shape[1])], axis=1)

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        every = range(self.model.shape[1])
        return np.array([[hazard_sum_sensitivity(site, rows, self.run(run)[0]) for run in every]])

    def largest(self, site: Oracle) -> float:  # noqa: ARG002
        return max(self.run(run)[0].largest for run in range(self.model.shape[1])) * _SLACK


class Start(NamedTuple):
    """What the first sum says of one run, over N."""

    at: Centred
    gamma: Floats  # (K,) crude log-hazards
    shares: Floats  # (p,) of the mean square along each direction that whitening keeps

    @classmethod
    def of(cls, opened: Opened, run: int, known: Known, intervals: int, noise: float) -> "Start":
        """The first coordinates and log-hazards.

        Args:
            opened: the first sum.
            run: which one.
            known: public numbers.
            intervals: K.
            noise: length of the noise of a single release of the gradient, relative to that of one row's gradient.
        """
        p, n = known.features - 1, known.features * (known.features + 1) // 2
        value, loud = opened.mean[:, run], max(float(np.broadcast_to(opened.mean_std, (1, known.runs))[0, run]), TINY)
        M, events = whole(value[None, :n])[0], value[n : n + intervals] / EVENTS
        times = value[n + intervals :] * math.sqrt(intervals) / WATCHED
        square = max(float(M[-1, -1]), 3 * loud)
        mean = M[:-1, -1] / square
        cleaned = M[:-1, :-1] - np.outer(M[:-1, -1], mean) - np.outer(mean, M[:-1, -1]) + square * np.outer(mean, mean)
        values, vectors = np.linalg.eigh((cleaned + cleaned.T) / 2)
        l, edge = np.clip(values, 0.0, 1.0), loud * math.sqrt(max(p, 1)) * (1 + float(mean @ mean))
        # No row is further from the centre than the root of this, in units of B.
        farthest = 1 + float(mean @ mean)
        counted = min(max(LONG_ROWS.by_noise * noise, 1.0), LONG_ROWS.most)
        s = GRID * max(float(l.max(initial=0.0)), FLOOR)
        s = np.maximum(s, min(edge, float(s[-1])))[:, None]
        lengths = np.maximum(TYPICAL * np.sum(l / (l + s), axis=1), farthest / (counted * s[:, 0]))
        costs = (lengths + S**2) * np.sum(l * (l + s) / (l + edge + FLOOR * l.max(initial=0.0)) ** 2, axis=1)
        best = int(costs.argmin())
        A = (vectors / np.sqrt(l + s[best])) @ vectors.T / known.data_norm
        # The constant is no larger than this, but for noise, and rows whose constant is count S at most.
        unit = min(math.sqrt(square + loud), 1.0) * known.data_norm
        least = loud / EVENTS
        rate = max(float(events.sum()), least) / max(float(times.sum()), least)
        rates = (np.maximum(events, 0.0) + least) / (np.maximum(times, 0.0) + least / rate)
        # Without noise, nothing is saved by a smaller one.
        most = AHEAD * float(rates.sum()) if noise > 0 else REACH
        reach = max(min((LARGE / max(noise, TINY)) ** FALL, REACH, most), 1.0)
        at = Centred((A + A.T) / 2, A @ mean, S / unit, math.sqrt(float(lengths[best])), reach)
        return cls(at, np.log(rates), l / (l + s[best]))


class HazardsHeard(NamedTuple):
    """What one sum says of one run, over N."""

    u: Floats
    gamma: Floats
    g: Floats
    q: Floats
    H: Floats
    S: Floats
    D: Floats
    noise: float  # in every number of g; in q it is over the constant S
    bent: float  # in every number of the half of H
    centre: Floats  # in whitened coordinates: what `Centred.centre` takes off a row with a constant of S / s

    @classmethod
    def of(cls, opened: Opened, run: int, runs: int) -> "HazardsHeard":
        """The sum of one run, in units in which intervals have no scale."""
        at, u, v = opened.question.run(run)
        p, K, value = len(u), len(v), opened.mean[:, run]
        g, q, half, cross, D = np.split(value, np.cumsum([p, K, p * (p + 1) // 2, p * K]))
        noise = float(np.broadcast_to(opened.mean_std, (1, runs))[0, run])
        H = whole(half[None])[0] / at.eta
        cross = cross.reshape(p, K) / (math.sqrt(2.0) * at.eta * S)
        unit = S / at.scale
        return cls(u, v * S, g, q / S, H, cross, D / (at.eta * S**2), noise, noise / at.eta, at.centre * unit)

    def moved(self, centre: Floats) -> "HazardsHeard":
        """The same sum with another centre."""
        d = centre - self.centre
        S = self.S - np.outer(d, self.D)
        crossed = np.outer(d, self.S.sum(axis=1))
        H = self.H - crossed - crossed.T + np.outer(d, d) * self.D.sum()
        return self._replace(
            gamma=self.gamma + d @ self.u, g=self.g - d * self.q.sum(), H=H, S=S, centre=centre
        )  # fmt: skip


class HazardsTogether(NamedTuple):
    """What all sums so far say of one run, around one centre."""

    u: Floats  # (p,) the coefficients that they say
    gamma: Floats  # (K,)
    centre: Floats
    y: Floats  # (p,) where their gradients were taken, in the mean
    g: Floats  # (p,) the mean gradient there, without what follows from the log-hazards
    H: Floats  # (p, p) likewise
    noise: float  # in every number of g
    bent: float  # in every number of the half of H
    at_risk: Floats  # (p,) mean of the rows at risk, beside the centre

    @classmethod
    def of(cls, heard: list[HazardsHeard], start: Start, penalty: Floats | None = None) -> "HazardsTogether":
        """Sums weigh by how sure they are of where the optimum is: by their noise, and by how far they are from there.

        Args:
            heard: the sums.
            start: what the first one says.
            penalty: curvature of a regulariser, (p, p).
        """
        last, p = heard[-1], len(heard[-1].u)
        heard = [one.moved(last.centre) for one in heard]
        near = _Point(last.u, last.gamma)
        for _ in range(PASSES):
            found = cls._near(heard, near, start, penalty)
            near = _Point(found.u, found.gamma)
        assert found.u.shape == (p,)
        return found

    @classmethod
    def _near(
        cls, heard: list[HazardsHeard], near: "_Point", start: Start, penalty: Floats | None
    ) -> "HazardsTogether":
        last, p = heard[-1], max(len(near.u), 1)
        size = max(float(np.trace(last.H)) / p, last.bent, TINY)
        away = np.array([float(np.sum((one.u - near.u) ** 2)) for one in heard])
        by = _parts(np.array([one.bent**2 * p for one in heard]) + APART * size**2 * away)
        H, S_, D = (sum(part * getattr(one, name) for part, one in zip(by, heard, strict=True)) for name in "HSD")
        bent = math.sqrt(float(by**2 @ [one.bent**2 for one in heard]))
        D = np.maximum(D, 0.0)
        m, unsure = _smooth(D, S_.T, bent / (math.sqrt(2.0) * S), MEANS_WALK, MEANS_SPREAD)
        H = H - (m.T * D) @ m
        size = max(float(np.trace(H)) / p, bent, TINY)
        by = _parts(np.array([one.noise**2 * p for one in heard]) / size**2 + APART * away)
        u, gamma, g, q = (
            sum(part * getattr(one, name) for part, one in zip(by, heard, strict=True))
            for name in ("u", "gamma", "g", "q")
        )
        alone = math.sqrt(float(by**2 @ [one.noise**2 for one in heard]))
        g = g - q @ m
        # That of q as well, and what is not known of m.
        noise = math.sqrt(alone**2 * (1 + float(np.sum(m**2)) / (p * S**2)) + float(unsure @ q**2))
        d = _step(H, g, penalty, u, max(bent * math.sqrt(2 * p), LEAST * size * float(start.shares.min(initial=1.0))))
        said = D * gamma - (q + (m.T * D).T @ d)
        middle = float(D @ gamma) / max(float(D.sum()), TINY)
        walk, _ = _smooth(D, said - D * middle, alone / S, WALK, SPREAD)
        return cls(
            u + d, gamma + np.clip(walk + middle - gamma, -FARTHEST, FARTHEST), last.centre, u, g, H, noise, bent,
            S_.sum(axis=1) / max(float(D.sum()), size),
        )  # fmt: skip

    def evidence(self, at: Centred, rows: int, known: Known) -> Evidence:
        """What coefficients are inferred from: those of the features alone."""
        norm = float(np.linalg.norm(np.column_stack((at.A, at.centre)), 2))
        return Evidence(
            self.y, self.g, self.H, self.noise, self.bent, rows, coordinates=at.A, largest=known.data_norm,
            together=known.changed, exponential=True, hessian_point=self.y, moments=np.eye(len(self.y)),
            least=min(1.0, abs(at.c) / (known.data_norm * norm)) ** 2,
        )  # fmt: skip


class _Point(NamedTuple):
    u: Floats
    gamma: Floats


def _parts(variances: Floats) -> Floats:
    """How much each of some measurements counts."""
    weights = (float(variances.min()) + TINY) / (variances + TINY)
    found: Floats = weights / weights.sum()
    return found


def _step(H: Floats, g: Floats, penalty: Floats | None, u: Floats, floor: float) -> Floats:
    """A Newton step, (p,). Curvature below the floor is not believed."""
    if penalty is not None:
        H, g = H + penalty, g + penalty @ u
    values, vectors = np.linalg.eigh(H)
    filled = np.maximum(values, 0.0) + np.where(values < floor, floor, 0.0)
    step = -vectors @ (vectors.T @ g / filled)
    short: Floats = step * min(1.0, FARTHEST / max(float(np.linalg.norm(step)), TINY))
    return short


def _smooth(D: Floats, said: Floats, noise: float, walk: float, spread: float) -> tuple[Floats, Floats]:
    """The x of `said` = D x + noise, (K,) or (K, p), where x changes from one interval to the next by about `walk` and
    is about `spread`; and the variance of each, (K,).
    """
    K, noise = len(D), max(noise, 1e-9 * max(float(D.max(initial=0.0)), TINY))
    steps = np.diff(np.eye(K), axis=0)
    V = np.linalg.inv(np.diag((D / noise) ** 2) + steps.T @ steps / walk**2 + np.eye(K) / spread**2)
    found: Floats = V @ ((D / noise**2) * said.T).T
    return found, np.diag(V)
