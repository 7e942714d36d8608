"""A quadratic stand-in for a convex risk, made from a public table.

For rows a_j with predictions z_j at the optimum w*, let q_j = 2 (loss(0) - loss(z_j) + slope(z_j) z_j) / z_j^2, which
is >= 0 for a convex loss. With H = (1/N) sum_j q_j a_j a_j' the quadratic risk (1/2) (w - w*)' H (w - w*) has the true
minimiser, and the true excess at zero, where every run starts. No second derivative is needed, so losses with kinks are
no exception.

Eigenvectors of like curvature are merged: a group stands for `count` of them, each with the group's mean curvature and
root mean square coordinate of w*.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import brentq, minimize

from sottovoce.arrays import Floats
from sottovoce.datasets.dataset import Dataset
from sottovoce.losses import Logistic, Loss
from sottovoce.plan.moments import Blur

GROUPS = 24
TAUS = np.array([0.0, 0.3, 0.6, 1.0, 1.5, 2.5, 4.0, 7.0, 12.0, 25.0])
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_SHARES = _WEIGHTS / _WEIGHTS.sum()
_FARTHEST = 30.0  # past w* / kappa = 30 w* the precise figure no longer matters
_ROWS_FOR_BLUR = 1000
_SAME = 1e-4


class Surrogate(NamedTuple):
    """The quadratic, in groups of its eigenvectors."""

    curvatures: Floats  # (groups,)
    optimum: Floats  # (groups,) size of w* along each eigenvector of the group
    size: Floats  # (groups,) eigenvectors in the group
    blur: Blur
    best: float  # mean loss at w*


class _Rows:
    """A table bound to a loss whose slopes are clipped as the algorithm would clip them."""

    def __init__(self, data: Dataset, loss: Loss, max_grad_norm: float | None) -> None:
        self.a = sparse.csr_array(data.features)
        self.b, self.loss = data.labels, loss
        self.norms = np.sqrt(np.asarray(self.a.multiply(self.a).sum(axis=1)).reshape(-1))
        cap = np.inf if max_grad_norm is None else max_grad_norm / np.maximum(self.norms, 1e-300)
        self.cap: Floats = np.broadcast_to(np.asarray(cap, dtype=np.float64), self.b.shape)

    def predictions(self, w: Floats) -> Floats:
        return np.asarray(self.a @ w, dtype=np.float64)

    def values(self, z: Floats) -> Floats:
        return np.asarray(self.loss.value(z, self.b, self.loss.theta), dtype=np.float64)

    def pulled(self, slopes: Floats) -> Floats:
        return np.asarray(self.a.T @ slopes, dtype=np.float64)

    def slopes(self, z: Floats) -> Floats:
        return np.clip(self.loss.slope(z, self.b, self.loss.theta), -self.cap, self.cap)

    def bends(self, z: Floats) -> Floats:
        """q_j. Where z is 0 nothing is known of a row's curvature, and nothing depends on it."""
        still = np.abs(z) < _SAME
        gap = self.values(np.zeros_like(z)) - self.values(z) + self.slopes(z) * z
        return np.where(still, 0.0, np.maximum(2 * gap / np.where(still, 1.0, z * z), 0.0))


def surrogate(data: Dataset, loss: Loss, *, ridge: float, max_grad_norm: float | None = None) -> Surrogate:
    """Of the mean loss over all rows plus (ridge / 2) ||w||^2.

    A loss over several classes stands as many times for the logistic loss of one class against the rest.
    """
    if loss.outputs > 1:
        one = replace(data, labels=np.where(data.labels == 0, 1.0, -1.0))
        found = surrogate(one, Logistic(), ridge=ridge, max_grad_norm=max_grad_norm)
        return found._replace(size=found.size * loss.outputs)
    rows = _Rows(data, loss, max_grad_norm)
    model = _fit(rows, data.d, ridge)
    z = rows.predictions(model)
    weighted = sparse.diags_array(rows.bends(z)) @ rows.a
    h = (rows.a.T @ weighted).toarray() / len(z) + ridge * np.eye(data.d)
    values, vectors = np.linalg.eigh((h + h.T) / 2)
    return Surrogate(
        *_grouped(np.maximum(values, 0.0), vectors.T @ model), _blur(rows, z), float(np.mean(rows.values(z)))
    )


def _grouped(curvatures: Floats, optimum: Floats) -> tuple[Floats, Floats, Floats]:
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


def _fit(rows: _Rows, d: int, ridge: float) -> Floats:
    def objective(w: Floats) -> tuple[float, Floats]:
        z = rows.predictions(w)
        value = float(np.mean(rows.values(z))) + ridge * float(w @ w) / 2
        return value, rows.pulled(rows.slopes(z)) / len(z) + ridge * w

    found = minimize(objective, np.zeros(d), jac=True, method="L-BFGS-B", options={"maxiter": 150, "maxcor": 20})
    return np.asarray(found.x, dtype=np.float64)


def _blur(rows: _Rows, z: Floats) -> Blur:
    """1 / c for every tau, where c w* is the zero of the blurred gradient along w*."""
    some = slice(0, _ROWS_FOR_BLUR)
    z, b, cap, norms = z[some], rows.b[some, None], rows.cap[some, None], rows.norms[some, None]

    def along(c: float, tau: float) -> float:
        slopes = rows.loss.slope(c * z[:, None] + tau * norms * _POINTS, b, rows.loss.theta)
        return float(np.mean(z * (np.clip(slopes, -cap, cap) @ _SHARES)))

    kappas = [1.0]
    for tau in TAUS[1:]:
        low, high = along(1.0, tau), along(_FARTHEST, tau)
        if low >= 0:
            kappas.append(kappas[-1])
        else:
            far = _FARTHEST if high <= 0 else float(brentq(along, 1.0, _FARTHEST, args=(tau,), xtol=1e-2))
            kappas.append(min(kappas[-1], 1 / far))
    return Blur(TAUS, np.array(kappas))
