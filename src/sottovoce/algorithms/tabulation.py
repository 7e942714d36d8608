"""The statistic that tables are made of: one noisy sum over all sites of coded rows.

A coding (`sottovoce.tables.coding`) turns a row into numbers of which none is negative, such as a 1 at the cell of a
table that the row is counted in. Their bound B is public, and the sum of all rows is the table, with noise of standard
deviation sigma sqrt(2) B in each cell. What is made of the noisy table costs nothing. Privacy: docs/proofs/tables.md.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

from sottovoce.algorithms.analysis import Statistic
from sottovoce.sums.program import Ask, Known, Line, Opened, Program
from sottovoce.sums.questions import Totals


@dataclass(frozen=True, kw_only=True)
class Counting(Statistic[Opened]):
    """One sum of coded rows. Its answer is the noisy sum: (numbers, runs), with the noise in it."""

    @property
    @abstractmethod
    def counted(self) -> str:
        """What is counted, in words of the statement: "how many rows are at each level of 3 columns"."""

    def schedule(self, features: int) -> tuple[Line, ...]:
        """One sum, with the whole budget."""
        return (Line("table", features, 0, 1.0),)

    def program(self, known: Known) -> Program[Opened]:  # noqa: ARG002
        """Ask for the sum, and hand it on."""
        return (yield Ask(Totals(), None))

    @property
    def released(self) -> str:
        """What everyone sees, in words."""
        return f"the noisy sum over all sites of {self.counted}, once; single sites' messages are masked"

    @property
    def noisy(self) -> str:
        """The sum of all rows."""
        return "each number of the sum"


@final
@dataclass(frozen=True, kw_only=True)
class Tabulation(Counting):
    """The sum of rows that are coded already.

    Args:
        what: is counted, in words of the statement.
    """

    what: str

    @property
    def counted(self) -> str:
        return self.what
