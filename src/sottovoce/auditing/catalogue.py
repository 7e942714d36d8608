"""All releases of one process that the audit plays, each with two neighbouring tables that attain its claim."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, sqrt
from typing import Any

import numpy as np

from sottovoce.algorithms.hazards import ProportionalHazards
from sottovoce.algorithms.masked import MaskedNewton
from sottovoce.algorithms.squares import LeastSquares
from sottovoce.algorithms.tabulation import Tabulation
from sottovoce.arrays import Floats
from sottovoce.auditing.releases import Release, of_evaluation, of_sums
from sottovoce.auditing.worlds import surroundings
from sottovoce.files.schema import SurvivalLabel
from sottovoce.privacy.unit import ROW, Unit
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.factors import Factors
from sottovoce.problem.losses import Logistic, Poisson
from sottovoce.problem.sites import Sites
from sottovoce.tables.coding import Coding
from sottovoce.tables.follow_up import FollowUp
from sottovoce.tally.questions import TwoClasses
from sottovoce.tally.release import Terms

DELTA = 1e-5
ROWS = 400  # so many that noise moves models little


def tables(
    first: Sequence[float], second: Sequence[float], labels: tuple[float, float] = (1.0, 1.0), *, driven: bool = False,
    unit: Unit = ROW, factors: tuple[Factors, Factors] | None = None, other: float = 1.0,
) -> tuple[Sites, Sites]:  # fmt: skip
    """Two neighbouring tables: all rows of one unit are `first` with its label, or `second` with its.

    Args:
        first: features of the rows in question: the first k of each of s sites, as the unit says.
        second: the same in the second world.
        labels: of those rows, in the two worlds.
        driven: True if the other rows drive models along the first feature, False if they cancel.
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


def _times() -> Floats:
    """Two rows as survival curves have them: censored at once, and censored just after the only other bin began."""
    label = SurvivalLabel(time="time", event="event", until=2.0, bins=2)
    coding = Coding((FollowUp(*label.watched, (0.0, 0.5, 1.0)),))
    codes = np.array([[0.0, 0.0], [0.5 + 1e-9, 0.0]])
    coded = coding.coded(Dataset(codes, np.zeros(2), ("time", "event"), 2, inf, "times"))
    return np.stack([coded.values(name) for name in coded.names], axis=1)


def everything(epsilon: float = 1.0) -> Mapping[str, Release]:
    """All releases that the audit plays, by name."""
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "colluding": 0}
    right, left, up = (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0)
    above, below = (sqrt(0.5), sqrt(0.5)), (sqrt(0.5), -sqrt(0.5))
    short = MaskedNewton(rounds=3, lam=1.0, loss=Logistic(), **asked)
    inferring = MaskedNewton(rounds=4, lam=1.0, loss=Logistic(), inference=True, **asked)
    counts = replace(inferring, loss=Poisson())
    focused = replace(inferring, rounds=5, focus=(0,))
    judging = MaskedNewton(rounds=4, lam=1e-3, loss=Logistic(), evaluate=0.5, **asked)
    holding, as_they_lie = replace(judging, hold_out=2), np.arange(ROWS)
    held = np.roll(as_they_lie, 1)  # the row in question is second of two, and every second one is held out
    even = np.full(ROWS, 0.5)
    # A row counts no more than those of typical length and weight, in whitened coordinates.
    heavy = Factors.of(weights=np.concatenate(([1.0], np.full(ROWS - 1, 0.95))))
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
        # Opposite along what is asked for, and the same beside it, so that gradients and Hessians differ.
        "inference, focused": of_sums(focused, tables(above, (-above[0], above[1]))),
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
        "least squares": of_sums(LeastSquares(rounds=3, **asked), tables(right, left, other=0.0)),
        "hazards": of_sums(ProportionalHazards(rounds=3, **asked), tables(right, up, (1.0, 2.0))),
        "table": of_sums(Tabulation(what="rows in two cells", **asked), tables(right, up)),
        "survival curves": of_sums(Tabulation(what="times in two bins", **asked), tables(*_times())),
        "evaluation alone": of_evaluation(TwoClasses(ROWS, 5), terms, ((z, outputs), (turned, signs))),
    }
