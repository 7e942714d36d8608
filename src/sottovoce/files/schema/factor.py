"""A number that a row brings besides features and label: how much it counts, or its exposure. It is no feature."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, final, get_args

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.errors import expect
from sottovoce.files.schema.cells import Cells
from sottovoce.files.schema.findings import Finding, Findings
from sottovoce.files.schema.values import check_word
from sottovoce.problem.factors import expect_bound
from sottovoce.settings import written

Above: TypeAlias = Literal["refuse", "clip"]


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
        above: what becomes of a larger one: "refuse" the row, or "clip" it to the bound. Exposures are never clipped.
    """

    column: str
    bound: float
    above: Above = "refuse"

    def __post_init__(self) -> None:
        check_word("column", self.column)
        expect_bound("bound", self.bound)
        expect(self.above in get_args(Above), f"above among {', '.join(get_args(Above))}", above=self.above)
        # 10 and 10.0 are one bound, so they must be one text: agreements rest on the digest of a schema.
        object.__setattr__(self, "bound", float(self.bound))

    def encode(self, cells: Cells) -> EncodedFactors:
        """The numbers of a chunk; a cell that is no number above 0, or one above the bound, is refused, unless
        that is clipped.
        """
        value = cells.numbers()
        finding: Findings = np.full(len(cells), Finding.FITS, dtype=np.uint8)
        with np.errstate(invalid="ignore"):
            positive, larger = value > 0, value > self.bound
        finding[~positive] = Finding.OUTSIDE
        finding[larger] = Finding.CLIPPED if self.above == "clip" else Finding.OUTSIDE
        finding[np.isnan(value)] = Finding.NOT_A_NUMBER
        finding[cells.missing()] = Finding.MISSING
        finding[cells.unreadable()] = Finding.NOT_TEXT
        value = np.where(finding < Finding.MISSING, np.minimum(value, self.bound), 1.0)
        return EncodedFactors(value, finding)

    def wants(self) -> str:
        """What a cell should be, for messages."""
        return f"a number above 0 and at most {self.bound:g}"

    def words(self) -> tuple[str, ...]:
        """The declared texts of a cell: none, as it is a number."""
        return ()


written(Factor, ..., absent=("refuse",))
