"""The planner's task: everything public about a run, and what follows from it before a setting is chosen.

That is the noise in a gradient after so many steps, the number of steps that WORK allows for, and the eigenvalues that
say how fast the nodes of the graph agree.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple, final

import numpy as np

from sottovoce.algorithms.ipadmm import MOMENTS, MOST_NOISE
from sottovoce.arrays import Floats
from sottovoce.oracle.loss_sums import start_moments_sensitivity
from sottovoce.plan.synthetic import Belief
from sottovoce.privacy import ROW, Sampling, Unit, sigma_for
from sottovoce.problem.graphs import CompleteGraph, EdgeGraph, Graph
from sottovoce.problem.losses import Huber, Logistic, Loss, Softmax
from sottovoce.problem.regularisers import Regulariser
from sottovoce.problem.sites import Weights, importances
from sottovoce.sums.curvature import WIDEST_MATRIX

# Numbers of the rows that all steps together may look at, about a minute on two cores. A row is taken to have as many
# that are not zero as SPARSE sqrt(d), or d.
WORK, SPARSE = 1.5e10, 4.0
# Fewer full gradients than this do not get far. Where WORK allows for no more, batches are taken.
LEAST_STEPS = 50
MOST_EIGENVALUES = 12
SOME_STEPS = 200
_DENSE = 2000  # nodes up to which the Laplacian's eigenvalues are computed rather than guessed


class Spectrum(NamedTuple):
    """Laplacian eigenvalues above zero, merged into a few, and how often each occurs."""

    values: Floats
    multiplicity: Floats


def spectrum(graph: Graph) -> Spectrum:
    """Exact for complete graphs and up to 2,000 nodes; beyond, quantiles are guessed from the degrees."""
    n = graph.n
    if n == 1:
        return Spectrum(np.empty(0), np.empty(0))
    if isinstance(graph, CompleteGraph):
        return Spectrum(np.array([float(n)]), np.array([n - 1.0]))
    if isinstance(graph, EdgeGraph) and n <= _DENSE:
        adjacency = graph.adjacency.toarray()
        values = np.linalg.eigvalsh(np.diag(adjacency.sum(axis=0)) - adjacency)[1:]
    else:
        # A ring's law, stretched to the mean degree: it errs on the side of slow agreement.
        values = float(graph.degrees.mean()) * (1 - np.cos(np.pi * np.arange(1, n) / n))
    parts = np.array_split(np.maximum(values, 0.0), min(MOST_EIGENVALUES, n - 1))
    return Spectrum(np.array([p.mean() for p in parts]), np.array([float(len(p)) for p in parts]))


@final
@dataclass(frozen=True, eq=False)
class Task:
    """Everything public about a run that is being planned."""

    sizes: tuple[int, ...]
    d: int
    graph: Graph
    epsilon: float
    delta: float
    loss: Loss
    regulariser: Regulariser
    lam: float
    data_norm: float
    max_grad_norm: float | None
    max_rounds: int
    fixed: Mapping[str, Any]
    belief: Belief
    unit: Unit = ROW
    exposed: bool = False  # rows have exposures, which predictions know of, and settings need not

    @property
    def n(self) -> int:
        return len(self.sizes)

    @cached_property
    def c1(self) -> float:
        """Bound on the norm of one record's gradient."""
        bound = self.loss.lipschitz(self.data_norm)
        return bound if self.max_grad_norm is None else min(bound, self.max_grad_norm)

    @property
    def coordinates(self) -> int:
        """Number of coordinates of a model: features times outputs."""
        return self.d * self.loss.outputs

    @property
    def loss_norm(self) -> float:
        """The bound on a row's norm; where there is none, clipping makes rows act as if there were."""
        return self.data_norm if math.isfinite(self.data_norm) else self.c1 / self.loss.slope_bound

    @property
    def ridge(self) -> float:
        """The curvature that the regulariser adds at each node."""
        return self.lam * self.regulariser.l2

    @property
    def batch_size(self) -> int | None:
        """Rows of a stochastic gradient; None for all rows."""
        size: int | None = self.fixed.get("batch_size")
        return size

    @property
    def most_steps(self) -> int:
        """Number of steps that WORK allows for, at least 1."""
        rows = sum(self.sizes) if self.batch_size is None else self.n * self.batch_size
        return max(1, int(WORK / (rows * entries(self.d) * self.loss.outputs)))

    @cached_property
    def spectrum(self) -> Spectrum:
        return spectrum(self.graph)

    @cached_property
    def degree(self) -> float:
        return float(self.graph.degrees.mean())

    @property
    def weights(self) -> Weights:
        """The rule for how much a site counts; "equal" unless it is fixed."""
        chosen: Weights = self.fixed.get("weights", "equal")
        return chosen

    @cached_property
    def importance(self) -> Floats:
        """Weight of every site, n omega_i: 1 for all where sites count the same."""
        return importances(self.sizes, self.weights)

    @property
    def effective_rows(self) -> float:
        """1 / sum_i (omega_i^2 / m_i): a mean over so many rows is as well known as the weighted one over all."""
        return float(1 / np.sum((self.importance / self.n) ** 2 / np.asarray(self.sizes)))

    @cached_property
    def variances(self) -> Callable[[int], Floats]:
        """Variance of the noise on one coordinate of every node's gradient, (n,), for so many steps.

        Found once for a number of steps: many settings that are tried have the same.
        """

        def after(steps: int) -> Floats:
            if math.isinf(self.epsilon):
                return np.zeros(self.n)
            if self.batch_size is None:
                # A person at several sites is in the messages of all of them, with as many rows at each.
                seen = steps * min(self.unit.sites, self.n)
                sigma = sigma_for(self.epsilon, self.delta, seen, self.fixed.get("calibration", "exact"))
                m = np.asarray(self.sizes, dtype=np.float64) / self.unit.changed
            else:
                # Sampled steps take a second to account for: done once, and scaled by the square root of their number.
                sampling = Sampling(self.fixed.get("sampling", "replacement"), min(self.sizes), self.batch_size)
                one = sigma_for(self.epsilon, self.delta, SOME_STEPS, "exact", sampling)
                sigma, m = one * math.sqrt(steps / SOME_STEPS), np.full(self.n, float(self.batch_size))
            return np.asarray((2 * self.c1 * sigma / (m / self.importance)) ** 2)

        return cache(after)

    @cached_property
    def head_start(self) -> Mapping[str, Any]:
        """Settings of a head start from moments, where one pays and neither it nor what it rules out is fixed."""
        together = self.n > 1 and bool(np.all(self.graph.degrees == self.n - 1))  # measured on complete graphs alone
        ruled_out = not together or self.max_grad_norm is not None or self.d > WIDEST_MATRIX
        ruled_out |= not isinstance(self.loss, Logistic | Huber | Softmax) or not 0 < self.epsilon < math.inf
        ruled_out |= any(self.fixed.get(name) is not None for name in ("moments", "batch_size", "radius"))
        if ruled_out or self.fixed.get("calibration", "exact") != "exact":
            return {}
        # Of the mean of all sites' moments, in units of B^2; their eigenvalues add up to 1 at most.
        sigma = sigma_for(self.epsilon, self.delta, 1) / math.sqrt(MOMENTS)
        changed = self.unit.changed * min(self.unit.sites, self.n)
        std = sigma * changed * start_moments_sensitivity(self.loss) * math.sqrt(self.n) / sum(self.sizes)
        return {"moments": MOMENTS, "sensitivity": "tight"} if std * self.d**1.5 <= MOST_NOISE else {}

    def variance(self, steps: int) -> float:
        """Mean of `variances` over nodes, which for the weighted mean of all gradients is n times its variance."""
        return float(np.mean(self.variances(steps)))

    def scale(self, steps: int, slope: float = 0.0) -> float:
        """G of the network: the root mean square norm of a noisy gradient. `slope` is the regulariser's part of it.

        Nodes that keep together move as one whose eta is the mean of theirs, so where sites weigh differently it is the
        mean of theirs (`sottovoce.algorithms.diameter.common_scale`).
        """
        if np.all(self.importance == 1):
            return math.sqrt((self.c1 + slope) ** 2 + self.coordinates * self.variance(steps))
        steepest = self.c1 * self.importance + slope
        return float(np.mean(np.sqrt(steepest**2 + self.coordinates * self.variances(steps))))


def entries(d: int) -> float:
    """Number of entries of a row that are assumed not to be zero."""
    return min(float(d), SPARSE * math.sqrt(d))


def batch_for(sizes: Sequence[int], d: int, outputs: int) -> int | None:
    """Batch size; None for all rows in every step, which is best. Where there are too many rows, as many as WORK
    allows for in twice LEAST_STEPS.
    """
    each = WORK / (entries(d) * outputs)
    if sum(sizes) * LEAST_STEPS <= each:
        return None
    batch = int(each / (2 * LEAST_STEPS * len(sizes)))
    return batch if 1000 <= batch < min(sizes) else None
