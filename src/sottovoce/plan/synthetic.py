"""Made-up tables of a given public shape, for the planner to try settings on.

A planner may not look at a row, so it looks at tables that resemble what people hold. Beside a constant, a row has from
1.5 sqrt(d) attributes to one per column. A third of them or more are one column: numbers in [0, 1], many of which are
mostly zero, or yes and no. The others are categories of unequal frequency (the j-th most frequent has weight j^-1.6),
one column each. Numbers are often small, since a range must hold the largest. Two hidden factors make attributes go
together. Rows are as a schema scales them: only one that is at every bound has the declared norm. The label follows a
linear model whose effects are heavy-tailed: a few matter much, most little. A number that is small has the effect of
one that is not, so its coefficient is large: such directions are what learning is slow in.

How frequent the labels are and how well the features predict them is a `Belief`: what people state of it, and
wide ranges for what they leave open. Real labels lie in [-1, 1] and counts in [0, 1], as the library scales them;
bounds must hold the largest, so most labels are small beside them.

Every number here is an assumption about tables in general. docs/explanation/planner.md says on which tables those of
labels and of rows were chosen.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import brentq
from scipy.sparse.linalg import lsmr
from scipy.special import expit, gammaincinv, logit, ndtri, softmax, xlogy

from sottovoce.arrays import Floats
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.factors import ALIKE, Factors
from sottovoce.problem.losses import Counts, Loss, Poisson, Reals, Signs
from sottovoce.settings.supplied import Supplied

if TYPE_CHECKING:
    Csr: TypeAlias = sparse.csr_array[np.float64, tuple[int, int]]

FACTORS, FALL_OFF, LOADING = 2, 1.6, 1.2
FACTORS_SHARE = (0.0, 0.5)  # of the variance of the linear model that goes along with the hidden factors
CONSTANT_FROM = 3  # columns of which one is a constant
MANY = 0.25  # the smaller, the more tables have an attribute for each column
MOST_ATTRIBUTES = 100  # where 1.5 sqrt(d) is less
YES_NO, YES = 0.4, (0.03, 0.5)  # share of single columns that are yes or no, and of the yes in them
MAGNITUDES, SPREADS = (0.02, 0.6), (0.1, 0.8)  # of numbers, and standard deviations of their logarithms
OWN = (0.2, 1.5)  # standard deviation of what a number does not share with the others
NUMBERS_COUNT = 1.5  # effect of a number that is a standard deviation larger, against that of a category
MOSTLY_ZERO, NON_ZERO = 0.3, (0.05, 0.3)  # share of numbers that are mostly zero, and of their rows that are not

# What is left open: the share of the rarer label; of labels that are numbers the spread and the mean, in half-widths of
# their bounds; of counts the mean and the variance over it, in units of the largest; and the share that the best linear
# model explains (quantiles): of the loss of no model, of the variance of numbers, of the deviance of counts.
BASE_RATES = (0.01, 0.5)
LABEL_SPREADS, LABEL_MEANS = (0.07, 0.45), (-0.95, 0.35)
MEAN_COUNTS, OVER = (0.003, 0.4), (0.04, 0.25)
FALL_OFF_OF_CLASSES = (0.0, 2.4)
EXPOSURE_SPREADS = (0.1, 1.5)  # standard deviation of their logarithms
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
EXPLAINED = {
    "two classes": (0.02, 0.1, 0.26, 0.36, 0.52),
    "several classes": (0.06, 0.09, 0.2, 0.38, 0.9),
    "numbers": (0.02, 0.2, 0.34, 0.57, 0.75),
    "counts": (0.02, 0.07, 0.12, 0.35, 0.65),
}
AMONG = 10
# Multiples of these fill a cube, or one of four dimensions, evenly, so a few tables span all that is left open.
_TURNS = (0.8191725133961645, 0.6710436067037893, 0.5497004779019703)


class Turns(NamedTuple):
    """Where a table lies in what is left open, each from 0 to 1."""

    explained: float
    frequent: float
    centre: float
    attributes: float


@final
@dataclass(frozen=True)
class Belief:
    """Prior knowledge of the labels. It is public, and may come from no private row.

    Args:
        base_rate: the share of the rarer (or either) of two classes, or the shares of all classes; of counts, their
            mean over the largest. None: open.
        explained: how much of the loss of no model the best linear model takes off, from and to; for numbers, of their
            variance, for counts, of their deviance. None: open, unless there is an auc.
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
        counts = isinstance(loss.labels, Counts)
        supplied.expect_fit(None if isinstance(loss.labels, Reals) else max(loss.outputs, 2), counts=counts)
        return cls(supplied.base_rate, supplied.explained, supplied.auc, supplied.label_spread)

    def words(self, loss: Loss) -> str:
        """The belief in words, with what is left open, for a note."""
        if isinstance(loss.labels, Counts):
            low, high = MEAN_COUNTS if self.base_rate is None else (float(self.base_rate),) * 2  # type: ignore[arg-type]
            frequent, of = f"counts whose mean is {_between(low, high)} % of the largest", "deviance"
        elif isinstance(loss.labels, Reals):
            low, high = LABEL_SPREADS if self.label_spread is None else (self.label_spread, self.label_spread)
            frequent, of = f"labels that spread over {_between(low, high)} % of half their bounds' width", "variance"
        else:
            frequent, of = self._frequent(loss), "loss of no model"
        if self.auc is not None:
            return f"{frequent}; the best model has an AUC of {self.auc:g}"
        ends = EXPLAINED[kind(loss)]
        return f"{frequent}; the best model takes {_between(*(self.explained or (ends[0], ends[-1])))} % off the {of}"

    def _frequent(self, loss: Loss) -> str:
        if self.base_rate is None:
            low, high = BASE_RATES
            open_ = f"the rarer label in {_between(low, high)} %"
            return open_ if loss.outputs == 1 else "classes alike or very unequal"
        told = isinstance(self.base_rate, tuple)
        return "classes as frequent as stated" if told else f"{100 * self.base_rate:.3g} % positive"


