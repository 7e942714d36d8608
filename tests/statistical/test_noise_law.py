"""The noise that a release really carries has the declared law; two thirds of it would be found out."""

import math

import numpy as np
import pytest
from scipy import stats

import sottovoce as sv
from sottovoce.noise.sources import SeededNoise, Shape

LEVEL = 1e-6  # of every test: a right law fails once in a million


def accepts(samples, std):
    """Two-sided chi-square test of the variance, and Kolmogorov-Smirnov on the law."""
    scaled = np.sort(samples.ravel() / std)
    tail = stats.chi2.cdf(np.sum(scaled**2), df=scaled.size)
    return LEVEL < tail < 1 - LEVEL and stats.kstest(scaled, "norm").pvalue > LEVEL


def first_releases(runs=400):
    """Release minus its noiseless twin, in units that should be standard: (run, node, coordinate)."""
    rng = np.random.default_rng(0)
    sizes = (3, 40, 11)
    a = [rng.normal(size=(m, 5)) / 10 for m in sizes]
    sites = sv.Sites(a, [rng.choice([-1.0, 1.0], size=m) for m in sizes])
    graph = sv.graphs.path(3)
    algorithm = sv.IPADMM(epsilon=1.0, rounds=1, local_steps=1, diameter=7.0, rho=0.05)
    site = algorithm.oracle(sites, graph)
    sigma = algorithm.sigma(site)
    noisy = sv.simulate(algorithm, sites, graph, runs=runs, seed=3)
    # The noiseless release, in closed form from w = gamma = 0: minus the gradient over (2 rho |N_i| + eta).
    scale = 2 * 0.05 * site.degree + algorithm.eta(1, site)[0]
    exact = (-site.gradient(site.zeros(1)) / scale)[:, :, 0]
    std = sigma * 2 * site.c1 / (np.array(sizes)[:, None] * scale[:, :, 0])
    return (noisy.last - exact) / std


def test_releases_carry_exactly_the_declared_noise():
    assert accepts(first_releases(), 1.0)


@pytest.mark.parametrize("factor", [2 / 3, 0.9, 1.1])
def test_wrong_noise_is_found_out(factor):
    assert not accepts(first_releases() * factor, 1.0)


def test_noise_of_runs_nodes_and_coordinates_is_uncorrelated():
    z = first_releases(runs=2000)
    flat = z.reshape(len(z), -1)
    correlation = np.corrcoef(flat.T) - np.eye(flat.shape[1])
    assert np.abs(correlation).max() < 6 / math.sqrt(len(z))
    assert abs(np.mean(z[1:] * z[:-1])) < 6 / math.sqrt(z[1:].size)


def test_a_stochastic_step_carries_noise_for_its_batch_not_for_all_rows():
    """Errata 10: the noise of a batch of B is 2 c1 sigma / B, whatever m_i is."""
    sites = sv.Sites([np.zeros((50, 3)), np.zeros((20, 3))], [np.ones(50), np.ones(20)])
    algorithm = sv.IPADMM(epsilon=1.0, rounds=1, local_steps=1, diameter=7.0, batch_size=4)
    graph = sv.graphs.complete(2)
    site = algorithm.oracle(sites, graph)
    result = sv.simulate(algorithm, sites, graph, runs=2000, seed=1)
    scale = 2 * algorithm.rho * site.degree + algorithm.eta(1, site)[0]
    std = algorithm.sigma(site) * 2 * site.c1 / 4 / scale[:, :, 0]
    assert accepts(result.last / std, 1.0)
    assert not accepts(result.last / std * (4 / 20), 1.0)


@pytest.mark.parametrize("scheme", ["replacement", "poisson"])
def test_batches_are_unbiased(scheme):
    offsets = np.array([0, 7, 50])
    noise = SeededNoise(1, Shape(2, 3, 4000))
    counts = np.concatenate([noise.draws(k, 0, offsets, 5, scheme) for k in range(1, 6)], axis=1)
    expected = np.repeat([5 / 7, 5 / 43], [7, 43])
    spread = np.sqrt(expected / counts.shape[1])
    assert np.all(np.abs(counts.mean(axis=1) - expected) < 6 * spread)
    if scheme == "replacement":
        assert np.all(np.add.reduceat(counts, offsets[:-1], axis=0) == 5)
    else:
        assert set(np.unique(counts)) == {0.0, 1.0}
