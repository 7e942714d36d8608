"""Rows that count more or less, and counts of different exposures: other people's fits, what is refused, and what one
row with all that belongs to it can move.
"""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from sklearn.metrics import average_precision_score, log_loss, r2_score, roc_auc_score
from sklearn.model_selection import cross_val_score

import sottovoce as sv
from algorithms.harness import hockey_stick
from algorithms.test_masked_privacy import transcript_loss
from helpers import every, problems
from sottovoce.errors import InputError, PrivacyLeakWarning, UnsupportedError
from sottovoce.estimators import (
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivatePoissonRegressor,
    PrivateRobustRegressor,
    PrivateSearch,
)
from sottovoce.oracle.cpu import CompiledOracle
from sottovoce.oracle.plain import Oracle
from sottovoce.oracle.whitening import Whitening
from sottovoce.privacy import delta
from sottovoce.problem import figures
from sottovoce.problem.factors import Factors, stacked
from sottovoce.simulation.optimum import pooled_model
from sottovoce.tally.evaluation import COUNTED_ALIKE

BOUND = 4.0
SIZES = (3, 40, 8, 1, 17)
GRAPH = sv.graphs.from_edges(5, [(0, 1), (1, 2), (2, 3), (1, 3), (3, 4)])
LOSSES = [*every.LOSSES, sv.losses.WeightedLogistic(5.0), sv.losses.Softmax(3), sv.losses.Poisson()]


def labels_for(loss, rng, features):
    if loss.outputs > 1:
        return [rng.integers(loss.outputs, size=len(a)).astype(float) for a in features]
    if isinstance(loss.labels, sv.losses.Signs):
        return [rng.choice([-1.0, 1.0], size=len(a)) for a in features]
    return [rng.uniform(0, 1, size=len(a)) for a in features]


def weighed_sites(loss, sparse=False, seed=1, d=6):
    """Sites whose rows have weights and, of counts, exposures."""
    rng = np.random.default_rng(seed)
    features, _ = problems.lists(rng, SIZES, d=d)
    labels = labels_for(loss, rng, features)
    factors = [
        Factors.of(
            weights=rng.uniform(0.01, BOUND, len(a)), weight_bound=BOUND,
            exposures=rng.uniform(0.01, 1, len(a)) if isinstance(loss, sv.losses.Poisson) else None,
        )
        for a in features
    ]  # fmt: skip
    return sv.Sites([sp.csr_array(a) for a in features] if sparse else features, labels, factors=factors)


# -- one objective on all devices -------------------------------------------------------------------------------------


# One run has a kernel of its own, and so have full rows: what these do with factors does not depend on the loss. So all
# of them are for two losses of numbers, of which one takes exposures, and the one of classes.
ROWS_AND_RUNS = [
    pytest.param(
        loss, sparse, runs, id=f"{loss.name}-{'csr' if sparse else 'dense'}-{runs[0]}",
        marks=() if runs == (3,) or loss.name in ("logistic", "softmax", "poisson") else pytest.mark.slow,
    )
    for loss in LOSSES for sparse, runs in ((True, (3,)), (True, (1, 20)), (False, (1, 20)))
]  # fmt: skip


@pytest.mark.parametrize(("loss", "sparse", "many"), ROWS_AND_RUNS)
def test_compiled_kernels_give_the_numbers_of_the_plain_form(loss, sparse, many):
    sites = weighed_sites(loss, sparse)
    for options in ({}, {"batch_size": 3}, {"max_grad_norm": 0.1, "weights": "rows"}):
        algorithm = sv.IPADMM(rounds=2, local_steps=3, diameter=10.0, rho=0.05, loss=loss, **options)
        for runs in many:
            ours, plain = (sv.simulate(algorithm, sites, GRAPH, runs=runs, seed=3, device=d) for d in ("cpu", "plain"))
            np.testing.assert_allclose(ours.last, plain.last, rtol=0, atol=1e-10 * np.abs(plain.last).max())
            np.testing.assert_allclose(ours.history["risk_last"], plain.history["risk_last"], rtol=1e-6)


