"""Releases of private rows in one process, each played in two worlds that move it by all that its noise is made for.

`audit` plays what sites say, with every site's own share of the noise. What one process releases has its noise drawn as
a whole, by the operating system (`SystemNoise.shared`), and there is more of it: Hessians for standard errors, counts
of an evaluation, sums over people, over rows with weights or exposures, least squares. Each is a subject of its own:

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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import atanh, sqrt
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from scipy.special import ndtr

from sottovoce.algorithms.analysis import Analysis
from sottovoce.algorithms.masked import MaskedNewton
from sottovoce.algorithms.squares import LeastSquares
from sottovoce.arrays import Floats, Ints
from sottovoce.auditing.audit import ALARM, ROUNDING, Stated
from sottovoce.auditing.bounds import (
    Claim,
    Counts,
    Distance,
    NoiseSize,
    Verdict,
    by_normal_law,
    counted,
    counted_for_any,
    noise_size,
)
from sottovoce.auditing.worlds import surroundings
from sottovoce.noise.sources import Shape, SystemNoise, SystemStream
from sottovoce.privacy import Gaussian, PrivacyStatement
from sottovoce.privacy.accounting.accountant import plain_mu
from sottovoce.privacy.observers import Observer
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.problem.factors import Factors
from sottovoce.problem.graphs import complete
from sottovoce.problem.losses import Logistic, Poisson
from sottovoce.problem.sites import Sites
from sottovoce.sums.opening import Curator, Shares
from sottovoce.tally.questions import PLACING, TwoClasses
from sottovoce.tally.release import Terms, opened

DELTA = 1e-5
ROWS = 400  # so many that noise moves models little
BLOCK = 500  # runs at once
HEAD = 6  # numbers of every sum that are held against each other


class Opened(NamedTuple):
    """One sum in many runs, given all that was opened before it."""

    noise: Floats  # (runs,) along the direction in which the other world moves it
    moved: Floats  # (runs,) by how much
    head: Floats  # (numbers, runs) the noise in its first numbers


Play: TypeAlias = Callable[[int, int], list[Opened]]  # which world, how many runs


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
    """What an attack has shown of a release's claim. The alarm rests on `lower`, `noise`, `reused` and `stated`."""

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
    worlds: list[list[list[Opened]]] = [[], []]
    for number, (first, last) in enumerate(pairwise(blocks)):
        for world in (0, 1):
            worlds[world].append(release.play(world, last - first))
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
    return _judge(release, Counts.of(first, second, 0.0), (first, second), sizes, _reused(both), confidence,
                   perf_counter() - started)  # fmt: skip


def _judge(
    release: Release, counts: Counts, scores: tuple[Floats, Floats], sizes: list[NoiseSize], reused: float,
    confidence: float, seconds: float,
) -> Played:  # fmt: skip
    claim, stated, distance = release.claim, release.stated, Distance.of(*scores)
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
        tests=tests, alarm=refuted, runs=counts.runs, seed=None, seconds=seconds, first=scores[0], second=scores[1],
        threshold=0.0, stated=stated, reused=reused,
    )  # fmt: skip


def _join(parts: Sequence[Opened]) -> Opened:
    return Opened(*(np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True)))


def _scores(release: Release, sums: Sequence[Opened], world: int) -> Floats:
    """The statistic of every run, (runs,). A sum that the other world does not move adds nothing."""
    total: Floats = np.zeros(len(sums[0].noise))
    for one, mu in zip(sums, release.prices, strict=True):
        there = one.moved > 0
        along = np.where(there, one.noise / np.where(there, one.moved, 1.0) + (world - 0.5), 0.0)
        total = total + mu**2 * along
    return total


def _reused(sums: Sequence[Opened]) -> float:
    """How likely the largest correlation between two numbers of noise is by chance (Fisher's z), all pairs together."""
    heads = np.concatenate([one.head for one in sums])
    heads = heads[np.std(heads, axis=1) > 0]
    correlation = np.corrcoef(heads)[np.triu_indices(len(heads), 1)]
    if not correlation.size:
        return 1.0
    z = atanh(min(float(np.abs(correlation).max()), 1 - 1e-12)) * sqrt(heads.shape[1] - 3)
    return float(min(1.0, 2 * correlation.size * ndtr(-z)))


# -- from an algorithm, or an evaluation, to a release ----------------------------------------------------------------


def of_sums(algorithm: Analysis, worlds: tuple[Sites, Sites], order: Ints | None = None) -> Release:
    """The release of an analysis, on the rows of all sites of one process, as estimators run it.

    Args:
        algorithm: the analysis.
        worlds: private rows. The second is a neighbour of the first.
        order: with held-out rows, that which decides which they are; it is secret, and the same in both worlds.
    """
    graph = complete(worlds[0].n)
    here, there = (algorithm.oracle(sites, graph) for sites in worlds)
    if order is not None:
        here, there = replace(here, order=lambda: order), replace(there, order=lambda: order)
    statement, colluding = algorithm.statement(here), Observer(algorithm.colluding or 0)
    counts, shares = here.sites.counts.tolist(), Shares(algorithm.multipliers(here.n), algorithm.honest(here.n))

    def play(world: int, runs: int) -> list[Opened]:
        noise, site = SystemNoise(Shape(graph.n, here.d, runs)), (here, there)[world]
        curator, found = Curator(shares, site, counts, noise, runs), list[Opened]()
        session = algorithm.begin(here.n, here.sites.d, here.sites.data_norm, here.sites.unit, runs)
        for k in range(1, algorithm.rounds + 1):
            assert session.ask is not None  # as many questions as rounds
            sum_ = curator.open(k, session.ask.question)
            exact = [sum_.question.of(one, sum_.rows) for one in (here, there)]
            found.append(_project(sum_.value - exact[world], exact[1] - exact[0]))
            session.tell(sum_)
        return found

    prices = [plain_mu(algorithm.cost(k, here, colluding)) for k in range(1, algorithm.rounds + 1)]
    return _release(statement, prices, play)


