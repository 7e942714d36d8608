"""AUC and average precision of two classes from counts by score and label. Post-processing of noisy counts.

Cells are numbered from the lowest scores up, for each bin first the rows of the one class, then those of the other, the
positive one: counts (..., 2 K). Within a bin the share of positive rows is taken to run straight between the bins on
its sides. For U, that adds what the order of rows within bins would, to the next order in the width of bins:

    U = sum_ij M_ij N_i P_j,    M = 1 above the diagonal, 1/2 on it, and +-1/12 more for neighbours where bins are equal
"""

from math import sqrt

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.tally.intervals import Interval, ScoreCells, Z, ratio

CLEAR = 10.0  # how many times their noise the positive rows must be, for average precision to be given
_PARTS = 8  # of each bin


def auc(cells: ScoreCells, mixed: Floats, unresolved: Floats) -> Interval:
    """The chance that a positive row has a higher score than another one: all theta with (U - theta P N)^2 <= z^2 var.
    U is a product of counts, so its variance has a term of the noise's own square.

    Args:
        cells: counts by score and label.
        mixed: (K,), how far the rows of every bin have different scores: from 0, none of them, to 1.
        unresolved: (K,), what share of the pairs of every bin nobody knows the order of, if they have one. They count
            half, and the interval reaches as far as if all, or none, were won.
    """
    negative, positive = cells.counts[::2], cells.counts[1::2]
    k = len(negative)
    kernel, one = _kernel(cells.likely[::2] + cells.likely[1::2], mixed), np.ones((k, k))
    slopes = [_slopes(matrix, cells.likely) for matrix in (kernel, one)]
    tt, tb, bb = (
        cells.noise(slopes[a], slopes[b]) + cells.sampling(slopes[a], slopes[b]) + cells.std**4 * float((m * n).sum())
        for a, b, m, n in ((0, 0, kernel, kernel), (0, 1, kernel, one), (1, 1, one, one))
    )
    found = ratio(float(negative @ kernel @ positive), float(negative.sum() * positive.sum()), (tt, tb, bb))
    likely = cells.likely[::2], cells.likely[1::2]
    pairs = float(likely[0].sum() * likely[1].sum())
    return _widen(found, *[float(unresolved @ (likely[0] * likely[1])) / (2 * max(pairs, 1e-9))] * 2)


def _widen(found: Interval, below: float, above: float) -> Interval:
    """The interval widened by `below` and `above`, within [0, 1]; without an estimate if it is all of [0, 1]."""
    low, high = max(found.low - below, 0.0), min(found.high + above, 1.0)
    return Interval(None if (low, high) == (0.0, 1.0) else found.value, low, high)


def _kernel(sizes: Floats, mixed: Floats) -> Floats:
    """M for bins of so many rows. A row's place x in bin j counts rows, so densities are counts over sizes m, and the
    chance of a win within the bin is 1/2 + m_j (p' / p - n' / n) / 12, with slopes p' and n' from the bins beside it.
    Rows of one score have no order, and there is nothing to add.
    """
    k, m = len(sizes), np.maximum(sizes, 1e-9)
    far = _distances(m)
    kernel = np.triu(np.ones((k, k)), 1) + np.eye(k) / 2
    i, j = np.arange(k - 1), np.arange(1, k)
    # Where a bin is nearly empty its density is all noise: no more than for equal bins at an end.
    near = sum(mixed[a] * np.minimum(m[a] ** 2 / (m[b] * far[a]), 1.0) for a, b in ((i, j), (j, i))) / 12
    kernel[i, j] += near
    kernel[j, i] -= near
    return kernel


def _distances(sizes: Floats) -> Floats:
    """Number of rows between the middles of the bins on both sides of each bin; at an end, its own middle counts."""
    middle = np.cumsum(sizes, axis=-1) - sizes / 2
    around = np.concatenate((middle[..., :1], middle, middle[..., -1:]), axis=-1)
    far: Floats = np.maximum(around[..., 2:] - around[..., :-2], 1e-9)
    return far


def _slopes(matrix: Floats, counts: Floats) -> Floats:
    """Gradient of N^T M P in the counts, (2 K,)."""
    moves = np.empty_like(counts)
    moves[::2], moves[1::2] = matrix @ counts[1::2], counts[::2] @ matrix
    return moves


