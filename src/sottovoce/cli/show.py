"""`sottovoce show`: the content of a model file, as text or JSON."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from sottovoce.errors import expect
from sottovoce.settings import check_choice, plain

if TYPE_CHECKING:
    from sottovoce.files.models import Model

_MOST = 15  # coefficients of an output that are shown


def show(
    model: Annotated[
        Path, typer.Argument(help="Model file, as training leaves it: model.safetensors.", metavar="MODEL")
    ],
    every: Annotated[bool, typer.Option("--all", help="Show every coefficient, not only the largest.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    formula: Annotated[
        str | None,
        typer.Option(
            help="Print the model as a formula for new rows in a database or a spreadsheet: sql or spreadsheet."
        ),
    ] = None,
    tables: Annotated[
        bool,
        typer.Option(
            "--tables",
            help="Print tables of any two columns with levels, which a run on masked sums has released beside its "
            "model. Give its folder. They spend no budget.",
        ),
    ] = False,
) -> None:
    """Say what a model predicts, what it promises to the rows it was learnt from, its coefficients, and its origin.

    All of it is part of the file: whoever has the file may see it.
    """
    from sottovoce.cli.output import print_json
    from sottovoce.files import models

    expect(formula is None or not (json or every), "--formula without --json and --all", formula=formula)
    if tables:
        expect(formula is None and not every, "--tables without --formula and --all", formula=formula, all=every)
        _show_tables(model if model.is_dir() else model.parent, json)
        return
    loaded = models.load(model)
    if formula is not None:
        from sottovoce.files.models.formula import Form
        from sottovoce.files.models.formula import formula as written

        check_choice("formula", formula, get_args(Form))
        print(written(loaded, cast("Form", formula)))
    elif json:
        print_json(_facts(loaded))
    else:
        _show(loaded, every)


def _show_tables(folder: Path, json: bool) -> None:
    from sottovoce.cli.output import print_json, show
    from sottovoce.files import models
    from sottovoce.files.models.apply import schema_of, weights_digest
    from sottovoce.tables.pairs import ReleasedMoments, pair_tables

    moments, loaded = ReleasedMoments.load(folder), models.load(folder / "model.safetensors")
    same = moments.model == weights_digest(loaded)
    expect(same, "moments of the run that left the model beside them", folder=str(folder))
    found = pair_tables(schema_of(loaded), moments, loaded.privacy)
    if json:
        print_json(plain(found))
    else:
        show(*found.described()[:-1])


def _facts(model: "Model") -> dict[str, Any]:
    from sottovoce.files.models.coefficients import NO_ERRORS, coefficients

    table = model.inference
    return {
        **plain(model),
        "label": None if model.schema is None else model.schema.label,
        # Where it is known how sure they are, they come with that.
        "coefficients": coefficients(model) if table is None else None,
        "inference": table,
        "uncertainty": NO_ERRORS if table is None else None,
        "privacy": model.privacy,
        "provenance": model.provenance,
        "signed_by": model.signed_by,
    }


def _show(model: "Model", every: bool) -> None:
    from sottovoce.cli.output import show
    from sottovoce.document import Code, Facts
    from sottovoce.files.models.coefficients import NO_ERRORS, described
    from sottovoce.privacy.words import guarantee

    show(model.predicts(), "", *guarantee(model.privacy), "")
    if model.inference is not None:
        show(Code(model.inference.text()))
    else:
        show(NO_ERRORS)
        for output in model.told:
            show("", *described(model, output, None if every else _MOST))
    origin = [(name, _one_line(value)) for name, value in model.provenance.items()]
    show("", Facts([*origin, ("signed by", model.signed_by or "nobody")]))


def _one_line(value: object) -> str:
    """A value of the provenance on one line."""
    if isinstance(value, dict):
        parts = [f"{name} = {part}" for name, part in list(value.items())[:_MOST]]
        return ", ".join(parts) + (f" and {len(value) - _MOST} more" if len(value) > _MOST else "")
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
