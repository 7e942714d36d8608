"""Findings of cells that do not simply fit their column, and the report that collects them.

A note is a cell that the schema deals with (clipped, put under "other", filled in, dropped with its row). A refusal is
one that it does not deal with: a file with a refusal is not encoded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sottovoce.settings import written

Findings: TypeAlias = NDArray[np.uint8]  # one `Finding` for every cell


class Finding(IntEnum):
    """One cell against its column. Everything from `MISSING` on is a refusal."""

    FITS = 0
    CLIPPED = 1
    OTHER = 2
    FILLED = 3
    INDICATED = 4
    DROPPED = 5
    CUT = 6
    MISSING = 7
    NOT_A_NUMBER = 8
    UNKNOWN = 9
    NOT_TEXT = 10
    RAGGED = 11
    NO_COLUMN = 12
    NO_ROWS = 13
    NOT_A_DATE = 14
    SURPLUS = 15
    OUTSIDE = 16
    NEGATIVE = 17

    @property
    def refused(self) -> bool:
        """True if a file with such a cell is not encoded."""
        return self >= Finding.MISSING

    @property
    def words(self) -> str:
        """The finding in words, for the tables of a report."""
        return _WORDS[self]


_WORDS = {
    Finding.FITS: "fits",
    Finding.CLIPPED: "outside the bounds: clipped",
    Finding.OTHER: 'unknown category: counted as "other"',
    Finding.FILLED: "missing: filled in",
    Finding.INDICATED: "missing: own feature",
    Finding.DROPPED: "missing: row dropped",
    Finding.CUT: "more rows of a person than declared: row dropped",
    Finding.MISSING: "missing",
    Finding.NOT_A_NUMBER: "not a number",
    Finding.UNKNOWN: "not among those declared",
    Finding.NOT_TEXT: "not UTF-8 text",
    Finding.RAGGED: "row with another number of fields than the header",
    Finding.NO_COLUMN: "column not in the file",
    Finding.NO_ROWS: "no rows in the file",
    Finding.NOT_A_DATE: "not a date",
    Finding.SURPLUS: "more rows of a person than declared",
    Finding.OUTSIDE: "not above 0, or above the bound",
    Finding.NEGATIVE: "below 0",
}


@dataclass(frozen=True)
class CellProblem:
    """A cell, row or column that does not simply fit. Rows count from 1 below the header; blank lines do not count."""

    row: int | None
    column: str | None
    finding: Finding
    message: str


@dataclass(frozen=True)
class Count:
    """Number of cells of a column with the same finding."""

    column: str | None
    finding: Finding
    cells: int

    @property
    def refused(self) -> bool:
        """True if a file with such cells is not encoded."""
        return self.finding.refused


written(Count, "column", "finding", "refused", "cells")


@dataclass(frozen=True)
class Report:
    """The result of checking a file against a schema."""

    rows: int  # rows read
    used: int  # rows that fit: neither dropped nor refused
    counts: tuple[Count, ...]
    problems: tuple[CellProblem, ...]  # the first refusals, by row
    notes: tuple[CellProblem, ...]  # the first notes, by row
    unused_columns: tuple[str, ...]  # in the file, not in the schema

    @property
    def fits(self) -> bool:
        """True if the file can be encoded."""
        return not any(count.refused for count in self.counts)


written(Report, "fits", ...)


class Tally:
    """Collects findings chunk by chunk: all are counted, the first ones are kept."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._counts: dict[tuple[str | None, Finding], int] = {}
        self.problems: list[CellProblem] = []
        self.notes: list[CellProblem] = []

    def count(self, column: str | None, findings: Findings) -> None:
        """Add a chunk of one column to the counts."""
        for code, cells in enumerate(np.bincount(findings)):
            if code and cells:
                key = column, Finding(code)
                self._counts[key] = self._counts.get(key, 0) + int(cells)

    def room(self, refused: bool) -> int:
        """Number of problems, or of notes, that can still be kept."""
        return self._keep - len(self.problems if refused else self.notes)

    def keep(self, problem: CellProblem) -> None:
        """Keep a problem, unless as many as wanted are kept already."""
        if self.room(problem.finding.refused) > 0:
            (self.problems if problem.finding.refused else self.notes).append(problem)

    def add(self, problem: CellProblem) -> None:
        """Count a problem that belongs to no chunk, and keep it while there is room."""
        self.count(problem.column, np.array([problem.finding], dtype=np.uint8))
        self.keep(problem)

    def report(self, rows: int, used: int, unused: Sequence[str]) -> Report:
        """The finished report, refusals first."""
        counts = [Count(column, finding, cells) for (column, finding), cells in self._counts.items()]
        counts.sort(key=lambda count: not count.refused)
        problems = sorted(self.problems, key=lambda problem: problem.row or 0)
        return Report(rows, used, tuple(counts), tuple(problems), tuple(self.notes), tuple(unused))
