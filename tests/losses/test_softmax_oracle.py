"""Risk, gradient, scores and the pooled optimum against brute force, SciPy and scikit-learn; what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression

import sottovoce as sv
from helpers import every
from losses.softmax_problem import GRAPH, SIZES, lists, pooled_minimum, sites
from sottovoce.oracle.argmin.plain import objective_of
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.oracle.cuda import CudaOracle
from sottovoce.oracle.plain import Oracle
from sottovoce.problem.losses import Logistic, Softmax
from sottovoce.simulation.optimum import pooled_model, pooled_optimum

K, D = 3, 5


def oracle(rng, sparse=False, kind=Oracle, **options):
    algorithm = sv.IPADMM(loss=Softmax(K), **{"lam": 0.4, **options})
    return algorithm.oracle(sites(rng, sparse=sparse), GRAPH, kind)


def by_hand(site, w, weights=None, cap=None):
    """The gradient, row by row: an outer product of a and p - e_b."""
    held = site.sites.rows.block(0, len(site.sites.labels))
    a, offsets = held if isinstance(held, np.ndarray) else held.toarray(), site.sites.rows.offsets
    gradient = np.zeros_like(w)
    for i, q in np.ndindex(len(w), w.shape[2]):
        model = w[i, :, q].reshape(D, K)
        for j in range(offsets[i], offsets[i + 1]):
            record = np.outer(a[j], softmax(a[j] @ model) - np.eye(K)[int(site.sites.labels[j])])
            if cap is not None:
                record *= min(1.0, cap / np.linalg.norm(record))
            share = 1 / (offsets[i + 1] - offsets[i]) if weights is None else weights[j, q]
            gradient[i, :, q] += share * record.ravel()
    return gradient + site.lam * site.regulariser.gradient(w)


@pytest.mark.parametrize("sparse", [True, False], ids=["csr", "dense"])
def test_gradient_is_the_sum_of_outer_products(sparse):
    rng = np.random.default_rng(0)
    site = oracle(rng, sparse)
    w = rng.normal(size=(5, D * K, 2))
    weights = rng.integers(0, 3, (len(site.sites.labels), 2)) / 4
    np.testing.assert_allclose(site.gradient(w), by_hand(site, w), atol=1e-14)
    np.testing.assert_allclose(site.gradient(w, weights), by_hand(site, w, weights), atol=1e-14)
    clipped = oracle(np.random.default_rng(0), sparse, max_grad_norm=0.2)
    assert clipped.c1 == 0.2
    np.testing.assert_allclose(clipped.gradient(w, weights), by_hand(site, w, weights, 0.2), atol=1e-14)


def test_gradient_is_the_derivative_of_the_risk():
    rng = np.random.default_rng(1)
    site = oracle(rng)
    w, step = rng.normal(size=(2, 5, D * K, 2))
    h = 1e-6
    slope = (site.risk(w + h * step) - site.risk(w - h * step)) / (2 * h)
    np.testing.assert_allclose(np.sum(site.gradient(w) * step, axis=1), slope, atol=1e-8)


@pytest.mark.parametrize("kind", [Oracle, CompiledOracle])
@pytest.mark.parametrize("sparse", [True, False], ids=["csr", "dense"])
def test_scores_are_risk_and_accuracy(kind, sparse):
    rng = np.random.default_rng(2)
    site, models = oracle(rng, sparse, kind), rng.normal(size=(D * K, 7))
    held = site.sites.rows.block(0, sum(SIZES))
    a, b = held if isinstance(held, np.ndarray) else held.toarray(), site.sites.labels.astype(int)
    z = [a @ w.reshape(D, K) for w in models.T]
    scores = site.score(models)
    np.testing.assert_allclose(scores.risk, [-np.mean(log_softmax(x, axis=1)[range(len(b)), b]) for x in z])
    np.testing.assert_allclose(scores.accuracy, [np.mean(x.argmax(axis=1) == b) for x in z])


def test_two_classes_step_as_the_logistic_loss():
    """Its gradient in W is that of the logistic loss in W_1 - W_0, with both signs."""
    rng = np.random.default_rng(3)
    features, labels = lists(rng, SIZES, classes=2)
    two = sv.IPADMM(loss=Softmax(2), lam=0.0).oracle(sv.Sites(features, labels), GRAPH)
    one = sv.IPADMM(loss=Logistic(), lam=0.0).oracle(sv.Sites(features, [2 * b - 1 for b in labels]), GRAPH)
    w = rng.normal(size=(5, D, 2, 4))
    expected = one.gradient(w[:, :, 1] - w[:, :, 0])
    got = two.gradient(w.reshape(5, 2 * D, 4)).reshape(5, D, 2, 4)
    np.testing.assert_allclose(got[:, :, 1], expected, atol=1e-15)
    np.testing.assert_allclose(got[:, :, 0], -expected, atol=1e-15)
    assert two.c1 == pytest.approx(math.sqrt(2) * one.c1)


# -- the pooled optimum ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3, 6])
def test_pooled_model_is_that_of_scikit_learn(classes):
    features, labels = lists(np.random.default_rng(4), (60, 25, 90), classes=classes)
    algorithm = sv.IPADMM(loss=Softmax(classes), lam=0.2)
    ours = pooled_model(sv.Sites(features, labels), algorithm)
    share = np.concatenate([np.full(len(b), 1 / (3 * len(b))) for b in labels])
    # Its two-class form is a logistic loss on the difference, whose penalty is half as large in these coordinates.
    penalty = 0.2 / (2 if classes == 2 else 1)
    theirs = LogisticRegression(C=1 / penalty, fit_intercept=False, tol=1e-12, max_iter=10_000)
    theirs.fit(np.concatenate(features), np.concatenate(labels), sample_weight=share)
    w = ours.reshape(D, classes).T
    np.testing.assert_allclose(w[1:] - w[:1] if classes == 2 else w, theirs.coef_, atol=1e-6)
    np.testing.assert_allclose(w.sum(axis=0), 0, atol=1e-8)


@pytest.mark.parametrize("sparse", [True, False], ids=["csr", "dense"])
@pytest.mark.parametrize("lam", [0.5, 1e-4])
def test_pooled_optimum_is_that_of_another_solver(sparse, lam):
    rng = np.random.default_rng(5)
    features, labels = lists(rng, (60, 25, 90))
    held = sites(np.random.default_rng(5), (60, 25, 90), sparse=sparse)
    algorithm = sv.IPADMM(loss=Softmax(K), lam=lam)
    w, _ = pooled_minimum(features, labels, K, lam)
    z, b = np.concatenate(features) @ w.reshape(D, K), np.concatenate(labels).astype(int)
    np.testing.assert_allclose(pooled_model(held, algorithm), w, atol=1e-4)
    risk = -np.mean(log_softmax(z, axis=1)[range(len(b)), b])
    assert pooled_optimum(held, algorithm) == pytest.approx(risk, abs=1e-8)
    assert pooled_optimum(held, sv.IPADMM(loss=Softmax(K), regulariser=sv.regularisers.L1())) is None


def test_newton_meets_its_tolerance_with_a_linear_term():
    rng = np.random.default_rng(6)
    features, labels = lists(rng, (50,))
    a, b, mu = features[0], labels[0], 0.05
    pull = rng.normal(size=D * K) / 10
    w = objective_of(Softmax(K), a, b, np.full(50, 1 / 50)).argmin(pull, mu, rng.normal(size=D * K), 1e-11)
    slopes = softmax(a @ w.reshape(D, K), axis=1) - np.eye(K)[b.astype(int)]
    assert np.linalg.norm((a.T @ slopes / 50).ravel() - pull + mu * w) < 2e-11


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["plain", "cpu"])
@pytest.mark.parametrize("kind", [sv.DVP, sv.MADMM, sv.RADMM])
def test_objective_perturbation_refuses_it(kind, device):
    """It is proved for a curvature of rank one only."""
    algorithm = kind(loss=Softmax(K), rounds=2, rho=1.0, lam=1.0)
    with pytest.raises(sv.UnsupportedError, match=r"one prediction per row, and softmax has 3.*IPADMM"):
        sv.simulate(algorithm, sites(np.random.default_rng(7)), sv.graphs.complete(5), seed=1, device=device)


@pytest.mark.parametrize("device", ["plain", "cpu"])
def test_admm_reaches_the_pooled_optimum(device):
    held, algorithm = sites(np.random.default_rng(7)), sv.ADMM(loss=Softmax(K), rounds=150, rho=0.05, lam=0.1)
    result = sv.simulate(algorithm, held, sv.graphs.ring(5), seed=1, device=device)
    oracle = algorithm.oracle(held, sv.graphs.ring(5))
    best = pooled_model(held, algorithm)
    found, least = (oracle.risk(np.broadcast_to(w[:, None], (5, len(w), 1))).sum() for w in (result.consensus[0], best))
    assert found - least < 1e-7


def test_pvp_and_the_fixed_point_run_and_keep_their_budget():
    held = sites(np.random.default_rng(7))
    for algorithm in (sv.PVP(loss=Softmax(K), rounds=2, rho=1.0), sv.FixedPoint(loss=Softmax(K), rounds=2)):
        result = sv.simulate(algorithm, held, sv.graphs.complete(5), seed=1)
        assert np.isfinite(result.consensus).all()
        assert result.privacy.epsilon <= algorithm.epsilon


EXACT = every.algorithms({"rounds": 2}, lambda line: line.exact and line.private, forms=("fair",))


@pytest.mark.parametrize("loss", [Softmax(K), Logistic()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("name", EXACT)
def test_whoever_minimises_exactly_is_refused_by_the_gpu_at_the_start(name, loss):
    """When nothing is charged yet, and before CuPy is asked for anything."""
    algorithm = replace(EXACT[name], loss=loss)
    features, labels = lists(np.random.default_rng(8), SIZES)
    held = sv.Sites(features, labels if loss.outputs > 1 else [np.where(b > 0, 1.0, -1.0) for b in labels])
    site = algorithm.oracle(held, sv.graphs.complete(len(SIZES)), CudaOracle)
    with pytest.raises(sv.UnsupportedError, match=r"no exact argmin.*device='cpu'"):
        algorithm.start(site, 1)


def test_a_new_kind_of_oracle_refuses_it_unless_it_says_otherwise():
    class Silent(Oracle):
        pass

    class Able(Oracle, vector_predictions=True):
        pass

    with pytest.raises(sv.UnsupportedError, match="Silent needs a loss of one prediction"):
        oracle(np.random.default_rng(9), kind=Silent)
    assert oracle(np.random.default_rng(9), kind=Able).d == D * K


def test_kernels_for_scalars_refuse_it():
    from kernels.reference import arguments, problem
    from sottovoce.oracle.kernels.score import score
    from sottovoce.oracle.kernels.steps import noisy_steps

    p = problem(2, Logistic())
    rows, data, _, *rest = arguments(p, Logistic())
    with pytest.raises(sv.UnsupportedError, match="one prediction per row"):
        noisy_steps(rows, data, Softmax(K), *rest)
    with pytest.raises(sv.UnsupportedError, match="one prediction per row"):
        score(rows, data.labels, np.array([0, len(data.labels)]), Softmax(K), p.w[0])


def test_labels_must_be_classes():
    features, labels = lists(np.random.default_rng(10), SIZES, classes=4)
    with pytest.raises(sv.InputError, match=r"labels among 0 \.\. 2"):
        sv.IPADMM(loss=Softmax(3)).oracle(sv.Sites(features, labels), GRAPH)
