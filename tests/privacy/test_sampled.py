"""The bound for one sampled step and its composition, against exact one-dimensional pairs."""

from math import exp, log

import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.stats import norm

from privacy.pairs import compose, composed_delta, hockey_stick, pairs
from sottovoce.errors import UnsupportedError
from sottovoce.privacy import (
    Gaussian,
    Repeated,
    SampledGaussian,
    Sampling,
    Sequence,
    composed,
    delta,
    epsilon,
    epsilon_of_mu,
    profile,
)
from sottovoce.privacy.accounting.losses import Losses
from sottovoce.privacy.accounting.sampled import Step, discretise, multiplicities

REPLACE = NeighboringRelation.REPLACE_ONE
SAMPLINGS = [
    Sampling("poisson", 50, 5),
    Sampling("poisson", 50, 45),
    Sampling("poisson", 1000, 1),
    Sampling("replacement", 50, 5),
    Sampling("replacement", 20, 20),
    Sampling("replacement", 2, 3),
    Sampling("replacement", 1000, 1),
]
TYPICAL = 452, 45


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("sigma", [0.6, 1.0, 3.0, 20.0])
def test_the_bound_is_never_below_an_exact_pair(sampling, sigma):
    for _, P, Q in pairs(sampling, sigma):
        for eps in [0.0, 0.01, 0.1, 0.5, 1.0, 3.0, 6.0]:
            assert profile(SampledGaussian(sigma, sampling), eps) >= hockey_stick(P, Q, eps) * (1 - 1e-9) - 1e-15


def true_bound(sampling, sigma, eps):
    """B(eps) with 50 digits."""
    with mpmath.workdps(50):
        n, m = sampling.batch, sampling.rows
        q = mpmath.mpf(n) / m
        p = [1 - q, q]
        if sampling.scheme == "replacement":
            p = [mpmath.binomial(n, j) * mpmath.mpf(m - 1) ** (n - j) / mpmath.mpf(m) ** n for j in range(n + 1)]
        l, total = mpmath.log(1 + (mpmath.exp(eps) - 1) / (1 - p[0])), mpmath.mpf(0)
        for j, weight in enumerate(p[1:], 1):
            mu = j / mpmath.mpf(sigma)
            total += weight * (mpmath.ncdf(-l / mu + mu / 2) - mpmath.exp(l) * mpmath.ncdf(-l / mu - mu / 2))
        return total


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("sigma", [0.6, 3.0])
def test_one_step_reproduces_the_bound_from_above(sampling, sigma):
    event = SampledGaussian(sigma, sampling)
    for eps in [0.05, 0.7, 2.0]:
        true = true_bound(sampling, sigma, eps)
        assert true <= profile(event, eps) <= true * (1 + 1e-9) + 1e-300
        assert true <= delta(event, eps)
        if true > 1e-20:
            assert delta(event, eps) <= true * 1.002
            assert delta(event, epsilon(event, float(true) / 2)) <= float(true) / 2 * 1.002


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize("times", [3, 40])
def test_composition_is_never_below_an_exact_pair(sampling, times):
    sigma = 2.0
    event = Repeated(SampledGaussian(sigma, sampling), times)
    for _, P, Q in pairs(sampling, sigma):
        for eps in [0.0, 0.3, 1.5]:
            found = composed_delta(P, Q, times, eps, interval=1e-3, span=60.0, down=True)
            assert delta(event, eps) >= found - 1e-11


def test_the_composed_bound_is_its_own_convolution():
    """Our discretisation and tilted FFT against a plain fine one of the same losses, for Poisson."""
    gamma, sigma, times = 0.1, 2.0, 200
    y = np.linspace(-12, 14, 400_001)
    middle = (y[1:] + y[:-1]) / 2
    inner = middle / sigma - 0.5 / sigma**2
    q, p = np.diff(norm.cdf(y)), np.diff(norm.cdf(y - 1 / sigma))
    up = inner > 0
    high = np.log1p(gamma * np.expm1(inner[up]))
    mass = np.concatenate(((1 - gamma) * q[up] + gamma * p[up], q[up]))
    losses = np.concatenate((high, -high, [0.0]))
    mass = np.append(mass, 1 - mass.sum())
    event = Repeated(SampledGaussian(sigma, Sampling("poisson", 100, 10)), times)
    for eps in [0.5, 2.0, 4.0]:
        plain = compose(losses, mass, times, eps, 1e-5, 10.0, down=False)
        assert delta(event, eps) == pytest.approx(plain, rel=1e-3)
        assert delta(event, eps) >= compose(losses, mass, times, eps, 1e-5, 10.0, down=True) - 1e-11


def test_poisson_is_close_to_the_exact_pair_in_a_typical_run():
    """The half-step to an absent row is priced as a whole one: 3.4 % of epsilon in this setting."""
    sigma, times = 12.1057, 1000
    rows, batch = TYPICAL
    ours = epsilon(Repeated(SampledGaussian(sigma, Sampling("poisson", rows, batch)), times), 1e-5)
    exact = pld.from_gaussian_mechanism(
        2 * sigma, value_discretization_interval=5e-5, sampling_prob=batch / rows, neighboring_relation=REPLACE
    )
    theirs = exact.self_compose(times).get_epsilon_for_delta(1e-5)
    assert theirs < ours < 1.05 * theirs


