"""`sottovoce show`: the content of a model file, as text or JSON."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sottovoce.settings import plain

if TYPE_CHECKING:
    from sottovoce.files.models import Model

_MOST = 15  # coefficients of an output that are shown


def show(
    model: Annotated[
        Path, typer.Argument(help="Model file, as training leaves it: model.safetensors.", metavar="MODEL")
    ],
    every: Annotated[bool, typer.Option("--all", help="Show every coefficient, not only the largest.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Say what a model predicts, what it promises to the rows it was learnt from, its coefficients, and its origin.

    All of it is part of the file: whoever has the file may see it.
    """
    from sottovoce.cli.output import print_json
    from sottovoce.files import models

    loaded = models.load(model)
    if json:
        print_json(_facts(loaded))
    else:
        _show(loaded, every)


def _facts(model: "Model") -> dict[str, Any]:
    from sottovoce.files.models.coefficients import NO_ERRORS, coefficients

    table = model.inference
    return {
        **plain(model),
        "label": None if model.schema is None else model.schema.label,
        # Where it is known how sure they are, they come with that, and what is not identified has no numbers.
        "coefficients": coefficients(model) if table is None else None,
        "inference": table,
        "uncertainty": NO_ERRORS if table is None else None,
        "privacy": model.privacy,
        "provenance": model.provenance,
        "signed_by": model.signed_by,
    }


def _show(model: "Model", every: bool) -> None:
    from sottovoce.cli.output import console, say
    from sottovoce.cli.results import observed
    from sottovoce.files.models.coefficients import NO_ERRORS

    shown = console()
    say(shown, _predicts(model))
    say(shown, "")
    say(shown, model.privacy.prose())
    if (table := observed(model.privacy.observers)) is not None:
        shown.print(table)
    say(shown, "")
    if model.inference is not None:
        for line in model.inference.text().splitlines():
            say(shown, line)
    else:
        say(shown, NO_ERRORS)
        for output, name in enumerate(_outputs(model)):
            _show_coefficients(model, output, name, every)
    say(shown, "")
    for name, value in model.provenance.items():
        say(shown, f"{name}: {_one_line(value)}")
    say(shown, f"signed by: {model.signed_by or 'nobody'}")


def _predicts(model: "Model") -> str:
    """A sentence on what the model predicts, and from what."""
    from sottovoce.problem.losses import Counts

    what = "the label" if model.schema is None else repr(model.schema.label.column)
    of = f"{model.d} features" if model.schema is None else f"{len(model.schema.columns)} columns ({model.d} features)"
    if model.classes is None:
        number = "mean of the count" if isinstance(model.loss.labels, Counts) else "number"
        return f"Predicts the {number} {what} from {of}. Learnt with the loss {model.loss.name}."
    among = ", ".join(model.classes[:10]) + (", ..." if len(model.classes) > 10 else "")
    how = " with probabilities" if model.has_probabilities else ""
    return f"Predicts {what} among {among}{how}, from {of}. Learnt with the loss {model.loss.name}."


def _outputs(model: "Model") -> list[str]:
    """For each output, what a larger value of it speaks for."""
    from sottovoce.problem.losses import Counts

    if model.classes is None:
        return ["a larger mean, by its logarithm" if isinstance(model.loss.labels, Counts) else "a larger prediction"]
    return [repr(name) for name in (model.classes if model.weights.shape[1] > 1 else model.classes[1:])]


def _show_coefficients(model: "Model", output: int, speaks_for: str, every: bool) -> None:
    """Print the coefficients of an output to two digits: without standard errors nobody knows how many are right."""
    from sottovoce.cli.output import console, say, table, verbatim
    from sottovoce.files.models.coefficients import coefficients
    from sottovoce.files.models.inference import LARGEST_LOG, RATIOS

    found, shown = coefficients(model), console()
    chosen = list(found.features) if every else found.largest(output, _MOST)
    kind = RATIOS.get(model.loss.name)
    lines = table("feature", "from lowest to highest", "per unit", *([] if kind is None else [f"{kind} per unit"]))
    for one in chosen:
        effect, per_unit = one.effect[output], one.per_unit[output]
        ratio = [] if kind is None else [_ratio(per_unit) if per_unit < LARGEST_LOG else "huge"]
        lines.add_row(verbatim(one.feature), f"{effect:+.2g}", f"{per_unit:+.2g}", *ratio)
    say(shown, "")
    which = (
        "All" if every or len(chosen) == len(found.features) else f"The {len(chosen)} largest of {len(found.features)}"
    )
    say(shown, f"{which} coefficients, in the units of the columns; above 0 speaks for {speaks_for}.")
    shown.print(lines)
    say(shown, f"Intercept: {found.intercept[output]:+.2g}, where every number is 0 and nothing is said.")


def _ratio(log_ratio: float) -> str:
    """To two digits; one near 1 to those of its distance from 1, since 1 itself would say that there is no effect."""
    from math import exp, floor, log10

    small = 1e-9 < abs(log_ratio) < 0.1
    return f"{exp(log_ratio):.{1 - floor(log10(abs(log_ratio)))}f}" if small else f"{exp(log_ratio):.2g}"


def _one_line(value: object) -> str:
    """A value of the provenance on one line."""
    if isinstance(value, dict):
        parts = [f"{name} = {part}" for name, part in list(value.items())[:_MOST]]
        return ", ".join(parts) + (f" and {len(value) - _MOST} more" if len(value) > _MOST else "")
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
