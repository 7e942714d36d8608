"""Who is in the study: counts and shares of all levels, and what numbers are like, in all and by group."""

import csv
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, TypeAlias, final

from sottovoce.arrays import Floats, Ints
from sottovoce.document import Folded, Part
from sottovoce.privacy import PrivacyStatement
from sottovoce.privacy.words import guarantee
from sottovoce.settings import written
from sottovoce.tables.coding import Coding, Number, levels_of
from sottovoce.tables.coding import Part as CodedPart
from sottovoce.tables.consistent import Consistent, around
from sottovoce.tables.figures import QUARTILES, Measured, level_difference, number_difference
from sottovoce.tables.found import FoundTable
from sottovoce.tally.intervals import Interval

FigureName: TypeAlias = Literal["mean", "standard deviation", "lower quartile", "median", "upper quartile"]
FIGURES: tuple[FigureName, ...] = ("mean", "standard deviation", "lower quartile", "median", "upper quartile")
EVERYONE = "all"


@final
@dataclass(frozen=True)
class Level:
    """One level of a column. Tuples have one entry for all rows, and then one for each group.

    Args:
        name: of the level.
        counts: of rows. They add up over levels and groups.
        shares: of the rows of each group.
        differences: from the first group, standardised, of every other group; none for the bins of a number.
    """

    name: str
    counts: tuple[Interval, ...]
    shares: tuple[Interval, ...]
    differences: tuple["Difference", ...] = ()


@final
@dataclass(frozen=True)
class Difference:
    """A standardised difference with its 95 % interval; None where the noise hides it."""

    value: float | None
    low: float | None
    high: float | None


@final
@dataclass(frozen=True)
class DescribedColumn:
    """What is known of one column.

    Args:
        name: of the column.
        levels: of one that has levels; of a number, its bins and what is missing.
        figures: of a number, by name: for all rows that have a value, and then for those of each group.
        differences: of a number's means, as of a level.
        noise: standard deviation of the noise in a count of one group, as it was released.
    """

    name: str
    levels: tuple[Level, ...]
    figures: Mapping[FigureName, tuple[Interval, ...]]
    differences: tuple[Difference, ...]
    noise: float

    @property
    def number(self) -> bool:
        """True if the column is a number."""
        return bool(self.figures)


class Line(NamedTuple):
    """One line of the table as numbers."""

    column: str
    level: str
    group: str
    figure: str
    value: float | None
    low: float | None
    high: float | None


@final
@dataclass(frozen=True, repr=False)
class Description(FoundTable):
    """A description of the rows of all sites, from one noisy sum.

    Args:
        rows: N. Public.
        by: the column that the groups are of; None if there are none.
        groups: their names.
        sizes: of the groups.
        columns: in the order of the schema, the label last.
        privacy: the guarantee.
    """

    rows: int
    by: str | None
    groups: tuple[str, ...]
    sizes: tuple[Interval, ...]
    columns: tuple[DescribedColumn, ...]
    privacy: PrivacyStatement
    title: ClassVar[str] = "Description of the rows"
    format: ClassVar[str] = "sottovoce-description/1"

    def described(self) -> list[Part]:
        """The table, what is true of it, and its price; in HTML, its guarantee in full, folded."""
        from sottovoce.tables.words import described

        return [*described(self), Folded("Its guarantee in full", guarantee(self.privacy))]

    def lines(self) -> Iterator[Line]:
        """All numbers, one line each."""
        names = (EVERYONE, *self.groups)
        for name, size in zip(self.groups, self.sizes, strict=True):
            yield Line("", "", name, "count", *_ends(size))
        for column in self.columns:
            for shown, values in column.figures.items():
                for name, one in zip(names, values, strict=True):
                    yield Line(column.name, "", name, shown, *_ends(one))
            for name, far in zip(self.groups[1:], column.differences, strict=False):
                yield Line(column.name, "", name, "difference", far.value, far.low, far.high)
            for level in column.levels:
                for figure, values in (("count", level.counts), ("share", level.shares)):
                    for name, one in zip(names, values, strict=True):
                        yield Line(column.name, level.name, name, figure, *_ends(one))
                for name, far in zip(self.groups[1:], level.differences, strict=False):
                    yield Line(column.name, level.name, name, "difference", far.value, far.low, far.high)

    def to_csv(self) -> str:
        return csv_of(Line._fields, self.lines())


