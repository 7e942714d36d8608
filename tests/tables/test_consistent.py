"""Tables that are made to agree: their sums, the covariance of their noise, and whole numbers that still add up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.tables.consistent import Consistent, around, whole_counts
from sottovoce.tally.intervals import Interval

GROUPS, LEVELS, STDS, ROWS = 3, (2, 5), (1.0, 3.0), 1000


def exact(rng):
    """Tables of two columns with the same sizes of groups."""
    sizes = rng.multinomial(ROWS, [0.5, 0.3, 0.2])
    return [np.stack([rng.multinomial(size, np.full(many, 1 / many)) for size in sizes]) for many in LEVELS]


def noisy(rng, tables):
    return [table + std * rng.standard_normal(table.shape) for table, std in zip(tables, STDS, strict=True)]


def agreed(tables, stds=STDS):
    return Consistent.of(tables, [std**2 for std in stds], ROWS)


def test_they_agree_and_are_as_near_as_can_be():
    rng = np.random.default_rng(0)
    given_, found = (tables := noisy(rng, exact(rng))), agreed(tables)
    for table in found.tables:
        np.testing.assert_allclose(table.sum(axis=1), found.sizes)
    assert found.sizes.sum() == pytest.approx(ROWS)

    def distance(tables):
        return sum(np.sum((a - b) ** 2) / std**2 for a, b, std in zip(tables, given_, STDS, strict=True))

    # Any other tables that agree are further away, each distance in units of its noise.
    best = distance(found.tables)
    for _ in range(50):
        moved = 0.1 * rng.standard_normal(GROUPS)
        moved -= moved.mean()
        others = [table + rng.standard_normal(table.shape) * 0.1 for table in found.tables]
        others = [table + ((found.sizes + moved - table.sum(axis=1)) / table.shape[1])[:, None] for table in others]
        assert distance(others) > best


def test_tables_without_noise_stay_as_they_are():
    tables = exact(np.random.default_rng(1))
    found = agreed(tables, (0.0, 0.0))
    for one, other in zip(found.tables, tables, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)
    assert found.size_noise == 0


def test_the_noise_is_that_of_lemma_3():
    """Every covariance that is stated, against that of 40,000 draws; and none of it is biased."""
    rng, draws = np.random.default_rng(2), 40_000
    tables = exact(rng)
    found = [agreed(noisy(rng, tables)) for _ in range(draws)]
    for column, many in enumerate(LEVELS):
        cells = np.stack([one.tables[column] for one in found])
        np.testing.assert_allclose(cells.mean(axis=0), tables[column], atol=5 * 3 / np.sqrt(draws))
        a, b = rng.standard_normal(many), rng.standard_normal(many)
        views = found[0].views(column)
        for g in range(GROUPS):
            first, second = (cells[:, g] @ weights for weights in (a, b))
            within = np.cov(first, second)
            scale = np.sqrt(within[0, 0] * within[1, 1])
            assert within[0, 1] == pytest.approx(views[1 + g].noise(a, b), abs=0.03 * scale)
            assert within[0, 0] == pytest.approx(views[1 + g].noise(a, a), rel=0.05)
            other = cells[:, (g + 1) % GROUPS] @ b
            apart = np.cov(first, other)[0, 1]
            assert apart == pytest.approx(found[0].between(column) * a.sum() * b.sum(), abs=0.03 * scale)
        everyone = cells.sum(axis=1) @ a
        assert np.var(everyone) == pytest.approx(views[0].noise(a, a), rel=0.05)
    sizes = np.stack([one.sizes for one in found])
    assert np.var(sizes[:, 0]) == pytest.approx(views[1].noise(np.ones(many), np.ones(many)), rel=0.05)


@given(st.lists(st.floats(-50, 500), min_size=1, max_size=12), st.integers(0, 1000))
@settings(max_examples=200)
def test_whole_counts_add_up_and_are_near(values, total):
    counts = whole_counts(np.array(values), total)
    assert counts.sum() == total
    assert counts.min() >= 0
    assert counts.dtype == np.int64


def test_whole_counts_of_whole_counts_are_the_same():
    assert whole_counts(np.array([3.0, 0.0, 7.0]), 10).tolist() == [3, 0, 7]
    assert whole_counts(np.array([-5.0, 5.4, 5.4]), 10).tolist() == [0, 5, 5]


def test_an_interval_holds_what_is_shown():
    assert around(0.5, Interval(0.1, 0.0, 0.2)) == Interval(0.5, 0.0, 0.5)
    assert around(None, Interval(0.1, 0.0, 0.2)) == Interval(None, 0.0, 0.2)
