"""Sites that count by their rows: what is optimised, how far a row moves a release, and what a site alone finds."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import minimize

import sottovoce as sv
from algorithms import harness
from helpers import every, problems
from helpers.federations import NAMES, SIZES, agreement
from sottovoce import algorithms as al
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.oracle.plain import Oracle
from sottovoce.problem.sites import WEIGHTS, importances
from sottovoce.simulation.optimum import name_of_optimum, pooled_model

D, RHO, LAM = 3, 0.1, 0.05
UNEQUAL = (3, 40, 8, 1, 17)
GRAPH = sv.graphs.from_edges(5, [(0, 1), (1, 2), (2, 3), (1, 3), (3, 4)])
POWERS = {"equal": 0, "rows": 1, "squared": 2}
FAR = {"rounds": 20, "rho": RHO, "lam": LAM, "epsilon": 2.0}
ADDITIVE = {
    "ipadmm": sv.IPADMM(**FAR, local_steps=1, diameter=5.0),
    "pvp": al.PVP(**FAR),
    "dp-admm": al.DPADMM(**FAR, diameter=5.0),
    "ryu-kim": al.RyuKim(**FAR, local_steps=1, diameter=5.0),
    "fixed point": al.FixedPoint(**FAR, relaxation=0.7),
    "noisy averaged": al.NoisyAveragedGD(**FAR, diameter=5.0),
}


def omega(sizes, weights):
    """By the definition, for tests to hold the code against."""
    powers = np.array([float(m) ** POWERS[weights] for m in sizes])
    return powers / powers.sum()


# -- the weights themselves -------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 10**8), min_size=1, max_size=40), st.sampled_from(WEIGHTS))
def test_importances_are_n_times_the_weights(sizes, weights):
    np.testing.assert_allclose(importances(sizes, weights), len(sizes) * omega(sizes, weights), rtol=1e-12)


@given(st.integers(1, 10**8), st.integers(1, 1000), st.sampled_from(WEIGHTS))
def test_equal_sites_count_exactly_one(m, n, weights):
    assert np.all(importances([m] * n, weights) == 1.0)


@pytest.mark.parametrize("weights", ["rows", "squared"])
def test_equal_sites_give_the_same_bits_whatever_the_weights(weights):
    sites = problems.sites(np.random.default_rng(0), (12,) * 4)
    algorithm = sv.IPADMM(rounds=3, local_steps=2, batch_size=4)
    kinds = (algorithm, replace(algorithm, weights=weights))
    runs = [sv.simulate(kind, sites, sv.graphs.ring(4), runs=3, seed=1) for kind in kinds]
    assert np.array_equal(runs[0].last, runs[1].last)


def test_unknown_weights_are_refused():
    with pytest.raises(sv.InputError, match="weights among equal, rows, squared, got weights='cubed'"):
        sv.IPADMM(weights="cubed")
    with pytest.raises(sv.UnsupportedError, match="weights='equal' for DPDSGD"):
        al.DPDSGD(weights="rows")


# -- what is optimised ------------------------------------------------------------------------------------------------


def minimum(features, labels, loss, weights, lam):
    def objective(w):
        value, gradient = lam * (w @ w) / 2, lam * w
        for share, a, b in zip(omega(list(map(len, labels)), weights), features, labels, strict=True):
            value += share * np.mean(loss.value(a @ w, b, loss.theta))
            gradient = gradient + share * a.T @ loss.slope(a @ w, b, loss.theta) / len(b)
        return value, gradient

    found = minimize(objective, np.zeros(features[0].shape[1]), jac=True, method="L-BFGS-B", tol=1e-14)
    return objective, found.fun, found.x


QUIET = {"epsilon": math.inf, "rho": 0.05, "lam": 0.05}
NOISELESS = {
    "admm": (al.ADMM(rounds=1500, rho=0.05, lam=0.05), 1e-8),
    "ipadmm": (sv.IPADMM(rounds=3000, local_steps=3, diameter=10.0, **QUIET), 1e-4),
    "pvp": (al.PVP(rounds=1500, **QUIET), 1e-8),
    "r-admm": (al.RADMM(rounds=1500, **QUIET), 1e-8),
    "dp-admm": (al.DPADMM(rounds=1500, **QUIET, diameter=10.0), 1e-6),
    "fixed point": (al.FixedPoint(rounds=1500, **QUIET), 1e-8),
    "noisy averaged": (al.NoisyAveragedGD(rounds=3000, diameter=10.0, **QUIET), 1e-6),
}


@pytest.mark.parametrize("weights", ["rows", "squared"])
@pytest.mark.parametrize("name", NOISELESS)
def test_without_noise_the_weighted_optimum_is_reached(name, weights):
    algorithm, close = NOISELESS[name]
    algorithm = replace(algorithm, weights=weights)
    features, labels = problems.lists(np.random.default_rng(3), UNEQUAL)
    graph = sv.graphs.complete(5) if every.needs_complete_graph(type(algorithm)) else GRAPH
    result = sv.simulate(algorithm, sv.Sites(features, labels), graph, record=1)
    objective, least, _ = minimum(features, labels, algorithm.loss, weights, 0.05)
    assert -1e-10 < max(objective(w)[0] - least for w in result.last[0]) < close
    _, _, alike = minimum(features, labels, algorithm.loss, "equal", 0.05)
    assert objective(alike)[0] - least > 20 * close  # the test could tell


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_yardstick_is_the_optimum_of_what_is_optimised(weights):
    features, labels = problems.lists(np.random.default_rng(3), UNEQUAL)
    sites, algorithm = sv.Sites(features, labels), sv.IPADMM(lam=0.05, weights=weights)
    _, _, best = minimum(features, labels, algorithm.loss, weights, 0.05)
    np.testing.assert_allclose(pooled_model(sites, algorithm), best, atol=1e-5)
    assert ("all rows pooled" in name_of_optimum(sites, algorithm)) == (weights == "rows")


@pytest.mark.parametrize("kind", [Oracle, CompiledOracle])
def test_lam_means_the_same_however_many_sites_there_are(kind):
    features, labels = problems.lists(np.random.default_rng(3), (9, 9))
    algorithm = sv.ADMM(lam=0.3)
    few = algorithm.oracle(sv.Sites(features, labels), sv.graphs.complete(2), kind)
    many = algorithm.oracle(sv.Sites(features * 5, labels * 5), sv.graphs.complete(10), kind)
    w = np.random.default_rng(0).normal(size=(1, 5, 1))
    for f in ("risk", "gradient"):
        alone = [getattr(site, f)(np.repeat(w, site.n, axis=0)).mean(axis=0) for site in (few, many)]
        np.testing.assert_allclose(*alone, rtol=1e-13)
    models = [pooled_model(site.sites, algorithm) for site in (few, many)]
    np.testing.assert_allclose(*models, atol=1e-8)


# -- privacy ----------------------------------------------------------------------------------------------------------


def neighbours(rng, sizes, loss):
    """Rows of some sites, and the same with one row of site 0 replaced."""
    a = [rng.normal(size=(m, D)) for m in sizes]
    a = [x * rng.random((len(x), 1)) ** 0.2 / np.linalg.norm(x, axis=1, keepdims=True) for x in a]
    signs = isinstance(loss.labels, sv.losses.Signs)
    b = [rng.choice([-1.0, 1.0], size=m) if signs else 3 * rng.normal(size=m) for m in sizes]
    other, label, j = [x.copy() for x in a], [x.copy() for x in b], rng.integers(sizes[0])
    other[0][j] = [np.eye(D)[0], -a[0][j], np.zeros(D)][rng.integers(3)]
    label[0][j] = rng.choice([-1.0, 1.0]) if signs else 100 * rng.normal()
    return sv.Sites(a, b), sv.Sites(other, label)


def declared(algorithm, site, weights, k):
    """What the noise of site 0's message is made for: 2 c1 n omega / m and what the step does to it, by hand."""
    sizes = site.sites.counts.tolist()
    s = 2 * site.c1 * len(sizes) * omega(sizes, weights)[0] / sizes[0]
    degree = len(sizes) - 1
    if isinstance(algorithm, al.PVP):
        return (s + 2e-10) / (LAM + 2 * RHO * degree)
    if isinstance(algorithm, al.FixedPoint):
        return 2 * 0.7 * (s + 2e-10) / (LAM + 2 * RHO * degree)
    if isinstance(algorithm, sv.IPADMM):
        return s / (2 * RHO * degree + algorithm.eta(k, site)[0, 0, 0, 0])
    eta = algorithm.eta(k, site)[0, 0, 0]
    return s / eta if isinstance(algorithm, al.NoisyAveragedGD) else s / (2 * RHO * degree + eta)


