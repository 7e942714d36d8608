"""Filters: the rule by which a book takes one more charge, whatever earlier charges have shown.

`accounting.epsilon` prices a list of releases that was fixed beforehand. Whoever chooses the next release with sight
of earlier results has no such list, and "the list so far is within epsilon" does not bound what they learn: delta
can come out almost twice as large. What does is a filter. There are two, and a book has one of them for all time:

    exact   the first charge is anything, all later ones are plain Gaussians;  epsilon(all charges, delta) <= epsilon
    mixed   charges of any kind;     K_1(lambda) + K_2(lambda) + ... <= the limit that follows from epsilon and delta

with lambda, the order, written down before the first charge. A plan of several releases that is charged first, as one
event, is one charge. The proofs are in docs/proofs/books.md.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import fsum, inf, isfinite, log, log1p, nextafter, sqrt
from typing import Self, final

import numpy as np

from sottovoce.errors import PrivacyError, expect
from sottovoce.privacy.accounting.accountant import epsilon as epsilon_of
from sottovoce.privacy.accounting.accountant import leaves, log_moments, plain_mu
from sottovoce.privacy.accounting.calibration import noise_for
from sottovoce.privacy.accounting.gaussian import mu_for
from sottovoce.privacy.events import Event, Gaussian, Repeated, Sequence

CUT_SHARE = 1e-3  # of delta, for what is cut off the losses in a mixed book
# How far a mixed book's order lies above the best one for Gaussians. They pay 2 % more for it, searches 10 % less.
_ABOVE = 1.25
_ROUNDING = 1e-12  # relative, of a sum of moments
_LARGEST = 1e6  # epsilon up to which a price is looked for
_ORDERS = np.geomspace(1e-3, 1e8, 2201)
_PARTS = _ORDERS * np.log1p(1 / _ORDERS) + np.log1p(_ORDERS)  # of the limit, without epsilon and delta


@final
@dataclass(frozen=True)
class Charges:
    """All charges of a book: which was the first, and how often each was made."""

    first: Event | None
    counts: Counter[Event]

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """Charges in this order."""
        listed = tuple(events)
        return cls(listed[0] if listed else None, Counter(listed))

    @property
    def together(self) -> Event:
        """All of them as one event, for an accountant of lists."""
        return Sequence(tuple(Repeated(event, times) for event, times in self.counts.items()))


@final
@dataclass(frozen=True)
class Filter:
    """The rule of one book: within (epsilon, delta), exact or, with an order, mixed.

    Args:
        epsilon, delta: what all charges together may cost.
        order: lambda of a mixed book, fixed before its first charge; None for an exact book.

    Formal guarantees:
        If every charge was made when `fits` said so of all charges up to it, all results together are (epsilon,
        delta)-DP for one replaced row. Each charge may be chosen with sight of all earlier results, and so may be
        whether there is one.
    """

    epsilon: float
    delta: float
    order: float | None = None  # lambda, for a mixed book

    def __post_init__(self) -> None:
        expect(self.epsilon > 0 and isfinite(self.epsilon), "epsilon positive and finite", epsilon=self.epsilon)
        expect(0 < self.delta < 1, "delta strictly between 0 and 1", delta=self.delta)
        good = self.order is None or (isfinite(self.order) and self.order > 0)
        expect(good, "an order that is positive and finite, or none", order=self.order)

    def knows(self, charges: Charges) -> bool:
        """True if all charges are of a kind that the book takes, at whatever price."""
        if self.order is not None:
            return True
        others = sum(times for event, times in charges.counts.items() if not _is_plain(event))
        return others == 0 or (others == 1 and charges.first is not None and not _is_plain(charges.first))

    def fits(self, charges: Charges) -> bool:
        """True if a book with these charges is within its epsilon and delta."""
        if self.order is None:
            return self._listed(charges) <= self.epsilon
        return self._moment(charges) <= self._limit

    def price(self, charges: Charges) -> float:
        """The least epsilon, at this delta, of a book of this kind that takes all charges; inf if there is none.

        For an exact book it is the exact price of the list. It is at most `self.epsilon` just if the charges fit.
        """
        if self.order is None:
            return self._listed(charges)
        if not leaves(charges.together):
            return 0.0
        # Decided by the book as it is: a search that ends a rounding error away must not say otherwise.
        fits = self.fits(charges)
        low, high = (0.0, self.epsilon) if fits else (self.epsilon, 2 * self.epsilon)
        while not fits and not self._at(high).fits(charges):
            low, high = high, 2 * high
            if high > _LARGEST:
                return inf
        while high - low > 1e-7 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self._at(middle).fits(charges) else (middle, high)
        return high if fits else max(high, nextafter(self.epsilon, inf))

    def room(self, charges: Charges) -> float:
        """About the largest mu of one more plain Gaussian release; 0 if there is none."""
        if self.order is not None:
            left = self._limit - self._moment(charges)
            return sqrt(2 * left / self.order / (1 + self.order)) if left > 0 else 0.0
        if not self.knows(charges):
            return 0.0
        spent = plain_mu(charges.together)
        if spent is not None:
            return sqrt(max(0.0, mu_for(self.epsilon, self.delta) ** 2 - spent**2))
        try:
            past = charges.together
            return 1 / noise_for(lambda sigma: Sequence((past, Gaussian(sigma))), self.epsilon, self.delta)
        except PrivacyError:  # no noise is enough
            return 0.0

    def share(self, event: Event) -> float:
        """What one charge takes of a mixed book's limit on log-moments. Not for an exact book."""
        assert self.order is not None
        return _charge(event, self.order, self.delta, self._limit)

    def _at(self, epsilon: float) -> "Filter":
        """The same kind of book with another epsilon, and with the order that belongs to it."""
        return replace(self, epsilon=epsilon, order=order_for(epsilon, self.delta))

    def _listed(self, charges: Charges) -> float:
        """The price of the charges as a list; inf if they are of a kind that an exact book does not take."""
        return epsilon_of(charges.together, self.delta) if self.knows(charges) else inf

    @cached_property
    def _limit(self) -> float:
        """The most that the charges' log-moments may add up to. Not for an exact book."""
        assert self.order is not None
        return _limit(self.order, self.epsilon, self.delta)

    def _moment(self, charges: Charges) -> float:
        """What the charges take of the limit, rounded up."""
        parts = [times * self.share(event) for event, times in charges.counts.items()]
        return fsum(parts) * (1 + _ROUNDING)


