"""Descriptions, cross-tables and survival curves of a file: rows are read and coded, their sum is paid for and opened,
and then read.

`tabulated` is what all tables share. A new one brings the columns that it reads, a `Coding` of them, and what it makes
of the noisy sum.
"""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite, sqrt
from typing import Any, NamedTuple, TypeAlias, TypedDict, Unpack

from sottovoce.algorithms.tabulation import Tabulation
from sottovoce.arrays import Floats
from sottovoce.errors import InputError, PrivacyError, expect
from sottovoce.files.schema import Column, Schema
from sottovoce.files.schema.columns import Ranged
from sottovoce.files.schema.survival import SurvivalLabel
from sottovoce.numerals import counted
from sottovoce.privacy import PrivacyStatement
from sottovoce.privacy.accounting.gaussian import mu_for
from sottovoce.privacy.strength import default_delta, no_delta, no_epsilon, refusal
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.problem import Problem
from sottovoce.settings import brief
from sottovoce.simulation.asking import ask
from sottovoce.simulation.engine import Charge
from sottovoce.tables.coding import Coding, Levels, Number, Part, bins_for, edges_of, equal_but
from sottovoce.tables.cross import CrossTable, cross_table_of
from sottovoce.tables.description import Description, description_of
from sottovoce.tables.follow_up import FollowUp
from sottovoce.tables.survival_curves import Survival, survival_of

Source: TypeAlias = Any  # a path, or a table in memory
WIDEST_CROSS = 3
NO_WEIGHTS = "Every row counts the same in this table, whatever its weight in learning."


class Terms(TypedDict, total=False):
    """The price of a table, and where its rows are. All of it is public.

    delta: None is as small as so many rows need. nodes: how many sites the rows are dealt out to, as a simulation; with
    1, the default, whoever holds the rows is trusted. site_column: of the file, names the site of each row, in place of
    nodes. colluding: how many sites may collude; None is fewer than half of them. sites_per_person: where the schema
    names people, at how many sites one may have rows. unreviewed: True accepts a schema with values that were read from
    the rows, with a warning and a note. delimiter: of the file, if not the schema's. force: True accepts an epsilon or
    a delta that protects hardly at all. charge: is called with the statement before anything is computed from the rows;
    if it raises, nothing was.
    """

    delta: float | None
    nodes: int
    site_column: str | None
    colluding: int | None
    sites_per_person: int | None
    unreviewed: bool
    delimiter: str | None
    force: bool
    charge: Charge | None


class Tabulated(NamedTuple):
    """A noisy sum of coded rows, and all that is known of it."""

    coding: Coding
    noisy: Floats  # (numbers,)
    std: float  # of the noise in each number
    rows: int  # N
    privacy: PrivacyStatement
    together: int  # the rows of a person, which may be alike; 1 where rows are protected


# Makes the coding from the public number of rows, and the noise in a sum of rows of norm 1.
Coder: TypeAlias = Callable[[int, float], Coding]


def describe(
    path: Source, schema: Schema, *, epsilon: float, by: str | None = None, columns: Sequence[str] | None = None,
    parts: Mapping[str, float] | None = None, **terms: Unpack[Terms],
) -> Description:  # fmt: skip
    """Describe the rows of a file: counts and shares of all levels, means and quartiles, in all and by group.

    Missing values are a level of their own. Numbers are counted in bins: those of the schema, or as many equal ones as
    the noise leaves room for. Every figure has a 95 % interval that covers the noise and the sampling of the rows.

    Args:
        path: a CSV or Parquet file, or a pandas, polars or Arrow table.
        schema: of its columns. The label is described as well.
        epsilon: of the whole description.
        by: the column that groups the rows; one with levels. None: no groups.
        columns: those to describe: fewer have less noise. None: all.
        parts: of the budget, mu^2, by column, each above 0; the other columns share the rest. None: all the same.
        terms: delta, nodes, site_column, colluding, sites_per_person, unreviewed, delimiter, force and charge, as
            `Terms` says.
    """
    known = schema.described
    chosen = [name for name in known if name != by] if columns is None else list(columns)
    _expect_columns(known, chosen, least=1)
    if by is not None:
        _expect_columns(known, [by], least=1)
        expect(by not in chosen, "a column for the groups that is not described as well", by=by)
    groups = None if by is None else Levels((_levelled(known[by], "to group by"),))
    shares, fewest = equal_but(dict(parts or {}), chosen), 1 if groups is None else groups.width

    def coding(rows: int, noise: float) -> Coding:
        parts = list[Part]()
        for place, name in enumerate(chosen):
            share = 1 / len(chosen) if shares is None else shares[place]
            parts.append(_part(known[name], bins_for(rows / fewest, noise / sqrt(share))))
        return Coding(tuple(parts), shares, groups)

    of = "" if by is None else f", by {brief(by)}"
    what = f"how many rows are at each level or in each bin of {counted(len(chosen), 'column')}{of}"
    numbers = any(isinstance(known[name], Ranged) for name in chosen)
    what += ", and of where in their bins numbers lie" if numbers else ""
    reads = [*([] if groups is None else groups.columns), *(_read(known[name]) for name in chosen)]
    found = tabulated(path, schema, reads, coding, what, epsilon=epsilon, **terms)
    return description_of(*found)


