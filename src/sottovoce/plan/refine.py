"""The thorough planner's second step: neighbours of the foretold best, tried by simulation.

The moments know a quadratic; the simulation knows the loss. Every candidate runs on the same tables with the same
noise, so that differences are much better known than the risks themselves.
"""

from collections.abc import Iterator

import numpy as np

from sottovoce.plan.choose import LAST_COUNTS, LOCAL_STEPS, Setting, Task, as_algorithm
from sottovoce.plan.predict import FIRST_TRIED, Effort, Progress, draw
from sottovoce.plan.trial import thinned, trial
from sottovoce.problem.dataset import Dataset

TABLES, RUNS, STRIDES = 4, 4, (2.0, 1.4)
WORTH_IT = 0.999  # a move must gain at least this much, so that luck does not pay for more local steps


def refined(task: Task, start: Setting, effort: Effort, stand_in: Dataset | None, progress: Progress | None) -> Setting:
    """The best of the neighbours, and of the neighbours of that."""
    tables = [draw(task, stand_in, effort.rows, FIRST_TRIED - 1 - j) for j in range(TABLES)]
    held = [thinned(data, task.sizes, effort.rows, 0) for data in tables]
    known: dict[Setting, float] = {}

    def risk(setting: Setting) -> float:
        if setting not in known:
            made = as_algorithm(task, setting)
            found = [trial(made, h, task.graph, runs=RUNS, seed=1, unit=task.unit) for h in held]
            score = np.mean([(1 - LAST_COUNTS) * f.consensus.mean() + LAST_COUNTS * f.last.mean() for f in found])
            known[setting] = float(score) if np.isfinite(score) else float("inf")
            if progress is not None:
                progress(len(known), 1 + 8 * len(STRIDES))
        return known[setting]

    best = start
    for stride in STRIDES:
        nearest = min(_neighbours(task, best, stride), key=risk, default=best)
        best = nearest if risk(nearest) < WORTH_IT * risk(best) else best
    return best


def _neighbours(task: Task, s: Setting, stride: float) -> Iterator[Setting]:
    for up in (stride, 1 / stride):
        if "diameter" not in task.fixed:
            yield s._replace(diameter=s.diameter * up)
        if "rho" not in task.fixed and task.degree > 0:
            yield s._replace(rho=s.rho * up)
            if "diameter" not in task.fixed:
                yield s._replace(rho=s.rho / up, diameter=s.diameter * up)
    if "local_steps" not in task.fixed:
        at = LOCAL_STEPS.index(s.local_steps)
        for place in (at - 1, at + 1):
            if 0 <= place < len(LOCAL_STEPS):
                yield s._replace(local_steps=LOCAL_STEPS[place])
