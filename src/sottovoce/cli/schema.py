"""`sottovoce schema`: draft a schema from a file, review it, check a file against one, show what follows from one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.cli import output
from sottovoce.cli.output import print_json
from sottovoce.cli.review import review
from sottovoce.document import Table
from sottovoce.errors import InputError, expect
from sottovoce.settings import plain

if TYPE_CHECKING:
    from sottovoce.files.schema import Schema, SurvivalLabel
    from sottovoce.files.schema.findings import Report

schema_app = typer.Typer(
    name="schema",
    help="Public schemas: draft one from a file, review it, check files against it, show what follows from it.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_File = Annotated[Path, typer.Argument(help="CSV or Parquet file.", metavar="FILE")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
_Delimiter = Annotated[
    str | None, typer.Option(help="Field separator of a CSV file: , ; | or tab. Default: as in the schema.")
]
_MOST_SHOWN = 20


@schema_app.command()
def draft(
    file: _File,
    label: Annotated[str | None, typer.Option(help="Column to learn.")] = None,
    time: Annotated[
        str | None, typer.Option(help="Instead of --label, for survival: column of times to an event, from 0 on.")
    ] = None,
    event: Annotated[
        str | None, typer.Option(help="With --time: column that says whether the time ended with the event, 1 or 0.")
    ] = None,
    until: Annotated[
        float | None, typer.Option(help="With --time: when rows that are still watched are censored. Public.")
    ] = None,
    time_bins: Annotated[
        int | None, typer.Option(help="With --time: so many equal bins up to --until. Default: 12.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Schema file to write. - is standard output.")] = Path("schema.toml"),
    bins: Annotated[
        int | None, typer.Option(help="Cut numeric columns into about this many bins, at round numbers.")
    ] = None,
    positive: Annotated[
        str | None, typer.Option(help="Of two classes, the positive one. Default: the review asks.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Use this column, although its name speaks against it. May be repeated."),
    ] = None,
    delimiter: _Delimiter = None,
    decimal: Annotated[str | None, typer.Option(help="Decimal sign of a CSV file: . or ,")] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="The first line is a row. Columns are called column1, column2, ...")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the schema file if it exists.")] = False,
    json: _Json = False,
) -> None:
    """Draft a schema from the values of a file, for a person to review.

    Columns that name sites, people or rows, free texts and weights are left out. What was read from the file is private
    until someone has looked at it, and is listed under "unreviewed". Delimiter and decimal sign are found out from the
    first lines if they are not said, and are written into the schema.
    """
    from sottovoce.files.schema.draft import draft as read_off
    from sottovoce.files.schema.form import DELIMITERS, spelt
    from sottovoce.files.schema.sniffing import sniff
    from sottovoce.settings.disk import check_new, check_other, remarks, text_out

    learnt = _label(label, time, event, until, time_bins)
    check_other(out, file)
    if not force:
        check_new(out)
    form = sniff(file, None if delimiter is None else spelt(delimiter), decimal, header=not no_header)
    made = read_off(file, learnt, bins, form, positive, keep or ())
    text = made.text()
    with text_out(out) as written:
        written.write(text)
    if json:
        print_json({"schema": str(out), "left_out": made.left_out, **_facts(made.schema)}, remarks(out))
        return
    form, said = made.schema.file, remarks(out)
    if form.delimiter != ",":
        output.show(f"Fields are separated by {DELIMITERS[form.delimiter]}.", file=said)
    if form.decimal != ".":
        output.show("The decimal sign is a comma.", file=said)
    output.show(
        f"Wrote {out}: {len(made.schema.columns)} columns, {made.schema.d} features.",
        *(f"Left out: {name!r}, {reason}." for name, reason in made.left_out.items()),
        f"Values were taken from the file. Review them before training: sottovoce schema review {out}",
        file=said,
    )


def _label(
    label: str | None, time: str | None, event: str | None, until: float | None, bins: int | None
) -> "str | SurvivalLabel":
    """The column to learn, or times to an event."""
    from sottovoce.files.schema.survival import SurvivalLabel

    if label is not None:
        for name, value in (("time", time), ("event", event), ("until", until), ("time_bins", bins)):
            expect(value is None, f"--label without --{name.replace('_', '-')}", **{name: value})
        return label
    if time is None or event is None or until is None:
        raise InputError(
            "Expected --label with the column to learn or, for survival, --time, --event and --until, got "
            f"time={time!r}, event={event!r}, until={until!r}. Say which."
        )
    return SurvivalLabel(time=time, event=event, until=until, bins=12 if bins is None else bins)


@schema_app.command()
def check(
    file: _File,
    schema: Annotated[Path, typer.Option(help="Schema file.")] = Path("schema.toml"),
    delimiter: _Delimiter = None,
    json: _Json = False,
) -> int:
    """Report which cells of a file do not fit a schema, by row and column. Nothing is trained, nothing is written.

    Rows count from 1 below the header. The exit code is 0 if the file fits and 1 if it does not.
    """
    from sottovoce.files.schema import Schema
    from sottovoce.files.schema.check import check as compare

    agreed = Schema.load(schema)
    report = compare(file, agreed.separated(delimiter))
    if json:
        found = {"digest": agreed.digest(), "advice": _advice(agreed), **plain(report)}
        print_json({"file": str(file), "schema": str(schema), **found})
    else:
        _show_report(report)
        _advise(agreed)
    return 0 if report.fits else 1


@schema_app.command()
def show(
    schema: Annotated[Path, typer.Argument(help="Schema file.", metavar="SCHEMA")],
    json: _Json = False,
) -> None:
    """Say what follows from a schema: features, the bound on every row, and what still needs a review."""
    from sottovoce.files.schema import Schema

    agreed = Schema.load(schema)
    if json:
        print_json({"schema": str(schema), **_facts(agreed), "features": list(agreed.feature_names)})
    else:
        _show_schema(agreed)


schema_app.command()(review)


def _facts(schema: "Schema") -> dict[str, Any]:
    return {
        "digest": schema.digest(),
        "d": schema.d,
        "data_norm": schema.data_norm,
        "encoded_norm": schema.encoded_norm,
        "usual_norm": schema.usual_norm,
        "advice": _advice(schema),
        "classes": None if schema.classes is None else list(schema.classes),
        "terms": [term.words() for term in schema.terms or ()],
        "supplied": schema.known,
        "shares": {column.name: column.shares for column in schema.columns if column.shares is not None},
        "unreviewed": list(schema.unreviewed),
    }


def _show_report(report: "Report") -> None:
    rows = [
        (count.column or "-", str(count.cells), count.finding.words, "refused" if count.finding.refused else "")
        for count in report.counts
    ]
    if rows:
        output.show(Table(("column", "cells", "what was found", ""), rows))
    output.show(*(problem.message for problem in report.problems))
    more = sum(count.cells for count in report.counts if count.finding.refused) - len(report.problems)
    if more:
        output.show(f"And {more} more.")
    if report.unused_columns:
        output.show(f"Not in the schema, so not used: {_listed(report.unused_columns)}.")
    verdict = "The file fits" if report.fits else "The file does NOT fit"
    output.show(f"{verdict}: {report.rows} rows read, {report.used} usable.")


def _show_schema(schema: "Schema") -> None:
    from sottovoce.files.schema.review import site_words, supplied, term_words

    rows = [(column.name, column.kind(), str(column.width), str(column.missing)) for column in schema.columns]
    rows += [(term.name, term.kind(), str(term.width(columns)), "") for term, columns in schema.joined]
    output.show(Table(("column", "kind", "features", "missing"), rows))
    output.show(*term_words(schema), f"Label: {schema.label.name}, {schema.label.meaning()}.")
    if schema.site_effects is not None:
        output.show(site_words(schema))
    if schema.person is not None:
        words = (f"People: column {schema.person.column}, with at most {schema.person.rows} rows each.",)
        output.show(" ".join((*words, *schema.person.notes)))
    if schema.weight is not None:
        output.show(f"Weights: column {schema.weight.column}, above 0 and at most {schema.weight.bound:g}.")
    if schema.exposure is not None:
        output.show(f"Exposures: column {schema.exposure.column}, above 0 and at most {schema.exposure.bound:g}.")
    output.show(
        f"Intercept: {f'{schema.intercept:g}' if schema.intercept else 'none'}.",
        f"d = {schema.d} features, data_norm = {schema.data_norm:g}, row_norm = {schema.row_norm}.",
        f"Digest: {schema.digest()}",
    )
    if told := supplied(schema):
        output.show(told)
    _advise(schema)
    if schema.unreviewed:
        output.show(f"Needs a review before training: {_listed(schema.unreviewed)}.")


def _advice(schema: "Schema") -> str | None:
    from sottovoce.files.schema.advice import on_row_norm

    return on_row_norm(schema)


def _advise(schema: "Schema") -> None:
    if advice := _advice(schema):
        output.show(f"Advice: {advice}")


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - _MOST_SHOWN
    return ", ".join(names[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
