"""Made-up tables of a given public shape, for the planner to try settings on.

A planner may not look at a row, so it looks at tables that resemble what people hold. A row has about 1.5 sqrt(d)
attributes. A third of them are numbers in [0, 1]; the others are categories of unequal frequency (the j-th most
frequent has weight j^-1.6), one column each. Numbers are often small, since a range must hold the largest, and half
of them are mostly zero. Two hidden factors make attributes go together. Rows are scaled to the declared norm. The
label follows a linear model whose effects are heavy-tailed: a few matter much, most little. A number that is small
has the effect of one that is not, so its coefficient is large: such directions are what learning is slow in.

How frequent the labels are and how well the features predict them is a `Belief`: what people state of it, and
wide ranges for what they leave open. Real labels lie in [-1, 1], as the library scales them; bounds must hold the
largest, so most labels are small beside them.

Every number here is an assumption about tables in general.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import brentq
from scipy.sparse.linalg import lsmr
from scipy.special import expit, logit, softmax, xlogy

from sottovoce.arrays import Floats
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.losses import Counts, Loss, Reals, Signs
from sottovoce.settings.supplied import Supplied

if TYPE_CHECKING:
    Csr: TypeAlias = sparse.csr_array[np.float64, tuple[int, int]]

FACTORS, FALL_OFF, LOADING = 2, 1.6, 1.2
FACTORS_SHARE = 0.5  # of the variance of the linear model that goes along with the hidden factors
MAGNITUDES = (0.08, 0.3)  # of numbers
NUMBERS_COUNT = 4.0  # effect of a number of its usual size, against that of a category
NON_ZERO = (0.05, 0.3)  # share of the rows in which a mostly zero number is not zero

# What is left open: the share of the rarer label, of the loss of no model that the best one takes off, and of labels
# that are numbers the spread and the mean, in half-widths of their bounds.
BASE_RATES, EXPLAINED = (0.005, 0.5), (0.03, 0.75)
LABEL_SPREADS, LABEL_MEANS = (0.1, 0.4), (-0.7, 0.2)
FALL_OFF_OF_CLASSES = (0.0, 1.5)
# Multiples of these fill a square, or a cube, evenly, so a few tables span all that is left open.
_TURNS = (0.8191725133961645, 0.6710436067037893, 0.5497004779019703)


@final
@dataclass(frozen=True)
class Belief:
    """Prior knowledge of the labels. It is public, and may come from no private row.

    Args:
        base_rate: the share of the rarer (or either) of two classes, or the shares of all classes. None: open.
        explained: how much of the loss of no model the best linear model takes off, from and to; for numbers, of their
            variance. None: open, unless there is an auc.
        auc: the same as the chance that the best model ranks a row of one class above one of the other.
        label_spread: standard deviation of labels that are numbers, in half-widths of their bounds. None: open.
    """

    base_rate: float | tuple[float, ...] | None = None
    explained: tuple[float, float] | None = None
    auc: float | None = None
    label_spread: float | None = None

    @classmethod
    def of(cls, supplied: Supplied, loss: Loss) -> "Belief":
        """A belief from what people state; refused where it does not fit the labels of the loss."""
        supplied.expect_fit(None if isinstance(loss.labels, Reals) else max(loss.outputs, 2))
        return cls(supplied.base_rate, supplied.explained, supplied.auc, supplied.label_spread)

    def words(self, loss: Loss) -> str:
        """The belief in words, with what is left open, for a note."""
        of = "loss of no model"
        if isinstance(loss.labels, Reals):
            low, high = LABEL_SPREADS if self.label_spread is None else (self.label_spread, self.label_spread)
            frequent, of = f"labels that spread over {_between(low, high)} % of half their bounds' width", "variance"
        elif self.base_rate is None and loss.outputs == 1:
            frequent = f"the rarer label in {_between(*BASE_RATES)} %"
        elif self.base_rate is None:
            frequent = "classes alike or very unequal"
        elif isinstance(self.base_rate, tuple):
            frequent = "classes as frequent as stated"
        else:
            frequent = f"{100 * self.base_rate:.3g} % positive"
        if self.auc is not None:
            return f"{frequent}; the best model has an AUC of {self.auc:g}"
        return f"{frequent}; the best model takes {_between(*(self.explained or EXPLAINED))} % off the {of}"


def _between(low: float, high: float) -> str:
    return f"{100 * low:.3g}" if low == high else f"{100 * low:.3g} to {100 * high:.3g}"


def table(
    rows: int, d: int, loss: Loss, *, data_norm: float = 1.0, seed: int = 0, belief: Belief | None = None
) -> Dataset:
    """A made-up data set of that shape, with labels that the loss accepts."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(rows, FACTORS))
    features, effects = _features(rng, hidden, d)
    scores = _scores(rng, features, hidden, effects, loss.outputs)
    labels = _labels(rng, scores, loss, belief or Belief(), tuple((0.5 + seed * turn) % 1.0 for turn in _TURNS))
    norm = data_norm if math.isfinite(data_norm) else 1.0
    return Dataset(features * norm, labels, tuple(f"x{j}" for j in range(d)), rows, data_norm, "synthetic")


