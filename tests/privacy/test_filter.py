"""Charges that are chosen with sight of what earlier ones showed: what an adversary can make of a book."""

import re
from math import comb, exp, inf, log, sqrt
from pathlib import Path

import numpy as np
import pytest
from dp_accounting.rdp.rdp_privacy_accountant import compute_epsilon
from scipy.special import logsumexp, ndtr

from sottovoce.errors import BudgetError, InputError
from sottovoce.privacy import (
    BudgetAccountant,
    Gaussian,
    GaussianObjective,
    Laplace,
    NegativeBinomialRuns,
    NonPrivate,
    PureRelease,
    RepeatAndSelect,
    Repeated,
    SampledGaussian,
    Sampling,
    Sequence,
    epsilon,
    gamma_for,
    mu_for,
    noise_for,
    scored,
    sigma_for,
)
from sottovoce.privacy.accounting.accountant import log_moments
from sottovoce.privacy.books.filter import CUT_SHARE, Charges, Filter, order_for

DELTA = 1e-5


def of_gaussian(mu):
    """a -> H_a(N(mu, 1) || N(0, 1))."""

    def stick(a):
        return ndtr(mu / 2 - np.log(a) / mu) - a * ndtr(-mu / 2 - np.log(a) / mu)

    return stick


def of_response(epsilon):
    """a -> H_a of randomised response, the worst of all pure releases."""
    p = exp(epsilon) / (1 + exp(epsilon))

    def stick(a):
        return np.maximum(p - a * (1 - p), 0) + np.maximum(1 - p - a * p, 0)

    return stick


def reached(epsilon, mu, *choices):
    """The delta of an adversary who sees a Gaussian release and then takes the choice that hurts most."""
    y = np.linspace(-12, 12 + mu, 200_001)
    likelihood = np.exp(mu * y - mu * mu / 2)
    worst = np.max([stick(exp(epsilon) / likelihood) for stick in choices], axis=0)
    return np.trapezoid(np.exp(-y * y / 2) / sqrt(2 * np.pi) * likelihood * worst, y)


def largest(accepts, high):
    """About the largest x <= high that is accepted, rounded down."""
    low = 0.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if accepts(middle) else (low, middle)
    return low


def taken(accountant, event):
    try:
        accountant.check(event)
    except BudgetError:
        return False
    return True


# (epsilon of the cap, share of its mu in the first release, how many times delta the adversary reaches)
ATTACKS = [(1.0, 0.05, 1.7), (4.0, 0.05, 1.97), (8.0, 0.05, 1.998)]


@pytest.mark.parametrize(("cap", "share", "times"), ATTACKS)
def test_the_price_of_the_list_so_far_is_no_filter(cap, share, times):
    """Either list is within the cap. Who chooses between them by the first result passes it, almost twofold."""
    mu = share * mu_for(cap, DELTA)
    other = sqrt(mu_for(cap, DELTA) ** 2 - mu**2)
    pure = largest(lambda e: epsilon(Sequence((Gaussian(1 / mu), PureRelease(e))), DELTA) <= cap, cap)
    assert reached(cap, mu, of_gaussian(other)) <= DELTA * (1 + 1e-9)
    assert reached(cap, mu, of_response(pure)) <= DELTA
    assert reached(cap, mu, of_gaussian(other), of_response(pure)) > times * DELTA


@pytest.mark.parametrize(("cap", "share"), [attack[:2] for attack in ATTACKS])
@pytest.mark.parametrize("mixed", [False, True])
def test_no_choice_that_a_book_leaves_open_passes_its_delta(cap, share, mixed):
    first = Gaussian(1 / (share * mu_for(cap, DELTA)))
    accountant = BudgetAccountant(cap, DELTA, [first], mixed=mixed)
    mu = largest(lambda m: m == 0 or taken(accountant, Gaussian(1 / m)), mu_for(cap, DELTA))
    pure = largest(lambda e: e == 0 or taken(accountant, PureRelease(e)), cap)
    assert mu > 0.8 * mu_for(cap, DELTA)
    assert (pure > 0.5 * cap) == mixed
    sticks = [of_gaussian(mu)] + ([of_response(pure)] if pure > 0 else [])
    delta = reached(cap, 1 / first.sigma, *sticks)
    assert (0.02 if mixed else 1 - 1e-6) * DELTA < delta <= DELTA * (1 + 1e-9)


def test_an_adversary_who_goes_on_or_stops_gains_nothing():
    """The first charge is anything, then come Gaussians, as many as the adversary likes to see."""
    cap, first = 2.0, PureRelease(0.5)
    accountant = BudgetAccountant(cap, DELTA, [first])
    left = largest(lambda m: m == 0 or taken(accountant, Gaussian(1 / m)), mu_for(cap, DELTA))
    p = exp(0.5) / (1 + exp(0.5))
    reached_delta = 0.0
    for answer, against in ((p, 1 - p), (1 - p, p)):  # the two answers of a randomised response
        least = log(exp(cap) * against / answer)  # the epsilon that is left after it
        split = reached(least, 0.6 * left, of_gaussian(0.8 * left), lambda a: np.maximum(1 - a, 0))
        assert split == pytest.approx(of_gaussian(left)(exp(least)), rel=1e-6)
        reached_delta += answer * split
    assert 0.5 * DELTA < reached_delta <= DELTA
    accountant.spend(Gaussian(1 / (0.6 * left)))
    accountant.spend(Gaussian(1 / (0.8 * left) * (1 + 1e-12)))


