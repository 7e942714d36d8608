"""Neighbouring data and the same noise: no release moves by more than its noise was made for."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from algorithms import harness
from helpers import every
from sottovoce import algorithms as al
from sottovoce.problem.factors import Factors

D, RHO, LAM = 3, 0.1, 0.05
BOUND = 4.0  # on weights
GRAPH = sv.graphs.complete(2)
COMMON = {"rounds": 20, "rho": RHO, "lam": LAM, "epsilon": 2.0}
OPTIONS = COMMON | {"local_steps": 1, "diameter": 5.0, "relaxation": 0.7}
# The curator's messages are private only as an average, and objective perturbation moves the objective: both below.
# Masked sums have pages of their own: test_masked_privacy.py and test_spread.py.
ADDITIVE = {
    name: algorithm
    for name, algorithm in every.algorithms(OPTIONS, every.is_private_but_ipadmm).items()
    if not (algorithm.way.masked or isinstance(algorithm, (*harness.OBJECTIVE, al.TrustedCurator)))
}


def neighbours(rng, m, loss):
    """One row replaced; in one of two pairs rows have weights, and the replaced one changes its own."""
    a = rng.normal(size=(2, m, D))
    a *= rng.random((2, m, 1)) ** 0.2 / np.linalg.norm(a, axis=2, keepdims=True)
    signs = isinstance(loss.labels, sv.losses.Signs)
    b = rng.choice([-1.0, 1.0], size=(2, m)) if signs else 3 * rng.normal(size=(2, m))
    other, label, j = a.copy(), b.copy(), rng.integers(m)
    other[0, j] = [np.eye(D)[0], -a[0, j], np.zeros(D)][rng.integers(3)]
    label[0, j] = rng.choice([-1.0, 1.0]) if signs else 100 * rng.normal()
    v, heavy = BOUND * (1 - rng.random((2, m))), rng.integers(2)
    v[0, j] = BOUND * rng.choice([1e-9, 1.0])
    lighter = v.copy()
    lighter[0, j] = BOUND * rng.choice([1e-9, 0.3, 1.0])
    return [
        sv.Sites(list(x), list(y), factors=[Factors.of(weights=u, weight_bound=BOUND) for u in w] if heavy else None)
        for x, y, w in ((a, b, v), (other, label, lighter))
    ]


def declared(algorithm, site, k):
    """What the noise of node 0's message was made for, in l2."""
    s = site.sensitivity()[0, 0, 0]
    if isinstance(algorithm, al.PVP):
        return algorithm.model_sensitivity(site)[0, 0, 0]
    if isinstance(algorithm, al.FixedPoint):
        return 2 * algorithm.relaxation * algorithm.model_sensitivity(site)[0, 0, 0]
    eta = algorithm.eta(k, site)[0, 0, 0]
    if isinstance(algorithm, al.DPDSGD | al.NoisyAveragedGD):
        return s / eta
    assert isinstance(algorithm, al.DPADMM | al.RyuKim), f"write down what {type(algorithm).__name__}'s noise is for"
    return s / (2 * RHO + eta)


def random_state(algorithm, site, rng):
    start = algorithm.start(site, 1)
    return type(start)(*(rng.normal(size=x.shape) * 10 ** rng.uniform(-2, 1) for x in start))


