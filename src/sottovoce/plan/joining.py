"""Predicted gain of joining for sites of each size, and advice on who should take part."""

from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np

from sottovoce.plan.task import Task
from sottovoce.problem.sites import importances
from sottovoce.settings import written_as

MOST_KINDS = 5
WEIGHTLESS = 0.01  # sites that together weigh less than this add next to nothing
QUIETER = 0.8  # leaving sites out is advised if it takes the variance of the noise down to this share


@final
class JoiningKind(NamedTuple):
    """A group of sites of about the same size."""

    rows: int  # at a middling one of them
    sites: int
    weight: float  # of all of them together, of 1


@final
class Gain(NamedTuple):
    """Predicted mean losses for sites of one kind, together and alone, on the same tables."""

    kind: JoiningKind
    together: float
    alone: float

    @property
    def helps(self) -> bool:
        """True if the predicted loss of such a site is smaller together."""
        return self.together < self.alone


written_as(
    Gain,
    lambda gain: {**gain.kind._asdict(), "together": gain.together, "alone": gain.alone, "helps": gain.helps},
)


def kinds(task: Task) -> tuple[JoiningKind, ...]:
    """The sites by size, largest first: each size where there are few, else the largest and slices of equal ratio."""
    sizes = np.asarray(task.sizes, dtype=np.float64)
    different = np.unique(sizes)
    if len(different) <= MOST_KINDS:
        group = np.searchsorted(different, sizes)
    else:
        rest = np.log(different[:-1] / different[0])
        cuts = rest[-1] * np.arange(1, MOST_KINDS - 1) / (MOST_KINDS - 1)
        group = np.searchsorted(cuts, np.log(sizes / different[0]), side="right")
        group[sizes == different[-1]] = MOST_KINDS
    found = list[JoiningKind]()
    for number in np.unique(group)[::-1]:
        members = np.flatnonzero(group == number)
        rows = sorted(task.sizes[i] for i in members)
        found.append(JoiningKind(rows[len(rows) // 2], len(rows), float(task.importance[members].sum()) / task.n))
    return tuple(found)


def noise(sizes: Sequence[int], task: Task) -> float:
    """Variance of the noise in the weighted mean of all gradients, in units that all sets of sites share."""
    terms = importances(sizes, task.weights) / len(sizes) / np.asarray(sizes, dtype=np.float64)
    return float(np.sum(terms**2))


def advice(task: Task) -> tuple[str, ...]:
    """Sentences on who should take part, from the public sizes; none where all sites are of one size."""
    sizes = sorted(task.sizes, reverse=True)
    if sizes[0] == sizes[-1]:
        return ()
    share = float(task.importance.max()) / task.n
    mean = {"equal": "every site the same", "rows": "every row the same", "squared": "a site as its rows squared"}
    caution = " If its rows are unlike the others', the model fits it rather than them." if share > 0.5 else ""
    objective = (
        f"The objective is a mean loss that counts {mean[task.weights]} (weights={task.weights}); the largest site has "
        f"{100 * share:.0f} % of the weight.{caution}"
    )
    return tuple(text for text in (objective, _left_out(task, sizes), _weightless(task, sizes)) if text)


def _left_out(task: Task, sizes: Sequence[int]) -> str:
    if np.isinf(task.epsilon):
        return ""
    quiet = [noise(sizes[:k], task) for k in range(1, len(sizes) + 1)]
    best = int(np.argmin(quiet))
    if quiet[best] > QUIETER * quiet[-1]:
        return ""
    return (
        f"Leave out the {len(sizes) - 1 - best} sites of {sizes[best + 1]} rows or fewer: with these weights they "
        f"bring more noise than rows, and without them its variance falls to {100 * quiet[best] / quiet[-1]:.0f} %."
    )


def _weightless(task: Task, sizes: Sequence[int]) -> str:
    weights = importances(sizes, task.weights) / len(sizes)
    light = int(np.sum(np.cumsum(weights[::-1]) < WEIGHTLESS))
    if light == 0:
        return ""
    which = f"The {light} smallest sites ({sizes[-light]} rows or fewer)" if light > 1 else "The smallest site"
    together = " together" if light > 1 else ""
    return (
        f"{which}{together} weigh{'' if light > 1 else 's'} {100 * float(weights[-light:].sum()):.1g} %: "
        "they add almost nothing for the others, yet spend their whole epsilon and receive the model."
    )
