"""Objective perturbation: the bounds against direct integration of the argmin's law."""

from math import cos, hypot, log1p, pi, sin

import mpmath
import numpy as np
import pytest

from privacy.argmins import Argmins, Huber, Logistic, gaussian, norm_laplace
from sottovoce.privacy import (
    Gaussian,
    GaussianObjective,
    NormLaplaceObjective,
    Repeated,
    Sequence,
    epsilon,
    epsilon_of_mu,
    pure_epsilon,
)
from sottovoce.privacy.accounting.renyi import leaf_curve

LOSSES = [Logistic(0.3), Logistic(4.0), Logistic(30.0), Huber(0.5), Huber(10.0)]
LINE = [((x,), y) for x in (1.0, -1.0, 0.5) for y in (1, -1)]
PLANE = [((cos(a), sin(a)), y) for a in (0.0, pi / 2, 3 * pi / 4) for y in (1, -1)]


def renyi(event, alpha):
    return float(leaf_curve(event, np.array([alpha - 1.0]))[0]) / (alpha - 1)


def bound_b(sigma, kappa, alpha):
    """Bound B as it stands on the proof page."""
    return alpha / (2 * sigma**2) - log1p(-alpha * (alpha - 1) * kappa**2 / (1 + kappa)) / (alpha - 1)


def integrals(loss, m, kappa, multiplier, records, points, g=0.0, others=()):
    """(alpha, divergence) of all pairs, for orders up to nearly the last that bound B covers."""
    mu, sensitivity = loss.curvature_bound / (m * kappa), 2 / m
    for share in (0.03, 0.4, 0.8, 0.97):
        alpha = 1 + share / kappa
        std, d = multiplier * sensitivity, len(records[0][0])
        reach = 9 * std + 2 * (alpha + 1) * sensitivity
        laws = Argmins(loss, m, mu, records, gaussian(std, d), reach, points, g, others)
        if all(abs(mass - 1) < 2e-3 for mass in laws.masses):  # else the mesh is too coarse for this curvature
            for _, _, found in laws.divergences(alpha):
                yield alpha, found


@pytest.mark.parametrize("loss", LOSSES, ids=lambda l: f"{type(l).__name__}({l.s})")
def test_bound_b_holds_on_the_line(loss):
    worst, seen = 0.0, 0
    for m in (1, 20):
        for kappa in (0.05, 0.25, 1.0, 4.0):
            for multiplier in (0.4, 1.0, 3.0, 10.0):
                for alpha, found in integrals(loss, m, kappa, multiplier, LINE, 3001):
                    worst, seen = max(worst, found / bound_b(multiplier, kappa, alpha)), seen + 1
                    assert found <= renyi(GaussianObjective(multiplier, kappa), alpha) * (1 + 1e-6)
    assert seen > 1500
    assert worst < 1


def test_bound_b_is_nearly_reached_on_the_line():
    ratios = [r / bound_b(0.5, 0.05, a) for a, r in integrals(Huber(10.0), 20, 0.05, 0.5, LINE, 3001)]
    assert 0.99 < max(ratios) < 1


@pytest.mark.parametrize("loss", [Logistic(4.0), Huber(4.0)], ids=["logistic", "huber"])
@pytest.mark.parametrize("others", [(), (((0.6, 0.8), 1), ((0.0, -1.0), -1))], ids=["alone", "with others"])
def test_bound_b_holds_in_the_plane(loss, others):
    """Two directions, where both records' curvature shows at once."""
    worst, seen = 0.0, 0
    for kappa, multiplier in [(0.08, 1.3), (0.25, 0.5), (0.25, 2.0), (1.0, 0.6)]:
        shift = np.array([0.5, -0.2]) * loss.curvature_bound / kappa / loss.s
        for alpha, found in integrals(loss, 1, kappa, multiplier, PLANE, 141, shift, others):
            worst, seen = max(worst, found / bound_b(multiplier, kappa, alpha)), seen + 1
    assert seen > 200
    assert (0.25 if loss.one_sided else 0.5) < worst < 1


@pytest.mark.parametrize("loss", LOSSES, ids=lambda l: f"{type(l).__name__}({l.s})")
@pytest.mark.parametrize("d", [1, 2])
def test_the_norm_laplace_bounds_hold(loss, d):
    records, points = (LINE, 8001) if d == 1 else (PLANE[:5], 151)
    seen = 0
    for kappa in (0.02, 0.25, 1.0):
        for scale in (0.7, 3.0):
            mu, width = loss.curvature_bound / kappa, 2 * scale
            laws = Argmins(loss, 1, mu, records, norm_laplace(width, d), (25 if d == 1 else 15) * width + 4, points)
            event = NormLaplaceObjective(scale, d, kappa, one_sided=loss.one_sided)
            assert laws.log_ratio() <= pure_epsilon(event) * (1 + 1e-12)
            if not all(abs(mass - 1) < 2e-3 for mass in laws.masses):
                continue
            for alpha in (1.1, 2.0, 6.0, 30.0):
                for _, _, found in laws.divergences(alpha):
                    seen += 1
                    assert found <= renyi(event, alpha) * (1 + 1e-3) + 1e-5
    assert seen > 100


