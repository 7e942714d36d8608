"""Preconditioned gradient descent on sums over all rows: a program that learns a model.

With N rows, p features, B the bound on their norm and L the loss's smoothness, the sums are

    1          M = sum a a^T     (its half, or for wide tables its diagonal)
    k > 1      G(y) = sum of all records' gradients at the public point y

each with noise, that of G in the shape of M (`sottovoce.sums.whitening`). With M^ = M~ / N = sum_j l_j u_j u_j^T (l_j <
0 taken as 0) and the numbers tau, alpha, beta below,

    y  = w + beta (w - w_before)
    w <- (1 + grow) y - alpha (bend L (M^ + tau I) + lam l2 I)^-1 (G~(y) / N + lam l2 y)

    tau    `ridge` times the size of the noise in M^ (its spectral norm, up to a constant); the more of M^ is noise,
           the larger the factor. It is bent by no less than LEAST_BEND
    bend   how much of the bound L M^ the curvature really is: <G~(y) - G~(y'), y - y'> over that of L M^, from the
           points so far, recent ones weighing more; between LEAST_BEND and 1
    grow   Newton's step along y itself, after the other: of the gradient along one line little is noise,
           however many features there are. 0 where it may be noise

The model that is learnt rests on all gradients, not on the last alone: each of them says where the optimum is, with
noise of its own. With y and g the means of all points and gradients, and x between y and the last w,

    model  = x - (bend L (M^ + tau I) + lam l2 I)^-1 (g + bend L M^ (x - y) + lam l2 x)

Early points are further from the optimum, where the curvature is another. So point k weighs v / (v + APART |y_k -
w|^2), with |.| the length in M^ and v the variance, in that length, of the noise in what a gradient says.
"""

import math
from typing import NamedTuple

import numpy as np

from sottovoce.arrays import Array, Floats
from sottovoce.oracle.whitening import Whitening
from sottovoce.problem.losses import Loss
from sottovoce.sums.curvature import TINY, WIDEST_MATRIX, Curvature
from sottovoce.sums.evaluating import OpenedEvaluation
from sottovoce.sums.inference import Evidence
from sottovoce.sums.program import Ask, Known, Opened, Program
from sottovoce.sums.questions import DiagonalMoments, Gradient, Moments, WhitenedGradient
from sottovoce.sums.whitening import LongRows, whitening_of

# Chosen on some tables and judged on others: docs/proofs/masked.md says which, and how well they do.
STEP, MOMENTUM = 1.4, 0.5  # alpha and beta
# alpha where the curvature is all of its bound: 1.4 is then within 7 % of where steps swing up. And with inference,
# where steps must end at the optimum: swings along one direction would carry the model too far along others.
SHORT_STEP = 1.0
MEMORY, LEAST_BEND = 0.5, 0.2
LEAST_GROWTH, MOST_GROWTH = -0.5, 1.0
APART = 0.3  # squared error in where a gradient puts the optimum, over the squared distance to its point, both in M^


class Fit(NamedTuple):
    """A model that was learnt from sums, and what else they say of it. d parameters."""

    average: Floats  # (d, runs) mean of the models so far
    last: Floats  # (d, runs) the model
    evidence: tuple[Evidence, ...] = ()  # of each run, what coefficients are inferred from
    evaluation: OpenedEvaluation | None = None
    moments: Opened | None = None  # the second moments of the rows, where all of them were opened


class Heard(NamedTuple):
    """A gradient of the mean loss, as it was opened."""

    y: Floats  # (d, runs) where it was taken
    G: Floats  # (d, runs) in the coordinates of the rows
    std: Floats  # (1, runs) or (1, 1) of the noise in each number, in whitened coordinates
    turned: Array  # (p, outputs, runs) y in the eigenbasis of the second moments


