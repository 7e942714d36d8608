"""Two noisy sums over all sites: their noise, its price, and the privacy statement.

With Delta what replacing one row moves a sum by (`questions`), sites add discrete Gaussian noise to exact counts, over
a grid so fine that the law is that of the continuous one: sums that at least u of n sites are in, of which c collude,
hide every row behind a Gaussian of standard deviation sigma Delta. mu^2 = 1/sigma_1^2 + 1/sigma_2^2. One site with all
rows is n = 1, c = 0. Proofs: docs/proofs/evaluation.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from math import isfinite, sqrt
from typing import final

import numpy as np

from sottovoce.arrays import Floats
from sottovoce.errors import InputError, expect
from sottovoce.noise.sampler import WordStream, discrete_gaussian
from sottovoce.noise.secure import GRID_BITS, Grid, grid_for
from sottovoce.noise.sources import SystemStream
from sottovoce.privacy import Event, Gaussian, PrivacyStatement, Sequence, epsilon
from sottovoce.privacy.accounting.discrete import shared_delta
from sottovoce.privacy.accounting.gaussian import mu_for
from sottovoce.privacy.observers import assumed, expect_members, shares_left, table_of
from sottovoce.privacy.strength import no_delta, no_epsilon, refusal
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.tally.questions import PLACING, Answer, ScoreQuestion

FIRST = 0.15  # of mu^2 goes to placing the bins, the rest to what is counted in them
MOST_NUMBERS = 2**20  # in a sum
OPTIMISM = (
    "If the model was learnt from these rows, it looks better here than it is. The costs of learning and evaluation "
    "then add up: charge both to one budget."
)
ON_TRUST = "It is assumed, not checked, that nobody has more rows here than the unit of protection says."
FIXED = "The model was fixed before. Choosing among models by such figures costs one evaluation for each of them."


@final
@dataclass(frozen=True, kw_only=True)
class Terms:
    """What an evaluation may cost, and against whom that holds. All of it is public.

    Args:
        epsilon: of the whole evaluation, against the message server and `colluding` sites together.
        delta: at which it holds.
        sites: n, whose rows are summed over. 1: whoever holds the rows is trusted with them.
        colluding: c, how many sites may collude, with each other and the server. None: fewer than half of them, but
            at least one if there is another.
        least_sites: u, how many sites a sum must hold. None: all.
        unit: what is protected: a row, or a person with all the rows that they may have.
        counted: True if rows were counted, and no person has more than `unit` says. Else the statement says that this
            was not checked.
    """

    epsilon: float
    delta: float
    sites: int = 1
    colluding: int | None = None
    least_sites: int | None = None
    unit: Unit = ROW
    counted: bool = False

    def __post_init__(self) -> None:
        expect(isfinite(self.epsilon) and self.epsilon > 0, "a finite epsilon > 0", epsilon=self.epsilon)
        expect(0 < self.delta < 1, "delta strictly between 0 and 1", delta=self.delta)
        expect(self.sites >= 1, "sites >= 1", sites=self.sites)
        doubt = no_delta(self.delta) or no_epsilon(self.epsilon)
        if doubt is not None:
            raise InputError(refusal(doubt))
        expect(self.colluding is None or self.colluding >= 0, "colluding >= 0", colluding=self.colluding)
        expect(self.least_sites is None or self.least_sites >= 1, "least_sites >= 1", least_sites=self.least_sites)
        expect_members(self.sites, self.colluders, self.members)

    @property
    def colluders(self) -> int:
        """Number c of colluding sites."""
        return assumed(self.sites) if self.colluding is None else self.colluding

    @property
    def members(self) -> int:
        """Number u of sites that a sum must hold."""
        return self.sites if self.least_sites is None else self.least_sites

    @property
    def shares(self) -> int:
        """u - c: smallest number of shares of noise in a sum that colluding sites do not know."""
        return self.members - self.colluders

    @cached_property
    def sigmas(self) -> tuple[float, float]:
        """Noise multipliers of the two sums; refuses a delta that noise on a grid cannot keep."""
        # What a discrete law costs more than a continuous one is taken off delta.
        delta = self.delta - shared_delta(2 * MOST_NUMBERS, 2.0**GRID_BITS, self.shares, self.epsilon)
        if delta <= 0:
            raise InputError(f"Expected a delta that noise on a grid can keep, got delta={self.delta!r}. Raise it.")
        mu, step = mu_for(self.epsilon, delta), 2.0**-52
        while True:
            sigmas = 1 / (mu * sqrt(FIRST)), 1 / (mu * sqrt(1 - FIRST))
            if epsilon(Sequence(tuple(map(Gaussian, sigmas))), delta) <= self.epsilon:
                return sigmas
            mu, step = mu * (1 - step), 2 * step  # rounding may leave the target missed by a hair

    @property
    def changed(self) -> int:
        """Largest number of rows that are replaced together. Sums move by that many times what one row moves them.

        It does not depend on n: one file may hold the rows of many sites, and a person's rows of all of them.
        """
        return self.unit.changed * self.unit.sites

    def std(self, exchange: int, sensitivity: float) -> float:
        """Standard deviation of the noise in each number of the sum over all sites, up to what pays for the grid."""
        return self.sigmas[exchange - 1] * self.changed * sensitivity * sqrt(self.sites / self.shares)

    def grid(self, exchange: int, sensitivity: float, numbers: int) -> Grid:
        """The grid on which every site adds its share of the noise, and the size of that share."""
        expect(numbers <= MOST_NUMBERS, f"at most {MOST_NUMBERS} numbers: fewer classes", numbers=numbers)
        sites = min(self.unit.sites, self.sites)
        return grid_for(self.sigmas[exchange - 1], self.changed * sensitivity, self.shares, numbers, sites)

    @property
    def event(self) -> Event:
        """Two Gaussian releases, one for each sum."""
        return Sequence(tuple(map(Gaussian, self.sigmas)))

    def statement(self) -> PrivacyStatement:
        """The guarantee of the evaluation alone."""
        event, left = self.event, partial(shares_left, self.sites, self.colluders, self.members)
        trust = "There is one site, and nothing is masked: whoever holds its rows is trusted with them."
        if self.sites > 1:
            trust = (
                f"It is assumed that at most {self.colluders} of the {self.sites} sites collude. In this simulation "
                "the noise of a sum is drawn as a whole, and no mask is made: whoever runs it sees the rows of "
                "all sites."
            )
        return PrivacyStatement(
            event=event,
            epsilon=epsilon(event, self.delta),
            target_epsilon=self.epsilon,
            delta=self.delta,
            calibration="exact",
            sigma=min(self.sigmas),
            released=(
                "two noisy sums over all rows: how many have a score in each of many narrow cells, and counts of "
                "scores by label, or sums of clipped errors; all figures follow from them"
            ),
            public=("the number of rows", "the model, which was fixed before", "the number of sites"),
            notes=(trust, FIXED, OPTIMISM, *((ON_TRUST,) if self.unit.people and not self.counted else ())),
            observers=table_of(self.sites, event, self.delta, lambda k: sqrt(left(k) / self.shares)),
            unit=self.unit,
        )


def evaluate(
    question: ScoreQuestion, terms: Terms, z: Floats, labels: Floats,
    charge: Callable[[PrivacyStatement], None] | None = None, words: WordStream | None = None,
) -> Answer:  # fmt: skip
    """Answer the question from all rows, held here, with exact noise from the operating system's cryptographic source.

    Args:
        question: what is asked.
        terms: at which price.
        z: (rows, outputs), what the model says.
        labels: as its loss takes them; of a number, in its own unit.
        charge: called before anything is computed from the rows. If it raises, nothing was.
        words: from which noise is drawn, for tests. None: the operating system's.
    """
    expect(len(z) == len(labels) == question.rows, f"rows={question.rows}", z=len(z), labels=len(labels))
    # All that may be refused is, before anything is paid.
    most = max(question.room)
    expect(most <= MOST_NUMBERS, f"sums of at most {MOST_NUMBERS} numbers: fewer classes", numbers=most)
    finest = min(terms.grid(k, PLACING, 1).step for k in (1, 2))
    expect(
        question.rows / finest < 2.0**60, "fewer rows, or a smaller epsilon, for noise on a grid", rows=question.rows
    )
    if charge is not None:
        charge(terms.statement())
    drawn = SystemStream() if words is None else words
    first = opened(question.places(z, labels), terms, 1, PLACING, drawn)
    placed = question.bins_of(first)
    second = opened(question.counts(placed, z, labels), terms, 2, question.sensitivity, drawn)
    return question.answer(placed, second, terms.std(2, question.sensitivity))


def opened(exact: Floats, terms: Terms, exchange: int, sensitivity: float, words: WordStream) -> Floats:
    """The noisy sum over all sites: exact counts, and the noise of n shares, which is drawn as a whole."""
    grid = terms.grid(exchange, sensitivity, len(exact))
    steps = np.rint(exact / grid.step).astype(np.int64)
    noise = discrete_gaussian(words, int(np.ceil(grid.scale * sqrt(terms.sites))), len(exact))
    noisy: Floats = (steps + noise).astype(np.float64) * grid.step
    return noisy
