"""Cross-tables of two or three columns, with a test of independence that accounts for the noise.

With T the noisy counts, s the noise in each, and e the counts that are expected if the two columns are independent
within each level of the third, from the likeliest counts:

    X = sum (T - e)^2 / (e + s^2)

A cell's variance is about e from drawing rows, and s^2 from the noise. How X is distributed where the columns are
independent is found by drawing: tables with the expected shares, noise of their own, and the same computation. The
draws are made from released numbers alone, with a fixed seed, so they cost nothing and the same table has the same p.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.document import Folded, Part
from sottovoce.privacy import PrivacyStatement
from sottovoce.privacy.words import guarantee
from sottovoce.settings import written
from sottovoce.tables.coding import Coding, Levels, levels_of
from sottovoce.tables.consistent import Consistent, around
from sottovoce.tables.description import csv_of
from sottovoce.tables.found import FoundTable
from sottovoce.tally.intervals import Interval, nearest_counts

DRAWS, SEED = 4000, 0


@final
@dataclass(frozen=True)
class IndependenceTest:
    """A test of whether two columns are independent, given the third if there is one.

    Args:
        statistic: X.
        p: how often X is as large where they are independent.
        freedom: degrees of freedom of Pearson's statistic without noise.
        draws: that p was found from.
    """

    statistic: float
    p: float
    freedom: int
    draws: int


class CrossLine(NamedTuple):
    """One cell as numbers."""

    levels: tuple[str, ...]
    figure: str
    value: float | None
    low: float
    high: float


@final
@dataclass(frozen=True, repr=False)
class CrossTable(FoundTable):
    """Counts of rows by level of two or three columns, from one noisy sum.

    Args:
        rows: N. Public.
        columns: their names.
        levels: of each.
        counts: of every combination of levels, the last column's fastest. They add up to `rows`.
        shares: of all rows.
        test: of independence of the first two columns; None if there is none.
        noise: standard deviation of the noise in a count; the largest, if they differ.
        privacy: the guarantee.
    """

    rows: int
    columns: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    counts: tuple[Interval, ...]
    shares: tuple[Interval, ...]
    test: IndependenceTest | None
    noise: float
    privacy: PrivacyStatement
    format: ClassVar[str] = "sottovoce-cross-table/1"

    @property
    def title(self) -> str:
        return f"Rows by {' and '.join(self.columns)}"

    def cell(self, first: int, second: int, third: int = 0) -> int:
        """Index of a combination of levels."""
        sizes = [len(own) for own in self.levels]
        return (first * sizes[1] + second) * (sizes[2] if len(sizes) > 2 else 1) + third

    def described(self) -> list[Part]:
        """The table, its test, and its price; in HTML, its guarantee in full, folded."""
        from sottovoce.tables.words import crossed

        return [*crossed(self), Folded("Its guarantee in full", guarantee(self.privacy))]

    def lines(self) -> Iterator[CrossLine]:
        """All numbers, one line each."""
        names = np.array(np.meshgrid(*[np.array(own, dtype=object) for own in self.levels], indexing="ij"))
        for which, count, share in zip(names.reshape(len(self.levels), -1).T, self.counts, self.shares, strict=True):
            yield CrossLine(tuple(which), "count", count.value, count.low, count.high)
            yield CrossLine(tuple(which), "share", share.value, share.low, share.high)

    def to_csv(self) -> str:
        found = ((*one.levels, one.figure, one.value, one.low, one.high) for one in self.lines())
        return csv_of((*self.columns, "figure", "value", "low", "high"), found)


written(CrossTable, "format", ...)


def cross_table_of(
    coding: Coding, noisy: Floats, std: float, rows: int, privacy: PrivacyStatement, together: int = 1
) -> CrossTable:
    """What a noisy sum of rows by combination of levels says; arguments as of `description_of`."""
    (part,), (table,) = coding.parts, coding.split(noisy)
    assert isinstance(part, Levels)
    agreed = Consistent.of([table], [std**2], rows, together)
    (view,), (whole,) = agreed.views(0), agreed.whole_tables()[0]
    shares = [view.share(place) for place in range(part.width)]
    counts = tuple(
        around(float(count), one.times(float(rows))) for count, one in zip(whole.tolist(), shares, strict=True)
    )
    shown = tuple(around(count / rows, one) for count, one in zip(whole.tolist(), shares, strict=True))
    return CrossTable(
        rows=rows, columns=tuple(column.name for column in part.of), levels=tuple(map(levels_of, part.of)),
        counts=counts, shares=shown, test=independence(view.cells.reshape(part.sizes), std, rows, together),
        noise=std, privacy=privacy,
    )  # fmt: skip


def independence(cells: Floats, std: float, rows: int, together: int = 1, draws: int = DRAWS) -> IndependenceTest:
    """Test whether the first two axes are independent, within each place of the third if there is one.

    Args:
        cells: noisy counts that add up to `rows`.
        std: of the noise in each.
        rows: N.
        together: how many rows may be alike since they belong together: rows are drawn so many at a time.
        draws: of tables of independent columns.
    """
    cells = cells if cells.ndim == 3 else cells[:, :, None]
    flat = cells.reshape(1, -1)
    expected = _expected(nearest_counts(flat, float(rows)), cells.shape)
    random = np.random.default_rng(SEED)
    chances = expected[0] / expected[0].sum()
    drawn = together * random.multinomial(max(rows // together, 1), chances, size=draws).astype(np.float64)
    drawn += std * random.standard_normal(drawn.shape)
    drawn -= (drawn.sum(axis=1, keepdims=True) - rows) / drawn.shape[1]  # as all tables are made to
    under = _statistic(drawn, _expected(nearest_counts(drawn, float(rows)), cells.shape), std)
    found = float(_statistic(flat, expected, std)[0])
    # Equal up to rounding counts as equal: tables without noise come out the same again and again.
    p = (1 + int(np.count_nonzero(under >= found * (1 - 1e-9)))) / (1 + draws)
    first, second, third = cells.shape
    return IndependenceTest(found, p, (first - 1) * (second - 1) * third, draws)


def _expected(counts: Floats, shape: tuple[int, ...]) -> Floats:
    """The counts if the first two axes were independent within each place of the third: (tables, cells) both."""
    table = counts.reshape(len(counts), *shape)
    first, second = table.sum(axis=2, keepdims=True), table.sum(axis=1, keepdims=True)
    whole = table.sum(axis=(1, 2), keepdims=True)
    expected: Floats = first * second / np.where(whole > 0, whole, 1.0)
    return expected.reshape(len(counts), -1)


def _statistic(counts: Floats, expected: Floats, std: float) -> Floats:
    variance = expected + std**2
    found: Floats = np.sum((counts - expected) ** 2 / np.where(variance > 0, variance, 1.0), axis=1)
    return found