def average_precision(cells: ScoreCells, mixed: Floats, unresolved: Floats) -> Interval:
    """Mean precision over the positive rows, each at the threshold that finds it.

    By a bootstrap from the likely counts, its percentiles and its spread, whichever reaches further. Precision among
    the highest scores is a ratio of few noisy counts, so no formula does. No estimate is given where the positive rows
    are hardly more than noise. Arguments as for `auc`.
    """
    positive = np.tile([0.0, 1.0], cells.size // 2)
    if positive @ cells.counts < CLEAR * sqrt(cells.noise(positive, positive)):
        return Interval(None, 0.0, 1.0)
    found, others = float(precision_mean(cells.likely, mixed)), precision_mean(cells.resampled(), mixed)
    low, high = np.quantile(others, (0.025, 0.975))
    reach = Z * float(others.std())
    interval = Interval(found, max(min(float(low), found - reach), 0.0), min(max(float(high), found + reach), 1.0))
    worst, best = _reach_of_order(cells.likely, unresolved)
    return _widen(interval, worst, best)


def _reach_of_order(counts: Floats, unresolved: Floats) -> tuple[float, float]:
    """How much less, and more, average precision may be than for bins whose rows are called together: if all pairs of
    unknown order are lost, or all are won.
    """
    others, right = counts[::2], counts[1::2]
    above = [np.cumsum(part[::-1])[::-1] - part for part in (others, right)]
    found = (right[:, None] * (np.arange(_PARTS) + 0.5) / _PARTS) + above[1][:, None]  # at some of the positive rows
    ends = precision_at_ends(counts)
    total = max(float(right.sum()), 1e-9)
    ways = []
    for before in (others, 0 * others):
        called = found + (above[0] + before)[:, None]
        way = np.divide(found, called, out=np.zeros_like(found), where=called > 0).mean(axis=1)
        ways.append(float((unresolved * right) @ np.abs(way - ends)) / total)
    return ways[0], ways[1]


def precision_mean(counts: Floats, mixed: Floats) -> Floats:
    """Average precision of exact counts >= 0, from the highest scores down; 0 where there is no positive row."""
    both = counts[..., ::2] + counts[..., 1::2]
    share = np.divide(counts[..., 1::2], both, out=np.zeros_like(both), where=both > 0)
    around = np.concatenate((share[..., :1], share, share[..., -1:]), axis=-1)
    tilt = mixed * (around[..., 2:] - around[..., :-2]) * np.minimum(both / _distances(both), 1.0)
    place = (np.arange(_PARTS) + 0.5) / _PARTS - 0.5
    # No steeper than what leaves both classes at least 0 rows everywhere: then the bin's own counts are kept.
    most = 2 * np.minimum(share, 1 - share)[..., None]
    parts = share[..., None] + np.clip(tilt[..., None], -most, most) * place
    hits = (both[..., None] / _PARTS * parts).reshape(*both.shape[:-1], -1)[..., ::-1]
    called = np.repeat(both / _PARTS, _PARTS, axis=-1)[..., ::-1]
    right, seen = np.cumsum(hits, axis=-1) - hits / 2, np.cumsum(called, axis=-1) - called / 2
    precision = np.divide(right, seen, out=np.zeros_like(seen), where=seen > 0)
    # Rows of one score are called at one threshold: all at the end of their bin.
    ordered, end = np.repeat(mixed, _PARTS)[::-1], np.repeat(precision_at_ends(counts), _PARTS, axis=-1)[..., ::-1]
    precision = ordered * precision + (1 - ordered) * end
    total = hits.sum(axis=-1)
    mean: Floats = np.divide((hits * precision).sum(axis=-1), total, out=np.zeros_like(total), where=total > 0)
    return mean


def precision_at_ends(counts: Floats) -> Floats:
    """Precision of calling all rows positive down to the end of each bin: (..., K)."""
    right, others = (np.cumsum(counts[..., k::2][..., ::-1], axis=-1)[..., ::-1] for k in (1, 0))
    called = right + others
    precision: Floats = np.divide(right, called, out=np.zeros_like(called), where=called > 0)
    return precision
