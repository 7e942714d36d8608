"""Pure releases and i.i.d. Laplace noise against brute force and dp-accounting."""

from itertools import product
from math import exp, inf, log

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant

from sottovoce.privacy import (
    Gaussian,
    GaussianObjective,
    Laplace,
    NonPrivate,
    NormLaplace,
    NormLaplaceObjective,
    PureRelease,
    Repeated,
    Sequence,
    delta,
    epsilon,
    pure_epsilon,
)
from sottovoce.privacy.accounting.pure import optimal_delta, optimal_epsilon
from sottovoce.privacy.accounting.renyi import leaf_curve

REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE


def test_the_pure_total():
    event = Sequence(
        (
            PureRelease(0.5),
            Repeated(Laplace(4.0), 2),
            NormLaplace(10.0, 7),
            Repeated(NormLaplaceObjective(5.0, 3, exp(0.1) - 1), 2),
        )
    )
    assert pure_epsilon(event) == pytest.approx(0.5 + 0.5 + 0.1 + 0.6)
    assert delta(event, pure_epsilon(event)) == 0
    assert epsilon(event, 1e-300) <= pure_epsilon(event)
    for other in (Gaussian(1.0), GaussianObjective(1.0, 0.1), NonPrivate()):
        assert pure_epsilon(Sequence((event, other))) == inf
    assert pure_epsilon(Repeated(Gaussian(1.0), 0)) == 0


def true_optimal_delta(each, times, eps):
    """The formula of Kairouz, Oh & Viswanath with 60 digits."""
    with mpmath.workdps(60):
        e, eps = mpmath.mpf(each), mpmath.mpf(eps)
        terms = [
            mpmath.binomial(times, i) * max(mpmath.exp((times - i) * e) - mpmath.exp(eps + i * e), 0)
            for i in range(times + 1)
        ]
        return mpmath.fsum(terms) / (1 + mpmath.exp(e)) ** times


