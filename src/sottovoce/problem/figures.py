"""Figures of merit of one model, such as AUC, and of a constant answer; computed without noise."""

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Any, NamedTuple, Self

import numpy as np
import scipy

from sottovoce.arrays import Array, Bools, Floats
from sottovoce.problem.evaluation import IN_CACHE
from sottovoce.problem.factors import ALIKE, Factors
from sottovoce.problem.losses import Counts, Logistic, Loss, Quantile, Reals, Softmax, Times, WeightedLogistic
from sottovoce.problem.losses.hazards import log_hazards

RARE = 0.1  # share of rows below which a class is rare: a model that never predicts it is then nearly always right
_FURTHEST = 40.0  # largest constant prediction; beyond it, no loss changes by more than rounding


@dataclass(frozen=True)
class Figures:
    """Figures of merit of one model, or of a constant answer. None where a figure has no meaning for the loss.

    `mean_absolute_error` is in the unit of the labels, `log_loss` in nats. `average_precision` is that of the rarer of
    two classes. `auc` is the chance that a row of the second class has a higher score than a row of the first.
    """

    risk: float
    accuracy: float | None = None
    log_loss: float | None = None
    auc: float | None = None
    average_precision: float | None = None
    mean_absolute_error: float | None = None
    r2: float | None = None


