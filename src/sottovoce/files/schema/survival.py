"""A label that says how long rows were watched, and whether that ended with an event: times to an event.

Public: the time until which all are watched, and the bins up to it. Rows that are watched for longer count as censored
then, whatever happened later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.errors import InputError, expect
from sottovoce.files.schema.cells import Cells, Encoded
from sottovoce.files.schema.column import Column
from sottovoce.files.schema.columns import Boolean, Numeric, Ranged
from sottovoce.files.schema.findings import Finding
from sottovoce.files.schema.labels import EncodedLabels, Label
from sottovoce.files.schema.values import check_word
from sottovoce.problem.losses.hazards import in_intervals
from sottovoce.settings import brief, written

MOST_TIMES = 200  # bins
HAPPENED = ("1", "yes", "Yes", "YES", "true", "True", "TRUE")
CENSORED = ("0", "no", "No", "NO", "false", "False", "FALSE")


@final
@dataclass(frozen=True, kw_only=True)
class Duration(Ranged):
    """Times from 0 on, as shares of the upper bound: above 1 where they are later. A time below 0 is refused."""

    @classmethod
    def kind(cls) -> str:
        return "duration"

    def wants(self) -> str:
        return "a time of 0 or more"

    def _numbers(self, cells: Cells) -> tuple[Floats, Finding]:
        return cells.numbers(), Finding.NOT_A_NUMBER

    def _present(self, cells: Cells) -> Encoded:
        encoded, (x, _) = super()._present(cells), self._numbers(cells)
        with np.errstate(invalid="ignore"):
            finding = np.where(x < 0, Finding.NEGATIVE, encoded.finding).astype(np.uint8)
        share: Floats = np.where(np.isnan(x), 0.0, x) / self.bounds[1]
        return Encoded(encoded.place, share, finding)


@final
@dataclass(frozen=True, kw_only=True)
class SurvivalLabel(Label):
    """A time, and whether it ended with an event: 1 or yes. A row without one of them is refused.

    Args:
        time: the column of times, from 0 on.
        event: the column that says whether the time ended with the event (1) or the row was censored then (0).
        until: the time at which all rows that are still watched are censored.
        bins: so many equal bins from 0 to `until`.
        edges: or the ends of all bins but the last, which is `until`.
    """

    time: str
    event: str
    until: float
    bins: int | None = None
    edges: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_word("label.time", self.time)
        check_word("label.event", self.event)
        expect(self.time != self.event, "label.time and label.event in two columns", event=self.event)
        fine = isfinite(self.until) and self.until > 0
        expect(fine, "label.until to be a time above 0, in the unit of label.time", until=self.until)
        if (self.bins is None) == (self.edges is None):
            raise InputError(
                f"Expected one of label.bins and label.edges, got bins={self.bins}, edges={brief(self.edges)}. Say how "
                "many equal bins there are from 0 to label.until, or where bins end."
            )
        many = len(self.ends) - 1
        expect(1 <= many <= MOST_TIMES, f"at most {MOST_TIMES} bins of label.time, and one at least", bins=many)
        if self.edges is not None and not bool(np.all(np.diff(self.ends) > 0)):
            wanted = f"label.edges to rise strictly, above 0 and below label.until={self.until:g}"
            raise InputError(f"Expected {wanted}, got edges={brief(list(self.edges))}.")

    @property
    def name(self) -> str:
        return self.time

    @property
    def ends(self) -> tuple[float, ...]:
        """Where the first bin begins, which is 0, and where all end."""
        if self.edges is not None:
            return (0.0, *self.edges, self.until)
        bins = self.bins or 0
        return (*(self.until * i / bins for i in range(bins)), self.until)

    @property
    def watched(self) -> tuple[Duration, Boolean]:
        """The two columns."""
        event = Boolean(name=self.event, true_values=HAPPENED, false_values=CENSORED)
        return Duration(name=self.time, bounds=(0.0, self.until), scale="unit"), event

    @property
    def parts(self) -> tuple[Column, ...]:
        return self.watched

    def learnt(self, cells: Sequence[Cells]) -> EncodedLabels:
        """Times in bins, above 0: 2.5 is in the middle of the third. Negative where a row was censored then."""
        (time, times), (event, events) = (part.codes(one) for part, one in zip(self.watched, cells, strict=True))
        found = in_intervals(time * self.until, event == 1, self.ends)
        return EncodedLabels(found, np.column_stack((times, events)))

    def as_columns(self) -> tuple[Column, ...]:
        return Numeric(name=self.time, bounds=(0.0, self.until), scale="unit"), self.watched[1]

    def meaning(self) -> str:
        return f"time until {self.event}, censored at {self.until:g}, in {len(self.ends) - 1} bins"


written(SurvivalLabel, "time", "event", "until", ..., absent=(None,))