@pytest.mark.parametrize("name", ADDITIVE)
@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_no_additive_release_moves_by_more_than_declared(name, seed):
    rng = np.random.default_rng(seed)
    loss = every.SMOOTH[rng.integers(len(every.SMOOTH))]
    algorithm = replace(ADDITIVE[name], loss=loss)
    m, k = int(rng.integers(1, 6)), int(rng.integers(1, 20))
    ours, theirs = (algorithm.oracle(sites, GRAPH) for sites in neighbours(rng, m, loss))
    state = random_state(algorithm, ours, rng)
    noise = harness.given(rng.normal(size=(20, 1, 2, algorithm.draws_per_round, D)), 2, D, 1)
    moved = np.subtract(*(algorithm.release(k, state, site, noise)[0] for site in (ours, theirs)))
    slack = 1e-12 * max(np.abs(x).max() for x in algorithm.release(k, state, ours, noise)[1])
    assert np.linalg.norm(moved[0]) <= declared(algorithm, ours, k) * (1 + 1e-9) + slack
    assert np.abs(moved[1]).max() <= 1e-7


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=150)
def test_objective_perturbation_shift_and_jacobian(seed):
    """At any model, b moves by at most 2 c1 / m, and the determinant by a factor of at most 1 + kappa."""
    rng = np.random.default_rng(seed)
    loss = every.SMOOTH[rng.integers(len(every.SMOOTH))]
    algorithm, m = al.DVP(rho=RHO, lam=LAM, loss=loss), int(rng.integers(1, 6))
    ours, theirs = (algorithm.oracle(sites, GRAPH) for sites in neighbours(rng, m, loss))
    w = rng.normal(size=(2, D, 1)) * 10 ** rng.uniform(-2, 1)
    moved = np.linalg.norm((ours.gradient(w) - theirs.gradient(w))[0])
    assert moved <= ours.sensitivity()[0, 0, 0] * (1 + 1e-9)
    mu = LAM + 2 * RHO
    ratio = harness.log_det(ours, w[0], mu) - harness.log_det(theirs, w[0], mu)
    kappa = algorithm.kappa(1, ours)[0, 0, 0]
    assert kappa == pytest.approx(loss.smoothness(1.0) / (m * mu))
    assert abs(ratio[0]) <= math.log1p(kappa) * (1 + 1e-9)
    assert math.log1p(kappa) <= algorithm.kappa(1, ours)[0, 0, 0] <= 1.4 * loss.smoothness(1.0) / (RHO * m)


def test_the_jacobian_bound_is_attained():
    """One row at w = 0 against an empty one: ln(1 + kappa) exactly."""
    algorithm = al.DVP(rho=RHO, lam=0.0)
    rows = [np.array([[1.0, 0, 0]]), np.zeros((1, D))]
    ours, theirs = (algorithm.oracle(sv.Sites([a, a], [[1.0], [1.0]]), GRAPH) for a in rows)
    w = np.zeros((D, 1))
    ratio = harness.log_det(ours, w, 2 * RHO) - harness.log_det(theirs, w, 2 * RHO)
    assert ratio[0] == pytest.approx(math.log1p(algorithm.kappa(1, ours)[0, 0, 0]))


def test_a_weight_alone_attains_the_jacobian_bound():
    """One and the same row, of the largest weight and of next to none."""
    algorithm, row = al.DVP(rho=RHO, lam=0.0), np.eye(D)[:1]
    ours, theirs = (
        algorithm.oracle(
            sv.Sites([row, row], [[1.0], [1.0]], factors=[Factors.of(weights=[v], weight_bound=BOUND)] * 2), GRAPH
        )
        for v in (BOUND, 1e-12)
    )
    ratio = np.subtract(*(harness.log_det(site, np.zeros((D, 1)), 2 * RHO) for site in (ours, theirs)))
    assert ratio[0] == pytest.approx(math.log1p(algorithm.kappa(1, ours)[0, 0, 0]))


def test_pvps_bound_is_nearly_attained():
    """Where the loss is straight, the argmin moves by 2 c1 / (m mu)."""
    algorithm = al.PVP(rho=2.0, lam=0.0, epsilon=math.inf, loss=sv.losses.SmoothedHinge())
    rows = np.repeat(np.eye(D)[:1], 20, axis=0)
    other = rows.copy()
    other[0] *= -1
    ours, theirs = (algorithm.oracle(sv.Sites([a, rows], [np.ones(20)] * 2), GRAPH) for a in (rows, other))
    start = algorithm.start(ours, 1)
    moved = np.linalg.norm(np.subtract(*(algorithm.release(1, start, site, None)[0] for site in (ours, theirs)))[0])
    bound = algorithm.model_sensitivity(ours)[0, 0, 0]
    assert 0.99 * bound <= moved <= bound


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_the_curators_average_moves_by_at_most_its_share(seed):
    rng = np.random.default_rng(seed)
    algorithm = al.TrustedCurator(**COMMON, diameter=5.0)
    ours, theirs = (algorithm.oracle(s, GRAPH) for s in neighbours(rng, int(rng.integers(1, 6)), algorithm.loss))
    w = rng.normal(size=(2, D, 1)) * 10
    moved = (ours.gradient(w) - theirs.gradient(w)).mean(axis=0)
    assert np.linalg.norm(moved) <= 2 * ours.c1 / (2 * ours.fewest_rows) * (1 + 1e-9)
