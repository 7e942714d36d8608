"""What a plan will reach, by running it on made-up tables of the public shape, or on a public stand-in.

Every table is another draw of what the data might be, so the interval covers the luck of the noise and, far more, not
knowing the problem. It is a 90 % prediction interval for one more table of the same kind (Student's t over tables).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, final

import numpy as np
from scipy.stats import t as student

from sottovoce.arrays import Array
from sottovoce.plan.choose import Setting, Task, as_algorithm
from sottovoce.plan.synthetic import Surrogate, surrogate, table
from sottovoce.plan.trial import thinned, trial
from sottovoce.problem import graphs
from sottovoce.problem.dataset import Dataset
from sottovoce.problem.losses import Loss

LEVEL = 0.9
ROWS_FITTED, FIRST_TRIED = 3000, 1000  # rows of a surrogate's table; the seed of the first table that is tried

Progress: TypeAlias = Callable[[int, int], None]


@final
@dataclass(frozen=True)
class Effort:
    """How much work goes into a plan."""

    problems: int  # surrogates that a choice is made on
    tables: int  # that a plan is tried on
    rows: int  # of each of them


QUICK, THOROUGH = Effort(5, 8, 3000), Effort(10, 16, 12000)


class Interval(NamedTuple):
    """A mean, and where the next one will lie with 90 % confidence."""

    mean: float
    low: float
    high: float


class Outcome(NamedTuple):
    """Mean loss that is foretold for one epsilon."""

    epsilon: float
    joined: Interval  # of the consensus
    single: Interval  # of one site's own last model after joining
    alone: Interval  # of a model that one site of middling size trains on its own rows, at the same epsilon

    @property
    def joining_helps(self) -> bool:
        """Whether the consensus is better than what a site gets alone."""
        return self.joined.mean < self.alone.mean


def made_up(count: int, d: int, loss: Loss, norm: float, ridge: float, max_grad_norm: float | None) -> list[Surrogate]:
    """Quadratics to choose on, from tables of that shape."""
    tables = (table(ROWS_FITTED, d, loss, data_norm=norm, seed=seed) for seed in range(count))
    return [surrogate(data, loss, ridge=ridge, max_grad_norm=max_grad_norm) for data in tables]


def stood_in(data: Dataset, task: Task) -> Surrogate:
    """The quadratic of a public stand-in."""
    some = draw(task, data, 4 * ROWS_FITTED, 0)
    return surrogate(some, task.loss, ridge=task.ridge, max_grad_norm=task.max_grad_norm)


def draw(task: Task, stand_in: Dataset | None, rows: int, seed: int) -> Dataset:
    """A made-up table, or so many rows of the stand-in."""
    if stand_in is None:
        return table(rows, task.d, task.loss, data_norm=task.loss_norm, seed=seed)
    chosen = np.random.default_rng(seed).permutation(len(stand_in))[:rows]
    return replace(stand_in, features=stand_in.features[chosen], labels=stand_in.labels[chosen], n_train=len(chosen))


def outcome(
    task: Task, setting: Setting, lonely: Task, own: Setting, effort: Effort, stand_in: Dataset | None
) -> Outcome:
    """Try a setting together, and another one alone, on every table."""
    risks = [
        (*_try(task, setting, data, effort, seed), _try(lonely, own, data, effort, seed)[0])
        for seed, data in _tables(task, effort, stand_in)
    ]
    joined, single, by_itself = (_interval(values) for values in zip(*risks, strict=True))
    return Outcome(task.epsilon, joined, single, by_itself)


def alone(task: Task, size: int | None = None) -> Task:
    """One site of that size, or of middling size, by itself."""
    size = int(np.median(task.sizes)) if size is None else size
    fixed = {name: value for name, value in task.fixed.items() if name not in ("rho", "rounds", "weights")}
    return replace(task, sizes=(size,), graph=graphs.complete(1), fixed=fixed)


def risk_alone(lonely: Task, own: Setting, effort: Effort, stand_in: Dataset | None) -> float:
    """Mean loss of one site by itself, on the tables that `outcome` takes."""
    found = [_try(lonely, own, data, effort, seed)[0] for seed, data in _tables(lonely, effort, stand_in)]
    return float(np.mean(found))


def _tables(task: Task, effort: Effort, stand_in: Dataset | None) -> Iterator[tuple[int, Dataset]]:
    for seed in range(FIRST_TRIED, FIRST_TRIED + effort.tables):
        yield seed, draw(task, stand_in, max(effort.rows, 30 * task.d), seed)


def _try(task: Task, setting: Setting, data: Dataset, effort: Effort, seed: int) -> tuple[float, float]:
    held = thinned(data, task.sizes, effort.rows, seed)
    risks = trial(as_algorithm(task, setting), held, task.graph, runs=1, seed=seed, judge=data)
    return float(risks.consensus.mean()), float(risks.last.mean())


def _interval(values: Sequence[float]) -> Interval:
    found: Array = np.asarray(values, dtype=np.float64)
    mean, count = float(found.mean()), len(found)
    reach = float(student.ppf((1 + LEVEL) / 2, count - 1)) * float(found.std(ddof=1)) * math.sqrt(1 + 1 / count)
    return Interval(mean, max(mean - reach, 0.0), mean + reach)
