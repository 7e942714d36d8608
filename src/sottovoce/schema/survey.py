"""What a file looks like, column by column, for a first draft of its schema. Everything found here is private."""

from dataclasses import dataclass, field
from math import inf
from pathlib import Path

import numpy as np

from sottovoce.errors import InputError
from sottovoce.schema.cells import Cells
from sottovoce.schema.parse import MISSING_VALUES
from sottovoce.schema.reading import Chunk, open_table
from sottovoce.schema.values import brief

MOST_CATEGORIES = 100


@dataclass
class Seen:
    """What was seen of one column so far."""

    name: str
    missing: int = 0
    values: int = 0
    texts: set[str] = field(default_factory=set)  # no longer complete once there are more than MOST_CATEGORIES
    numeric: bool = True
    whole: bool = True
    low: float = inf
    high: float = -inf

    def add(self, cells: Cells) -> None:
        """Take in a chunk."""
        there = ~cells.missing()
        self.missing += int(np.count_nonzero(~there))
        self.values += int(np.count_nonzero(there))
        if self.few:
            self.texts.update(cells.distinct())
        if self.numeric and there.any():
            numbers = cells.numbers()[there]
            self.numeric = not np.isnan(numbers).any()
            self.whole = self.whole and bool((numbers == np.floor(numbers)).all())
            self.low, self.high = min(self.low, float(numbers.min())), max(self.high, float(numbers.max()))

    @property
    def few(self) -> bool:
        """Whether there are few enough different values for categories."""
        return len(self.texts) <= MOST_CATEGORIES


def survey(path: str | Path) -> list[Seen]:
    """Look at every column of a file."""
    table = open_table(path)
    seen = [Seen(name) for name in table.names]
    for chunk in table.chunks(table.names, MISSING_VALUES):
        for column, cells in zip(seen, chunk.cells, strict=True):
            _refuse_bytes(table.path, column.name, chunk, cells)
            column.add(cells)
    if not any(column.values or column.missing for column in seen):
        raise InputError(f"Expected at least one row in file={str(path)!r}, got none.")
    return seen


def _refuse_bytes(path: Path, name: str, chunk: Chunk, cells: Cells) -> None:
    bad = np.flatnonzero(cells.unreadable())
    if len(bad):
        where = f"row {chunk.rows[bad[0]]}, column {brief(name)} of file={str(path)!r}"
        raise InputError(f"Expected UTF-8 text in {where}, got {cells.shown(int(bad[0]))!r}.")