written(Description, "format", ...)


def csv_of(heading: tuple[str, ...], lines: Iterator[tuple[str | float | None, ...]]) -> str:
    """Lines as CSV: numbers in full, nothing where there is none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heading)
    for line in lines:
        writer.writerow(["" if one is None else repr(one) if isinstance(one, float) else one for one in line])
    return text.getvalue()


def _ends(one: Interval) -> tuple[float | None, float, float]:
    return one.value, one.low, one.high


def description_of(
    coding: Coding, noisy: Floats, std: float, rows: int, privacy: PrivacyStatement, together: int = 1
) -> Description:
    """What a noisy sum of coded rows says. No row is needed.

    Args:
        coding: how they were coded.
        noisy: the sum, (numbers,).
        std: of the noise in each number.
        rows: N.
        privacy: the guarantee.
        together: how many rows may be alike since they belong together.
    """
    parts = coding.split(noisy)
    stds = (std / coding.weights).tolist()
    cells = [part.cells if isinstance(part, Number) else part.width for part in coding.parts]
    tables = [table[:, :count] for table, count in zip(parts, cells, strict=True)]
    agreed = Consistent.of(tables, [one**2 for one in stds], rows, together)
    whole, sizes = agreed.whole_tables(), agreed.whole_sizes()
    by = coding.by
    columns = tuple(
        _column(c, part, agreed, whole[c], sizes, parts[c][:, cells[c] :], stds[c])
        for c, part in enumerate(coding.parts)
    )
    grouped = () if by is None else tuple(
        around(float(size), found) for size, found in zip(sizes, agreed.size_intervals(), strict=True)
    )  # fmt: skip
    return Description(
        rows=rows, by=None if by is None else by.columns[0].name,
        groups=() if by is None else levels_of(by.columns[0]), sizes=grouped, columns=columns, privacy=privacy,
    )  # fmt: skip


def _column(
    c: int, part: CodedPart, agreed: Consistent, whole: Ints, sizes: Ints, places: Floats, std: float
) -> DescribedColumn:
    """One column. Counts are shown as whole numbers that add up; intervals are those of the noisy ones."""
    views, shared, rows = agreed.views(c), agreed.between(c), float(agreed.rows)
    shown = [whole.sum(axis=0), *whole] if agreed.groups > 1 else [whole[0]]
    totals = [agreed.rows, *sizes.tolist()] if agreed.groups > 1 else [agreed.rows]
    levels = list[Level]()
    for place, name in enumerate(part.levels if isinstance(part, Number) else levels_of(part.columns[0])):
        counts, shares = [], []
        for view, own, total in zip(views, shown, totals, strict=True):
            count = float(own[place])
            counts.append(around(count, view.expected(place, rows)))
            found = view.share(place)
            shares.append(around(count / total if total and found.value is not None else None, found))
        apart = () if isinstance(part, Number) else views[2:]  # a number's means are compared, not its bins
        far = tuple(_finite(level_difference(views[1], other, place, shared)) for other in apart)
        levels.append(Level(name, tuple(counts), tuple(shares), far))
    if not isinstance(part, Number):
        return DescribedColumn(part.columns[0].name, tuple(levels), {}, (), std)
    sums = [places.sum(axis=0), *places] if agreed.groups > 1 else [places[0]]
    measured = [
        Measured(part, view, (float(own[0]), float(own[1])), (agreed.groups if view is views[0] else 1) * std**2)
        for view, own in zip(views, sums, strict=True)
    ]
    figures: dict[FigureName, tuple[Interval, ...]] = {
        "mean": tuple(one.mean() for one in measured),
        "standard deviation": tuple(one.spread() for one in measured),
    }
    for name, q in zip(FIGURES[2:], QUARTILES, strict=True):
        figures[name] = tuple(one.quantile(q, own) for one, own in zip(measured, shown, strict=True))
    far = tuple(_finite(number_difference(measured[1], other, shared)) for other in measured[2:])
    return DescribedColumn(part.column.name, tuple(levels), figures, far, std)


def _finite(one: Interval) -> Difference:
    """A difference whose interval has no bounds has none in a file either."""
    if one.value is None or not math.isfinite(one.low) or not math.isfinite(one.high):
        return Difference(None, None, None)
    return Difference(one.value, one.low, one.high)
