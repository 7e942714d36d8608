"""The noise in curves and in the log-rank test is as large as they say: drawn anew for one and the same table."""

import numpy as np
import pandas as pd
import pytest

from sottovoce.tables.consistent import Consistent
from sottovoce.tables.curve import LifeTable, clear, watched
from sottovoce.tables.follow_up import ALPHA
from sottovoce.tables.log_rank import GroupedTables, _apart
from tables.lives import ARM, codes_of, coding_of, dataset

STD, TIMES = 8.0, 1000  # of the noise in a cell; how often it is drawn
ROWS = 60_000
CODING = coding_of(by=ARM)
PART, GROUPS = CODING.parts[0], len(ARM.categories)


def summed(frame):
    """Cells and what is lost, of all groups, without noise."""
    (table,) = CODING.split(CODING.coded(dataset(codes_of(frame))).features.sum(axis=0))
    return table[:, : PART.cells], table[:, PART.cells :] / ALPHA


def drawn(cells, lost, rng, std=STD):
    """All rows and each group as life tables, and the table of groups, with noise."""
    noisy = cells + std * rng.standard_normal(cells.shape)
    agreed = Consistent.of([noisy], [std**2], round(float(cells.sum())))
    less = lost + std / ALPHA * rng.standard_normal(lost.shape)
    lost_noise = (std / ALPHA) ** 2
    lives = [
        LifeTable(view, own, (GROUPS if place == 0 else 1) * lost_noise, PART.times)
        for place, (view, own) in enumerate(zip(agreed.views(0), [less.sum(axis=0), *less], strict=True))
    ]
    return lives, GroupedTables(agreed.tables[0], less, std**2, lost_noise, agreed.rows)


@pytest.fixture(scope="module", name="table")
def _table():
    """Events are frequent, so that the noise in those at risk shows."""
    draws = np.random.default_rng(4)
    ended, left = draws.exponential(4.0, ROWS), draws.uniform(2, 40, ROWS)
    arm = draws.choice(ARM.categories, ROWS)
    return summed(pd.DataFrame({"months": np.minimum(ended, left), "died": ended <= left, "arm": arm}))


def half(one):
    """What the noise adds to the square of the half of an interval."""
    return ((one.high - one.low) / (2 * 1.959964)) ** 2


def test_the_noise_in_curves_and_means_is_as_large_as_they_say(table):
    rng = np.random.default_rng(5)
    exact, _ = drawn(*table, rng, std=0.0)
    found = [drawn(*table, rng)[0] for _ in range(TIMES)]
    for place in range(GROUPS + 1):
        for j in (1, 4, 8, 11):
            spread = np.var([lives[place].curve[j].value for lives in found])
            said = half(found[0][place].curve[j]) - half(exact[place].curve[j])
            assert said == pytest.approx(spread, rel=0.28)  # six of its standard deviations
        spread = np.var([lives[place].mean().value for lives in found])
        assert half(found[0][place].mean()) - half(exact[place].mean()) == pytest.approx(spread, rel=0.28)
        at_risk = np.var([lives[place].at_start[6] for lives in found])
        said = half(found[0][place].at_risk(6, ROWS)) - half(exact[place].at_risk(6, ROWS))
        assert said == pytest.approx(at_risk, rel=0.28)


def test_the_noise_in_the_log_rank_test_is_as_large_as_it_says(table):
    """V + W less V is the covariance of Z over draws of the noise."""
    rng = np.random.default_rng(6)
    grouped = [drawn(*table, rng)[1] for _ in range(TIMES)]
    apart = np.stack([_apart(one.cells[None], one.lost[None], PART.bins)[0] for one in grouped])
    exact = GroupedTables(table[0], table[1], 0.0, 0.0, ROWS)
    usual = exact._spread(table[0], table[1], PART.bins)
    noise = grouped[0]._spread(table[0], table[1], PART.bins) - usual
    np.testing.assert_allclose(np.cov(apart.T), noise, atol=0.3 * np.abs(noise).max())
    assert np.trace(np.cov(apart.T)) == pytest.approx(np.trace(noise), rel=0.3)


def test_tables_with_one_curve_are_drawn_with_one_curve(table):
    """Whatever the censoring of groups: then Z is 0 in the mean, and as large as V says."""
    cells, lost = table
    few = cells.copy()
    few[1, : PART.bins] = 0.9 * cells[1, : PART.bins]  # groups differ, so that it matters what is drawn
    alike = GroupedTables(few, lost, 0.0, 0.0, round(float(few.sum())))
    apart = _apart(*alike._alike(few, lost, 2000), PART.bins)
    usual = alike._spread(few, lost, PART.bins)
    assert np.all(np.abs(apart.mean(axis=0)) < 6 * np.sqrt(np.diag(usual) / 2000))
    np.testing.assert_allclose(np.cov(apart.T), usual, atol=0.2 * np.abs(usual).max())


def test_bins_end_where_those_at_risk_are_not_clear_of_the_noise():
    assert clear(np.array([100.0, 50.0, 39.0, 90.0]), np.full(4, 100.0)) == 2
    assert clear(np.array([5.0, 1.0, 0.0]), np.zeros(3)) == 2
    assert watched(2).tolist() == [[1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [0, 0, 0, 0, 1]]