def crude(sigma, kappa, lam):
    """J + log(2 E e^{lambda max(X, 0)} - 1) / lambda, X ~ N(1/(2 sigma^2), 1/sigma^2), by integration."""
    with mpmath.workdps(40):
        mean = mpmath.quad(
            lambda z: mpmath.exp(lam * max(0.5 / sigma**2 + z / sigma, 0)) * mpmath.npdf(z),
            [-30, -0.5 / sigma, lam / sigma, lam / sigma + 30],
        )
        return mpmath.log(1 + mpmath.mpf(kappa)) + mpmath.log(2 * mean - 1) / lam


def test_the_crude_bound_is_its_formula_and_takes_over_beyond_bound_b():
    for alpha in (3.5, 10.0, 100.0):  # bound B ends at alpha = 3
        true = crude(2.0, 0.5, alpha - 1)
        assert true <= renyi(GaussianObjective(2.0, 0.5), alpha) <= true * (1 + 1e-9)
    assert epsilon(GaussianObjective(50.0, 0.5), 1e-5) < 0.6  # bound B alone cannot go below log(1e5) / 2


def test_the_price_is_the_smaller_of_the_two_bounds_and_no_less():
    """Both formulas as they stand on the proof page: what is charged is neither below them nor above."""
    by_b = 0
    for sigma, kappa in [(0.5, 0.05), (3.0, 0.02), (40.0, 1e-3), (2.0, 0.4), (10.0, 1.5), (1.0, 8.0)]:
        for share in (0.02, 0.3, 0.7, 0.95):
            alpha = 1 + share / kappa
            stated = min(bound_b(sigma, kappa, alpha), float(crude(sigma, kappa, alpha - 1)))
            by_b += stated == bound_b(sigma, kappa, alpha)
            assert stated * (1 - 1e-12) <= renyi(GaussianObjective(sigma, kappa), alpha) <= stated * (1 + 1e-9)
    assert 8 < by_b < 24


def test_the_jacobian_term_is_needed():
    """With steep curvature the divergence is well above what the noise alone would give."""
    sigma, kappa, alpha = 2.17, 1.224, 1.07
    records = [((1.0,), 1.05), ((-1.0,), 0.94)]
    laws = Argmins(Huber(1.0), 1, 1 / kappa, records, gaussian(2 * sigma, 1), 43.0, 40_001)
    for _, _, found in laws.divergences(alpha):
        assert found == pytest.approx(0.164, abs=1e-3)
        assert 1.4 * alpha / (2 * sigma**2) < found < bound_b(sigma, kappa, alpha)


def test_two_sides_are_priced_by_the_mirrored_jump():
    """E exp(lambda max(|b + u|, |b - u|) - lambda |b|) <= 2 M - 1, by simulation."""
    rng = np.random.default_rng(3)
    d, scale, lam = 6, 0.8, 2.5
    b = rng.normal(size=(200_000, d))
    b *= (rng.gamma(d, size=len(b)) / np.linalg.norm(b, axis=1))[:, None]
    u = np.zeros(d)
    u[0] = 1 / scale
    jump = np.maximum(np.linalg.norm(b + u, axis=1), np.linalg.norm(b - u, axis=1)) - np.linalg.norm(b, axis=1)
    sample = np.exp(lam * jump)
    low = np.log(sample.mean() - 5 * sample.std() / np.sqrt(len(b)))
    high = np.log(sample.mean())
    found = float(leaf_curve(NormLaplaceObjective(scale, d, 0.0), np.array([lam]))[0])
    assert low <= found <= high + 0.05


@pytest.mark.parametrize("sigma", [1.0, 20.0])
def test_without_curvature_it_is_a_gaussian(sigma):
    assert epsilon(Repeated(GaussianObjective(sigma, 0.0), 7), 1e-5) == epsilon(Repeated(Gaussian(sigma), 7), 1e-5)
    near = epsilon(Repeated(GaussianObjective(sigma, 1e-9), 7), 1e-5)
    assert epsilon(Repeated(Gaussian(sigma), 7), 1e-5) < near < 1.12 * epsilon(Repeated(Gaussian(sigma), 7), 1e-5)


def test_an_inexact_argmin_costs_a_little_more():
    exact = Repeated(GaussianObjective(40.0, 1e-3), 100)
    tau, mu, sigma_o = 1e-12, 0.1, 1e-6
    inexact = Sequence((exact, Repeated(Gaussian(sigma_o * mu / (2 * tau)), 100)))
    assert epsilon(exact, 1e-5) <= epsilon(inexact, 1e-5) <= epsilon(exact, 1e-5) * (1 + 1e-6)
    coarse = Sequence((exact, Repeated(Gaussian(40.0), 100)))
    assert epsilon(coarse, 1e-5) > 1.3 * epsilon(exact, 1e-5)


def test_the_worst_solver_with_linear_losses():
    """It misses by tau / mu, to the side that tells most. All laws are Gaussian, so the truth is known."""
    for tau, mu, sigma_o, sigma in [(0.1, 0.5, 0.3, 3.0), (0.5, 0.1, 1.0, 1.5), (1e-3, 2.0, 1e-3, 8.0)]:
        sensitivity = 2.0
        spread = hypot(sigma * sensitivity / mu, sigma_o)
        truth = epsilon_of_mu((sensitivity / mu + 2 * tau / mu) / spread, 1e-5)
        event = Sequence((GaussianObjective(sigma, 0.0), Gaussian(sigma_o * mu / (2 * tau))))
        assert truth <= epsilon(event, 1e-5)
