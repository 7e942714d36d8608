"""The Poisson loss: what is minimised, its bounds by brute force, and other people's fits without noise."""

import math
import warnings

import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import mean_poisson_deviance

import sottovoce as sv
from sottovoce.errors import InputError, PrivacyLeakWarning, UnsupportedError
from sottovoce.estimators import PrivatePoissonRegressor
from sottovoce.problem.answers import Answers
from sottovoce.problem.losses import Poisson

TRUTH, LOG_MEAN = np.array([0.8, -0.6, 0.0]), 0.7


def counted(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 3))
    return x, rng.poisson(np.exp(x @ TRUTH + LOG_MEAN)).astype(float)


def fit(x, y, **options):
    given = {"epsilon": math.inf, "y_max": 30, "data_norm": 1.8, "random_state": 0, "lam": 0.0, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyLeakWarning)
        return PrivatePoissonRegressor(**given).fit(x, y)


def test_half_the_deviance_up_to_what_does_not_depend_on_the_mean():
    rng = np.random.default_rng(1)
    y, z = rng.integers(0, 9, 500).astype(float), rng.uniform(-3, 2, 500)
    most = 9.0  # above every mean, e^2, and every count
    gap = Poisson.value(z, y, most).mean() - Poisson.value(np.zeros(500), y, most).mean()
    deviance = mean_poisson_deviance(y, np.exp(z)) - mean_poisson_deviance(y, np.ones(500))
    assert gap == pytest.approx(deviance / 2, rel=1e-12)


@pytest.mark.parametrize("most", [1.0, 7.0])
def test_beyond_the_largest_count_it_is_the_tangent(most):
    joint, b = math.log(most), np.array([0.0, 0.4, most])
    for far in (0.1, 3.0, 40.0):
        line = Poisson.value(joint, b, most) + far * Poisson.slope(joint, b, most)
        np.testing.assert_allclose(Poisson.value(joint + far, b, most), line, rtol=1e-12)


@pytest.mark.parametrize("most", [1.0, 7.0])
def test_no_two_records_are_further_apart_and_some_are_as_far(most):
    # Rows in the unit disc, models of many lengths, and labels that nobody has clipped.
    rng, loss = np.random.default_rng(2), Poisson(most)
    furthest = 0.0
    for reach in (0.0, 0.5, 3.0, 20.0, 1e4):
        w = np.array([reach, 0.0])
        turn = rng.uniform(0, 2 * math.pi, 400)
        a = np.column_stack([np.cos(turn), np.sin(turn)]) * rng.uniform(0, 1, 400)[:, None] ** 0.2
        a[:2] = [[-0.01, 0.9999], [-0.01, -0.9999]]  # both against the model, and against each other
        b = rng.choice([-5.0, 0.0, most / 3, most, 10 * most, 1e300], 400)
        b[:2] = 2 * most
        g = loss.slope(a @ w, b, loss.theta)[:, None] * a
        far = np.linalg.norm(g[:, None] - g[None], axis=2).max()
        assert far <= 2 * loss.slope_bound * (1 + 1e-12)
        assert far <= loss.spread(np.array(reach)) * (1 + 1e-12)
        furthest = max(furthest, far)
        mean = np.exp(np.minimum(a @ w, math.log(most)))
        np.testing.assert_allclose(loss.slope(a @ w, b, most), mean - np.clip(b, 0, most), atol=1e-12)
    assert furthest > 1.99 * loss.slope_bound


