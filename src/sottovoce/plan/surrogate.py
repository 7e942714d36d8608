"""A quadratic stand-in for a convex risk, made from a public table.

For rows a_j with predictions z_j at the optimum w*, let q_j = 2 (loss(0) - loss(z_j) + slope(z_j) z_j) / z_j^2, which
is >= 0 for a convex loss. With H = (1/N) sum_j q_j a_j a_j' the quadratic risk (1/2) (w - w*)' H (w - w*) has the true
minimiser, and the true excess at zero, where every run starts. No second derivative is needed, so losses with kinks are
no exception. Of several outputs H is the mean Hessian on the way from w* to zero, weighted by what is still to go, with
which the same is true (Taylor's remainder).

Eigenvectors of like curvature are merged: a group stands for `count` of them, each with the group's mean curvature and
root mean square coordinate of w*. A table wider than WIDEST is not made: see `widened`.
"""

import math
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import brentq, minimize

from sottovoce.arrays import Array, Floats
from sottovoce.plan.moments import Blur
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.losses import Loss

GROUPS = 24
WIDEST = 160  # coordinates of a model that eigenvectors are computed for
LEAST_FEATURES = 24  # of them, however many outputs there are
TAUS = np.array([0.0, 0.3, 0.6, 1.0, 1.5, 2.5, 4.0, 7.0, 12.0, 25.0])
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_SHARES = _WEIGHTS / _WEIGHTS.sum()
_FARTHEST = 30.0  # past w* / kappa = 30 w* the precise figure no longer matters
_ROWS_FOR_BLUR = 1000  # fewer where there are several outputs
_SAME = 1e-4
_WAY, _STILL_TO_GO = (0.1127, 0.5, 0.8873), (0.4930, 0.4444, 0.0626)  # Gauss's points s, weighted by 2 (1 - s)


class Surrogate(NamedTuple):
    """The quadratic, in groups of its eigenvectors."""

    curvatures: Floats  # (groups,)
    optimum: Floats  # (groups,) size of w* along each eigenvector of the group
    size: Floats  # (groups,) eigenvectors in the group
    blur: Blur
    best: float  # mean loss at w*


class _Rows:
    """A table bound to a loss whose slopes are clipped as the algorithm would clip them. Predictions are (rows, K)."""

    def __init__(self, data: Dataset, loss: Loss, max_grad_norm: float | None) -> None:
        self.a = sparse.csr_array(data.features)
        self.turned = self.a.T
        self.b, self.loss, self.k = data.labels, loss, loss.outputs
        self.norms = np.sqrt(np.asarray(self.a.multiply(self.a).sum(axis=1)).reshape(-1))
        self.cap: Floats | None = None if max_grad_norm is None else max_grad_norm / np.maximum(self.norms, 1e-300)

    def predictions(self, w: Floats) -> Floats:
        return np.asarray(self.a @ w.reshape(-1, self.k), dtype=np.float64)

    def values(self, z: Floats) -> Floats:
        return np.asarray(self.loss.value(z if self.k > 1 else z[:, 0], self.b, self.loss.theta), dtype=np.float64)

    def slopes(self, z: Floats) -> Floats:
        """Slope of the loss of every row at these predictions, (rows, K), clipped."""
        return clipped_slopes(self.loss, z, self.b, self.cap)

    def bends(self, z: Floats) -> Floats:
        """q_j of every row; 0 where z is 0, since nothing depends on it there."""
        still, flat = np.abs(z[:, 0]) < _SAME, z[:, 0]
        gap = self.values(np.zeros_like(z)) - self.values(z) + self.slopes(z)[:, 0] * flat
        return np.where(still, 0.0, np.maximum(2 * gap / np.where(still, 1.0, flat * flat), 0.0))

    def hessian(self, z: Floats) -> Floats:
        """H: (d K, d K), in the layout of a model."""
        count, d = len(z), self.a.shape[1]
        if self.k == 1:
            return np.asarray((self.turned @ (sparse.diags_array(self.bends(z)) @ self.a)).toarray()) / count
        curves = sum(
            share * self.loss.curvature((1 - s) * z, self.b, self.loss.theta)
            for s, share in zip(_WAY, _STILL_TO_GO, strict=True)
        )
        blocks = np.empty((d, self.k, d, self.k))
        for i in range(self.k):
            for j in range(i + 1):
                one = (self.turned @ (sparse.diags_array(np.asarray(curves)[:, i, j]) @ self.a)).toarray() / count
                blocks[:, i, :, j], blocks[:, j, :, i] = one, one
        return blocks.reshape(d * self.k, d * self.k)


def clipped_slopes(loss: Loss, z: Floats, b: Array, cap: Array | None) -> Floats:
    """The slope at predictions (rows, ..., K), no longer than `cap`, if there is one, in the norm of the last axis."""
    slopes = loss.slope(z, b, loss.theta) if loss.outputs > 1 else loss.slope(z[..., 0], b, loss.theta)[..., None]
    if cap is None:
        return np.asarray(slopes, dtype=np.float64)
    length = np.sqrt(np.sum(slopes**2, axis=-1, keepdims=True))
    return np.asarray(slopes * np.minimum(1.0, cap[..., None] / np.maximum(length, 1e-300)), dtype=np.float64)


