"""What algorithms on masked sums have in common: who may collude, how much noise a sum has, and what the sums cost.

Of n sites, c may collude, and every sum holds at least u. Every site adds noise of standard deviation
sigma_k Delta_k / sqrt(u - c) to its share of exchange k, so that what c colluding sites do not know of the sum's noise
is sigma_k Delta_k at least. Proofs: docs/proofs/masked.md.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence as Listing
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from typing import ClassVar

import numpy as np

from sottovoce.algorithms.base import PrivateAlgorithm, State
from sottovoce.algorithms.rival import refuse_incomplete
from sottovoce.arrays import Array
from sottovoce.errors import PrivacyError, expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.plain import Oracle
from sottovoce.privacy import Event, Gaussian, NonPrivate, PrivacyStatement, Repeated, Sequence, epsilon
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
from sottovoce.problem.sites import Weights

SHORTEST_BOUND = 1e-140  # on the norm of rows: second moments of much shorter ones would lose digits, or vanish
# In a message: servers take 64 MiB, and its heading names up to a thousand sites.
MOST_NUMBERS = 2**23 - 2**13
GRID_BITS = 30  # real sites add noise of a standard deviation of 2^30 grid steps
MOST_STEPS = 2.0**52  # grid steps that a site's share may be large; beyond, it would be clamped


@dataclass(frozen=True, kw_only=True)
class SummedAlgorithm(PrivateAlgorithm[State]):
    """An algorithm that reads sums over all sites, and nothing else that a site says.

    Args:
        epsilon: of the total guarantee, against the relay and `colluding` sites together.
        weights: always "rows": a sum over all sites counts every row the same.
        colluding: c, how many sites may tell each other and the relay all they know. None: fewer than half of them,
            but at least one, since every site looks on.
        least_sites: u, how many sites a sum must hold. None: all.
        spare: attempts that are paid for beforehand, to make a sum again without a site that was lost.
        worst_case_epsilon: what must hold against all other sites together. None: whatever follows.
        total_rows: N, over all sites, where only some of them are held here. None: as many as are held.
    """

    sums_only: ClassVar[bool] = True

    weights: Weights = "rows"
    colluding: int | None = None
    least_sites: int | None = None
    spare: int = 0
    worst_case_epsilon: float | None = None
    total_rows: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        expect(self.colluding is None or self.colluding >= 0, "colluding >= 0", colluding=self.colluding)
        expect(self.least_sites is None or self.least_sites >= 1, "least_sites >= 1", least_sites=self.least_sites)
        expect(self.spare >= 0, "spare >= 0 attempts", spare=self.spare)
        worst = self.worst_case_epsilon
        expect(worst is None or 0 < worst < math.inf, "a finite worst_case_epsilon > 0", worst_case_epsilon=worst)
        expect(self.total_rows is None or self.total_rows >= 1, "total_rows >= 1", total_rows=self.total_rows)
        expect(self.calibration == "exact", "calibration='exact' for masked sums", calibration=self.calibration)
        rows_count = self.weights == "rows"
        expect(rows_count, "weights='rows' for masked sums, which count every row the same", weights=self.weights)

    @property
    @abstractmethod
    def dealt(self) -> tuple[float, ...]:
        """The part of the budget, mu^2, that every exchange takes. They add up to 1."""

    @abstractmethod
    def most_numbers(self, features: int) -> int:
        """How many numbers the largest message holds."""

    @property
    def opened(self) -> int:
        """Number of sums that are opened."""
        return self.rounds

    @property
    def rows_only(self) -> str | None:
        """None: a person's rows are in the sums, wherever they are, and every sensitivity counts them all."""
        return None

    # -- who colludes ---------------------------------------------------------------------------------------------

    def colluders(self, n: int) -> int:
        """c: given, or fewer than half of the sites, but at least one if there is another."""
        return assumed(n) if self.colluding is None else self.colluding

    def members(self, n: int) -> int:
        """u: given, or all."""
        return n if self.least_sites is None else self.least_sites

    def honest(self, n: int) -> int:
        """u - c: how many shares of noise every sum holds at least that those who collude do not know."""
        return self.members(n) - self.colluders(n)

    def agreed(self, site: Oracle) -> Observer:
        """Against whom epsilon was asked for."""
        return Observer(self.colluders(site.n))

    def keys(self, n: int) -> int:
        """With how many of the others each of n sites shares a key."""
        return keys_each(n, self.colluders(n), self.members(n))

    def shares_left(self, n: int, colluding: int) -> int:
        """How many shares of the noise in a sum that opens so many colluding sites do not know, at least."""
        return shares_left(n, self.colluders(n), self.members(n), colluding)

    def noise_left(self, n: int, colluding: int) -> float:
        """What so many colluding sites do not know of the noise, over what c of them do not."""
        return math.sqrt(self.shares_left(n, colluding) / self.honest(n))

    def noise_seen(self, site: Oracle, observer: Observer) -> float:
        """The same, of an observer."""
        return self.noise_left(site.n, observer.colluding)

    # -- noise and price ------------------------------------------------------------------------------------------

    def multipliers(self, n: int) -> tuple[float, ...]:
        """The noise multiplier of every exchange, against c of n sites and the relay."""
        if math.isinf(self.epsilon):
            return (0.0,) * self.opened
        worst = None if self.worst_case_epsilon is None else (self.worst_case_epsilon, self.honest(n))
        return calibrated(self.epsilon, self.delta, self.dealt, self.spare, worst)

    def sigmas(self, site: Oracle) -> tuple[float, ...]:
        """The same for the sites of a network."""
        return self.multipliers(site.n)

    def sigma(self, site: Oracle) -> float:
        """That of the dearest exchange."""
        return min(self.sigmas(site))

    def cost(self, k: int, site: Oracle, observer: Observer = RELAY) -> Event:
        """A Gaussian release whose noise is that of the shares which the observer does not know."""
        if math.isinf(self.epsilon):
            return NonPrivate()
        return Gaussian(self.sigmas(site)[k - 1] * self.noise_seen(site, observer))

    def event(self, k: int, site: Oracle, observer: Observer = RELAY) -> Event:
        """The first k exchanges, and all spare attempts, each as dear as the dearest."""
        if math.isinf(self.epsilon):
            return NonPrivate()
        noise, sigmas = self.noise_seen(site, observer), self.sigmas(site)
        return releases([sigma * noise for sigma in sigmas[:k]], self.sigma(site) * noise, self.spare)

    def spent(self, k: int, site: Oracle, runs: int = 1) -> float:
        """Epsilon after k exchanges of each run, against the sites that were assumed to collude."""
        return epsilon(Repeated(self.event(k, site, self.agreed(site)), runs), self.delta)

    def statement(self, site: Oracle) -> PrivacyStatement:
        """The cost of all exchanges, and what holds against how many colluding sites."""
        self.check(site)
        event, private = self.event(self.opened, site, self.agreed(site)), math.isfinite(self.epsilon)
        return PrivacyStatement(
            event=event,
            epsilon=self.spent(self.opened, site),
            target_epsilon=self.epsilon,
            delta=self.delta,
            calibration=self.calibration if private else None,
            sigma=self.sigma(site) if private else None,
            released=self.released,
            unit=site.sites.unit,
            notes=self.notes(site) if private else (),
            observers=table_of(site.n, event, self.delta, partial(self.noise_left, site.n)) if private else (),
        )

    def notes(self, site: Oracle) -> tuple[str, ...]:
        """What the guarantee rests on."""
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
            f"It is assumed that {assumption}, the relay with them, and that every sum holds at least {u} sites. Masks"
            " come from keys that two sites share, so this guarantee is computational: it holds against whoever cannot"
            f" break them.{sparse} One member can spoil a sum, and is not found out."
        )
        simulated = (
            "In this simulation the noise of a sum is drawn as a whole, and no mask is made: whoever runs it sees the"
            " rows of all sites."
        )
        return (rests, simulated) if site.network.sites.n == n else (rests,)

    # -- what is refused ------------------------------------------------------------------------------------------

    def _rows(self, site: Oracle) -> int:
        """N: the rows that are learnt from."""
        return int(site.network.sites.counts.sum()) if self.total_rows is None else self.total_rows

    def check(self, site: Oracle) -> None:
        """Refuse what cannot be kept, before a row is touched."""
        refuse_incomplete(site, type(self).__name__)
        self.expect_sites(site.n)
        bound, here = site.sites.data_norm, int(site.network.sites.counts.sum())
        expect(
            SHORTEST_BOUND <= bound < math.inf, f"a bound on the norm of rows, {SHORTEST_BOUND:g} or more",
            "Declare it, and clip to it; rows may be in a larger unit", data_norm=bound,
        )  # fmt: skip
        self.expect_message(site.sites.d)
        expect(
            self.total_rows is not None or site.network.sites.n == site.n, "total_rows where only some sites are held",
            "Give the number of all rows", sites_here=site.network.sites.n,
        )  # fmt: skip
        expect(
            self.total_rows is None or self.total_rows >= here, f"total_rows >= {here}, held here", "Count all",
            total_rows=self.total_rows,
        )  # fmt: skip
        if math.isfinite(self.epsilon):
            self.expect_grid(site.n, int(site.network.m.max()))

    def expect_sites(self, n: int) -> None:
        """Refuse numbers of sites with which nothing could be promised."""
        expect_members(n, self.colluders(n), self.members(n))

    def expect_message(self, features: int) -> None:
        """Refuse messages that no wire takes."""
        most = self.most_numbers(features)
        expect(most <= MOST_NUMBERS, f"at most {MOST_NUMBERS} numbers in a message", "Use fewer features", d=most)

    def expect_grid(self, n: int, most_rows: int) -> None:
        """The exact share of the largest site, in grid steps, must fit: the noise is 2^30 of them or more, so it may
        not be too small.
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


def normals(k: int, size: int, site: Oracle, noise: Noise) -> Array:
    """So many standard normals of exchange k, for what is only seen summed over all sites: (1, size, runs)."""
    parts = [noise.shared(k, r) for r in range(-(-size // site.d))]
    return np.concatenate(parts, axis=1)[:, :size].astype(np.float64, copy=False)


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
    target: float, delta: float, dealt: tuple[float, ...], spare: int, worst: tuple[float, int] | None
) -> tuple[float, ...]:
    """Noise multipliers with which all exchanges and spare attempts stay within the target. `worst` is (epsilon, by how
    many times less noise, squared).
    """
    mu = mu_for(target, delta)
    if worst is not None:
        mu = min(mu, mu_for(worst[0], delta) / math.sqrt(worst[1]))
    mu /= math.sqrt(1 + spare * max(dealt))
    step = 2.0**-52
    while True:
        sigmas = tuple((1 / (mu * np.sqrt(dealt))).tolist())
        # As `event` and `noise_seen` put it, so that both come out to the last bit as they are told.
        made = releases(sigmas, min(sigmas), spare)
        enough = epsilon(made, delta) <= target
        if enough and (worst is None or seen(made, math.sqrt(1 / worst[1]), delta) <= worst[0]):
            return sigmas
        mu, step = mu * (1 - step), 2 * step  # rounding may leave the target missed by a hair
