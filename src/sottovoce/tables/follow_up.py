"""How long rows were watched, coded for survival curves: the bin of a row's time, and whether it ended with the event.

Bins begin after one public time and end with the next, so that an event at the end of a bin belongs to it. A row has
one 1 among 2 K + 1 cells: events by bin, censored rows by bin, and rows that were watched beyond the last bin, whatever
happened then. A row that is censored within a bin was at risk for a part of it, u. What it lacks is one more number,

    alpha (1 - u)     within [0, alpha]

so that curves need not assume when in a bin rows are censored. A row's numbers have a norm of at most
sqrt(1 + alpha^2), and none is negative. Proof: docs/proofs/tables.md.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import sqrt
from typing import final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.files.schema import Boolean, Column
from sottovoce.files.schema.survival import Duration
from sottovoce.tables.coding import Entries, Part

ALPHA = 0.25  # small, as curves hardly depend on these numbers: a bin's share of events times what is lost of it
SLACK = 1e-12  # of a time as a share: it may be an end of a bin up to rounding


@final
@dataclass(frozen=True)
class FollowUp(Part):
    """Time and event of a row.

    Args:
        duration: the column of times, whose codes are shares of the last end of a bin; above 1 if a row was watched for
            longer.
        event: whether it ended with the event: 1 or 0.
        ends: of the bins, as shares: from 0, where the first begins, to 1.
    """

    duration: Duration
    event: Boolean
    ends: tuple[float, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return (self.duration, self.event)

    @property
    def norm(self) -> float:
        return sqrt(1 + ALPHA**2)

    @property
    def bins(self) -> int:
        """Number of bins."""
        return len(self.ends) - 1

    @property
    def cells(self) -> int:
        """Number of numbers one of which is 1 in each row."""
        return 2 * self.bins + 1

    @property
    def times(self) -> Floats:
        """Where the first bin begins, and where all end, in the unit of the column."""
        times: Floats = np.array(self.ends) * self.duration.bounds[1]
        return times

    @cached_property
    def names(self) -> tuple[str, ...]:
        named = [f"{low:g} to {high:g}" for low, high in pairwise(self.times.tolist())]
        kinds = [f"{what}, {one}" for what in ("event", "censored") for one in named]
        return (*kinds, "beyond", *(f"not watched of {one}" for one in named))

    def entries(self, codes: Floats) -> Entries:
        (time, event), ends, bins = codes.T, np.array(self.ends), self.bins
        which = np.clip(np.searchsorted(ends + SLACK, time, side="left") - 1, 0, bins - 1)
        beyond, died = time > 1 + SLACK, event == 1
        place = np.where(beyond, 2 * bins, np.where(died, which, bins + which))
        lacks = np.clip((ends[which + 1] - time) / (ends[which + 1] - ends[which]), 0.0, 1.0)
        lost = np.where(beyond | died, 0.0, ALPHA * lacks)
        return Entries(np.stack([place, self.cells + which], axis=1), np.stack([np.ones(len(time)), lost], axis=1))