def _features(rng: np.random.Generator, hidden: Floats, d: int) -> "tuple[Csr, Floats]":
    """Rows of norm 1, and for every column how large its coefficient may be."""
    rows = len(hidden)
    sizes, effects = _group_sizes(rng, d), np.ones(d)
    columns, values = [], []
    for first, size in zip(np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes, strict=True):
        if size == 1:
            number, effects[first] = _numbers(rng, hidden)
            columns.append(np.full(rows, first))
            values.append(number)
        else:
            columns.append(first + _categories(rng, hidden, int(size)))
            values.append(np.ones(rows))
    entries = np.stack(values, axis=1)
    entries /= np.maximum(np.sqrt(np.sum(entries**2, axis=1, keepdims=True)), 1e-3) * (1 + 2.0**-48)
    ends = np.arange(rows + 1) * len(sizes)
    return sparse.csr_array((entries.ravel(), np.stack(columns, axis=1).ravel(), ends), shape=(rows, d)), effects


def _numbers(rng: np.random.Generator, hidden: Floats) -> tuple[Floats, float]:
    low, high = np.log(MAGNITUDES)
    magnitude = math.exp(rng.uniform(low, high))
    mixed = hidden @ rng.normal(size=FACTORS) + rng.normal(size=len(hidden))
    number = np.minimum(magnitude * np.exp(0.5 * mixed), 1.0)
    if rng.random() < 0.5:
        number = number * (rng.random(len(hidden)) < rng.uniform(*NON_ZERO))
    return number, NUMBERS_COUNT / magnitude