def predictions(block: Callable[[int, int], Any], count: int, loss: Loss, model: Floats) -> Floats:
    """Predictions z of one flat model for all rows: (rows,), or (rows, outputs) if the loss has several outputs."""
    step = max(1, IN_CACHE // loss.outputs)
    matrix = model.reshape(-1, loss.outputs)
    parts = [np.asarray(block(first, min(first + step, count)) @ matrix) for first in range(0, count, step)]
    z: Floats = np.concatenate(parts)
    return z if loss.outputs > 1 else z[:, 0]


def mean(values: Array | Bools, weights: Floats | None = None) -> float:
    """Mean over rows, weighted if there are weights."""
    return float(np.average(values, weights=weights))


def figures(loss: Loss, z: Floats, labels: Floats, scale: float = 1.0, weights: Floats | None = None) -> Figures:
    """Figures of predictions z, which include exposures. `scale`: units of the label in one unit of what was learnt."""
    risk = mean(loss.value(z, labels, loss.theta), weights)
    if isinstance(loss.labels, Times):
        return Figures(risk)
    if isinstance(loss.labels, Reals):
        error = loss.predict(z) - labels
        spread = mean((labels - mean(labels, weights)) ** 2, weights)
        r2 = 1 - mean(error**2, weights) / spread if spread > 0 else None
        return Figures(risk, mean_absolute_error=scale * mean(np.abs(error), weights), r2=r2)
    accuracy = mean(loss.labels.hits(z, labels), weights)
    log_loss = risk if isinstance(loss, Logistic | Softmax) else None
    if loss.outputs > 1:
        return Figures(risk, accuracy, log_loss)
    positive = labels > 0
    ranking = Ranking.of(z, positive, weights)
    rarer = ranking if mean(positive, weights) <= 0.5 else ranking.reverse()
    return Figures(risk, accuracy, log_loss, ranking.auc(), rarer.average_precision())


def constant(loss: Loss, learnt: Floats, factors: Factors = ALIKE) -> Floats:
    """The best prediction from the labels `learnt` alone, the same for every row: (outputs,).

    That is the constant of least loss. In regression it is the median, or the quantile of the loss; for counts it is
    the logarithm of the mean of one unit of exposure; for times to an event, hazards that are the same for all.
    """
    weights = factors.weights
    if isinstance(loss.labels, Counts):
        exposed = 1.0 if factors.shifts is None else mean(np.exp(factors.shifts), weights)
        return np.array([max(log(max(mean(learnt, weights) / exposed, np.finfo(np.float64).tiny)), -_FURTHEST)])
    if isinstance(loss.labels, Times):
        return log_hazards(learnt, loss.outputs, weights)
    if isinstance(loss.labels, Reals):
        return np.array([quantile(learnt, loss.theta if isinstance(loss, Quantile) else 0.5, weights)])
    if loss.outputs > 1:
        counts = np.bincount(learnt.astype(np.int64), weights, minlength=loss.outputs)
        whole = len(learnt) if weights is None else float(weights.sum())
        shares: Floats = np.log(np.maximum(counts, 0.5) / whole)  # a class without a row is still possible
        return shares
    ends, share = np.array([-1.0, 1.0]), mean(learnt > 0, weights)
    rates = np.array([1 - share, share])
    best = scipy.optimize.minimize_scalar(
        lambda c: float(rates @ loss.value(np.full(2, c), ends, loss.theta)), bounds=(-_FURTHEST, _FURTHEST),
        method="bounded", options={"xatol": 1e-9},
    )  # fmt: skip
    if isinstance(loss, WeightedLogistic):
        return np.array([float(best.x)])  # which may decide for the rarer class
    # It must decide for the more frequent class, also where the loss is flat around 0.
    return np.array([abs(best.x) if share >= 0.5 else -abs(best.x)])


def constant_words(loss: Loss) -> str:
    """The best constant answer, as people read it."""
    if isinstance(loss.labels, Counts):
        return "always the mean"
    if isinstance(loss.labels, Times):
        return "the same hazards for all"
    if isinstance(loss.labels, Reals):
        return f"always the {loss.theta:g} quantile" if isinstance(loss, Quantile) else "always the median"
    return "always the shares of the labels" if isinstance(loss, Logistic | Softmax) else "the best constant answer"


def no_model(
    loss: Loss, learnt: Floats, labels: Floats, scale: float = 1.0, known: Factors = ALIKE, factors: Factors = ALIKE
) -> Figures:
    """Figures of the best `constant` prediction from the labels `learnt`, taken on `labels`. `known` are the factors of
    `learnt`, `factors` those of `labels`.
    """
    answer = constant(loss, learnt, known)
    z = factors.shifted(np.broadcast_to(answer, (len(labels), len(answer))))
    return figures(loss, z if loss.outputs > 1 else z[:, 0], labels, scale, factors.weights)


def concordance(scores: Floats, times: Floats, happened: Bools) -> float:
    """Harrell's: of pairs of rows of which one has the event while the other is still watched, the share in which it
    has the higher score. Equal scores count half; 0.5 without such a pair.
    """
    concordant = pairs = 0.0
    order = np.lexsort((~happened, times))  # of equal times, events come first
    scores, times, happened = scores[order], times[order], happened[order]
    for i in np.flatnonzero(happened):
        # Still watched: longer, or as long and without an event.
        later = scores[i + 1 :][(times[i + 1 :] > times[i]) | ~happened[i + 1 :]]
        pairs += len(later)
        concordant += np.count_nonzero(later < scores[i]) + np.count_nonzero(later == scores[i]) / 2
    return float(concordant / pairs) if pairs else 0.5


def quantile(values: Floats, level: float, weights: Floats | None = None) -> float:
    """The `level` quantile; with weights, the smallest value up to which at least `level` of the weight lies."""
    if weights is None:
        return float(np.quantile(values, level))
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    return float(values[order][min(int(np.searchsorted(below, level * below[-1])), len(values) - 1)])


def rare_class(loss: Loss, labels: Floats) -> int | None:
    """Number (0 or 1) of the rarer of two classes if fewer than one row in ten has it; else None."""
    if loss.outputs > 1 or isinstance(loss.labels, Reals):
        return None
    share = float(np.mean(labels > 0))
    return None if min(share, 1 - share) >= RARE else int(share < RARE)


class Ranking(NamedTuple):
    """Cumulative weights of rows from the highest score down, sorted once for AUC and average precision.

    Rows of equal score pass a threshold together, so each distinct score is one point of a curve.
    """

    rows: Array  # at each distinct score: weight of the rows with this score or a higher one
    found: Array  # weight of those among them that are of the positive class

    @classmethod
    def of(cls, scores: Floats, positive: Bools, weights: Floats | None = None) -> Self:
        """The ranking of rows by their scores; without weights, every row counts 1."""
        order = np.argsort(scores)[::-1]
        falling = scores[order]
        last = np.append(np.flatnonzero(falling[1:] != falling[:-1]), len(scores) - 1)
        if weights is None:
            return cls(last + 1, np.cumsum(positive[order])[last])
        return cls(np.cumsum(weights[order])[last], np.cumsum((weights * positive)[order])[last])

    def reverse(self) -> Self:
        """The ranking of the other class, by the negative scores."""
        rows, found = (np.insert(part[:-1], 0, 0)[::-1] for part in self)  # above each score, from the lowest up
        below = self.rows[-1] - rows
        return type(self)(below, below - (self.found[-1] - found))

    def auc(self) -> float | None:
        """Area under the ROC curve; ties count half. None if one class is missing."""
        many = float(self.found[-1])
        others = float(self.rows[-1]) - many
        if not many or not others:
            return None
        missed = self.rows - self.found
        pairs = np.diff(self.found, prepend=0) * (others - (missed + np.insert(missed[:-1], 0, 0)) / 2)
        return float(pairs.sum() / (many * others))

    def average_precision(self) -> float | None:
        """Mean over the positive rows of the precision at each one's own score. None if there are none."""
        many = float(self.found[-1])
        return float(np.sum(np.diff(self.found, prepend=0) * (self.found / self.rows)) / many) if many else None
