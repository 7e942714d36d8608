"""Noise for any event: the known table, never past the target, tight, and refusals that say what to change."""

from math import inf, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.errors import InputError, PrivacyError, UnsupportedError
from sottovoce.privacy import (
    Gaussian,
    GaussianObjective,
    Laplace,
    NormLaplace,
    NormLaplaceObjective,
    PureRelease,
    Repeated,
    SampledGaussian,
    Sampling,
    Sequence,
    composed,
    delta,
    epsilon,
    noise_for,
    pure_epsilon,
    pure_noise_for,
    sigma_for,
)

D, M, LAM = 105, 1000, 1e-3
# (steps, rho n), then standard deviations of a coordinate of the noise, at gradient level, for epsilon 1, delta 1e-5
TABLE = [
    ((1, 0.5), 0.0081, 0.0078, 0.0078, 0.0206, 0.0206),
    ((10, 0.5), 0.0256, 0.0256, 0.0269, 0.205, 0.206),
    ((30, 0.5), 0.0443, 0.0445, 0.0539, 0.407, 0.622),
    ((100, 0.5), 0.0809, 0.0813, 0.1325, 0.768, 2.11),
    ((100, 0.05), 0.0817, 0.0813, 0.1701, 0.837, 2.74),
]


@pytest.mark.parametrize(("setting", "gauss", "additive", "objective", "optimal", "summed"), TABLE)
def test_the_known_table(setting, gauss, additive, objective, optimal, summed):
    steps, rho_n = setting
    kappa, sensitivity = 0.25 / (M * (LAM + 2 * rho_n)), 2 / M
    spread = sensitivity * sqrt(D + 1)

    def least(event_of):
        return noise_for(lambda x: Repeated(event_of(x), steps), 1.0, 1e-5)

    assert sensitivity * least(lambda x: GaussianObjective(x, kappa)) == pytest.approx(gauss, rel=0.01)
    assert spread * least(lambda x: NormLaplace(x, D)) == pytest.approx(additive, rel=0.01)
    one_sided = least(lambda x: NormLaplaceObjective(x, D, kappa, one_sided=True))
    assert spread * one_sided == pytest.approx(objective, rel=0.01)
    assert one_sided < least(lambda x: NormLaplaceObjective(x, D, kappa))
    each = 1 / least(lambda x: PureRelease(1 / x))
    assert spread / (each - kappa) == pytest.approx(optimal, rel=0.01)
    published = pure_noise_for(lambda x: Repeated(NormLaplaceObjective(x, D, kappa), steps), 1.0)
    assert spread * published == pytest.approx(summed, rel=0.01)


KINDS = {
    "Laplace": Laplace,
    "NormLaplace": lambda x: NormLaplace(x, 40),
    "GaussianObjective": lambda x: GaussianObjective(x, 1e-3),
    "NormLaplaceObjective": lambda x: NormLaplaceObjective(x, 40, 1e-4),
    "mixed": lambda x: Sequence((Gaussian(x), NormLaplace(x, 9), GaussianObjective(2 * x, 1e-3))),
}


@settings(max_examples=20)
@given(st.sampled_from(list(KINDS)), st.floats(0.1, 20), st.sampled_from([1e-10, 1e-5, 1e-2]), st.integers(1, 50))
def test_never_past_the_target_and_tight(kind, target, goal, steps):
    def event_of(x):
        return Repeated(KINDS[kind](x), steps)

    x = noise_for(event_of, target, goal)
    assert epsilon(event_of(x), goal) <= target
    assert epsilon(event_of(x * (1 - 1e-6)), goal) > target


@settings(max_examples=25)
@given(st.sampled_from(list(KINDS)), st.floats(0.3, 200), st.integers(1, 300), st.sampled_from([1e-9, 1e-5, 1e-2]))
def test_prices_move_the_right_way(kind, x, steps, goal):
    def price(x=x, steps=steps, goal=goal):
        return epsilon(Repeated(KINDS[kind](x), steps), goal)

    here, slack = price(), 1 + 1e-8
    assert price(x=1.1 * x) <= here * slack + 1e-9
    assert price(steps=steps + 1) * slack + 1e-9 >= here
    assert price(goal=goal / 2) * slack + 1e-9 >= here
    assert delta(Repeated(KINDS[kind](x), steps), here) <= goal * (1 + 1e-6)


