"""Predicted losses of a plan, from runs on made-up tables of the public shape, or on a public stand-in.

Every table is another draw of what the data might be, so the interval covers the luck of the noise and, far more, not
knowing the problem. It is a 90 % prediction interval for one more table of the same kind: Student's t over the
logarithms, but no further beyond the least and the largest than BEYOND. Ten tables lie at 5, 15, ... 95 % of what may
be explained, and evenly in the rest of what is left open, so the range of them says more than their spread alone.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import stdtrit

from sottovoce.algorithms.base import PrivateMethod
from sottovoce.algorithms.default import why_not_masked
from sottovoce.algorithms.masked import MaskedNewton
from sottovoce.arrays import Array
from sottovoce.plan.choose import Setting, as_algorithm
from sottovoce.plan.surrogate import Surrogate, narrow, surrogate, widened
from sottovoce.plan.synthetic import Belief, table
from sottovoce.plan.task import Task
from sottovoce.plan.trial import thinned, trial
from sottovoce.problem import graphs
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.graphs import Graph
from sottovoce.problem.losses import Loss

LEVEL = 0.9
BEYOND = 1.05
PROBLEMS, ROWS_FITTED = 8, 3000  # surrogates that a choice is made on; rows of the table of each
TABLES, FIRST_TRIED = 10, 1000  # tables that a plan is tried on; the seed of the first
ROWS, ROWS_PER_COLUMN, MOST_ROWS = 3000, 30, 6000  # of each of these; more for many columns, up to a limit


class PredictedInterval(NamedTuple):
    """A mean, and a 90 % prediction interval for one more table."""

    mean: float
    low: float
    high: float


class Prediction(NamedTuple):
    """Predicted mean losses at one epsilon."""

    epsilon: float
    joined: PredictedInterval  # of the consensus, each site with noise of its own
    single: PredictedInterval  # of one site's own last model after joining so
    alone: PredictedInterval  # of a model that one site of middling size trains on its own rows, at the same epsilon
    masked: PredictedInterval | None  # of masked sums; None where they cannot be had
    nothing: PredictedInterval  # of no model: always the same answer, the best there is

    @property
    def together(self) -> PredictedInterval:
        """The smaller predicted loss of the two ways of joining."""
        return self.joined if self.masked is None else min(self.joined, self.masked, key=lambda way: way.mean)

    @property
    def joining_helps(self) -> bool:
        """True if the predicted loss is smaller together than alone."""
        return self.together.mean < self.alone.mean


@lru_cache(maxsize=32)  # the same public shape is planned for again and again
def made_up(
    d: int, loss: Loss, norm: float, ridge: float, max_grad_norm: float | None, belief: Belief
) -> list[Surrogate]:
    """Quadratics to choose on, from tables of that shape; of wide ones, from narrow ones that stand for them."""
    columns = narrow(d, loss.outputs)
    tables = (
        table(ROWS_FITTED, columns, loss, data_norm=norm, seed=seed, belief=belief, among=PROBLEMS)
        for seed in range(PROBLEMS)
    )
    found = (surrogate(data, loss, ridge=ridge, max_grad_norm=max_grad_norm) for data in tables)
    return [widened(one, d * loss.outputs) for one in found]


def stood_in(data: Dataset, task: Task) -> Surrogate:
    """The quadratic of a public stand-in."""
    some = draw(data, 4 * ROWS_FITTED, 0)
    return surrogate(some, task.loss, ridge=task.ridge, max_grad_norm=task.max_grad_norm)


def draw(stand_in: Dataset, rows: int, seed: int) -> Dataset:
    """So many rows of the stand-in."""
    chosen = np.random.default_rng(seed).permutation(len(stand_in))[:rows]
    return replace(stand_in.taken(chosen), n_train=len(chosen))


def tables(task: Task, stand_in: Dataset | None) -> list[Dataset]:
    """The tables that a plan is tried on, made up or drawn from the stand-in."""
    rows = max(ROWS, min(ROWS_PER_COLUMN * task.d, MOST_ROWS))
    if stand_in is not None:
        return [draw(stand_in, rows, seed) for seed in range(FIRST_TRIED, FIRST_TRIED + TABLES)]
    return _made_up_tables(rows, task.d, task.loss, task.loss_norm, task.belief, task.exposed)


@lru_cache(maxsize=2)  # the same tables are tried at every epsilon
def _made_up_tables(rows: int, d: int, loss: Loss, norm: float, belief: Belief, exposed: bool) -> list[Dataset]:
    made: dict[str, Any] = {"data_norm": norm, "belief": belief, "among": TABLES, "exposed": exposed}
    return [table(rows, d, loss, seed=seed, **made) for seed in range(FIRST_TRIED, FIRST_TRIED + TABLES)]


def alone(task: Task, size: int | None = None) -> Task:
    """The task of one site by itself, of that size or of the median size."""
    size = int(np.median(task.sizes)) if size is None else size
    fixed = {
        name: value for name, value in task.fixed.items() if name not in ("rho", "rounds", "weights", "batch_size")
    }
    return replace(task, sizes=(size,), graph=graphs.complete(1), fixed=fixed)


def masked(task: Task, colluding: int | None) -> MaskedNewton | None:
    """The algorithm of masked sums for the task, of one site too; None where the objective rules it out."""
    if why_not(task):
        return None
    sums: dict[str, Any] = {"epsilon": task.epsilon, "delta": task.delta, "lam": task.lam, "colluding": colluding}
    open_ = MaskedNewton(**sums, loss=task.loss, regulariser=task.regulariser)
    return open_.bound_to(sum(task.sizes), task.d, task.n, task.unit)  # of all rows, of which a trial has some


def why_not(task: Task) -> str:
    """Why masked sums cannot be had, as the end of a sentence; empty if they can. Any graph may be made complete."""
    return why_not_masked(task.loss, task.regulariser, data_norm=task.data_norm, max_grad_norm=task.max_grad_norm)


def risks(task: Task, algorithm: PrivateMethod, data: Sequence[Dataset]) -> tuple[Array, Array]:
    """Mean loss on every table: of the consensus, and of one site's own model."""
    graph: Graph = graphs.complete(task.n) if algorithm.way.complete else task.graph
    found = [
        trial(algorithm, thinned(one, task.sizes, ROWS, seed), graph, runs=1, seed=seed, judge=one, unit=task.unit)
        for seed, one in enumerate(data)
    ]
    return np.array([one.consensus.mean() for one in found]), np.array([one.last.mean() for one in found])


