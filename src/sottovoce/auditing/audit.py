"""The audit: an attack on a claim of epsilon, and the lower bound that it shows.

    1. two rows that can be told apart best are searched for (`pairs`)
    2. weights of all that the observer sees, and a threshold, are learnt from runs of its own (`scores`)
    3. fresh runs in both worlds are judged, and bounded from below (`bounds`)
    4. their messages are solved for the noise in them, round by round (`replay`)

A lower bound above the claim by more than chance shows a fault: in the noise, in a sensitivity, in the accounting. So
does noise that is too small by more than chance, and a statement of more than was asked for. Else this attack found
none, and no more.
"""

import secrets
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple, final

import numpy as np

from sottovoce.algorithms.base import Method
from sottovoce.algorithms.computation import View
from sottovoce.arrays import Floats
from sottovoce.auditing.bounds import (
    Claim,
    Distance,
    EventCounts,
    NoiseSize,
    Verdict,
    by_normal_law,
    counted,
    counted_for_any,
)
from sottovoce.auditing.pairs import Pair, looked_at, worst_pair
from sottovoce.auditing.replay import noise_by_round
from sottovoce.auditing.scores import Score, learn
from sottovoce.auditing.subjects import expect_claim, usual_size
from sottovoce.auditing.views import check_view
from sottovoce.auditing.worlds import NoiseMaker, Worlds, place
from sottovoce.errors import expect
from sottovoce.privacy.observers import Observer
from sottovoce.problem.graphs import Graph, complete
from sottovoce.progress import Progress
from sottovoce.simulation.devices import DeviceName, Precision

ALARM = 1e-6  # how rarely an audit may call a right claim wrong, all of its tests together
ROUNDING = 1e-9  # of an epsilon, by which a statement may be above what was asked for
FEWEST = 200  # runs of each world
_ROW_WORK = 24  # runs that a row takes in the search


class Stated(NamedTuple):
    """Epsilon of the noise that is added, and epsilon that was asked for, both against the agreed observer."""

    epsilon: float
    asked: float


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class Audit(Verdict):
    """The result of an attack on an algorithm's claim. The alarm rests on `lower`, `noise` and `stated`, and not on
    `lower_gaussian`. Its tests are one by counting, and one of every round's noise.
    """

    algorithm: Method
    view: View
    colluding: int | None
    pair: Pair
    stated: Stated

    @property
    def watched(self) -> str:
        return self.view if self.colluding is None else f"{self.view}, {self.colluding} collude"

    def told(self) -> dict[str, Any]:
        worlds, (first, second) = self.pair.worlds, self.pair.rows
        return super().told() | {
            "algorithm": type(self.algorithm).__name__,
            "loss": self.algorithm.loss.name,
            "view": self.view,
            "colluding": self.colluding,
            "stated": self.stated.epsilon,
            "rows": {
                "around": worlds.around,
                "first": place(first, worlds.features),
                "second": place(second, worlds.features),
                "labels": [first.label, second.label],
            },
        }

    def prose(self) -> str:
        """The verdict as one paragraph."""
        colluding = f"{self.colluding} colluding site{'' if self.colluding == 1 else 's'}"
        who = {
            "messages": "who sees every message of every site",
            "average": "who sees the mean of the sites' messages in every round",
            "sums": f"who sees every opened sum and all that is known to {colluding}",
            "model": "who sees the final model only",
        }[self.view]
        claim, percent = self.claim, f"{100 * self.confidence:g} %"
        found = (
            f"Claimed: epsilon = {claim.epsilon:.4g} at delta = {claim.delta:g}. An observer {who} tells two rows "
            f"apart: from {self.runs} runs of each world, epsilon is at least {self.lower:.3g} with {percent} "
            "confidence, by counting"
        )
        if self.lower_gaussian is not None:
            found += f", and at least {self.lower_gaussian:.3g} if {self.assumption}"
        if self.noise is not None:
            found += (
                f". In round {self.noise.round}, where it looks smallest, there is {self.noise.size:.3f} times the "
                f"noise that these rows need, p = {self.noise.p:.2g} if noise is normal"
            )
        if self.stated.epsilon > self.stated.asked * (1 + ROUNDING):
            found += (
                f". Its own noise costs epsilon = {self.stated.epsilon:.4g}, and {self.stated.asked:.4g} was asked for"
            )
        end = "THE CLAIM IS REFUTED." if self.alarm else "The claim is not refuted: this attack found no fault."
        seed = "The operating system's noise has no seed." if self.seed is None else f"Seed: {self.seed}."
        return f"{found}. {end} {seed}"