def _group_sizes(rng: np.random.Generator, d: int) -> NDArray[np.int64]:
    """Columns per attribute: a third have one, the others share the rest unequally."""
    attributes = max(1, min(d, round(1.5 * math.sqrt(d))))
    wide = min(attributes - attributes // 3, (d - attributes // 3) // 2)
    if wide < 1:
        return np.ones(d, dtype=np.int64)
    weights = np.exp(np.sort(rng.normal(size=wide))[::-1])
    spare = d - attributes // 3 - 2 * wide
    shares = np.floor(spare * weights / weights.sum()).astype(np.int64)
    shares[0] += spare - shares.sum()
    return np.concatenate([np.ones(attributes // 3, dtype=np.int64), 2 + shares])


def _categories(rng: np.random.Generator, hidden: Floats, size: int) -> NDArray[np.int64]:
    scores = -FALL_OFF * np.log(np.arange(1, size + 1)) + LOADING * hidden @ rng.normal(size=(FACTORS, size))
    scores = np.ascontiguousarray(scores.T)  # categories are few: going through all rows of one is what is quick
    reached = np.stack(list(accumulate(np.exp(scores - scores.max(axis=0)))))
    drawn = rng.random(len(hidden)) * reached[-1]
    return np.asarray(np.minimum(np.sum(reached <= drawn, axis=0), size - 1), dtype=np.int64)


def _scores(rng: np.random.Generator, features: "Csr", hidden: Floats, effects: Floats, outputs: int) -> Floats:
    """Standardised scores of a linear model, (rows, outputs), half of them along with the hidden factors."""
    coefficients = rng.laplace(size=(features.shape[1], outputs)) * effects[:, None]
    own = _standard(np.asarray(features @ coefficients))
    wanted = hidden @ rng.normal(size=(FACTORS, outputs))
    fitted = [lsmr(features, wanted[:, k], damp=0.3, maxiter=30)[0] for k in range(outputs)]
    along = np.asarray(features @ np.column_stack(fitted))
    return _standard(math.sqrt(1 - FACTORS_SHARE) * own + math.sqrt(FACTORS_SHARE) * _standard(along))


def _labels(rng: np.random.Generator, z: Floats, loss: Loss, belief: Belief, turns: tuple[float, ...]) -> Floats:
    explained = float(expit(_interpolate(logit(np.array(belief.explained or EXPLAINED)), turns[0])))
    if isinstance(loss.labels, Reals):
        spread = belief.label_spread or math.exp(_interpolate(np.log(LABEL_SPREADS), turns[1]))
        mean = _interpolate(np.array(LABEL_MEANS), turns[2])
        noise = rng.normal(size=len(z))
        labels = mean + spread * (math.sqrt(explained) * z[:, 0] + math.sqrt(1 - explained) * noise)
        within = np.clip(labels, -1.0, 1.0)
        return (1 + within) / 2 if isinstance(loss.labels, Counts) else within  # counts are learnt in 0..1
    if isinstance(loss.labels, Signs):
        rate = belief.base_rate
        if rate is None:
            rate = float(expit(_interpolate(logit(np.array(BASE_RATES)), turns[1])))
        chances = _chances(z[:, 0], float(rate), explained, belief.auc)  # type: ignore[arg-type]
        return np.where(rng.random(len(z)) < chances, 1.0, -1.0)
    shares = np.array(
        belief.base_rate or np.arange(1, loss.outputs + 1) ** -_interpolate(np.array(FALL_OFF_OF_CLASSES), turns[1])
    )
    p = _chances_of_classes(z, shares / shares.sum(), explained)
    drawn = rng.random(len(z))[:, None]
    return np.asarray(np.sum(np.cumsum(p, axis=1)[:, :-1] <= drawn, axis=1), dtype=np.float64)


def _chances(z: Floats, rate: float, explained: float, auc: float | None) -> Floats:
    """Chances of +1 with that mean, spread so far that the best model explains, or ranks, as much as it should."""

    def at(spread: float) -> Floats:
        # Log-odds less a constant c that makes the mean chance the rate. Were all log-odds the same, c would be them
        # less logit(rate): it lies between that of the least and that of the largest.
        odds = spread * z
        low, high = (float(end - logit(rate)) for end in (odds.min() - 1, odds.max() + 1))
        c = brentq(lambda c: float(np.mean(expit(odds - c))) - rate, low, high)
        return np.asarray(expit(odds - c))

    if auc is not None:
        return at(_bisect(lambda spread: _expected_auc(z, at(spread)) - auc))
    entropy = -float(xlogy(rate, rate) + xlogy(1 - rate, 1 - rate))

    def gap(spread: float) -> float:
        p = at(spread)
        return 1 + float(np.mean(xlogy(p, p) + xlogy(1 - p, 1 - p))) / entropy - explained

    return at(_bisect(gap))


def _chances_of_classes(z: Floats, shares: Floats, explained: float) -> Floats:
    """Chances of each of several classes, (rows, K), with those mean shares, spread as `_chances` does."""
    entropy = -float(np.sum(xlogy(shares, shares)))

    def at(spread: float) -> Floats:
        offsets = np.log(shares)
        for _ in range(12):
            offsets = offsets + np.log(shares / np.maximum(softmax(spread * z + offsets, axis=1).mean(axis=0), 1e-12))
        return np.asarray(softmax(spread * z + offsets, axis=1))

    def gap(spread: float) -> float:
        p = at(spread)
        return 1 + float(np.mean(np.sum(xlogy(p, p), axis=1))) / entropy - explained

    return at(_bisect(gap))


def _expected_auc(z: Floats, p: Floats) -> float:
    """Expected AUC of ranking by z, where the label is +1 with chance p."""
    order = np.argsort(z)
    p = p[order]
    below = np.cumsum(1 - p) - (1 - p) / 2
    return float(np.sum(p * below) / (np.sum(p) * np.sum(1 - p)))


def _bisect(gap: Callable[[float], float], low: float = 1e-3, high: float = 1e3) -> float:
    """The spread at which an increasing function is zero, to two per cent."""
    while high > 1.02 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if gap(middle) < 0 else (low, middle)
    return low


def _standard(z: Floats) -> Floats:
    centred = z - z.mean(axis=0)
    return np.asarray(centred / np.maximum(np.sqrt(np.mean(centred**2, axis=0)), 1e-12))


def _interpolate(bounds: Floats, turn: float) -> float:
    """The number between the bounds at the share `turn` of the way."""
    return float(bounds[0] + (bounds[1] - bounds[0]) * turn)
