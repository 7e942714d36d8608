"""Made-up rows of a schema: its columns, levels and bounds, with shares of levels where the schema supplies them.

Nothing here is computed from a row. What the schema does not say is assumed, and every table assumes something else, so
that several tables together show what is left open:

    levels      the j-th most frequent has weight j^-f, with f in FALLS. Which is which is drawn, and a level is as
                likely the reference as it is frequent. Seasons are alike
    bins        those of a number as below, none less than LEAST_BIN
    a flag      true in SHARES_OF_FLAGS of the rows
    missing     in SHARES_MISSING of the rows, if that is a feature
    numbers     roughly normal within the bounds: mean in MEANS, standard deviation in SPREADS, in widths of the bounds

Two hidden factors make columns go together. Terms are made of the columns, as in a file. Labels are those of
`sottovoce.plan.synthetic`.
"""

import numpy as np
from scipy.special import ndtr

from sottovoce.arrays import Floats, Ints
from sottovoce.files.schema import Boolean, Column, Schema
from sottovoce.files.schema.cells import Places
from sottovoce.files.schema.columns import Ranged, Seasonal
from sottovoce.files.schema.encoding import Encoding, term_entries
from sottovoce.files.schema.findings import Finding
from sottovoce.plan import synthetic
from sottovoce.plan.synthetic import FACTORS, Belief
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.losses import Loss

LOADING = 0.5  # of the hidden factors in the log-odds of a level, and in a number beside 1 of its own
LEAST_BIN, FALLS = 0.005, (0.3, 1.6)
SHARES_OF_FLAGS, SHARES_MISSING = (0.03, 0.5), (0.005, 0.2)
MEANS, SPREADS = (0.15, 0.6), (0.08, 0.28)
_SWEEPS, _LEAST = 20, 1e-6  # of matching the shares of levels; the least share that is made
_USUAL_SD = 0.4  # of a level's feature; the effect of a number is as large, over its standard deviation


def table(schema: Schema, rows: int, loss: Loss, *, seed: int, belief: Belief) -> Dataset:
    """A made-up data set of this schema, encoded as it encodes, with labels that the loss accepts."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(rows, FACTORS))
    shape, effects, first = (rows, len(schema.columns)), np.ones(schema.d), 0
    place, value = np.empty(shape, dtype=np.int32), np.empty(shape)
    for c, column in enumerate(schema.columns):
        place[:, c], value[:, c] = _column(column, rng, hidden)
        if not column.levels:
            effects[first] = _usual_effect(value[place[:, c] == 0, c])
        first += column.width
    for (term, columns), made in zip(schema.joined, term_entries(schema, place, value), strict=True):
        if not all(column.levels for column in columns):
            effects[first : first + term.width(columns)] = _usual_effect(made.value[made.value != 0])
        first += term.width(columns)
    found = np.full(shape, Finding.FITS, dtype=np.uint8)
    features = Encoding(schema, place, value, found).rows(np.ones(rows, dtype=np.bool_))
    labels = synthetic.labels(rng, features, hidden, effects, loss, belief, seed)
    return Dataset(features, labels, schema.feature_names, rows, schema.data_norm, schema.name)


def _usual_effect(numbers: Floats) -> float:
    """How large the coefficient of such numbers may be."""
    return _USUAL_SD / max(float(numbers.std()), _LEAST) if len(numbers) else 1.0


def _column(column: Column, rng: np.random.Generator, hidden: Floats) -> tuple[Places, Floats]:
    """Place and value of the feature of every row that is not zero."""
    if isinstance(column, Ranged) and not column.levels:
        mean, spread = _number(rng)
        own = hidden @ rng.normal(size=FACTORS) * LOADING + rng.normal(size=len(hidden))
        share = np.clip(mean + spread * own / own.std(), 0.0, 1.0)
        place, value = np.zeros(len(hidden), dtype=np.int32), share if column.scale == "unit" else 2 * share - 1
        if column.missing == "indicator":
            absent = rng.random(len(hidden)) < _between(rng, SHARES_MISSING)
            place[absent], value[absent] = 1, 1.0
        return place, value
    return column.at_levels(_levels(rng, hidden, shares_of(column, rng)))


def shares_of(column: Column, rng: np.random.Generator) -> Floats:
    """The shares of a column's levels, as supplied or else as drawn: they add up to 1."""
    if column.shares is not None:
        shares = np.array(column.shares)
        return np.asarray(shares / shares.sum())
    missing = _between(rng, SHARES_MISSING) if column.missing == "indicator" else None
    present = len(column.levels) - (missing is not None)
    if isinstance(column, Boolean):
        share = _between(rng, SHARES_OF_FLAGS)
        shares = np.array([share, 1 - share])
    elif isinstance(column, Ranged):
        assert column.edges is not None  # or it had no levels
        (low, high), (mean, spread) = column.bounds, _number(rng)
        below = ndtr(((np.array(column.edges) - low) / (high - low) - mean) / spread)
        shares = np.maximum(np.diff(below, prepend=0.0, append=1.0), LEAST_BIN)
    elif isinstance(column, Seasonal):
        shares = np.ones(present)
    else:
        shares = _unequal(rng, present, column.left_out)
    shares = shares / shares.sum()
    return shares if missing is None else np.append((1 - missing) * shares, missing)


def _unequal(rng: np.random.Generator, levels: int, reference: int | None) -> Floats:
    """Shares of so many levels, up to a factor."""
    shares = rng.permutation(np.arange(1.0, levels + 1) ** -rng.uniform(*FALLS))
    if reference is not None:
        other = int(rng.choice(levels, p=shares / shares.sum()))
        shares[[reference, other]] = shares[[other, reference]]
    return shares


def _number(rng: np.random.Generator) -> tuple[float, float]:
    """Mean and standard deviation of a number, in widths of its bounds."""
    low, high = np.log(SPREADS)
    return float(rng.uniform(*MEANS)), float(np.exp(rng.uniform(low, high)))


def _levels(rng: np.random.Generator, hidden: Floats, shares: Floats) -> Ints:
    """Levels of all rows, with these shares, that go along with the hidden factors."""
    scores = LOADING * rng.normal(size=(FACTORS, len(shares))).T @ hidden.T
    odds = np.exp(scores - scores.max(axis=0))  # (levels, rows)
    wanted = np.maximum(shares, _LEAST)
    scale = wanted
    for _ in range(_SWEEPS):
        scale = wanted / (odds @ (1 / (scale @ odds))) * len(hidden)
    reached = np.cumsum(scale[:, None] * odds, axis=0)
    return np.asarray(np.sum(reached[:-1] <= rng.random(len(hidden)) * reached[-1], axis=0), dtype=np.int64)


def _between(rng: np.random.Generator, ends: tuple[float, float]) -> float:
    """A share between these, evenly drawn in its log."""
    low, high = np.log(ends)
    return float(np.exp(rng.uniform(low, high)))