def cross_table(
    path: Source, schema: Schema, columns: Sequence[str], *, epsilon: float, **terms: Unpack[Terms]
) -> CrossTable:
    """Count the rows of a file by level of two or three columns, and test whether the first two are independent, given
    the third if there is one.

    Args:
        path: a CSV or Parquet file, or a pandas, polars or Arrow table.
        schema: of its columns.
        columns: their names. All must have levels.
        epsilon: of the whole table.
        terms: as of `describe`.
    """
    known = schema.described
    fits = 2 <= len(columns) <= WIDEST_CROSS
    expect(fits, f"two or three columns for a cross-table, up to {WIDEST_CROSS}", columns=list(columns))
    _expect_columns(known, columns, least=2)
    part = Levels(tuple(_levelled(known[name], "of a cross-table") for name in columns))
    for column, size in zip(part.of, part.sizes, strict=True):
        expect(size > 1, f"columns of two levels or more, to test {brief(column.name)}", levels=size)
    what = f"how many rows are at each combination of levels of {counted(len(columns), 'column')}"
    coding = Coding((part,))
    return cross_table_of(*tabulated(path, schema, part.columns, lambda *_: coding, what, epsilon=epsilon, **terms))


def survival(
    path: Source, schema: Schema, *, epsilon: float, by: str | None = None, **terms: Unpack[Terms]
) -> Survival:
    """Find survival curves of the rows of a file, numbers at risk, medians and restricted means and, with groups,
    whether their curves are one (log-rank). Intervals cover the noise and the sampling of the rows.

    Args:
        path: a CSV or Parquet file, or a pandas, polars or Arrow table.
        schema: of its columns. Its label has a time and an event.
        epsilon: of all curves together.
        by: the column that groups the rows; one with levels. None: no groups.
        terms: as of `describe`.
    """
    label, known = schema.label, schema.described
    if not isinstance(label, SurvivalLabel):
        raise InputError(
            f"Expected a label with a time and an event in the schema, got label={brief(label.name)}, "
            f"{label.meaning()}. Give its [label] time, event, until and bins."
        )
    part = FollowUp(*label.watched, tuple(end / label.until for end in label.ends))
    groups = None
    if by is not None:
        _expect_columns(known, [by], least=1)
        expect(by not in (label.time, label.event), "a column for the groups that is not of the label", by=by)
        groups = Levels((_levelled(known[by], "to group by"),))
        expect(groups.width > 1, "a column of two levels or more to group by", by=by, levels=groups.width)
    of = "" if by is None else f", by {brief(by)}"
    what = f"how many rows have an event, and how many are censored, in each of {counted(part.bins, 'bin')} of time{of}"
    what += ", and of the parts of their last bins that censored rows are not watched"
    coding = Coding((part,), None, groups)
    return survival_of(*tabulated(path, schema, coding.columns, lambda *_: coding, what, epsilon=epsilon, **terms))


