"""`sottovoce describe`: who is in a file of private rows, as a table from noisy sums; or a cross-table."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli.tables import (
    Budget,
    By,
    Colluding,
    Delimiter,
    Delta,
    Epsilon,
    File,
    Force,
    Json,
    Nodes,
    SchemaFile,
    SiteColumn,
    SitesPerPerson,
    Unreviewed,
    asked,
    release,
    shares_of,
)
from sottovoce.errors import expect

if TYPE_CHECKING:
    from sottovoce.tables import CrossTable, Description


def describe(
    file: File,
    more: Annotated[
        list[str] | None,
        typer.Argument(help="With --cross: its second column and, if wanted, a third.", show_default=False),
    ] = None,
    schema: SchemaFile = None,
    by: By = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", help="Describe this column alone, with less noise. May be repeated. Default: all."),
    ] = None,
    cross: Annotated[
        str | None,
        typer.Option(help="A cross-table instead, with a chi-squared test: --cross A B, or --cross A B C."),
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="COLUMN=SHARE of the budget, such as age=0.3; the other columns share the rest. May be repeated.",
            rich_help_panel="Privacy",
        ),
    ] = None,
    nodes: Nodes = None,
    site_column: SiteColumn = None,
    sites_per_person: SitesPerPerson = None,
    colluding: Colluding = None,
    unreviewed: Unreviewed = "refuse",
    force: Force = False,
    budget: Budget = None,
    delimiter: Delimiter = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            help="Write the table to this new file: a page (.html), .csv or .json. May be repeated.",
            rich_help_panel="Files and output",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Describe private rows by noisy sums: counts and shares of every level, means and quartiles, in all and by group.

    Every figure has a 95 % interval that covers the privacy noise and the sampling of the rows. The table may be
    shared: it is covered by the guarantee that is printed below it.
    """
    from sottovoce import tables

    read, terms = asked(
        schema, epsilon, unreviewed, delta=delta, nodes=nodes, site_column=site_column, colluding=colluding,
        sites_per_person=sites_per_person, delimiter=delimiter, force=force,
    )  # fmt: skip
    others = tuple(more or ())

    def describing(charge: Any) -> "Description":
        shares = shares_of(part or [])
        return tables.describe(file, read, by=by, columns=columns, parts=shares, charge=charge, **terms)

    def crossing(charge: Any) -> "CrossTable":
        assert cross is not None
        return tables.cross_table(file, read, (cross, *others), charge=charge, **terms)

    if cross is None:
        expect(not others, "further columns only with --cross", "Name those to describe with --column", columns=others)
        release(describing, budget, out or [], json)
    else:
        for name, value in (("by", by), ("column", columns), ("part", part)):
            expect(not value, f"--cross without --{name}", **{name: value})
        release(crossing, budget, out or [], json)
