"""`sottovoce plan`: settings from public numbers, before anyone joins."""

import json as json_module
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sottovoce.cli.output import show
from sottovoce.document import Code
from sottovoce.errors import InputError, expect
from sottovoce.settings import plain
from sottovoce.settings.supplied import Supplied

if TYPE_CHECKING:
    from sottovoce.algorithms import MaskedNewton
    from sottovoce.files.schema import Schema
    from sottovoce.privacy import Unit
    from sottovoce.problem.answers import Answers
    from sottovoce.problem.dataset import Dataset
    from sottovoce.problem.losses import Loss

_NETWORK, _PRIVACY, _PROBLEM, _OUTPUT = "Network", "Privacy", "Problem", "Files and output"
_STAND_INS = ("adult", "bank")


def _option(text: str, panel: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel)


def _supplied(name: str) -> Any:
    text = Supplied.__dataclass_fields__[name].metadata["help"]
    return _option(f"{text} Default: as supplied in the schema.", _PROBLEM)


def plan(
    sites: Annotated[int | None, _option("How many sites.", _NETWORK)] = None,
    rows: Annotated[int | None, _option("Rows at each site.", _NETWORK)] = None,
    sizes: Annotated[
        str | None, _option("Rows of each site, as in 100,200,150; instead of --sites and --rows.", _NETWORK)
    ] = None,
    graph: Annotated[str, _option("Which sites exchange messages.", _NETWORK)] = "complete",
    max_rounds: Annotated[int, _option("Rounds of messages that the sites can afford.", _NETWORK)] = 200,
    epsilon: Annotated[float, _option("Total budget over all rounds.", _PRIVACY)] = 1.0,
    delta: Annotated[
        float | None,
        _option("Chance of failure that the guarantee allows for. Default: at most 1/(100 rows).", _PRIVACY),
    ] = None,
    max_grad_norm: Annotated[float | None, _option("Clip every record's gradient to this norm.", _PRIVACY)] = None,
    colluding: Annotated[
        int | None, _option("How many sites may collude, sharing all they know. Default: fewer than half.", _PRIVACY)
    ] = None,
    rows_per_person: Annotated[
        int | None, _option("Protect people: most rows of one person at a site. Default: as in the schema.", _PRIVACY)
    ] = None,
    sites_per_person: Annotated[
        int | None, _option("Most sites at which one person has rows. Default: one.", _PRIVACY)
    ] = None,
    features: Annotated[int | None, _option("Columns of the table, after one-hot encoding.", _PROBLEM)] = None,
    schema: Annotated[Path | None, _option("Public schema that gives columns and norm.", _PROBLEM)] = None,
    stand_in: Annotated[str | None, _option("Public data set to plan on: adult or bank.", _PROBLEM)] = None,
    loss: Annotated[
        str | None, _option("Loss of one row. Default: what the schema's label asks for, else logistic.", _PROBLEM)
    ] = None,
    classes: Annotated[int | None, _option("How many classes, with --loss softmax.", _PROBLEM)] = None,
    threshold: Annotated[
        float | None, _option("Of --loss huber, in half-widths of the label's bounds.", _PROBLEM)
    ] = None,
    base_rate: Annotated[str | None, _supplied("base_rate")] = None,
    predictability: Annotated[str | None, _supplied("predictability")] = None,
    label_spread: Annotated[float | None, _supplied("label_spread")] = None,
    inference: Annotated[
        bool,
        _option(
            "Predict the intervals of coefficients instead, as of train --inference. Needs --schema.",
            _PROBLEM,
            "--inference",
        ),
    ] = False,
    focus: Annotated[
        list[str] | None,
        _option("With --inference: a column whose coefficients are asked for, as of train --focus. Repeat.", _PROBLEM),
    ] = None,
    lam: Annotated[float, _option("Weight of the regulariser beside the mean loss.", _PROBLEM)] = 1e-6,
    plot: Annotated[
        Path | None, _option("Plot the predicted loss against epsilon into this file (.svg, .png, .pdf).", _OUTPUT)
    ] = None,
    json: Annotated[bool, _option("Print one JSON object instead of tables.", _OUTPUT, "--json")] = False,
    quiet: Annotated[bool, _option("No progress bar.", _OUTPUT, "--quiet")] = False,
) -> None:
    """Choose settings from public numbers alone, and predict the loss and whether joining helps.

    With --inference: predict how wide the intervals of coefficients will be, and what rows or epsilon they would need.
    """
    counts = _counts(sites, rows, sizes)
    from sottovoce.cli import forecast, output
    from sottovoce.files import datasets
    from sottovoce.plan import plan as make
    from sottovoce.privacy import Unit
    from sottovoce.privacy.strength import default_delta
    from sottovoce.problem import graphs

    expect(stand_in in (None, *_STAND_INS), f"a stand-in among {', '.join(_STAND_INS)}", stand_in=stand_in)
    public = None if stand_in is None else {"adult": datasets.adult, "bank": datasets.bank}[stand_in]()
    shape = _shape(features, schema, public, len(counts))
    if rows_per_person is not None and shape.people not in (None, rows_per_person):
        raise InputError(
            f"Expected --rows-per-person {shape.people}, as in the schema, got {rows_per_person}. Leave it out."
        )
    people = shape.people if rows_per_person is None else rows_per_person
    unit = Unit(people, 1 if sites_per_person is None else sites_per_person)
    said = Supplied(base_rate=_rates(base_rate), predictability=predictability, label_spread=label_spread)
    expect(inference or not focus, "inference with focus, which is on intervals", "Add it", focus=focus)
    if inference:
        refused = {"features": features, "stand_in": stand_in, "max_grad_norm": max_grad_norm, "plot": plot}
        given = {name: value for name, value in refused.items() if value is not None}
        expect(schema is not None and not given, "--schema, and none of " + ", ".join(refused), "They go with "
               "predicted losses, not with --inference", schema=schema, **given)  # fmt: skip
        from sottovoce.algorithms.masked import MaskedNewton, features_of

        assert shape.schema is not None  # since there is a schema
        asked = MaskedNewton(
            inference=True, epsilon=epsilon, delta=default_delta(sum(counts)) if delta is None else delta, lam=lam,
            loss=_loss(loss, classes, threshold, shape.answers), colluding=colluding,
            focus=features_of(focus or (), shape.schema.feature_names),
        )  # fmt: skip
        supplied = Supplied(**{**shape.known, **said.given})
        _predict_intervals(asked, shape.schema, counts, unit, supplied, focus or [], json, quiet)
        return
    with output.progress(quiet or json) as bar:
        made = make(
            sizes=counts, d=shape.d, graph=graphs.by_name(graph, len(counts)), epsilon=epsilon,
            delta=default_delta(sum(counts)) if delta is None else delta,
            loss=_loss(loss, classes, threshold, shape.answers), lam=lam, data_norm=shape.data_norm,
            max_grad_norm=max_grad_norm, max_rounds=max_rounds, colluding=colluding, stand_in=public, unit=unit,
            exposed=shape.exposed, fixed=shape.fixed,
            **{**shape.known, **said.given}, progress=bar if quiet or json or bar else _print_progress,
        )  # fmt: skip
        if not json:  # at once: the forecast takes a while
            forecast.show_settings(made)
        found = plain(made)
    if plot is not None:
        forecast.draw(made, plot)
    if json:
        more = {"advice": shape.advice, "train": forecast.train_options(made, made.way)}
        print(json_module.dumps({**found, **more}, indent=2, allow_nan=False))
    else:
        forecast.show_forecast(made, plot)
        show(*([f"Advice: {shape.advice}"] if shape.advice else []))


