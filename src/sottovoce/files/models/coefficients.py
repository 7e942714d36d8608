"""Coefficients of a model per column of a file, in the units of the columns.

Weights belong to encoded rows: numbers are moved into [0, 1] or [-1, 1], and with row_norm = "bound" every row is then
divided by B = sqrt(number of columns + intercept^2). Both are undone here:

    z = intercept + sum over columns of (per unit) x    for a number x
                                     or (effect)        for a category, a bin, a boolean that is true, a missing value
        + sum over terms of (per unit) times the product for an interaction, in the units of both columns
                         or (effect) times the function  for a spline, which is 1 at the knot of its name

Where a number takes part in an interaction, the coefficient of the other column is for the number 0, in its own unit.

A row that a schema with a numeric `row_norm` cuts is shorter than that says: its z is that much nearer to the offset.
"""

from dataclasses import dataclass, replace
from functools import partial
from math import exp, floor, log10
from typing import final

import numpy as np

from sottovoce.algorithms import PrivateMethod
from sottovoce.arrays import Floats
from sottovoce.document import Part, Table, Words
from sottovoce.files.models.inference import (
    INTERCEPT,
    LARGEST_LOG,
    RATIOS,
    Inference,
    by_unit,
    inferred,
    of_people,
    told_of,
)
from sottovoce.files.models.model import Model
from sottovoce.files.schema import Schema
from sottovoce.files.schema.column import Units
from sottovoce.problem.answers import Answers
from sottovoce.problem.losses import Counts
from sottovoce.sums.inference import Evidence

NO_ERRORS = (
    "These coefficients have no standard errors, since none were released. Any of them may be mostly noise, even its "
    "sign. For standard errors, train with --inference."
)


@final
@dataclass(frozen=True)
class Coefficient:
    """The coefficient of one feature: one number, or one for each class.

    Args:
        feature: its name.
        effect: how far the output moves from the lowest to the highest value, or from no to yes.
        per_unit: how far for 1 in the unit of the column; as `effect` where there are no units.
        listed: False for what stands for all that the schema does not list, such as "<other>": a category that the code
            book does not have is no finding.
    """

    feature: str
    effect: tuple[float, ...]
    per_unit: tuple[float, ...]
    listed: bool = True


@final
@dataclass(frozen=True)
class Coefficients:
    """The coefficients of all features, and the intercept: the output where every column is 0 in its own unit."""

    features: tuple[Coefficient, ...]
    intercept: tuple[float, ...]

    def largest(self, output: int, most: int) -> list[Coefficient]:
        """The `most` listed features with the largest effect on this output, largest first."""
        listed = [one for one in self.features if one.listed]
        return sorted(listed, key=lambda one: -abs(one.effect[output]))[:most]


def coefficients(model: Model) -> Coefficients:
    """Coefficients per column of the model's schema; without a schema, the weights as they are."""
    if model.schema is None:
        found = [_plain(name, row) for name, row in zip(model.names, model.weights, strict=True)]
        return Coefficients(tuple(found), (model.offset,) * model.weights.shape[1])
    return of_schema(model.schema, model.weights, model.offset)


def of_schema(schema: Schema, weights: Floats, offset: float = 0.0) -> Coefficients:
    """Coefficients of weights (d, outputs) for rows that this schema has encoded."""
    # A numeric `row_norm` cuts some rows; which ones, and by how much, is not known here.
    weights = weights / (schema.encoded_norm if schema.row_norm == "bound" else 1.0)
    constant: Floats = np.full(weights.shape[1], offset)
    if schema.intercept > 0:
        constant += schema.intercept * weights[-1]
    slope, move, span, listed = units(schema)
    own = weights[: len(slope)]
    per_unit, constant = own * slope[:, None], constant + move @ own
    places, first = dict[str, slice](), 0
    for column in schema.columns:
        places[column.name] = slice(first, first := first + column.width)
    for term, columns in schema.joined:
        place = slice(first, first := first + term.width(columns))
        per_unit[place], beside, more = term.restored(columns, own[place])
        constant += more
        for name, added in zip(term.of, beside, strict=False):
            per_unit[places[name]] += added
    effects = (per_unit * span[:, None]).tolist()
    names = schema.feature_names[: len(slope)]
    lines = zip(names, effects, per_unit.tolist(), listed.tolist(), strict=True)
    found = tuple(Coefficient(name, tuple(effect), tuple(one), known) for name, effect, one, known in lines)
    return Coefficients(found, tuple(constant.tolist()))