def test_a_private_sum_is_off_by_no_more_than_its_sensitivity_when_a_row_is_replaced():
    # The two rows are at right angles to the model, where means are as large as counts can be.
    algorithm, w = sv.MaskedNewton(loss=Poisson(), rounds=3, epsilon=1.0), np.array([9.0, -4.0]).reshape(1, 2, 1)
    across, sums = np.array([4.0, 9.0]) / math.sqrt(97), []
    for first in (across, -across):
        rows = np.vstack([first, np.full((5, 2), 0.3)])
        held = sv.Sites([rows], [np.array([0.0, 0.0, 0.2, 0.5, 0.9, 1.0])], data_norm=1.0)
        site = algorithm.oracle(held, sv.graphs.complete(1))
        sums.append(site.gradient_sum(w))
    moved, bound = np.linalg.norm(sums[0] - sums[1]), float(site.gradient_sum_sensitivity(w, 6).item())
    assert 0.99 * bound < moved <= bound


def test_without_noise_it_is_the_maximum_likelihood_of_scikit_learn():
    x, y = counted(4000)
    ours, theirs = fit(x, y), PoissonRegressor(alpha=0.0, tol=1e-10, max_iter=1000).fit(x, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-5)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), rtol=1e-4)
    # The same model as a file would hold it, and as scikit-learn's own.
    model = ours.to_model()
    np.testing.assert_allclose(model.decide(x), ours.predict(x), rtol=1e-12)
    assert model.loss == Poisson(30.0)


def test_exported_it_predicts_the_same_means_and_scikit_learn_has_no_room_for_it():
    runtime = pytest.importorskip("onnxruntime")
    x, y = counted(1000)
    model = fit(x, y, y_max=3)
    graph = sv.models.to_onnx(model.to_model()).SerializeToString()
    (means,) = runtime.InferenceSession(graph).run(["mean"], {"features": 5 * x})
    np.testing.assert_allclose(means[:, 0], model.predict(5 * x), rtol=1e-12)
    with pytest.raises(UnsupportedError, match=r"got loss='poisson'.*Use ONNX"):
        sv.models.to_sklearn(model.to_model())


def test_an_evaluation_compares_means_with_counts():
    x, y = counted(5000)
    model = fit(x, y, y_max=10)
    found = model.evaluate_privately(x, y, epsilon=10.0).answer.figures["mean_absolute_error"]
    assert found.value == pytest.approx(np.abs(model.predict(x) - np.minimum(y, 10)).mean(), abs=0.1)


def test_counts_and_means_are_held_at_the_largest_count():
    x, y = counted(1000)
    held, clipped = fit(x, y, y_max=3), fit(x, np.minimum(y, 3), y_max=3)
    np.testing.assert_array_equal(held.coef_, clipped.coef_)
    assert held.predict(100 * x).max() == 3.0
    assert held.y_bounds_ == (0.0, 3.0)


def test_with_noise_it_is_private_and_near():
    x, y = counted(20_000)
    model = fit(x, y, epsilon=2.0, delta=1e-6, y_max=12)
    assert model.privacy_.epsilon <= 2.0
    np.testing.assert_allclose(model.coef_, TRUTH, atol=0.15)
    assert model.intercept_ == pytest.approx(LOG_MEAN, abs=0.1)


def test_the_largest_count_that_was_not_told_is_a_leak():
    x, y = counted(200)
    with pytest.warns(PrivacyLeakWarning, match="largest count was computed from"):
        model = PrivatePoissonRegressor(5.0, data_norm=1.8).fit(x, y)
    assert model.y_bounds_ == (0.0, y.max())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Poisson(0.0), r"largest count.*most=0\.0.*public number"),
        (lambda: Poisson(math.nan), "most=nan"),
        (lambda: fit(*counted(20), y_max=-1), r"most=-1\.0"),
        (lambda: fit(counted(20)[0], -1 - counted(20)[1]), r"counts, finite numbers >= 0, got another in row=0"),
        (lambda: Answers.between(0, 9).loss("poisson"), "Say counts = true in the schema's label"),
        (lambda: Answers.counting(9.0).loss("huber"), "loss='poisson' for a label that counts, got loss='huber'"),
        (lambda: Answers().loss("poisson"), "for a label of two classes, got loss='poisson'"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(InputError, match=message):
        make()
