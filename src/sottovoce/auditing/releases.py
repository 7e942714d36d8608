"""The attack on what one process releases of private rows, played in two worlds.

`audit` plays what sites say, with every site's own share of the noise. What one process releases has its noise drawn as
a whole, by the operating system (`SystemNoise.shared`), and there is more of it: Hessians for standard errors, counts
of an evaluation, sums over people, over rows with weights or exposures, least squares. `catalogue` lists them. For
each:

    worlds      two tables, neighbours by the unit of the claim; given all that was opened before, they move the sums
                in question by as much as the accountant allows
    statistic   with x_k the sum that was opened, f_k and f'_k what it would be without noise in the two worlds, and
                mu_k its price, sum of mu_k^2 (<x_k - f_k, f'_k - f_k> / |f'_k - f_k|^2 - 1/2): the log-likelihood ratio
                of a claim that is attained. Above 0, the second world is guessed
    bound       on epsilon from below, by counting right guesses (`bounds`)
    noise       of every sum, along f'_k - f_k, is at least |f'_k - f_k| / mu_k: a chi-squared test
    freshness   no two numbers of all that was added are correlated

What sums are without noise is computed by the library itself: that they are the right sums is tested elsewhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import atanh, sqrt
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from scipy.special import ndtr

from sottovoce.algorithms.analysis import Analysis
from sottovoce.arrays import Floats, Ints
from sottovoce.auditing.audit import ALARM, ROUNDING, Stated
from sottovoce.auditing.bounds import (
    Claim,
    Distance,
    EventCounts,
    Verdict,
    by_normal_law,
    counted,
    counted_for_any,
    noise_size,
)
from sottovoce.noise.sources import Shape, SystemNoise, SystemStream
from sottovoce.privacy import Gaussian, PrivacyStatement
from sottovoce.privacy.accounting.accountant import plain_mu
from sottovoce.privacy.observers import Observer
from sottovoce.problem.sites import Sites
from sottovoce.sums.opening import Curator, Shares
from sottovoce.tally.questions import PLACING, TwoClasses
from sottovoce.tally.release import Terms, opened

BLOCK = 500  # runs at once
HEAD = 6  # numbers of every sum that are held against each other


class ProjectedSum(NamedTuple):
    """One sum in many runs, given all that was opened before it."""

    noise: Floats  # (runs,) along the direction in which the other world moves it
    moved: Floats  # (runs,) by how much
    head: Floats  # (numbers, runs) the noise in its first numbers


Play: TypeAlias = Callable[[int, int], list[ProjectedSum]]  # which world, how many runs


@final
@dataclass(frozen=True, eq=False)
class Release:
    """A release to attack.

    Args:
        stated: epsilon of the noise that it adds, and epsilon that was asked for.
        claim: the guarantee that was asked for, which is attacked.
        prices: mu of every sum.
        play: the sums of so many runs in one of the two worlds.
    """

    stated: Stated
    claim: Claim
    prices: tuple[float, ...]
    play: Play


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Played(Verdict):
    """The result of an attack on a release's claim. The alarm rests on `lower`, `noise`, `reused` and `stated`."""

    stated: Stated
    reused: float  # p of the two numbers that are correlated most, if all are drawn afresh

    @property
    def watched(self) -> str:
        return "the release"

    def told(self) -> dict[str, Any]:
        return super().told() | {"stated": self.stated.epsilon, "reused": self.reused}

    def prose(self) -> str:
        """The verdict as one paragraph."""
        found = (
            f"Claimed: epsilon = {self.claim.epsilon:.4g} at delta = {self.claim.delta:g}. Who sees the release tells "
            f"two worlds apart: from {self.runs} runs of each, epsilon is at least {self.lower:.3g} with "
            f"{100 * self.confidence:g} % confidence, by counting"
        )
        if self.noise is not None:
            found += (
                f". In sum {self.noise.round}, where it looks smallest, there is {self.noise.size:.3f} times the noise "
                f"that these rows need, p = {self.noise.p:.2g} if noise is normal"
            )
        found += f". Its numbers are drawn afresh with p = {self.reused:.2g}"
        if self.stated.epsilon > self.stated.asked * (1 + ROUNDING):
            found += f". Its own noise costs epsilon = {self.stated.epsilon:.4g}"
        end = "THE CLAIM IS REFUTED." if self.alarm else "The claim is not refuted: this attack found no fault."
        return f"{found}. {end} The operating system's noise has no seed."


def played(
    release: Release, runs: int = 10_000, confidence: float = 0.95, progress: Callable[[int, int], None] | None = None
) -> Played:
    """Attack the claim of a release with `runs` runs of each world; `progress` gets the blocks done and in all."""
    started, blocks = perf_counter(), [*range(0, runs, BLOCK), runs]
    worlds: list[list[list[ProjectedSum]]] = [[], []]
    for number, (start, end) in enumerate(pairwise(blocks)):
        for world in (0, 1):
            worlds[world].append(release.play(world, end - start))
        if progress is not None:
            progress(number + 1, len(blocks) - 1)
    sums = [[_join(parts) for parts in zip(*world, strict=True)] for world in worlds]
    first, second = (_scores(release, opened, world) for world, opened in enumerate(sums))
    both = [_join(parts) for parts in zip(*sums, strict=True)]
    sizes = [
        noise_size(k, one.noise[None], one.moved[None], mu)
        for k, (one, mu) in enumerate(zip(both, release.prices, strict=True), start=1)
        if mu > 0
    ]
    claim, stated, reused = release.claim, release.stated, _reused(both)
    counts, distance = EventCounts.of(first, second, 0.0), Distance.of(first, second)
    tests = 2 + len(sizes)
    each, least = ALARM / tests, min(sizes, key=lambda one: (one.p, one.size), default=None)
    refuted = (
        counted(counts, claim, 1 - each) > claim.epsilon
        or (least is not None and least.p < each)
        or reused < each
        or stated.epsilon > stated.asked * (1 + ROUNDING)
    )
    return Played(
        claim=claim, confidence=confidence, lower=counted(counts, claim, confidence),
        lower_gaussian=by_normal_law(distance, claim, confidence),
        lower_any=counted_for_any(counts, claim.delta, confidence), distance=distance.mu, counts=counts, noise=least,
        tests=tests, alarm=refuted, runs=counts.runs, seed=None, seconds=perf_counter() - started,
        first=first, second=second, threshold=0.0, stated=stated, reused=reused,
    )  # fmt: skip


