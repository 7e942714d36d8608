from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from sottovoce.kernels.philox import choose_poisson, count_with_replacement

OFFSETS = np.array([0, 50, 73, 200])
DRAWS = [choose_poisson, count_with_replacement]


def _draw(draw, runs, batch=10, dtype=np.float64, first_node=0, first_run=0, offsets=OFFSETS, k=1):
    out = np.zeros((offsets[-1], runs), dtype)
    draw(out, offsets, batch, 5, 6, k, 0, first_node, first_run)
    return out


def test_counts_add_up_to_the_batch_and_are_uniform():
    out = _draw(count_with_replacement, 2000)
    for first, stop in pairwise(OFFSETS):
        assert (out[first:stop].sum(axis=0) == 10).all()
        assert stats.chisquare(out[first:stop].sum(axis=1)).pvalue > 1e-4


def test_poisson_takes_each_row_with_its_probability_independently():
    out = _draw(choose_poisson, 4000)
    assert set(np.unique(out)) == {0.0, 1.0}
    for first, stop in pairwise(OFFSETS):
        p, taken = 10 / (stop - first), out[first:stop]
        np.testing.assert_allclose(taken.mean(axis=1), p, atol=5 * np.sqrt(p * (1 - p) / 4000))
        assert taken.sum(axis=0).var() == pytest.approx((stop - first) * p * (1 - p), rel=0.15)


@pytest.mark.parametrize("draw", DRAWS)
def test_a_draw_depends_on_its_own_place_only(draw):
    out = _draw(draw, 70)
    for first, runs in ((0, 1), (3, 7), (5, 16), (9, 33)):
        np.testing.assert_array_equal(_draw(draw, runs, first_run=first), out[:, first : first + runs])
    node_2 = _draw(draw, 70, first_node=2, offsets=np.array([0, 127]))
    np.testing.assert_array_equal(node_2, out[73:])
    assert (_draw(draw, 70, k=2) != out).any()


@pytest.mark.parametrize("draw", DRAWS)
def test_both_precisions_draw_the_same(draw):
    np.testing.assert_array_equal(_draw(draw, 20, dtype=np.float32), _draw(draw, 20))
