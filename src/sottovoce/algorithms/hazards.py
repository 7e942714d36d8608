"""Proportional hazards from masked sums: a piecewise exponential model of times to an event.

The hazard of a row with features x is exp(<x, beta>) times that of all rows, which is constant within each public
interval. The sums are

    1          second moments of the rows, events by interval, and how long rows were watched in each
    k > 1      at a public model: the gradient of the likelihood, and its Hessian beside it

Every sum but the first is taken where all before it say that the optimum is; the model is where all together say it.
What a row adds is bounded as one record, however many intervals it was watched: `sottovoce.oracle.hazard_sums`.
Standard errors take no sum of their own. Privacy: docs/proofs/hazards.md.
"""

import math
from dataclasses import dataclass, field
from typing import final

import numpy as np

from sottovoce.algorithms.analysis import Learning
from sottovoce.arrays import Floats
from sottovoce.errors import expect
from sottovoce.oracle.hazard_sums import Centred, S
from sottovoce.oracle.plain import Oracle
from sottovoce.problem.losses import Loss, PiecewiseExponential
from sottovoce.sums.descent import Fit
from sottovoce.sums.hazards import TYPICAL, HazardGradient, HazardsHeard, HazardStart, HazardsTogether, Start
from sottovoce.sums.program import Ask, Known, Line, Program

ROUNDS = 7  # sums in all
# Chosen on some tables and judged on others: docs/proofs/hazards.md says which, and how well they do.
MOMENTS = 0.05  # of the budget, mu^2, goes to the first sum
LAST = (0.1, 0.15, 0.2, 0.3)  # the others, relative to each other; all before these are as the first of them
WIDEST = 511  # features and intervals: a message is then no longer than those of masked sums


