"""The book of one data set: all charges to its rows, the limit on them, and the test whether one more fits.

Two things keep such a book. They differ in whose it is and where it is stored:

    budget    an analyst's: charges without a name, in memory or in a `json_file` that processes change by turns
    ledger    a site's: rounds of runs, each with the one message that it may send, in a `chain` that one process holds

The next charge may be chosen by earlier results, so a `filter`, exact or mixed, accepts and refuses it, and not a sum
of epsilons. The filter is used at the delta

    delta - slack,     slack = min( delta / 1000, what 10^10 times the divergence of the first charge adds to delta ),

and the divergences of the real noise from the ideal one may add up to what slack pays for
(docs/proofs/discrete-gaussian.md). Slack is fixed by the first charge: a share that could be moved with sight of
results would protect nothing (docs/proofs/books.md). Where the noise is ideal, as in a budget, there is none.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import fsum, inf, isfinite, nextafter
from typing import NamedTuple, final

from sottovoce.errors import PrivacyError, expect
from sottovoce.privacy.accounting.accountant import epsilon as epsilon_of
from sottovoce.privacy.accounting.accountant import leaves, plain_mu
from sottovoce.privacy.accounting.calibration import sigma_for
from sottovoce.privacy.accounting.discrete import delta_of_divergence, divergence_within
from sottovoce.privacy.accounting.gaussian import epsilon_of_mu
from sottovoce.privacy.books.filter import Charges, Filter, order_for
from sottovoce.privacy.events import Event, Gaussian
from sottovoce.privacy.observers import against
from sottovoce.privacy.unit import ROW, Unit

# Beyond, a double is no exact count any more.
MOST_TIMES = 2**53
_LARGEST_SLACK = 1e-3  # as a share of delta
_CHARGES = 1e10  # like the first that slack pays for, if it may: far more than there ever are


class Assumed(NamedTuple):
    """What the price of a round rests on, where sites share their noise: at most so many of the run's sites collude,
    and its sum holds so many of them at least.
    """

    colluding: int
    least_sites: int


class Cost(NamedTuple):
    """What one charge is booked as.

    Args:
        event: its release, with ideal noise.
        divergence: the KL divergence of the noise that is really drawn from the noise that the event speaks of, in
            nats.
        assumed: None where the noise is all the site's own: the price then holds against everybody.
    """

    event: Event
    divergence: float = 0.0  # KL, of the real noise from the one that the event speaks of
    assumed: Assumed | None = None


@final
@dataclass(frozen=True)
class Limit:
    """What a book may take.

    Args:
        epsilon: what all charges together may cost; `math.inf`: nothing is refused, whatever its kind.
        delta: at which that holds.
        order: of a mixed book, see `filter`; None for an exact one.
        unit: what is protected.
    """

    epsilon: float
    delta: float
    order: float | None = None
    unit: Unit = ROW

    def __post_init__(self) -> None:
        expect(self.epsilon > 0, "epsilon > 0 (math.inf to only keep the books)", epsilon=self.epsilon)
        expect(0 < self.delta < 1, "delta strictly between 0 and 1", delta=self.delta)

    @classmethod
    def new(cls, epsilon: float, delta: float, *, mixed: bool, unit: Unit) -> "Limit":
        """The limit of a book that is begun now, with the order of a mixed one, which is then for all time."""
        exact = cls(float(epsilon), float(delta), None, unit)
        return replace(exact, order=order_for(epsilon, delta)) if mixed and isfinite(epsilon) else exact

    def expect_covered(self, unit: Unit, whose: str, advice: str) -> None:
        """Refuse a price for less than what the limit protects: it is not what the charge costs."""
        if not unit.covers(self.unit):
            raise PrivacyError(
                f"Expected a run that protects {self.unit}, as {whose} does, got one for {unit}. {advice}"
            )


class Advice(NamedTuple):
    """What to do about a refusal, in the words of whoever keeps the book: about its grid, its kind, or its price."""

    grid: str
    kind: str
    total: str


@final
@dataclass(frozen=True)
class Book:
    """All that counts on the rows of one data set, and its limit. It never changes: what is charged makes another.

    Args:
        limit: what it may take.
        costs: all charges, and how often each was made.
        first: the charge that was made first; None before there is one.

    Formal guarantees:
        If every charge was made when the book with it said `fits`, all that they show is (epsilon, delta)-DP for one
        replaced unit of the limit, for the noise as it is really drawn, even if each was chosen with sight of all
        before. Where charges were booked under an assumption, it holds against at most `colluding` sites of each run.
    """

    limit: Limit
    costs: Counter[Cost]
    first: Cost | None

    @classmethod
    def of(cls, limit: Limit, costs: Iterable[Cost]) -> "Book":
        """Charges in this order."""
        counted = Counter(costs)
        return cls(limit, counted, next(iter(counted), None))

    def with_(self, cost: Cost, times: int = 1) -> "Book":
        """The same book with one charge more, so many times."""
        return Book(self.limit, self.costs + Counter({cost: times}), self.first or cost)

    def is_part_of(self, other: "Book") -> bool:
        """True if the other has the same limit and first charge and holds all charges of this one. If the other fits,
        so does this: a filter that takes all of a list takes every part of it.
        """
        return (self.limit, self.first) == (other.limit, other.first) and self.costs <= other.costs

    def knows(self) -> bool:
        """True if all charges are of a kind that the book takes, at whatever price."""
        return self.limit.epsilon == inf or self.filter.knows(self._charges)

    def fits(self) -> bool:
        """True if the filter takes all charges, and slack pays for what their real noise lacks."""
        if self.limit.epsilon == inf:
            return True
        return self._divergence <= self._rule.divergence and self.filter.fits(self._charges)

    def price(self) -> float:
        """The least epsilon, at the same delta, of a book of this kind that takes all charges; inf if there is none.

        For plain Gaussians it is the exact price of such a list. What is guaranteed while there is more to come is the
        limit: who goes on until a result suits them chooses the price by the result.
        """
        if self.limit.epsilon == inf:
            return epsilon_of(self._charges.together, self.limit.delta)
        return self.filter.price(self._charges) if self._divergence <= self._rule.divergence else inf

    def left(self) -> float:
        """The epsilon, at the limit's delta, of the largest plain Gaussian release that still fits, rounded down.

        Not the limit minus the price: with Gaussians only, sqrt(mu^2 - spent mu^2) is left. A run of many Gaussian
        steps with this epsilon fits just as well.
        """
        if self.limit.epsilon == inf:
            return inf
        if not self.fits():
            return 0.0
        # `room` is exact but for rounding; what is told must really fit.
        delta, step = self.limit.delta, 1e-9
        left = epsilon_of_mu(self.filter.room(self._charges), delta) * (1 - step)
        while left > 0 and not self.with_(Cost(Gaussian(sigma_for(left, delta, 1)))).fits():
            left, step = max(0.0, left * (1 - step)), 2 * step
        return left

    def times_left(self, cost: Cost) -> float:
        """How often this charge still fits: a whole number; inf if it costs nothing, or if nothing is refused."""
        if self.limit.epsilon == inf or not leaves(cost.event):
            return inf
        good, stride = 0, 1
        while good + stride <= MOST_TIMES and self.with_(cost, good + stride).fits():
            good, stride = good + stride, 2 * stride
        while stride > 1:
            stride //= 2
            if self.with_(cost, good + stride).fits():
                good += stride
        return good

    def why_not(self, what: str, before: "Book", advice: Advice) -> str:
        """The text of the error that refuses this book: because of the grid, the kind of a charge, or the price.

        Args:
            what: was asked for, as name=value.
            before: the book without it.
            advice: what to do about each of the three.
        """
        cap, most = f"the cap epsilon={self.limit.epsilon!r} at delta={self.limit.delta!r}", self._rule.divergence
        if self._divergence > most:
            return (
                f"Expected noise on a grid that is fine enough for {cap} and for the first charge: divergences of at "
                f"most {most:.3g} in all, got {self._divergence:.3g} with {what}. {advice.grid}"
            )
        if not self.knows():
            found = (cost.event for cost in (*(self.costs - before.costs), *self.costs))
            other = next(event for event in found if plain_mu(event) is None)
            return (
                "Expected plain Gaussian noise after the first charge, since what is charged later is chosen with "
                f"sight of earlier results, got {what}, with event={other.words!r}. {advice.kind}"
            )
        return (
            f"Expected to stay within {cap}, got {what}: all charges with it would cost epsilon={self.price():.10g}, "
            f"without it {before.price():.6g} in {before.costs.total()} charges{against(before.colluding)}, which "
            f"leaves {before.left():.4g} for one more plain Gaussian run. {advice.total}"
        )

    @property
    def colluding(self) -> int | None:
        """Against how many colluding sites of each run the price holds: the fewest that any charge was booked against.
        None: against everybody.
        """
        return colluding_of(self.costs)

    @property
    def slack(self) -> float:
        """The part of delta that is kept for the gap between the real noise and the ideal one."""
        return self._rule.slack

    @property
    def filter(self) -> Filter:
        """What accepts and refuses, if anything is: of the limit and the first charge, the same for all later ones."""
        return self._rule.filter

    @property
    def _rule(self) -> "_Rule":
        return _rule(self.limit, 0.0 if self.first is None else self.first.divergence)

    @property
    def _divergence(self) -> float:
        """All divergences together, in nats: those of adaptive draws add up."""
        return fsum(times * cost.divergence for cost, times in self.costs.items())

    @property
    def _charges(self) -> Charges:
        """All charges as the filter takes them: events alone, and which came first."""
        counts: Counter[Event] = Counter()
        for cost, times in self.costs.items():
            counts[cost.event] += times
        return Charges(None if self.first is None else self.first.event, counts)


def colluding_of(costs: Iterable[Cost]) -> int | None:
    """Against how many colluding sites all these costs hold; None: against everybody."""
    return fewest(None if cost.assumed is None else cost.assumed.colluding for cost in costs)


def fewest(colluding: Iterable[int | None]) -> int | None:
    """The smallest of some numbers of colluding sites; None stands for everybody."""
    return min((number for number in colluding if number is not None), default=None)


class _Rule(NamedTuple):
    """What is refused, by the limit and the first charge."""

    filter: Filter
    divergence: float  # the most, of all charges together
    slack: float  # the part of delta that it takes


@lru_cache(maxsize=64)
def _rule(limit: Limit, first: float) -> _Rule:
    """The filter at delta - slack, and the divergence that slack pays for. `first` is the first charge's divergence."""
    most = min(_CHARGES * first, divergence_within(_LARGEST_SLACK * limit.delta, limit.epsilon))
    slack = delta_of_divergence(most, limit.epsilon)
    # One number further down: the subtraction may have rounded up.
    rest = nextafter(limit.delta - slack, 0.0) if slack > 0 else limit.delta
    return _Rule(Filter(limit.epsilon, rest, limit.order), most, slack)
