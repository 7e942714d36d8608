"""Calibration never overshoots, is tight, and refuses what would break the promise."""

from math import log, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.errors import InputError, PrivacyError, UnsupportedError
from sottovoce.privacy import Gaussian, Repeated, SampledGaussian, Sampling, epsilon, sigma_for, steps_for

SAMPLINGS = [Sampling("poisson", 452, 45), Sampling("replacement", 452, 45), Sampling("replacement", 20, 20)]


def test_the_known_values():
    assert sigma_for(1.0, 1e-5, 1) == pytest.approx(3.7306, abs=5e-5)
    assert sigma_for(1.0, 1e-5, 1, "paper") == pytest.approx(4.8448, abs=5e-5)


@given(st.floats(0.01, 100), st.sampled_from([1e-12, 1e-5, 0.01]), st.integers(1, 10**6))
def test_exact_never_overshoots_and_is_tight(target, delta, steps):
    sigma = sigma_for(target, delta, steps)
    assert epsilon(Repeated(Gaussian(sigma), steps), delta) <= target
    assert epsilon(Repeated(Gaussian(sigma * (1 - 1e-6)), steps), delta) > target


@given(st.floats(0.01, 100), st.sampled_from([1e-12, 1e-5, 0.01]), st.integers(1, 10**6))
def test_moments_solves_its_line_and_is_safe(target, delta, steps):
    sigma = sigma_for(target, delta, steps, "moments")
    c = steps / (2 * sigma**2)
    assert c + 2 * sqrt(c * log(1 / delta)) == pytest.approx(target, rel=1e-12)
    assert sigma >= sigma_for(target, delta, steps)


def test_the_paper_is_refused_where_it_gives_too_little_noise():
    with pytest.raises(PrivacyError, match=r"really gives epsilon=.*Use calibration='exact'"):
        sigma_for(20.0, 1e-5, 10, "paper")


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize(("target", "steps"), [(1.0, 1000), (0.3, 10), (6.0, 100)])
def test_sampled_never_overshoots_and_is_tight(sampling, target, steps):
    sigma = sigma_for(target, 1e-5, steps, sampling=sampling)
    assert epsilon(Repeated(SampledGaussian(sigma, sampling), steps), 1e-5) <= target
    assert epsilon(Repeated(SampledGaussian(sigma * (1 - 1e-4), sampling), steps), 1e-5) > target


@pytest.mark.parametrize("calibration", ["paper", "moments"])
def test_formulas_without_sampling_refuse_it(calibration):
    with pytest.raises(UnsupportedError, match="calibration='exact' for sampled steps"):
        sigma_for(1.0, 1e-5, 10, calibration, SAMPLINGS[0])


@pytest.mark.parametrize("sampling", [None, *SAMPLINGS], ids=str)
@pytest.mark.parametrize("sigma", [3.0, 9.7])
def test_steps_for_stops_at_the_last_step_within(sampling, sigma):
    event = Gaussian(sigma) if sampling is None else SampledGaussian(sigma, sampling)
    steps = steps_for(2.0, 1e-5, sigma, sampling)
    assert epsilon(Repeated(event, steps), 1e-5) <= 2.0
    assert epsilon(Repeated(event, steps + 1), 1e-5) > 2.0


def test_steps_for_returns_to_what_sigma_was_made_for():
    assert steps_for(1.0, 1e-5, sigma_for(1.0, 1e-5, 1000)) == 1000
    assert steps_for(0.01, 1e-5, 0.5) == 0


@pytest.mark.parametrize("target", [0.0, -1.0, float("inf"), float("nan")])
def test_a_bad_target_is_refused(target):
    with pytest.raises(InputError, match="epsilon to be positive and finite"):
        sigma_for(target, 1e-5, 1)
    with pytest.raises(InputError, match="epsilon to be positive and finite"):
        steps_for(target, 1e-5, 1.0)


def test_other_bad_arguments_are_refused():
    with pytest.raises(InputError, match="steps to be a whole number"):
        sigma_for(1.0, 1e-5, 0)
    with pytest.raises(InputError, match="calibration to be one of"):
        sigma_for(1.0, 1e-5, 1, "guess")
    with pytest.raises(InputError, match="delta strictly between"):
        sigma_for(1.0, 0.0, 1)