@final
@dataclass(frozen=True, kw_only=True)
class ProportionalHazards(Learning):
    """Proportional hazards on masked sums. The last feature of every row is a constant.

    Args:
        rounds: exchanges in all: one of moments, the others of gradients and Hessians.
        loss: the likelihood, whose intervals these are.
        inference: True for standard errors of the coefficients. They take no sum of their own.
    """

    rounds: int = ROUNDS
    loss: Loss = field(default_factory=lambda: PiecewiseExponential((0.0, 1.0, 2.0)))
    inference: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = isinstance(self.loss, PiecewiseExponential)
        expect(fits, "loss='piecewise-exponential' for proportional hazards", loss=self.loss.name)
        expect(self.max_grad_norm is None, "no max_grad_norm: a reach bounds rows", max_grad_norm=self.max_grad_norm)
        kink = self.regulariser.l1 == 0
        expect(kink, "a smooth regulariser, l2, for proportional hazards", regulariser=self.regulariser.name)

    def _check_rounds(self) -> None:
        expect(self.rounds >= 2, "rounds >= 2: moments of rows, then gradients", rounds=self.rounds)

    @property
    def intervals(self) -> int:
        """K."""
        return self.loss.outputs

    def check(self, site: Oracle) -> None:
        """Refuse what cannot be kept, before a row is touched."""
        super().check(site)
        d, most = site.sites.d, WIDEST - self.intervals
        expect(2 <= d <= most, f"2 to {most} features, the constant among them, with {self.intervals} intervals",
               features=d)  # fmt: skip
        expect(
            not self.inference or site.sites.factors.weights is None, "rows that count alike with inference",
            "Standard errors depend on what weights stand for: leave inference or the weights out", weights=True,
        )  # fmt: skip

    def schedule(self, features: int) -> tuple[Line, ...]:
        """Moments, events and times; then gradients and Hessians."""
        p, K = features - 1, self.intervals
        half, more = features * (features + 1) // 2 + 2 * K, (p + K) + p * (p + 1) // 2 + p * K + K
        later = [LAST[max(k, 0)] for k in range(len(LAST) - self.rounds + 1, len(LAST))]
        parts = [(1 - MOMENTS) * part / sum(later) for part in later]
        point = p + K + Centred.size(p)
        return (Line("moments and events", half, 0, MOMENTS), *(Line("hazards", more, point, part) for part in parts))

    def program(self, known: Known) -> Program[Fit]:
        """Open the first sum; then step by step, until all sums together say the model."""
        runs, p, K = range(known.runs), known.features - 1, self.intervals
        model = total = np.zeros((known.features * K, known.runs))
        opened = yield Ask(HazardStart(K), Fit(model, model))
        alone = known.noise[1] * math.sqrt(self.parts[1]) * known.changed * math.sqrt(p + K) / opened.rows
        starts = [Start.of(opened, run, known, K, alone) for run in runs]
        at, every = [start.at for start in starts], [list[HazardsHeard]() for _ in runs]
        points = [np.concatenate((np.zeros(p), start.gamma / S)) for start in starts]
        for k in range(1, self.rounds):
            asked = HazardGradient(_columns(points), _columns([one.numbers for one in at]), K)
            opened = yield Ask(asked, Fit(total / max(k - 1, 1), model))
            # From here on with the bits of the point and the coordinates that all sites took.
            at = [opened.question.run(run)[0] for run in runs]
            for heard, run in zip(every, runs, strict=True):
                heard.append(HazardsHeard.of(opened, run, known.runs))
            found = [HazardsTogether.of(heard, start) for heard, start in zip(every, starts, strict=True)]
            kept = [self._penalised(*each) for each in zip(every, starts, at, found, strict=True)]
            model = _columns([_weights(one, place) for one, place in zip(kept, at, strict=True)])
            total = total + model
            if k < self.rounds - 1:
                at = [_recentred(one, place) for one, place in zip(found, at, strict=True)]
                points = [_point(one) for one in found]
        average = total / (self.rounds - 1)
        if not self.inference:
            return Fit(average, model)
        evidence = (one.evidence(place, opened.rows, known) for one, place in zip(found, at, strict=True))
        return Fit(average, model, tuple(evidence))

    def _penalised(
        self, heard: list[HazardsHeard], start: Start, at: Centred, found: HazardsTogether
    ) -> HazardsTogether:
        """With the regulariser, lam l2 |beta|^2 / 2: hazards themselves have none."""
        weight = self.lam * self.regulariser.l2
        return HazardsTogether.of(heard, start, weight * (at.A @ at.A)) if weight else found

    def share_std(self, site: Oracle, rows: int) -> float:  # noqa: ARG002
        """Standard deviation of one of at least u - c shares of the noise in the first gradient, in coordinates in
        which rows are as long as is typical.
        """
        p = site.sites.d - 1
        at = Centred(np.eye(p), np.zeros(p), 1.0, math.sqrt(TYPICAL * p), 1.0)
        moved = at.moves * site.sites.unit.changed * min(site.sites.unit.sites, site.n)
        return self.multipliers(site.n)[1] * moved / math.sqrt(self.honest(site.n))

    @property
    def released(self) -> str:
        """What everyone sees, in words."""
        return (
            "the noisy sum over all sites of the second moments of their rows, of events by interval and of the time "
            f"that rows were watched in each, and then, at each of {self.rounds - 1} public models, of the gradient "
            "and the Hessian of the likelihood of proportional hazards; single sites' messages are masked"
        )


def _columns(parts: list[Floats]) -> Floats:
    return np.ascontiguousarray(np.stack(parts, axis=1))


def _point(found: HazardsTogether) -> Floats:
    """The model where the next sum is taken, around the centre to come: (p + K,)."""
    return np.concatenate((found.u, (found.gamma + found.at_risk @ found.u) / S))


def _recentred(found: HazardsTogether, at: Centred) -> Centred:
    """The coordinates around the rows at risk."""
    return Centred(at.A, at.centre + found.at_risk * at.scale / S, at.scale, at.c, at.reach)


def _weights(found: HazardsTogether, at: Centred) -> Floats:
    """The log-hazards of a row's intervals, as weights of its features, (d K,) row by row."""
    constant = (found.gamma - found.centre @ found.u) * (at.scale / S)
    return np.concatenate((np.repeat(at.A @ found.u, len(constant)), constant))