def test_replacement_is_close_to_an_exact_pair_in_a_typical_run():
    """Within 7 % of epsilon of a pair that real data attain."""
    sigma, times, sampling = 12.4542, 1000, Sampling("replacement", *TYPICAL)
    ours = epsilon(Repeated(SampledGaussian(sigma, sampling), times), 1e-5)
    _, P, Q = pairs(sampling, sigma)[1]
    assert composed_delta(P, Q, times, ours / 1.07, 4e-6, 4.0, down=False) > 1e-5
    assert composed_delta(P, Q, times, ours, 4e-6, 4.0, down=True) < 1e-5


def test_the_export_under_replace_one_is_sound():
    event = Repeated(SampledGaussian(4.0, Sampling("poisson", 100, 10)), 100)
    theirs = PLDAccountant(REPLACE).compose(event.dp_event()).get_epsilon(1e-5)
    assert theirs >= epsilon(event, 1e-5)


@pytest.mark.parametrize("mu", [0.05, 1.0, 6.0])
@pytest.mark.parametrize("target", [1e-250, 1e-60, 1e-12, 1e-5, 0.1])
def test_the_machinery_prices_a_plain_gaussian_rightly(mu, target):
    """Twenty-five steps on the grid against the closed form, down to tiny deltas."""
    losses = Losses.of(((Step.gaussian(mu / 5), 25),), 1e-7 * target)
    _, theta = losses.quantile(log(target))
    found = losses.compose(theta, log(1e-7 * target)).epsilon(target)
    assert epsilon_of_mu(mu, target) <= found <= epsilon_of_mu(mu, target) * (1 + 1e-4)


def test_mixed_runs_compose():
    sampled, plain = SampledGaussian(4.0, Sampling("poisson", 100, 10)), Gaussian(8.0)
    mixed = Sequence((Repeated(sampled, 50), plain, Repeated(sampled, 50), Repeated(plain, 3)))
    same = Sequence((Repeated(sampled, 100), Gaussian(4.0)))
    assert epsilon(mixed, 1e-5) == pytest.approx(epsilon(same, 1e-5), rel=1e-6)
    parts = pld.from_gaussian_mechanism(8.0, sampling_prob=0.1, neighboring_relation=REPLACE).self_compose(100)
    exact = parts.compose(pld.from_gaussian_mechanism(8.0, neighboring_relation=REPLACE))
    theirs = exact.get_epsilon_for_delta(1e-5)
    assert theirs * 0.999 < epsilon(mixed, 1e-5) < 1.1 * theirs


def test_multiplicities_are_binomial():
    gamma, weights, rest, _ = multiplicities(Sampling("replacement", 50, 70), 1e-12)
    with mpmath.workdps(50):
        exact = [mpmath.binomial(70, j) * mpmath.mpf(49) ** (70 - j) / mpmath.mpf(50) ** 70 for j in range(71)]
    assert gamma == pytest.approx(float(1 - exact[0]), rel=1e-14)
    assert weights == pytest.approx([float(p) for p in exact[1 : len(weights) + 1]], rel=1e-13)
    assert float(sum(exact[len(weights) + 1 :])) <= rest <= 1e-12


def test_an_absurd_batch_is_refused():
    with pytest.raises(UnsupportedError, match="hundreds of times"):
        profile(SampledGaussian(1.0, Sampling("replacement", 2, 5000)), 1.0)


def test_the_grid_says_how_fine_it_is():
    event = Repeated(SampledGaussian(4.0, Sampling("poisson", 100, 10)), 100)
    assert "apart" in composed(event, 1e-5).words
    assert composed(event, 1e-5).delta(1.0) <= exp(-1)


def discrete_profile(masses, infinite, interval, at):
    """delta at grid point `at` of losses on a grid, with 50 digits."""
    size = len(masses) // 2
    with mpmath.workdps(50):
        h = mpmath.mpf(interval)
        above = [mpmath.mpf(float(masses[size + j])) * (1 - mpmath.exp((at - j) * h)) for j in range(at + 1, size + 1)]
        return mpmath.fsum(above) + mpmath.mpf(infinite)


@pytest.mark.parametrize("sampling", [Sampling("poisson", 50, 5), Sampling("replacement", 20, 20)], ids=str)
def test_the_grid_is_never_below_the_bound_not_even_by_rounding(sampling):
    """Thousands of steps are composed of these numbers: what each lacks would add up."""
    interval, size, sigma = 2.0**-6, 200, 6.0
    masses, infinite = discretise(Step.sampled(SampledGaussian(sigma, sampling), beyond=1e-40), interval, size)
    for at in range(0, size, 3):
        true = true_bound(sampling, sigma, mpmath.mpf(at) * interval)
        # Losses beyond the grid count in full.
        assert true <= discrete_profile(masses, infinite, interval, at) <= true * (1 + 1e-6) + infinite + 1e-12


def test_multiplicities_that_are_given_up_are_priced_as_if_they_gave_the_row_away():
    sampling, interval, size = Sampling("replacement", 20, 20), 2.0**-4, 200
    step = Step.sampled(SampledGaussian(0.7, sampling), beyond=1e-2)
    assert 1e-4 < step.beyond <= 1e-2
    masses, infinite = discretise(step, interval, size)
    assert infinite >= step.beyond
    for at in range(0, size, 20):
        assert discrete_profile(masses, infinite, interval, at) >= true_bound(sampling, 0.7, mpmath.mpf(at) * interval)