@pytest.mark.parametrize("runs", [1, 20])
def test_single_precision_differs_by_rounding(runs):
    loss = sv.losses.Poisson()
    algorithm = sv.IPADMM(rounds=2, local_steps=3, diameter=10.0, rho=0.05, loss=loss)
    run = {"runs": runs, "seed": 3}
    ours = sv.simulate(algorithm, weighed_sites(loss), GRAPH, dtype="float32", **run)
    plain = sv.simulate(algorithm, weighed_sites(loss), GRAPH, device="plain", **run)
    np.testing.assert_allclose(ours.last, plain.last, rtol=0, atol=3e-5 * np.abs(plain.last).max())


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_gradient_is_that_of_weighted_losses(loss):
    """By differences of the risk, and of the risk by its definition."""
    sites, rng = weighed_sites(loss), np.random.default_rng(2)
    site = Oracle(sites, 5, loss, np.ones(5, dtype=np.int64), sv.regularisers.L2(), 0.0)
    w = rng.normal(size=(5, site.d, 1)) / 2
    step = 1e-6 * rng.normal(size=w.shape)
    slope = np.sum(site.gradient(w) * step, axis=1)
    np.testing.assert_allclose(site.risk(w + step) - site.risk(w - step), 2 * slope, atol=2e-9)
    for i in range(5):
        part = slice(*sites.rows.offsets[i : i + 2])
        z = sites.rows.block(part.start, part.stop) @ w[i].reshape(sites.d, -1)
        z = z if loss.outputs > 1 else z[:, 0]
        z = z if sites.factors.shifts is None else z + sites.factors.shifts[part]
        losses = sites.factors.weights[part] * loss.value(z, sites.labels[part], loss.theta)
        assert site.risk(w)[i, 0] == pytest.approx(losses.mean(), rel=1e-12)


def test_weights_at_their_bound_are_no_weights():
    features, labels = problems.lists(np.random.default_rng(0), SIZES, d=4)
    ones = [Factors.of(weights=np.full(len(a), BOUND), weight_bound=BOUND) for a in features]
    algorithm = sv.IPADMM(rounds=3, local_steps=2, diameter=5.0)
    with_, without = (
        sv.simulate(algorithm, sv.Sites(features, labels, factors=f), GRAPH, seed=1) for f in (ones, None)
    )
    np.testing.assert_array_equal(with_.last, without.last)


