"""Preconditioned gradient descent on sums over all rows: a program that learns a model.

With N rows, p features, B the bound on their norm and L the loss's smoothness, the sums are

    1          M = sum a a^T     (its half, or for wide tables its diagonal)
    k > 1      G(y) = sum of all records' gradients at the public point y

each with noise. With M^ = M~ / N = sum_j l_j u_j u_j^T (l_j < 0 taken as 0) and the numbers tau, alpha, beta below,

    y  = w + beta (w - w_before)
    w <- (1 + grow) y - alpha (bend L (M^ + tau I) + lam l2 I)^-1 (G~(y) / N + lam l2 y)

    tau    `ridge` times the size of the noise in M^ (its spectral norm, up to a constant); the more of M^ is noise,
           the larger the factor. It is bent by no less than LEAST_BEND
    bend   how much of the bound L M^ the curvature really is: <G~(y) - G~(y'), y - y'> over that of L M^, from the
           points so far, recent ones weighing more; between LEAST_BEND and 1
    grow   Newton's step along y itself, after the other: of the gradient along one line little is noise,
           however many features there are. 0 where it may be noise

For wide tables only the diagonal m_j of M^ is known. In place of M^ stands the diagonal matrix of sum_i sqrt(m_i)
sqrt(m_j), which bounds it: a a^T <= (sum_j a_j^2 / s_j) diag(s) for every s > 0, by Cauchy and Schwarz; take s_j =
sqrt(m_j) and the mean.
"""

import math
from typing import NamedTuple

import numpy as np

from sottovoce.arrays import Array, Floats
from sottovoce.oracle.row_sums import whole
from sottovoce.problem.losses import Loss
from sottovoce.sums.evaluating import OpenedEvaluation
from sottovoce.sums.inference import Evidence
from sottovoce.sums.program import Ask, Known, Opened, Program
from sottovoce.sums.questions import DiagonalMoments, Gradient, Moments

# Chosen on some tables and judged on others: docs/proofs/masked.md says which, and how well they do.
STEP, MOMENTUM = 1.4, 0.5  # alpha and beta
# alpha where the curvature is all of its bound: 1.4 is then within 7 % of where steps swing up. And with inference,
# where steps must end at the optimum: swings along one direction would carry the model too far along others.
SHORT_STEP = 1.0
LEAST_RIDGE, MOST_RIDGE = 1.0, 2.5
RIDGE_FROM, RIDGE_SLOPE = 0.016, 0.6  # the part of the trace of M^ that is noise, from which on the factor grows
MEMORY, LEAST_BEND = 0.5, 0.2
LEAST_GROWTH, MOST_GROWTH = -0.5, 1.0
FLOOR = 1e-4  # of tau, as a part of the largest l_j: without noise there is none else

WIDEST_MATRIX = 511  # features: the half of a larger matrix would be more than 2^17 numbers, one mebibyte

_TINY = np.finfo(np.float64).tiny


class Fit(NamedTuple):
    """A model that was learnt from sums, and what else they say of it. d parameters."""

    average: Floats  # (d, runs) mean of the models so far
    last: Floats  # (d, runs) the model
    evidence: tuple[Evidence, ...] = ()  # of each run, what coefficients are inferred from
    evaluation: OpenedEvaluation | None = None


class Descent(NamedTuple):
    """The end of a descent, and all gradients on the way."""

    w: Floats  # (d, runs) the model
    total: Floats  # (d, runs) sum of the models after every gradient
    curvature: "Curvature"
    points: tuple[Floats, ...]  # (d, runs) each: where gradients were taken
    gradients: tuple[Floats, ...]  # (d, runs) each: the gradients there, of the mean loss

    @property
    def fit(self) -> Fit:
        """The model if no further sum is opened."""
        return Fit(self.total / max(len(self.points), 1), self.w)


