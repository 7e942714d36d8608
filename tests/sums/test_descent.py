"""What a descent makes of its gradients, against the formula written out with matrices, run by run."""

import math

import numpy as np
import pytest

from sottovoce.sums.curvature import WIDEST_MATRIX, Curvature
from sottovoce.sums.descent import APART, Descent, Heard
from sottovoce.sums.program import Opened
from sottovoce.sums.questions import DiagonalMoments, Moments

RUNS, ROWS, OUTPUTS = 2, 50, 2


def curvature(p, rng):
    full = p <= WIDEST_MATRIX
    matrices = [(a := rng.normal(size=(p, p)) / p) @ a.T for _ in range(RUNS)] if full else []
    value = np.array([m[np.triu_indices(p)] for m in matrices]).T if full else rng.random((p, RUNS))
    return Curvature.of(Opened(Moments() if full else DiagonalMoments(), ROWS * value, np.array([[0.1]]), ROWS), p)


@pytest.mark.parametrize("p", [3, WIDEST_MATRIX + 1])
def test_gradients_weigh_by_their_noise_and_by_how_far_off_they_were_taken(p):
    rng = np.random.default_rng(0)
    M, d = curvature(p, rng), p * OUTPUTS
    some = [rng.normal(size=(2, d, RUNS)) for _ in range(3)]
    stds = [np.array([[0.2]]), np.array([[0.3, 0.7]]), np.array([[1.5]])]
    heard = tuple(Heard(y, G, std, M.turned(y)) for (y, G), std in zip(some, stds, strict=True))
    w, unit, bend = rng.normal(size=(d, RUNS)), rng.random((p, RUNS)) + 0.5, np.array([[0.4, 0.9]])
    y, G, std = Descent(w, w, M, unit, bend, 0.25, 1e-3, heard=heard).gathered
    for run in range(RUNS):
        matrix, scale = M.matrix(run), 0.25 * bend[0, run] * (M.values[:, run] + M.tau[0, run]) + 1e-3
        noise = OUTPUTS * np.sum(M.values[:, run] * unit[:, run] / scale**2)
        weights = []
        for one, s in zip(heard, stds, strict=True):
            away = (one.y - w)[:, run].reshape(p, OUTPUTS)
            v = float(np.broadcast_to(s, (1, RUNS))[0, run]) ** 2 * noise
            weights.append(1 / (v + APART * np.trace(away.T @ matrix @ away)))
        weights = np.array(weights) / sum(weights)
        for found, parts in ((y, [one.y for one in heard]), (G, [one.G for one in heard])):
            np.testing.assert_allclose(found[:, run], sum(u * x[:, run] for u, x in zip(weights, parts, strict=True)))
        spread = [u * float(np.broadcast_to(s, (1, RUNS))[0, run]) for u, s in zip(weights, stds, strict=True)]
        assert std[0, run] == pytest.approx(math.hypot(*spread))