class Descent(NamedTuple):
    """A descent on its way: where it is, and all gradients so far."""

    w: Floats  # (d, runs) where it has come to
    total: Floats  # (d, runs) sum of where it was after every gradient
    M: Curvature
    unit: Floats  # (p, runs) variance of noise along each eigenvector of M, where it is 1 in whitened ones
    bend: Floats  # (1, runs)
    L: float
    penalty: float  # lam l2
    whitening: Whitening | None = None  # as all sites took it; None for round noise
    moments: Opened | None = None  # of `Fit`
    heard: tuple[Heard, ...] = ()

    @property
    def scale(self) -> Floats:
        """Eigenvalues of what a gradient is divided by: (p, runs)."""
        # The ridge keeps what is noise in the steps from adding up, so it must not shrink as a diagonal's bound may.
        filled = self.bend * self.M.values + np.maximum(self.bend, LEAST_BEND) * self.M.tau
        return np.maximum(self.L * filled + self.penalty, TINY)

    @property
    def gathered(self) -> tuple[Floats, Floats, Floats]:
        """Means of all points and gradients, and the noise in the latter: as y, G and std of `Heard`.

        Those far from w weigh less: the curvature is another.
        """
        M, w = self.M, self.w
        outputs = len(w) // len(M.values)
        variance = outputs * np.sum(M.values * self.unit / self.scale**2, axis=0)
        stds = np.concatenate([np.broadcast_to(h.std, (1, w.shape[1])) for h in self.heard])
        away = np.stack([h.turned for h in self.heard]) - M.turned(w)
        weights = 1 / np.maximum(stds**2 * variance + APART * np.einsum("pr,kpor,kpor->kr", M.values, away, away), TINY)
        weights /= weights.max(axis=0)  # so that they may be added
        weights /= weights.sum(axis=0)
        y, G = (
            np.einsum("kr,kdr->dr", weights, np.stack(parts))
            for parts in ([h.y for h in self.heard], [h.G for h in self.heard])
        )
        return y, G, np.sqrt(np.sum((weights * stds) ** 2, axis=0, keepdims=True))

    @property
    def fit(self) -> Fit:
        """The model that all gradients together say, if no further sum is opened."""
        if not self.heard:
            return Fit(self.w, self.w, moments=self.moments)
        M, (y, G, _) = self.M, self.gathered
        x = (y + self.w) / 2
        model = x - M.divide(G + self.L * self.bend * M.times(x - y) + self.penalty * x, self.scale)
        return Fit(self.total / len(self.heard), model, moments=self.moments)


def descend(
    loss: Loss, known: Known, steps: int, *, penalty: float, alpha: float, long_rows: LongRows | None
) -> Program[Descent]:
    """Open second moments, then take a step for each of `steps` gradients.

    Args:
        loss: with bounded curvature.
        known: public numbers.
        steps: number of gradients.
        penalty: lam l2, curvature of the regulariser.
        alpha: length of the steps.
        long_rows: how much less they may count, with noise in the shape of the second moments. None: noise is round.
    """
    L = loss.smoothness_bound
    assert L is not None  # refused when the analysis was made
    full, runs = known.features <= WIDEST_MATRIX, known.runs
    start = np.zeros((known.features * loss.outputs, runs))
    opened = yield Ask(Moments() if full else DiagonalMoments(), Fit(start, start))
    M = Curvature.of(opened, known.features)
    whitening = None
    if long_rows is not None:
        alone = known.noise[1] / math.sqrt(steps) * known.changed * math.sqrt(len(start)) / opened.rows
        whitening = whitening_of(M, known.data_norm, alone, long_rows)
    least = LEAST_BEND if full else LEAST_BEND / known.features  # a diagonal may bound far too much
    bent = bound = np.zeros((1, runs))  # curvature along the way: as measured, and as L M^ bounds it
    at = Descent(
        start, start, M, M.seen(whitening), np.ones((1, runs)), L, penalty, whitening, moments=opened if full else None
    )
    before = start
    for _ in range(steps):
        y = at.w + MOMENTUM * (at.w - before)
        asked = Gradient(y) if whitening is None else WhitenedGradient(whitening.divide(y), whitening)
        opened = yield Ask(asked, at.fit)
        # From here on with the bits of the point and the whitening that all sites took.
        if whitening is None:
            y, G = opened.question.w, opened.mean
            length = _dot(y, y)
        else:
            u, whitening = opened.question.u, opened.question.whitening
            y, G, length = whitening.times(u), whitening.divide(opened.mean), _dot(u, u)
        if at.heard:
            way = y - at.heard[-1].y
            bent = MEMORY * bent + _dot(G - at.heard[-1].G, way)
            bound = MEMORY * bound + L * M.product(way, way)
        bend = np.where(bound > 0, np.clip(bent / np.where(bound > 0, bound, 1.0), least, 1.0), 1.0)
        heard = Heard(y, G, opened.mean_std, M.turned(y))
        before, at = at.w, at._replace(bend=bend, whitening=whitening, heard=(*at.heard, heard))
        g = G + penalty * y
        step = alpha * M.divide(g, at.scale)

        # Newton's step along y, of what the other step leaves of the gradient.
        along = _dot(g, y)
        curve = bend * L * M.product(y, y) + penalty * _dot(y, y)
        done = bend * L * M.product(step, y) + penalty * _dot(step, y)
        noise = opened.mean_std**2 * length  # variance of the noise in `along`
        sure = np.maximum(1 - noise / np.maximum(along**2, TINY), 0.0)
        newton = np.where(curve > 0, (done - along) / np.maximum(curve, TINY), 0.0)
        w = y - step + np.clip(sure * newton, LEAST_GROWTH, MOST_GROWTH) * y
        at = at._replace(w=w, total=at.total + w)
    return at


def _dot(v: Floats, w: Floats) -> Floats:
    product: Floats = np.sum(v * w, axis=0, keepdims=True)
    return product