def descend(loss: Loss, known: Known, steps: int, *, penalty: float, alpha: float) -> Program[Descent]:
    """Open second moments, then take a step for each of `steps` gradients.

    Args:
        loss: with bounded curvature.
        known: public numbers.
        steps: number of gradients.
        penalty: lam l2, curvature of the regulariser.
        alpha: length of the steps.
    """
    bounded = loss.smoothness_bound
    assert bounded is not None  # refused when the analysis was made
    p, L = known.features, bounded
    full = p <= WIDEST_MATRIX
    w = before = total = np.zeros((p * loss.outputs, known.runs))
    opened = yield Ask(Moments() if full else DiagonalMoments(), Fit(w, w))
    M = Curvature.of(opened, p)
    least = LEAST_BEND if full else LEAST_BEND / p  # a diagonal may bound far too much
    bent = bound = np.zeros((1, known.runs))  # curvature along the way: as measured, and as L M^ bounds it
    points: tuple[Floats, ...] = ()
    gradients: tuple[Floats, ...] = ()
    for _ in range(steps):
        so_far = Descent(w, total, M, points, gradients).fit
        opened = yield Ask(Gradient(w + MOMENTUM * (w - before)), so_far)
        y, G = opened.question.w, opened.mean
        if points:
            way = y - points[-1]
            bent = MEMORY * bent + _dot(G - gradients[-1], way)
            bound = MEMORY * bound + L * M.product(way, way)
        bend = np.where(bound > 0, np.clip(bent / np.where(bound > 0, bound, 1.0), least, 1.0), 1.0)
        # The ridge keeps what is noise in the steps from adding up, so it must not shrink as a diagonal's bound may.
        filled = bend * M.values + np.maximum(bend, LEAST_BEND) * M.tau
        g = G + penalty * y
        step = alpha * M.divide(g, np.maximum(L * filled + penalty, _TINY))

        # Newton's step along y, of what the other step leaves of the gradient.
        size, along = _dot(y, y), _dot(g, y)
        curve = bend * L * M.product(y, y) + penalty * size
        done = bend * L * M.product(step, y) + penalty * _dot(step, y)
        sure = np.maximum(1 - opened.mean_std**2 * size / np.maximum(along**2, _TINY), 0.0)
        newton = np.where(curve > 0, (done - along) / np.maximum(curve, _TINY), 0.0)
        grow = np.clip(sure * newton, LEAST_GROWTH, MOST_GROWTH)

        w, before = y - step + grow * y, w
        total, points, gradients = total + w, (*points, y), (*gradients, G)
    return Descent(w, total, M, points, gradients)


def _dot(v: Floats, w: Floats) -> Floats:
    product: Floats = np.sum(v * w, axis=0, keepdims=True)
    return product


class Curvature(NamedTuple):
    """The estimate M^ of the second moments, in its eigenbasis."""

    values: Floats  # (p, runs) eigenvalues, or what bounds them where only the diagonal is known
    basis: Floats | None  # (p, p, runs) eigenvectors, as columns; None for a diagonal
    tau: Floats  # (1, runs) by how much it is filled up

    @classmethod
    def of(cls, opened: Opened, p: int) -> "Curvature":
        """The curvature from the opened sum of `Moments` or `DiagonalMoments`, for p features."""
        M, std = opened.mean, float(opened.mean_std.item())
        basis: Floats | None = None
        if p <= WIDEST_MATRIX:
            matrices = whole(M.T)
            found, vectors = np.linalg.eigh(matrices)
            values: Floats = np.maximum(found, 0.0).T
            basis, trace = np.ascontiguousarray(vectors.transpose(1, 2, 0)), np.trace(matrices, axis1=1, axis2=2)[None]
        else:
            largest = std * math.sqrt(2 * math.log(2 * p))  # to be expected of p
            roots = np.sqrt(np.maximum(M, 0.0) + largest)
            values, trace = roots.sum(axis=0, keepdims=True) * roots, M.sum(axis=0, keepdims=True)
        edge = std * math.sqrt(p)  # size of the noise in M^, if it is whole
        part = edge / np.maximum(trace, max(edge, _TINY))
        ridge = LEAST_RIDGE + RIDGE_SLOPE * np.log(np.maximum(part, RIDGE_FROM) / RIDGE_FROM)
        tau = np.maximum(edge * np.minimum(ridge, MOST_RIDGE), FLOOR * values.max(axis=0, keepdims=True))
        return cls(values, basis, tau)

    def product(self, v: Floats, w: Floats) -> Floats:
        """<v, M^ w>, summed over the outputs: (1, runs)."""
        product: Floats = np.sum(self.values[:, None, :] * self._turn(v) * self._turn(w), axis=(0, 1))[None]
        return product

    def divide(self, v: Floats, scale: Floats) -> Floats:
        """v divided by the matrix that has these eigenvalues, (p, runs), and the eigenvectors of M^."""
        turned = self._turn(v) / scale[:, None, :]
        if self.basis is not None:
            turned = np.einsum("ijr,jor->ior", self.basis, turned, optimize=True)
        return turned.reshape(v.shape)

    def _turn(self, v: Floats) -> Array:
        """A model (d, runs) in the eigenbasis: (p, outputs, runs)."""
        parts = v.reshape(len(self.values), -1, v.shape[1])
        return parts if self.basis is None else np.einsum("jir,jor->ior", self.basis, parts, optimize=True)

    def matrix(self, run: int) -> Floats:
        """M^ of one run, (p, p); a bound on it if only its diagonal was asked for."""
        values = self.values[:, run]
        if self.basis is None:
            return np.diag(values)
        vectors = self.basis[:, :, run]
        found: Floats = (vectors * values) @ vectors.T
        return found
