"""Analyses: a program of sums with its settings, the sites that may collude, the noise of each sum, and its price.

    Analysis    all that follows from the schedule of sums, whatever the program finds
    Learning    its answer is a model: a method of learning, run by `solve`
    Statistic   its answer is something else, such as a table: run by `ask`, without loss, graph or history

Of n sites, c may collude, and every sum holds at least u. Every site adds noise of standard deviation
sigma_k Delta_k / sqrt(u - c) to its share of sum k, so that what c colluding sites do not know of the sum's noise is
sigma_k Delta_k at least. Masks that cancel in the sum hide all else. Proofs: docs/proofs/masked.md.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from collections.abc import Sequence as Listing
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np

from sottovoce.algorithms.base import Network, Outputs, PrivateMethod, Round
from sottovoce.algorithms.computation import MASKED_SUMS, Computation, End, Place, View, Way
from sottovoce.algorithms.rival import refuse_incomplete
from sottovoce.errors import InputError, PrivacyError, expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.plain import Oracle
from sottovoce.oracle.row_sums import RowSums
from sottovoce.privacy import Event, Gaussian, NonPrivate, PrivacyStatement, Repeated, Sequence, epsilon
from sottovoce.privacy.accounting.discrete import shared_delta
from sottovoce.privacy.accounting.gaussian import mu_for
from sottovoce.privacy.observers import (
    RELAY,
    Observer,
    assumed,
    expect_members,
    keys_each,
    seen,
    shares_left,
    table_of,
)
from sottovoce.privacy.unit import Unit
from sottovoce.problem.factors import ALIKE, Factors
from sottovoce.problem.graphs import complete
from sottovoce.problem.sites import Sites, Weights
from sottovoce.sums.descent import Fit
from sottovoce.sums.opening import Opener, Shares
from sottovoce.sums.program import Known, Line, Opened, Program, Session
from sottovoce.sums.questions import Gradient

if TYPE_CHECKING:
    from sottovoce.files.schema import Schema

SHORTEST_BOUND = 1e-140  # on the norm of rows: second moments of much shorter ones would lose digits, or vanish
# In a message: servers take 64 MiB, and its heading names up to a thousand sites.
MOST_NUMBERS = 2**23 - 2**13
GRID_BITS = 30  # real sites add noise of a standard deviation of 2^30 grid steps
MOST_STEPS = 2.0**52  # grid steps that a site's share may be large; beyond, it would be clamped

T = TypeVar("T")
Held = TypeVar("Held", bound=RowSums)  # the rows that an analysis is played on, with all that it needs of them
_Held = TypeVar("_Held", bound=RowSums, contravariant=True)


class Opening(Protocol[_Held]):
    """Whoever can have sums over rows opened."""

    def opener(self, shares: Shares, site: _Held, counts: Listing[int], noise: Noise, runs: int) -> Opener:
        """An opener for the sums of these rows."""


@dataclass(frozen=True, kw_only=True)
class Analysis(Computation, Generic[Held, T]):
    """What reads noisy sums over all sites, and nothing else that a site sends. Its fields are public.

    Args:
        epsilon: of the total guarantee, against the message server and `colluding` sites together; `math.inf` adds no
            noise and promises nothing.
        delta: of the same guarantee.
        colluding: c, how many sites may collude, with each other and the message server. None: fewer than half of
            them, but at least one, since every site sees the sums.
        least_sites: u, the least number of sites in a sum. None: all.
        spare: how many sums may be repeated without a site that was lost; paid for in advance.
        worst_case_epsilon: the largest epsilon if all other sites collude. None: no limit.
    """

    way: ClassVar[Way] = MASKED_SUMS
    view: ClassVar[View] = "sums"

    epsilon: float = 1.0
    delta: float = 1e-5
    colluding: int | None = None
    least_sites: int | None = None
    spare: int = 0
    worst_case_epsilon: float | None = None

    def _check_terms(self) -> None:
        expect(self.colluding is None or self.colluding >= 0, "colluding >= 0", colluding=self.colluding)
        expect(self.least_sites is None or self.least_sites >= 1, "least_sites >= 1", least_sites=self.least_sites)
        expect(self.spare >= 0, "spare >= 0 attempts", spare=self.spare)
        worst = self.worst_case_epsilon
        expect(worst is None or 0 < worst < math.inf, "a finite worst_case_epsilon > 0", worst_case_epsilon=worst)

    @abstractmethod
    def schedule(self, features: int) -> tuple[Line, ...]:
        """All sums, in order: sizes, and parts of the budget, which add up to 1. Public before the first."""

    @abstractmethod
    def program(self, known: Known) -> Program[T]:
        """The program: asks one question for each line of the schedule, and finds an answer from the sums."""

    @abstractmethod
    def rows_of(self, sites: Sites) -> Held:
        """The rows of all sites, with what this analysis needs to compute with them."""

    @abstractmethod
    def found(self, answer: T) -> bool:
        """True if an answer so far is worth keeping."""

    @property
    def opened(self) -> int:
        """Number of sums."""
        return len(self.schedule(1))

    @property
    def parts(self) -> tuple[float, ...]:
        """The part of the budget, mu^2, that every sum takes."""
        return tuple(line.part for line in self.schedule(1))

    def begin(self, n: int, features: int, data_norm: float, unit: Unit, runs: int = 1) -> Session[T]:
        """The program before its first sum, for n sites."""
        self.opened  # noqa: B018, raises if it is unset
        noise = math.sqrt(n / self.honest(n))
        changed = unit.changed * min(unit.sites, n)
        known = Known(runs, features, data_norm, changed, tuple(noise * sigma for sigma in self.multipliers(n)))
        return Session(self.program(known))

    def sums(self, site: Held, runs: int, network: Opening[Held], noise: Noise) -> Iterator[tuple[Opened, T]]:
        """Every sum of the program as it is opened, with the answer so far. What cannot be run is refused before this
        returns; no row is looked at before the first sum is asked for.
        """
        self.check(site)
        counts = site.network.sites.counts.tolist()
        expect(len(counts) == site.n, f"the rows of all {site.n} sites, to play all of them", sites=len(counts))
        # Some rows may be held out, in an order that nobody knows and that is the same for the whole run.
        site = replace(site, order=cache(partial(noise.order, site.sites.rows.offsets)))
        opener = network.opener(Shares(self.multipliers(site.n), self.honest(site.n)), site, counts, noise, runs)
        return self._sums(self.begin(site.n, site.sites.d, site.sites.data_norm, site.sites.unit, runs), opener)

    def _sums(self, session: Session[T], opener: Opener) -> Iterator[tuple[Opened, T]]:
        for k in range(1, self.opened + 1):
            assert session.ask is not None  # the program asks as often as the schedule says
            opened = opener.open(k, session.ask.question)
            session.tell(opened)
            yield opened, session.answer

    # -- who colludes ---------------------------------------------------------------------------------------------

    def colluders(self, n: int) -> int:
        """c, the number of colluding sites: as given, or fewer than half, but at least one if there is another site."""
        return assumed(n) if self.colluding is None else self.colluding

    def members(self, n: int) -> int:
        """u, the number of sites that a sum must hold: as given, or all."""
        return n if self.least_sites is None else self.least_sites

    def honest(self, n: int) -> int:
        """u - c, the least number of shares of the noise in a sum that colluding sites do not know."""
        return self.members(n) - self.colluders(n)

    def agreed(self, site: RowSums) -> Observer:
        """The observer that epsilon was asked for against."""
        return Observer(self.colluders(site.n))

    def keys(self, n: int) -> int:
        """Number of other sites that each of n sites shares a key with."""
        return keys_each(n, self.colluders(n), self.members(n))

    def shares_left(self, n: int, colluding: int) -> int:
        """The least number of shares of the noise in an opened sum that so many colluding sites do not know."""
        return shares_left(n, self.colluders(n), self.members(n), colluding)

    def noise_left(self, n: int, colluding: int) -> float:
        """Standard deviation of the noise that so many colluding sites do not know, over that for c of them."""
        return math.sqrt(self.shares_left(n, colluding) / self.honest(n))

    # -- noise and price ------------------------------------------------------------------------------------------

    def multipliers(self, n: int) -> tuple[float, ...]:
        """The noise multiplier of every exchange, against c of n sites and the message server."""
        if math.isinf(self.epsilon):
            return (0.0,) * self.opened
        worst = None if self.worst_case_epsilon is None else (self.worst_case_epsilon, self.honest(n))
        return calibrated(self.epsilon, self.delta, self.parts, self.spare, worst)

    def sigma(self, site: RowSums) -> float:
        """The smallest noise multiplier of all exchanges, that of the costliest."""
        return min(self.multipliers(site.n))

    def cost(self, k: int, site: RowSums, observer: Observer = RELAY) -> Event:
        """A Gaussian release whose noise is that of the shares which the observer does not know."""
        if math.isinf(self.epsilon):
            return NonPrivate()
        return Gaussian(self.multipliers(site.n)[k - 1] * self.noise_left(site.n, observer.colluding))

    def event(self, k: int, site: RowSums, observer: Observer = RELAY) -> Event:
        """The first k exchanges and all spare attempts, each of which costs as much as the costliest exchange."""
        if math.isinf(self.epsilon):
            return NonPrivate()
        noise, sigmas = self.noise_left(site.n, observer.colluding), self.multipliers(site.n)
        return releases([sigma * noise for sigma in sigmas[:k]], self.sigma(site) * noise, self.spare)

    def spent(self, k: int, site: RowSums, runs: int = 1) -> float:
        """Epsilon after k exchanges of each run, against the sites that were assumed to collude."""
        return epsilon(Repeated(self.event(k, site, self.agreed(site)), runs), self.delta)

    def statement(self, site: Held) -> PrivacyStatement:
        """The cost of all exchanges, and what holds against how many colluding sites."""
        self.check(site)
        event, private = self.event(self.opened, site, self.agreed(site)), math.isfinite(self.epsilon)
        return PrivacyStatement(
            event=event,
            epsilon=self.spent(self.opened, site),
            target_epsilon=self.epsilon,
            delta=self.delta,
            calibration="exact" if private else None,
            sigma=self.sigma(site) if private else None,
            released=self.released,
            unit=site.sites.unit,
            notes=self.notes(site) if private else (),
            observers=table_of(site.n, event, self.delta, partial(self.noise_left, site.n)) if private else (),
        )

    def notes(self, site: RowSums) -> tuple[str, ...]:
        """The assumptions of the guarantee, in words."""
        n, c, u = site.n, self.colluders(site.n), self.members(site.n)
        if n == 1:
            return ("There is one site, and nothing is masked: whoever holds its rows is trusted with them.",)
        sparse, keys = "", self.keys(n)
        if keys < n - 1:
            sparse = (
                f" Each site has keys with {keys} others, chosen by a digest of all sites' keys: {keys - (n - u)} that"
                " collude may cut one site off from the sum, and no fewer can."
            )
        assumption = f"at most {c} of the {n} sites collude" if c else f"none of the {n} sites colludes with another"
        rests = (
            f"It is assumed that {assumption}, and that every sum includes at least {u} sites. The message"
            " server may collude as well. Masks come from keys that two sites share, so this guarantee is"
            f" computational: it holds against whoever cannot break them.{sparse} One member can spoil a sum without"
            " being found out."
        )
        simulated = (
            "In this simulation the noise of a sum is drawn as a whole, and no mask is made: whoever runs it sees the"
            " rows of all sites."
        )
        return (rests, simulated) if site.network.sites.n == n else (rests,)

    @property
    def split(self) -> dict[str, float]:
        """The part of the budget, mu^2, that each kind of sum takes, by its words."""
        found: dict[str, float] = {}
        for line in self.schedule(1):
            found[line.kind] = found.get(line.kind, 0.0) + line.part
        return found

    def unit_factor(self, unit: Unit, n: int) -> float:
        """k s, for k rows of a person at each of s sites: all of them are in one sum."""
        return unit.changed * float(min(unit.sites, n))

    def promises(self, n: int) -> list[tuple[float, int]]:
        """Epsilon against c colluding sites and, if `worst_case_epsilon` is given, that against all other sites."""
        worst = self.worst_case_epsilon
        return [(self.epsilon, self.colluders(n)), *([] if worst is None else [(worst, n - 1)])]

    def grid_delta(self, colluding: int, epsilon: float, n: int, features: int, unit: Unit, bits: int) -> float:
        """What the grid adds to delta. Colluding sites know all but some shares of the noise, and the law of the sum of
        so few shares is further from a Gaussian's.
        """
        sizes = [line.numbers for line in self.schedule(features)]
        # More than may collude can open sums of several groups, and a person may have rows in each.
        apart = unit.sites if colluding > self.colluders(n) else 1
        draws = (sum(sizes) + self.spare * max(sizes)) * apart
        return shared_delta(draws, 2.0**bits, self.shares_left(n, colluding), epsilon)

    # -- what is refused ------------------------------------------------------------------------------------------

    def check(self, site: Held) -> None:
        """Refuse what cannot be kept, before a row is touched."""
        self.expect_sites(site.n)
        bound = site.sites.data_norm
        expect(
            SHORTEST_BOUND <= bound < math.inf, f"a bound on the norm of rows, {SHORTEST_BOUND:g} or more",
            "Declare it, and clip to it; rows may be in a larger unit", data_norm=bound,
        )  # fmt: skip
        most = max(line.numbers for line in self.schedule(site.sites.d))
        expect(most <= MOST_NUMBERS, f"at most {MOST_NUMBERS} numbers in a message", "Use fewer features", d=most)
        if math.isfinite(self.epsilon):
            self.expect_grid(site.n, int(site.network.sites.counts.max()))

    def expect_sites(self, n: int) -> None:
        """Refuse numbers of sites with which no guarantee holds."""
        expect_members(n, self.colluders(n), self.members(n))

    def expect_rows(self, counts: Listing[int]) -> None:
        """Refuse sites without rows."""
        expect(min(counts) >= 1, "rows at every site", rows=min(counts))

    def expect_grid(self, n: int, most_rows: int) -> None:
        """Refuse noise that is so small that the exact share of the largest site has too many grid steps: the noise has
        2^30 steps or more.
        """
        # Second moments and gradients of m rows are at most m times as long as what one row moves them by. The grid is
        # a power of two, so the noise may be nearly twice as many steps as it has to be.
        most = 2.0 ** (GRID_BITS + 1)
        steps = float(most_rows) * most * math.sqrt(self.honest(n)) / min(self.multipliers(n))
        if steps > MOST_STEPS:
            raise PrivacyError(
                f"Expected noise that a grid of {GRID_BITS} bits can hold, got epsilon={self.epsilon:g}, for which a "
                f"site's share is 2^{math.log2(steps):.1f} steps of 2^52. Ask for a smaller epsilon or more exchanges."
            )


@dataclass(frozen=True, kw_only=True)
class Learning(Analysis[Oracle, Fit], PrivateMethod):
    """An analysis that learns a model.

    Args:
        weights: always "rows": a sum over all sites counts every row the same.
    """

    weights: Weights = "rows"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_terms()
        expect(self.calibration == "exact", "calibration='exact' for masked sums", calibration=self.calibration)
        rows_count = self.weights == "rows"
        expect(rows_count, "weights='rows' for masked sums, which count every row the same", weights=self.weights)

    @property
    def infers(self) -> bool:
        """True if coefficients are to have standard errors: the field `inference` of those that can have them."""
        return bool(getattr(self, "inference", False))

    @property
    def rows_only(self) -> str | None:
        """None: a person's rows are in the sums, wherever they are, and every sensitivity counts them all."""
        return None

    @property
    def opened(self) -> int:
        """Number of sums; raises if it is unset."""
        if self.rounds is None:
            raise InputError(
                "Expected a number of exchanges, got rounds=None, which follows from rows, features and sites. Give "
                "rounds, or bind it first: bound_to(rows, features, sites)."
            )
        return self.rounds

    def rows_of(self, sites: Sites) -> Oracle:
        """The rows, bound to the objective."""
        return self.oracle(sites, complete(sites.n))

    @property
    def noisy(self) -> str:
        """The first gradient."""
        return "each coordinate of a gradient before the first step, in the coordinates of the rows"

    def found(self, answer: Fit) -> bool:
        """True from the first model on: sums before it, such as second moments, leave it at zero."""
        return bool(answer.last.any())

    def expect_schema(self, schema: "Schema") -> None:
        """Also refuse standard errors of coefficients that the schema leaves without a value of their own."""
        from sottovoce.files.schema.inference import require_inferable

        super().expect_schema(schema)
        if self.infers:
            require_inferable(schema)

    def play(self, site: Oracle, runs: int, network: Network, noise: Noise) -> Iterator[Round]:
        """Open the sums of the program one by one, with a model after each."""
        return self._rounds(self.sums(site, runs, network, noise), site.sites.n)

    def _rounds(self, sums: Iterator[tuple[Opened, Fit]], nodes: int) -> Iterator[Round]:
        for opened, fit in sums:
            outputs = partial(_copies, fit, nodes)
            yield Round(len(opened.value), outputs, fit.evidence, fit.evaluation, fit.moments)

    def with_noise(self, factor: float) -> Self:
        """The same with so many times the noise: all sums together are one Gaussian release, with noise as 1 / mu."""
        mu = mu_for(self.epsilon, self.delta) / factor
        return replace(self, epsilon=epsilon(Gaussian(1 / mu), self.delta))

    def share_std(self, site: Oracle, rows: int) -> float:
        """Standard deviation of one of at least u - c shares of the noise in the first gradient, at the model 0."""
        sensitivity = float(Gradient(np.zeros((site.d, 1))).sensitivity(site, rows).item())
        return self.multipliers(site.n)[min(1, self.opened - 1)] * sensitivity / math.sqrt(self.honest(site.n))

    def check(self, site: Oracle) -> None:
        """Refuse what cannot be kept, before a row is touched."""
        refuse_incomplete(site, type(self).__name__)
        super().check(site)


