"""Statistics of a problem's rows: the entrance for analyses whose answer is no model.

`ask` does what `solve` does for models, in the same order: it binds the rows, states the cost, refuses what can be
refused, has the cost charged, and only then looks at a row. There is no loss, no history and no device: a statistic is
a few sums over all rows.
"""

import secrets
from dataclasses import dataclass
from typing import Generic, TypeVar, final

from sottovoce.algorithms.analysis import Statistic
from sottovoce.errors import expect
from sottovoce.noise.sources import SeededNoise, Shape, SystemNoise
from sottovoce.privacy import PrivacyStatement
from sottovoce.problem.problem import Problem
from sottovoce.progress import Progress
from sottovoce.simulation.engine import Charge, refuse_seed
from sottovoce.simulation.exchange import Local

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Asked(Generic[T]):
    """An answer, with the guarantee of the rows that it was found from.

    Args:
        answer: what the statistic's program found.
        privacy: for one run, as studies need it; with private rows, for all runs together.
        seed: of the noise; None with private rows.
    """

    answer: T
    privacy: PrivacyStatement
    seed: int | None


def ask(
    problem: Problem, statistic: Statistic[T], *, runs: int = 1, seed: int | None = None, charge: Charge | None = None,
    progress: Progress | None = None,
) -> Asked[T]:  # fmt: skip
    """Find a statistic of all rows of a problem.

    Args:
        problem: the rows; its graph is not used.
        statistic: what is asked.
        runs: how often, each with noise of its own; private rows pay for all of them.
        seed: of the noise; None draws one. Refused with private rows, whose noise is the operating system's.
        charge: called with the cost of all runs, after everything that can be refused and before any computation on
            rows but the checks of their form. If it raises, nothing was computed. What fails later is charged all the
            same.
        progress: called with (sums done, sums in all).
    """
    expect(runs >= 1, "runs >= 1", runs=runs)
    rows, counted = statistic.rows_of(problem.sites), runs if problem.private else 1
    one = statistic.statement(rows)
    if problem.private:
        refuse_seed(seed)
    drawn = secrets.randbits(63) if seed is None else seed
    shape = Shape(problem.sites.n, problem.sites.d, runs)
    noise = SystemNoise(shape) if problem.private else SeededNoise(drawn, shape)
    sums = statistic.sums(rows, runs, Local(problem.graph.exchange), noise)
    if charge is not None:
        charge(one.of_runs(runs))
    for k, (_, found) in enumerate(sums, start=1):
        answer = found
        if progress is not None:
            progress(k, statistic.opened)
    return Asked(answer, one.of_runs(counted).noting(*problem.notes), None if problem.private else drawn)