def of_evaluation(
    question: TwoClasses, terms: Terms, worlds: tuple[tuple[Floats, Floats], tuple[Floats, Floats]]
) -> Release:
    """The release of a private evaluation: two sums. A world is a model's outputs and the labels."""

    def play(world: int, runs: int) -> list[Opened]:
        stream, found = SystemStream(), list[list[Opened]]()
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
    known = [price for price in prices if price is not None]
    assert len(known) == len(prices)  # sums have Gaussian noise
    claim = Claim(statement.event, statement.target_epsilon, statement.delta)
    return Release(Stated(statement.epsilon, statement.target_epsilon), claim, tuple(known), play)


def _project(noise: Floats, moved: Floats) -> Opened:
    """Project noise onto what the other world adds; both are (numbers, runs)."""
    moved = np.broadcast_to(moved, noise.shape)
    length = np.sqrt(np.sum(moved**2, axis=0))
    along = np.sum(noise * moved, axis=0) / np.where(length > 0, length, 1.0)
    return Opened(along, length, noise[:HEAD])


# -- what is played ---------------------------------------------------------------------------------------------------


def tables(
    first: Sequence[float], second: Sequence[float], labels: tuple[float, float] = (1.0, 1.0), *, driven: bool = False,
    unit: Unit = ROW, factors: tuple[Factors, Factors] | None = None, other: float = 1.0,
) -> tuple[Sites, Sites]:  # fmt: skip
    """Two neighbouring tables: all rows of one unit are `first` with its label, or `second` with its.

    Args:
        first: features of the rows in question: the first k of each of s sites, as the unit says.
        second: the same in the second world.
        labels: of those rows, in the two worlds.
        driven: whether the other rows drive models along the first feature, or cancel.
        unit: whose rows they are.
        factors: weights and exposures of a site's rows, in the two worlds.
        other: the label of all other rows.
    """
    made = []
    for world, (row, label) in enumerate(zip((first, second), labels, strict=True)):
        features = surroundings("driven" if driven else "still", ROWS // unit.sites, len(row))
        told = np.full(len(features), other)
        features[: unit.changed], told[: unit.changed] = row, label
        given = None if factors is None else [factors[world]] * unit.sites
        made.append(Sites([features] * unit.sites, [told] * unit.sites, private=True, unit=unit, factors=given))
    return made[0], made[1]


def everything(epsilon: float = 1.0) -> Mapping[str, Release]:
    """All releases that the audit plays, by name."""
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "colluding": 0}
    right, left, up = (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0)
    above, below = (sqrt(0.5), sqrt(0.5)), (sqrt(0.5), -sqrt(0.5))
    short = MaskedNewton(rounds=3, lam=1.0, loss=Logistic(), **asked)
    inferring = MaskedNewton(rounds=4, lam=1.0, loss=Logistic(), inference=True, **asked)
    counts = replace(inferring, loss=Poisson())
    judging = MaskedNewton(rounds=4, lam=1e-3, loss=Logistic(), evaluate=0.5, **asked)
    holding, as_they_lie = replace(judging, hold_out=2), np.arange(ROWS)
    held = np.roll(as_they_lie, 1)  # the row in question is second of two, and every second one is held out
    even = np.full(ROWS, 0.5)
    heavy = Factors.of(weights=np.concatenate(([1.0], even[1:])))
    exposed = tuple(Factors.of(exposures=np.concatenate(([e], even[1:]))) for e in (1.0, 1e-6))
    z, outputs = np.linspace(-3, 3, ROWS)[:, None], np.where(np.arange(ROWS) % 2, 1.0, -1.0)
    turned, signs = z.copy(), outputs.copy()
    turned[0], signs[0] = 3.0, 1.0
    terms = Terms(epsilon=epsilon, delta=DELTA)
    return {
        "shared noise, second moments": of_sums(short, tables(right, up)),
        "shared noise, gradients": of_sums(short, tables(right, left)),
        "inference, Hessian": of_sums(inferring, tables(right, up)),
        "inference, gradients": of_sums(inferring, tables(right, left)),
        # Models are driven to where means are somewhat below the largest count: above it, Hessians are cut off.
        "inference of counts": of_sums(counts, tables(above, below, (0.0, 1.0), driven=True, other=0.7)),
        "evaluation in a run": of_sums(judging, tables(right, left, (1.0, -1.0), driven=True)),
        "held out, a row that is learnt from": of_sums(holding, tables(right, up), as_they_lie),
        "held out, a row that is not": of_sums(holding, tables(right, left, (1.0, -1.0), driven=True), held),
        "people": of_sums(short, tables(right, up, unit=Unit(3, 2))),
        "weights": of_sums(short, tables(right, left, factors=(heavy, heavy))),
        "exposures": of_sums(
            replace(short, loss=Poisson()),
            tables(right, right, (0.0, 1.0), factors=(exposed[0], exposed[1]), other=0.5),
        ),
        "least squares": of_sums(LeastSquares(**asked), tables(right, left, other=0.0)),
        "evaluation alone": of_evaluation(TwoClasses(ROWS, 5), terms, ((z, outputs), (turned, signs))),
    }
