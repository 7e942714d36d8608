"""What replacing a row moves a sum by: no pair of rows beats the bounds, and some attain them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sottovoce as sv
from sottovoce.problem.losses import Logistic, Softmax

REACHES = [0.0, 0.01, 0.3, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 300.0, 1e4]


def sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def pair_distances(reach, count, rng):
    """Of gradients z sigmoid(<w, z>) with ||w|| = reach, over random z in the unit ball of the plane."""
    angles, lengths = rng.uniform(0, 2 * np.pi, size=(2, count)), rng.random((2, count)) ** 0.2
    lengths[:, ::2] = 1.0
    z = lengths[..., None] * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    gradients = z * sigmoid(reach * z[..., :1])
    return np.linalg.norm(gradients[0] - gradients[1], axis=-1)


@pytest.mark.parametrize("reach", REACHES)
def test_no_pair_of_logistic_gradients_is_further_apart(reach):
    assert pair_distances(reach, 400_000, np.random.default_rng(0)).max() <= Logistic().spread(np.array(reach))


@pytest.mark.parametrize("reach", REACHES)
def test_mirrored_rows_nearly_attain_it(reach):
    theta = np.linspace(0, np.pi / 2, 100_001)
    attained = (2 * np.sin(theta) * sigmoid(reach * np.cos(theta))).max()
    bound = float(Logistic().spread(np.array(reach)))
    assert attained <= bound
    assert bound <= attained * (1.05 if 0.01 < reach < 5 else 1.002)


def test_it_grows_from_one_to_two():
    found = Logistic().spread(np.linspace(0, 50, 300))
    assert found[0] == pytest.approx(1.0, abs=1e-9)
    assert (np.diff(found) >= -1e-9).all()
    assert found[-1] > 1.9
    assert found.max() <= 2


@settings(max_examples=60)
@given(st.integers(0, 2**31), st.floats(0, 20), st.integers(2, 6))
def test_no_pair_of_softmax_gradients_is_further_apart(seed, reach, classes):
    rng, loss = np.random.default_rng(seed), Softmax(classes)
    w = rng.normal(size=(3, classes))
    w *= reach / np.linalg.norm(w)
    a = rng.normal(size=(2, 200, 3))
    a /= np.linalg.norm(a, axis=-1, keepdims=True)
    a[1, :100] = -a[0, :100]
    slopes = loss.slope(a @ w, rng.integers(classes, size=(2, 200)), loss.theta)
    gradients = np.einsum("kjd,kjc->kjdc", a, slopes)
    apart = np.sqrt(np.sum((gradients[0] - gradients[1]) ** 2, axis=(-2, -1)))
    assert apart.max() <= loss.spread(np.array(reach))


def test_two_classes_attain_it_at_zero_and_far_out():
    loss = Softmax(2)
    assert loss.spread(np.array(0.0)) == pytest.approx(math.sqrt(2), rel=1e-9)  # a and -a, both of class 0
    assert loss.spread(np.array(50.0)) == pytest.approx(2 * math.sqrt(2), rel=1e-9)


@pytest.mark.parametrize("loss", [sv.losses.SmoothedHinge(), sv.losses.Huber(threshold=0.5)], ids=lambda x: x.name)
def test_other_losses_take_twice_their_bound(loss):
    assert loss.spread(np.array([0.0, 7.0])).tolist() == [2 * loss.slope_bound] * 2


def oracle(a, b, loss=None, **options):
    algorithm = sv.MaskedNewton(loss=loss or Logistic(), **options)
    return algorithm.oracle(sv.Sites([a], [b], data_norm=2.0), sv.graphs.complete(1))


@pytest.mark.parametrize("full", [True, False])
def test_the_sum_s_sensitivities_are_attained_and_never_exceeded(full):
    rng = np.random.default_rng(3)
    a = rng.normal(size=(9, 4))
    a *= 2 / np.linalg.norm(a, axis=1, keepdims=True)
    b = rng.choice([-1.0, 1.0], size=9)
    moved = []
    for row in [*np.eye(4) * 2, *rng.normal(size=(200, 4))]:
        for other in np.eye(4) * 2:
            theirs, ours = a.copy(), a.copy()
            theirs[0], ours[0] = row * min(1, 2 / np.linalg.norm(row)), other
            moved.append(np.linalg.norm(oracle(ours, b).moments(full) - oracle(theirs, b).moments(full)))
    bound = oracle(a, b).moments_sensitivity(9)
    assert max(moved) <= bound
    assert max(moved) >= bound * (1 - 1e-9)
    assert bound == pytest.approx(math.sqrt(2) * 4)


@pytest.mark.parametrize("reach", [0.0, 4.0, 8.0])
def test_the_gradient_sum_s_sensitivity_is_attained_by_mirrored_rows(reach):
    w = np.array([reach / 2, 0.0]).reshape(1, 2, 1)  # times the bound on rows: reach
    theta = np.linspace(0, np.pi / 2, 4001)
    best = theta[np.argmax(np.sin(theta) * sigmoid(reach * np.cos(theta)))]
    rest = np.array([[0.3, 0.1], [0.2, -1.0]])
    pair = [np.vstack([[2 * np.cos(best), sign * 2 * np.sin(best)], rest]) for sign in (1, -1)]
    site, other = (oracle(a, np.array([-1.0, 1.0, -1.0])) for a in pair)
    moved = np.linalg.norm(site.gradient_sum(w) - other.gradient_sum(w))
    bound = site.gradient_sum_sensitivity(w, 3).item()
    assert moved <= bound <= moved * 1.03
    clipped = oracle(pair[0], np.array([-1.0, 1.0, -1.0]), max_grad_norm=0.25)
    assert clipped.gradient_sum_sensitivity(w, 3).item() == pytest.approx(0.5)


def test_a_gradient_sum_is_the_sum_of_gradients():
    rng = np.random.default_rng(1)
    a = [rng.normal(size=(m, 3)) / 4 for m in (2, 7, 4)]
    b = [rng.choice([-1.0, 1.0], size=len(x)) for x in a]
    algorithm = sv.MaskedNewton(max_grad_norm=0.2)
    site = algorithm.oracle(sv.Sites(a, b), sv.graphs.complete(3))
    w = rng.normal(size=(1, 3, 2))
    each = site.gradient(np.repeat(w, 3, axis=0)) - site.lam * w
    np.testing.assert_allclose(site.gradient_sum(w)[0], (site.divisor * each).sum(axis=0), atol=1e-13)