def kind(loss: Loss) -> str:
    """The kind of labels that the loss takes, as `EXPLAINED` names it."""
    if isinstance(loss.labels, Counts):
        return "counts"
    if isinstance(loss.labels, Reals):
        return "numbers"
    return "two classes" if loss.outputs == 1 else "several classes"


def _between(low: float, high: float) -> str:
    return f"{100 * low:.3g}" if low == high else f"{100 * low:.3g} to {100 * high:.3g}"


def table(
    rows: int, d: int, loss: Loss, *, data_norm: float = 1.0, seed: int = 0, belief: Belief | None = None,
    among: int = AMONG, exposed: bool = False,
) -> Dataset:  # fmt: skip
    """A made-up data set of that shape, with labels that the loss accepts.

    Args:
        rows: number of rows.
        d: number of columns.
        loss: which labels there are.
        data_norm: bound on the norm of rows.
        seed: of all that is drawn. `among` tables with seeds in a row span evenly what the belief leaves open.
        belief: what is known of the labels.
        among: number of such tables.
        exposed: True if rows have exposures, which only counts have.
    """
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(rows, FACTORS))
    features, effects = _features(rng, hidden, d, _turns(seed, among).attributes)
    exposures = _exposures(rng, rows, _turns(seed, among).attributes) if exposed else None
    found = labels(rng, features, hidden, effects, loss, belief or Belief(), seed, among=among, exposures=exposures)
    norm = data_norm if math.isfinite(data_norm) else 1.0
    factors = ALIKE if exposures is None else Factors.of(exposures=exposures)
    names = tuple(f"x{j}" for j in range(d))
    return Dataset(features * norm, found, names, rows, data_norm, "synthetic", factors=factors)


