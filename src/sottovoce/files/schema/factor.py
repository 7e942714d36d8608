"""A number that a row brings besides features and label: how much it counts, or its exposure. It is no feature."""

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.files.schema.cells import Cells
from sottovoce.files.schema.findings import Finding, Findings
from sottovoce.files.schema.values import check_word
from sottovoce.problem.factors import expect_bound


class EncodedFactors(NamedTuple):
    """Weights or exposures of a chunk, in their own unit; 1 where a cell is refused."""

    value: Floats
    finding: Findings


@final
@dataclass(frozen=True, kw_only=True)
class Factor:
    """A column of numbers above 0 and at most `bound`; a row without one is refused.

    Args:
        column: holds it: neither a feature nor the label.
        bound: the largest that there may be: public, and agreed without a look at the rows.
    """

    column: str
    bound: float

    def __post_init__(self) -> None:
        check_word("column", self.column)
        expect_bound("bound", self.bound)
        # 10 and 10.0 are one bound, so they must be one text: agreements rest on the digest of a schema.
        object.__setattr__(self, "bound", float(self.bound))

    def encode(self, cells: Cells) -> EncodedFactors:
        """The numbers of a chunk; a cell that is no number in (0, bound] is refused."""
        value = cells.numbers()
        finding: Findings = np.full(len(cells), Finding.FITS, dtype=np.uint8)
        with np.errstate(invalid="ignore"):
            fits = (value > 0) & (value <= self.bound)
        finding[~fits] = Finding.OUTSIDE
        finding[np.isnan(value)] = Finding.NOT_A_NUMBER
        finding[cells.missing()] = Finding.MISSING
        finding[cells.unreadable()] = Finding.NOT_TEXT
        value = np.where(finding == Finding.FITS, value, 1.0)
        return EncodedFactors(value, finding)

    def wants(self) -> str:
        """What a cell should be, for messages."""
        return f"a number above 0 and at most {self.bound:g}"

    def words(self) -> tuple[str, ...]:
        """The declared texts of a cell: none, as it is a number."""
        return ()