@pytest.mark.parametrize("name", ADDITIVE)
@given(st.integers(0, 2**32 - 1), st.sampled_from(WEIGHTS))
@settings(max_examples=60)
def test_no_release_moves_by_more_than_declared(name, seed, weights):
    rng = np.random.default_rng(seed)
    loss = [sv.losses.Logistic(), sv.losses.SmoothedHinge(), sv.losses.Huber()][rng.integers(3)]
    algorithm = replace(ADDITIVE[name], loss=loss, weights=weights)
    sizes, k = [int(m) for m in rng.integers(1, 12, size=3)], int(rng.integers(1, 20))
    graph = sv.graphs.complete(3)
    ours, theirs = (algorithm.oracle(sites, graph) for sites in neighbours(rng, sizes, loss))
    start = algorithm.start(ours, 1)
    state = type(start)(*(rng.normal(size=x.shape) * 10 ** rng.uniform(-2, 1) for x in start))
    noise = harness.given(rng.normal(size=(20, 1, 3, algorithm.draws_per_round, D)), 3, D, 1)
    moved = np.subtract(*(algorithm.release(k, state, site, noise)[0] for site in (ours, theirs)))
    slack = 1e-12 * max(np.abs(x).max() for x in algorithm.release(k, state, ours, noise)[1])
    assert np.linalg.norm(moved[0]) <= declared(algorithm, ours, weights, k) * (1 + 1e-9) + slack
    assert np.abs(moved[1:]).max() <= 1e-7


