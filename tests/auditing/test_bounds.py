"""The bounds of an audit, each against an independent oracle."""

import math

import numpy as np
import pytest
from scipy import stats

from sottovoce.auditing import bounds
from sottovoce.auditing.bounds import Claim, Distance, EventCounts
from sottovoce.auditing.scores import optimal
from sottovoce.privacy import (
    Gaussian,
    GaussianObjective,
    PureRelease,
    Repeated,
    SampledGaussian,
    Sampling,
    delta,
    epsilon,
)

GAUSSIAN = Repeated(Gaussian(20.0), 30)


def claim_of(event, at=1e-5):
    return Claim(event, epsilon(event, at), at)


@pytest.mark.parametrize(("hits", "of"), [(0, 10), (1, 10), (10, 10), (537, 1000), (10_653, 20_000)])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 1 - 1e-6])
def test_clopper_and_pearson_as_scipy_has_it(hits, of, confidence):
    expected = stats.binomtest(hits, of, alternative="greater").proportion_ci(confidence, method="exact").low
    assert bounds.clopper_pearson(hits, of, confidence) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("mu", [0.1, 0.27, 0.93, 3.0])
def test_a_chance_stands_for_the_mu_whose_best_test_has_it(mu):
    """The best guess between N(0, 1) and N(mu, 1) is right with chance Phi(mu / 2)."""
    claim = claim_of(Repeated(Gaussian(2 / mu), 4))
    assert claim.mu == pytest.approx(mu)
    assert claim.epsilon_at(stats.norm.cdf(mu / 2)) == pytest.approx(claim.epsilon, rel=1e-6)
    assert claim.epsilon_at(0.5) == 0


def test_a_pure_claim_is_that_of_randomised_response():
    claim = Claim(PureRelease(1.3), 1.3, 0.0)
    assert claim.epsilon_at(math.exp(1.3) / (1 + math.exp(1.3))) == pytest.approx(1.3)
    assert bounds.by_normal_law(Distance(1.0, 1000), claim, 0.95) is None
    # No test of it passes more than e^eps as often; the corner of the curve is randomised response.
    corner = bounds.claimed_curve(claim, np.array([1 / (1 + math.exp(1.3))]))
    assert corner[0] == pytest.approx(math.exp(1.3) / (1 + math.exp(1.3)))


@pytest.mark.parametrize(
    "event",
    [
        Repeated(SampledGaussian(3.0, Sampling("poisson", 100, 20)), 10),
        Repeated(GaussianObjective(9.0, 0.01), 5),
    ],
    ids=["sampled", "objective"],
)
def test_other_claims_are_met_by_their_own_noise(event):
    """At the chance that the claim allows for, its own epsilon comes out; at less, less."""
    claim = claim_of(event)
    chance = (1 + delta(event, 0.0)) / 2
    assert claim.mu is None
    assert claim.epsilon_at(chance) == pytest.approx(claim.epsilon, rel=1e-2)
    assert claim.epsilon_at(0.5 + 0.8 * (chance - 0.5)) < 0.9 * claim.epsilon


def test_counting_holds_its_confidence_where_both_chances_differ():
    """Right guesses are a sum of two binomials; the bound on the mean chance fails no more often than 5 %."""
    rng, n, trials = np.random.default_rng(0), 400, 4000
    first, second = rng.binomial(n, 0.2, trials), rng.binomial(n, 0.55, trials)
    true = (0.8 + 0.55) / 2
    low = [bounds.clopper_pearson(int(n - a + b), 2 * n, 0.95) for a, b in zip(first, second, strict=True)]
    assert np.mean(np.array(low) > true) <= 0.05


def test_the_bound_for_any_mechanism_as_it_is_written_in_papers():
    """max ln((tpr - delta) / fpr), each rate at the end of its own two-sided interval."""
    counts, n = EventCounts(first=50, second=210, runs=1000), 1000
    intervals = [stats.binomtest(hits, n).proportion_ci(0.95, method="exact") for hits in (50, 210)]
    expected = math.log((intervals[1].low - 1e-5) / intervals[0].high)
    assert bounds.counted_for_any(counts, 1e-5, 0.95) == pytest.approx(expected, rel=1e-9)
    turned = EventCounts(first=n - 210, second=n - 50, runs=n)  # the same, by what does not pass
    assert bounds.counted_for_any(turned, 1e-5, 0.95) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("mu", [0.0, 0.27, 0.93, 2.0])
