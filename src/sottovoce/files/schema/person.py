"""The person of a row: the column that names them, and how many rows a person may have. It is never a feature."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from sottovoce.arrays import Ints, Texts
from sottovoce.errors import InputError, expect
from sottovoce.files.schema.cells import Cells
from sottovoce.files.schema.findings import Finding, Findings
from sottovoce.files.schema.values import check_word
from sottovoce.problem.people import DROPPED, SURPLUS, Surplus

if TYPE_CHECKING:
    from sottovoce.privacy.unit import Unit

MOST_ROWS = 10**6  # of a person


@final
@dataclass(frozen=True, kw_only=True)
class Person:
    """The column that names the person of a row, and the limit on rows per person.

    Args:
        column: names the person of every row, by any text; equal texts are one person. It is read and compared, never
            encoded, kept or sent. A row without one is refused: nobody could tell whose it is.
        rows: k, the most rows of a person that are learnt from, at each site. The noise grows with it.
        surplus: what becomes of a person with more: "refuse" the file, or "drop" all but their first k rows, in the
            order of the file. What is kept of a name depends on no other name, so this covers people who leave others'
            names alone, and no more: rows under others' names push theirs out. With "refuse" any rows are covered.
    """

    column: str
    rows: int
    surplus: Surplus = "refuse"

    def __post_init__(self) -> None:
        check_word("person.column", self.column)
        if not 1 <= self.rows <= MOST_ROWS:
            raise InputError(
                f"Expected person.rows from 1 to {MOST_ROWS}, got rows={self.rows}. Say how many rows of a person may "
                "be learnt from, or leave [person] out to protect single rows."
            )
        expect(self.surplus in SURPLUS, f"person.surplus among {', '.join(SURPLUS)}", surplus=self.surplus)

    def unit(self, sites: int = 1) -> "Unit":
        """The unit of privacy, if a person has rows at so many sites at most."""
        from sottovoce.privacy.unit import Unit  # heavy, and not needed to read a schema

        return Unit(self.rows, sites)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes that a privacy statement must carry."""
        return (DROPPED,) if self.surplus == "drop" else ()

    def findings(self, cells: Cells) -> Findings:
        """The finding of every cell; a cell that names nobody is refused."""
        found: Findings = np.full(len(cells), Finding.FITS, dtype=np.uint8)
        found[cells.missing()] = Finding.MISSING
        found[cells.unreadable()] = Finding.NOT_TEXT
        return found


class PersonNumbers:
    """Numbers the names of people from 0, across all chunks of a file."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, texts: Texts) -> Ints:
        """The number of each name; equal names have equal numbers."""
        names, places = np.unique(texts, return_inverse=True)
        numbers = [self._known.setdefault(str(name), len(self._known)) for name in names]
        found: Ints = np.array(numbers, dtype=np.int64)[places.reshape(-1)]
        return found
