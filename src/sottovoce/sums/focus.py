"""Gradients along a few directions, for the coefficients that were asked for: a program.

A contrast c of the coefficients moves by c^T H^-1 g in a Newton step, so of the gradient g it needs X^T g alone, with
X = H^-1 c. A row's part of that, s = X^T t in whitened coordinates, is far shorter than the row: its noise is that of k
numbers and not of p. Rows are cut to the length 1 there. So what is summed is the gradient of a likelihood in which
rows that stand out count less, and its Hessian along X is summed with it: `sottovoce.oracle.loss_sums`.

    X           the rows of H^-1 that belong to the coefficients, of the noisy Hessian, at first
    X <- X + H^-1 (c - X^T H)       then, X^T H as it was heard: it has less noise than H

In X all of one length count alike. It is divided by what hardly a row is longer than: of second moments that are known,
a number is rarely longer than `USUAL` times its root mean square, and a level of few rows by what makes it rare.
"""

import math

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.oracle.whitening import Whitening
from sottovoce.problem.losses import Loss
from sottovoce.problem.losses.base import BESIDE
from sottovoce.sums.curvature import Curvature, newton_step
from sottovoce.sums.descent import Fit
from sottovoce.sums.inference import Focused
from sottovoce.sums.program import Ask, Opened, Program
from sottovoce.sums.questions import FocusedGradient

ASKED = 2  # sums along directions, the second along better ones
# Chosen on some tables and judged on others: docs/proofs/inference.md says which.
USUAL, RARE = 1.3, 0.9


def focus(
    loss: Loss, places: tuple[int, ...], H: Floats, edge: Floats, M: Curvature, norm: float, u: Floats, A: Whitening,
    so_far: Fit,
) -> Program[tuple[tuple[Focused, ...], ...]]:  # fmt: skip
    """What is heard along the directions of these coefficients, of every run.

    Args:
        loss: of one row.
        places: numbers of the features whose coefficients are asked for.
        H: the noisy Hessians of the mean loss in whitened coordinates, (runs, p, p).
        edge: the size of their noise, (runs, 1).
        M: the second moments.
        norm: bound on the norm of rows.
        u: the model that gradients are taken at, in whitened coordinates.
        A: the coordinates.
        so_far: the answer if no further sum is opened.
    """
    runs, none = len(H), np.zeros_like(H)
    heard: list[tuple[Focused, ...]] = [()] * runs
    wanted = A.A[list(places)].transpose(2, 0, 1)  # (runs, k, p)
    off, X = wanted, np.zeros_like(wanted)
    for _ in range(ASKED):
        X = X + np.stack([newton_step(H, edge, c.T, none).T for c in off.transpose(1, 0, 2)], axis=1)
        scales = np.stack([_scale(x, A.A[..., run], M, run, places) for run, x in enumerate(X)])
        directions = (scales @ X).transpose(2, 1, 0).reshape(-1, runs)
        opened = yield Ask(FocusedGradient(u, A, directions), so_far)
        # From here on with the bits of the point and the whitening that all sites took.
        u, A = opened.question.u, opened.question.whitening
        heard = [(*some, _told(loss, opened, norm, run)) for run, some in enumerate(heard)]
        found = np.stack([np.linalg.solve(scale, some[-1].hessian) for scale, some in zip(scales, heard, strict=True)])
        off = wanted - found
    return tuple(heard)


def _scale(X: Floats, A: Floats, M: Curvature, run: int, places: tuple[int, ...]) -> Floats:
    """The symmetric matrix that makes these directions, (k, p), even and short: (k, k)."""
    B, moments = X @ A, M.matrix(run) + M.tau[0, run] / (4 * math.sqrt(len(A))) * np.eye(len(A))
    values, vectors = np.linalg.eigh(B @ moments @ B.T)
    own = np.diag(moments)
    longest = max(USUAL * math.sqrt(len(places)), RARE * math.sqrt(own.max() / own[list(places)].min()))
    scale: Floats = (vectors / np.sqrt(values)) @ vectors.T / longest
    return scale


def _told(loss: Loss, opened: Opened, norm: float, run: int) -> Focused:
    """What was heard of one run."""
    question, bound = opened.question, loss.smoothness_bound
    assert bound is not None  # refused when the analysis was made
    A, numbers = question.whitening.of_run(run), opened.mean[:, run]
    X = question.directions[:, run].reshape(len(A.A), -1)
    back = bound * float(A.length[0, 0]) / BESIDE
    noise = float(np.broadcast_to(opened.mean_std, question.whitening.c.shape)[0, run])
    k = X.shape[1]
    return Focused(
        point=question.u[:, run], directions=X, gradient=numbers[:k], hessian=back * numbers[k:].reshape(k, -1),
        gradient_noise=noise, hessian_noise=back * noise,
        least=1 / max(1.0, norm * float(np.linalg.norm(A.A[..., 0] @ X, 2))),
    )  # fmt: skip