def _join(parts: Sequence[ProjectedSum]) -> ProjectedSum:
    """The same sum over the runs of all parts."""
    return ProjectedSum(*(np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True)))


def _scores(release: Release, sums: Sequence[ProjectedSum], world: int) -> Floats:
    """The statistic of every run, (runs,). A sum that the other world does not move adds nothing."""
    total: Floats = np.zeros(len(sums[0].noise))
    for one, mu in zip(sums, release.prices, strict=True):
        there = one.moved > 0
        along = np.where(there, one.noise / np.where(there, one.moved, 1.0) + (world - 0.5), 0.0)
        total = total + mu**2 * along
    return total


def _reused(sums: Sequence[ProjectedSum]) -> float:
    """How likely the largest correlation between two numbers of noise is by chance (Fisher's z), all pairs together."""
    heads = np.concatenate([one.head for one in sums])
    heads = heads[np.std(heads, axis=1) > 0]
    correlation = np.corrcoef(heads)[np.triu_indices(len(heads), 1)]
    if not correlation.size:
        return 1.0
    z = atanh(min(float(np.abs(correlation).max()), 1 - 1e-12)) * sqrt(heads.shape[1] - 3)
    return float(min(1.0, 2 * correlation.size * ndtr(-z)))


# -- from an algorithm, or an evaluation, to a release ----------------------------------------------------------------


def of_sums(algorithm: Analysis[Any, Any], worlds: tuple[Sites, Sites], order: Ints | None = None) -> Release:
    """The release of an analysis, on the rows of all sites of one process, as estimators run it.

    Args:
        algorithm: the analysis.
        worlds: private rows. The second is a neighbour of the first.
        order: with held-out rows, that which decides which they are; it is secret, and the same in both worlds.
    """
    here, there = (algorithm.rows_of(sites) for sites in worlds)
    if order is not None:
        here, there = replace(here, order=lambda: order), replace(there, order=lambda: order)
    statement, colluding = algorithm.statement(here), Observer(algorithm.colluding or 0)
    counts, shares = here.sites.counts.tolist(), Shares(algorithm.multipliers(here.n), algorithm.honest(here.n))

    def play(world: int, runs: int) -> list[ProjectedSum]:
        noise, site = SystemNoise(Shape(here.n, here.sites.d, runs)), (here, there)[world]
        curator, found = Curator(shares, site, counts, noise, runs), list[ProjectedSum]()
        session = algorithm.begin(here.n, here.sites.d, here.sites.data_norm, here.sites.unit, runs)
        for k in range(1, algorithm.opened + 1):
            assert session.ask is not None  # as many questions as rounds
            sum_ = curator.open(k, session.ask.question)
            exact = [sum_.question.of(one, sum_.rows) for one in (here, there)]
            found.append(_project(sum_.value - exact[world], exact[1] - exact[0]))
            session.tell(sum_)
        return found

    prices = [plain_mu(algorithm.cost(k, here, colluding)) for k in range(1, algorithm.opened + 1)]
    return _release(statement, prices, play)


def of_evaluation(
    question: TwoClasses, terms: Terms, worlds: tuple[tuple[Floats, Floats], tuple[Floats, Floats]]
) -> Release:
    """The release of a private evaluation: two sums. A world is a model's outputs and the labels."""

    def play(world: int, runs: int) -> list[ProjectedSum]:
        stream, found = SystemStream(), list[list[ProjectedSum]]()
        for _ in range(runs):
            places = [question.places(*rows) for rows in worlds]
            first = opened(places[world], terms, 1, PLACING, stream)
            placed = question.bins_of(first)
            counts = [question.counts(placed, *rows) for rows in worlds]
            second = opened(counts[world], terms, 2, question.sensitivity, stream)
            found.append([
                _project((noisy - exact[world])[:, None], (exact[1] - exact[0])[:, None])
                for noisy, exact in ((first, places), (second, counts))
            ])  # fmt: skip
        return [_join(parts) for parts in zip(*found, strict=True)]

    return _release(terms.statement(), [plain_mu(Gaussian(sigma)) for sigma in terms.sigmas], play)


def _release(statement: PrivacyStatement, prices: Sequence[float | None], play: Play) -> Release:
    """A release whose claim is what its statement was asked for."""
    known = [price for price in prices if price is not None]
    assert len(known) == len(prices)  # sums have Gaussian noise
    claim = Claim(statement.event, statement.target_epsilon, statement.delta)
    return Release(Stated(statement.epsilon, statement.target_epsilon), claim, tuple(known), play)


def _project(noise: Floats, moved: Floats) -> ProjectedSum:
    """Project noise onto the direction in which the other world moves the sum; both are (numbers, runs)."""
    moved = np.broadcast_to(moved, noise.shape)
    length = np.sqrt(np.sum(moved**2, axis=0))
    along = np.sum(noise * moved, axis=0) / np.where(length > 0, length, 1.0)
    return ProjectedSum(along, length, noise[:HEAD])
