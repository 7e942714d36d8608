"""Two more sums after a descent, from which coefficients get standard errors: a program.

    T - 1      H(w) = sum of all records' Hessians at the model w that was found
    T          G(w'), at a better point w' that the Hessian and the gradients so far say

None of them has the regulariser in it: coefficients are those of the likelihood. lam enters the last step alone, which
makes the model. Of counts, H(w) goes with two numbers more, of how much counts vary beside what a Poisson count does.
`sottovoce.sums.inference` makes coefficients and standard errors of what is found here.
"""

import math

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.oracle.loss_sums import VARIATION
from sottovoce.oracle.row_sums import whole
from sottovoce.problem.losses import Loss, Poisson
from sottovoce.sums.curvature import FLOOR
from sottovoce.sums.descent import Descent, Fit
from sottovoce.sums.inference import Evidence
from sottovoce.sums.program import Ask, Known, Opened, Program
from sottovoce.sums.questions import CountHessian, Gradient, Hessian

VARIED = 2  # numbers on the variation of counts, behind their Hessian


def standard_errors(loss: Loss, known: Known, found: Descent, *, penalty: float) -> Program[Fit]:
    """The Hessian, a better point, and the gradient there. `penalty`: lam l2, of the last step alone."""
    counts, p = isinstance(loss, Poisson), known.features
    hessian = yield Ask(CountHessian(found.w) if counts else Hessian(found.w), found.fit)
    w, half = hessian.question.w, p * (p + 1) // 2
    H = whole(hessian.mean[:half].T)
    edge = float(hessian.mean_std.item()) * math.sqrt(2 * p)

    # One Newton step on all late gradients: those are free, and the last gradient is best taken near the optimum.
    late = found.heard[(len(found.heard) + 4) // 2 - 2 :]
    y, g = (sum(some, start=np.zeros_like(w)) / len(late) for some in ([h.y for h in late], [h.G for h in late]))
    better = w - _step(H, edge, g + np.einsum("rij,rj->ri", H, (w - y).T).T, 0.0)
    models = len(found.heard)
    last = yield Ask(Gradient(better), Fit(found.total / models, better))
    point, G = last.question.w, last.mean
    model = point - _step(H, edge, G + penalty * point, penalty)

    noise = np.broadcast_to(last.mean_std, (1, known.runs))
    evidence = tuple(
        Evidence(
            point=point[:, run], gradient=G[:, run], hessian=H[run], hessian_point=w[:, run],
            gradient_noise=float(noise[0, run]), hessian_noise=float(hessian.mean_std.item()),
            rows=last.rows, moments=found.M.matrix(run), largest=known.data_norm, together=known.changed,
            dispersion=_dispersion(loss, known, hessian, hessian.mean[half:, run]) if counts else 1.0,
            exponential=counts,
        )
        for run in range(known.runs)
    )  # fmt: skip
    return Fit((found.total + model) / (models + 1), model, evidence)


def _step(H: Floats, edge: float, gradient: Floats, penalty: float) -> Floats:
    """A Newton step with the Hessians (runs, p, p), filled up by the size of their noise where that hides them."""
    values, vectors = np.linalg.eigh(H)
    floor = np.maximum(edge, FLOOR * values.max(axis=1, keepdims=True))
    scale = np.maximum(values, 0.0) + np.where(values < 2 * floor, floor, 0.0) + penalty
    turned = np.einsum("rji,rj->ri", vectors, gradient.T) / scale
    step: Floats = np.einsum("rij,rj->ri", vectors, turned).T
    return step


def _dispersion(loss: Loss, known: Known, hessian: Opened, variation: Floats) -> float:
    """The dispersion of counts: the mean of (count - mean)^2 over the mean of means. For Poisson counts it is 1 / Y in
    the unit that they are learnt in. Each mean is taken a standard deviation of its noise to the safe side.
    """
    curvature = loss.smoothness_bound
    assert curvature is not None
    unit = curvature * known.data_norm**2
    squares, means = (variation / unit).tolist()
    noise, rows = float(hessian.mean_std.item()) / unit, hessian.rows
    most = max(squares / VARIATION, 0.0) + noise / VARIATION
    least = max(means - noise, noise, np.finfo(np.float64).tiny)
    return float(curvature * most / least * rows / max(rows - known.features, 1))