@dataclass(frozen=True, kw_only=True)
class Statistic(Analysis[RowSums, T]):
    """An analysis whose answer is no model. It needs rows and nothing else: no loss, no graph, no rounds."""

    ends_in: ClassVar[End] = "table"

    def __post_init__(self) -> None:
        expect(self.epsilon > 0, "epsilon > 0", epsilon=self.epsilon)
        expect(0 < self.delta < 1, "0 < delta < 1", delta=self.delta)
        self._check_terms()

    @property
    def rounds(self) -> int:
        """Number of sums."""
        return self.opened

    @property
    def noisy(self) -> str:
        """The first sum."""
        return "each number of the first sum"

    def found(self, answer: T) -> bool:
        """True once a sum has told anything."""
        return answer is not None

    def expect_unit(self, unit: Unit) -> None:
        """A person's rows are in the sums, wherever they are, and every sensitivity counts them all."""

    def expect_schema(self, schema: "Schema") -> None:
        """Any features will do."""

    def share_std(self, site: RowSums, rows: int) -> float:
        """Standard deviation of one of at least u - c shares of the noise in the first sum."""
        ask = self.begin(site.n, site.sites.d, site.sites.data_norm, site.sites.unit).ask
        assert ask is not None  # a schedule has one sum at least
        sensitivity = float(ask.question.sensitivity(site, rows).item())
        return self.multipliers(site.n)[0] * sensitivity / math.sqrt(self.honest(site.n))

    def rows_of(self, sites: Sites) -> RowSums:
        """The rows as they are: sums without a loss."""
        return RowSums(sites, sites.n)

    def at_site(self, sites: Sites, place: Place) -> RowSums:
        """A site's rows, of a network of so many."""
        return RowSums(sites, len(place.counts))

    def factors(self, schema: "Schema | None") -> Factors:  # noqa: ARG002
        """None: every row counts the same."""
        return ALIKE