def tabulated(
    path: Source, schema: Schema, columns: Sequence[Column], coding: Coder, what: str, *, epsilon: float,
    delta: float | None = None, nodes: int = 1, site_column: str | None = None, colluding: int | None = None,
    sites_per_person: int | None = None, unreviewed: bool = False, delimiter: str | None = None, force: bool = False,
    charge: Charge | None = None,
) -> Tabulated:  # fmt: skip
    """Read the rows of a file, have their noisy sum paid for, and open it.

    Args:
        path: a file, or a table in memory.
        schema: of its columns.
        columns: that are read, as `Schema.described` has them; the coding's `columns` must be the same.
        coding: makes the coding from public numbers.
        what: is summed up, in words of the statement.
        epsilon: of the table.
        delta: as `Terms` says, like all that follows.
        nodes: how many simulated sites.
        site_column: names the site of each row.
        colluding: how many sites may collude.
        sites_per_person: at how many sites a person may be.
        unreviewed: accepts a schema that was not reviewed.
        delimiter: of the file.
        force: accepts weak guarantees.
        charge: called before anything is computed.
    """
    expect(epsilon > 0, "epsilon > 0", epsilon=epsilon)
    expect(delta is None or 0 < delta < 1, "delta strictly between 0 and 1", delta=delta)
    expect(nodes >= 1, "nodes >= 1", nodes=nodes)
    if site_column is not None and nodes != 1:
        raise InputError(f"Expected nodes or a site_column, got both, nodes={nodes}. Leave nodes out.")
    doubt = no_epsilon(epsilon) or (None if delta is None else no_delta(delta))
    if doubt is not None and not force:
        raise PrivacyError(f"{refusal(doubt)} To release it anyway, use --force (force=True).")
    made, at = list[Coding](), list[float]()

    def coded(data: Dataset) -> Dataset:
        at.append(default_delta(len(data)) if delta is None else delta)
        changed = data.unit.changed * data.unit.sites
        noise = sqrt(2) * changed / mu_for(epsilon, at[0]) if isfinite(epsilon) else 0.0
        made.append(coding(len(data), noise))
        assert made[0].columns == tuple(columns)  # else codes would be taken for those of others
        return made[0].coded(data)

    problem = Problem.from_codes(
        path, schema, columns, coded, nodes=nodes, site_column=site_column, unreviewed=unreviewed,
        sites_per_person=sites_per_person, delimiter=delimiter,
    )  # fmt: skip
    statistic = Tabulation(epsilon=epsilon, delta=at[0], colluding=colluding, what=what)
    found = ask(problem, statistic, charge=charge)
    together = problem.unit.changed * min(problem.unit.sites, problem.sites.n)
    privacy = found.privacy if schema.weight is None else found.privacy.noting(NO_WEIGHTS)
    std = float(found.answer.std.item())
    return Tabulated(made[0], found.answer.value[:, 0], std, found.answer.rows, privacy, together)


def _expect_columns(known: Mapping[str, Column], names: Sequence[str], least: int) -> None:
    """Refuse columns that the schema lacks, and any that is named twice."""
    expect(len(names) >= least, f"at least {counted(least, 'column')}", columns=list(names))
    for place, name in enumerate(names):
        if name not in known:
            shown = ", ".join(map(brief, list(known)[:20])) + (", ..." if len(known) > 20 else "")
            raise InputError(f"Expected a column of the schema ({shown}), got {brief(name)}. Name one of these.")
        if name in names[:place]:
            raise InputError(f"Expected every column once, got {brief(name)} twice. Name it once.")


def _levelled(column: Column, use: str) -> Column:
    """The column, which must have levels."""
    if not column.level_words:
        raise InputError(
            f"Expected a column with levels {use}, got {brief(column.name)}, a number without edges. Give a column "
            "edges in the schema: its bins are levels then."
        )
    return column


def _read(column: Column) -> Column:
    """The column as it is read to be described: numbers as numbers, even if the schema has bins for them."""
    return column.measured() if isinstance(column, Ranged) else column


def _part(column: Column, bins: int) -> Part:
    if not isinstance(column, Ranged):
        return Levels((column,))
    measured = column.measured()
    assert isinstance(measured, Ranged)
    return Number(measured, edges_of(column, bins))
