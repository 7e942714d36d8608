"""A quadratic stand-in for a convex risk, made from a public table.

For rows a_j with predictions z_j at the optimum w*, let q_j = 2 (loss(0) - loss(z_j) + slope(z_j) z_j) / z_j^2, which
is >= 0 for a convex loss. With H = (1/N) sum_j q_j a_j a_j' the quadratic risk (1/2) (w - w*)' H (w - w*) has the true
minimiser, and the true excess at zero, where every run starts. No second derivative is needed, so losses with kinks are
no exception.

Eigenvectors of like curvature are merged: a group stands for `count` of them, each with the group's mean curvature and
root mean square coordinate of w*.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import brentq, minimize

from sottovoce.arrays import Floats
from sottovoce.plan.moments import Blur
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.losses import Logistic, Loss, Reals, Signs

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


# -- synthetic --------------------------------------------------------------------------------------------------------
# Made-up tables of a given public shape, for the planner to try settings on.
#
# A planner may not look at a row, so it looks at tables that resemble what people hold. A row has about 1.5 sqrt(d)
# attributes. A third of them are numbers in [0, 1]; the others are categories of unequal frequency (the j-th most
# frequent has weight j^-1.6), one column each. Numbers are often small, since a range must hold the largest, and half
# of them are mostly zero. Two hidden factors make attributes go together. Rows are scaled to the declared norm. The
# label follows a linear model whose effects are heavy-tailed: a few matter much, most little. A number that is small
# has the effect of one that is not, so its coefficient is large: such directions are what learning is slow in.
#
#     classes       8 to 32 % positive; a best model that takes a fifth to a half off the entropy
#     real labels   linear model plus noise, a fifth of the variance
#
# Every number here is an assumption about tables in general. Two public ones (Adult, Bank Marketing) are like this.

if TYPE_CHECKING:
    Csr: TypeAlias = sparse.csr_array[np.float64, tuple[int, int]]

FACTORS, FALL_OFF, LOADING = 2, 1.6, 1.2
BASE_RATES = (0.08, 0.32)
FACTORS_SHARE = 0.5  # of the variance of the log-odds that the hidden factors explain
LOG_ODDS_SPREADS = (1.4, 2.6)  # standard deviation of the true log-odds over rows
MAGNITUDES = (0.08, 0.3)  # of numbers
NUMBERS_COUNT = 4.0  # effect of a number of its usual size, against that of a category
NON_ZERO = (0.05, 0.3)  # share of the rows in which a mostly zero number is not zero


def table(rows: int, d: int, loss: Loss, *, data_norm: float = 1.0, seed: int = 0) -> Dataset:
    """A made-up data set of that shape, with labels that the loss accepts."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(rows, FACTORS))
    features, effects = _features(rng, hidden, d)
    labels = _labels(rng, features, hidden, effects, loss, seed)
    norm = data_norm if math.isfinite(data_norm) else 1.0
    return Dataset(features * norm, labels, tuple(f"x{j}" for j in range(d)), rows, data_norm, "synthetic")


def _features(rng: np.random.Generator, hidden: Floats, d: int) -> "tuple[Csr, Floats]":
    """Rows of norm 1, and for every column how large its coefficient may be."""
    rows = len(hidden)
    sizes, effects = _group_sizes(rng, d), np.ones(d)
    columns, values = [], []
    for first, size in zip(np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes, strict=True):
        if size == 1:
            number, effects[first] = _numbers(rng, hidden)
            columns.append(np.full(rows, first))
            values.append(number)
        else:
            columns.append(first + _categories(rng, hidden, int(size)))
            values.append(np.ones(rows))
    entries = np.stack(values, axis=1)
    entries /= np.maximum(np.sqrt(np.sum(entries**2, axis=1, keepdims=True)), 1e-3) * (1 + 2.0**-48)
    ends = np.arange(rows + 1) * len(sizes)
    return sparse.csr_array((entries.ravel(), np.stack(columns, axis=1).ravel(), ends), shape=(rows, d)), effects


def _numbers(rng: np.random.Generator, hidden: Floats) -> tuple[Floats, float]:
    low, high = np.log(MAGNITUDES)
    magnitude = math.exp(rng.uniform(low, high))
    mixed = hidden @ rng.normal(size=FACTORS) + rng.normal(size=len(hidden))
    number = np.minimum(magnitude * np.exp(0.5 * mixed), 1.0)
    if rng.random() < 0.5:
        number = number * (rng.random(len(hidden)) < rng.uniform(*NON_ZERO))
    return number, NUMBERS_COUNT / magnitude


def _group_sizes(rng: np.random.Generator, d: int) -> NDArray[np.int64]:
    """Columns per attribute: a third have one, the others share the rest unequally."""
    attributes = max(1, min(d, round(1.5 * math.sqrt(d))))
    wide = min(attributes - attributes // 3, (d - attributes // 3) // 2)
    if wide < 1:
        return np.ones(d, dtype=np.int64)
    weights = np.exp(np.sort(rng.normal(size=wide))[::-1])
    spare = d - attributes // 3 - 2 * wide
    shares = np.floor(spare * weights / weights.sum()).astype(np.int64)
    shares[0] += spare - shares.sum()
    return np.concatenate([np.ones(attributes // 3, dtype=np.int64), 2 + shares])


def _categories(rng: np.random.Generator, hidden: Floats, size: int) -> NDArray[np.int64]:
    scores = -FALL_OFF * np.log(np.arange(1, size + 1)) + LOADING * hidden @ rng.normal(size=(FACTORS, size))
    return np.asarray(np.argmax(scores + rng.gumbel(size=scores.shape), axis=1), dtype=np.int64)


def _labels(
    rng: np.random.Generator, features: "Csr", hidden: Floats, effects: Floats, loss: Loss, seed: int
) -> Floats:
    coefficients = rng.laplace(size=(features.shape[1], loss.outputs)) * effects[:, None]
    own = _standard(np.asarray(features @ coefficients))
    shared = _standard(hidden @ rng.normal(size=(FACTORS, loss.outputs)))
    spread = _spaced(LOG_ODDS_SPREADS, seed * math.sqrt(2))
    z = spread * (math.sqrt(1 - FACTORS_SHARE) * own + math.sqrt(FACTORS_SHARE) * shared)
    if isinstance(loss.labels, Reals):
        return np.asarray(z[:, 0] / spread + 0.5 * rng.normal(size=len(z)))
    if isinstance(loss.labels, Signs):
        return np.where(rng.random(len(z)) < _shifted(z[:, 0], _spaced(BASE_RATES, seed * math.sqrt(5) / 2)), 1.0, -1.0)
    return np.asarray(np.argmax(z + rng.gumbel(size=z.shape), axis=1), dtype=np.float64)


def _standard(z: Floats) -> Floats:
    centred = z - z.mean(axis=0)
    return np.asarray(centred / np.maximum(np.sqrt(np.mean(centred**2, axis=0)), 1e-12))


def _spaced(bounds: tuple[float, float], turn: float) -> float:
    """Between the bounds. Multiples of an irrational turn fill them evenly, so a few tables span the whole range."""
    low, high = bounds
    return low + (high - low) * (turn % 1.0)


def _shifted(z: Floats, target: float) -> Floats:
    """Chances of +1 for log-odds z - c, where c makes their mean the target."""
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.mean(1 / (1 + np.exp(middle - z))) > target else (low, middle)
    return np.asarray(1 / (1 + np.exp(low - z)))
