"""Losses against mpmath, scipy and sklearn, and the bounds that sensitivities rest on."""

import math

import mpmath
import numba
import numpy as np
import pytest
import scipy.integrate
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import hinge_loss, mean_absolute_error, mean_pinball_loss

from helpers import every
from sottovoce import losses
from sottovoce.errors import InputError
from sottovoce.problem.losses import (
    Absolute,
    Hinge,
    Huber,
    Logistic,
    Quantile,
    Reals,
    Signs,
    SmoothedHinge,
    SmoothedQuantile,
)

ALL = every.LOSSES + every.SHAPED
SMOOTH = [loss for loss in ALL if loss.smoothness_bound is not None]
each = pytest.mark.parametrize("loss", ALL, ids=repr)
each_smooth = pytest.mark.parametrize("loss", SMOOTH, ids=repr)


def points(loss, count=4000, spread=4.0, seed=0):
    draws = np.random.default_rng(seed)
    b = draws.choice([-1.0, 1.0], count) if loss.labels == Signs() else draws.normal(size=count)
    return spread * draws.normal(size=count), b


@pytest.mark.parametrize("m", [-700.0, -30.0, -1.5, -1e-9, 0.0, 1e-9, 0.3, 20.0, 40.0, 700.0])
@pytest.mark.parametrize("b", [-1.0, 1.0])
def test_logistic_to_the_last_digits(m, b):
    with mpmath.workdps(400):
        e = mpmath.exp(-mpmath.mpf(m))
        value, slope, curvature = mpmath.log(1 + e), -b * e / (1 + e), e / (1 + e) ** 2
        for ours, exact in [
            (Logistic.value(b * m, b, 0.0), value),
            (Logistic.slope(b * m, b, 0.0), slope),
            (Logistic.curvature(b * m, b, 0.0), curvature),
        ]:
            assert abs(mpmath.mpf(float(ours)) - exact) <= 1e-15 * abs(exact)


def test_values_against_other_libraries():
    z, b = points(Hinge())
    assert Hinge.value(z, b, 0.0).mean() == pytest.approx(hinge_loss(b, z), rel=1e-14)
    z, b = points(Absolute())
    assert Absolute.value(z, b, 0.0).mean() == pytest.approx(mean_absolute_error(b, z), rel=1e-14)
    for level in (0.05, 0.5, 0.9):
        ours = Quantile.value(z, b, level).mean()
        assert ours == pytest.approx(mean_pinball_loss(b, z, alpha=level), rel=1e-14)
    for threshold in (0.2, 1.0, 3.0):
        np.testing.assert_allclose(Huber.value(z, b, threshold), scipy.special.huber(threshold, z - b), rtol=1e-14)


@pytest.mark.parametrize("width", [0.1, 0.5, 2.0])
def test_smoothed_hinge_is_the_moreau_envelope_of_the_hinge(width):
    # min over u of max(1 - u, 0) + (u - m)^2 / (2 width), by brute force: a definition we do not use
    for m in np.linspace(-3, 3, 25):
        u = np.linspace(-6, 6, 240_001)
        envelope = np.min(np.maximum(1 - u, 0) + (u - m) ** 2 / (2 * width))
        assert SmoothedHinge.value(m, 1.0, width) == pytest.approx(envelope, abs=1e-8)


@pytest.mark.parametrize("level", [0.05, 0.5, 0.9])
def test_smoothed_quantile_is_the_mean_of_the_quantile_loss_over_shifts(level):
    # An integral over the label, by quadrature: a definition that we do not use.
    for z in np.linspace(-0.5, 0.5, 21):
        mean, _ = scipy.integrate.quad(lambda t, z=z: float(Quantile.value(z, t, level)) / 0.2, -0.1, 0.1, points=[z])
        assert SmoothedQuantile.value(z, 0.0, level) == pytest.approx(mean, abs=1e-9)


