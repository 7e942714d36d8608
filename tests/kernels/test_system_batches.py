"""Batches for private rows: drawn exactly, from whole numbers of the operating system."""

import numpy as np
import pytest
from scipy.stats import binom, binomtest, chisquare

from helpers.laws import NEVER
from sottovoce.noise.sources import Shape, SystemNoise

OFFSETS = np.array([0, 7, 19])
RUNS = 8000


def drawn(batch, scheme, runs=RUNS):
    return SystemNoise(Shape(2, 3, runs)).draws(1, 0, OFFSETS, batch, scheme)


def test_with_replacement_every_batch_is_full_and_every_row_as_likely():
    counts = drawn(5, "replacement")
    for first, last in ((0, 7), (7, 19)):
        part = counts[first:last]
        np.testing.assert_array_equal(part.sum(axis=0), 5)
        assert chisquare(part.sum(axis=1)).pvalue > NEVER
        # Drawn with replacement: how often one row comes is binomial.
        seen = np.bincount(part[0].astype(int), minlength=6)
        expected = RUNS * binom.pmf(np.arange(6), 5, 1 / (last - first))
        assert (
            chisquare(np.append(seen[:3], seen[3:].sum()), np.append(expected[:3], expected[3:].sum())).pvalue > NEVER
        )


def test_poisson_takes_each_row_on_its_own_with_chance_batch_over_rows():
    counts = drawn(5, "poisson")
    assert set(np.unique(counts)) == {0.0, 1.0}
    for first, last in ((0, 7), (7, 19)):
        chance, part = 5 / (last - first), counts[first:last]
        for taken in part.sum(axis=1).astype(int):
            assert binomtest(taken, RUNS, chance).pvalue > NEVER
        sizes = np.bincount(part.sum(axis=0).astype(int), minlength=last - first + 1)
        expected = RUNS * binom.pmf(np.arange(last - first + 1), last - first, chance)
        likely = expected > 5
        assert chisquare(sizes[likely], expected[likely] * sizes[likely].sum() / expected[likely].sum()).pvalue > NEVER


@pytest.mark.parametrize("scheme", ["replacement", "poisson"])
def test_nothing_comes_twice(scheme):
    one, two = drawn(5, scheme, 50), drawn(5, scheme, 50)
    assert (one != two).any()
    assert (one[:, 0] != one[:, 1]).any()
