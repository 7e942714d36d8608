"""Head starts: the first model, the coordinates, and when there is none, held against fits that are not ours."""

import math

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import sottovoce as sv
from sottovoce.errors import PrivacyError, UnsupportedError
from sottovoce.sums.head_start import COUNTED, LONGER, RIDGE, STRETCH, head_start
from sottovoce.sums.program import Opened
from sottovoce.sums.questions import StartMoments

LOGISTIC, SQUARES, CLASSES = sv.losses.Logistic(), sv.losses.Huber(2.0), sv.losses.Softmax(3)
ROWS, P = 20_000, 5


def table(share=0.0, p=P, seed=1):
    """Normal features beside a constant, of norm at most 1, and what a linear model says of them."""
    rng = np.random.default_rng(seed)
    a = np.hstack((rng.normal(size=(ROWS, p - 1)) * np.geomspace(1, 0.5, p - 1), np.ones((ROWS, 1))))
    a /= np.linalg.norm(a, axis=1).max()
    return a, a @ np.append(rng.normal(size=p - 1) * 4, share)


def opened(loss, a, b, std=0.0, seed=0, norm=1.0):
    """The sum over these rows at two sites, with noise of that standard deviation in each number of the mean."""
    held = sv.Sites(list(np.array_split(a * norm, 2)), list(np.array_split(b, 2)), data_norm=norm)
    site = sv.IPADMM(loss=loss).oracle(held, sv.graphs.complete(2))
    exact = StartMoments().of(site, len(b))
    drawn = exact + len(b) * std * np.random.default_rng(seed).normal(size=exact.shape)
    return Opened(StartMoments(), drawn, np.full((1, 1), len(b) * std), len(b))


def model(found, norm=1.0):
    """The first model in the coordinates of the rows."""
    return found.whitening.times(found.u)[:, 0]


def labels(scores, middle=0.0):
    return np.where(np.random.default_rng(2).random(len(scores)) < 1 / (1 + np.exp(-scores - middle)), 1.0, -1.0)


def mean_loss(a, b, w):
    return float(np.mean(LOGISTIC.value(a @ w, b, 0.0)))


@pytest.mark.parametrize("middle", [0.0, -1.5, -3.0])
def test_with_normal_features_the_first_model_is_nearly_the_best(middle):
    """Also where a Newton step from 0 would fall far short: scikit-learn's fit is the oracle."""
    a, scores = table()
    scores = scores / np.std(scores) * 0.9
    b = labels(scores, middle)
    w = model(head_start(opened(LOGISTIC, a, b, 1e-9), LOGISTIC, 1.0, 1e-9))
    fitted = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-8, max_iter=1000).fit(a, b).coef_[0]
    best, none = mean_loss(a, b, fitted), mean_loss(a, b, np.zeros(P))
    newton = mean_loss(a, b, np.linalg.solve(a.T @ a / 4, a.T @ b / 2))
    assert mean_loss(a, b, w) - best < 0.01 * (none - best)
    assert middle == 0 or mean_loss(a, b, w) - best < 0.2 * (newton - best)


def test_for_numbers_it_is_least_squares():
    a, scores = table()
    b = np.clip(scores / np.abs(scores).max() + 0.1 * np.random.default_rng(3).normal(size=ROWS), -1, 1)
    w = model(head_start(opened(SQUARES, a, b, 1e-9), SQUARES, 1.0, 1e-9))
    fitted = LinearRegression(fit_intercept=False).fit(a, b).coef_
    np.testing.assert_allclose(w, fitted, rtol=0.02, atol=0.01)


