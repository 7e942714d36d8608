"""Linear regression by least squares: their sensitivity, their price, and whether it is right."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from helpers.sums import opened
from sottovoce.algorithms.squares import LeastSquares
from sottovoce.errors import InputError, PrivacyLeakWarning
from sottovoce.estimators import PrivateLinearRegression
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.oracle.row_sums import whole
from sottovoce.oracle.whitening import Whitening
from sottovoce.privacy import BudgetAccountant, Gaussian, delta, epsilon
from sottovoce.privacy.observers import Observer
from sottovoce.sums.questions import ResidualMoments

TRUTH, CONSTANT, SPREAD = np.array([3.0, -2.0, 0.0]), 5.0, 1.5
ONE = sv.graphs.complete(1)


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 3))
    return x, np.clip(x @ TRUTH + CONSTANT + SPREAD * rng.normal(size=n), -5, 15)


def fit(x, y, **options):
    given_ = {"epsilon": 1.0, "data_norm": 2.0, "y_bounds": (-5, 15), "random_state": 0, "delta": 1e-6, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return PrivateLinearRegression(**given_).fit(x, y)


def at(site, u=0.0, reach=1.0, runs=1):
    """The second moments of rows and residuals at a model, in the coordinates of the rows; and their sensitivity."""
    d = site.d
    still = Whitening(np.repeat(np.eye(d)[..., None], runs, axis=2), np.ones((1, runs)))
    asked = ResidualMoments(np.full((d, runs), u), still, np.full((1, runs), reach))
    return asked.of(site, 2)[:, 0], float(asked.sensitivity(site, 2)[0, 0])


def moved(first, other, u=0.0, reach=1.0):
    """By how much replacing one row (a, b) moves the sum."""
    sums = []
    for *a, b in (first, other):
        held = sv.Sites([np.array([a, [0.1, 0.2]])], [np.array([b, 0.3])], data_norm=1.0)
        found, allowed = at(LeastSquares().oracle(held, ONE), u, reach)
        sums.append(found)
    return float(np.linalg.norm(sums[0] - sums[1])), allowed


def test_orthogonal_rows_with_labels_attain_the_sensitivity():
    # (a, b) and (a', b') are orthogonal, and as long as they can be: a = a' turned so that <a, a'> = -b b'.
    far, bound = moved([1.0, 0.0, 1.0], [-1.0, 0.0, 1.0])
    assert bound == pytest.approx(2 * math.sqrt(2), rel=1e-6)
    assert far == pytest.approx(bound, rel=1e-6)
    assert far <= bound


part = st.floats(-1, 1)
row = st.tuples(part, part, st.floats(-5, 5))


@settings(max_examples=80)
@given(row, row, st.floats(-1e3, 1e3), st.floats(-1, 1))
def test_no_row_moves_the_sum_further_even_with_a_label_out_of_bounds(first, other, u, reach):
    inside = [(*(np.array(x[:2]) / max(1.0, np.hypot(*x[:2]) * (1 + 1e-12))), x[2]) for x in (first, other)]
    far, bound = moved(*inside, u, reach)
    assert far <= bound


def test_the_sums_are_those_of_residuals_in_whitened_coordinates():
    rng = np.random.default_rng(3)
    a, b, A = rng.uniform(-0.5, 0.5, size=(60, 3)), rng.uniform(-1.4, 1.4, 60), np.diag([1.0, 2.0, 3.0])
    A[0, 1] = A[1, 0] = 0.3
    u, c, reach = np.array([0.2, -0.4, 0.1]), 0.9, 0.6
    asked = ResidualMoments(u[:, None], Whitening(A[..., None], np.array([[c]])), np.array([[reach]]))
    site = LeastSquares().oracle(sv.Sites([a[:20], a[20:]], [b[:20], b[20:]]), sv.graphs.complete(2))
    wanted = np.zeros((4, 4))
    for row, label in zip(a, b, strict=True):
        t = A @ row
        e = max(-1.0, min(1.0, (max(-1.0, min(1.0, label)) - t @ u) / reach))
        wanted += min(1.0, c**2 / (t @ t)) * np.outer([*t, c * e], [*t, c * e])
    np.testing.assert_allclose(whole(asked.of(site, 60).T)[0], wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("options", [{}, {"spare": 2}, {"worst_case_epsilon": 1.2}, {"colluding": 0}])
def test_all_releases_cost_what_was_asked_for(options):
    algorithm = LeastSquares(epsilon=1.0, delta=1e-5, **options)
    held = sv.Sites([np.full((4, 2), 0.5)] * 5, [np.zeros(4)] * 5)
    site = algorithm.oracle(held, sv.graphs.complete(5))
    statement = algorithm.statement(site)
    assert statement.epsilon <= 1.0
    spent = sum(s**-2 for s in algorithm.multipliers(5)) + options.get("spare", 0) * algorithm.sigma(site) ** -2
    assert statement.epsilon == pytest.approx(epsilon(Gaussian(spent**-0.5), 1e-5), rel=1e-9)
    if "worst_case_epsilon" in options:
        assert max(line.epsilon for line in statement.observers) <= 1.2
    else:
        assert statement.epsilon > 0.999
    alone = algorithm.event(algorithm.rounds, site, Observer(4))
    assert delta(alone, 1.0) >= delta(statement.event, 1.0)


def test_the_sums_carry_their_noise():
    algorithm, runs = LeastSquares(epsilon=1.0, delta=1e-5, colluding=1, rounds=3), 1000
    held = sv.Sites([np.full((4, 2), 0.5)] * 4, [np.zeros(4)] * 4)
    site = algorithm.oracle(held, sv.graphs.complete(4))
    heard = opened(algorithm, site, SeededNoise(1, Shape(4, 2, runs)), runs)
    for one, sigma in zip(heard, algorithm.multipliers(4), strict=True):
        unit = sigma * one.question.sensitivity(site, 16) * math.sqrt(4 / 3)
        np.testing.assert_allclose(one.std, unit)
        left = (one.value - one.question.of(site, 16)) / unit
        assert left.std() == pytest.approx(1, abs=0.04)  # a share more or less is 15 %
        assert abs(left.mean()) < 0.06


def test_without_noise_it_is_least_squares():
    x, y = rows(3000)
    model = fit(x, y, epsilon=math.inf)
    design = np.column_stack([x, np.ones(len(x))])
    exact, residuals, *_ = np.linalg.lstsq(design, y, rcond=None)
    np.testing.assert_allclose([*model.coef_, model.intercept_], exact, rtol=1e-6, atol=1e-6)
    table = model.summary()
    np.testing.assert_allclose([line.estimate for line in table.lines], exact, rtol=1e-6, atol=1e-6)
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * residuals[0] / (len(y) - len(exact)))
    np.testing.assert_allclose([line.error for line in table.lines], errors, rtol=1e-6)
    assert table.figures[0].name == "R^2"
    assert table.figures[0].estimate == pytest.approx(1 - residuals[0] / len(y) / y.var(), rel=1e-6)


def test_r_squared_without_an_intercept_says_that_it_is_uncentred():
    x, y = rows(3000)
    y = y + 40.0
    model = fit(x, y, epsilon=math.inf, fit_intercept=False, y_bounds=(-100, 200))
    (share,) = model.summary().figures
    left = np.linalg.lstsq(x, y, rcond=None)[1][0]
    assert share.name == "uncentred R^2"
    assert share.estimate == pytest.approx(1 - left / np.sum(y**2), rel=1e-6)
    assert share.estimate > model.score(x, y) + 0.2  # which is about the mean of the rows at hand
    told = " ".join(str(model.summary()).split())
    assert "R^2 is uncentred: it compares with a prediction of 0 for every row, since the mean of the labels" in told
    assert "uncentred" not in str(fit(x, y, epsilon=math.inf, y_bounds=(-100, 200)).summary())


def test_intervals_hold_as_often_as_they_say():
    held, known = 0, 0
    for seed in range(60):
        x, y = rows(4000, seed)
        for line, truth in zip(fit(x, y, sites=3, random_state=seed).summary().lines, (*TRUTH, CONSTANT), strict=True):
            known += line.identified
            held += line.identified and line.low <= truth <= line.high
    assert known > 200
    assert 0.90 <= held / known <= 0.99


def test_few_rows_get_a_ridge_and_wide_intervals():
    x, y = rows(100)
    model = fit(x, y, epsilon=0.1)
    assert np.abs(model.coef_).max() < 100
    told = model.summary()
    assert not any(line.identified for line in told.lines)
    assert all(line.low < truth < line.high for line, truth in zip(told.lines, (*TRUTH, CONSTANT), strict=True))
    assert told.figures[0].estimate is None
    words = " ".join(str(told).split())
    assert "Not identified at this budget: x0, x1, x2, intercept." in words
    assert "Nothing can be said of these at this budget: R^2." in words


def test_what_has_no_bound_is_refused_and_budgets_are_charged():
    x, y = rows(200)
    with pytest.raises(InputError, match="y_bounds as two finite numbers"):
        fit(x, y, y_bounds=(-math.inf, math.inf))
    with pytest.warns(PrivacyLeakWarning, match="bounds of y were computed from"):
        PrivateLinearRegression(data_norm=2.0).fit(x, y)
    accountant = BudgetAccountant(epsilon=1.0, delta=1e-6)
    fit(x, y, accountant=accountant, random_state=None)
    with pytest.raises(sv.errors.BudgetError):
        fit(x, y, accountant=accountant, random_state=None)
    with pytest.raises(InputError, match=r"rounds >= 2.* got rounds=1"):
        LeastSquares(rounds=1)
    with pytest.raises(InputError, match=r"a loss of one output.* got loss='softmax'"):
        LeastSquares(loss=sv.losses.Softmax(3))
    with pytest.raises(InputError, match="no max_grad_norm"):
        LeastSquares(max_grad_norm=1.0)
