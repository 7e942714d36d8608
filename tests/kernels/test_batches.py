"""Batches follow their law, and no two draws ever share a counter, however many rows there are."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from sottovoce.errors import InputError
from sottovoce.noise.sources import SeededNoise, Shape
from sottovoce.oracle.kernels.random import choose_poisson, count_with_replacement, expect_room

OFFSETS = np.array([0, 50, 73, 200])
DRAWS = [choose_poisson, count_with_replacement]


# The first row whose block of four has a number that needs more than 20 bits.
WRAP = 1 << 22


def _draw(draw, runs, batch=10, dtype=np.float64, first_node=0, first_run=0, offsets=OFFSETS, k=1, r=0):
    out = np.zeros((offsets[-1], runs), dtype)
    draw(out, offsets, batch, 5, 6, k, r, first_node, first_run)
    return out


def philox(c0, c1, c2, c3, key=(5, 6)):
    """Philox4x32-10 in plain NumPy: the four words (4, counters)."""
    words = [np.asarray(c, np.uint64) + np.zeros_like(np.asarray(c0, np.uint64)) for c in (c0, c1, c2, c3)]
    keys, low = [np.uint64(k) for k in key], np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0, p1 = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            (p1 >> np.uint64(32)) ^ words[1] ^ keys[0], p1 & low,
            (p0 >> np.uint64(32)) ^ words[3] ^ keys[1], p0 & low,
        ]  # fmt: skip
        keys = [(keys[0] + np.uint64(0x9E3779B9)) & low, (keys[1] + np.uint64(0xBB67AE85)) & low]
    return np.stack(words)


def counters(draws, r, run):
    """Word 0 and word 3 of the blocks of `draws` draws, as the module says."""
    block = np.arange((draws + 3) // 4)
    return (r << 20) | (block % 2**20), (block // 2**20 << 20) | run


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


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("r", [0, 3])
def test_many_rows_are_drawn_as_they_should_be(draw, r):
    """Against plain NumPy, beyond the number of rows whose blocks once ran into the next step's."""
    m, run, node = WRAP + 4099, 2, 7
    batch = m // 3 if draw is choose_poisson else WRAP + 1000
    got = _draw(draw, 1, batch, first_node=node, first_run=run, offsets=np.array([0, m]), k=9, r=r)[:, 0]
    draws = m if draw is choose_poisson else batch
    low, high = counters(draws, r, run)
    words = philox(low, node, 9, high)
    if draw is choose_poisson:
        expected = words.T.ravel()[:m] < np.floor(batch * 2.0**32 / m)
    else:
        expected = np.bincount(uniform(words, m)[:batch], minlength=m)
    np.testing.assert_array_equal(got, expected)


def uniform(words, m):
    """Row numbers from words, each row from equally many (Lemire 2019); what is left over of 2^32 is drawn again."""
    rows, low = np.uint64(m), np.uint64(0xFFFFFFFF)
    chosen = np.empty_like(words)
    for lane in range(4):
        block = words
        while (left_over := (block[lane] * rows & low) < np.uint64(2**32 % m)).any():
            block = np.where(left_over, philox(*block), block)
        chosen[lane] = block[lane]
    return (chosen * rows >> np.uint64(32)).T.ravel().astype(np.int64)


def test_rows_beyond_the_first_blocks_repeat_neither_a_step_nor_themselves():
    m = WRAP + 4096
    first, second = (_draw(choose_poisson, 1, m // 2, offsets=np.array([0, m]), r=r)[:, 0] for r in (0, 1))
    for ours, theirs in [(first, second), (first, first), (second, second)]:
        same = np.mean(ours[WRAP:] == theirs[:4096])
        assert abs(same - 0.5) < 6 * 0.5 / np.sqrt(4096)


def test_batches_without_room_for_their_counters_are_refused():
    few, many = np.array([0, WRAP]), np.array([0, WRAP + 1])
    expect_room(few, 10, 0, 2**30)
    expect_room(many, 10, 0, 2**20)
    expect_room(OFFSETS, WRAP, 0, 2**30)
    with pytest.raises(InputError, match="at most 1048576 runs where a node has 4194305 rows, got runs=1048577"):
        expect_room(many, 10, 1, 2**20)
    with pytest.raises(InputError, match="at most 1048576 runs"):
        expect_room(OFFSETS, WRAP + 1, 0, 2**20 + 1)
    with pytest.raises(InputError, match="at most 4294967296 rows"):
        expect_room(np.array([0, 2**32 + 1]), 10, 0, 1)


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_batches_and_normals_share_no_counter(seed):
    """With one key for both, whoever learns which rows were drawn would learn words that the noise is made of."""
    noise = SeededNoise(seed, Shape(1, 4, 1))
    assert not set(noise.normal_key) & set(noise.batch_key)
