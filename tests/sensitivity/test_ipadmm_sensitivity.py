"""Neighbouring data and the same noise: no release moves by more than the declared sensitivity, and some nearly do."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from helpers import every
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.privacy import Repeated, SampledGaussian, Sampling, epsilon

D = 4


def two_nodes(rng, m, loss, norm):
    """Rows of two nodes, and the same with one row of node 0 replaced by any other that keeps the bounds."""
    a = rng.normal(size=(2, m, D))
    a *= norm * rng.random((2, m, 1)) ** 0.2 / np.linalg.norm(a, axis=2, keepdims=True)
    signs = isinstance(loss.labels, sv.losses.Signs)
    b = rng.choice([-1.0, 1.0], size=(2, m)) if signs else 3 * rng.normal(size=(2, m))
    a_new, b_new, j = a.copy(), b.copy(), rng.integers(m)
    a_new[0, j] = norm * np.array([1.0, 0, 0, 0]) if rng.random() < 0.5 else -a[0, j]
    b_new[0, j] = rng.choice([-1.0, 1.0]) if signs else 100 * rng.normal()
    return [sv.Sites(list(x), list(y), data_norm=norm) for x, y in ((a, b), (a_new, b_new))]


def one_step(algorithm, sites, graph, k, state):
    """The release of one round with one local step, from a given state, under fixed noise."""
    noise = SeededNoise(7, Shape(2, D, 1))
    return algorithm.release(k, state, algorithm.oracle(sites, graph), noise)[0]


@given(st.integers(0, 2**32 - 1), st.sampled_from(every.LOSSES), st.sampled_from([None, 0.3]), st.floats(0.1, 10))
@settings(max_examples=150)
def test_no_step_moves_by_more_than_the_declared_sensitivity(seed, loss, clip, norm):
    rng, graph = np.random.default_rng(seed), sv.graphs.complete(2)
    m, k = int(rng.integers(1, 6)), int(rng.integers(1, 20))
    ours, theirs = two_nodes(rng, m, loss, norm)
    algorithm = sv.IPADMM(epsilon=2.0, rounds=20, local_steps=1, diameter=5.0, rho=0.1, loss=loss, max_grad_norm=clip)
    site = algorithm.oracle(ours, graph)
    start = algorithm.start(site, 1)
    state = type(start)(*(rng.normal(size=x.shape) * 10 ** rng.uniform(-2, 2) for x in start))
    moved = one_step(algorithm, ours, graph, k, state) - one_step(algorithm, theirs, graph, k, state)
    # s = 2 c1 / ((2 rho |N_i| + eta) m_i), as the paper declares it
    declared = 2 * site.c1 / ((2 * 0.1 * 1 + algorithm.eta(k, site)[0, 0, 0, 0]) * m)
    slack = 1e-12 * np.abs(state.w).max()
    assert np.linalg.norm(moved[0]) <= declared * (1 + 1e-9) + slack
    assert np.all(moved[1] == 0)


@pytest.mark.parametrize("batch", [None, 3])
def test_the_bound_is_attained(batch):
    """Hinge, opposite rows of one label inside the margin: the gradient moves by 2 c1 / m, or 2 c1 / B a draw."""
    a, m = np.array([[1.0, 0, 0, 0]]), 3
    rows = [np.repeat(a, m, axis=0), np.repeat(a, m, axis=0)]
    swapped = [np.concatenate([-a, np.repeat(a, m - 1, axis=0)]), rows[1]]
    labels, graph = [np.ones(m), np.ones(m)], sv.graphs.complete(2)
    algorithm = sv.IPADMM(epsilon=2.0, rounds=20, local_steps=1, diameter=5.0, loss=sv.losses.Hinge(), batch_size=batch)
    ours, theirs = sv.Sites(rows, labels), sv.Sites(swapped, labels)
    site = algorithm.oracle(ours, graph)
    k, drawn = 1, 1.0
    if batch is not None:
        noise = SeededNoise(7, Shape(2, D, 1))
        counts = {k: noise.draws(k, 0, ours.rows.offsets, batch, "replacement")[0, 0] for k in range(1, 20)}
        k, drawn = next((k, count) for k, count in counts.items() if count >= 1)
    state = algorithm.start(site, 1)
    moved = one_step(algorithm, ours, graph, k, state) - one_step(algorithm, theirs, graph, k, state)
    scale = 2 * algorithm.rho + algorithm.eta(k, site)[0, 0, 0, 0]
    declared = drawn * float(site.sensitivity(algorithm.batch)[0, 0, 0]) / scale
    assert declared * 0.99 <= np.linalg.norm(moved[0]) <= declared * (1 + 1e-12)


def test_logistic_comes_within_one_percent_for_large_models():
    """Two rows, both badly misclassified by w, whose gradients point almost opposite ways."""
    side, up = math.sqrt(1 - 0.01**2), 0.01
    graph, algorithm = sv.graphs.complete(2), sv.IPADMM(diameter=5.0, lam=0.0)
    data = [sv.Sites([np.array([[x, up]]), np.array([[0.0, up]])], [[-1.0], [-1.0]]) for x in (side, -side)]
    ours, theirs = (algorithm.oracle(sites, graph) for sites in data)
    w = np.array([0.0, 1e4]).reshape(1, 2, 1).repeat(2, axis=0)
    moved = np.linalg.norm((ours.gradient(w) - theirs.gradient(w))[0])
    declared = float(ours.sensitivity()[0, 0, 0])
    assert 0.99 * declared <= moved <= declared


def test_clipping_bounds_every_record_whatever_the_rows():
    rng = np.random.default_rng(0)
    rows = [1e3 * rng.normal(size=(5, D)), rng.normal(size=(4, D))]
    sites = sv.Sites(rows, [np.ones(5), -np.ones(4)], data_norm=math.inf)
    algorithm = sv.IPADMM(diameter=1.0, max_grad_norm=0.25, lam=0.0)
    site = algorithm.oracle(sites, sv.graphs.complete(2))
    assert site.c1 == 0.25
    gradient = site.gradient(site.zeros(1))
    assert np.all(np.linalg.norm(gradient, axis=1) <= 0.25 * (1 + 1e-12))
    with pytest.raises(sv.InputError, match="max_grad_norm"):
        sv.IPADMM(diameter=1.0).oracle(sites, sv.graphs.complete(2))


@pytest.mark.parametrize("sampling", ["replacement", "poisson"])
def test_batches_hide_a_row_at_every_node(sampling):
    """A row is drawn most often where there are fewest: the noise and what is charged for it must hold there too."""
    rng, sizes = np.random.default_rng(0), (60, 6, 25)
    sites = sv.Sites([rng.normal(size=(m, D)) / 10 for m in sizes], [np.ones(m) for m in sizes])
    algorithm = sv.IPADMM(epsilon=1.0, rounds=5, local_steps=2, batch_size=3, sampling=sampling, diameter=5.0)
    site = algorithm.oracle(sites, sv.graphs.complete(3))
    sigma, spent = algorithm.sigma(site), algorithm.spent(5, site)
    at_nodes = [epsilon(Repeated(SampledGaussian(sigma, Sampling(sampling, m, 3)), 10), algorithm.delta) for m in sizes]
    assert max(at_nodes) <= spent <= 1.0
    assert min(at_nodes) < 0.5
