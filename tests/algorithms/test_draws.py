"""The Laplace laws made from normals are what they say; two thirds of the noise would be found out."""

import numpy as np
import pytest
from scipy import stats

from algorithms import harness
from sottovoce.algorithms.laplace import LAPLACE_NORMALS, NORM_LAPLACE_NORMALS, laplace, norm_laplace
from sottovoce.noise.sources import SeededNoise, Shape

LEVEL = 1e-6
D, RUNS, NODES = 4, 3000, 2


def accepts(samples, law):
    return stats.kstest(samples.ravel(), law.cdf).pvalue > LEVEL


def source():
    return SeededNoise(11, Shape(NODES, D, RUNS))


def test_l2_laplace_has_a_gamma_radius_and_any_direction():
    x = norm_laplace(source(), 1, 0)
    assert x.shape == (NODES, D, RUNS)
    radius = np.linalg.norm(x, axis=1)
    assert accepts(radius, stats.gamma(D))
    # On the sphere of R^4 a coordinate squared has law Beta(1/2, 3/2).
    for q in range(D):
        assert accepts((x[:, q] / radius) ** 2, stats.beta(0.5, (D - 1) / 2))
    assert np.abs(np.mean(x / radius[:, None], axis=(0, 2))).max() < 6 / np.sqrt(D * NODES * RUNS)
    assert np.abs(np.corrcoef(radius.ravel(), (x / radius[:, None])[:, 0].ravel())[0, 1]) < 6 / np.sqrt(NODES * RUNS)


def test_laplace_coordinates():
    x = laplace(source(), 1, 0)
    assert x.shape == (NODES, D, RUNS)
    assert accepts(x, stats.laplace())
    correlation = np.corrcoef(x.transpose(1, 0, 2).reshape(D, -1)) - np.eye(D)
    assert np.abs(correlation).max() < 6 / np.sqrt(NODES * RUNS)


@pytest.mark.parametrize("factor", [2 / 3, 0.9, 1.1])
def test_wrong_scales_are_found_out(factor):
    assert not accepts(factor * np.linalg.norm(norm_laplace(source(), 1, 0), axis=1), stats.gamma(D))
    assert not accepts(factor * laplace(source(), 1, 0), stats.laplace())


def test_laws_that_are_often_mistaken_for_it_are_found_out():
    """i.i.d. Laplace coordinates, or an exponential radius, are not the l2-Laplace law."""
    assert not accepts(np.linalg.norm(laplace(source(), 1, 0), axis=1), stats.gamma(D))
    assert not accepts(np.linalg.norm(norm_laplace(source(), 1, 0), axis=1), stats.expon())


def test_draws_use_the_normals_that_they_say():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(1, 3, 2, 9, D))  # round, runs, nodes, steps, d
    noise = harness.given(z, 2, D, 3)
    one, two = norm_laplace(noise, 1, 2)[1, :, 0], laplace(noise, 1, 4)[0, :, 2]
    z0, z1, z2 = z[0, 0, 1, 2 : 2 + NORM_LAPLACE_NORMALS]
    np.testing.assert_allclose(one, z0 / np.linalg.norm(z0) * (z1 @ z1 + z2 @ z2) / 2)
    y = z[0, 2, 0, 4 : 4 + LAPLACE_NORMALS]
    np.testing.assert_allclose(two, (y[0] ** 2 + y[1] ** 2 - y[2] ** 2 - y[3] ** 2) / 2)
