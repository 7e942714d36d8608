"""One number for a transcript: the optimal weights of all that was seen.

Where a transcript x is normal with the same covariance S in both worlds and means that differ by m, no test beats one
of the score <S^-1 m, x>, and its distance between the worlds, in standard deviations, is sqrt(m^T S^-1 m) (Neyman and
Pearson; Fisher). Both are learnt from runs of the observer's own, which play no part in the judgement. The same noise
is drawn in both worlds there, so that m comes out almost exactly.

Where transcripts are not normal the weights are not optimal, and the bounds below stay bounds.
"""

from math import sqrt
from typing import NamedTuple

import numpy as np

from sottovoce.arrays import Floats

_RIDGE = 1e-10  # of a correlation: numbers that are functions of others, such as sent models that are sent again


class Score(NamedTuple):
    """Weights of what is seen, and the threshold that was fixed with them."""

    weights: Floats  # (numbers,)
    threshold: float  # above it, the second world is the better guess
    expected: float  # the distance between the worlds, as learnt

    def of(self, seen: Floats) -> Floats:
        """Scores, (runs,), of transcripts (runs, numbers)."""
        scores: Floats = seen @ self.weights
        return scores


def learn(first: Floats, second: Floats, noisy_first: Floats, noisy_second: Floats) -> Score:
    """The score that tells two worlds apart best, from transcripts (runs, numbers) of both.

    Args:
        first: of one world.
        second: of the other, with the same noise: the mean of what differs is m.
        noisy_first: of the first, with the noise that is audited: S and the threshold are theirs. It may be `first`.
        noisy_second: of the second, the same.
    """
    moved = (second - first).mean(axis=0)
    centre = (noisy_first.mean(axis=0) + noisy_second.mean(axis=0)) / 2
    weights, expected = optimal(moved, covariance(noisy_first, noisy_second))
    return Score(weights, float(centre @ weights), expected)


def covariance(first: Floats, second: Floats) -> Floats:
    """Covariance of what is seen, the mean over both worlds: (numbers, numbers)."""
    pooled: Floats = (np.atleast_2d(np.cov(first.T)) + np.atleast_2d(np.cov(second.T))) / 2
    return pooled


def optimal(moved: Floats, spread: Floats) -> tuple[Floats, float]:
    """S^-1 m, scaled so that a score has standard deviation 1, and the distance sqrt(m^T S^-1 m)."""
    unit = np.sqrt(np.diagonal(spread))
    unit = np.where(unit > 0, unit, np.maximum(np.abs(moved), 1.0) * np.sqrt(_RIDGE))
    correlation = spread / np.outer(unit, unit) + _RIDGE * np.eye(len(unit))
    weights = np.linalg.solve(correlation, moved / unit)
    distance = sqrt(max(float(weights @ (moved / unit)), 0.0))
    scaled: Floats = weights / unit / max(distance, np.finfo(np.float64).tiny)
    return scaled, distance
