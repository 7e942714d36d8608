"""`sottovoce predict` and `sottovoce evaluate`: a model file applied to a file of rows."""

import json as json_module
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from sottovoce.errors import InputError
from sottovoce.settings import plain

if TYPE_CHECKING:
    from sottovoce.document import Table
    from sottovoce.files.models.apply import Written

_LISTED = 20  # numbers of rows that are shown to people

_MODEL = typer.Argument(help="Model file, as training leaves it: model.safetensors.", show_default=False)
_FILE = typer.Argument(help="CSV or Parquet file with the columns of the model's schema.", show_default=False)
_JSON = typer.Option("--json", help="Print one JSON object instead of a table.")
_DELIMITER = typer.Option(help="Field separator of a CSV file: , ; | or tab. Default: as in the schema.")


def predict(
    model: Annotated[Path, _MODEL],
    file: Annotated[Path, _FILE],
    out: Annotated[
        Path, typer.Option(help="CSV file to write the predictions to; it must not exist yet. - is standard output.")
    ],
    passed: Annotated[
        list[str] | None,
        typer.Option("--id", help="Column of the file to pass on beside the predictions. May be repeated."),
    ] = None,
    delimiter: Annotated[str | None, _DELIMITER] = None,
    unknown: Annotated[
        str,
        typer.Option(
            help="A category that the schema neither lists nor has an 'other' level for: refuse the file, skip the row "
            "and list it, or predict it without the column (other)."
        ),
    ] = "refuse",
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="A column that the file lacks: it counts as missing in every row, if the schema has a value for that. "
            "May be repeated."
        ),
    ] = None,
    at: Annotated[
        list[float] | None,
        typer.Option(
            help="Of times to an event: a time until which survival is predicted. Default: the ends of all bins. "
            "May be repeated.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[bool, _JSON] = False,
) -> None:
    """Predict every row of a file, and report how many rows were clipped, filled in or left out."""
    from sottovoce.cli.output import show
    from sottovoce.files import models
    from sottovoce.files.models import apply
    from sottovoce.files.schema.files import Unknown
    from sottovoce.settings import check_choice
    from sottovoce.settings.disk import STANDARD_OUTPUT, remarks

    if out != STANDARD_OUTPUT and out.exists():
        raise InputError(f"Expected a new file, got out={str(out)!r}, which exists. Choose another.")
    loaded = models.load(model)
    check_choice("unknown", unknown, get_args(Unknown))
    kind, lacking = cast("Unknown", unknown), tuple(without or ())
    written = apply.write_predictions(loaded, file, out, tuple(passed or ()), delimiter, kind, lacking, at or ())
    said = remarks(out)
    if json:
        summary = {"rows": written.rows, "dropped": written.dropped, "out": str(out), "without": lacking}
        summary |= {"found": plain(written.found)}
        summary["unknown"] = {"how": unknown, "count": len(written.unknown), "rows": list(written.unknown)}
        print(json_module.dumps({**summary, **_promise(loaded)}), file=said)
    else:
        print(f"{written.rows} predictions written to {out}.", file=said)
        for part in _done(written, skipped=unknown == "skip"):
            show(part, file=said)
        _tell(loaded, said)


def _done(written: "Written", *, skipped: bool) -> "Iterator[Table | str]":
    """What was done with how many rows, by column, and which rows have categories that the schema does not list."""
    from sottovoce.document import Table
    from sottovoce.numerals import counted

    if written.dropped:
        yield f"Not predicted: {counted(written.dropped, 'row')} with a missing value, which the schema leaves out."
    if written.found:
        rows = [(count.column or "", f"{count.cells:,}", count.finding.words) for count in written.found]
        yield Table(("column", "rows", "what was done"), rows, frozenset({1}))
    if written.unknown:
        which = ", ".join(map(str, written.unknown[:_LISTED])) + (", ..." if len(written.unknown) > _LISTED else "")
        became = "skipped" if skipped else "predicted without that column"
        many = counted(len(written.unknown), "row")
        yield f"Categories that the schema does not list: {many} {became}, of the file's rows {which}."
        if len(written.unknown) > _LISTED:
            yield "All of them are listed with --json."


_PANEL = "Private evaluation"


def evaluate(
    model: Annotated[Path, _MODEL],
    file: Annotated[Path, _FILE],
    delimiter: Annotated[str | None, _DELIMITER] = None,
    private: Annotated[
        bool,
        typer.Option(
            "--private", help="Compute the figures from noisy sums, so that they may be shared.", rich_help_panel=_PANEL
        ),
    ] = False,
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy budget of the evaluation.", rich_help_panel=_PANEL)
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Default: 1e-5, or less for many rows.", rich_help_panel=_PANEL)
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(help="Simulated sites that hold the rows. Default: 1.", rich_help_panel=_PANEL),
    ] = None,
    colluding: Annotated[
        int | None, typer.Option(help="Sites that may collude. Default: fewer than half.", rich_help_panel=_PANEL)
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Of two classes: the least probability at which the second is predicted. Default: 0.5.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    budget: Annotated[
        Path | None, typer.Option(help="Charge this budget, before a row is counted.", rich_help_panel=_PANEL)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write it to this new JSON file; sottovoce report RUN shows RUN/evaluation.json.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    json: Annotated[bool, _JSON] = False,
) -> None:
    """Say how good a model is on labelled rows.

    Figures are computed without noise: keep them to yourself. With --private they come from noisy sums, have
    confidence intervals, and cost a part of the rows' privacy budget.
    """
    from sottovoce.files import models
    from sottovoce.files.models import apply
    from sottovoce.privacy import HOLDER_ONLY

    asked = {
        "epsilon": epsilon, "delta": delta, "nodes": nodes, "colluding": colluding, "threshold": threshold,
        "budget": budget, "out": out,
    }  # fmt: skip
    if private:
        _evaluate_privately(models.load(model), file, delimiter, asked, json)
        return
    given = next((name for name, value in asked.items() if value is not None), None)
    if given is not None:
        raise InputError(f"Expected --private with --{given}, got no --private. Add it, or leave --{given} out.")
    loaded = models.load(model)
    found = apply.evaluate(loaded, file, delimiter)
    if json:
        told = plain(found)
        marked = {"holder_only": {"why": HOLDER_ONLY, "fields": list(told)}}
        print(json_module.dumps({**told, **marked, **_promise(loaded)}, allow_nan=False))
    else:
        _show(loaded, found)
        _tell(loaded)


_PRINTED = "Its cost is spent, so the evaluation is printed instead, as JSON: keep what was printed."


def _evaluate_privately(model: Any, file: Path, delimiter: str | None, asked: dict[str, Any], json: bool) -> None:
    """Charge, count, keep and print, in this order: nothing is lost that was paid for."""
    from sottovoce.cli import output
    from sottovoce.cli.budget import ADDS_UP, charging
    from sottovoce.files.models import apply
    from sottovoce.settings.disk import check_new
    from sottovoce.tally.words import described

    if asked["epsilon"] is None:
        raise InputError(
            "Expected --epsilon with --private, got none. Give the privacy budget of the evaluation: --epsilon 0.5."
        )
    out, budget = asked["out"], asked["budget"]
    if out is not None:
        check_new(out)
    if budget is None and not json:
        output.note(ADDS_UP)
    nodes = 1 if asked["nodes"] is None else asked["nodes"]
    found = apply.evaluate_privately(
        model, file, epsilon=asked["epsilon"], delta=asked["delta"], sites=nodes,
        colluding=asked["colluding"], threshold=asked["threshold"], delimiter=delimiter,
        charge=None if budget is None else charging(budget),
    )  # fmt: skip
    if out is not None:
        try:
            found.save(out)
        except InputError as error:
            output.print_json(found)
            raise InputError(f"{error} {_PRINTED}") from error
    if json:
        output.print_json(found)
    else:
        output.show(*described(found), *([] if out is None else [f"Kept in {out}."]))


def _promise(model: Any) -> dict[str, Any]:
    """Epsilon of the model, None if it is not private, and the notes of its guarantee."""
    privacy = model.privacy
    return {"epsilon": privacy.epsilon if privacy.private else None, "notes": list(privacy.notes)}


def _tell(model: Any, file: Any = None) -> None:
    """Print the guarantee of the model to the rows that it was learnt from, and its notes."""
    from sottovoce.numerals import exactly, up

    privacy = model.privacy
    said = f"epsilon = {up(privacy.epsilon)}, delta = {exactly(privacy.delta)}" if privacy.private else "NOTHING"
    print(f"The model promises {said} to the rows that it was learnt from.", file=file)
    for note in privacy.notes:
        print(f"Note: {note}", file=file)


def _show(model: Any, found: Any) -> None:
    from sottovoce.cli.output import show
    from sottovoce.document import Table, Words
    from sottovoce.privacy import HOLDER_ONLY
    from sottovoce.problem.figures import constant_words

    own, nothing = found.figures, found.no_model
    # Each with what no model at all reaches.
    figures = {
        "rows": (f"{found.rows:,}", ""),
        f"{model.loss.name} loss, mean": (_digits(own.risk, ".4f"), _digits(nothing.risk, ".4f")),
        "accuracy": (_share(own.accuracy), _share(found.majority)),
        f"recall of {found.positive}": (_share(found.recall), ""),
        f"precision of {found.positive}": (_share(found.precision), ""),
        "average precision" + (f" of {found.rare_class}, which is rare" if found.rare_class else ""): (
            _share(own.average_precision), _share(nothing.average_precision),
        ),
        "AUC": (_digits(own.auc, ".4f"), _digits(nothing.auc, ".4f")),
        "mean absolute error": tuple(
            _digits(error, ".6g") for error in (own.mean_absolute_error, nothing.mean_absolute_error)
        ),
        "R²": (_digits(own.r2, ".4f"), _digits(nothing.r2, ".4f")),
    }  # fmt: skip
    rows = [(name, figure, without or "") for name, (figure, without) in figures.items() if figure is not None]
    show(Table(("", "model", "no model"), rows, frozenset({1, 2})), f"No model: {constant_words(model.loss)}.")
    if found.worse_than_no_model:
        show(Words("By its loss the model is WORSE THAN NO MODEL on these rows.", "bad"))
    if found.confusion is not None:
        names = [f"{name} (positive)" if name == found.positive else name for name in model.classes]
        matrix = [(name, *(f"{n:,}" for n in counts)) for name, counts in zip(names, found.confusion, strict=True)]
        show(Table(("true \\ predicted", *names), matrix, frozenset(range(1, len(names) + 1))))
    show(f"{HOLDER_ONLY} Keep it to yourself.")


def _share(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.2f} %"


def _digits(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form)