def narrow(d: int, outputs: int) -> int:
    """Number of features of the table that stands for one of d features."""
    return min(d, max(LEAST_FEATURES, WIDEST // outputs))


def surrogate(data: Dataset, loss: Loss, *, ridge: float, max_grad_norm: float | None = None) -> Surrogate:
    """The quadratic for the mean loss over all rows plus (ridge / 2) ||w||^2."""
    rows = _Rows(data, loss, max_grad_norm)
    model = _fit(rows, data.d * loss.outputs, ridge)
    z = rows.predictions(model)
    h = rows.hessian(z) + ridge * np.eye(len(model))
    values, vectors = np.linalg.eigh((h + h.T) / 2)
    return Surrogate(
        *_groups(np.maximum(values, 0.0), vectors.T @ model), _blur(rows, z), float(np.mean(rows.values(z)))
    )


def widened(narrow: Surrogate, coordinates: int) -> Surrogate:
    """The quadratic of a wider table of the same kind, from that of a narrow one; no matrix is needed.

    Rows have the same norm however many columns there are, so the curvatures add up to the same. What grows is the
    tail: the r-th largest curvature of D goes to the place r^g, where D^g is the number of coordinates. Every group
    keeps its part of the trace and of the excess at zero.
    """
    order = np.argsort(-narrow.curvatures)
    ends = np.cumsum(narrow.size[order])
    if coordinates <= ends[-1]:
        return narrow
    places = np.concatenate([[0.0], ends ** (math.log(coordinates) / math.log(ends[-1]))])
    size = np.diff(places)
    curvatures = narrow.curvatures[order] * narrow.size[order] / size
    return narrow._replace(curvatures=curvatures, optimum=narrow.optimum[order], size=size)


def _groups(curvatures: Floats, optimum: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean curvature, root mean square coordinate of w*, and number of eigenvectors of every group."""
    # Slices of equal ratio: the largest curvatures, which differ most, keep a group of their own.
    floor = max(float(curvatures[-1]) * 1e-6, 1e-300)
    place = np.log(np.maximum(curvatures, floor) / floor)
    group = np.minimum((place / max(float(place[-1]), 1e-9) * GROUPS).astype(np.int64), GROUPS - 1)
    _, code = np.unique(group, return_inverse=True)
    count = np.bincount(code).astype(np.float64)
    mean = np.bincount(code, weights=curvatures) / count
    # Weighted by curvature, so that the risk of the zero model stays what it was.
    energy = np.bincount(code, weights=curvatures * optimum**2)
    return mean, np.sqrt(energy / np.maximum(count * mean, 1e-300)), count


def _fit(rows: _Rows, coordinates: int, ridge: float) -> Floats:
    def objective(w: Floats) -> tuple[float, Floats]:
        z = rows.predictions(w)
        value = float(np.mean(rows.values(z))) + ridge * float(w @ w) / 2
        pull = np.asarray(rows.turned @ rows.slopes(z), dtype=np.float64).reshape(-1)
        return value, pull / len(z) + ridge * w

    most, start = 150 if rows.k == 1 else 60, np.zeros(coordinates)
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": most, "maxcor": 20})
    return np.asarray(found.x, dtype=np.float64)


def _blur(rows: _Rows, z: Floats) -> Blur:
    """kappa for every tau: 1 / c, where c w* is the zero of the blurred gradient along w*."""
    some = slice(0, _ROWS_FOR_BLUR // min(rows.k, 4))
    z, b, norms = z[some, None, :], rows.b[some, None], rows.norms[some, None, None]
    cap = None if rows.cap is None else rows.cap[some, None]
    if rows.k == 1:
        points, shares = _POINTS[:, None], _SHARES
    else:  # in several dimensions, fixed draws
        points = np.random.default_rng(0).normal(size=(len(_POINTS), rows.k))
        shares = np.full(len(_POINTS), 1 / len(_POINTS))

    def along(c: float, off: Floats) -> float:
        slopes = clipped_slopes(rows.loss, c * z + off, b, cap)
        return float(np.mean(np.sum(z[:, 0] * np.einsum("p,rpk->rk", shares, slopes), axis=1)))

    kappas = [1.0]
    for tau in TAUS[1:]:
        # Kept: the search looks at both ends again.
        pull = lru_cache(partial(along, off=tau * norms * points))
        if pull(1.0) >= 0:
            kappas.append(kappas[-1])
        else:
            far = _FARTHEST if pull(_FARTHEST) <= 0 else float(brentq(pull, 1.0, _FARTHEST, xtol=1e-2))
            kappas.append(min(kappas[-1], 1 / far))
    return Blur(TAUS, np.array(kappas))
