"""Intervals of survival curves hold the population's own figures as often as they say, with rows and noise drawn anew
each time, and the log-rank test rejects one in twenty pairs of groups with one curve.

benchmarks/survival.py does it on real tables, and longer.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from helpers.laws import NEVER
from tables.lives import ARM, codes_of, coding_of, found_of, rows

ROWS, REPEATED = 1500, 200
TWO = replace(ARM, categories=("new", "old"))
HOLDS = stats.binom.ppf([NEVER / 2, 1 - NEVER / 2], REPEATED, 0.95)


@pytest.fixture(scope="module", name="population")
def _population():
    frame = rows(100_000, seed=11, whole=False)
    return frame[frame.arm != "none"].assign(arm=lambda part: np.where(part.arm == "new", "new", "old"))


@pytest.fixture(scope="module", name="truth")
def _truth(population):
    """The curves of the whole population, and of its arms, without noise."""
    found = found_of(coding_of(by=TWO), codes_of(population), seed=0, epsilon=math.inf)
    return [(np.array([one.value for one in curve.survival]), curve) for curve in found.curves]


def repeated(population, seed, times=REPEATED, **given):
    draws, together = np.random.default_rng(seed), given.get("together", 1)
    for _ in range(times):
        drawn = population.iloc[draws.integers(0, len(population), ROWS // together)]
        codes = np.repeat(codes_of(drawn), together, axis=0)
        yield found_of(coding_of(by=TWO), codes, int(draws.integers(2**62)), **given)


def held(found, truth):
    """Whether intervals hold the truth, by kind."""
    own = [
        [one.low <= value <= one.high for one, value in zip(curve.survival, values, strict=True)]
        for curve, (values, _) in zip(found.curves, truth, strict=True)
    ]
    everyone, exact = found.curves[0], truth[0][1]
    arm, arm_exact = found.curves[2], truth[2][1]
    share = arm_exact.at_risk[6].value / exact.at_risk[0].value
    return {
        "early": own[0][3], "middle": own[1][6], "late": own[2][9],
        "median": arm.median.low <= arm_exact.median.value <= (arm.median.high or math.inf),
        "mean": everyone.mean.low <= exact.mean.value <= everyone.mean.high,
        "at risk": arm.at_risk[6].low <= share * ROWS <= arm.at_risk[6].high,
    }  # fmt: skip


def test_intervals_hold_as_often_as_they_say(population, truth):
    """The chance that intervals of exactly 95 % come out beyond the bounds is below a thousand million."""
    hits = [held(found, truth) for found in repeated(population, 21)]
    for kind in hits[0]:
        assert HOLDS[0] <= sum(one[kind] for one in hits), kind


def test_intervals_that_ignore_the_noise_do_not(population, truth):
    hits = [held(found, truth) for found in repeated(population, 22, times=50, wrong=0.01, epsilon=0.3)]
    assert sum(one["early"] for one in hits) < stats.binom.ppf(NEVER, 50, 0.95)


def test_people_who_are_alike_are_drawn_together(population, truth):
    hits = [held(found, truth) for found in repeated(population, 23, together=4, times=100)]
    assert stats.binom.ppf(NEVER, 100, 0.95) <= sum(one["middle"] for one in hits)


def test_the_test_rejects_one_in_twenty_groups_with_one_curve_and_not_more(population):
    """Arms are dealt out anew, so that they have one curve."""
    draws, alike = np.random.default_rng(24), population.copy()
    alike["arm"] = draws.choice(["new", "old"], len(alike), p=[0.3, 0.7])
    tests = [one.log_rank for one in repeated(alike, 25, epsilon=0.5)]
    found = np.array([one.p for one in tests])
    assert 0.4 < np.mean([one.statistic for one in tests]) < 1.6  # 1, and 0.1 is its standard deviation
    for level in (0.05, 0.5):
        low, high = stats.binom.ppf([NEVER / 2, 1 - NEVER / 2], REPEATED, level)
        assert low <= np.sum(found <= level) <= high
    apart = np.array([one.log_rank.p for one in repeated(population, 26, times=30)])
    assert np.mean(apart <= 0.05) > 0.5  # groups with two curves are found out