@given(st.floats(0.5, 100), st.floats(0, 2), st.floats(0, 2), st.sampled_from([1e-9, 1e-5, 1e-2]))
@settings(max_examples=25)
def test_more_curvature_costs_more(x, one, other, goal):
    low, high = sorted((one, other))
    for kind in (lambda k: GaussianObjective(x, k), lambda k: NormLaplaceObjective(x, 5, k)):
        assert epsilon(Repeated(kind(low), 3), goal) <= epsilon(Repeated(kind(high), 3), goal) * (1 + 1e-8) + 1e-9


def test_one_step_less_is_cheaper_than_mixing_in_another_kind():
    both = Sequence((Repeated(NormLaplace(3.0, 40), 5), Repeated(GaussianObjective(9.0, 1e-3), 5)))
    assert epsilon(Repeated(NormLaplace(3.0, 40), 5), 1e-5) < epsilon(both, 1e-5)
    assert epsilon(Repeated(GaussianObjective(9.0, 1e-3), 5), 1e-5) < epsilon(both, 1e-5)


def test_gaussians_need_what_sigma_for_says():
    assert noise_for(lambda x: Repeated(Gaussian(x), 30), 1.0, 1e-5) == pytest.approx(
        sigma_for(1.0, 1e-5, 30), rel=1e-6
    )


def test_the_published_noise_solves_the_sum():
    x = pure_noise_for(lambda x: Repeated(NormLaplaceObjective(x, 9, 0.01), 20), 2.0)
    assert pure_epsilon(Repeated(NormLaplaceObjective(x, 9, 0.01), 20)) <= 2.0
    assert x == pytest.approx(1 / (0.1 - 0.00995033), rel=2e-6)


def test_a_jacobian_beyond_the_budget_is_refused():
    """100 steps of ln(1.05) are 4.88: no noise buys that back."""
    with pytest.raises(PrivacyError, match=r"at least 4\.879.*kappa=0\.05.*larger rho \* degree or lam"):
        pure_noise_for(lambda x: Repeated(NormLaplaceObjective(x, 9, 0.05), 100), 1.0)
    with pytest.raises(PrivacyError, match=r"delta=1e-05.*kappa=0\.5.*larger rho \* degree or lam"):
        noise_for(lambda x: Repeated(GaussianObjective(x, 0.5), 100), 1.0, 1e-5)


def test_what_is_not_pure_is_refused():
    with pytest.raises(PrivacyError, match="no such guarantee at any noise"):
        pure_noise_for(lambda x: Sequence((Laplace(x), Gaussian(x))), 1.0)


def test_an_event_that_ignores_its_noise_is_refused():
    with pytest.raises(PrivacyError, match="price falls with its noise"):
        noise_for(lambda _: Laplace(10.0), 1.0, 1e-5)
    with pytest.raises(PrivacyError, match="fewer releases"):
        noise_for(lambda _: Repeated(Laplace(1.0), 10), 0.5, 1e-5)


@pytest.mark.parametrize("target", [0.0, -1.0, inf])
def test_a_bad_target_is_refused(target):
    with pytest.raises(InputError, match="epsilon to be positive and finite"):
        noise_for(Laplace, target, 1e-5)
    with pytest.raises(InputError, match="epsilon to be positive and finite"):
        pure_noise_for(Laplace, target)
    with pytest.raises(InputError, match="delta strictly between"):
        noise_for(Laplace, 1.0, 0.0)


def test_sampled_steps_do_not_mix():
    sampled = SampledGaussian(3.0, Sampling("poisson", 100, 10))
    for other in (Laplace(3.0), PureRelease(0.1), GaussianObjective(3.0, 0.1), NormLaplace(1.0, 3)):
        event = Sequence((sampled, other))
        with pytest.raises(UnsupportedError, match="sampled Gaussian steps together with"):
            epsilon(event, 1e-5)
        with pytest.raises(UnsupportedError, match="sampled Gaussian steps together with"):
            delta(event, 1.0)
        with pytest.raises(UnsupportedError, match="Expected only Gaussian and SampledGaussian"):
            composed(event, 1e-5)
    full = SampledGaussian(3.0, Sampling("poisson", 10, 10))
    plain = epsilon(Sequence((Gaussian(3.0), Laplace(3.0))), 1e-5)
    assert epsilon(Sequence((full, Laplace(3.0))), 1e-5) == pytest.approx(plain, rel=1e-12)
