"""What the last two sums of a run ask about the model that it has learnt, from public numbers (`sottovoce.tally`).

    exchange T - 1   its share of how many rows have a score in each of many narrow cells                        sqrt(2)
    exchange T       its share of the counts by score and label, or of clipped errors                   2, or sqrt(2)

Sums are filled up with zeros to a length that is known beforehand: how many bins there are follows from scores, but the
length of a message from the agreement alone. The rows are those that were learnt from, or those that were held out.
Privacy: docs/proofs/evaluation.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from typing import final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.problem.losses import Loss, Reals
from sottovoce.problem.sites import Sites
from sottovoce.tally.evaluation import COUNTED_ALIKE, Tallied, ask, counting
from sottovoce.tally.questions import FURTHEST, PLACING, Numbers, Placed, Question
from sottovoce.tally.release import FIRST

# Bins, at most. A simulation draws as many vectors of noise as a sum has numbers, if there is one feature: below 4096.
MOST_BINS = 250
MOST_EVERY = 1000  # rows of which one is held out: fewer would hardly say anything
WIDTH = 2.0  # of labels that are numbers: they are learnt as numbers between -1 and 1
FLATTERED = (
    "The model is evaluated on the rows that it was learnt from: it looks better there than it is on others, the more "
    "so the fewer rows there are for each coefficient."
)

HELD_OUT = (
    "The model is evaluated on one of every {} rows of each site, chosen at random and told to nobody, and was learnt "
    "from the others. Each row is in the sums of one kind alone, and is promised what all of them together cost."
)


@lru_cache(maxsize=64)
def room(loss: Loss) -> tuple[int, int]:
    """How many numbers the two sums hold, whatever the scores."""
    return replace(ask(loss, 1, (0.0, 0.0), width=WIDTH), bins=MOST_BINS).room


def about(notes: Sequence[str]) -> tuple[str, ...]:
    """Those notes of a run's statement that are about its evaluation."""
    held = HELD_OUT.partition("{")[0]
    return tuple(note for note in notes if note in (FLATTERED, COUNTED_ALIKE) or note.startswith(held))


def moved_by(loss: Loss) -> tuple[float, float]:
    """What replacing one row moves the two sums by."""
    return PLACING, counting(loss)


def dealt(share: float) -> tuple[float, float]:
    """The parts of the budget, mu^2, that the two sums take of the evaluation's share."""
    return share * FIRST, share * (1 - FIRST)


@final
@dataclass(frozen=True, eq=False)
class Asked:
    """The question about one model.

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
    def question(self) -> Question:
        """As it is asked of rows whose labels lie between -1 and 1, if they are numbers."""
        reach = float(self.data_norm * np.linalg.norm(self.weights))
        reach = reach if isfinite(reach) else FURTHEST
        return ask(self.loss, self.rows, self.noise, reach=reach, width=WIDTH, most_bins=MOST_BINS)

    def places(self, sites: Sites) -> Floats:
        """What the rows here add to the first sum. Without noise: it must not leave a site."""
        return self._filled(0, self.question.places(self._outputs(sites), sites.labels))

    def counts(self, noisy: Floats, sites: Sites) -> Floats:
        """What they add to the second one, where the first was this. Without noise."""
        question = self.question
        return self._filled(1, question.counts(self._placed(question, noisy), self._outputs(sites), sites.labels))

    def tallied(self, noisy: Sequence[Floats], rows: int, unit: float) -> Tallied:
        """What everyone reads from the two sums.

        Args:
            noisy: both.
            rows: N, over all sites in the second sum: a site may have been lost in between.
            unit: what 1 is in the unit of a label that is a number.
        """
        question = self.question
        placed = self._placed(question, noisy[0])
        last = replace(question, rows=rows)
        if isinstance(last, Numbers):
            last = replace(last, width=last.width * unit)
        placed = placed._replace(likely=placed.likely * (rows / self.rows))
        return Tallied(last, last.answer(placed, noisy[1][: question.numbers(placed)], self.noise[1]))

    def _placed(self, question: Question, noisy: Floats) -> Placed:
        return question.bins_of(noisy[: len(question.borders) + 1])

    def _outputs(self, sites: Sites) -> Floats:
        z = sites.factors.shifted(sites.rows.pooled().predict(self.weights[None]).astype(np.float64, copy=False))
        # Of counts, z is the logarithm of what is predicted.
        return self.loss.predict(z).astype(np.float64) if isinstance(self.loss.labels, Reals) else z

    def _filled(self, k: int, numbers: Floats) -> Floats:
        return np.concatenate((numbers, np.zeros(room(self.loss)[k] - len(numbers))))