@pytest.mark.parametrize("times", [1, 3, 10, 41])
@pytest.mark.parametrize("each", [1e-3, 0.1, 1 / 3, 0.7, 2.3])
def test_the_optimal_delta_is_never_below_the_formula_even_a_hair_from_a_loss(each, times):
    """Just below a loss that a composition can have, its distance from epsilon is all rounding."""
    for wrong in range((times + 1) // 2):
        loss = (times - 2 * wrong) * each
        for eps in (loss * (1 - 1e-9), loss * (1 - 3e-16), np.nextafter(loss, 0), loss, loss * (1 + 1e-15), 0.9 * loss):
            found, true = optimal_delta(each, times, float(eps)), true_optimal_delta(each, times, float(eps))
            assert found >= true
            assert found <= true * (1 + 1e-9) + 1e-12


def response_event(each):
    return dp_accounting.dp_event.RandomizedResponseDpEvent(2 / (1 + exp(each)), 2)


def response(each, times, eps):
    """delta of randomised responses by listing all answers."""
    p, total = exp(each) / (1 + exp(each)), 0.0
    for answers in product([True, False], repeat=times):
        right = sum(answers)
        mass, other = (p**a * (1 - p) ** b for a, b in [(right, times - right), (times - right, right)])
        total += max(mass - exp(eps) * other, 0.0)
    return total


@pytest.mark.parametrize("each", [0.01, 0.3, 2.0])
@pytest.mark.parametrize("times", [1, 2, 9])
def test_optimal_composition_lists_all_answers(each, times):
    for share in (0.0, 0.2, 0.5, 0.9):
        eps = share * each * times
        true = response(each, times, eps)
        assert optimal_delta(each, times, eps) == pytest.approx(true, rel=1e-9, abs=1e-15)
        if true > 1e-12:
            assert optimal_epsilon(each, times, true) == pytest.approx(eps, rel=1e-9, abs=1e-9)


def test_unequal_pure_costs_are_never_priced_below_the_truth():
    costs = [0.2, 0.2, 0.2, 0.35, 0.35]
    event = Sequence((Repeated(PureRelease(0.2), 3), Repeated(PureRelease(0.35), 2)))
    for eps in (0.0, 0.3, 0.8, 1.2):
        true = 0.0
        for signs in product([1, -1], repeat=5):
            loss = sum(sign * cost for sign, cost in zip(signs, costs, strict=True))
            mass = np.prod([1 / (1 + exp(-sign * cost)) for sign, cost in zip(signs, costs, strict=True)])
            true += mass * max(0.0, 1 - exp(eps - loss))
        assert true <= delta(event, eps) <= 2.5 * true
        assert eps <= epsilon(event, true) <= pure_epsilon(event)


def test_very_many_pure_releases_still_have_a_price():
    assert epsilon(Repeated(PureRelease(1e-4), 10**7), 1e-5) < 2 < pure_epsilon(Repeated(PureRelease(1e-4), 10**7))


@pytest.mark.parametrize(("each", "times"), [(0.005, 2000), (0.1, 300), (3.0, 20)])
def test_optimal_composition_is_never_below_many_digits(each, times):
    with mpmath.workdps(50):
        e = mpmath.mpf(each)
        for share in (0.01, 0.05, 0.4):
            eps = share * each * times
            true = (
                mpmath.fsum(
                    mpmath.binomial(times, i) * (mpmath.exp((times - i) * e) - mpmath.exp(mpmath.mpf(eps) + i * e))
                    for i in range(times + 1)
                    if (times - 2 * i) * e > eps
                )
                / (1 + mpmath.exp(e)) ** times
            )
            assert true <= optimal_delta(each, times, eps) <= true * (1 + 1e-7) + 1e-300


@pytest.mark.parametrize("each", [0.05, 0.5, 3.0])
def test_any_pure_release_is_a_response(each):
    event, lie = Repeated(PureRelease(each), 5), 2 / (1 + exp(each))
    theirs = pld.from_randomized_response(lie, 2, neighboring_relation=REPLACE).self_compose(5)
    assert epsilon(event, 1e-3) == pytest.approx(theirs.get_epsilon_for_delta(1e-3), rel=1e-3, abs=1e-3)
    orders = np.array([1.5, 4.0, 20.0])
    accountant = RdpAccountant(orders=list(orders), neighboring_relation=REPLACE).compose(response_event(each))
    ours = leaf_curve(PureRelease(each), orders - 1) / (orders - 1)
    assert ours == pytest.approx(accountant._rdp, rel=1e-9)


def test_why_pure_releases_are_not_exported_as_responses():
    """Their PLD accountant forgets how often a response is repeated. Fixed if it ever says five times as much."""
    once = PLDAccountant(REPLACE).compose(response_event(1.0)).get_epsilon(1e-3)
    often = PLDAccountant(REPLACE).compose(response_event(1.0), 5).get_epsilon(1e-3)
    assert often == once or often > 4 * once
    with pytest.raises(dp_accounting.UnsupportedEventError):
        PLDAccountant(REPLACE).compose(PureRelease(1.0).dp_event())


@pytest.mark.parametrize("scale", [0.3, 2.0, 50.0])
def test_laplace_has_googles_curve(scale):
    orders = np.array([1.1, 2.0, 7.5, 64.0, 500.0])
    theirs = RdpAccountant(orders=list(orders)).compose(Laplace(scale).dp_event())._rdp
    assert leaf_curve(Laplace(scale), orders - 1) / (orders - 1) == pytest.approx(theirs, rel=1e-9, abs=2e-11)


@pytest.mark.parametrize(("scale", "times"), [(1.0, 1), (2.0, 5), (20.0, 50), (100.0, 1000)])
def test_laplace_is_a_little_above_googles_losses(scale, times):
    event = Repeated(Laplace(scale), times)
    theirs = PLDAccountant().compose(event.dp_event()).get_epsilon(1e-5)
    assert theirs * (1 - 1e-3) - 1e-3 <= epsilon(event, 1e-5) <= 1.15 * theirs
    assert epsilon(event, 1e-5) <= RdpAccountant().compose(event.dp_event()).get_epsilon(1e-5) * (1 + 1e-9)


def test_a_concentrated_l1_shift_is_the_worst():
    """The curve is superadditive, so splitting a shift over coordinates never costs more."""
    lam = np.geomspace(1e-3, 1e3, 30)
    for share in (0.01, 0.3, 0.5):
        parts = leaf_curve(Laplace(1 / (2.0 * share)), lam) + leaf_curve(Laplace(1 / (2.0 * (1 - share))), lam)
        assert np.all(parts <= leaf_curve(Laplace(0.5), lam) + 1e-11)


def test_pure_on_top_of_gaussians_is_priced_by_the_better_way():
    """A tiny pure release is added to the exact price; many are better composed by Renyi's bound."""
    plain = Repeated(Gaussian(20.0), 10)
    tiny = epsilon(Sequence((plain, PureRelease(1e-4))), 1e-5)
    assert tiny == pytest.approx(epsilon(plain, 1e-5) + 1e-4, rel=1e-12)
    many = epsilon(Sequence((plain, Repeated(PureRelease(0.05), 100))), 1e-5)
    assert many < 0.6 * (epsilon(plain, 1e-5) + 5.0)
    pieces = Sequence((plain, Repeated(Laplace(20.0), 100))).dp_event()
    theirs = PLDAccountant().compose(pieces).get_epsilon(1e-5)
    ours = epsilon(Sequence((plain, Repeated(Laplace(20.0), 100))), 1e-5)
    assert theirs - 1e-3 <= ours <= 1.15 * theirs


def test_delta_and_epsilon_belong_together():
    for event in (
        Repeated(Laplace(20.0), 50),
        Repeated(NormLaplace(2.0, 30), 10),
        Repeated(GaussianObjective(15.0, 1e-3), 20),
        Repeated(NormLaplaceObjective(2.0, 30, 1e-3), 10),
        Sequence((Repeated(Gaussian(20.0), 10), Repeated(NormLaplace(2.0, 30), 10), PureRelease(0.01))),
    ):
        for target in (1e-9, 1e-5, 1e-2):
            eps = epsilon(event, target)
            assert delta(event, eps) == pytest.approx(target, rel=1e-6)
            assert log(delta(event, 1.1 * eps)) < log(target)
