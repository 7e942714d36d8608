"""Cross-tables: without noise they are scipy's, and so is their test; with noise, independent columns pass it."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import sottovoce as sv
from helpers.laws import NEVER
from sottovoce.settings import plain
from sottovoce.tables import cross_table
from sottovoce.tables.cross import independence
from tables.rows import SCHEMA, rows

EXACT = {"epsilon": math.inf, "force": True}


@pytest.fixture(scope="module", name="frame")
def _frame():
    return rows()


def test_without_noise_it_is_the_table_and_the_test_of_scipy(frame):
    found = cross_table(frame, SCHEMA, ["came", "ill"], **EXACT)
    table = pd.crosstab(pd.to_datetime(frame.came).dt.quarter, frame.ill).to_numpy()
    counts = np.array([one.value for one in found.counts]).reshape(4, 3)
    np.testing.assert_array_equal(counts[:, :2], table)
    assert counts[:, 2].tolist() == [0] * 4  # nobody's label is missing
    whole = stats.chi2_contingency(table, correction=False)
    assert found.test.statistic == pytest.approx(whole.statistic, rel=1e-9)
    assert found.test.p == pytest.approx(whole.pvalue, abs=5 * math.sqrt(0.25 / found.test.draws))
    assert found.levels[1] == ("no", "yes", "<missing>")


def test_three_columns_are_tested_within_the_third(frame):
    found = cross_table(frame, SCHEMA, ["smoker", "ill", "came"], **EXACT)
    by_quarter = [
        stats.chi2_contingency(pd.crosstab(part.smoker.fillna("?"), part.ill), correction=False).statistic
        for _, part in frame.groupby("came")
    ]
    assert found.test.statistic == pytest.approx(sum(by_quarter), rel=1e-9)
    assert found.test.freedom == 2 * 2 * 4
    cells = np.array([one.value for one in found.counts]).reshape(3, 3, 4)
    assert cells[1, 1, 0] == ((frame.smoker == "yes") & (frame.ill == "yes") & (frame.came == "2024-01-15")).sum()
    assert found.counts[found.cell(1, 1, 0)].value == cells[1, 1, 0]


def test_with_noise_counts_add_up_and_lie_in_their_intervals(frame):
    found = cross_table(frame, SCHEMA, ["ward", "smoker"], epsilon=0.5, nodes=3)
    assert sum(one.value for one in found.counts) == found.rows == 3000
    for one in (*found.counts, *found.shares):
        assert 0 <= one.low <= one.value <= one.high
    assert found.privacy.epsilon <= 0.5
    told = json.loads(json.dumps(plain(found), allow_nan=False))
    assert told["test"]["p"] == found.test.p
    assert "Chi-squared" in repr(found)
    assert "ward,smoker,figure,value,low,high" in found.to_csv()


def drawn(rng, shares, count, std):
    """A noisy table of so many rows."""
    cells = rng.multinomial(count, shares.ravel()) + std * rng.standard_normal(shares.size)
    return (cells - (cells.sum() - count) / cells.size).reshape(shares.shape)


@pytest.mark.parametrize(("count", "std"), [(1000, 6.2), (10_000, 6.2), (10_000, 40.0)])
def test_it_rejects_one_in_twenty_tables_of_independent_columns_and_not_more(count, std):
    """The chance that a test of exactly this size comes out beyond the bounds is below a thousand million."""
    rng, repeated = np.random.default_rng(count), 400
    shares = np.outer([0.5, 0.3, 0.2], [0.6, 0.25, 0.15])
    found = [independence(drawn(rng, shares, count, std), std, count, draws=300).p for _ in range(repeated)]
    low, high = stats.binom.ppf([NEVER / 2, 1 - NEVER / 2], repeated, 0.05)
    assert low <= np.sum(np.array(found) <= 0.05) <= high
    low, high = stats.binom.ppf([NEVER / 2, 1 - NEVER / 2], repeated, 0.5)
    assert low <= np.sum(np.array(found) <= 0.5) <= high


def test_a_test_that_ignores_the_noise_would_not():
    """Pearson's statistic of the noisy table rejects nearly always: so the test above can fail."""
    rng, shares = np.random.default_rng(0), np.outer([0.5, 0.3, 0.2], [0.6, 0.25, 0.15])
    tables = [drawn(rng, shares, 1000, 20.0) for _ in range(100)]
    naive = [stats.chi2_contingency(np.maximum(table, 1.0), correction=False).pvalue <= 0.05 for table in tables]
    ours = [independence(table, 20.0, 1000, draws=300).p <= 0.05 for table in tables]
    assert np.mean(naive) > 0.5 > np.mean(ours)


def test_dependent_columns_are_found_out():
    shares = np.array([[0.3, 0.1], [0.2, 0.4]])
    rng = np.random.default_rng(1)
    assert independence(drawn(rng, shares, 3000, 10.0), 10.0, 3000).p < 0.001


def test_the_same_table_has_the_same_p():
    table = drawn(np.random.default_rng(2), np.full((2, 2), 0.25), 500, 5.0)
    assert independence(table, 5.0, 500) == independence(table, 5.0, 500)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["came"], "two or three"),
        (["came", "ill", "ward", "smoker"], "two or three"),
        (["came", "came"], "every column once"),
        (["came", "age"], "with levels of a cross-table"),
        (["came", "wings"], "'wings'"),
    ],
)
def test_what_makes_no_table_is_refused_and_costs_nothing(frame, columns, words):
    charged = []
    with pytest.raises(sv.InputError, match=words):
        cross_table(frame, SCHEMA, columns, epsilon=1.0, charge=charged.append)
    assert charged == []
