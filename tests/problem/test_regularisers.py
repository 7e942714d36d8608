"""Regularisers against norms, finite differences and a numerical prox."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from helpers import every
from sottovoce import regularisers
from sottovoce.errors import InputError
from sottovoce.problem.regularisers import L1, L2, ElasticNet

ALL = [*every.REGULARISERS, ElasticNet(0.2), ElasticNet(0.0)]
each = pytest.mark.parametrize("phi", ALL, ids=repr)
W = np.random.default_rng(0).normal(size=(3, 7, 4))


def test_values_are_norms():
    ones, twos = np.linalg.norm(W, 1, axis=1), np.linalg.norm(W, 2, axis=1) ** 2 / 2
    np.testing.assert_allclose(L1().value(W), ones)
    np.testing.assert_allclose(L2().value(W), twos)
    np.testing.assert_allclose(ElasticNet(0.3).value(W), 0.3 * ones + 0.7 * twos)
    assert L2().value(W).shape == (3, 4)


@each
def test_gradient(phi):
    h = 1e-6
    for j in range(W.shape[1]):
        step = np.zeros(W.shape)
        step[:, j] = h
        difference = (phi.value(W + step) - phi.value(W - step)) / (2 * h)
        np.testing.assert_allclose(phi.gradient(W)[:, j], difference, atol=1e-7)
    assert np.all(phi.gradient(np.zeros((1, 2, 1))) == 0)


@each
@pytest.mark.parametrize("step", [0.1, 2.0])
def test_prox_minimises(phi, step):
    for w in (-3.0, -0.05, 0.0, 0.7, 4.0):
        objective = lambda u, w=w: step * (phi.l1 * abs(u) + phi.l2 / 2 * u * u) + (u - w) ** 2 / 2  # noqa: E731
        best = minimize_scalar(objective, bounds=(-5, 5), method="bounded", options={"xatol": 1e-10}).x
        assert phi.prox(np.array([[[w]]]), step).item() == pytest.approx(best, abs=1e-6)


@each
def test_prox_takes_one_step_per_node(phi):
    steps = np.array([0.1, 0.5, 1.0])[:, None, None]
    for i in range(3):
        np.testing.assert_array_equal(phi.prox(W, steps)[i], phi.prox(W[i : i + 1], steps[i].item())[0])


@each
def test_lipschitz_constant_holds_and_is_attained(phi):
    radius, d = 2.5, 9
    draws = np.random.default_rng(1).normal(size=(2000, d, 1))
    on_ball = radius * draws / np.linalg.norm(draws, axis=1, keepdims=True)
    bound = phi.lipschitz(radius, d)
    assert np.linalg.norm(phi.gradient(on_ball), axis=1).max() <= bound * (1 + 1e-12)
    corner = np.full((1, d, 1), radius / np.sqrt(d))
    assert np.linalg.norm(phi.gradient(corner)) == pytest.approx(bound)


def test_curvature_and_convexity():
    assert (L2().curvature, L1().curvature, ElasticNet().curvature) == (1.0, None, None)
    assert ElasticNet(0.0).curvature == 1.0
    assert [phi.strong_convexity for phi in (L2(), L1(), ElasticNet(0.2))] == [1.0, 0.0, 0.8]
    assert L1().lipschitz(np.inf, 4) == 2.0
    assert L2().lipschitz(np.inf, 4) == np.inf


@each
def test_single_precision_is_kept(phi):
    single = W.astype(np.float32)
    for result in (phi.value(single), phi.gradient(single), phi.prox(single, 0.5)):
        assert result.dtype == np.float32


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ElasticNet(1.5), "mix=1.5"),
        (lambda: L2().lipschitz(-1.0, 3), "radius=-1.0"),
        (lambda: L2().lipschitz(1.0, 0), "d=0"),
        (lambda: regularisers.by_name("l3"), "l2, l1, elastic-net, got name='l3'"),
        (lambda: regularisers.by_name("l2", mix=0.1), "options of l2, got 'mix'. Known: none"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_by_name():
    assert regularisers.by_name("elastic-net", mix=0.1) == ElasticNet(0.1)
    assert [regularisers.by_name(name).name for name in regularisers.NAMES] == ["l2", "l1", "elastic-net"]