def audit(
    algorithm: Method,
    *,
    runs: int = 10_000,
    view: View | None = None,
    colluding: int | None = None,
    sites: int | None = None,
    graph: Graph | None = None,
    rows: int | None = None,
    features: int = 2,
    confidence: float = 0.95,
    seed: int | None = None,
    device: DeviceName = "cpu",
    dtype: Precision = "float64",
    system_noise: bool = False,
    noise: NoiseMaker | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Attack the claim of an algorithm, on rows that are made up for it.

    Args:
        algorithm: what is audited, with the epsilon that it claims.
        runs: that are judged, in each of two worlds. As many again are made to learn from.
        view: what the observer sees: "messages", "average", "sums" or "model". None: the most that the claim is about.
        colluding: of masked sums, how many sites tell the observer all they know. None: as many as are claimed.
        sites: how many. None: two, or three where only sums are seen.
        graph: of the sites. None: complete.
        rows: at every site. None: enough for noise to move models little.
        features: of a row, at least 2.
        confidence: of the bounds.
        seed: of the simulated noise; None draws one.
        device: where it runs, as for `simulate`.
        dtype: in which precision.
        system_noise: judge runs with the operating system's noise, which private rows get, instead of the simulator's.
        noise: judge runs with noise that is handed in: for a block's shape, a function of the round, as for `simulate`.
        progress: called with (work done, work in all).
    """
    started = perf_counter()
    expect_claim(algorithm)
    expect(runs >= FEWEST, f"runs >= {FEWEST}", runs=runs)
    expect(0.5 < confidence < 1, "0.5 < confidence < 1", confidence=confidence)
    expect(features >= 2, "features >= 2: the search for two rows goes through a plane", features=features)
    expect(not (system_noise and noise is not None), "system_noise or noise, not both", system_noise=system_noise)
    seen_as = algorithm.view if view is None else view
    check_view(seen_as, algorithm)
    usual_sites, usual_rows = usual_size(algorithm)
    network = graph if graph is not None else complete(usual_sites if sites is None else sites)
    expect(sites is None or sites == network.n, f"sites={network.n}, as in the graph", sites=sites)
    known = algorithm.colluders(network.n)  # None where nobody needs to be assumed not to collude
    if known is not None:
        known = known if colluding is None else colluding
        expect(0 <= known < network.n, f"0 <= colluding < {network.n} sites", colluding=known)
    else:
        expect(colluding is None, "colluding with masked sums only", colluding=colluding)
    worlds = Worlds(
        algorithm, network, usual_rows if rows is None else rows, features, seen_as, "still", known or 0,
        device, dtype, system_noise, noise,
    )  # fmt: skip
    chosen = secrets.randbits(63) if seed is None else seed
    for_search, for_learning, *seeds = np.random.SeedSequence(chosen).generate_state(6, np.uint32).tolist()
    more, for_worlds = seeds[:2], seeds[2:]
    work = _Progress(progress, looked_at(worlds) * _ROW_WORK + 4 * runs)
    pair = worst_pair(worlds, for_search, lambda count: work.add(count * _ROW_WORK))
    work.at(looked_at(worlds) * _ROW_WORK)
    learnt = [pair.worlds.seen(row, runs, for_learning, own=False, told=work.add) for row in pair.rows]
    own = worlds.noise is not None or worlds.system
    # Noise that is not the simulator's own may have another covariance: a fault in it is what weights must make use of.
    theirs = [pair.worlds.seen(row, runs, s) for row, s in zip(pair.rows, more, strict=True)] if own else learnt
    score = learn(*learnt, *theirs)
    opened: list[list[Floats]] = [[], []]
    judged = [
        pair.worlds.seen(row, runs, s, told=work.add, opened=sums)
        for row, s, sums in zip(pair.rows, for_worlds, opened, strict=True)
    ]
    sums = [np.concatenate(blocks) for blocks in opened if blocks]
    noise_found = noise_by_round(pair, judged, sums, known)
    return _judge(
        pair, score, judged, noise_found, known, confidence, None if system_noise else chosen, perf_counter() - started
    )


def _judge(
    pair: Pair, score: Score, judged: list[Floats], noise: list[NoiseSize], colluding: int | None, confidence: float,
    seed: int | None, seconds: float,
) -> Audit:  # fmt: skip
    first, second = (score.of(seen) for seen in judged)
    (stated, claim), counts = _claim(pair, colluding), EventCounts.of(first, second, score.threshold)
    distance, each = Distance.of(first, second), ALARM / (1 + len(noise))
    least = min(noise, key=lambda one: (one.p, one.size), default=None)
    short = counted(counts, claim, 1 - each) > claim.epsilon
    return Audit(
        algorithm=pair.worlds.algorithm,
        view=pair.worlds.view,
        colluding=colluding,
        pair=pair,
        stated=stated,
        claim=claim,
        confidence=confidence,
        lower=counted(counts, claim, confidence),
        lower_gaussian=by_normal_law(distance, claim, confidence),
        lower_any=counted_for_any(counts, claim.delta, confidence),
        distance=distance.mu,
        counts=counts,
        noise=least,
        tests=1 + len(noise),
        alarm=short or (least is not None and least.p < each) or stated.epsilon > stated.asked * (1 + ROUNDING),
        runs=counts.runs,
        seed=seed,
        seconds=seconds,
        first=first,
        second=second,
        threshold=score.threshold,
    )


def _claim(pair: Pair, colluding: int | None) -> tuple[Stated, Claim]:
    """What the algorithm states of its own noise, and the claim that is attacked: what was asked for.

    The statement follows from the noise that is added, and would rise if noise were missing: it cannot be the claim.
    Against a number of colluding sites that nobody asked about, the claim is what follows from what was asked for.
    """
    algorithm, problem = pair.worlds.algorithm, pair.worlds.problem(pair.rows[0])
    site = algorithm.oracle(problem.sites, problem.graph)
    made = algorithm.statement(site)
    stated = Stated(made.epsilon, made.target_epsilon)
    if colluding == algorithm.colluders(site.n):
        return stated, Claim(made.event, made.target_epsilon, made.delta)
    (line,) = (line for line in made.observers if line.colluding == colluding)
    return stated, Claim(algorithm.event(algorithm.rounds, site, Observer(line.colluding)), line.epsilon, made.delta)


class _Progress:
    """Counter of the work done, which reports to `progress`."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def add(self, more: int) -> None:
        self.at(min(self.done + more, self.total))

    def at(self, done: int) -> None:
        self.done = done
        if self.progress is not None:
            self.progress(done, self.total)