@pytest.mark.parametrize("weights", ["rows", "squared"])
@pytest.mark.parametrize("batch", [None, 3])
def test_the_bound_is_attained(weights, batch):
    """Hinge, opposite rows of one label inside the margin: the gradient moves by n omega 2 c1 / m, or / B a draw."""
    a, sizes = np.array([[1.0, 0, 0]]), (3, 7)
    rows = [np.repeat(a, m, axis=0) for m in sizes]
    swapped = [np.concatenate([-a, rows[0][1:]]), rows[1]]
    labels, graph = [np.ones(m) for m in sizes], sv.graphs.complete(2)
    algorithm = sv.IPADMM(rounds=20, local_steps=1, diameter=5.0, loss=sv.losses.Hinge(), batch_size=batch,
                          weights=weights)  # fmt: skip
    sites = sv.Sites(rows, labels), sv.Sites(swapped, labels)
    noise, k, drawn = SeededNoise(7, Shape(2, D, 1)), 1, 1.0
    if batch is not None:
        counts = {k: noise.draws(k, 0, sites[0].rows.offsets, batch, "replacement")[0, 0] for k in range(1, 20)}
        k, drawn = next((k, count) for k, count in counts.items() if count >= 1)
    ours, theirs = (algorithm.oracle(held, graph) for held in sites)
    start = algorithm.start(ours, 1)
    moved = np.subtract(*(algorithm.release(k, start, site, noise)[0] for site in (ours, theirs)))
    s = 2 * 2 * omega(sizes, weights)[0] / (batch or 3) * drawn
    bound = s / (2 * algorithm.rho + algorithm.eta(k, ours)[0, 0, 0, 0])
    assert bound * 0.99 <= np.linalg.norm(moved[0]) <= bound * (1 + 1e-9)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_curators_average_moves_by_at_most_its_share(weights):
    rng, sizes = np.random.default_rng(1), (4, 9, 2)
    algorithm = al.TrustedCurator(**FAR, diameter=5.0, weights=weights)
    for _ in range(50):
        ours, theirs = (
            algorithm.oracle(held, sv.graphs.complete(3)) for held in neighbours(rng, sizes, algorithm.loss)
        )
        w = rng.normal(size=(3, D, 1)) * 10
        moved = np.linalg.norm((ours.gradient(w) - theirs.gradient(w)).mean(axis=0))
        most = 2 * max(omega(sizes, weights) / np.array(sizes))
        assert moved <= most * (1 + 1e-9)
    spread = algorithm.local_sigma(ours) * np.sqrt(np.sum(ours.sensitivity() ** 2)) / 3
    assert spread == pytest.approx(algorithm.sigma(ours) * most, rel=1e-9)


@pytest.mark.parametrize("weights", ["rows", "squared"])
def test_objective_perturbation_pays_for_the_heaviest_row(weights):
    rng = np.random.default_rng(0)
    sites, graph = sv.Sites([rng.normal(size=(m, D)) / 10 for m in UNEQUAL], [np.ones(m) for m in UNEQUAL]), GRAPH
    algorithm = al.DVP(rounds=3, rho=1.0, lam=0.3, weights=weights)
    site = algorithm.oracle(sites, graph)
    kappa = 0.25 * 5 * omega(UNEQUAL, weights) / np.array(UNEQUAL) / (0.3 + 2 * GRAPH.degrees)
    np.testing.assert_allclose(algorithm.kappa(1, site)[:, 0, 0], kappa, rtol=1e-11)
    charged = algorithm.step(1.0, algorithm.sigma(site), al.objective.network_of(site)).events[0].kappa
    assert kappa.max() <= charged <= kappa.max() * (1 + 1e-11)