@each
def test_slope_is_the_derivative(loss):
    z, b = points(loss)
    h = 1e-6
    kinks = {"hinge": 1 - b * z, "absolute": z - b, "quantile": z - b}
    away = np.abs(kinks.get(loss.name, np.ones_like(z))) > 2 * h
    difference = (loss.value(z + h, b, loss.theta) - loss.value(z - h, b, loss.theta)) / (2 * h)
    np.testing.assert_allclose(loss.slope(z, b, loss.theta)[away], difference[away], atol=2e-6)


@each_smooth
def test_curvature_is_the_derivative_of_the_slope(loss):
    z, b = points(loss)
    h = 1e-6
    joints = {
        "smoothed-hinge": [1 - b * z, 1 - b * z - loss.theta],
        "huber": [np.abs(z - b) - loss.theta],
        "smoothed-quantile": [np.abs(z - b) - 0.1],
        "poisson": [z - np.log(max(loss.theta, 1.0))],
    }
    away = np.all([np.abs(x) > 2 * h for x in joints.get(loss.name, [np.ones_like(z)])], axis=0)
    difference = (loss.slope(z + h, b, loss.theta) - loss.slope(z - h, b, loss.theta)) / (2 * h)
    np.testing.assert_allclose(loss.curvature(z, b, loss.theta)[away], difference[away], atol=1e-6)


@each
def test_kinks_get_a_subgradient(loss):
    z, b = points(loss, 200)
    kink = {"hinge": b, "absolute": b, "quantile": b}.get(loss.name, z)
    at = loss.value(kink, b, loss.theta) + loss.slope(kink, b, loss.theta) * (z - kink)
    assert np.all(loss.value(z, b, loss.theta) >= at - 1e-12)


@each
def test_compiled_formulas_are_the_same(loss):
    z, b = points(loss, 300)
    z[:3], b[:3] = [0.0, 1.0, -1.0], 1.0
    for formula in (loss.value, loss.slope, loss.curvature):
        compiled = numba.njit(formula)
        scalars = [compiled(x, y, loss.theta) for x, y in zip(z, b, strict=True)]
        np.testing.assert_allclose(scalars, formula(z, b, loss.theta), rtol=4e-15, atol=1e-300)


@each
def test_large_predictions_and_single_precision(loss):
    z, b = np.array([-1e6, 1e6, -1e6, 1e6]), np.array([1.0, 1.0, -1.0, -1.0])
    for formula in (loss.value, loss.slope, loss.curvature):
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            assert np.all(np.isfinite(formula(z, b, loss.theta)))
            assert formula(z.astype(np.float32), b.astype(np.float32), loss.theta).dtype == np.float32


@each
def test_bounds_hold_and_are_attained(loss):
    z, b = points(loss, 20_000)
    steepest = np.abs(loss.slope(z, b, loss.theta)).max()
    assert 0.99 * loss.slope_bound <= steepest <= loss.slope_bound * (1 + 1e-12)
    if loss.smoothness_bound is None:
        assert loss.smoothness(2.0) is None
        assert np.all(loss.curvature(z, b, loss.theta) == 0)
    else:
        sharpest = loss.curvature(z, b, loss.theta).max()
        assert 0.99 * loss.smoothness_bound <= sharpest <= loss.smoothness_bound * (1 + 1e-12)


@each
def test_lipschitz_and_smoothness_in_w(loss):
    draws = np.random.default_rng(1)
    norm, d = 1.7, 5
    w, v, a = draws.normal(size=(3, 2000, d))
    a *= norm / np.linalg.norm(a, axis=1, keepdims=True)
    _, b = points(loss, 2000)
    far = np.linalg.norm(w - v, axis=1)
    z, y = np.sum(w * a, axis=1), np.sum(v * a, axis=1)
    gap = np.abs(loss.value(z, b, loss.theta) - loss.value(y, b, loss.theta))
    assert np.all(gap <= loss.lipschitz(norm) * far * (1 + 1e-12))
    smoothness = loss.smoothness(norm)
    if smoothness is not None:
        turn = norm * np.abs(loss.slope(z, b, loss.theta) - loss.slope(y, b, loss.theta))
        assert np.all(turn <= smoothness * far * (1 + 1e-12))
        assert smoothness == pytest.approx(loss.smoothness_bound * norm**2)