def order_for(epsilon: float, delta: float) -> float:
    """The order lambda of a mixed book: a quarter above the one at which most Gaussians fit.

    It depends on nothing but epsilon and delta, so it is fixed before the first charge, as the proof needs it.
    """
    at = int(np.argmax((_ORDERS * epsilon + _PARTS + log(delta)) / _ORDERS / (1 + _ORDERS)))
    # Three digits: the order is written into files, and must come out the same on every machine.
    return float(f"{_ABOVE * _ORDERS[at]:.3g}")


def _limit(lam: float, epsilon: float, delta: float) -> float:
    """The largest log-moment with which (epsilon, delta) holds, rounded down; nothing fits if it is negative.

    delta (1 - CUT_SHARE) = e^{K - lambda eps} (lambda / (1 + lambda))^lambda / (1 + lambda), solved for K.
    """
    parts = lam * epsilon, lam * log1p(1 / lam), log1p(lam), log(delta * (1 - CUT_SHARE))
    return fsum(parts) - 1e-14 * fsum(map(abs, parts))


@lru_cache(maxsize=4096)
def _charge(event: Event, lam: float, delta: float, limit: float) -> float:
    """What the event takes of the limit: its log-moment, or what is cut off its losses, as a share of CUT_SHARE.

    So the sum of all that is cut off stays within CUT_SHARE delta as long as the sum of charges is within the limit.
    """
    if limit <= 0:
        return inf
    shares = [
        times * min(max(moment, mass / (CUT_SHARE * delta) * limit) for moment, mass in log_moments(leaf, lam, delta))
        for leaf, times in leaves(event).items()
    ]
    return fsum(shares)


@lru_cache(maxsize=4096)
def _is_plain(event: Event) -> bool:
    """True if this charge is plain Gaussian noise only. Cached, since every check of a book tests all its charges."""
    return plain_mu(event) is not None
