"""Descriptions, cross-tables and survival curves of a file: rows are read and coded, their sum is paid for and opened,
and then read.

`tabulated` is what all tables share. A new one brings a `TableAnalysis`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack

from sottovoce.errors import InputError, PrivacyError, expect
from sottovoce.files.schema import Schema
from sottovoce.privacy.strength import default_delta, no_delta, no_epsilon, refusal
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.problem import Problem
from sottovoce.simulation.asking import ask
from sottovoce.simulation.engine import Charge
from sottovoce.tables.analyses import (
    CrossTableAnalysis,
    DescriptionAnalysis,
    SurvivalAnalysis,
    TableAnalysis,
    columns_of,
)
from sottovoce.tables.cross import CrossTable
from sottovoce.tables.description import Description
from sottovoce.tables.found import FoundTable
from sottovoce.tables.survival_curves import Survival

F = TypeVar("F", bound=FoundTable)
Source: TypeAlias = Any  # a path, or a table in memory


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
    told = columns_of(schema, by, columns, parts or {})
    return tabulated(path, schema, partial(DescriptionAnalysis, columns=told, by=by), epsilon=epsilon, **terms)


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
    asked = partial(CrossTableAnalysis, columns=tuple(columns))
    return tabulated(path, schema, asked, epsilon=epsilon, **terms)


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
    return tabulated(path, schema, partial(SurvivalAnalysis, by=by), epsilon=epsilon, **terms)


def tabulated(
    path: Source, schema: Schema, asked: Callable[..., TableAnalysis[F]], *, epsilon: float,
    delta: float | None = None, nodes: int = 1, site_column: str | None = None, colluding: int | None = None,
    sites_per_person: int | None = None, unreviewed: bool = False, delimiter: str | None = None, force: bool = False,
    charge: Charge | None = None,
) -> F:  # fmt: skip
    """Read the rows of a file, have their noisy sum paid for, open it, and make the table.

    Args:
        path: a file, or a table in memory.
        schema: of its columns.
        asked: makes the analysis from epsilon, delta and colluding.
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
    wanted = asked(epsilon=epsilon, colluding=colluding)
    bound = list[TableAnalysis[F]]()

    def coded(data: Dataset) -> Dataset:
        at = default_delta(len(data)) if delta is None else delta
        bound.append(replace(wanted, delta=at).bound_to(schema, len(data), data.unit))
        coding = bound[0].coding(schema)
        assert coding.columns == wanted.reads(schema)  # else codes would be taken for those of others
        return coding.coded(data)

    problem = Problem.from_codes(
        path, schema, wanted.reads(schema), coded, nodes=nodes, site_column=site_column, unreviewed=unreviewed,
        sites_per_person=sites_per_person, delimiter=delimiter,
    )  # fmt: skip
    (analysis,) = bound
    found = ask(problem, analysis, charge=charge)
    return analysis.answer(schema, found.answer, found.privacy, problem.unit, problem.sites.n)
