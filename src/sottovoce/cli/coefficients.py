"""`sottovoce coefficients`: coefficients of a model with standard errors."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sottovoce.errors import InputError, expect
from sottovoce.settings import plain

if TYPE_CHECKING:
    from sottovoce.files.models import Model


def coefficients(
    model: Annotated[
        Path, typer.Argument(help="Model file, as training leaves it: model.safetensors.", metavar="MODEL")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print a CSV table instead of text.")] = False,
) -> None:
    """Show every coefficient with standard error, interval, z, p and odds or rate ratio, in the units of the columns.

    Standard errors and intervals cover sampling error and privacy noise. Coefficients that are not identified at this
    budget are marked: their intervals are wide. The model must have been trained for it:
    sottovoce train --inference.
    """
    from sottovoce.cli.output import print_json, show
    from sottovoce.document import Code
    from sottovoce.files import models

    expect(not (json and csv), "one of --json and --csv", json=json, csv=csv)
    loaded = models.load(model)
    table = loaded.inference
    if table is None:
        raise InputError(
            f"Expected a model that was trained for inference, got {str(model)!r} without it. Standard errors need "
            "sums of their own, paid for beforehand: train with --inference. `sottovoce show` has "
            "the coefficients without them."
        )
    if json:
        print_json({**_about(loaded), **plain(table)})
    elif csv:
        print(table.to_csv(), end="")
    else:
        show(Code(table.text(_about(loaded))))


def _about(model: "Model") -> dict[str, str]:
    """Label and guarantee of the model, as the heading shows them."""
    from sottovoce.numerals import exactly

    label = "the label" if model.schema is None else model.schema.label.name
    shown = label if model.classes is None else f"{label} = {model.classes[-1]}"
    promised = f"epsilon = {exactly(model.privacy.promised)}, delta = {exactly(model.privacy.delta)}"
    return {"Label": shown, "Promised": promised if model.privacy.private else "nothing: no noise was added"}
