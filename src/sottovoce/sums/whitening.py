"""The whitening of a descent: its noise gets the shape of the second moments, which everyone has heard.

With l_j the eigenvalues of M^ and s > 0, A = (M^ + s I)^(-1/2), the symmetric root, since eigenvectors have no fixed
signs. c is the root of the mean of |A a|^2 over the rows, or longer, so that every row counts 1/m times at least:
c^2 = max(sum_j l_j / (l_j + s), B^2 / (m s)), as |A a|^2 <= B^2 / s.

If the model is not true, counting long rows less moves the optimum, and that does not shrink with the noise. So m does:
it is a multiple of the noise of a single release of the gradient, as `MaskedNewton.exchanges` takes it, between 1 and a
bound (`LongRows`). Without noise m is 1, and every row counts once. Where intervals are told, both are smaller.

A gradient's noise is that of rows of length c in these coordinates, so a step of the descent makes the loss larger by
about its variance times

    c^2 sum_j l_j (l_j + s) / (l_j + tau)^2,       or, if noise stays round,       B^2 sum_j l_j / (l_j + tau)^2.

s is the one of a grid that makes the first least. Where none is less than the second, noise stays round.
"""

from typing import NamedTuple

import numpy as np

from sottovoce.oracle.whitening import Whitening
from sottovoce.sums.curvature import FLOOR, Curvature

GRID = FLOOR * np.logspace(0, 5, 51)  # s, as a part of the largest l_j


class LongRows(NamedTuple):
    """How many times less a row may count than others: m."""

    by_noise: float  # m over the noise of a single release
    most: float


# Chosen on some tables and judged on others: docs/proofs/masked.md and docs/proofs/inference.md say which.
TO_PREDICT, TO_INFER = LongRows(7e3, 16.0), LongRows(4e3, 4.0)


def whitening_of(M: Curvature, norm: float, noise: float, long_rows: LongRows) -> Whitening:
    """The whitening with which noise costs a model least.

    Args:
        M: the second moments.
        norm: bound on the norm of rows.
        noise: length of the noise in a single release of the mean gradient, relative to that of one row's gradient.
        long_rows: how much less they may count.
    """
    p, runs = M.moments.shape
    square = norm * norm  # in units of which all is computed, so that nothing underflows
    counted = min(max(long_rows.by_noise * noise, 1.0), long_rows.most)
    l, gain, tau = np.clip(M.moments / square, 0.0, 1.0), M.values / square, M.tau / square
    costs = l / (gain + tau) ** 2
    s = GRID[:, None, None] * np.maximum(l.max(axis=0), FLOOR)  # all eigenvalues may be noise, and so 0
    lengths = np.maximum(np.sum(l / (l + s), axis=1), 1 / (counted * s[:, 0]))  # c^2: (grid, runs)
    whitened = lengths * np.sum(costs * (l + s), axis=1)
    best, every = whitened.argmin(axis=0), np.arange(runs)
    pays = whitened[best, every] < costs.sum(axis=0)
    roots = np.where(pays, 1 / np.sqrt(l + s[best, 0, every]) / norm, 1.0)
    c = np.where(pays, np.sqrt(lengths[best, every]), norm)[None]
    if M.basis is None:
        return Whitening(roots, c)
    A = np.einsum("ijr,jr,kjr->ikr", M.basis, roots, M.basis, optimize=True)
    A = np.where(pays, (A + A.transpose(1, 0, 2)) / 2, np.eye(p)[..., None])
    return Whitening(A, c)
