"""Descriptions, cross-tables and survival curves as analyses: what is counted, all of it public, and what it costs.

    DescriptionAnalysis   columns one by one, by group
    CrossTableAnalysis    two or three columns together
    SurvivalAnalysis      times to an event, by group

One is asked of the rows of a file (`sottovoce.tables.release`), or agreed on by real sites. With a schema it says which
columns are read and how they are coded. From the noisy sum of coded rows it makes its table.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from pathlib import Path
from typing import Generic, NamedTuple, Self, TypeVar, final

from sottovoce.algorithms.computation import Shape
from sottovoce.algorithms.tabulation import Counting
from sottovoce.arrays import Floats
from sottovoce.errors import InputError, expect
from sottovoce.files.schema import Column, Schema
from sottovoce.files.schema.columns import Ranged
from sottovoce.files.schema.survival import SurvivalLabel
from sottovoce.numerals import counted
from sottovoce.oracle.row_sums import RowSums
from sottovoce.privacy import PrivacyStatement
from sottovoce.privacy.accounting.gaussian import mu_for
from sottovoce.privacy.unit import Unit
from sottovoce.problem.dataset import Dataset
from sottovoce.settings import brief, written
from sottovoce.sums.program import Opened
from sottovoce.tables.coding import MOST_BINS, Coding, Levels, Number, Part, bins_for, edges_of, equal_but
from sottovoce.tables.cross import CrossTable, cross_table_of
from sottovoce.tables.description import Description, description_of
from sottovoce.tables.follow_up import FollowUp
from sottovoce.tables.found import FoundTable
from sottovoce.tables.survival_curves import Survival, survival_of

F = TypeVar("F", bound=FoundTable)
WIDEST_CROSS = 3
NO_WEIGHTS = "Every row counts the same in this table, whatever its weight in learning."


class Tabulated(NamedTuple):
    """A noisy sum of coded rows, and all that is known of it."""

    coding: Coding
    noisy: Floats  # (numbers,)
    std: float  # of the noise in each number
    rows: int  # N
    privacy: PrivacyStatement
    together: int  # the rows of a person, which may be alike; 1 where rows are protected


@dataclass(frozen=True, kw_only=True)
class TableAnalysis(Counting, Generic[F]):
    """A table: rows are coded, their noisy sum is opened once, and the table is made of it."""

    @abstractmethod
    def reads(self, schema: Schema) -> tuple[Column, ...]:
        """The columns that are read, in the order of the codes; refused if the schema has no such columns."""

    @abstractmethod
    def coding(self, schema: Schema) -> Coding:
        """How rows are coded."""

    @abstractmethod
    def table(self, found: Tabulated) -> F:
        """What a noisy sum says. No row is needed."""

    def answer(self, schema: Schema, opened: Opened, privacy: PrivacyStatement, unit: Unit, sites: int) -> F:
        """The table, from the sum that was opened.

        Args:
            schema: of the rows.
            opened: the sum, of one run.
            privacy: the guarantee.
            unit: what is protected.
            sites: at how many sites the rows are.
        """
        together, told = unit.changed * min(unit.sites, sites), privacy.noting(*self.remarks(schema))
        std = float(opened.std.item())
        return self.table(Tabulated(self.coding(schema), opened.value[:, 0], std, opened.rows, told, together))

    def bound_to(self, schema: Schema, rows: int, unit: Unit) -> Self:  # noqa: ARG002
        """The same with everything filled in that follows from the schema, the number of rows and what is protected."""
        return self

    def expect_schema(self, schema: Schema) -> None:
        """Refuse a schema without the columns, or with others than such a table is made of."""
        self.coding(schema)

    def shape(self, schema: Schema) -> Shape:
        """Coded rows."""
        coding = self.coding(schema)
        return Shape(coding.groups * coding.width, coding.data_norm)

    def rows_in(self, path: Path, schema: Schema, site: str | None = None) -> Dataset:  # noqa: ARG002
        """Coded rows. None is left out where a value is missing."""
        from sottovoce.files.schema import files  # heavy, and only needed to read a file

        return self.coding(schema).coded(files.encode_codes(path, schema, self.reads(schema))[0])

    def remarks(self, schema: Schema) -> tuple[str, ...]:
        """That weights do not count, where there are any."""
        return () if schema.weight is None else (NO_WEIGHTS,)

    def preview(self, schema: Schema | None, site: RowSums, rows: int) -> tuple[str, ...]:
        """How many numbers the table has, and how noisy its counts are."""
        assert schema is not None  # without one nothing is coded
        coding = self.coding(schema)
        whole = self.share_std(site, rows) * sqrt(site.n)
        stds = sorted({f"{whole / weight:.3g}" for weight in coding.weights.tolist()}, key=float)
        groups = "" if coding.by is None else f" for each of {counted(coding.groups, 'group')}"
        return (
            f"What every site ends with, and may publish: one table of {counted(coding.width, 'number')}{groups}. The "
            f"noise in a count of a group has a standard deviation of {' to '.join(stds[:: max(len(stds) - 1, 1)])} "
            "rows.",
        )


# -- descriptions -----------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class TableColumn:
    """A column of a description.

    Args:
        name: of the column.
        bins: into how many bins a number is counted, at least; None of a column with levels, and of a number as long as
            they are not chosen.
        part: of the budget, mu^2; None: the same as all others.
    """

    name: str
    bins: int | None = None
    part: float | None = None

    def __post_init__(self) -> None:
        fits = self.bins is None or 1 <= self.bins <= MOST_BINS
        expect(fits, f"1 to {MOST_BINS} bins of column {brief(self.name)}", bins=self.bins)
        fits = self.part is None or 0 < self.part <= 1
        expect(fits, f"a part of the budget between 0 and 1 for column {brief(self.name)}", part=self.part)


written(TableColumn, ..., absent=(None,))


@final
@dataclass(frozen=True, kw_only=True)
class DescriptionAnalysis(TableAnalysis[Description]):
    """A description of rows: counts of levels, and what numbers are like.

    Args:
        columns: those to describe.
        by: the column that groups the rows; None: no groups.
    """

    columns: tuple[TableColumn, ...]
    by: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_once([column.name for column in self.columns], least=1)
        named = self.by is None or all(column.name != self.by for column in self.columns)
        expect(named, "a column for the groups that is not described as well", by=self.by)
        given = [column.part for column in self.columns if column.part is not None]
        fits = not given or (len(given) == len(self.columns) and abs(sum(given) - 1) < 1e-9)
        expect(fits, "parts of the budget of all columns, which add up to 1, or of none", parts=given)

    @property
    def counted(self) -> str:
        what = f"how many rows are at each level or in each bin of {counted(len(self.columns), 'column')}"
        numbers = any(column.bins is not None for column in self.columns)
        return f"{what}{_of(self.by)}{', and of where in their bins numbers lie' if numbers else ''}"

    def reads(self, schema: Schema) -> tuple[Column, ...]:
        """Numbers are read as numbers, even if the schema has bins for them."""
        known = _columns(schema, [column.name for column in self.columns])
        read = [column.measured() if isinstance(column, Ranged) else column for column in known]
        groups = _groups(schema, self.by)
        return (*([] if groups is None else groups.columns), *read)

    def bound_to(self, schema: Schema, rows: int, unit: Unit) -> Self:
        """With bins for all numbers that have none: as many as the noise leaves room for."""
        groups, changed = _groups(schema, self.by), unit.changed * unit.sites
        noise = sqrt(2) * changed / mu_for(self.epsilon, self.delta) if isfinite(self.epsilon) else 0.0
        fewest, columns = 1 if groups is None else groups.width, list[TableColumn]()
        for one, column in zip(self.columns, _columns(schema, [one.name for one in self.columns]), strict=True):
            share = 1 / len(self.columns) if one.part is None else one.part
            open_ = isinstance(column, Ranged) and one.bins is None
            columns.append(replace(one, bins=bins_for(rows / fewest, noise / sqrt(share))) if open_ else one)
        return replace(self, columns=tuple(columns))

    def coding(self, schema: Schema) -> Coding:
        parts, known = list[Part](), _columns(schema, [column.name for column in self.columns])
        for one, column in zip(self.columns, known, strict=True):
            number = isinstance(column, Ranged)
            expect(number == (one.bins is not None), f"bins for {brief(one.name)} if it is a number", bins=one.bins)
            parts.append(_number(column, one.bins or 0) if isinstance(column, Ranged) else Levels((column,)))
        given = tuple(column.part for column in self.columns if column.part is not None)
        # Their sum may be off 1 by rounding, and a row must not be longer than is said for that.
        shares = tuple(part / sum(given) for part in given) or None
        return Coding(tuple(parts), shares, _groups(schema, self.by))

    def table(self, found: Tabulated) -> Description:
        return description_of(*found)


def columns_of(
    schema: Schema, by: str | None, names: Sequence[str] | None, parts: Mapping[str, float]
) -> tuple[TableColumn, ...]:
    """The columns to describe, with their parts of the budget.

    Args:
        schema: of the rows.
        by: the column that groups them.
        names: the columns; None: all but `by`, the label last.
        parts: those that are given; the other columns share the rest.
    """
    chosen = [name for name in schema.described if name != by] if names is None else list(names)
    shares = equal_but(dict(parts), chosen) or (None,) * len(chosen)
    return tuple(TableColumn(name, None, share) for name, share in zip(chosen, shares, strict=True))


def _number(column: Ranged, bins: int) -> Number:
    measured = column.measured()
    assert isinstance(measured, Ranged)
    return Number(measured, edges_of(column, bins))


# -- cross-tables -----------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class CrossTableAnalysis(TableAnalysis[CrossTable]):
    """A cross-table of two or three columns, with a test of independence of the first two.

    Args:
        columns: their names.
    """

    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = 2 <= len(self.columns) <= WIDEST_CROSS
        expect(fits, f"two or three columns for a cross-table, up to {WIDEST_CROSS}", columns=list(self.columns))
        _expect_once(self.columns, least=2)

    @property
    def counted(self) -> str:
        return f"how many rows are at each combination of levels of {counted(len(self.columns), 'column')}"

    def reads(self, schema: Schema) -> tuple[Column, ...]:
        return self.coding(schema).columns

    def coding(self, schema: Schema) -> Coding:
        part = Levels(tuple(_levelled(column, "of a cross-table") for column in _columns(schema, self.columns)))
        for column, size in zip(part.of, part.sizes, strict=True):
            expect(size > 1, f"columns of two levels or more, to test {brief(column.name)}", levels=size)
        return Coding((part,))

    def table(self, found: Tabulated) -> CrossTable:
        return cross_table_of(*found)


# -- survival curves --------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class SurvivalAnalysis(TableAnalysis[Survival]):
    """Survival curves of the schema's label, in its bins, with a test between groups.

    Args:
        by: the column that groups the rows; None: no groups.
    """

    by: str | None = None

    @property
    def counted(self) -> str:
        what = f"how many rows have an event, and how many are censored, in each bin of time{_of(self.by)}"
        return f"{what}, and of the parts of their last bins that censored rows are not watched"

    def reads(self, schema: Schema) -> tuple[Column, ...]:
        return self.coding(schema).columns

    def coding(self, schema: Schema) -> Coding:
        label = schema.label
        if not isinstance(label, SurvivalLabel):
            raise InputError(
                f"Expected a label with a time and an event in the schema, got label={brief(label.name)}, "
                f"{label.meaning()}. Give its [label] time, event, until and bins."
            )
        part = FollowUp(*label.watched, tuple(end / label.until for end in label.ends))
        own = self.by in (label.time, label.event)
        expect(not own, "a column for the groups that is not of the label", by=self.by)
        groups = _groups(schema, self.by)
        fits = groups is None or groups.width > 1
        expect(fits, "a column of two levels or more to group by", by=self.by, levels=groups and groups.width)
        return Coding((part,), None, groups)

    def table(self, found: Tabulated) -> Survival:
        return survival_of(*found)


# -- columns ----------------------------------------------------------------------------------------------------------


def _of(by: str | None) -> str:
    return "" if by is None else f", by {brief(by)}"


def _expect_once(names: Sequence[str], least: int) -> None:
    expect(len(names) >= least, f"at least {counted(least, 'column')}", columns=list(names))
    for place, name in enumerate(names):
        if name in names[:place]:
            raise InputError(f"Expected every column once, got {brief(name)} twice. Name it once.")


def _columns(schema: Schema, names: Sequence[str]) -> list[Column]:
    """The columns of these names; refused if the schema lacks one."""
    known: Mapping[str, Column] = schema.described
    for name in names:
        if name not in known:
            shown = ", ".join(map(brief, list(known)[:20])) + (", ..." if len(known) > 20 else "")
            raise InputError(f"Expected a column of the schema ({shown}), got {brief(name)}. Name one of these.")
    return [known[name] for name in names]


def _groups(schema: Schema, by: str | None) -> Levels | None:
    return None if by is None else Levels((_levelled(_columns(schema, [by])[0], "to group by"),))


def _levelled(column: Column, use: str) -> Column:
    """The column, which must have levels."""
    if not column.level_words:
        raise InputError(
            f"Expected a column with levels {use}, got {brief(column.name)}, a number without edges. Give a column "
            "edges in the schema: its bins are levels then."
        )
    return column
