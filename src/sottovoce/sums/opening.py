"""Opening sums where all rows are at hand: a curator adds one draw of noise to the exact sum.

The noise of a sum is drawn as a whole, which has the same law as the sum of all sites' shares. Over MPI, the exact sum
goes through all processes (`Oracle.others`), and the draw is the first process's (`Noise.shared`). Real sites open sums
by masks: `sottovoce.federation.site.masked_sums`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.noise.sources import Noise
from sottovoce.oracle.row_sums import RowSums
from sottovoce.sums.program import Opened, Question


class Shares(NamedTuple):
    """How much noise every sum holds."""

    multipliers: tuple[float, ...]  # of each line: standard deviation over sensitivity, of `honest` shares together
    honest: int  # u - c, number of shares in which that noise is


class Opener(ABC):
    """Opens the sums of a run, one after the other."""

    @abstractmethod
    def open(self, k: int, question: Question[Any]) -> Opened:
        """The opened sum number k, from 1 on, that this question asks for."""


@final
class Curator(Opener):
    """Adds noise to exact sums.

    Args:
        shares: of noise.
        site: the rows.
        counts: numbers of rows of all sites that take part.
        noise: where the draws come from.
        runs: number of runs, each with draws of its own.
    """

    def __init__(self, shares: Shares, site: RowSums, counts: Sequence[int], noise: Noise, runs: int) -> None:
        self.shares, self.site, self.counts, self.noise, self.runs = shares, site, counts, noise, runs

    def open(self, k: int, question: Question[Any]) -> Opened:
        rows, sigma = question.over(self.counts), self.shares.multipliers[k - 1]
        exact = question.of(self.site, rows)
        if sigma == 0:
            return Opened(question, np.repeat(exact, self.runs // exact.shape[1], axis=1), np.zeros((1, 1)), rows)
        # One share for every site that is held here, in this process or another.
        held = math.sqrt(self.site.network.sites.n / self.shares.honest)
        std: Floats = held * (sigma * question.sensitivity(self.site, rows))
        z = self.noise.vector(k, len(exact)).astype(np.float64, copy=False)
        return Opened(question, exact + std * z, std, rows)
