"""Searches: the law of K, and the price of the best of K runs against listed output laws and dp-accounting."""

from collections import Counter
from math import exp, inf, log
from random import Random

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privacy.pairs import pairs
from sottovoce.errors import InputError, UnsupportedError
from sottovoce.privacy import (
    Gaussian,
    GaussianObjective,
    Laplace,
    NegativeBinomialRuns,
    NonPrivate,
    PoissonRuns,
    PureRelease,
    RepeatAndSelect,
    Repeated,
    SampledGaussian,
    Sampling,
    Sequence,
    delta,
    delta_of_mu,
    epsilon,
    gamma_for,
    noise_for,
    pure_epsilon,
    repetitions,
    scored,
    search_epsilon,
    sigma_for,
)
from sottovoce.privacy.accounting.renyi import leaf_curve, renyi_epsilon
from sottovoce.privacy.accounting.selection import ProfileTable

LAWS = [
    NegativeBinomialRuns(0.0, 0.05),
    NegativeBinomialRuns(1.0, 0.1),
    NegativeBinomialRuns(2.5, 0.2),
    NegativeBinomialRuns(-0.5, 0.01),
    PoissonRuns(6.0),
    PoissonRuns(0.7),
]


def masses(runs):
    """P(K = k) for k = 0, 1, ..., from scipy or, for eta < 0, from the definition."""
    k = np.arange(0 if isinstance(runs, PoissonRuns) else 1, 1500)
    match runs:
        case PoissonRuns(rate=rate):
            return stats.poisson.pmf(k, rate)
        case NegativeBinomialRuns(eta=0.0, gamma=gamma):
            found = stats.logser.pmf(k, 1 - gamma)
        case NegativeBinomialRuns(eta=1.0, gamma=gamma):
            found = stats.geom.pmf(k, gamma)
        case NegativeBinomialRuns(eta=eta, gamma=gamma) if eta > 0:
            found = stats.nbinom.pmf(k, eta, gamma) / stats.nbinom.sf(0, eta, gamma)
        case NegativeBinomialRuns(eta=eta, gamma=gamma):
            found = np.cumprod(np.append(1.0, (1 - gamma) * (k[:-1] + eta) / (k[:-1] + 1)))
            found /= found.sum()
    return np.append(0.0, found)


@pytest.mark.parametrize("runs", LAWS, ids=str)
def test_the_law_of_k(runs):
    p = masses(runs)
    assert p.sum() == pytest.approx(1, abs=1e-6)
    assert runs.mean == pytest.approx(np.dot(p, np.arange(len(p))), rel=1e-3)
    random, n = Random(5), 4000
    drawn = np.bincount([repetitions(runs, random) for _ in range(n)], minlength=len(p))
    common = np.flatnonzero(n * p > 10)
    seen = np.append(drawn[common], n - drawn[common].sum())
    assert stats.chisquare(seen, n * np.append(p[common], 1 - p[common].sum())).pvalue > 1e-4


def test_a_poisson_number_of_very_many_runs_is_drawn_in_parts():
    random = Random(3)
    drawn = [repetitions(PoissonRuns(2500.0), random) for _ in range(200)]
    assert abs(np.mean(drawn) - 2500) < 5 * 50 / 200**0.5
    assert 35 < np.std(drawn) < 65


def test_k_comes_from_the_system_unless_a_test_brings_its_own():
    assert len({repetitions(NegativeBinomialRuns(1.0, 0.001)) for _ in range(20)}) > 5
    assert {repetitions(NegativeBinomialRuns(1.0, 1.0)) for _ in range(5)} == {1}
    assert repetitions(LAWS[1], Random(1)) == repetitions(LAWS[1], Random(1))


@given(st.floats(1, 1e5), st.floats(-0.9, 20))
def test_gamma_is_found_for_a_mean(mean, eta):
    assert NegativeBinomialRuns(eta, gamma_for(mean, eta)).mean == pytest.approx(mean, rel=1e-9)


