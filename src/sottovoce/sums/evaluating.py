"""Two sums that say how good a model is: how many rows have which score, and counts of scores by label. A program.

    T - 1   how many rows have a score in each of many narrow cells                        sensitivity sqrt(2)
    T       counts by score and label, or sums of clipped errors                           2, or sqrt(2)

Sums are filled up with zeros to a length that is known beforehand: how many bins there are follows from scores, but the
length of a message from the agreement alone. The rows are those that were learnt from, or those that were held out.
Privacy: docs/proofs/evaluation.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import isfinite
from typing import Any, final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.oracle.plain import Oracle
from sottovoce.problem.losses import Loss, Reals
from sottovoce.problem.sites import Sites
from sottovoce.sums.program import Ask, AtPoint, Known, Opened, Program, Question
from sottovoce.tally.bins import Bins
from sottovoce.tally.evaluation import COUNTED_ALIKE, Tallied, ask, counting
from sottovoce.tally.questions import FURTHEST, PLACING, Numbers
from sottovoce.tally.questions import ScoreQuestion as Scoring
from sottovoce.tally.release import FIRST

# Bins, at most. A simulation draws as many vectors of noise as a sum has numbers, if there is one feature: below 4096.
MOST_BINS = 250
MOST_EVERY = 1000  # rows of which one is held out: fewer would hardly say anything
WIDTH = 2.0  # of labels that are numbers: they are learnt as numbers between -1 and 1
FLATTERED = (
    "The model is evaluated on the rows that it was learnt from. It looks better there than on other rows, the more "
    "so the fewer rows there are for each coefficient."
)

HELD_OUT = (
    "The model is evaluated on one of every {} rows of each site, chosen at random and in secret. It was learnt "
    "from the others. Each row is in the sums of one kind only; the promise to it counts the cost of all sums."
)


@lru_cache(maxsize=64)
def room(loss: Loss) -> tuple[int, int]:
    """The lengths of the two sums, which do not depend on scores."""
    return replace(ask(loss, 1, (0.0, 0.0), width=WIDTH), bins=MOST_BINS).room


def about(notes: Sequence[str]) -> tuple[str, ...]:
    """The notes of a run's statement that concern its evaluation."""
    held = HELD_OUT.partition("{")[0]
    return tuple(note for note in notes if note in (FLATTERED, COUNTED_ALIKE) or note.startswith(held))


def moved_by(loss: Loss) -> tuple[float, float]:
    """L2 sensitivities of the two sums to one row replaced."""
    return PLACING, counting(loss)


def dealt(share: float) -> tuple[float, float]:
    """The parts of the budget, mu^2, of the two sums, from the evaluation's share."""
    return share * FIRST, share * (1 - FIRST)


def judge(loss: Loss, known: Known, w: Floats, so_far: Any) -> Program["OpenedEvaluation"]:
    """Open two sums about the model w, (d, runs): the last two lines of the schedule."""
    first, second = known.noise[-2:]
    moved = moved_by(loss)
    noise = first * moved[0], second * moved[1]
    placed = yield Ask(ScorePlaces(w, loss=loss, noise=noise, changed=known.changed, data_norm=known.data_norm), so_far)
    counted = yield Ask(ScoreCounts(placed.question, placed.value, placed.rows), so_far)
    return OpenedEvaluation(counted.question, counted)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class ScorePlaces(AtPoint):
    """How many rows have a score of the model in each of many narrow cells.

    Args:
        loss: of the model.
        noise: standard deviation in each number of the two sums, over how many rows are replaced together. The bins
            follow from it.
        changed: most rows that are replaced together.
        data_norm: bound on the norm of rows.
    """

    loss: Loss
    noise: tuple[float, float]
    changed: int
    data_norm: float

    def of(self, site: Oracle, rows: int) -> Floats:
        return np.stack([site.summed(self.scorer(run, rows).places) for run in range(self.w.shape[1])], axis=1)

    def scorer(self, run: int, rows: int) -> "Scorer":
        """The counts that are asked for about the model of one run, if the first sum is over so many rows."""
        changed = min(self.changed, rows)
        noise = self.noise[0] * changed, self.noise[1] * changed
        weights = self.w[:, run].astype(np.float64)
        return Scorer(self.loss, weights.reshape(-1, self.loss.outputs), rows, noise, self.data_norm)

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        return np.full((1, 1), site.changed_in_sum(rows) * moved_by(self.loss)[0])

    def largest(self, site: Oracle) -> float:  # noqa: ARG002
        return 1 + 1e-6


