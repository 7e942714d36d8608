"""Neighbouring rows move a release by no more than declared, some nearly by that much; the noise has its law."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import sottovoce as sv
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.problem.losses import Softmax

D = 4
LEVEL = 1e-6  # of every test: a right law fails once in a million


def two_nodes(rng, m, classes, norm):
    """Rows of two nodes, and the same with one row of node 0 replaced by any other that keeps the bounds."""
    a = rng.normal(size=(2, m, D))
    a *= norm * rng.random((2, m, 1)) ** 0.2 / np.linalg.norm(a, axis=2, keepdims=True)
    b = rng.integers(classes, size=(2, m)).astype(float)
    a_new, b_new, j = a.copy(), b.copy(), rng.integers(m)
    a_new[0, j] = norm * np.array([1.0, 0, 0, 0]) if rng.random() < 0.5 else -a[0, j]
    b_new[0, j] = rng.integers(classes)
    return [sv.Sites(list(x), list(y), data_norm=norm) for x, y in ((a, b), (a_new, b_new))]


def one_step(algorithm, sites, k, state):
    """The release of one round with one local step, from a given state, under fixed noise."""
    site = algorithm.oracle(sites, sv.graphs.complete(2))
    return algorithm.release(k, state, site, SeededNoise(7, Shape(2, site.d, 1)))[0]


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.sampled_from([None, 0.3]), st.floats(0.1, 10))
@settings(max_examples=150)
def test_no_step_moves_by_more_than_the_declared_sensitivity(seed, classes, clip, norm):
    rng = np.random.default_rng(seed)
    m, k = int(rng.integers(1, 6)), int(rng.integers(1, 20))
    ours, theirs = two_nodes(rng, m, classes, norm)
    algorithm = sv.IPADMM(
        epsilon=2.0, rounds=20, local_steps=1, diameter=5.0, rho=0.1, loss=Softmax(classes), max_grad_norm=clip
    )
    site = algorithm.oracle(ours, sv.graphs.complete(2))
    assert site.c1 == pytest.approx(min(math.sqrt(2) * norm, math.inf if clip is None else clip))
    start = algorithm.start(site, 1)
    state = type(start)(*(rng.normal(size=x.shape) * 10 ** rng.uniform(-2, 2) for x in start))
    moved = one_step(algorithm, ours, k, state) - one_step(algorithm, theirs, k, state)
    declared = 2 * site.c1 / ((2 * 0.1 * 1 + algorithm.eta(k, site)[0, 0, 0, 0]) * m)
    slack = 1e-12 * np.abs(state.w).max()
    assert np.linalg.norm(moved[0]) <= declared * (1 + 1e-9) + slack
    assert np.all(moved[1] == 0)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_the_bound_is_nearly_attained(clip):
    """Two rows, both surely and wrongly class 1, whose gradients point almost opposite ways."""
    side, up = math.sqrt(1 - 0.01**2), 0.01
    graph, algorithm = sv.graphs.complete(2), sv.IPADMM(diameter=5.0, lam=0.0, loss=Softmax(3), max_grad_norm=clip)
    data = [sv.Sites([np.array([[x, up]]), np.array([[0.0, up]])], [[0.0], [0.0]]) for x in (side, -side)]
    ours, theirs = (algorithm.oracle(sites, graph) for sites in data)
    w = np.array([[0.0, 0.0, 0.0], [0.0, 1e4, 0.0]]).reshape(1, 6, 1).repeat(2, axis=0)
    moved = np.linalg.norm((ours.gradient(w) - theirs.gradient(w))[0])
    declared = float(ours.sensitivity()[0, 0, 0])
    assert 0.99 * declared <= moved <= declared


@pytest.mark.parametrize("device", ["plain", "cpu"])
def test_clipping_bounds_every_record_whatever_the_rows(device):
    rng = np.random.default_rng(0)
    rows = [1e3 * rng.normal(size=(1, D)), np.zeros((1, D)), 1e-3 * rng.normal(size=(1, D))]
    sites = sv.Sites(rows, [[0.0], [1.0], [2.0]], data_norm=math.inf)
    algorithm = sv.IPADMM(
        diameter=1.0, max_grad_norm=0.25, lam=0.0, loss=Softmax(3), epsilon=math.inf, rounds=1, local_steps=1
    )
    site = algorithm.oracle(sites, sv.graphs.complete(3))
    assert site.c1 == 0.25
    # From zero, one step without noise is minus the gradient over (2 rho |N_i| + eta).
    scale = 2 * algorithm.rho * site.degree + algorithm.eta(1, site)[0]
    step = sv.simulate(algorithm, sites, sv.graphs.complete(3), seed=1, device=device).last[0] * scale[:, :, 0]
    first, zero, short = np.linalg.norm(step, axis=1)
    assert first == pytest.approx(0.25)
    assert zero == 0
    assert short == pytest.approx(np.linalg.norm(rows[2]) * math.sqrt(6) / 3)
    with pytest.raises(sv.InputError, match="max_grad_norm"):
        sv.IPADMM(diameter=1.0, loss=Softmax(3)).oracle(sites, sv.graphs.complete(3))


# -- the law of the noise ----------------------------------------------------------------------------------------------


def accepts(samples):
    """Two-sided chi-square test of the variance, and Kolmogorov-Smirnov on the law."""
    scaled = np.sort(samples.ravel())
    tail = stats.chi2.cdf(np.sum(scaled**2), df=scaled.size)
    return LEVEL < tail < 1 - LEVEL and stats.kstest(scaled, "norm").pvalue > LEVEL


def first_releases(runs=300, **options):
    """Release minus its noiseless twin, in units that should be standard: (run, node, coordinate)."""
    rng, sizes = np.random.default_rng(0), (3, 40, 11)
    rows = [rng.normal(size=(m, 5)) / 10 for m in sizes]
    sites = sv.Sites(rows, [rng.integers(3, size=m).astype(float) for m in sizes])
    graph = sv.graphs.path(3)
    algorithm = sv.IPADMM(loss=Softmax(3), epsilon=1.0, rounds=1, local_steps=1, diameter=7.0, rho=0.05, **options)
    site = algorithm.oracle(sites, graph)
    noisy = sv.simulate(algorithm, sites, graph, runs=runs, seed=3)
    scale = 2 * 0.05 * site.degree + algorithm.eta(1, site)[0]
    exact = (-site.gradient(site.zeros(1)) / scale)[:, :, 0]
    # 2 c1 / m_i, with c1 as proved: sqrt(2) for rows of norm at most 1.
    std = algorithm.sigma(site) * 2 * math.sqrt(2) / (np.array(sizes)[:, None] * scale[:, :, 0])
    return (noisy.last - exact) / std


def test_releases_carry_exactly_the_declared_noise():
    assert accepts(first_releases())


@pytest.mark.parametrize("factor", [2 / 3, 0.9, 1.1])
def test_wrong_noise_is_found_out(factor):
    assert not accepts(first_releases() * factor)


def test_noise_of_runs_nodes_and_coordinates_is_uncorrelated():
    z = first_releases(runs=1000)
    flat = z.reshape(len(z), -1)
    correlation = np.corrcoef(flat.T) - np.eye(flat.shape[1])
    assert np.abs(correlation).max() < 6 / math.sqrt(len(z))


def test_all_classes_share_one_budget():
    """The statement does not know how many classes there are: one release holds all of a model's columns."""
    for classes in (2, 9):
        rng = np.random.default_rng(1)
        sites = sv.Sites([rng.normal(size=(20, 3)) / 10] * 2, [rng.integers(classes, size=20).astype(float)] * 2)
        algorithm = sv.IPADMM(loss=Softmax(classes), epsilon=0.7, rounds=5, local_steps=2, diameter=1.0)
        oracle = algorithm.oracle(sites, sv.graphs.complete(2))
        statement = algorithm.statement(oracle)
        assert 0.699 < statement.epsilon <= 0.7
        assert statement.sigma == sv.IPADMM(epsilon=0.7, rounds=5, local_steps=2).sigma(oracle)