# -- listed output laws ------------------------------------------------------------------------------------------------


def best(masses_of_one, p):
    """The law of the best of K runs, outcomes in rising order of their scores: the sum over all k."""
    below = np.append(0.0, np.cumsum(masses_of_one))
    p = p[: np.flatnonzero(np.cumsum(p[::-1])[::-1] > 1e-13)[-1] + 1]
    total, power = np.zeros_like(below), np.ones_like(below)
    for mass in p:
        total += mass * power
        power = power * below
    return np.diff(total)


def hockey_stick(P, Q, eps):
    return float(np.sum(np.maximum(P - exp(eps) * Q, 0.0)))


def attained(found, target, high):
    """The least epsilon at which none of these pairs of laws is above the target."""
    low = 0.0
    for _ in range(40):
        middle = (low + high) / 2
        worst = max(hockey_stick(P, Q, middle) for P, Q in found)
        low, high = (middle, high) if worst > target else (low, middle)
    return high


def gaussian_cells(sigma, cells=600):
    """(P, Q): N(1/sigma, 1) and N(0, 1) on cells. The loss rises from cell to cell."""
    edges = np.concatenate(([-np.inf], np.linspace(-7, 8, cells - 1), [np.inf]))
    return tuple(
        np.where(edges[:-1] > m, -np.diff(stats.norm.sf(edges, m)), np.diff(stats.norm.cdf(edges, m)))
        for m in (1 / sigma, 0.0)
    )