def _predict_intervals(
    algorithm: "MaskedNewton", schema: "Schema", counts: list[int], unit: "Unit", supplied: Supplied, focus: list[str],
    json: bool, quiet: bool,
) -> None:  # fmt: skip
    from sottovoce.cli import forecast, intervals, output
    from sottovoce.plan import intervals as predict

    more = {"delta": algorithm.delta, "colluding": algorithm.colluding}
    wanted = {"nodes": len(counts), "epsilon": algorithm.epsilon, **more, **forecast.people(unit), "lam": algorithm.lam}
    asked = ["--inference", *(f"--focus {shlex.quote(column)}" for column in focus)]
    command = " ".join([*asked, forecast.options(wanted)])
    with output.progress(quiet or json, of="step") as bar:
        found = predict(algorithm, schema, counts, unit=unit, supplied=supplied, progress=bar)
        if json:
            output.print_json({"intervals": found, "train": command})
            return
        intervals.show_intervals(found)
    show(Code(f"sottovoce train {command}"))


def _print_progress(done: int, total: int) -> None:
    """Print progress on stderr, where there is no terminal to draw a bar on."""
    print(f"Trying on made-up tables: {done} of {total} done.", file=sys.stderr, flush=True)


class _Shape(NamedTuple):
    d: int
    data_norm: float
    answers: "Answers | None" = None  # what a schema says of the label
    people: int | None = None  # the most rows of a person, if it says them
    known: Mapping[str, Any] = MappingProxyType({})  # what it supplies of the labels
    exposed: bool = False  # if rows have exposures
    fixed: Mapping[str, Any] = MappingProxyType({})  # settings that it leaves no choice of
    advice: str | None = None  # on its row_norm
    schema: "Schema | None" = None


