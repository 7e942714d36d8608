"""Questions about a model's answers: what a site counts in two sums, and what everyone reads from them.

    exchange 1   where the scores lie: how many rows fall into each of many narrow cells
    exchange 2   how right they are: counts by score and label, over bins that exchange 1 places

A `Question` is public: it follows from the model, the number of rows and the noise. `places` and `counts` are what a
site computes from its own rows, and `bins` and `answer` what everyone computes from the two noisy sums. So bins hold
about equally many rows wherever a model's scores lie, and nobody has to guess it beforehand.

| question | score | exchange 2 | what one row moves it by |
| --- | --- | --- | --- |
| `TwoClasses` | z | bin x label | sqrt 2 |
| `SeveralClasses` | log-odds of the class that is decided for | true x decided, and bin x right | 2 |
| `Numbers` | log2 of the error over the label's width | sums of u and u^2, u the clipped error | sqrt 2 |

A score that is no number counts as the lowest: every row falls into a cell, whatever it says. Proofs:
docs/proofs/evaluation.md.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import asinh, ceil, floor, inf, isfinite, log, log2, sqrt
from typing import final

import numpy as np
import scipy

from sottovoce.arrays import Floats
from sottovoce.errors import expect
from sottovoce.tally import curves
from sottovoce.tally.bins import Bins, cells_of, edges_at, histogram, order_within, scores_in
from sottovoce.tally.intervals import Interval, ScoreCells, Z, mean, nearest_counts

CERTAIN = 4.0  # times the noise: of some dozens of borders one gets there by chance less than once in a thousand times
FURTHEST = 12.0  # log-odds that hardly any model goes beyond: as a probability, 6e-6
SPREAD = 40.0  # times as far out, narrow cells are about as many times as wide
SHARPEST = 12  # errors of less than 2^-12 of the label's width are placed together
NARROW = 16  # cells of exchange 1 for each bin of exchange 2
IN_RARE = 4  # bins, at least, that rows of a rare class should fill if they had the highest scores
IN_LAST = 4  # narrower bins, at least, in place of the one at that end
ABOVE_NOISE = 16  # times the noise of a count are the rows of a bin, before it is cut into narrower ones
GROUPS = 10  # of a calibration curve
_NARROWER = 10  # bins, at most, that are cut off for a rare class: of one row in a thousand, with the fewest bins
_FINE = 2.0**30  # steps of an error over its bound
PLACING = sqrt(2.0)  # what replacing one row moves exchange 1 by: one row leaves a cell, and one enters another


@final
@dataclass(frozen=True)
class Curve:
    """One point of a ROC curve, for which rows of at least this score are called positive."""

    threshold: float
    false_positive_rate: Interval
    true_positive_rate: Interval


@final
@dataclass(frozen=True)
class Calibrated:
    """Calibration of the rows whose predicted probability lies between two numbers: the mean prediction, estimated from
    exchange 1, and the share of positive rows.
    """

    low: float
    high: float
    predicted: float
    observed: Interval


@final
@dataclass(frozen=True)
class ByClass:
    """Recall and precision of one of several classes."""

    recall: Interval
    precision: Interval


@final
@dataclass(frozen=True)
class Answer:
    """All figures from the two sums. Intervals hold for one figure or one point, not for all of them at once."""

    figures: dict[str, Interval]
    confusion: tuple[tuple[Interval, ...], ...] = ()  # [true][decided], in rows
    roc: tuple[Curve, ...] = ()
    calibration: tuple[Calibrated, ...] = ()
    by_class: tuple[ByClass, ...] = ()  # of several classes


@dataclass(frozen=True)
class ScoreQuestion(ABC):
    """A question about a model, in terms of public numbers. Abstract.

    Args:
        rows: N, over all sites.
        bins: how many there should be, see `bins.bins_for`.
    """

    rows: int
    bins: int

    def __post_init__(self) -> None:
        expect(self.rows >= 1, "rows to evaluate on, at least one", rows=self.rows)
        expect(self.bins >= 2, "bins >= 2", bins=self.bins)

    @property
    @abstractmethod
    def borders(self) -> Floats:
        """Borders between the narrow cells of exchange 1, rising."""

    @abstractmethod
    def scores(self, z: Floats, labels: Floats) -> Floats:
        """Score of each row, (rows,), which exchange 1 places. z is (rows, outputs)."""

    def places(self, z: Floats, labels: Floats) -> Floats:
        """Exchange 1: rows in each narrow cell, (cells,). Computed without noise: it must not leave a site."""
        return histogram(cells_of(self.borders, self.scores(z, labels)), len(self.borders) + 1)

    @abstractmethod
    def bins_of(self, noisy: Floats) -> Bins:
        """Edges of the bins, and likely counts, from the noisy sum of exchange 1."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """How far replacing one row moves exchange 2, in l2 norm."""

    @abstractmethod
    def numbers(self, placed: Bins) -> int:
        """Number of numbers in exchange 2."""

    @property
    @abstractmethod
    def room(self) -> tuple[int, int]:
        """Largest number of numbers in exchanges 1 and 2, wherever the scores lie: known before anything is paid."""

    @abstractmethod
    def counts(self, placed: Bins, z: Floats, labels: Floats) -> Floats:
        """Exchange 2: (numbers,). Computed without noise: it must not leave a site."""

    @abstractmethod
    def answer(self, placed: Bins, noisy: Floats, std: float) -> Answer:
        """Figures from the noisy sum of exchange 2, whose numbers have noise of standard deviation `std`."""


def _calibration(
    question: ScoreQuestion, placed: Bins, cells: ScoreCells, hits: Floats, low: float, tilt: float = 0.0
) -> tuple[Calibrated, ...]:
    """A calibration curve of about ten groups of equal size, each of neighbouring bins.

    Args:
        question: whose scores are log-odds plus `tilt`.
        placed: the bins.
        cells: counts of exchange 2.
        hits: weight of each count, 1 where the prediction was right.
        low: least probability that is predicted.
        tilt: see `question`.
    """
    k = len(placed.edges) + 1
    sizes = cells.likely.reshape(k, -1).sum(axis=1)
    group = np.minimum((np.cumsum(sizes) - sizes / 2) / question.rows * GROUPS, GROUPS - 1).astype(np.int64)
    ends, points = np.concatenate(([-inf], placed.edges, [inf])) - tilt, []
    odds = scores_in(question.borders) - tilt
    for one in np.unique(group):
        own = np.flatnonzero(group == one)
        whole = np.zeros((k, cells.size // k))
        whole[own] = 1.0
        first, last = float(ends[own[0]]), float(ends[own[-1] + 1])
        # The mean prediction, by the narrow cells with log-odds between these two.
        weights = np.where((odds >= first) & (odds < last), placed.likely + 1e-9, 0.0)
        predicted = float(scipy.special.expit([max(first, -FURTHEST), min(last, FURTHEST)]).mean())
        if weights.any():
            predicted = float(weights @ scipy.special.expit(odds) / weights.sum())
        points.append(
            Calibrated(
                low=max(float(scipy.special.expit(first)), low),
                high=float(scipy.special.expit(last)),
                predicted=max(predicted, low),
                observed=cells.share(whole.ravel() * hits, whole.ravel()),
            )
        )
    return tuple(points)


# -- two classes ------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class TwoClasses(ScoreQuestion):
    """The question about one output z, whose size decides between two classes.

    Args:
        threshold: from which z on a row is called positive; it is an edge of the bins.
        reach: how far z is from `centre`, at most, as far as is known.
        odds: True if z - tilt is the log-odds of the positive class.
        noise: in each count of exchange 2.
        centre: of the scores, as far as is known: what the model says where all features are 0.
        tilt: by how much z is larger than the log-odds, where classes were weighted.
        placing: noise in each count of exchange 1.
    """

    threshold: float = 0.0
    reach: float = FURTHEST
    odds: bool = True
    noise: float = 1.0
    centre: float = 0.0
    tilt: float = 0.0
    placing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(isfinite(self.threshold), "a finite threshold", threshold=self.threshold)
        expect(0 < self.reach < inf, "a finite reach > 0 of the scores", reach=self.reach)
        expect(isfinite(self.centre), "a finite centre of the scores", centre=self.centre)

    @property
    def borders(self) -> Floats:
        """Borders that are close around the centre and wider apart further out, since the spread of scores is unknown;
        the threshold is one of them.
        """
        unit = min(self.reach, FURTHEST) / SPREAD
        even = np.linspace(-1, 1, NARROW * self.bins + 1)[1:-1] * asinh(self.reach / unit)
        return np.union1d(self.centre + unit * np.sinh(even), [self.threshold])

    def scores(self, z: Floats, labels: Floats) -> Floats:  # noqa: ARG002
        """The output z of each row, (rows,)."""
        return z[:, 0]

    def bins_of(self, noisy: Floats) -> Bins:
        """Bins of about equally many rows, narrower at the end of the class that is rare by the model's own scores;
        the threshold is an edge.
        """
        likely = nearest_counts(noisy, self.rows)
        chance = scipy.special.expit(scores_in(self.borders) - self.tilt) if self.odds else scores_in(self.borders) >= 0
        share = float(likely @ chance) / self.rows
        wanted = max(IN_RARE / (max(min(share, 1 - share), 1e-3) * self.bins), IN_LAST)
        bearable = self.rows / (self.bins * ABOVE_NOISE * max(self.noise, 1.0))
        times = min(ceil(log2(max(wanted, 1.0))), floor(log2(max(bearable, 1.0))))
        ends = 0.5 ** np.arange(1, times + 1) / self.bins
        below = np.concatenate((np.arange(1, self.bins) / self.bins, 1 - ends if share <= 0.5 else ends))
        return Bins(np.union1d(edges_at(self.borders, likely, below), [self.threshold]), likely)

    @property
    def sensitivity(self) -> float:
        """sqrt 2: one row leaves a cell, and one enters another."""
        return sqrt(2.0)

    def numbers(self, placed: Bins) -> int:
        """Two counts for each bin."""
        return 2 * (len(placed.edges) + 1)

    @property
    def room(self) -> tuple[int, int]:
        """Largest numbers of counts: the threshold may be one more border, and one more edge."""
        return NARROW * self.bins + 1, 2 * (self.bins + _NARROWER + 1)

    def counts(self, placed: Bins, z: Floats, labels: Floats) -> Floats:
        """Rows by bin and label: of each bin first those of the first class."""
        return histogram(2 * cells_of(placed.edges, z[:, 0]) + (labels > 0), self.numbers(placed))

    def answer(self, placed: Bins, noisy: Floats, std: float) -> Answer:
        """Accuracy, recall, precision and specificity at the threshold, AUC, average precision, ROC and calibration."""
        cells = ScoreCells(noisy, std, self.rows)
        mixed, unresolved = order_within(self.borders, placed, self.placing)
        positive = np.tile([0.0, 1.0], len(noisy) // 2)
        bins, at = np.arange(len(noisy)) // 2, int(np.searchsorted(placed.edges, self.threshold)) + 1
        called = (bins >= at).astype(np.float64)
        right = called * positive + (1 - called) * (1 - positive)
        everyone, prevalence = np.ones(len(noisy)), cells.share(positive, np.ones(len(noisy)))
        rarer = positive if (prevalence.value or 0.0) <= 0.5 else 1 - positive
        turned = ScoreCells(cells.counts[::-1], cells.std, cells.rows)  # with the other class as the positive one
        figures = {
            "accuracy": cells.share(right, everyone),
            "majority": prevalence if rarer is not positive else cells.share(1 - positive, everyone),
            "auc": curves.auc(cells, mixed, unresolved),
            "average_precision": (
                curves.average_precision(cells, mixed, unresolved)
                if rarer is positive
                else curves.average_precision(turned, mixed[::-1], unresolved[::-1])
            ),
            "recall": cells.share(called * positive, positive),
            "precision": cells.share(called * positive, called),
            "specificity": cells.share((1 - called) * (1 - positive), 1 - positive),
            "positive": prevalence,
        }
        truth, decided = (1 - positive, positive), (1 - called, called)
        points = [
            Curve(self.shown(edge), *(cells.share((bins > i) * truth[c], truth[c]) for c in (0, 1)))
            for i, edge in enumerate(placed.edges)
        ]
        return Answer(
            figures=figures,
            confusion=tuple(tuple(cells.expected(t * d) for d in decided) for t in truth),
            roc=tuple(points),
            calibration=_calibration(self, placed, cells, positive, 0.0, self.tilt) if self.odds else (),
        )

    def shown(self, z: float) -> float:
        """The score z as a probability, if it is log-odds; else as it is."""
        return float(scipy.special.expit(z - self.tilt)) if self.odds else float(z)


# -- several classes --------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class SeveralClasses(ScoreQuestion):
    """The question about one output for each class, of which the largest decides."""

    classes: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self.classes >= 3, "three classes or more", classes=self.classes)

    @property
    def borders(self) -> Floats:
        """Borders evenly spaced in log-odds, from those of a class that is as likely as all others."""
        return np.linspace(-log(self.classes - 1), FURTHEST, NARROW * self.bins + 1)[1:-1]

    def scores(self, z: Floats, labels: Floats) -> Floats:  # noqa: ARG002
        """The log-odds of the class that is decided for."""
        with np.errstate(all="ignore"):
            top = z.max(axis=1, keepdims=True)
            others = np.exp(z - top).sum(axis=1) - 1
            odds: Floats = -np.log(others)  # where one class is certain: inf, which is counted as the highest
        return odds

    def bins_of(self, noisy: Floats) -> Bins:
        """Bins of about equally many rows, no more than twice as many as a calibration curve shows."""
        likely = nearest_counts(noisy, self.rows)
        bins = min(self.bins, 2 * GROUPS)
        return Bins(edges_at(self.borders, likely, np.arange(1, bins) / bins), likely)

    @property
    def sensitivity(self) -> float:
        """2: of two histograms, each moves by sqrt 2."""
        return 2.0

    def numbers(self, placed: Bins) -> int:
        """The counts of the matrix, and two for each bin."""
        return self.classes**2 + 2 * (len(placed.edges) + 1)

    @property
    def room(self) -> tuple[int, int]:
        """Largest numbers of counts: fewer if edges coincide."""
        return NARROW * self.bins, self.classes**2 + 2 * min(self.bins, 2 * GROUPS)

    def counts(self, placed: Bins, z: Floats, labels: Floats) -> Floats:
        """Rows by true and decided class, then by bin and whether that was right."""
        decided, true = np.argmax(z, axis=1), np.clip(labels, 0, self.classes - 1).astype(np.int64)
        matrix = histogram(self.classes * true + decided, self.classes**2)
        by_bin = histogram(
            2 * cells_of(placed.edges, self.scores(z, labels)) + (decided == true), 2 * (len(placed.edges) + 1)
        )
        return np.concatenate((matrix, by_bin))

    def answer(self, placed: Bins, noisy: Floats, std: float) -> Answer:
        """Accuracy, recall and precision of every class, the matrix, and calibration of the decided class."""
        k = self.classes
        matrix, by_bin = ScoreCells(noisy[: k * k], std, self.rows), ScoreCells(noisy[k * k :], std, self.rows)
        right = np.tile([0.0, 1.0], by_bin.size // 2)
        cell = np.eye(k * k).reshape(k, k, -1)
        rows = [cell[c].sum(axis=0) for c in range(k)]
        usual = max(rows, key=lambda row: float(row @ matrix.counts))
        figures = {
            "accuracy": by_bin.share(right, np.ones(by_bin.size)),
            "majority": matrix.share(usual, np.ones(k * k)),
        }
        return Answer(
            figures=figures,
            confusion=tuple(tuple(matrix.expected(cell[t, d]) for d in range(k)) for t in range(k)),
            calibration=_calibration(self, placed, by_bin, right, 1 / k),
            by_class=tuple(
                ByClass(matrix.share(cell[c, c], rows[c]), matrix.share(cell[c, c], cell[:, c].sum(axis=0)))
                for c in range(k)
            ),
        )


# -- numbers ----------------------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Numbers(ScoreQuestion):
    """The question about predictions of a number.

    Args:
        width: of the label's public bounds, in its unit. No error counts for more.
        noise: in each number of exchange 1.
    """

    width: float = 1.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(0 < self.width < inf, "a label with bounds, the lower one first", width=self.width)

    @property
    def borders(self) -> Floats:
        """Two borders for every factor of two of the error: few, since only the place of large errors matters."""
        return np.linspace(-float(SHARPEST), 0.0, 2 * SHARPEST + 1)

    def scores(self, z: Floats, labels: Floats) -> Floats:
        """log2 of the error over the width, (rows,)."""
        with np.errstate(all="ignore"):
            return np.log2(np.abs(z[:, 0] - labels) / self.width)

    def bins_of(self, noisy: Floats) -> Bins:
        """One edge: the bound to which errors are clipped. Above it exchange 1 shows no errors that are surely more
        than noise, and a larger bound would add noise to the mean.
        """
        beyond = np.cumsum(noisy[::-1])[::-1][1:]  # errors beyond each border, and the noise in that
        noise = self.noise * np.sqrt(np.arange(len(self.borders), 0, -1))
        seen = np.flatnonzero(beyond > CERTAIN * noise)
        at = int(seen[-1]) + 1 if len(seen) else 0
        likely = nearest_counts(noisy, self.rows)
        return Bins(self.borders[[min(at, len(self.borders) - 1)]], likely)

    @property
    def sensitivity(self) -> float:
        """u and u^2 both lie within [0, 1]. A millionth more pays for sums that a double cannot hold exactly."""
        return sqrt(2.0) * (1 + 1e-6)

    def numbers(self, placed: Bins) -> int:  # noqa: ARG002
        """2: the sums of u and of u^2."""
        return 2

    @property
    def room(self) -> tuple[int, int]:
        """Numbers in the two exchanges, the same wherever the errors lie."""
        return len(self.borders) + 1, 2

    def clip(self, placed: Bins) -> float:
        """The bound to which errors are clipped, in the unit of the label."""
        return float(self.width * 2.0 ** placed.edges[0])

    def counts(self, placed: Bins, z: Floats, labels: Floats) -> Floats:
        """Sums of u and u^2, u the error over the bound, at most 1. An error that is not a number counts as 0."""
        with np.errstate(all="ignore"):
            u = np.minimum(np.nan_to_num(np.abs(z[:, 0] - labels), nan=0.0, posinf=inf) / self.clip(placed), 1.0)
        # As whole numbers, whose sum does not depend on the order: no rounding may grow with the rows.
        return np.array([np.rint(part * _FINE).astype(np.int64).sum() / _FINE for part in (u, u * u)])

    def answer(self, placed: Bins, noisy: Floats, std: float) -> Answer:
        """Mean absolute error and root mean square, of errors clipped to the bound, in the unit of the label."""
        bound = self.clip(placed)
        ends = np.minimum(2.0 ** np.append(self.borders, 0.0) * self.width / bound, 1.0)  # of the narrow cells, above
        fourth = float(placed.likely @ ends**4) / self.rows
        first, second = (min(max(total / self.rows, 0.0), 1.0) for total in noisy)
        absolute = mean(float(noisy[0]), second - first**2, std, self.rows)
        square = mean(float(noisy[1]), fourth - second**2, std, self.rows)
        root = Interval(bound * sqrt(square.value or 0.0), bound * sqrt(square.low), bound * sqrt(square.high))
        above = self.borders >= placed.edges[0]
        beyond, cells = float(placed.likely[1:][above].sum()) / self.rows, float(above.sum())
        return Answer(
            figures={
                "mean_absolute_error": absolute.times(bound),
                "root_mean_square_error": root,
                "clipped_at": Interval(bound, bound, bound),
                "clipped": Interval(beyond, 0.0, min(beyond + Z * self.noise * sqrt(cells) / self.rows, 1.0)),
            }
        )