# -- the order and the limit -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-3])
@pytest.mark.parametrize("cap", [0.05, 0.5, 1.0, 4.0, 30.0])
def test_the_limit_is_googles_conversion(cap, delta):
    lam = order_for(cap, delta)
    book = Filter(cap, delta, lam)
    mu = book.room(Charges.of([]))
    moment = lam * (1 + lam) / 2 * mu**2
    theirs, _ = compute_epsilon([1 + lam], [moment / lam], delta * (1 - CUT_SHARE))
    assert theirs == pytest.approx(cap, rel=1e-9)
    assert book.fits(Charges.of([Gaussian(1 / mu * (1 + 1e-9))]))
    assert not book.fits(Charges.of([Gaussian(1 / mu * (1 - 1e-9))]))
    # What it costs Gaussians that the book is open for others.
    assert 0.8 < mu / mu_for(cap, delta) < 0.96


def test_an_order_is_of_the_cap_alone_and_easy_to_write_down():
    assert (order_for(1.0, 1e-5), order_for(0.1, 1e-5), order_for(8.0, 1e-5)) == (21.0, 156.0, 3.61)
    for order in (0.0, -1.0, inf):
        with pytest.raises(InputError, match="an order that is positive"):
            Filter(1.0, DELTA, order)
    with pytest.raises(InputError, match="epsilon positive"):
        Filter(inf, DELTA)


def test_any_order_makes_a_sound_book_and_a_bad_one_takes_nothing():
    for order in (1e-3, 1.0, 1e6):
        book = Filter(1.0, DELTA, order)
        assert book.room(Charges.of([])) < 0.9 * mu_for(1.0, DELTA)
        assert not book.fits(Charges.of([Gaussian(1 / mu_for(1.0, DELTA))]))
    assert not Filter(0.1, DELTA, 1e-3).fits(Charges.of([Gaussian(1e6)]))
    assert not Filter(1.0, DELTA, 20.0).fits(Charges.of([NonPrivate()]))


# -- moments, against laws that real rows can have ---------------------------------------------------------------------


def moment_without_the_top(p, q, lam, mass):
    """log E_Q[(P'/Q)^{1 + lambda}], P' what is left of P if `mass` is taken where P/Q is largest."""
    at = np.argsort(q / p)
    p, q = p[at], q[at]
    kept = np.clip(np.cumsum(p) - mass, 0, p)
    there = kept > 0
    return float(logsumexp(lam * np.log(kept[there] / q[there]), b=kept[there]))


def normal(y, mean):
    return np.exp(-((y - mean) ** 2) / 2)


def batches(sampling, sigma, y):
    """A row worth +1/2 against one worth -1/2 among rows worth nothing: laws that the step attains."""
    m, b = sampling.rows, sampling.batch
    chances = {0: 1 - b / m, 1: b / m}
    if sampling.scheme == "replacement":
        chances = {j: comb(b, j) * (1 / m) ** j * (1 - 1 / m) ** (b - j) for j in range(b + 1)}
    return tuple(sum(c * normal(y, side * j / sigma) for j, c in chances.items()) for side in (0.5, -0.5))


def best_of(gamma, mu, y):
    """The largest of K draws, K geometric: f(y) E[K F(y)^(K - 1)] for means mu and 0."""
    return tuple(normal(y, mean) * gamma / (1 - (1 - gamma) * ndtr(y - mean)) ** 2 for mean in (mu, 0.0))


REAL = {
    "gaussian": (Gaussian(2.0), lambda y: (normal(y, 0.5), normal(y, 0.0))),
    "laplace": (Laplace(2.0), lambda y: (np.exp(-abs(y - 1) / 2), np.exp(-abs(y) / 2))),
    "response": (PureRelease(0.7), lambda y: (np.where(y > 0, exp(0.7), 1.0), np.where(y > 0, 1.0, exp(0.7)))),
    "poisson": (
        SampledGaussian(1.5, Sampling("poisson", 20, 3)),
        lambda y: batches(Sampling("poisson", 20, 3), 1.5, y),
    ),
    "replacement": (
        SampledGaussian(3.0, Sampling("replacement", 20, 5)),
        lambda y: batches(Sampling("replacement", 20, 5), 3.0, y),
    ),
    "search": (
        RepeatAndSelect(Gaussian(5.0), NegativeBinomialRuns(1.0, 0.2)),
        lambda y: best_of(0.2, 0.2, y),
    ),
}


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("lam", [0.5, 5.0, 20.0])
def test_moments_are_never_too_low(name, lam):
    event, laws = REAL[name]
    far = 90 if name == "laplace" else 15
    p, q = (law / law.sum() for law in laws((np.arange(-200_000, 200_000) + 0.5) / 200_000 * far))
    found = log_moments(event, lam, DELTA)
    for moment, mass in found:
        assert moment >= moment_without_the_top(p, q, lam, mass) * (1 - 1e-6) - 1e-9
    assert (min(mass for _, mass in found) == 0) == (name not in ("poisson", "replacement"))
    if name in ("gaussian", "laplace", "response"):
        assert found[0][0] == pytest.approx(moment_without_the_top(p, q, lam, 0.0), rel=1e-5)