def labels(
    rng: np.random.Generator, features: "Csr", hidden: Floats, effects: Floats, loss: Loss, belief: Belief, seed: int,
    *, among: int = AMONG, exposures: Floats | None = None,
) -> Floats:  # fmt: skip
    """Labels of made-up rows, (rows,): some of what predicts them goes along with the hidden factors.

    Args:
        rng: what they are drawn with.
        features: of the rows.
        hidden: factors of the rows, (rows, FACTORS).
        effects: how large the coefficient of each column may be.
        loss: that has to accept them.
        belief: what is known of them.
        seed: the number of the table: what is left open is spread evenly over a few tables.
        among: number of these.
        exposures: of counts, in (0, 1]; None: all alike.
    """
    scores, open_ = _scores(rng, features, hidden, effects, loss.outputs), _turns(seed, among)
    if isinstance(loss.labels, Counts):
        return _counts(rng, scores[:, 0], np.ones(len(scores)) if exposures is None else exposures, belief, open_)
    return _labels(rng, scores, loss, belief, open_)


def _turns(seed: int, among: int) -> Turns:
    return Turns(((seed + 0.5) / among) % 1.0, *((0.5 + seed * turn) % 1.0 for turn in _TURNS))


def _features(rng: np.random.Generator, hidden: Floats, d: int, turn: float) -> "tuple[Csr, Floats]":
    """Rows of norm at most 1, and for every column how large its coefficient may be."""
    rows, constant = len(hidden), int(d >= CONSTANT_FROM)
    sizes, effects = _group_sizes(rng, d - constant, turn), np.ones(d)
    columns, values = [np.zeros(rows, dtype=np.int64)] * constant, [np.ones(rows)] * constant
    for first, size in zip(constant + np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes, strict=True):
        if size == 1:
            number, effects[first] = _numbers(rng, hidden)
            columns.append(np.full(rows, first))
            values.append(number)
        else:
            columns.append(first + _categories(rng, hidden, int(size)))
            values.append(np.ones(rows))
    entries = np.stack(values, axis=1) / (math.sqrt(len(values)) * (1 + 2.0**-48))
    ends = np.arange(rows + 1) * len(values)
    return sparse.csr_array((entries.ravel(), np.stack(columns, axis=1).ravel(), ends), shape=(rows, d)), effects


def _numbers(rng: np.random.Generator, hidden: Floats) -> tuple[Floats, float]:
    """A column of numbers, many of which are zero, or of yes and no; and how large its coefficient may be."""
    own = _interpolate(np.log(OWN), rng.random(), np.exp)
    mixed = _standard(hidden @ rng.normal(size=FACTORS) + own * rng.normal(size=len(hidden)))
    if rng.random() < YES_NO:
        return np.where(mixed > ndtri(1 - rng.uniform(*YES)), 1.0, 0.0), 1.0
    magnitude = _interpolate(np.log(MAGNITUDES), rng.random(), np.exp)
    spread = _interpolate(np.log(SPREADS), rng.random(), np.exp)
    number = np.minimum(magnitude * np.exp(spread * mixed), 1.0)
    if rng.random() < MOSTLY_ZERO:
        number = number * (rng.random(len(hidden)) < rng.uniform(*NON_ZERO))
    return number, NUMBERS_COUNT / (magnitude * spread)


