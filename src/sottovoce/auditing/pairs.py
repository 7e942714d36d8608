"""The two rows that an observer can tell apart best, found by optimisation.

What a row does to a transcript, R(row), is the mean of what is seen with it less that with another row, under the same
noise, so that a few runs suffice. The distance between two worlds is that of R in the metric of the noise,
(R - R')^T S^-1 (R - R'). It is looked at on a grid of angles first, every pair of them, and then climbed from the best.

A label turned round is not the worst pair: at small models it shows half of what the plain sensitivity allows.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from sottovoce.arrays import Floats
from sottovoce.auditing.scores import covariance, optimal
from sottovoce.auditing.worlds import AROUND, Row, Worlds, labels_of

ANGLES = 24  # on the grid
RUNS, PILOT = 24, 1000  # of every row, and for the covariance
_CLIMB = 40  # evaluations from the best pair of the grid


class Pair(NamedTuple):
    """Two worlds: what they have in common, and the row of each in which they differ."""

    worlds: Worlds
    rows: tuple[Row, Row]
    distance: float  # between them, in standard deviations, as the search saw it


def looked_at(worlds: Worlds) -> int:
    """Largest number of rows that a search looks at, for its progress."""
    return len(AROUND) * (ANGLES * len(labels_of(worlds.algorithm.loss)) + 2 * _CLIMB)


def worst_pair(worlds: Worlds, seed: int, told: Callable[[int], None] | None = None) -> Pair:
    """The pair of rows with the largest distance that a search finds, over both kinds of other rows.

    `told` is called with the number of rows looked at since the last call.
    """
    # Sums are opened in coordinates that follow from a noisy sum. Other rows that do not cancel look like noise there.
    kinds = AROUND[:1] if worlds.view == "sums" else AROUND
    found = (_worst_pair_in(replace(worlds, around=kind), seed, told) for kind in kinds)
    return max(found, key=lambda pair: pair.distance)


def _worst_pair_in(worlds: Worlds, seed: int, told: Callable[[int], None] | None) -> Pair:
    """The pair with the largest distance among these other rows: the best of a grid, then a climb from there."""
    # The noise that is audited, from a pilot in one world: one row changes it little.
    pilot = worlds.seen(Row(np.pi / 2, labels_of(worlds.algorithm.loss)[0]), PILOT, seed)
    spread = covariance(pilot, pilot)

    @cache
    def effect(row: Row) -> Floats:
        if told is not None:
            told(1)
        found: Floats = worlds.seen(row, RUNS, seed, own=False).mean(axis=0)
        return found

    def distance(one: Row, other: Row) -> float:
        return optimal(effect(one) - effect(other), spread)[1]

    grid = [
        Row(angle, label)
        for angle in np.linspace(0, 2 * np.pi, ANGLES, endpoint=False).tolist()
        for label in labels_of(worlds.algorithm.loss)
    ]
    best = max(combinations(grid, 2), key=lambda pair: distance(*pair))
    labels = best[0].label, best[1].label

    def pair_of(angles: Floats) -> tuple[Row, Row]:
        one, other = (Row(float(angle), label) for angle, label in zip(angles, labels, strict=True))
        return one, other

    def missed(angles: Floats) -> float:
        return -distance(*pair_of(angles))

    near = np.array([row.angle for row in best])
    half = np.pi / ANGLES  # of a step of the grid
    climbed = minimize(
        missed, near, method="Powell", bounds=[(angle - half, angle + half) for angle in near.tolist()],
        options={"maxfev": _CLIMB},
    )  # fmt: skip
    found = max((best, pair_of(climbed.x)), key=lambda pair: distance(*pair))
    return Pair(worlds, found, distance(*found))
