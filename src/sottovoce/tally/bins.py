"""Narrow cells and bins of scores: how rows are counted, where edges lie, and what is known of the order within a bin.

Exchange 1 of an evaluation counts rows in many narrow cells. Its noisy counts say where the edges of a few bins lie,
each with about as many rows, which exchange 2 counts in (`questions`).
"""

from math import inf
from typing import NamedTuple

import numpy as np

from sottovoce.arrays import Floats, Ints

HEAVY = 5.0  # times the noise of a narrow cell, from which on its rows are surely many
FEWEST, MOST = 4, 256  # bins


def bins_for(rows: int, std: float) -> int:
    """Number of bins for so many rows and so much noise, from FEWEST to MOST. More bins would not resolve more: few
    rows leave them empty, and noise outweighs small counts.

    Args:
        rows: N, over all sites.
        std: of the noise in one count.
    """
    wanted = min(2.0 * rows**0.25, 0.9 * (rows / max(std, 1e-9)) ** 0.4)
    return int(min(max(round(wanted), FEWEST), MOST))


class Bins(NamedTuple):
    """What exchange 1 says: the inner edges of the bins, and the likely counts of the narrow cells."""

    edges: Floats
    likely: Floats


def cells_of(borders: Floats, scores: Floats) -> Ints:
    """The number of the cell of each score, from 0. A score on a border is in the cell above, NaN in the lowest."""
    cells: Ints = np.searchsorted(borders, np.where(np.isnan(scores), -inf, scores), side="right").astype(np.int64)
    return cells


def histogram(cells: Ints, size: int) -> Floats:
    """Number of rows in each of `size` cells."""
    return np.bincount(cells, minlength=size).astype(np.float64)


def edges_at(borders: Floats, likely: Floats, below: Floats) -> Floats:
    """The borders with about these shares of the rows below them."""
    share = np.cumsum(likely)[:-1] / likely.sum()
    return np.unique(borders[np.abs(share[None, :] - below[:, None]).argmin(axis=1)])


def scores_in(borders: Floats) -> Floats:
    """A score in each narrow cell: the middle, or the border of the cells at the ends."""
    return np.concatenate((borders[:1], (borders[1:] + borders[:-1]) / 2, borders[-1:]))


def order_within(borders: Floats, placed: Bins, noise: float) -> tuple[Floats, Floats]:
    """How far the order of rows within each bin is known, from the narrow cells in it.

    Args:
        borders: between the narrow cells.
        placed: the bins, and the likely counts of the cells.
        noise: standard deviation of the noise in the count of a cell.

    Returns:
        Two numbers for each bin. How far its rows have different scores: twice the chance that two of them are in
        different narrow cells, at most 1; 0 where all have one score. And the share of its pairs of rows that may be of
        one score or in any order, since they are in one narrow cell; 0 where no cell of it surely has many rows.
    """
    bins = np.concatenate(([0], cells_of(placed.edges, borders)))
    rows, pairs = (np.bincount(bins, weights=placed.likely**power) for power in (1, 2))
    same = np.divide(pairs, rows**2, out=np.ones_like(rows), where=rows > 0)
    mixed: Floats = np.minimum(2 * (1 - same), 1.0)
    largest = np.zeros(len(placed.edges) + 1)
    np.maximum.at(largest, bins, placed.likely)
    return mixed, np.where(largest > HEAVY * noise, 1 - mixed, 0.0)
