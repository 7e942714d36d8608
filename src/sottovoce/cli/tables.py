"""What the commands of tables share: their options, and the order of charging, counting, keeping and printing."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.errors import InputError, expect

if TYPE_CHECKING:
    from sottovoce.files.schema import Schema
    from sottovoce.tables.found import FoundTable

_PRIVACY, _OUTPUT = "Privacy", "Files and output"
PRINTED = "Its cost is spent, so the table is printed instead, as JSON: keep what was printed."
FORMS, DRAWN = (".html", ".csv", ".json"), (".svg", ".png")

File = Annotated[Path, typer.Argument(help="CSV or Parquet file of private rows.", show_default=False)]
SchemaFile = Annotated[Path | None, typer.Option("--schema", help="Schema of the file; see sottovoce schema.")]
By = Annotated[str | None, typer.Option(help="Column with levels that groups the rows.")]
Epsilon = Annotated[float | None, typer.Option(help="Privacy budget of the whole table.", rich_help_panel=_PRIVACY)]
Delta = Annotated[float | None, typer.Option(help="Default: at most 1/(100 rows).", rich_help_panel=_PRIVACY)]
Nodes = Annotated[
    int | None, typer.Option(help="Simulated sites that hold the rows. Default: 1.", rich_help_panel=_PRIVACY)
]
SiteColumn = Annotated[
    str | None,
    typer.Option(help="Column that names the site of a row, in place of --nodes.", rich_help_panel=_PRIVACY),
]
SitesPerPerson = Annotated[
    int | None,
    typer.Option(
        help="If the schema protects people: most sites at which one person has rows. Default: one.",
        rich_help_panel=_PRIVACY,
    ),
]
Colluding = Annotated[
    int | None, typer.Option(help="Sites that may collude. Default: fewer than half.", rich_help_panel=_PRIVACY)
]
Unreviewed = Annotated[
    str,
    typer.Option(help="Unreviewed values in the schema: refuse it, or accept the leak.", rich_help_panel=_PRIVACY),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Accept a delta above 0.01, an epsilon above 20 or no noise at all.", rich_help_panel=_PRIVACY
    ),
]
Budget = Annotated[
    Path | None, typer.Option(help="Charge this budget, before a row is counted.", rich_help_panel=_PRIVACY)
]
Delimiter = Annotated[
    str | None, typer.Option(help="Field separator of a CSV file: , ; | or tab. Default: as in the schema.")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object instead of a table.", rich_help_panel=_OUTPUT)
]


def asked(schema: Path | None, epsilon: float | None, unreviewed: str, **terms: Any) -> "tuple[Schema, dict[str, Any]]":
    """The schema, and the terms as functions of `sottovoce.tables` take them; refused without schema or budget."""
    from sottovoce.files.schema import Schema
    from sottovoce.settings import check_choice

    if schema is None:
        raise InputError("Expected --schema with the schema of the file, got none. Make one: sottovoce schema draft.")
    if epsilon is None:
        raise InputError("Expected --epsilon, got none. Give the privacy budget of the table: --epsilon 0.5.")
    check_choice("unreviewed", unreviewed, ("refuse", "accept"))
    given = {**terms, "epsilon": epsilon, "unreviewed": unreviewed == "accept"}
    return Schema.load(schema), given | {"nodes": 1 if terms["nodes"] is None else terms["nodes"]}


def shares_of(given: Sequence[str]) -> dict[str, float]:
    """Parts of the budget by column, from COLUMN=SHARE."""
    found = dict[str, float]()
    for text in given:
        name, sign, share = text.rpartition("=")
        try:
            value = float(share)
        except ValueError:
            value = None
        if not sign or not name or value is None:
            raise InputError(f"Expected --part COLUMN=SHARE, such as age=0.3, got {text!r}. Correct it.")
        expect(name not in found, "one part of the budget for each column", part=name)
        found[name] = value
    return found


def release(
    make: "Callable[[Any], FoundTable]", budget: Path | None, out: list[Path], json: bool, *, drawn: bool = False
) -> None:
    """Charge, count, keep and print, in this order: nothing is lost that was paid for.

    Args:
        make: makes the table; it gets what to charge by, or None.
        budget: the budget to charge; None for none.
        out: files to write, whose endings say what.
        json: True to print JSON, and no table.
        drawn: True if the page has a figure, which may be a file of its own.
    """
    from sottovoce.cli import output
    from sottovoce.cli.budget import ADDS_UP, charging
    from sottovoce.settings.disk import check_new

    known = (*FORMS, *DRAWN) if drawn else FORMS
    for place in out:
        expect(place.suffix in known, f"a file to write that ends in one of {', '.join(known)}", out=str(place))
        expect(out.count(place) == 1, "each file to write once", out=str(place))
        check_new(place)
    if drawn and any(place.suffix in (".html", *DRAWN) for place in out):
        import matplotlib.figure  # noqa: F401 - where it is missing, that is said before anything is paid for
    if budget is None and not json:
        output.note(ADDS_UP)
    found = make(None if budget is None else charging(budget))
    try:
        for place in out:
            write_table(place, found)
    except InputError as error:
        output.print_json(found)
        raise InputError(f"{error} {PRINTED}") from error
    if json:
        output.print_json(found)
    else:
        output.show(*found.described()[:-1], *([f"Written to {', '.join(map(str, out))}."] if out else []))


def write_table(place: Path, found: "FoundTable") -> None:
    """Write the table in the form that the file's name says, whole or not at all. Without matplotlib, a page has no
    figure.
    """
    import json as json_module

    from sottovoce.document import Document, Figure, Part
    from sottovoce.settings import plain
    from sottovoce.settings.disk import writable, write_whole
    from sottovoce.studies.report.rendering import page_of

    if place.suffix in DRAWN:
        raw = _picture(found, place.suffix)
    elif place.suffix == ".html":
        from sottovoce.studies.report.svg import inline

        whole = b""
        with suppress(ImportError):
            whole = _picture(found, ".svg")
        figure: list[Part] = [Figure(inline(whole.decode(), "figure"))] if whole else []
        raw = page_of(Document(found.title, [*figure, *found.described()])).encode()
    elif place.suffix == ".csv":
        raw = found.to_csv().encode()
    else:
        raw = (json_module.dumps(plain(found), indent=1, allow_nan=False) + "\n").encode()
    with writable(place):
        write_whole(place, raw)


def _picture(found: "FoundTable", suffix: str) -> bytes:
    """The table's figure in that form; nothing if it is not drawn."""
    figure = found.figure()
    if figure is None:
        return b""
    from sottovoce.studies.report.svg import picture

    return picture(figure, suffix.removeprefix("."))