def risk_alone(task: Task, choose: Callable[[Task], Setting], data: Sequence[Dataset]) -> Array:
    """Mean loss of one site by itself, on every table. It sends no messages, so its noise is that of a curator."""
    algorithm = masked(task, 0) or as_algorithm(task, choose(task))
    return risks(task, algorithm, data)[0]


def no_model(data: Dataset, loss: Loss) -> float:
    """The least mean loss of one answer for all rows."""
    if loss.outputs > 1:
        shares = np.bincount(data.labels.astype(np.int64), minlength=loss.outputs) / len(data.labels)
        return float(-np.sum(shares * np.log(np.maximum(shares, 1e-300))))

    def mean(z: float) -> float:
        answers = data.factors.shifted(np.full(len(data.labels), z))
        return float(np.mean(loss.value(answers, data.labels, loss.theta)))

    return float(minimize_scalar(mean, bounds=(-12.0, 12.0), method="bounded").fun)


def interval(values: Array) -> PredictedInterval:
    """Mean and 90 % prediction interval of losses, one from each table."""
    mean, count = float(np.mean(values)), len(values)
    logs = np.log(np.maximum(values, 1e-12))
    reach = float(stdtrit(count - 1, (1 + LEVEL) / 2)) * float(logs.std(ddof=1)) * math.sqrt(1 + 1 / count)
    middle = float(logs.mean())
    low, high = max(middle - reach, logs.min() - math.log(BEYOND)), min(middle + reach, logs.max() + math.log(BEYOND))
    return PredictedInterval(mean, min(mean, math.exp(low)), max(mean, math.exp(high)))