def _copies(fit: Fit, nodes: int) -> Outputs:
    """The models of all nodes, (nodes, d, runs), which are the same."""
    average, last = (np.broadcast_to(model, (nodes, *model.shape)) for model in (fit.average, fit.last))
    return Outputs(average, last)


def releases(sigmas: Listing[float], dearest: float, spare: int) -> Event:
    """Releases with these multipliers, one after the other, and spare attempts."""
    runs = [(sigma, len(list(same))) for sigma, same in groupby(sigmas)]
    parts: list[Event] = [
        Repeated(Gaussian(sigma), times) if place or times > 1 else Gaussian(sigma)
        for place, (sigma, times) in enumerate(runs)
    ]
    parts += [Repeated(Gaussian(dearest), spare)] if spare else []
    return Sequence(tuple(parts))


@lru_cache(maxsize=256)
def calibrated(
    target: float, delta: float, parts: tuple[float, ...], spare: int, worst: tuple[float, int] | None
) -> tuple[float, ...]:
    """Noise multipliers with which all exchanges and spare attempts stay within the target. `worst` is (epsilon, by how
    many times less noise, squared).
    """
    mu = mu_for(target, delta)
    if worst is not None:
        mu = min(mu, mu_for(worst[0], delta) / math.sqrt(worst[1]))
    mu /= math.sqrt(1 + spare * max(parts))
    step = 2.0**-52
    while True:
        sigmas = tuple((1 / (mu * np.sqrt(parts))).tolist())
        # As `event` and `noise_left` compute it, so that both come out to the last bit as they are stated.
        made = releases(sigmas, min(sigmas), spare)
        enough = epsilon(made, delta) <= target
        if enough and (worst is None or seen(made, math.sqrt(1 / worst[1]), delta) <= worst[0]):
            return sigmas
        mu, step = mu * (1 - step), 2 * step  # rounding may leave the target missed by a hair