@each
@given(
    z=st.floats(-50, 50),
    y=st.floats(-50, 50),
    label=st.floats(-5, 5),
    mix=st.floats(0, 1),
    side=st.booleans(),
)
def test_convex(loss, z, y, label, mix, side):
    b = (1.0 if side else -1.0) if loss.labels == Signs() else label
    between = loss.value(mix * z + (1 - mix) * y, b, loss.theta)
    chord = mix * loss.value(z, b, loss.theta) + (1 - mix) * loss.value(y, b, loss.theta)
    assert between <= chord + 1e-12 * (1 + abs(chord))
    line = loss.value(y, b, loss.theta) + loss.slope(y, b, loss.theta) * (z - y)
    assert loss.value(z, b, loss.theta) >= line - 1e-12 * (1 + abs(line))


def test_quantile_minimiser_is_the_quantile():
    sample = np.random.default_rng(2).normal(size=1001)
    grid = np.sort(sample)
    risks = [Quantile.value(z, sample, 0.9).mean() for z in grid]
    assert grid[int(np.argmin(risks))] == pytest.approx(np.quantile(sample, 0.9), abs=0.02)


def test_predictions_and_accuracy():
    z, b = np.array([2.0, -0.5, 0.0, -0.0, np.nan]), np.array([1.0, 1.0, 1.0, -1.0, 1.0])
    np.testing.assert_array_equal(Logistic().predict(z), [1, -1, 1, 1, np.nan])
    np.testing.assert_array_equal(Logistic().labels.hits(z, b), [1, 0, 1, 0, 0])
    np.testing.assert_array_equal(Huber().predict(z), z)
    assert np.isnan(Huber().labels.hits(z[:, None], b[:, None])).all()
    assert Huber().labels.hits(z, b).shape == z.shape


def test_label_sets():
    Signs().check(np.array([1, -1, 1]))
    Reals().check(np.array([0.5, -3.0]))
    with pytest.raises(InputError, match=r"-1 or \+1 .*2 \* labels - 1.*got another in row=2\.$"):
        Signs().check(np.array([1.0, -1.0, 0.0, 7.0]))
    with pytest.raises(InputError, match=r"-1 or \+1.*got another in row=0\.$"):
        Signs().check(np.array([np.nan]))
    with pytest.raises(InputError, match=r"finite labels.*got another in row=1\.$"):
        Reals().check(np.array([1.0, np.inf]))
    with pytest.raises(InputError, match=r"one-dimensional.*\(2, 1\)"):
        Reals().check(np.ones((2, 1)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SmoothedHinge(0.0), "width=0.0"),
        (lambda: Huber(math.inf), "threshold=inf"),
        (lambda: Huber(math.nan), "threshold=nan"),
        (lambda: Quantile(1.0), "level=1.0"),
        (lambda: SmoothedQuantile(0.0), "level=0.0"),
        (lambda: Logistic().lipschitz(-1.0), "data_norm=-1.0"),
        (lambda: Logistic().smoothness(math.nan), "data_norm=nan"),
        (
            lambda: losses.by_name("squared"),
            "logistic, hinge, smoothed-hinge, absolute, huber, quantile, smoothed-quantile, softmax.*'squared'",
        ),
        (lambda: losses.by_name("huber", width=1.0), "options of huber, got 'width'. Known: threshold"),
        (lambda: losses.by_name("hinge", width=1.0), "options of hinge, got 'width'. Known: none"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_unbounded_rows_give_unbounded_constants():
    assert Logistic().lipschitz(math.inf) == Logistic().smoothness(math.inf) == math.inf


def test_by_name():
    assert losses.by_name("huber", threshold=2.0) == Huber(2.0)
    assert [losses.by_name(name).name for name in losses.NAMES] == list(losses.NAMES)
    assert all(losses.by_name(name).outputs == 1 for name in losses.NAMES)
    assert losses.by_name("softmax", classes=3).outputs == 3
