"""`sottovoce survival`: how long rows of a private file go without an event, as curves from one noisy sum."""

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
)

if TYPE_CHECKING:
    from sottovoce.tables import Survival


def survival(
    file: File,
    schema: SchemaFile = None,
    by: By = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
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
            help="Write the curves to this new file: a page with figure (.html), the figure (.svg, .png), .csv or "
            ".json. May be repeated.",
            rich_help_panel="Files and output",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Survival curves of private rows from one noisy sum: Kaplan-Meier, rows at risk, medians, and a log-rank test.

    The schema's label has a time and an event. Intervals cover the privacy noise and the sampling of the rows, and the
    test accounts for the noise. The curves may be shared: they are covered by the guarantee that is printed below.
    """
    from sottovoce import tables

    read, terms = asked(
        schema, epsilon, unreviewed, delta=delta, nodes=nodes, site_column=site_column, colluding=colluding,
        sites_per_person=sites_per_person, delimiter=delimiter, force=force,
    )  # fmt: skip

    def surviving(charge: Any) -> "Survival":
        return tables.survival(file, read, by=by, charge=charge, **terms)

    release(surviving, budget, out or [], json, drawn=True)