@pytest.mark.parametrize("lam", [2.0, 10.0, 30.0])
def test_the_moment_of_a_poisson_step_is_that_of_its_dominating_pair(lam):
    """docs/proofs/sampling.md, "The pair's losses", integrated without its discretisation."""
    sigma, gamma = 2.0, 0.05
    y = 1 / (2 * sigma) + (np.arange(1_000_000) + 0.5) * 12e-6
    loss = np.log1p(gamma * np.expm1(y / sigma - 1 / (2 * sigma**2)))
    q, p1 = (normal(y, mean) / sqrt(2 * np.pi) * (y[1] - y[0]) for mean in (0.0, 1 / sigma))
    still = (1 - gamma) * (1 - 2 * ndtr(-1 / (2 * sigma)))
    high = (1 - gamma) * q + gamma * p1
    p = np.concatenate((high, [still], q))  # at the losses L, 0 and -L
    against = np.concatenate((high * np.exp(-loss), [still], q * np.exp(loss)))
    assert (p.sum(), against.sum()) == pytest.approx((1.0, 1.0), abs=1e-9)
    for moment, mass in log_moments(SampledGaussian(sigma, Sampling("poisson", 100, 5)), lam, DELTA):
        exact = moment_without_the_top(p, against, lam, mass)
        assert exact * (1 - 1e-3) <= moment <= exact * 1.03


def test_what_is_cut_off_is_charged():
    """Many releases whose moments are tiny still cannot cut off more than their share of delta."""
    rare = SampledGaussian(1e3, Sampling("replacement", 1000, 1))
    book = Filter(1.0, DELTA, order_for(1.0, DELTA))
    often = largest(lambda n: book.fits(Charges.of([Repeated(rare, int(n))])), 1e15)
    least = min(mass for _, mass in log_moments(rare, book.order, DELTA))
    assert often * least <= CUT_SHARE * DELTA


# -- what it wastes ----------------------------------------------------------------------------------------------------


def lists(cap):
    """Lists whose exact price, fixed beforehand, is the cap."""
    poisson, drawn = Sampling("poisson", 1000, 50), Sampling("replacement", 452, 45)
    runs = NegativeBinomialRuns(0.0, gamma_for(10, 0.0))

    def search(noise):
        return RepeatAndSelect(scored(Gaussian(noise / sqrt(0.8)), noise / sqrt(0.2)), runs)

    def calibrated(event_of):
        return event_of(noise_for(event_of, cap, DELTA))

    fit = Gaussian(sigma_for(cap / 2, DELTA, 1))
    return {
        "Gaussians": Gaussian(sigma_for(cap, DELTA, 1)),
        "1000 steps on Poisson batches": Repeated(
            SampledGaussian(sigma_for(cap, DELTA, 1000, sampling=poisson), poisson), 1000
        ),
        "1000 steps on draws with replacement": Repeated(
            SampledGaussian(sigma_for(cap, DELTA, 1000, sampling=drawn), drawn), 1000
        ),
        "10 steps on Poisson batches": Repeated(
            SampledGaussian(sigma_for(cap, DELTA, 10, sampling=poisson), poisson), 10
        ),
        "100 Laplace releases": calibrated(lambda scale: Repeated(Laplace(scale), 100)),
        "20 perturbed objectives": calibrated(lambda sigma: Repeated(GaussianObjective(sigma, 0.001), 20)),
        "a search": calibrated(search),
        "a fit, then a search": calibrated(lambda noise: Sequence((fit, search(noise)))),
        "one pure release": PureRelease(cap),
    }


@pytest.mark.parametrize("column", [0, 1, 2])
def test_the_table_of_what_a_mixed_book_wastes(column):
    """docs/how-to/budget.md holds the least mixed budget over the exact price of the list."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "budget.md").read_text()
    cap = (0.1, 1.0, 4.0)[column]
    for name, event in lists(cap).items():
        assert epsilon(event, DELTA) == pytest.approx(cap, rel=1e-3)
        least = Filter(cap, DELTA, order_for(cap, DELTA)).price(Charges.of([event]))
        row = re.search(rf"^\| {re.escape(name)} \|(.*)\|$", page, flags=re.MULTILINE)
        assert float(row[1].split("|")[column]) == pytest.approx(least / cap, abs=0.006), name
