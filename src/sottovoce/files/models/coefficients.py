"""Coefficients of a model per column of a file, in the units of the columns.

Weights belong to encoded rows: numbers are moved into [0, 1] or [-1, 1], and with row_norm = "bound" every row is then
divided by B = sqrt(number of columns + intercept^2). Both are undone here:

    z = intercept + sum over columns of (per unit) x    for a number x
                                     or (effect)        for a category, a bin, a boolean that is true, a missing value

A row that a schema with a numeric `row_norm` cuts is shorter than that says: its z is that much nearer to the offset.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.files.models.model import Model
from sottovoce.files.schema import Schema
from sottovoce.files.schema.columns import Categorical, Ranged

NO_ERRORS = (
    "There are no standard errors: nothing was released that says how sure these coefficients are, and any of them may "
    "be mostly noise, its sign too. Training with --algorithm masked --inference releases it."
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
    parts = list(_parts(schema, weights))
    for _, moved in parts:
        constant += moved
    return Coefficients(tuple(part for part, _ in parts), tuple(constant.tolist()))


def per_unit(schema: Schema, weights: Floats) -> tuple[Floats, Floats]:
    """The coefficients per unit, (features, outputs), and the intercepts, (outputs,)."""
    found = of_schema(schema, weights)
    return np.array([one.per_unit for one in found.features]), np.array(found.intercept)


def _plain(name: str, weights: Floats, listed: bool = True) -> Coefficient:
    numbers = tuple(float(w) for w in weights)
    return Coefficient(name, numbers, numbers, listed)


def _parts(schema: Schema, weights: Floats) -> Iterator[tuple[Coefficient, Floats]]:
    """Every feature but the intercept, and what its zero in the column's unit adds to the constant."""
    place, none = 0, np.zeros(weights.shape[1])
    for column in schema.columns:
        names, own = column.feature_names(), weights[place : place + column.width]
        place += column.width
        other = column.other_name if isinstance(column, Categorical) else None
        for number, (name, row) in enumerate(zip(names, own, strict=True)):
            if number == 0 and isinstance(column, Ranged) and column.edges is None:
                # The number was moved into [0, 1] (unit) or [-1, 1] (symmetric).
                low, high = column.bounds
                effect = row if column.scale == "unit" else 2 * row
                slope = effect / (high - low)
                moved: Floats = -slope * low - (0 if column.scale == "unit" else row)
                yield Coefficient(name, tuple(effect.tolist()), tuple(slope.tolist())), moved
            else:
                yield _plain(name, row, listed=name != other), none