@final
@dataclass(frozen=True, eq=False)
class ScoreCounts(Question[Oracle]):
    """Counts of scores by label, or sums of clipped errors, in bins that the first sum says.

    Args:
        places: the first question.
        placed: its sum, with noise.
        placed_rows: how many rows that was over.
    """

    places: ScorePlaces
    placed: Floats
    placed_rows: int

    @property
    def point(self) -> Floats:
        # Without the first sum, of which all sites read the same bits.
        return self.places.point

    def at(self, point: Floats) -> "ScoreCounts":
        return replace(self, places=self.places.at(point))

    def of(self, site: Oracle, rows: int) -> Floats:  # noqa: ARG002
        found = [
            site.summed(partial(self.places.scorer(run, self.placed_rows).counts, self.placed[:, run]))
            for run in range(self.placed.shape[1])
        ]
        return np.stack(found, axis=1)

    def sensitivity(self, site: Oracle, rows: int) -> Floats:
        return np.full((1, 1), site.changed_in_sum(rows) * moved_by(self.places.loss)[1])

    def largest(self, site: Oracle) -> float:  # noqa: ARG002
        return 1 + 1e-6


@final
@dataclass(frozen=True, eq=False)
class OpenedEvaluation:
    """The two opened sums about a model, from which everyone reads how good it is."""

    question: ScoreCounts
    counted: Opened

    def tallied(self, unit: float) -> tuple[Tallied, ...]:
        """The evaluation of each run's model. `unit`: what 1 is in the unit of a label that is a number."""
        q, std = self.question, float(self.counted.std.item())
        return tuple(
            q.places.scorer(run, q.placed_rows).tallied(
                q.placed[:, run], self.counted.value[:, run], std, self.counted.rows, unit
            )
            for run in range(q.placed.shape[1])
        )


@final
@dataclass(frozen=True, eq=False)
class Scorer:
    """The counts of one model's scores, and how the sums of all sites are read.

    Args:
        loss: of the model.
        weights: (features, outputs), in the unit that it was learnt in.
        rows: N, over all sites that were in the first of the two sums, or are to be.
        noise: the standard deviation in each number of the two sums.
        data_norm: bound on the norm of rows.
    """

    loss: Loss
    weights: Floats
    rows: int
    noise: tuple[float, float]
    data_norm: float

    @property
    def question(self) -> Scoring:
        """The question to rows. Labels that are numbers lie between -1 and 1."""
        reach = float(self.data_norm * np.linalg.norm(self.weights))
        reach = reach if isfinite(reach) else FURTHEST
        return ask(self.loss, self.rows, self.noise, reach=reach, width=WIDTH, most_bins=MOST_BINS)

    def places(self, sites: Sites) -> Floats:
        """What the rows here add to the first sum. Without noise: it must not leave a site."""
        return self._pad(0, self.question.places(self._predictions(sites), sites.labels))

    def counts(self, noisy: Floats, sites: Sites) -> Floats:
        """What the rows here add to the second sum, with `noisy` the first. Without noise: it must not leave a site."""
        question = self.question
        return self._pad(1, question.counts(self._bins(question, noisy), self._predictions(sites), sites.labels))

    def tallied(self, placed: Floats, counted: Floats, std: float, rows: int, unit: float) -> Tallied:
        """The answer that everyone reads from the two sums.

        Args:
            placed: the first sum, with noise.
            counted: the second.
            std: standard deviation of the noise in it.
            rows: N, over all sites in the second sum: a site may have been lost in between.
            unit: what 1 is in the unit of a label that is a number.
        """
        question = self.question
        cells = self._bins(question, placed)
        last = replace(question, rows=rows)
        if isinstance(last, Numbers):
            last = replace(last, width=last.width * unit)
        cells = cells._replace(likely=cells.likely * (rows / self.rows))
        return Tallied(last, last.answer(cells, counted[: question.numbers(cells)], std))

    def _bins(self, question: Scoring, noisy: Floats) -> Bins:
        return question.bins_of(noisy[: len(question.borders) + 1])

    def _predictions(self, sites: Sites) -> Floats:
        z = sites.factors.shifted(sites.rows.pooled().predict(self.weights[None]).astype(np.float64, copy=False))
        # Of counts, z is the logarithm of what is predicted.
        return self.loss.predict(z).astype(np.float64) if isinstance(self.loss.labels, Reals) else z

    def _pad(self, k: int, numbers: Floats) -> Floats:
        """The numbers, with zeros behind them up to the public length of sum k."""
        return np.concatenate((numbers, np.zeros(room(self.loss)[k] - len(numbers))))
