"""A few more sums after a descent, from which coefficients get standard errors: a program.

    T - 1      H(w) = sum of all records' Hessians at the model w that was found
    T          G(w'), at a better point w' that the Hessian and the gradients so far say

If single coefficients are asked for, `sottovoce.sums.focus` takes the place of G(w').

Both are in whitened coordinates, where noise is round and small beside H: `sottovoce.oracle.whitening`. What is told
rests on all gradients. None of them has the regulariser in it: coefficients are those of the likelihood. lam enters the
last step alone, which makes the model. Of counts, H(w) goes with two numbers more, of how much counts vary beside what
a Poisson count does. `sottovoce.sums.inference` makes coefficients and standard errors of what is found here.
"""

import math

import numpy as np

from sottovoce.oracle.loss_sums import VARIATION
from sottovoce.oracle.row_sums import whole
from sottovoce.oracle.whitening import Whitening
from sottovoce.problem.losses import Loss, Poisson
from sottovoce.sums.curvature import newton_step
from sottovoce.sums.descent import Descent, Fit, Heard
from sottovoce.sums.focus import focus
from sottovoce.sums.inference import Evidence, Focused
from sottovoce.sums.program import Ask, Known, Opened, Program
from sottovoce.sums.questions import WhitenedCountHessian, WhitenedGradient, WhitenedHessian

VARIED = 2  # numbers on the variation of counts, behind their Hessian


def standard_errors(
    loss: Loss, known: Known, found: Descent, *, penalty: float, places: tuple[int, ...] = ()
) -> Program[Fit]:
    """The Hessian, a better point, and the gradient there.

    Args:
        loss: a likelihood.
        known: public numbers.
        found: the descent.
        penalty: lam l2, of the last step alone.
        places: numbers of the features whose coefficients are asked for; none: all alike.
    """
    counts, p, A = isinstance(loss, Poisson), known.features, found.whitening
    assert A is not None  # inference has no clipped gradients, which alone are not whitened
    kind = WhitenedCountHessian if counts else WhitenedHessian
    hessian = yield Ask(kind(A.divide(found.w), A), found.fit)
    u, half = hessian.question.u, p * (p + 1) // 2
    H = whole(hessian.mean[:half].T)
    edge = hessian.mean_std.T * math.sqrt(2 * p)

    # One Newton step on all late gradients: those are free, and the last gradient is best taken near the optimum.
    late = found.heard[(len(found.heard) + 4) // 2 - 2 :]
    y, g = (sum(some, start=np.zeros_like(u)) / len(late)
            for some in ([A.divide(h.y) for h in late], [A.times(h.G) for h in late]))  # fmt: skip
    better = u - newton_step(H, edge, g + np.einsum("rij,rj->ri", H, (u - y).T).T, np.zeros_like(H))
    models = len(found.heard)
    so_far, rows = Fit(found.total / models, A.times(better), moments=found.moments), hessian.rows
    focused: tuple[tuple[Focused, ...], ...] = ((),) * known.runs
    if places:
        focused = yield from focus(loss, places, H, edge, found.M, known.data_norm, better, A, so_far)
        found = found._replace(w=A.times(better))
    else:
        last = yield Ask(WhitenedGradient(better, A), so_far)
        # From here on with the bits of the point and the whitening that all sites took.
        better, A, rows = last.question.u, last.question.whitening, last.rows
        model = A.times(better)
        heard = Heard(model, A.divide(last.mean), last.mean_std, found.M.turned(model))
        found = found._replace(w=heard.y, heard=(*found.heard, heard))
    # All gradients say where the optimum is, those near it most.
    y, g, noise = found.gathered
    point, G = A.divide(y), A.times(g)
    # lam |w|^2 / 2 is lam <u, A^2 u> / 2.
    ridge = penalty * np.einsum("ijr,jkr->rik", A.A, A.A)
    model = A.times(point - newton_step(H, edge, G + np.einsum("rij,rj->ri", ridge, point.T).T, ridge))

    hessian_noise = np.broadcast_to(hessian.mean_std, (1, known.runs))[0].tolist()
    evidence = tuple(
        Evidence(
            point=point[:, run], gradient=G[:, run], hessian=H[run], hessian_point=u[:, run],
            gradient_noise=float(noise[0, run]), hessian_noise=hessian_noise[run], rows=rows,
            moments=A.A[:, :, run] @ found.M.matrix(run) @ A.A[:, :, run], coordinates=A.A[:, :, run],
            least=float(A.least(known.data_norm)[0, run]),
            largest=known.data_norm, together=known.changed,
            dispersion=_dispersion(loss, hessian, run, A) if counts else 1.0, exponential=counts,
            focused=focused[run],
        )
        for run in range(known.runs)
    )  # fmt: skip
    return Fit((found.total + model) / (models + 1), model, evidence, moments=found.moments)


def _dispersion(loss: Loss, hessian: Opened, run: int, A: Whitening) -> float:
    """The dispersion of counts: the mean of (count - mean)^2 over the mean of means. For Poisson counts it is 1 / Y in
    the unit that they are learnt in. Each mean is taken a standard deviation of its noise to the safe side.
    """
    curvature, p, rows = loss.smoothness_bound, len(A.A), hessian.rows
    assert curvature is not None
    unit = curvature * A.length[0, run] ** 2
    squares, means = (hessian.mean[-VARIED:, run] / unit).tolist()
    noise = float(np.broadcast_to(hessian.mean_std, A.c.shape)[0, run]) / unit
    most = max(squares / VARIATION, 0.0) + noise / VARIATION
    least = max(means - noise, noise, np.finfo(np.float64).tiny)
    return float(curvature * most / least * rows / max(rows - p, 1))