def _group_sizes(rng: np.random.Generator, d: int, turn: float) -> NDArray[np.int64]:
    """Columns per attribute: a third or more have one, the others share the rest unequally."""
    few = max(1.0, min(float(d), 1.5 * math.sqrt(d)))
    many = max(few, float(min(d, MOST_ATTRIBUTES)))
    attributes = round(_interpolate(np.log([few, many]), turn**MANY, np.exp))
    wide = min(attributes - attributes // 3, d - attributes)
    if wide < 1:
        return np.ones(d, dtype=np.int64)
    weights = np.exp(np.sort(rng.normal(size=wide))[::-1])
    spare = d - attributes - wide
    shares = np.floor(spare * weights / weights.sum()).astype(np.int64)
    shares[0] += spare - shares.sum()
    return np.concatenate([np.ones(attributes - wide, dtype=np.int64), 2 + shares])


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
    share = rng.uniform(*FACTORS_SHARE)
    return _standard(math.sqrt(1 - share) * own + math.sqrt(share) * _standard(along))


def _labels(rng: np.random.Generator, z: Floats, loss: Loss, belief: Belief, open_: Turns) -> Floats:
    explained = _explained(belief, loss, open_)
    if isinstance(loss.labels, Reals):
        spread = belief.label_spread or _interpolate(np.log(LABEL_SPREADS), open_.frequent, np.exp)
        mean = _interpolate(np.array(LABEL_MEANS), open_.centre)
        noise = rng.normal(size=len(z))
        labels = mean + spread * (math.sqrt(explained) * z[:, 0] + math.sqrt(1 - explained) * noise)
        return np.clip(labels, -1.0, 1.0)
    if isinstance(loss.labels, Signs):
        rate = belief.base_rate or _interpolate(logit(np.array(BASE_RATES)), open_.frequent, expit)
        chances = _chances(z[:, 0], float(rate), explained, belief.auc)  # type: ignore[arg-type]
        return np.where(rng.random(len(z)) < chances, 1.0, -1.0)
    fall = _interpolate(np.array(FALL_OFF_OF_CLASSES), open_.frequent)
    shares = np.array(belief.base_rate or np.arange(1, loss.outputs + 1) ** -fall)
    p = _chances_of_classes(z, shares / shares.sum(), explained)
    drawn = rng.random(len(z))[:, None]
    return np.asarray(np.sum(np.cumsum(p, axis=1)[:, :-1] <= drawn, axis=1), dtype=np.float64)


def _explained(belief: Belief, loss: Loss, open_: Turns) -> float:
    """The share that the best linear model explains, at this place of what the belief leaves open."""
    if belief.explained is None:
        return float(np.interp(open_.explained, _QUANTILES, EXPLAINED[kind(loss)]))
    return _interpolate(logit(np.array(belief.explained)), open_.explained, expit)


def _exposures(rng: np.random.Generator, rows: int, turn: float) -> Floats:
    """How long rows were observed, in (0, 1]: log-normal, cut at a bound that few would exceed."""
    spread = _interpolate(np.log(EXPOSURE_SPREADS), turn, np.exp)
    return np.minimum(np.exp(spread * (rng.normal(size=rows) - 2)), 1.0)


def _counts(rng: np.random.Generator, z: Floats, exposures: Floats, belief: Belief, open_: Turns) -> Floats:
    """Counts over the largest one: of mean exposure times exp(c + spread z), of variance `over` times that.

    Only their means matter to the loss, which is linear in a count; what is explained is a share of the deviance,
    which depends on the variance.
    """
    told = belief.base_rate
    rate = float(told) if isinstance(told, float) else _interpolate(np.log(MEAN_COUNTS), open_.frequent, np.exp)
    over = _interpolate(np.log(OVER), open_.centre, np.exp)
    if belief.label_spread is not None:  # the standard deviation, in halves of the largest count
        over = (belief.label_spread / 2) ** 2 / rate
    wanted = _explained(belief, Poisson(), open_)
    luck = rng.random(len(z))

    def means(spread: float) -> Floats:
        logs = np.log(exposures) + spread * z

        def at(c: float) -> Floats:
            return np.exp(np.minimum(logs + c, 0.0))

        # At the lower end no mean is above the rate, at the upper end all are 1.
        return at(brentq(lambda c: float(at(c).mean()) - rate, math.log(rate) - logs.max() - 1e-9, -logs.min()))

    def drawn(mean: Floats) -> Floats:
        return np.asarray(np.minimum(over * gammaincinv(np.maximum(mean / over, 1e-3), luck), 1.0))

    def gap(spread: float) -> float:
        mean, flat = means(spread), exposures * rate / exposures.mean()
        counts = drawn(mean)
        gained = float(np.mean(mean * np.log(mean / flat)))
        left = float(np.mean(xlogy(counts, counts / mean) - counts + mean))
        return gained / max(gained + left, 1e-300) - wanted

    return drawn(means(_bisect(gap, 1e-2, 5.0)))


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


def _interpolate(bounds: Floats, turn: float, unit: Callable[[float], Any] = float) -> float:
    """The number between the bounds at the share `turn` of the way, brought back from the scale that is even."""
    return float(unit(float(bounds[0] + (bounds[1] - bounds[0]) * turn)))