@pytest.mark.parametrize("factor", [1.0, 2 / 3, 1.1])
@pytest.mark.parametrize("weights", ["rows", "squared"])
def test_releases_carry_exactly_the_declared_noise(weights, factor):
    rng, sizes = np.random.default_rng(0), (3, 40, 11)
    sites = sv.Sites([rng.normal(size=(m, 5)) / 10 for m in sizes], [rng.choice([-1.0, 1.0], size=m) for m in sizes])
    algorithm = sv.IPADMM(rounds=1, local_steps=1, diameter=7.0, rho=0.05, weights=weights)
    site = algorithm.oracle(sites, sv.graphs.path(3))
    sent = sv.simulate(algorithm, sites, sv.graphs.path(3), runs=400, seed=3).last
    scale = 2 * 0.05 * site.degree + algorithm.eta(1, site)[0]
    exact = (-site.gradient(site.zeros(1)) / scale)[:, :, 0]
    std = algorithm.sigma(site) * 2 * 3 * omega(sizes, weights) / np.array(sizes)
    z = np.sort(((sent - exact) / (std[:, None] / scale[:, :, 0])).ravel() * factor)
    tail = stats.chi2.cdf(np.sum(z**2), df=z.size)
    good = 1e-6 < tail < 1 - 1e-6 and stats.kstest(z, "norm").pvalue > 1e-6
    assert good == (factor == 1.0)


# -- the theorem, and real sites --------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["rows", "squared"])
def test_the_utility_theorem_holds_with_weights(weights):
    features, labels = problems.lists(np.random.default_rng(5), UNEQUAL)
    sites, beta, diameter = sv.Sites(features, labels), 0.2, 12.0
    algorithm = sv.IPADMM(epsilon=5.0, rounds=200, local_steps=5, rho=0.1, lam=0.1, diameter=diameter, radius=6.0,
                          weights=weights)  # fmt: skip
    bound = sv.utility_bound(algorithm, algorithm.oracle(sites, GRAPH), beta)
    objective, _, _ = minimum(features, labels, algorithm.loss, weights, 0.1)
    site, result = algorithm.oracle(sites, GRAPH), sv.simulate(algorithm, sites, GRAPH, runs=20, seed=1)
    best = pooled_model(sites, algorithm)
    at_best = site.risk(np.repeat(best[None, :, None], 5, axis=0))[:, 0]
    np.testing.assert_allclose(at_best.mean(), objective(best)[0], rtol=1e-9)
    excess = site.risk(np.ascontiguousarray(result.average.transpose(1, 2, 0))) - at_best[:, None]
    assert float(excess.sum(axis=0).mean()) <= bound.total
    n_omega = 5 * omega(UNEQUAL, weights)
    sigma_s = 2 * n_omega / np.array(UNEQUAL) * algorithm.sigma(site)
    by_hand = math.sqrt(2) * diameter / math.sqrt(1000) * np.sum(np.sqrt((n_omega + 1.2) ** 2 + 5 * sigma_s**2))
    assert bound.step_term == pytest.approx(by_hand, rel=1e-9)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("batch", [None, 4])
def test_a_site_alone_finds_its_weight_from_what_was_agreed(weights, batch):
    algorithm = sv.IPADMM(rounds=3, local_steps=2, epsilon=1.5, diameter=10.0, weights=weights, batch_size=batch)
    a = agreement(algorithm=algorithm)
    features, labels = problems.lists(np.random.default_rng(7), SIZES)
    whole = algorithm.oracle(sv.Sites(features, labels), a.graph)
    w = np.random.default_rng(1).normal(size=(3, 5, 1))
    for i, name in enumerate(NAMES):
        own = a.oracle_for(name, sv.Sites(features[i : i + 1], labels[i : i + 1]))
        np.testing.assert_array_equal(own.sensitivity(algorithm.batch)[0], whole.sensitivity(algorithm.batch)[i])
        np.testing.assert_array_equal(algorithm.eta(2, own)[:, 0], algorithm.eta(2, whole)[:, i])
        np.testing.assert_allclose(own.gradient(w[i : i + 1])[0], whole.gradient(w)[i], rtol=1e-13)
        assert algorithm.statement(own) == algorithm.statement(whole)