def test_the_normal_bound_against_the_noncentral_t(mu):
    """The exact limit: the noncentrality under which so large a t has a chance of 5 %."""
    n = 2000
    low = Distance(mu, n).lower(0.95)
    t = mu * math.sqrt(n / 2)
    if low > 0:
        assert stats.nct.sf(t, 2 * n - 2, low * math.sqrt(n / 2)) == pytest.approx(0.05, abs=2e-3)


def test_the_normal_bound_holds_its_confidence():
    rng, n = np.random.default_rng(1), 300
    low = [Distance.of(rng.normal(size=n), rng.normal(0.5, 1, size=n)).lower(0.95) for _ in range(3000)]
    assert 0.04 < np.mean(np.array(low) > 0.5) < 0.06


@pytest.mark.parametrize(("factor", "little"), [(1.0, False), (1.1, False), (0.9, True), (2 / 3, True)])
def test_the_size_of_noise_is_told_from_messages_alone(factor, little):
    rng, mu, n = np.random.default_rng(2), 0.1, 10_000
    moved = rng.uniform(1, 3, size=(2, n))  # in another direction, and by another length, in every run
    noise = rng.normal(size=(2, n)) * factor * np.linalg.norm(moved, axis=0) / mu
    found = bounds.noise_size(4, noise, moved, mu)
    assert found.round == 4
    assert found.size == pytest.approx(factor, rel=0.05)
    assert (found.p < 1e-6) == little


def test_a_round_that_costs_nothing_may_move_nothing():
    noise = np.random.default_rng(2).normal(size=(1, 300))
    assert bounds.noise_size(1, noise, np.ones((1, 300)), 0.0).p < 1e-9
    assert bounds.noise_size(1, noise, np.full((1, 300), 1e-15), 0.0).p == 1


def test_the_weights_are_fishers():
    rng = np.random.default_rng(3)
    root, moved = rng.normal(size=(4, 4)), rng.normal(size=4)
    spread = root @ root.T
    weights, distance = optimal(moved, spread)
    assert distance == pytest.approx(math.sqrt(moved @ np.linalg.inv(spread) @ moved), rel=1e-6)
    assert weights @ spread @ weights == pytest.approx(1, rel=1e-6)
    assert moved @ weights == pytest.approx(distance, rel=1e-6)


def test_noise_that_is_there_twice_is_subtracted():
    """Two numbers with the same noise, of which one moves: their difference tells all."""
    _, distance = optimal(np.array([0.1, 0.0]), np.ones((2, 2)))
    assert distance > 100


def test_the_claimed_curve_is_never_below_what_the_claim_allows():
    """For every epsilon, p1 <= e^eps p0 + delta(eps), and the same the other way round."""
    grid = np.linspace(0.01, 0.99, 50)
    event = Repeated(GaussianObjective(9.0, 0.01), 5)
    curve = bounds.claimed_curve(claim_of(event), grid)
    mu = math.sqrt(5) / 9
    assert np.all(curve >= stats.norm.cdf(stats.norm.ppf(grid) + mu) - 1e-9)
    gaussian = bounds.claimed_curve(claim_of(GAUSSIAN), grid)
    np.testing.assert_allclose(gaussian, stats.norm.cdf(stats.norm.ppf(grid) + math.sqrt(30) / 20), rtol=1e-9)


def test_a_chance_below_what_any_noise_leaves_shows_nothing():
    """What a Jacobian costs no noise lowers, so the total variation of such a claim has a floor."""
    event = Repeated(GaussianObjective(9.0, 0.01), 5)
    claim = claim_of(event)
    floor = delta(bounds.less_noise(event, 1e9), 0.0)
    assert floor > 0.01
    assert claim.epsilon_at(0.5 + 0.4 * floor) == 0
    assert 0 < claim.epsilon_at(0.5 + 0.55 * floor) < claim.epsilon


def test_signs_of_a_right_mechanism_are_told_apart_better_than_the_normal_law_allows():
    """Why it raises no alarm: by counting, the same runs stay within the claim."""
    rng, mu, n = np.random.default_rng(0), 3.0, 10_000
    claim = claim_of(Gaussian(1 / mu))
    first, second = (np.sign(rng.normal(mean, 1, n)) for mean in (-mu / 2, mu / 2))
    assert bounds.by_normal_law(Distance.of(first, second), claim, 1 - 1e-6) > claim.epsilon
    assert bounds.counted(EventCounts.of(first, second, 0.0), claim, 1 - 1e-6) < claim.epsilon
