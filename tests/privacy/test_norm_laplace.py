"""l2-Laplace noise: the angle's law against closed forms with many digits, plain quadrature and simulation."""

from math import inf, log, sqrt

import mpmath
import numpy as np
import pytest
from scipy import stats

from sottovoce.privacy import Laplace, NormLaplace, Repeated, epsilon, pure_epsilon
from sottovoce.privacy.accounting.norm_laplace import MARGIN, log_moment, log_moment_of_positive
from sottovoce.privacy.accounting.renyi import leaf_curve

LAMBDAS = np.array([1e-3, 0.3, 2.0, 15.0, 200.0, 5000.0])


def closed_form(d, t, lam):
    """log E e^{lambda L} by Bessel functions, 50 digits."""
    with mpmath.workdps(50):
        nu, a = mpmath.mpf(d) / 2 - 1, mpmath.mpf(t) / 2
        b = (mpmath.mpf(lam) + mpmath.mpf("0.5")) * t
        one = (a / b) ** nu * mpmath.besselk(nu + 1, a) * mpmath.besseli(nu, b)
        two = (a / b) ** (nu + 1) * mpmath.besselk(nu, a) * mpmath.besseli(nu + 1, b)
        return mpmath.log(a * (one + two))


def plain_quadrature(d, t, lam, positive):
    """Over radius and angle, as the noise is defined."""
    nodes, weights = np.polynomial.legendre.leggauss(120)
    low, high = stats.gamma.ppf(1e-14, d), stats.gamma.isf(1e-14, d)
    r = (low + high) / 2 + (high - low) / 2 * nodes
    total = 0.0
    for radius, weight in zip(r, weights * stats.gamma.pdf(r, d) * (high - low) / 2, strict=True):
        # The loss is zero at cos = -t / (2 r): the angle is cut there.
        cut = np.arccos(max(-1.0, -t / (2 * radius)))
        for start, stop in ((0.0, cut), (cut, np.pi)):
            angle = (start + stop) / 2 + (stop - start) / 2 * nodes
            loss = np.sqrt(radius**2 + 2 * radius * t * np.cos(angle) + t * t) - radius
            density = np.sin(angle) ** (d - 2) * (stop - start) / 2
            total += weight * np.sum(weights * density * np.exp(lam * (np.maximum(loss, 0) if positive else loss)))
    normal = np.sum(weights * np.sin(np.pi / 2 * (1 + nodes)) ** (d - 2)) * np.pi / 2
    return log(total / normal)


@pytest.mark.parametrize("d", [1, 2, 3, 10, 105, 1000])
@pytest.mark.parametrize("t", [1e-6, 0.01, 0.3, 2.64, 40.0])
def test_never_below_the_closed_form_and_close(d, t):
    for lam, found in zip(LAMBDAS, log_moment(d, t, LAMBDAS), strict=True):
        if found < inf:
            true = closed_form(d, t, lam)
            assert true < found < true + 2 * (MARGIN + 1e-14 * (1 + lam) * t)
    assert np.all(leaf_curve(NormLaplace(1 / t, d), LAMBDAS) <= LAMBDAS * t * (1 + 1e-15))


@pytest.mark.parametrize("d", [2, 3, 10, 105])
@pytest.mark.parametrize(("t", "lam"), [(0.3, 30.0), (2.64, 8.0), (10.0, 0.5)])
def test_plain_quadrature_agrees(d, t, lam):
    at = np.array([lam])
    assert log_moment(d, t, at)[0] == pytest.approx(plain_quadrature(d, t, lam, False), rel=2e-5)
    assert log_moment_of_positive(d, t, at)[0] == pytest.approx(plain_quadrature(d, t, lam, True), rel=2e-5)


@pytest.mark.parametrize(("t", "lam"), [(0.3, 30.0), (2.64, 8.0), (10.0, 0.5), (1e-3, 1.0)])
def test_one_dimension_of_the_positive_part(t, lam):
    with mpmath.workdps(40):
        true = mpmath.quad(
            lambda x: mpmath.exp(-abs(x)) / 2 * mpmath.exp(lam * max(abs(x + t) - abs(x), 0)),
            [-mpmath.inf, -t, -t / 2, 0, mpmath.inf],
        )
        assert mpmath.log(true) < log_moment_of_positive(1, t, np.array([lam]))[0] < mpmath.log(true) + 3e-12


@pytest.mark.parametrize("d", [2, 10, 105])
def test_simulation_agrees(d):
    """Real draws: a Gamma radius and a uniform direction; 5 standard errors."""
    rng = np.random.default_rng(d)
    x = rng.normal(size=(50_000, d))
    x *= (rng.gamma(d, size=len(x)) / np.linalg.norm(x, axis=1))[:, None]
    before = np.linalg.norm(x, axis=1)
    assert x[:, 0].std() == pytest.approx(sqrt(d + 1), rel=0.02)
    for t, lam in [(0.3, 3.0), (1.0, 3.0), (0.3 * sqrt(d), 4.0)]:
        moved = x.copy()
        moved[:, 0] += t
        loss = np.linalg.norm(moved, axis=1) - before
        for values, found in [(loss, log_moment), (np.maximum(loss, 0), log_moment_of_positive)]:
            sample = np.exp(lam * values)
            assert abs(np.exp(found(d, t, np.array([lam]))[0]) - sample.mean()) < 5 * sample.std() / sqrt(len(x))


@pytest.mark.parametrize("d", [1, 2, 7, 105])
def test_a_larger_shift_costs_more(d):
    shifts = np.geomspace(1e-3, 30, 60)
    for found in (log_moment, log_moment_of_positive):
        values = np.array([found(d, float(t), LAMBDAS[:4]) for t in shifts])
        assert np.all(np.diff(values, axis=0) > 0)


def test_for_small_shifts_it_is_as_good_as_a_gaussian():
    for d in (2, 10, 105):
        t, lam = 1e-2, 3.0
        assert log_moment(d, t, np.array([lam]))[0] == pytest.approx(lam * (1 + lam) * t * t / (2 * d), rel=0.01)


def test_one_dimension_is_laplace():
    for scale in (0.2, 1.0, 30.0):
        assert np.array_equal(leaf_curve(NormLaplace(scale, 1), LAMBDAS), leaf_curve(Laplace(scale), LAMBDAS))


def test_beyond_the_steepest_the_pure_bound_serves():
    assert log_moment(3, 10.0, np.array([1e4]))[0] == inf
    event = Repeated(NormLaplace(1e-4, 3), 2)
    assert epsilon(event, 1e-5) <= pure_epsilon(event) == pytest.approx(2e4)
