"""A head start for noisy steps: a first model, and coordinates, from one release of moments by every site.

Every site releases, once, the sums over its rows of a a^T, of the gradient of the loss at 0 and of a. All is taken in
units of B. With M^, g^ and a^ the means over all rows, e = std sqrt(p) the size of the noise in M^, and l_j its
eigenvalues:

**Coordinates.** A = (M^ + s I)^(-1/2), s = RIDGE e, in which eigenvalues up to sqrt(2) e, the spectral radius of the
noise, count as 0. A is scaled so that a row counts once up to LONGER times the mean of |A a|^2, and COUNTED times less
at most. What noise costs a model is, in coordinates where directions have curvature h_j and coefficients are of size
x_j, about the sum of h_j x_j^2 v / (v + h_j^2 x_j^2) / 2, v the variance of all noise to come. Where that is not less
than GAIN times what it is in the coordinates of the rows, A = I.

**Model.** (M~ + t I)^-1 r, where eigenvalues within the noise are their mean in M~, and t >= e makes the unbiased
estimate of the quadratic risk least (Stein's). For least squares and softmax r = -g^ over the curvature at 0: a
Newton step. For the logistic loss that step is far too short where one label is rare. There predictions are taken
to be normal: E sigma(z) a = E 1{b = 1} a then says w but for two numbers, mean and spread of z, which are found by
iteration. The spread is taken to be SPREAD at most. That takes a constant among the features, as encoded tables have.

Where one label is so rare (RARE) that nothing but its frequency can be learnt well, there is no head start at all.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from sottovoce.arrays import Floats
from sottovoce.errors import PrivacyError
from sottovoce.oracle.loss_sums import curvature_at_zero, weights_of
from sottovoce.oracle.row_sums import whole
from sottovoce.oracle.whitening import Whitening
from sottovoce.problem.losses import Logistic, Loss
from sottovoce.sums.curvature import FLOOR
from sottovoce.sums.program import Opened

# Chosen on some tables and judged on others: docs/proofs/ipadmm.md says which, and how well they do.
RIDGE, LONGER, COUNTED = 6.0, 1.5, 10.0
GAIN, RARE, SPREAD = 0.9, 0.03, 1.0
CONSTANT = 0.5  # of the mean of <u, a> that is found, where u makes it 1 for every row
LOGISTIC = Logistic()
COEFFICIENT = 3.0  # of a feature of size B, in each direction: as `sottovoce.algorithms.diameter`
STRETCH = math.sqrt(COUNTED)  # bound on |A|
RIDGES = np.logspace(-4, 1.5, 45)  # t
SOME, STEPS = 1e-12, 60
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
_SHARES = _WEIGHTS / _WEIGHTS.sum()


class HeadStart(NamedTuple):
    """Where steps begin."""

    whitening: Whitening  # with c = B
    u: Floats  # (d, runs) the first model, in these coordinates


class _Heard(NamedTuple):
    """The means of one run, in units of B, and the standard deviation of the noise in each of their numbers."""

    M: Floats  # (p, p), off the diagonal with less noise by sqrt(2)
    g: Floats  # (p, outputs)
    a: Floats  # (p,); zeros where they are not released
    M_std: float
    g_std: float
    a_std: float

    @property
    def edge(self) -> float:
        return self.M_std * math.sqrt(len(self.M))


def head_start(opened: Opened, loss: Loss, norm: float, noise: float) -> HeadStart:
    """The head start of each run. Refused where the sum is not finite.

    Args:
        opened: the sum of `StartMoments` over the rows of all sites.
        loss: of a record, logistic, Huber or softmax.
        norm: B.
        noise: variance of the noise on a coordinate of the mean gradient, averaged over all steps to come.
    """
    if not np.isfinite(opened.value).all():
        raise PrivacyError("Expected finite moments, got some that are not: a site has spoilt their sum.")
    found = [_of_run(heard, loss, noise / norm**2) for heard in _parts(opened, loss)]
    roots, models = (np.stack(each, axis=-1) for each in zip(*found, strict=True))
    return HeadStart(Whitening(roots, np.full((1, len(found)), norm)), models / norm)


def _parts(opened: Opened, loss: Loss) -> list[_Heard]:
    """The means of every run."""
    slopes, means = weights_of(loss)
    numbers, std, columns = opened.mean, float(opened.mean_std.item()), loss.outputs + (means > 0)
    # There are p (p + 1) / 2 + p columns numbers.
    p = round((math.sqrt((2 * columns + 1) ** 2 + 8 * len(numbers)) - 2 * columns - 1) / 2)
    half = p * (p + 1) // 2
    made = []
    for run, M in enumerate(whole(numbers[:half].T)):
        others = numbers[half:, run]
        g = others[: p * loss.outputs].reshape(p, loss.outputs) / slopes
        a = others[p * loss.outputs :] / means if means else np.zeros(p)
        made.append(_Heard(M, g, a, std, std / slopes, std / means if means else 0.0))
    return made


def _of_run(heard: _Heard, loss: Loss, noise: float) -> tuple[Floats, Floats]:
    """A and the first model u of one run, in units of B."""
    same, bend = np.eye(len(heard.M)), curvature_at_zero(loss)
    if isinstance(loss, Logistic):
        w = _matched(heard)
        if w is None:
            return same, np.zeros(len(same))
    else:
        w = _solved(heard.M, -heard.g, heard.g_std, heard.edge)[0] / bend
    A = _whitening(heard.M, heard.edge)
    inverse = np.asarray(np.linalg.inv(A), dtype=np.float64)
    whitened = _cost(A @ heard.M @ A, inverse, bend, noise)
    if not whitened < GAIN * _cost(heard.M, same, bend, noise):
        A = inverse = same
    return A, (inverse @ w).reshape(-1)


def _whitening(M: Floats, edge: float) -> Floats:
    """A, symmetric, with |A| at most STRETCH."""
    raw, basis = np.linalg.eigh(M)
    s = max(RIDGE * edge, FLOOR * float(raw[-1]), SOME)
    squares = 1 / (np.where(raw > math.sqrt(2) * edge, np.clip(raw, 0.0, 1.0), 0.0) + s)
    most = float(squares.max())
    length = min(max(LONGER * float(raw @ squares), most / COUNTED), most)
    A = (basis * np.sqrt(squares / length)) @ basis.T
    half: Floats = (A + A.T) / 2
    return half


def _cost(M: Floats, inverse: Floats, bend: float, noise: float) -> float:
    """What noise costs a model in coordinates in which rows have the second moments M, and models are `inverse` w."""
    values, basis = np.linalg.eigh(M)
    h = bend * np.maximum(values, 0.0)
    size = COEFFICIENT**2 * np.sum((inverse @ basis) ** 2, axis=0)
    return float(np.sum(h * size * noise / np.maximum(noise + h**2 * size, SOME * SOME)) / 2)


def _solved(M: Floats, r: Floats, std: float, edge: float) -> tuple[Floats, Floats]:
    """(M~ + t I)^-1 r for columns r whose numbers hold noise of that standard deviation; and M~."""
    values, basis = np.linalg.eigh(M)
    kept = values > math.sqrt(2) * edge
    if not kept.all():
        values = np.where(kept, values, max(float(values[~kept].mean()), edge / 50, SOME))
    turned = basis.T @ r
    shrunk = 1 / (values + np.maximum(RIDGES, edge)[:, None])  # (ridges, p)
    squares, columns = np.sum(turned**2, axis=1), r.shape[1]
    # E of the first two is the risk of the model, less that of 0, but for the noise in r, which the third takes out.
    risks = shrunk**2 @ (values * squares) / 2 - shrunk @ squares + columns * std**2 * shrunk.sum(axis=1)
    best = int(risks.argmin())
    by = shrunk[best] if risks[best] < 0 else np.zeros_like(values)
    return basis @ (by[:, None] * turned), (basis * values) @ basis.T


def _matched(heard: _Heard) -> Floats | None:
    """The model (p, 1) of two labels, with normal predictions; None where one label is too rare."""
    M, a, g = heard.M, heard.a, heard.g[:, 0]
    # u with <u, a> = 1 for every row, nearly: encoded tables have a constant. Without one, a Newton step must do.
    u = _solved(M, a[:, None], heard.a_std, heard.edge)[0][:, 0]
    constant = float(u @ a)
    if not constant > CONSTANT:
        return _solved(M, -heard.g, heard.g_std, heard.edge)[0] / curvature_at_zero(LOGISTIC)
    u = u / constant
    share = 0.5 - float(u @ g)
    if min(share, 1 - share) < RARE:
        return None
    least = min(max(0.002, heard.g_std * float(np.linalg.norm(u))), 0.5)  # a share is not known better
    share = min(max(share, least), 1 - least)
    r_std = math.hypot(heard.g_std, (share - 0.5) * heard.a_std)
    found, C = _solved(M - np.outer(a, a), ((0.5 - share) * a - g)[:, None], r_std, heard.edge)
    v = found[:, 0]
    s = math.sqrt(max(float(v @ C @ v), 0.0))
    bend = share * (1 - share)  # E sigma'(z), of z with mean `middle` and standard deviation s / bend
    for _ in range(STEPS):
        spread = min(s / bend, SPREAD)
        p = expit(_middle(share, spread) + spread * _POINTS)
        bend = max((bend + float(_SHARES @ (p * (1 - p)))) / 2, s / SPREAD, SOME)
    w = v / bend
    return (w + (_middle(share, s / bend) - float(w @ a)) * u)[:, None]


def _middle(share: float, spread: float) -> float:
    """m with E sigma(m + spread x) = `share`, x normal."""
    low, high = -40.0, 40.0
    for _ in range(STEPS):
        m = (low + high) / 2
        low, high = (m, high) if float(_SHARES @ expit(m + spread * _POINTS)) < share else (low, m)
    return (low + high) / 2
