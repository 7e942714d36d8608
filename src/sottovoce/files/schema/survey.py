"""A summary of every column of a file, for a first draft of its schema. Everything found here is private."""

from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, get_args

import numpy as np

from sottovoce.errors import InputError
from sottovoce.files.schema.cells import Cells
from sottovoce.files.schema.columns import DateOrder
from sottovoce.files.schema.form import FileForm
from sottovoce.files.schema.reading import open_table
from sottovoce.settings import brief

MOST_CATEGORIES = 100
MOST_COMPARED = 2**17  # values of a column that are looked at to see whether all are different
MISSING_VALUES = ("", "?", "NA", "N/A", "nan", "NaN", "null", "NULL", "<NA>")  # of a draft, whatever is in the file
_ORDERS = get_args(DateOrder)


@dataclass
class Seen:
    """Counts, texts and range of one column, from the chunks read so far."""

    name: str
    missing: int = 0
    values: int = 0
    texts: set[str] = field(default_factory=set)  # no longer complete once there are more than MOST_CATEGORIES
    numeric: bool = True
    whole: bool = True
    low: float = inf
    high: float = -inf
    # Orders of year, month and day that all values can be read in, with the first and the last day.
    spans: dict[str, tuple[float, float]] = field(default_factory=lambda: dict.fromkeys(_ORDERS, (inf, -inf)))
    truths: bool = False  # the file itself says that it holds truth values
    _compared: Any = field(default_factory=list)  # values so far; None once two are alike or there are too many

    def add(self, cells: Cells) -> None:
        """Update the counts with the next chunk."""
        there = ~cells.missing()
        self.missing += int(np.count_nonzero(~there))
        self.values += int(np.count_nonzero(there))
        self.truths = cells.are_truths()
        if self.few:
            self.texts.update(cells.distinct())
        if self.numeric and there.any():
            numbers = cells.numbers()[there]
            self.numeric = not np.isnan(numbers).any()
            self.whole = self.whole and bool((numbers == np.floor(numbers)).all())
            self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))
            # Whole numbers that are all different are identifiers. The first ones of a long file are enough.
            if self._compared is not None and sum(map(len, self._compared)) < MOST_COMPARED:
                joined = np.concatenate([*self._compared, numbers])
                self._compared = [joined] if len(np.unique(joined)) == len(joined) else None
        if not self.numeric:
            for order, (low, high) in tuple(self.spans.items()):
                days = cells.days(order)[there]
                if np.isnan(days).any():
                    del self.spans[order]
                elif len(days):
                    self.spans[order] = min(low, float(days.min())), max(high, float(days.max()))
        elif there.any():
            self.spans.clear()

    @property
    def dated(self) -> bool:
        """True if all values are dates, in one order of year, month and day at least."""
        return not self.numeric and bool(self.spans) and self.values > 0

    @property
    def different(self) -> bool:
        """True if the values are many whole numbers, no two alike."""
        return self.numeric and self.whole and self.values > MOST_CATEGORIES and self._compared is not None

    @property
    def few(self) -> bool:
        """True if there are few enough different values for categories."""
        return len(self.texts) <= MOST_CATEGORIES


def survey(path: str | Path, form: FileForm) -> list[Seen]:
    """Read a whole file and summarize each of its columns. Bytes that are no UTF-8 are refused."""
    table = open_table(path, form)
    seen = [Seen(name) for name in table.names]
    for chunk in table.chunks(table.names, MISSING_VALUES):
        for column, cells in zip(seen, chunk.cells, strict=True):
            bad = np.flatnonzero(cells.unreadable())
            if len(bad):
                where = f"row {chunk.rows[bad[0]]}, column {brief(column.name)} of file={str(table.path)!r}"
                raise InputError(f"Expected UTF-8 text in {where}, got {cells.shown(int(bad[0]))!r}.")
            column.add(cells)
    if not any(column.values or column.missing for column in seen):
        raise InputError(f"Expected at least one row in file={str(path)!r}, got none.")
    return seen