def test_a_weight_of_two_is_the_row_twice():
    """In sums, which count rows: over as many rows the weighted ones are half of the others."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(30, 4)) / 4, rng.choice([-1.0, 1.0], size=30)
    twice = rng.random(30) < 0.5
    v = np.where(twice, 2.0, 1.0)
    once = sv.Sites([a], [b], factors=[Factors.of(weights=v, weight_bound=2.0)])
    again = sv.Sites([np.vstack([a, a[twice]])], [np.concatenate([b, b[twice]])])
    w, full = rng.normal(size=(1, 4, 1)), sv.graphs.complete(1)
    still = Whitening(np.eye(4)[..., None], np.full((1, 1), 1e3))  # in which all rows are short
    ours, theirs = (sv.MaskedNewton(rounds=3).oracle(sites, full) for sites in (once, again))
    for of in (lambda s: s.gradient_sum(w), lambda s: s.moments(True), lambda s: s.moments(False),
               lambda s: s.whitened_hessian_sum(w, still),
               lambda s: s.residual_moments(w[0], still, np.ones((1, 1)))):  # fmt: skip
        np.testing.assert_allclose(2 * of(ours), of(theirs), rtol=1e-12)


@pytest.mark.parametrize(
    "loss", [sv.losses.Logistic(), sv.losses.Softmax(3), sv.losses.Poisson()], ids=lambda x: x.name
)
def test_exact_minimisers_and_the_pooled_optimum_know_factors(loss):
    sites = weighed_sites(loss)
    algorithm = sv.MaskedNewton(loss=loss, epsilon=math.inf, lam=0.01, rounds=200)
    found = sv.simulate(algorithm, sites, sv.graphs.complete(5)).consensus[0]
    np.testing.assert_allclose(found, pooled_model(sites, algorithm), atol=1e-6)
    together = sites.regrouped(sites.rows.offsets[[0, -1]])
    alone = Oracle(together, 1, loss, np.zeros(1, dtype=np.int64), sv.regularisers.L2(), 0.01)
    compiled = CompiledOracle(together, 1, loss, np.zeros(1, dtype=np.int64), sv.regularisers.L2(), 0.01)
    nothing = np.zeros((1, alone.d, 1)), np.zeros((1, 1, 1)), np.zeros((1, alone.d, 1))
    for site in (alone, compiled):
        np.testing.assert_allclose(site.argmin(*nothing, 1e-10)[0, :, 0], found, atol=1e-6)


# -- privacy ----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=200)
def test_no_row_with_its_weight_moves_a_sum_by_more(seed):
    """All three sums, at models of all lengths; one row is replaced by any other with another weight and exposure."""
    rng = np.random.default_rng(seed)
    loss = LOSSES[int(rng.integers(len(LOSSES)))]
    loss = loss if loss.smoothness_bound is not None else sv.losses.Logistic()
    a = rng.normal(size=(2, 4))
    a *= rng.choice([0.0, 0.3, 1.0], size=(2, 1)) / np.linalg.norm(a, axis=1, keepdims=True)
    if rng.random() < 0.5:
        a[1] = -a[0]
    w = rng.normal(size=(1, 4 * loss.outputs, 1)) * 10.0 ** rng.uniform(-3, 3)
    labels = np.concatenate(labels_for(loss, rng, [a]))
    exposures = 10.0 ** rng.uniform(-9, 0, 2) if isinstance(loss, sv.losses.Poisson) else None
    factors = Factors.of(weights=10.0 ** rng.uniform(-9, 0, 2), exposures=exposures)
    sums, still, near = [], Whitening(np.eye(4)[..., None], np.ones((1, 1))), np.full((1, 1), 0.5)
    for j in range(2):
        held = sv.Sites([a[[j]]], [labels[[j]]], factors=[factors[[j]]])
        site = sv.MaskedNewton(loss=loss, rounds=3).oracle(held, sv.graphs.complete(1))
        hessian = site.whitened_hessian_sum(w, still) if loss.outputs == 1 else np.zeros(1)
        crossed = site.residual_moments(w[0], still, near) if loss.outputs == 1 else np.zeros(1)
        sums.append((site.gradient_sum(w), site.moments(True), crossed, hessian))
    bounds = (
        site.gradient_sum_sensitivity(w, 1).item(), site.moments_sensitivity(1),
        site.residual_moments_sensitivity(1, still).item(),
        site.whitened_hessian_sum_sensitivity(1, still).item(),
    )  # fmt: skip
    for one, other, bound in zip(*sums, bounds, strict=True):
        assert np.linalg.norm(one - other) <= bound


def test_the_bound_is_attained_with_weights_and_with_exposures_at_every_length_of_the_model():
    # One and the same row: once nothing happened over the whole exposure, once all that counts in next to none.
    row = np.array([[1.0, 0.0]])
    for length in (0.0, 3.0, 100.0):
        w, sums = np.array([length, 0.0]).reshape(1, 2, 1), []
        for count, exposure in ((0.0, 1.0), (1.0, 1e-300)):
            held = sv.Sites([row], [np.array([count])], factors=[Factors.of(weights=[2.0], weight_bound=2.0,
                            exposures=[exposure])])  # fmt: skip
            site = sv.MaskedNewton(loss=sv.losses.Poisson(), rounds=3).oracle(held, sv.graphs.complete(1))
            sums.append(site.gradient_sum(w))
        moved, bound = np.linalg.norm(sums[0] - sums[1]), float(site.gradient_sum_sensitivity(w, 1).item())
        assert 0.999 * bound < moved <= bound


def test_the_price_does_not_depend_on_weights():
    features, labels = problems.lists(np.random.default_rng(0), SIZES, d=4)
    light = [Factors.of(weights=np.full(len(a), 0.01), weight_bound=BOUND) for a in features]
    algorithm = sv.MaskedNewton(epsilon=1.0, rounds=5)
    told = [
        algorithm.statement(algorithm.oracle(sv.Sites(features, labels, factors=f), sv.graphs.complete(5)))
        for f in (light, None)
    ]
    assert told[0] == told[1]


def test_no_transcript_tells_more_of_a_row_that_changes_its_weight():
    """A row of the largest weight for one of hardly any, and for one as heavy: weights that were not over their bound
    would be caught.
    """
    a, labels, weights = np.tile([[1.0, 0.0]], (10, 1)), -np.ones(10), np.full(10, 0.1)
    weights[0] = BOUND
    rest = np.array([[0.6, 0.8]]), np.array([1.0]), Factors.of(weights=[1.0], weight_bound=BOUND)
    algorithm = sv.MaskedNewton(epsilon=1.0, delta=0.05, colluding=0, rounds=4)
    for weight in (1e-3, BOUND):
        other, turned, lighter = a.copy(), labels.copy(), weights.copy()
        other[0], turned[0], lighter[0] = [0.8, 0.6], 1.0, weight
        pair = [
            sv.Sites([x, rest[0]], [y, rest[1]], factors=[Factors.of(weights=v, weight_bound=BOUND), rest[2]])
            for x, y, v in ((a, labels, weights), (other, turned, lighter))
        ]
        for ours, theirs in (pair, pair[::-1]):
            loss, event = transcript_loss(algorithm, ours, theirs)
            for e in (0.0, 0.5, 1.0):
                assert hockey_stick(loss, e) <= delta(event, e)


# -- other people's fits ----------------------------------------------------------------------------------------------


def quietly(make, *given, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return make().fit(*given, **options)


def classed(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 3))
    y = (rng.random(n) < 1 / (1 + np.exp(-(x @ [2.0, -1.0, 0.5] + 0.3)))).astype(int)
    # Rows of one kind count more: an unweighted fit is another.
    return x, y, np.where(x[:, 0] * (2 * y - 1) > 0, rng.uniform(2, BOUND, n), rng.uniform(0.1, 1, n))


KNOWN = {"epsilon": math.inf, "data_norm": 1.8, "lam": 0.0, "random_state": 0, "weight_bound": BOUND}
LONG = sv.MaskedNewton(rounds=300)


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_regression_is_that_of_scikit_learn(classes):
    x, y, v = classed()
    y = np.where(np.random.default_rng(1).random(len(y)) < 0.2, classes - 1, y)
    ours = quietly(lambda: PrivateLogisticRegression(classes=list(range(classes)), algorithm=LONG, **KNOWN), x, y,
                   sample_weight=v)  # fmt: skip
    theirs, alike = (LogisticRegression(C=1e9, tol=1e-9, max_iter=5000).fit(x, y, sample_weight=u) for u in (v, None))
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-4)
    assert np.abs(theirs.predict_proba(x) - alike.predict_proba(x)).max() > 0.1


def test_ipadmm_is_planned_without_a_head_start_where_rows_have_weights():
    """With so many rows one is planned; it asks that rows count alike."""
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, size=(40_000, 5))
    y = (rng.random(len(x)) < 1 / (1 + np.exp(-3 * x[:, 0]))).astype(int)
    known = {"epsilon": 2.0, "delta": 1e-6, "data_norm": 3.0, "sites": 5, "algorithm": "ipadmm", "random_state": 0}
    alike, weighed = (
        quietly(lambda: PrivateLogisticRegression(**known, weight_bound=1.0), x, y, sample_weight=v)
        for v in (None, rng.uniform(0.5, 1, size=len(x)))
    )
    assert alike.plan_.settings["moments"] > 0
    assert weighed.plan_.settings["moments"] == 0
    assert weighed.score(x, y) > 0.7


def test_weights_and_class_weights_multiply():
    x, y, v = classed()
    heavy = {0: 1.0, 1: 5.0}
    ours = quietly(lambda: PrivateLogisticRegression(classes=[0, 1], algorithm=LONG, class_weight=heavy, **KNOWN), x, y,
                   sample_weight=v)  # fmt: skip
    theirs = LogisticRegression(C=1e9, tol=1e-9, max_iter=5000, class_weight=heavy).fit(x, y, sample_weight=v)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-3)


def test_least_squares_and_their_errors_are_the_usual_ones():
    rng = np.random.default_rng(4)
    x, v = rng.uniform(-1, 1, size=(4000, 3)), rng.uniform(0.1, BOUND, 4000)
    y = np.clip(x @ [1.0, -2.0, 0.5] + 0.7 + rng.normal(size=4000) / np.sqrt(v), -20, 20)
    ours = quietly(lambda: PrivateLinearRegression(y_bounds=(-20, 20), **KNOWN), x, y, sample_weight=v)
    theirs = LinearRegression().fit(x, y, sample_weight=v)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-8)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-8)
    design = np.column_stack([x, np.ones(4000)])
    residuals = y - theirs.predict(x)
    covariance = np.linalg.inv(design.T @ (v[:, None] * design)) * (v @ residuals**2) / (4000 - 4)
    told = ours.summary()
    np.testing.assert_allclose([line.error for line in told.lines], np.sqrt(np.diag(covariance)), rtol=1e-3)
    assert "R^2 is not given" in str(told)


def counted(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    x, e = rng.uniform(-1, 1, size=(n, 3)), rng.uniform(0.05, 2.5, n)
    return x, rng.poisson(e * np.exp(x @ [0.8, -0.6, 0.0] + 0.4)).astype(float), e


def test_poisson_with_exposure_is_scikit_learns_regression_of_rates():
    x, y, e = counted()
    ours = quietly(lambda: PrivatePoissonRegressor(y_max=60, exposure_bound=2.5, **KNOWN), x, y, exposure=e)
    theirs = PoissonRegressor(alpha=0.0, tol=1e-10, max_iter=1000).fit(x, y / e, sample_weight=e)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-5)
    np.testing.assert_allclose(ours.predict(x, exposure=e), e * theirs.predict(x), rtol=1e-4)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), rtol=1e-4)
    with pytest.raises(InputError, match=r"exposure_bound=2.5 and no exposure"):
        ours.evaluate_privately(x, y, epsilon=20.0)
    with pytest.raises(InputError, match=r"a schema whose exposure.bound is that of the fit, exposure_bound=2\.5"):
        ours.to_model()
    told = ours.evaluate_privately(x, y, epsilon=20.0, exposure=e).answer.figures["mean_absolute_error"]
    assert told.value == pytest.approx(np.abs(y - ours.predict(x, exposure=e)).mean(), abs=0.1)


def test_poisson_with_exposure_and_weights():
    x, y, e = counted()
    v = np.random.default_rng(9).uniform(0.1, BOUND, len(y))
    ours = quietly(lambda: PrivatePoissonRegressor(y_max=60, exposure_bound=5.0, **KNOWN), x, y, exposure=e,
                   sample_weight=v)  # fmt: skip
    theirs = PoissonRegressor(alpha=0.0, tol=1e-10, max_iter=1000).fit(x, y / e, sample_weight=e * v)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)


def test_a_short_exposure_is_not_cut_to_the_largest_rate():
    """Counts are held at y_max whatever the exposure: one case in a tenth of a year is not held at a tenth of y_max."""
    rng = np.random.default_rng(6)
    x, e = np.zeros((20_000, 1)), np.where(rng.random(20_000) < 0.9, 0.05, 1.0)
    y = rng.poisson(0.5 * e).astype(float)
    ours = quietly(lambda: PrivatePoissonRegressor(y_max=4, exposure_bound=1.0, **KNOWN), x, y, exposure=e)
    assert math.exp(ours.intercept_) == pytest.approx(y.sum() / e.sum(), rel=1e-3)


def test_robust_regression_and_searches_take_weights():
    rng = np.random.default_rng(7)
    x, v = rng.uniform(-1, 1, size=(500, 2)), np.where(rng.random(500) < 0.5, BOUND, 0.001)
    y = np.where(v > 1, 3.0, -3.0) + 0.1 * rng.normal(size=500)
    regressor = PrivateRobustRegressor(y_bounds=(-5, 5), loss="huber", **KNOWN)
    assert quietly(lambda: regressor, x, y, sample_weight=v).intercept_ == pytest.approx(3.0, abs=0.1)
    search = PrivateSearch(
        PrivateRobustRegressor(y_bounds=(-5, 5), data_norm=1.8, weight_bound=BOUND), {"lam": [1e-4]}, 20.0,
        delta=1e-4, runs=1.0, random_state=1,
    )  # fmt: skip
    assert quietly(lambda: search, x, y, sample_weight=v).best_estimator_.intercept_ > 1.5


def test_counts_are_scored_by_the_means_of_their_exposures():
    x, y, e = counted()
    ours = quietly(lambda: PrivatePoissonRegressor(y_max=60, exposure_bound=2.5, **KNOWN), x, y, exposure=e)
    means, v = ours.predict(x, exposure=e), np.random.default_rng(1).uniform(0.1, 1, len(y))
    assert ours.score(x, y, exposure=e) == pytest.approx(r2_score(y, means))
    assert ours.score(x, y, sample_weight=v, exposure=e) == pytest.approx(r2_score(y, means, sample_weight=v))
    np.testing.assert_allclose(ours.row_scores(x, y, exposure=e), 1 - np.abs(y - means) / 60)
    for score in (ours.score, ours.row_scores):
        with pytest.raises(InputError, match=r"exposure_bound=2\.5 and no exposure"):
            score(x, y)
    plain = quietly(lambda: PrivatePoissonRegressor(y_max=60, **KNOWN), x, y)
    assert plain.score(x, y) == pytest.approx(r2_score(y, plain.predict(x)))
    for score in (plain.score, plain.row_scores):
        with pytest.raises(InputError, match="exposure_bound=None and exposure"):
            score(x, y, exposure=e)


def test_exposures_reach_cross_validation_by_metadata_routing():
    x, y, e = counted(400)
    with config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        model = PrivatePoissonRegressor(y_max=60, exposure_bound=2.5, **KNOWN)
        model.set_fit_request(exposure=True).set_score_request(exposure=True)
        assert cross_val_score(model, x, y, params={"exposure": e}, error_score="raise").min() > 0.3


def searched(groups=None, **options):
    """A search for rates, made for exposures of at most 2.5."""
    people = {} if groups is None else {"rows_per_person": 2, "surplus": "drop"}
    model = PrivatePoissonRegressor(y_max=60, data_norm=1.8, exposure_bound=2.5, **people)
    return PrivateSearch(model, {"lam": [1e-5]}, 20.0, delta=1e-4, runs=1.0, random_state=1, **options)


@pytest.mark.parametrize("groups", [None, np.arange(4000) // 4], ids=["rows", "people"])
def test_a_search_fits_and_scores_counts_by_their_exposures(groups):
    x, y, e = counted(4000)
    found = quietly(lambda: searched(groups), x, y, groups=groups, exposure=e)
    assert found.best_estimator_.intercept_ == pytest.approx(0.4, abs=0.15)
    kept = np.full(4000, True) if groups is None else np.arange(4000) % 4 < 2
    right = found.best_estimator_.row_scores(x[kept], y[kept], exposure=e[kept])
    assert found.best_score_ == pytest.approx(right.mean(), abs=0.01)
    np.testing.assert_array_equal(found.predict(x, exposure=e), found.best_estimator_.predict(x, exposure=e))
    np.testing.assert_array_equal(found.predict(x), found.best_estimator_.predict(x))
    assert found.score(x, y, exposure=e) == found.best_estimator_.score(x, y, exposure=e)


def test_a_search_refuses_factors_that_do_not_fit_before_it_pays():
    x, y, e = counted(100)
    accountant, people = sv.privacy.BudgetAccountant(50.0, 1e-3), np.arange(100) // 2
    for bad, message in (
        ({}, "exposure_bound=2.5 and no exposure"),
        ({"exposure": 9 * e}, r"at most exposure_bound=2\.5"),
        ({"exposure": e[:-1]}, "one of exposures for each of 100 rows, got came=99"),
        ({"exposure": np.append(e, 1.0), "groups": people}, "one of exposures for each of 100 rows, got came=101"),
        ({"exposure": e, "sample_weight": 9 * e}, "at most weight_bound=1"),
        ({"exposure": e, "sample_weight": e[:-1] / 3, "groups": people}, "as many weights as exposures"),
    ):
        with pytest.raises(InputError, match=message):
            searched(bad.get("groups"), accountant=accountant).fit(x, y, **bad)
    classes = PrivateLogisticRegression(data_norm=1.8, classes=[0, 1])
    search = PrivateSearch(classes, {"lam": [1e-5]}, 1.0, delta=1e-4, runs=1.0, accountant=accountant, random_state=1)
    with pytest.raises(InputError, match="exposures with PrivatePoissonRegressor only"):
        search.fit(x, y > 1, exposure=e)
    assert accountant.events == ()
    quietly(lambda: search, x, (y > 1).astype(int))
    for method in (lambda: search.predict(x, exposure=e), lambda: search.score(x, y > 1, exposure=e)):
        with pytest.raises(InputError, match="exposures with PrivatePoissonRegressor only"):
            method()
    with pytest.raises(InputError, match="candidates for parameters among"):
        PrivateSearch(PrivatePoissonRegressor(y_max=60), {"y_max": [6, 60]}).fit(x, y)


def test_with_people_the_weights_of_dropped_rows_go_with_them():
    x, y, v = classed(600)
    groups = np.arange(600) // 3
    given = {"epsilon": math.inf, "data_norm": 1.8, "classes": [0, 1], "random_state": 0, "weight_bound": BOUND}
    cut = quietly(lambda: PrivateLogisticRegression(rows_per_person=2, surplus="drop", **given), x, y, groups=groups,
                  sample_weight=v)  # fmt: skip
    first = np.arange(600) % 3 < 2
    same = quietly(lambda: PrivateLogisticRegression(**given), x[first], y[first], sample_weight=v[first])
    np.testing.assert_allclose(cut.coef_, same.coef_, rtol=1e-9)
    assert cut.privacy_.unit.changed == 2


# -- figures ----------------------------------------------------------------------------------------------------------


def test_figures_are_those_of_scikit_learn():
    rng = np.random.default_rng(8)
    z, b, v = rng.normal(size=400).round(1), rng.choice([-1.0, 1.0], 400, p=[0.8, 0.2]), rng.uniform(0, 1, 400)
    found = figures.figures(sv.losses.Logistic(), z, b, weights=v)
    p = 1 / (1 + np.exp(-z))
    assert found.auc == pytest.approx(roc_auc_score(b, z, sample_weight=v))
    assert found.average_precision == pytest.approx(average_precision_score(b, z, sample_weight=v))
    assert found.log_loss == pytest.approx(log_loss(b, p, sample_weight=v))
    assert found.accuracy == pytest.approx(np.average((z >= 0) == (b > 0), weights=v))
    numbers = figures.figures(sv.losses.Huber(), z, z + b, weights=v)
    assert numbers.r2 == pytest.approx(r2_score(z + b, z, sample_weight=v))


def test_a_constant_answer_knows_weights_and_exposures():
    rng = np.random.default_rng(9)
    y, e, v = rng.poisson(2, 300) / 10, rng.uniform(0.1, 1, 300), rng.uniform(0.1, 1, 300)
    factors = Factors.of(weights=v, exposures=e)
    (found,) = figures.constant(sv.losses.Poisson(), y, factors)
    assert found == pytest.approx(math.log((v @ y) / (v @ e)))
    (middle,) = figures.constant(sv.losses.Huber(), np.array([1.0, 2.0, 3.0]), Factors(np.array([0.1, 0.1, 1.0])))
    assert middle == 3.0


def test_a_private_evaluation_of_a_weighted_fit_says_that_rows_count_alike():
    x, y, v = classed(600)
    model = quietly(lambda: PrivateLogisticRegression(classes=[0, 1], **KNOWN), x, y, sample_weight=v)
    assert COUNTED_ALIKE in model.evaluate_privately(x, y, epsilon=5.0).privacy.notes
    assert COUNTED_ALIKE not in quietly(lambda: model, x, y).evaluate_privately(x, y, epsilon=5.0).privacy.notes


def test_a_private_evaluation_takes_the_exposures_that_a_fit_takes():
    x, y, e = counted(400)
    accountant = sv.privacy.BudgetAccountant(50.0, 1e-3)
    model = PrivatePoissonRegressor(y_max=60, exposure_bound=2.5, **KNOWN)
    quietly(lambda: model, x, y, exposure=e).set_params(accountant=accountant)
    for bad, message in (
        (np.append(e[:-1], 2.6), r"at most exposure_bound=2\.5, got another in row=399"),
        (e[:-1], "one of exposures for each of 400 rows, got came=399"),
        (-e, "row=0"),
    ):
        with pytest.raises(InputError, match=message):
            model.evaluate_privately(x, y, epsilon=5.0, exposure=bad)
    assert accountant.events == ()
    with pytest.raises(InputError, match="exposures with PrivatePoissonRegressor only"):
        fitted(sample_weight=None).evaluate_privately(X, Y, epsilon=1.0, exposure=V)


# -- refusals ---------------------------------------------------------------------------------------------------------

X, Y, V = classed(60)


def fitted(**options):
    known = {"epsilon": 1.0, "data_norm": 1.8, "classes": [0, 1], "weight_bound": BOUND}
    weights = options.pop("sample_weight", V)
    return PrivateLogisticRegression(**{**known, **options}).fit(X, Y, sample_weight=weights)


def with_value(value):
    return np.concatenate([V[:7], [value], V[8:]])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fitted(sample_weight=with_value(0.0)), r"above zero and at most weight_bound=4, got .* row=7\."),
        (lambda: fitted(sample_weight=with_value(-1.0)), "row=7"),
        (lambda: fitted(sample_weight=with_value(math.nan)), "row=7"),
        (lambda: fitted(sample_weight=with_value(math.inf)), "row=7"),
        (
            lambda: fitted(sample_weight=with_value(4.0000001)),
            r"row=7\. Leave out rows that should not count, cut weights to the bound, or declare a larger one, beside "
            r"which all others count less: it costs signal, not noise\.$",
        ),
        (lambda: fitted(sample_weight=V[:-1]), "one of weights for each of 60 rows, got came=59"),
        (lambda: fitted(sample_weight=np.ones((60, 2))), r"one-dimensional array, got shape=\(60, 2\)"),
        (lambda: fitted(sample_weight=["a"] * 60), "weights as numbers"),
        (lambda: fitted(weight_bound=0.0), r"weight_bound as a finite public number > 0, got weight_bound=0\.0"),
        (lambda: fitted(weight_bound=math.inf), "weight_bound=inf"),
        (lambda: fitted(weight_bound="max"), "weight_bound='max'.*does not come from these rows"),
        (lambda: fitted(inference=True), "rows that count alike with inference.*weights=True"),
        (lambda: PrivatePoissonRegressor(y_max=3, data_norm=2).fit(X, Y, exposure=V), "exposure_bound=None and ex"),
        (lambda: PrivatePoissonRegressor(y_max=3, data_norm=1.8, exposure_bound=4.0).fit(X, Y), "and no exposure"),
        (
            lambda: PrivatePoissonRegressor(y_max=3, data_norm=1.8, exposure_bound=1.0).fit(X, Y, exposure=V),
            r"every exposure above zero and at most exposure_bound=1, got another in row=\d+\. Leave out rows that "
            r"were not observed, or declare a larger bound: it costs no noise\.$",
        ),
        (lambda: Factors(weights=np.array([1.5])), "Factors.of"),
        (lambda: Factors(weights=np.array([math.nan])), "Factors.of"),
        (lambda: Factors(shifts=np.array([-math.inf])), "Factors.of"),
        (lambda: stacked([Factors(np.ones(2)), Factors()]), "at every site, or at none"),
        (lambda: sv.Sites([X], [Y], data_norm=2.0, factors=[Factors(np.ones(3))]), "for each of 60 rows"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_not_quoted(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "4.0000001" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_fit_that_fails_leaves_nothing_and_weights_are_not_shown():
    known = {"epsilon": 1.0, "data_norm": 1.8, "classes": [0, 1], "weight_bound": BOUND}
    model = PrivateLogisticRegression(**known).fit(X, Y, sample_weight=V)
    with pytest.raises(InputError):
        model.fit(X, Y, sample_weight=-V)
    assert not hasattr(model, "coef_")
    assert repr(Factors.of(weights=V, weight_bound=BOUND)) == "Factors(weights)"


def test_nothing_is_paid_for_what_is_refused():
    accountant = sv.privacy.BudgetAccountant(1.0, 1e-4)
    for bad in ({"sample_weight": with_value(9.0)}, {"inference": True}):
        with pytest.raises(InputError):
            fitted(accountant=accountant, delta=1e-5, **bad)
    assert accountant.events == ()


def test_exposures_are_for_counts_and_a_device_that_knows_no_weights_says_so():
    factors = [Factors.of(exposures=np.full(60, 0.5))]
    held = sv.Sites([X], [2.0 * Y - 1], data_norm=2.0, factors=factors)
    with pytest.raises(InputError, match=r"loss='poisson' with exposures, got loss='logistic'"):
        sv.IPADMM(rounds=2, diameter=1.0).oracle(held, sv.graphs.complete(1))

    class New(Oracle):
        pass

    weighed = sv.Sites([X], [2.0 * Y - 1], data_norm=2.0, factors=[Factors.of(weights=V, weight_bound=BOUND)])
    with pytest.raises(UnsupportedError, match=r"count alike for New, got rows with weights\. Use device='cpu'"):
        New(weighed, 1, sv.losses.Logistic(), np.zeros(1, dtype=np.int64), sv.regularisers.L2(), 0.0)
    kinked = replace(sv.ADMM(rounds=2, loss=sv.losses.Hinge()))
    with pytest.raises(UnsupportedError, match="smooth loss, which hinge is not"):
        sv.simulate(kinked, weighed, sv.graphs.complete(1))


# -- all algorithms ---------------------------------------------------------------------------------------------------

ALL = every.algorithms({"rounds": 3, "local_steps": 2, "diameter": 5.0, "epsilon": 8.0, "rho": 1.0})


@pytest.mark.parametrize("name", ALL)
def test_every_algorithm_takes_weights_and_none_at_their_bound_change_anything(name):
    """Devices agree on them, weights at the bound are none, and others are not."""
    algorithm = ALL[name]
    graph = every.graph_for(algorithm, GRAPH)
    features, labels = problems.lists(np.random.default_rng(0), (60, 45, 52, 70, 41), d=4)
    rng, made = np.random.default_rng(1), {}
    for kind, low in (("bound", BOUND), ("others", 0.01), ("none", None)):
        factors = None if low is None else [
            Factors.of(weights=rng.uniform(low, BOUND, len(a)), weight_bound=BOUND) for a in features
        ]  # fmt: skip
        held = sv.Sites(features, labels, factors=factors)
        made[kind] = [sv.simulate(algorithm, held, graph, seed=1, device=device).last for device in ("cpu", "plain")]
    scale = np.abs(made["none"][1]).max()
    for ours, plain in made.values():
        np.testing.assert_allclose(ours, plain, rtol=0, atol=1e-6 * scale)
    np.testing.assert_allclose(made["bound"][0], made["none"][0], rtol=0, atol=1e-6 * scale)
    assert np.abs(made["others"][1] - made["none"][1]).max() > 1e-8 * scale  # of the same noise, so all of it is theirs