def best_pairs(P, Q, runs):
    """Pairs of output laws under mean scores, in both directions.

    The cells that the row makes rarest score best, next those that it makes commonest. Such scores are allowed.
    """
    p, n = masses(runs), len(P)
    for A, B in ((P, Q), (Q[::-1], P[::-1])):
        for k in range(0, n, n // 20):
            order = np.concatenate((np.arange(k, n), np.arange(k)[::-1]))
            yield best(A[order], p), best(B[order], p)


@pytest.mark.parametrize(("sigma", "runs"), [(1.0 if k % 2 else 5.0, runs) for k, runs in enumerate(LAWS)], ids=str)
def test_the_price_holds_for_mean_scores_and_is_nearly_attained(sigma, runs):
    search = RepeatAndSelect(Gaussian(sigma), runs)
    found = list(best_pairs(*gaussian_cells(sigma), runs))
    for target, share in ((1e-4, 0.85), (1e-2, 0.65)):
        claimed = epsilon(search, target)
        assert share * claimed <= attained(found, target, 2 * claimed) <= claimed
    for eps in (0.0, 0.3):
        assert max(hockey_stick(P, Q, eps) for P, Q in found) <= delta(search, eps)


@settings(max_examples=25)
@given(st.sampled_from(LAWS), st.floats(0.01, 3), st.integers(2, 12), st.integers(0, 2**32))
def test_no_pure_mechanism_and_no_score_beats_the_price(runs, each, outcomes, seed):
    draw = np.random.default_rng(seed)
    Q = draw.dirichlet(np.full(outcomes, 0.5))
    P = Q * np.exp(draw.choice([-0.5, 0.5, draw.uniform(-0.5, 0.5)], outcomes) * each)
    P /= P.sum()  # the ratio is now within e^+-each
    search, p = RepeatAndSelect(PureRelease(each), runs), masses(runs)
    A, B = best(P, p), best(Q, p)
    for eps in (0.0, 0.7 * each, 1.8 * each):
        assert max(hockey_stick(A, B, eps), hockey_stick(B, A, eps)) <= delta(search, eps) + 1e-9
    ratios = np.abs(np.log(A[Q > 1e-6] / B[Q > 1e-6]))
    assert np.max(ratios, initial=0) <= pure_epsilon(search) + 1e-6


def test_pure_costs_of_searches():
    """(2 + eta) e (Papernot & Steinke 2021, Corollary 3), e + rate TV for Poisson."""
    one = Sequence((Laplace(4.0), PureRelease(0.05)))
    assert pure_epsilon(RepeatAndSelect(one, NegativeBinomialRuns(1.0, 0.01))) == pytest.approx(3 * 0.3)
    assert pure_epsilon(RepeatAndSelect(one, NegativeBinomialRuns(0.0, 0.01))) == pytest.approx(2 * 0.3)
    assert pure_epsilon(RepeatAndSelect(one, PoissonRuns(2.0))) == pytest.approx(0.3 + 2 * np.tanh(0.15))
    assert pure_epsilon(RepeatAndSelect(Gaussian(1.0), LAWS[1])) == inf
    search = RepeatAndSelect(one, NegativeBinomialRuns(1.0, 0.01))
    assert delta(search, 0.91) == 0
    assert epsilon(Repeated(search, 3), 1e-9) <= 2.7 * (1 + 1e-9)


@pytest.mark.parametrize("scheme", ["poisson", "replacement"])
@pytest.mark.parametrize("runs", [LAWS[1], LAWS[4]], ids=str)
def test_a_search_among_sampled_runs(scheme, runs):
    step = SampledGaussian(2.0, Sampling(scheme, 20, 8))
    search, target = RepeatAndSelect(step, runs), 1e-4
    claimed, worst = epsilon(search, target), 0.0
    for _, *laws in pairs(step.sampling, 2.0):
        P, Q = (np.add.reduceat(law, np.arange(0, len(law), 400)) for law in laws)
        order = np.argsort((P + 1e-300) / (Q + 1e-300))
        worst = max(worst, attained(list(best_pairs(P[order], Q[order], runs)), target, 2 * claimed))
    assert 0.35 * claimed <= worst <= claimed  # the bound on one sampled step is loose itself, see its proof
    assert delta(search, claimed) == pytest.approx(target, rel=0.01)


def product_delta(one, other, eps):
    (P, Q), (R, S) = one, other
    return float(np.sum(np.maximum(np.outer(P, R) - exp(eps) * np.outer(Q, S), 0.0)))


@pytest.mark.parametrize("runs", [LAWS[1], LAWS[4]], ids=str)
def test_searches_compose(runs):
    """With another search, and with a plain fit, against all pairs of outcomes."""
    search = RepeatAndSelect(Gaussian(3.0), runs)
    one = max(best_pairs(*gaussian_cells(3.0), runs), key=lambda pair: hockey_stick(*pair, epsilon(search, 1e-3)))
    for event, other in [
        (Repeated(search, 2), one),
        (Sequence((search, Gaussian(1.5))), gaussian_cells(1.5)),
    ]:
        claimed = epsilon(event, 1e-3)
        assert product_delta(one, other, claimed) <= 1e-3 < product_delta(one, other, 0.75 * claimed)
        assert delta(event, claimed) == pytest.approx(1e-3, rel=0.01)
        assert claimed < epsilon(search, 5e-4) + epsilon(search if other is one else Gaussian(1.5), 5e-4)


def test_searches_go_with_everything():
    search = RepeatAndSelect(Gaussian(6.0), LAWS[1])
    sampled = Repeated(SampledGaussian(2.0, Sampling("poisson", 1000, 50)), 30)
    alone = epsilon(search, 1e-5)
    for other in (sampled, Repeated(GaussianObjective(20.0, 1e-3), 3), Laplace(8.0), PureRelease(0.1)):
        together = epsilon(Sequence((search, other)), 1e-5)
        assert max(alone, epsilon(other, 1e-5)) < together < epsilon(search, 5e-6) + epsilon(other, 5e-6)
    inside = RepeatAndSelect(sampled, LAWS[1])
    assert epsilon(inside, 1e-5) < epsilon(Sequence((inside, PureRelease(0.1))), 1e-5)
    with pytest.raises(UnsupportedError, match="sampled Gaussian steps together with"):
        epsilon(Sequence((search, sampled, Laplace(8.0))), 1e-5)


def test_a_search_within_a_search():
    inner = RepeatAndSelect(Gaussian(6.0), LAWS[1])
    outer = RepeatAndSelect(inner, LAWS[0])
    P, Q = next(pair for k, pair in enumerate(best_pairs(*gaussian_cells(6.0), LAWS[1])) if k == 9)
    order = np.argsort(P / Q)
    claimed = epsilon(outer, 1e-4)
    assert attained(list(best_pairs(P[order], Q[order], LAWS[0])), 1e-4, 2 * claimed) <= claimed
    assert epsilon(inner, 1e-4) < claimed < pure_epsilon(outer)


# -- dp-accounting -----------------------------------------------------------------------------------------------------

ORDERS = 1 + np.geomspace(0.05, 2000, 120)
KNOWN = [runs for runs in LAWS if getattr(runs, "eta", 0) >= 0 and runs.mean >= 1]


@pytest.mark.parametrize("runs", KNOWN, ids=str)
@pytest.mark.parametrize("event", [Gaussian(0.8), Repeated(Gaussian(20.0), 10), Laplace(3.0)], ids=str)
def test_the_renyi_curve_is_googles(event, runs):
    """Theirs, if negative binomial, is made to rise with the order. Ours is minimised over more than these orders."""
    search = RepeatAndSelect(event, runs)
    google = RdpAccountant(orders=list(ORDERS)).compose(search.dp_event())
    ours = leaf_curve(search, ORDERS - 1) / (ORDERS - 1)
    if isinstance(runs, NegativeBinomialRuns):
        ours = np.minimum.accumulate(ours[::-1])[::-1]
        assert np.all(ours <= google._rdp * (1 + 1e-9))
    assert ours == pytest.approx(google._rdp, rel=2e-3)
    assert renyi_epsilon(Counter({search: 1}), 1e-6) == pytest.approx(google.get_epsilon(1e-6), rel=1e-2)


@pytest.mark.parametrize(("sigma", "runs"), list(zip((0.8, 6.0, 1.5, 3.0), KNOWN, strict=True)), ids=str)
def test_the_price_is_below_googles(sigma, runs):
    search = RepeatAndSelect(Gaussian(sigma), runs)
    google = RdpAccountant(orders=list(ORDERS)).compose(search.dp_event()).get_epsilon(1e-5)
    assert epsilon(Gaussian(sigma), 1e-5) < epsilon(search, 1e-5) < 0.95 * google
    both = Sequence((search, Repeated(Gaussian(4.0), 3)))
    assert epsilon(both, 1e-5) < 0.97 * RdpAccountant(orders=list(ORDERS)).compose(both.dp_event()).get_epsilon(1e-5)


def test_what_google_cannot_say_is_exported_as_unsupported():
    for runs in (NegativeBinomialRuns(-0.5, 0.1), PoissonRuns(0.7)):
        assert RepeatAndSelect(Gaussian(1.0), runs).dp_event() == dp_accounting.UnsupportedDpEvent()


# -- how prices move ---------------------------------------------------------------------------------------------------


def test_one_run_is_no_search():
    once = RepeatAndSelect(Gaussian(2.0), NegativeBinomialRuns(1.0, gamma_for(1.0, 1.0)))
    assert epsilon(once, 1e-5) == epsilon(Gaussian(2.0), 1e-5)
    nearly = RepeatAndSelect(Gaussian(2.0), NegativeBinomialRuns(1.0, 1 - 1e-6))
    assert epsilon(nearly, 1e-5) == pytest.approx(epsilon(once, 1e-5), rel=1e-3)
    assert epsilon(nearly, 1e-5) >= epsilon(once, 1e-5)


def test_nothing_costs_nothing_and_no_noise_costs_everything():
    for runs in (LAWS[1], LAWS[4]):
        assert epsilon(RepeatAndSelect(Repeated(Gaussian(1.0), 0), runs), 1e-5) == 0
        assert epsilon(RepeatAndSelect(Sequence((Gaussian(1.0), NonPrivate())), runs), 1e-5) == inf
        assert delta(RepeatAndSelect(NonPrivate(), runs), 3.0) == 1


@settings(max_examples=12)
@given(st.floats(0.5, 50), st.floats(1.1, 200), st.floats(-0.5, 5), st.sampled_from([1e-9, 1e-5, 1e-2]))
def test_prices_move_the_right_way(sigma, mean, eta, target):
    here = search_epsilon(Gaussian(sigma), target, mean, eta)
    search = RepeatAndSelect(Gaussian(sigma), NegativeBinomialRuns(eta, gamma_for(mean, eta)))
    assert epsilon(Gaussian(sigma), target) <= here
    assert search_epsilon(Gaussian(1.1 * sigma), target, mean, eta) <= here
    assert search_epsilon(Gaussian(sigma), target, 1.1 * mean, eta) >= here * (1 - 1e-9)
    assert search_epsilon(Gaussian(sigma), target / 2, mean, eta) >= here
    assert delta(search, here) <= target * (1 + 1e-9)


@pytest.mark.parametrize(
    ("mean", "shown", "eta_0", "eta_1", "poisson"),
    [(10, 1.771, 0.775, 0.835, 1.041), (20, 2.611, 0.841, 0.930, 1.467), (100, 6.617, 0.977, 1.138, 3.362)],
)
def test_many_runs_cost_far_less_than_all_of_them(mean, shown, eta_0, eta_1, poisson):
    """The numbers of docs/how-to/budget.md and docs/proofs/selection.md."""
    fit = Repeated(Gaussian(sigma_for(0.5, 1e-5, 100)), 100)
    assert epsilon(Repeated(fit, mean), 1e-5) == pytest.approx(shown, abs=1e-3)
    assert search_epsilon(fit, 1e-5, mean, 0.0) == pytest.approx(eta_0, abs=1e-3)
    assert search_epsilon(fit, 1e-5, mean, 1.0) == pytest.approx(eta_1, abs=1e-3)
    assert epsilon(RepeatAndSelect(fit, PoissonRuns(mean)), 1e-5) == pytest.approx(poisson, rel=1e-2)


def test_whoever_learns_k_learns_more():
    """Told together with K, the best of K breaks the price. That is why K, and how long a search took, are secret."""
    runs, sigma = NegativeBinomialRuns(0.0, 0.002), 1.0
    claimed = epsilon(RepeatAndSelect(Gaussian(sigma), runs), 1e-3)
    P, Q = gaussian_cells(sigma)
    order = np.concatenate((np.arange(200, len(P)), np.arange(200)[::-1]))
    P, Q = np.cumsum(P[order]), np.cumsum(Q[order])
    told = 0.0
    for k, mass in enumerate(masses(runs)):
        told += mass * hockey_stick(np.diff(P**k, prepend=0.0), np.diff(Q**k, prepend=0.0), claimed)
    assert told > 3e-3


def test_noise_for_a_whole_search():
    runs = NegativeBinomialRuns(0.0, gamma_for(20, 0.0))
    sigma = noise_for(lambda s: RepeatAndSelect(scored(Repeated(Gaussian(s), 50), 10 * s), runs), 1.0, 1e-5)
    search = RepeatAndSelect(scored(Repeated(Gaussian(sigma), 50), 10 * sigma), runs)
    assert 1 - 1e-5 < epsilon(search, 1e-5) <= 1


def test_a_score_is_paid_for():
    fit = Repeated(Gaussian(20.0), 10)
    assert scored(fit, 30.0) == Sequence((fit, Gaussian(30.0)))
    draw = np.random.default_rng(0)
    for _ in range(50):  # one row replaced moves the number of right answers by at most one
        right = draw.integers(0, 2, 20)
        other = right.copy()
        other[draw.integers(20)] = draw.integers(0, 2)
        assert abs(int(right.sum()) - int(other.sum())) <= 1


# -- tables ------------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.floats(0.05, 3), st.floats(0, 2), st.floats(1, 20), st.integers(2, 300), st.floats(0.1, 1.5))
def test_a_table_and_its_masses_lie_above_the_profile(mu, shift, factor, points, share):
    """A crude bound on a true profile, as the theorem gives it, tabulated, and the pair of laws made of that."""

    def bound(eps):
        return min(1.0, factor * delta_of_mu(mu, eps - shift)) if eps >= shift else 1.0

    top = share * (mu * mu + 6 * mu + shift)
    table = ProfileTable.of(bound, top / points, points)
    places = np.linspace(0, 1.3 * top, 101)
    true = np.array([delta_of_mu(mu, eps) for eps in places])
    assert np.all(table(places) >= true * (1 - 1e-12))
    assert np.all(table(-places) >= (-np.expm1(-places) + np.exp(-places) * true) * (1 - 1e-12))
    positive, infinite = table.masses()
    losses = table.step * np.arange(1, points + 1)
    assert np.all(positive >= 0)
    assert np.sum(positive * (1 + np.exp(-losses))) + infinite <= 1 + 1e-8
    pair = np.array([np.sum(positive * np.maximum(-np.expm1(eps - losses), 0)) + infinite for eps in places])
    assert np.all(pair >= true * (1 - 1e-12))
    assert np.all(pair <= table(places) * (1 + 1e-8))


def test_a_fine_table_is_a_tight_one():
    table = ProfileTable.of(lambda eps: delta_of_mu(0.7, eps), 0.01, 600)
    positive, infinite = table.masses()
    losses = 0.01 * np.arange(1, 601)
    for eps in (0.1, 1.234, 3.0):
        pair = np.sum(positive * np.maximum(-np.expm1(eps - losses), 0)) + infinite
        assert pair == pytest.approx(delta_of_mu(0.7, eps), rel=2e-3)
        assert table(np.array([eps]))[0] == pytest.approx(delta_of_mu(0.7, eps), rel=2e-3)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_bad_searches_are_refused():
    with pytest.raises(InputError, match=r"eta to be finite and > -1, got eta=-1\.0"):
        NegativeBinomialRuns(-1.0, 0.5)
    for gamma in (0.0, 1.5, float("nan")):
        with pytest.raises(InputError, match="gamma from 1e-100 to 1"):
            NegativeBinomialRuns(1.0, gamma)
    for rate in (0.0, -1.0, inf):
        with pytest.raises(InputError, match="rate to be positive and finite"):
            PoissonRuns(rate)
    with pytest.raises(InputError, match="event to be an Event"):
        RepeatAndSelect("gaussian", LAWS[0])
    with pytest.raises(InputError, match="runs to be a law of the number of runs"):
        RepeatAndSelect(Gaussian(1.0), 10)
    for mean in (0.5, inf, 1e6):
        with pytest.raises(InputError, match="a mean number of runs from 1 to 100000"):
            gamma_for(mean, 1.0)
    with pytest.raises(InputError, match="at most 100000 runs on average"):
        repetitions(PoissonRuns(1e7))


def test_a_search_in_words():
    text = RepeatAndSelect(Gaussian(2.0), NegativeBinomialRuns(1.0, 0.1)).words
    assert text == (
        "the best of a negative binomial number of runs, 10 on average (eta 1), each of them a Gaussian release, "
        "noise multiplier 2"
    )
    assert log(NegativeBinomialRuns(0.0, 0.1).slope) == pytest.approx(log(log(10)))