def units(schema: Schema) -> Units:
    """How the features of a schema, without the intercept, follow from its columns in their own units."""
    parts = [column.units() for column in schema.columns]
    parts += [term.units(columns) for term, columns in schema.joined]
    return Units(*(np.concatenate(found) for found in zip(*parts, strict=True)))


def table_of(
    algorithm: PrivateMethod, evidence: Evidence, schema: Schema | None, features: tuple[str, ...], answers: Answers
) -> Inference:
    """The table with standard errors of what a run has released, in the units of the columns.

    Args:
        algorithm: of the run.
        evidence: of the run.
        schema: of its rows; None for arrays, whose coefficients are per 1 in a feature.
        features: names of the features.
        answers: what the label can be.
    """
    if schema is None:
        told = len(evidence.point)  # without the constant, of times to an event
        return inferred(algorithm, evidence, features[:told], np.eye(told), of_people(evidence))
    # Of classes, the weights are of log-odds; of numbers, they are in the unit that labels were learnt in.
    one, offset = answers.model(np.ones(1)) if answers.classes is None else (np.ones(1), 0.0)
    matrix = float(one[0]) * by_unit(partial(per_unit, schema), schema.d)
    names = (*(schema.feature_names[:-1] if schema.intercept else schema.feature_names), INTERCEPT)
    matrix, names = told_of(evidence, matrix, names)
    if not matrix[-1].any():
        matrix, names = matrix[:-1], names[:-1]
    known = replace(evidence, largest=schema.largest)
    constant = schema.intercept * schema.data_norm / schema.encoded_norm  # require_inferable has refused cut rows
    return inferred(algorithm, known, names, matrix, of_people(known), offset, constant)


def per_unit(schema: Schema, weights: Floats) -> tuple[Floats, Floats]:
    """The coefficients per unit, (features, outputs), and the intercepts, (outputs,)."""
    found = of_schema(schema, weights)
    return np.array([one.per_unit for one in found.features]), np.array(found.intercept)


def described(model: Model, output: int, most: int | None = None) -> list[Part]:
    """The coefficients of one output, all or the `most` with the largest effect. To two digits, since without standard
    errors it is not known how many are right.
    """
    found = coefficients(model)
    chosen = list(found.features) if most is None else found.largest(output, most)
    kind = RATIOS.get(model.loss.name)
    ratios = () if kind is None else (f"{kind} per unit",)
    rows = [
        (
            one.feature, f"{one.effect[output]:+.2g}", f"{one.per_unit[output]:+.2g}",
            *(_ratio(one.per_unit[output]) for _ in ratios),
        )
        for one in chosen
    ]  # fmt: skip
    headings = ("feature", "from lowest to highest", "per unit", *ratios)
    whole = len(chosen) == len(found.features)
    which = "All" if whole else f"The {len(chosen)} largest of {len(found.features)}"
    if model.classes is None:
        what = "the logarithm of the mean" if isinstance(model.loss.labels, Counts) else "the prediction"
        what = f"raises {'the hazard' if model.timed is not None else what}"
    else:
        name = (model.classes if model.weights.shape[1] > 1 else model.classes[1:])[output]
        what = f"favours {name!r}"
    return [
        Words(f"{which} coefficients, in the units of the columns. A coefficient above 0 {what}."),
        Table(headings, rows, frozenset(range(1, len(headings)))),
        Words(f"{_constants(model, found, output)}, for a row whose numbers are 0 and which is in no category."),
    ]


def _constants(model: Model, found: Coefficients, output: int) -> str:
    """The intercept or, of times to an event, the hazard of every interval, in words."""
    if model.timed is None:
        return f"Intercept: {found.intercept[output]:+.2g}"
    widths = np.diff(model.timed.ends)
    hazards = np.exp(np.minimum(found.intercept, LARGEST_LOG)) / widths
    return f"Hazards by bin, per unit of time: {', '.join(f'{hazard:.2g}' for hazard in hazards)}"


def _ratio(log_ratio: float) -> str:
    """The ratio to two digits; near 1, to two digits of its distance from 1, since 1 would mean no effect."""
    if log_ratio >= LARGEST_LOG:
        return "huge"
    small = 1e-9 < abs(log_ratio) < 0.1
    return f"{exp(log_ratio):.{1 - floor(log10(abs(log_ratio)))}f}" if small else f"{exp(log_ratio):.2g}"


def _plain(name: str, weights: Floats) -> Coefficient:
    numbers = tuple(float(w) for w in weights)
    return Coefficient(name, numbers, numbers)
