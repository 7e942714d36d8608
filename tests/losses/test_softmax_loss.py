"""The loss against SciPy and mpmath, and the bounds that sensitivities rest on, by brute force."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from sottovoce import losses
from sottovoce.errors import InputError, UnsupportedError
from sottovoce.problem.losses import Classes, Logistic, Softmax, expect_one_output

predictions = st.integers(2, 7).flatmap(lambda k: st.lists(st.floats(-40, 40), min_size=k, max_size=k).map(np.array))


def points(classes=4, count=3000, spread=5.0, seed=0):
    rng = np.random.default_rng(seed)
    return spread * rng.normal(size=(count, classes)), rng.integers(classes, size=count).astype(float)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_value_and_slope_are_those_of_scipy(classes):
    z, b = points(classes)
    own = np.eye(classes)[b.astype(int)]
    value = -np.sum(own * log_softmax(z, axis=1), axis=1)
    np.testing.assert_allclose(Softmax.value(z, b, classes), value, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(Softmax.slope(z, b, classes), softmax(z, axis=1) - own, atol=1e-14)


@pytest.mark.parametrize("gap", [-700.0, -40.0, -1.0, 0.0, 1e-8, 3.0, 40.0, 600.0])
def test_to_the_last_digits(gap):
    """Also where the row is right by far, and both the loss and p_b - 1 are tiny."""
    z, b = np.array([0.5, 0.5 + gap, -1.0]), 1.0
    with mpmath.workdps(700):
        e = [mpmath.exp(mpmath.mpf(float(x))) for x in z]
        p = [x / sum(e) for x in e]
        exact = [-mpmath.log(p[1]), p[0], p[1] - 1, p[2]]
        ours = [Softmax.value(z, b, 3.0), *Softmax.slope(z, b, 3.0)]
        for got, want in zip(ours, exact, strict=True):
            assert abs(mpmath.mpf(float(got)) - want) <= 4e-15 * abs(want)


def test_derivatives_by_differences():
    z, b = points(count=300, spread=2.0)
    h = 1e-6
    for k in range(4):
        e = h * np.eye(4)[k]
        value = (Softmax.value(z + e, b, 4.0) - Softmax.value(z - e, b, 4.0)) / (2 * h)
        np.testing.assert_allclose(Softmax.slope(z, b, 4.0)[:, k], value, atol=1e-8)
        slope = (Softmax.slope(z + e, b, 4.0) - Softmax.slope(z - e, b, 4.0)) / (2 * h)
        np.testing.assert_allclose(Softmax.curvature(z, b, 4.0)[:, k], slope, atol=1e-8)


@given(predictions, st.data())
@settings(max_examples=300)
def test_bounds_hold_everywhere(z, data):
    b = float(data.draw(st.integers(0, len(z) - 1)))
    loss = Softmax(len(z))
    slope = loss.slope(z, b, loss.theta)
    assert np.linalg.norm(slope) <= math.sqrt(2) * (1 + 1e-15)
    assert abs(slope.sum()) <= 1e-15
    eigenvalues = np.linalg.eigvalsh(loss.curvature(z, b, loss.theta))
    assert eigenvalues[0] >= -1e-15
    assert eigenvalues[-1] <= 0.5 * (1 + 1e-14)


@given(predictions, st.data())
@settings(max_examples=200)
def test_the_slope_is_lipschitz_and_the_loss_convex(z, data):
    y = np.array(data.draw(st.lists(st.floats(-40, 40), min_size=len(z), max_size=len(z))))
    b = float(data.draw(st.integers(0, len(z) - 1)))
    loss = Softmax(len(z))
    far, turn = np.linalg.norm(z - y), np.linalg.norm(loss.slope(z, b, loss.theta) - loss.slope(y, b, loss.theta))
    assert turn <= loss.smoothness_bound * far * (1 + 1e-12) + 1e-15
    gap = loss.value(z, b, loss.theta) - loss.value(y, b, loss.theta)
    assert abs(gap) <= loss.slope_bound * far * (1 + 1e-12) + 1e-13
    assert gap >= loss.slope(y, b, loss.theta) @ (z - y) - 1e-12 * (1 + far)


@pytest.mark.parametrize("classes", [2, 3, 8])
def test_bounds_are_attained(classes):
    loss, far = Softmax(classes), np.full(classes, -50.0)
    far[1] = 0.0  # sure of class 1 where 0 is right
    assert np.linalg.norm(loss.slope(far, 0.0, loss.theta)) == pytest.approx(loss.slope_bound, rel=1e-15)
    far[0] = 0.0  # torn between two classes
    top = np.linalg.eigvalsh(loss.curvature(far, 0.0, loss.theta))[-1]
    assert top == pytest.approx(loss.smoothness_bound, rel=1e-15)
    assert loss.lipschitz(3.0) == pytest.approx(3 * math.sqrt(2))
    assert loss.smoothness(3.0) == pytest.approx(4.5)


def test_two_classes_are_the_logistic_loss_of_the_difference():
    z, b = points(2)
    difference, sign = z[:, 1] - z[:, 0], 2 * b - 1
    np.testing.assert_allclose(Softmax.value(z, b, 2.0), Logistic.value(difference, sign, 0.0), rtol=1e-14)
    slope = Logistic.slope(difference, sign, 0.0)
    np.testing.assert_allclose(Softmax.slope(z, b, 2.0), np.stack([-slope, slope], axis=1), rtol=1e-13)
    curvature = Logistic.curvature(difference, sign, 0.0)[:, None, None] * np.array([[1, -1], [-1, 1]])
    np.testing.assert_allclose(Softmax.curvature(z, b, 2.0), curvature, atol=1e-15)
    away = difference != 0
    np.testing.assert_array_equal(Classes(2).hits(z, b)[away], Logistic().labels.hits(difference, sign)[away])


def test_large_predictions_and_single_precision():
    z, b = np.array([[1e6, -1e6, 0.0], [-1e6, 1e6, 1e6], [0.0, 0.0, 0.0]]), np.array([1.0, 0.0, 2.0])
    for formula in (Softmax.value, Softmax.slope, Softmax.curvature):
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            assert np.all(np.isfinite(formula(z, b, 3.0)))
            assert formula(z.astype(np.float32), b.astype(np.float32), 3.0).dtype == np.float32
    np.testing.assert_allclose(Softmax.value(z, b, 3.0), [2e6, 2e6 + math.log(2), math.log(3)])


def test_labels_broadcast_over_runs():
    z, b = points(3, count=40)
    together = Softmax.value(np.stack([z, 2 * z], axis=1), b[:, None], 3.0)
    np.testing.assert_array_equal(together, np.stack([Softmax.value(z, b, 3.0), Softmax.value(2 * z, b, 3.0)], axis=1))


def test_predictions_and_accuracy():
    z = np.array([[1.0, 2.0, 0.0], [3.0, 3.0, -1.0], [0.0, 1.0, np.nan], [-3.0, -2.0, -1.0]])
    np.testing.assert_array_equal(Softmax(3).predict(z), [1, 0, np.nan, 2])
    np.testing.assert_array_equal(Classes(3).hits(z, np.array([1.0, 1.0, 2.0, 2.0])), [1, 0, 0, 1])


def test_label_sets():
    Classes(3).check(np.array([0.0, 2.0, 1.0]))
    for bad in (3.0, -1.0, 0.5, math.nan):
        with pytest.raises(InputError, match=r"among 0 \.\. 2 \(number the 3 classes.*got another in row=1\.$"):
            Classes(3).check(np.array([0.0, bad]))


def test_by_name_and_fields():
    loss = losses.by_name("softmax", classes=4)
    assert loss == Softmax(4) == Softmax(np.int64(4))
    assert (loss.outputs, loss.labels, loss.theta, loss.name) == (4, Classes(4), 4.0, "softmax")
    assert type(Softmax(np.int64(4)).classes) is int
    with pytest.raises(InputError, match="options of softmax in full, got no classes"):
        losses.by_name("softmax")
    with pytest.raises(InputError, match=r"options of softmax, got 'width'. Known: classes"):
        losses.by_name("softmax", width=1.0)
    for wrong in (1, 0, -3, 2.5, 3.0, math.nan, True):
        with pytest.raises(InputError, match=f"whole number of at least 2, got classes={wrong}"):
            Softmax(wrong)


def test_scalar_code_refuses_it():
    expect_one_output(Logistic(), "This")
    with pytest.raises(UnsupportedError, match="This needs a loss of one prediction per row, and softmax has 5"):
        expect_one_output(Softmax(5), "This")