def _loss(name: str | None, classes: int | None, threshold: float | None, answers: "Answers | None") -> "Loss":
    from sottovoce.problem import losses

    name = name or ("softmax" if classes is not None else "huber" if threshold is not None else None)
    if answers is not None and answers.ends is not None:
        raise InputError(
            "Expected a label that is a class or a number to plan for, got times to an event. There is nothing to "
            "choose: sottovoce train learns proportional hazards from them."
        )
    if answers is not None:
        fits = answers.loss(name) or losses.Logistic()  # what does not go with the schema's label is refused
        many = 0 if answers.classes is None else len(answers.classes)
        expect(classes in (None, many), f"--classes {many}, as in the schema", classes=classes)
        if threshold is None:
            return fits
    name = name or losses.Logistic.name
    if name == losses.Softmax.name and classes is None:
        raise InputError(f"Expected --classes with loss={name!r}, got none. Say how many there are.")
    shape = {"classes": classes, "threshold": threshold}
    return losses.by_name(name, **{key: value for key, value in shape.items() if value is not None})


def _rates(text: str | None) -> float | tuple[float, ...] | None:
    if text is None:
        return None
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"Expected a share such as 0.01, or several with commas, got base_rate={text!r}.") from None
    return found[0] if len(found) == 1 else found


def _counts(sites: int | None, rows: int | None, sizes: str | None) -> list[int]:
    if sizes is not None:
        expect(sites is None and rows is None, "either --sizes or --sites with --rows", sizes=sizes)
        try:
            return [int(part) for part in sizes.split(",")]
        except ValueError:
            raise InputError(f"Expected whole numbers with commas, as in 100,200,150, got sizes={sizes!r}.") from None
    if sites is None or rows is None:
        raise InputError(f"Expected --sites and --rows, or --sizes, got sites={sites}, rows={rows}. Give both.")
    expect(sites >= 1 and rows >= 1, "at least one site and one row", sites=sites, rows=rows)
    return [rows] * sites


def _shape(features: int | None, schema: Path | None, public: "Dataset | None", sites: int) -> _Shape:
    """Features and norm of rows at so many sites, from whichever of the first three was given; refuses none of them."""
    if schema is not None:
        from sottovoce.files.schema import Schema
        from sottovoce.files.schema.advice import on_row_norm
        from sottovoce.problem.answers import Answers
        from sottovoce.problem.problem import site_names

        found = Schema.load(schema).at_sites(site_names(sites))
        shape = _Shape(int(found.d), float(found.data_norm), Answers.of(found), found.unit.rows)
        return shape._replace(
            known=found.known,
            exposed=found.exposure is not None,
            advice=on_row_norm(found),
            schema=found,
            fixed={} if found.weight is None else {"moments": 0.0},  # rows have to count alike for a head start
        )
    if features is not None:
        return _Shape(features, 1.0)
    if public is not None:
        return _Shape(public.d, public.data_norm)
    raise InputError("Expected --features, --schema or --stand-in, got none. One of them must say how many columns.")