def test_for_classes_it_is_a_newton_step_from_zero():
    """Along the differences of outputs, where the Hessian of softmax at 0 is M / K."""
    a, scores = table()
    b = np.digitize(scores, np.quantile(scores, [0.3, 0.6])).astype(float)
    w = model(head_start(opened(CLASSES, a, b, 1e-9), CLASSES, 1.0, 1e-9)).reshape(P, 3)
    slopes = 1 / 3 - np.eye(3)[b.astype(int)]
    np.testing.assert_allclose(w, -3 * np.linalg.solve(a.T @ a, a.T @ slopes), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("std", [0.0, 1e-5, 1e-3, 0.1, 10.0])
@pytest.mark.parametrize("loss", [LOGISTIC, SQUARES])
def test_no_noise_makes_it_worse_than_nothing_by_much(std, loss):
    """Noise shrinks it: nine draws, of which the mean loss is at most a little above that of no model."""
    a, scores = table()
    b = labels(scores) if loss is LOGISTIC else np.clip(scores, -1, 1)
    none = float(np.mean(loss.value(np.zeros(ROWS), b, loss.theta)))
    found = [model(head_start(opened(loss, a, b, std, seed), loss, 1.0, 1e-6)) for seed in range(9)]
    losses = [float(np.mean(loss.value(a @ w, b, loss.theta))) for w in found]
    assert np.mean(losses) < none * (1.05 if std > 0.01 else 0.99)


def test_without_a_constant_it_is_a_newton_step():
    a, scores = table()
    a, b = a[:, :-1], labels(scores / np.std(scores))
    w = model(head_start(opened(LOGISTIC, a, b, 1e-9), LOGISTIC, 1.0, 1e-9))
    np.testing.assert_allclose(w, np.linalg.solve(a.T @ a / 4, a.T @ b / 2), rtol=0.02, atol=0.02)


def test_where_one_label_is_too_rare_there_is_none():
    a, scores = table()
    found = head_start(opened(LOGISTIC, a, labels(0 * scores, -4.5), 1e-5), LOGISTIC, 1.0, 1e-9)
    np.testing.assert_array_equal(found.u, 0)
    np.testing.assert_array_equal(found.whitening.A[..., 0], np.eye(P))


def test_rows_are_about_as_long_in_every_direction_and_none_counts_too_little():
    a, scores = table()
    std, b = 1e-6, labels(scores)
    A = head_start(opened(LOGISTIC, a, b, std), LOGISTIC, 1.0, 1e-6).whitening.A[..., 0]
    np.testing.assert_array_equal(A, A.T)
    # Its square's inverse is M + s I, but for the scale.
    M = a.T @ a / ROWS
    s = RIDGE * std * math.sqrt(P)
    inverse = np.linalg.inv(A @ A)
    np.testing.assert_allclose(
        inverse / np.trace(inverse), (M + s * np.eye(P)) / (np.trace(M) + P * s), rtol=0.05, atol=1e-3
    )
    squares = np.sum((a @ A) ** 2, axis=1)
    assert squares.mean() == pytest.approx(1 / LONGER, rel=0.01)
    assert squares.max() <= COUNTED
    assert np.linalg.norm(A, 2) <= STRETCH


def test_rows_that_are_round_keep_their_coordinates():
    """Where all directions are alike there is nothing to gain."""
    rng = np.random.default_rng(5)
    a = rng.normal(size=(ROWS, P))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    found = head_start(opened(SQUARES, a, np.clip(a[:, 0], -1, 1), 1e-6), SQUARES, 1.0, 1e-6)
    np.testing.assert_array_equal(found.whitening.A[..., 0], np.eye(P))
    assert np.linalg.norm(found.u) > 0.9


@pytest.mark.parametrize("norm", [1e-100, 1e-3, 1e3, 1e100])
@pytest.mark.parametrize("loss", [LOGISTIC, SQUARES, CLASSES])
def test_units_of_rows_do_not_matter(loss, norm):
    a, scores = table()
    b = (
        labels(scores, -1.0)
        if loss is LOGISTIC
        else np.clip(scores, -1, 1)
        if loss is SQUARES
        else np.arange(ROWS) % 3.0
    )
    one = head_start(opened(loss, a, b, 1e-5), loss, 1.0, 1e-6)
    other = head_start(opened(loss, a, b, 1e-5, norm=norm), loss, norm, 1e-6 * norm**2)
    np.testing.assert_allclose(other.whitening.A, one.whitening.A, rtol=1e-6)
    np.testing.assert_allclose(other.u * norm, one.u, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(other.whitening.c, norm)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_spoilt_moments_are_refused(bad):
    a, scores = table()
    told = opened(LOGISTIC, a, labels(scores))
    told.value[2, 0] = bad
    with pytest.raises(PrivacyError, match="a site has spoilt their sum"):
        head_start(told, LOGISTIC, 1.0, 1e-6)


def test_losses_without_a_step_from_zero_are_refused():
    with pytest.raises(UnsupportedError, match="with moments, got loss='poisson'"):
        sv.IPADMM(loss=sv.losses.Poisson(), moments=0.1)
