"""The price of rounds that other sites have seen and this ledger lacks (Theorem 5 of docs/proofs/books.md).

Rounds of a run are booked in order and cost the same in every ledger, so of two lists of one run the shorter is a part
of the longer. On top of this ledger's own rounds, the rest of the weight counts as one plain Gaussian.
"""

from collections.abc import Sequence
from math import inf, isinf, sqrt
from typing import NamedTuple, final

from sottovoce.privacy.books.account import Record, record_of
from sottovoce.privacy.books.book import Assumed, Cost, Limit, fewest
from sottovoce.privacy.books.filter import Filter
from sottovoce.privacy.events import Gaussian, NonPrivate

_DOWN = 1 - 1e-15  # what a few roundings may have added


@final
class Caught(NamedTuple):
    """What others have seen of one run.

    Args:
        record: all that they have seen.
        limit: of the book that it was priced in.
    """

    record: Record
    limit: Limit

    def under(self, here: Limit) -> Record:
        """The record as it counts in another book. What was priced for less than this one protects counts as
        everything, and so does what is not plain Gaussian, unless both books are of one kind.
        """
        there = self.limit
        alike = (there.epsilon, there.delta, there.order) == (here.epsilon, here.delta, here.order)
        good = there.unit.covers(here.unit) and (self.record.plain or alike)
        return self.record if good else self.record._replace(weight=inf)


def rest_of(caught: Record, own: Sequence[Cost], rule: Filter) -> Cost | None:
    """What a run has taken elsewhere and not here, as one plain Gaussian; None if there is no more.

    `own` are the same rounds, as far as they were booked here.
    """
    here = record_of("", len(own), ((cost, 1) for cost in own), rule)
    divergence = max(0.0, caught.divergence - here.divergence)
    assumed = None if caught.colluding is None else Assumed(caught.colluding, 0)
    if isinf(caught.weight):
        return None if own and len(own) >= caught.rounds else Cost(NonPrivate(), divergence, assumed)
    weight = caught.weight - here.weight
    if not weight > 0:
        return Cost(Gaussian(1e150), divergence, assumed) if divergence > 0 else None
    return Cost(Gaussian(max(_DOWN / sqrt(weight), 1e-150)), divergence, assumed)


def together(own: Record, caught: Record, same: Sequence[Cost], rule: Filter) -> Record:
    """What a run has taken here and elsewhere; `same` are the rounds of the one that are among the other's."""
    rest = rest_of(caught, same, rule)
    more = record_of("", 0, () if rest is None else ((rest, 1),), rule)
    return Record(
        own.run, max(own.rounds, caught.rounds), own.weight + more.weight, own.divergence + more.divergence,
        own.plain and caught.plain, fewest((own.colluding, caught.colluding)),
    )  # fmt: skip
