"""The oracle: risks, gradients, noisy steps and argmins of the objective of each of a stack of nodes, in NumPy.

An algorithm never touches a row. It asks for the risk, a gradient, the l noisy linearised steps, or an argmin, of

    L_i(w) = (n omega_i / m_i) sum_j u_ij loss(<w, a_ij> + o_ij, b_ij) + lam phi(w),

where u_ij <= 1 is the row's weight over its public bound and o_ij what its exposure adds (`problem.factors`): 1 and 0
for rows without them. m_i counts rows whatever their weights, so that the divisor is public. omega_i is the site's
weight (`problem.sites.importances`): equal ones are 1/n, so n omega_i = 1. The mean of all L_i is the weighted mean of
the sites' mean losses plus lam phi(w), for any number of sites. All this is on arrays (nodes, d, runs). A real site is
a stack of one node and one run. If the loss has several outputs, w is a flat (d, outputs) matrix and <w, a> a vector.
This class is the plain NumPy form, which every faster one is tested against. Sums over all rows of a network are in
the classes below it: `RowSums` without a loss, `LossSums` with one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import UnsupportedError, expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.argmin.plain import Objective, objective_of, refuse_unsupported
from sottovoce.oracle.kernels.spread import PLAIN, Spread
from sottovoce.oracle.loss_sums import LossSums
from sottovoce.oracle.row_sums import summation_error
from sottovoce.privacy import Scheme
from sottovoce.problem.evaluation import Scores, summed
from sottovoce.problem.losses import expect_one_output
from sottovoce.problem.regularisers import Regulariser
from sottovoce.problem.sites import NORM_SLACK


class Batch(NamedTuple):
    """The batch of a stochastic gradient: `size` rows (on average, for Poisson), drawn by `scheme`."""

    size: int
    scheme: Scheme


class Steps(NamedTuple):
    """The inputs of the l inner steps of one round, besides the model to start from."""

    k: int  # the round, from 1
    pull: Array  # (nodes, d, runs) linear term of the augmented Lagrangian
    curvature: Array  # (nodes, 1, 1) its quadratic term, 2 rho |N_i|
    eta: Floats  # (l, nodes, 1, 1) step parameters
    sigma: float  # noise multiplier; 0 adds none and draws none
    noise: Noise  # where normals and batches come from
    batch: Batch | None = None  # rows of a stochastic gradient; None takes all
    radius: float | None = None  # of the ball to project onto; None does not project
    tight: bool = False  # True if noise follows the sensitivity at the step's own model


class Inner(NamedTuple):
    """The results of the l inner steps of one round."""

    last: Array  # (nodes, d, runs) w~^{k,l}
    mean: Array  # (nodes, d, runs) mean of w~^{k,1} .. w~^{k,l}, the node's broadcast
    total: Array  # (nodes, d, runs) sum of w~^{k,0} .. w~^{k,l-1}, for the theorem's average


@dataclass(frozen=True, eq=False)
class Oracle(LossSums):
    """The private rows of a stack of nodes, bound to one objective.

    Args:
        degrees: |N_i| of every node held here.
        regulariser, lam: the rest of the objective.
        importances: n omega_i of every node held here; None is 1 for all.
    """

    degrees: Ints
    regulariser: Regulariser
    lam: float
    importances: Floats | None = None

    # Each class declares these for itself, so that a new one refuses what it does not support.
    _vectors: ClassVar[bool] = True
    _weighs: ClassVar[bool] = True

    def __init_subclass__(cls, vector_predictions: bool = False, row_factors: bool = False) -> None:
        """Declare that a subclass takes losses of several outputs, or rows with weights or exposures. Without that they
        are refused.
        """
        super().__init_subclass__()
        cls._vectors, cls._weighs = vector_predictions, row_factors

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._vectors:
            expect_one_output(self.loss, type(self).__name__)
        expect(
            len(self.degrees) == self.sites.n,
            "one node of the graph for every site",
            nodes=len(self.degrees),
            sites=self.sites.n,
        )
        expect(self.lam >= 0, "lam >= 0", lam=self.lam)
        if not (self._weighs or self.sites.factors.plain):
            raise UnsupportedError(
                f"Expected rows that count alike for {type(self).__name__}, got rows with "
                f"{' and '.join(self.sites.factors.told)}. Use device='cpu' or 'plain'."
            )
        expect(
            self.importance.shape == self.m.shape and bool(np.all((self.importance > 0) & (self.importance < np.inf))),
            "a finite importance > 0 for every site",
            importances=self.importances,
        )

    # -- public numbers, shaped to broadcast against (nodes, d, runs) -------------------------------------------------

    @property
    def network(self) -> "Oracle":
        """The public numbers of all nodes: those held here, and those that other processes hold. What depends on all
        nodes is computed from these, so that it is the same in every process.
        """
        found: Oracle = self if self.others is None else self.others.network
        return found

    @cached_property
    def degree(self) -> Array:
        """|N_i| of every node, in the precision of the models: (nodes, 1, 1)."""
        return np.asarray(self.degrees, dtype=self.dtype).reshape(-1, 1, 1)

    @cached_property
    def m(self) -> Floats:
        """m_i, the number of rows at every node: (nodes, 1, 1)."""
        return self.sites.counts.astype(np.float64).reshape(-1, 1, 1)

    @cached_property
    def importance(self) -> Floats:
        """n omega_i, the weight of every node; 1 where all count the same: (nodes, 1, 1)."""
        given = np.ones(self.sites.n) if self.importances is None else self.importances
        return np.asarray(given, dtype=np.float64).reshape(-1, 1, 1)

    @cached_property
    def divisor(self) -> Floats:
        """m_i / (n omega_i), the divisor of the sum of a node's losses; m_i where all count the same: (nodes, 1, 1)."""
        return self.m / self.importance

    def batch_divisor(self, size: int) -> Floats:
        """B / (n omega_i), the divisor of the sum over a batch: (nodes, 1, 1)."""
        return size / self.importance

    @property
    def changed(self) -> Floats:
        """The most rows of a node that are replaced together, (nodes, 1, 1): 1, or the rows of a person."""
        return np.minimum(float(self.sites.unit.changed), self.m)

    def sensitivity(self, batch: Batch | None = None) -> Floats:
        """The replace-one l2 sensitivity of the gradient of L_i, (nodes, 1, 1): 2 c1 n omega_i / m_i, or 2 c1 n omega_i
        / B for each time the row is drawn into a batch of size B (docs/proofs/ipadmm.md, Lemma 1). For people it is
        multiplied by the rows of a person (docs/proofs/people.md). The rounding of sums is included.
        """
        terms = self.m if batch is None else np.maximum(self.m, batch.size)
        exact = 2 * self.c1 * (1 + NORM_SLACK) / (self.divisor if batch is None else self.batch_divisor(batch.size))
        return self.changed * exact * (1 + terms * summation_error(terms))

    def spread(self, tight: bool, batch: Batch | None = None) -> Spread:
        """The fraction of `sensitivity` that is needed at a model: 1, or with `tight` by the largest distance of two
        records' gradients there (docs/proofs/ipadmm.md, Lemma 3). The rounding of sums is included.
        """
        if not tight or not np.isfinite(self.sites.data_norm):  # without a bound on rows there is none on predictions
            return PLAIN
        most = self.network.m.max()
        terms = most if batch is None else np.maximum(most, batch.size)
        return self._spread(float(terms * summation_error(terms)))

    def zeros(self, runs: int) -> Array:
        """Zero models of all nodes held here: (nodes, d, runs)."""
        return np.zeros((self.sites.n, self.d, runs), dtype=self.dtype)

    # -- the private part ---------------------------------------------------------------------------------------------

    @cached_property
    def _share(self) -> Floats:
        """u_ij n omega_i / m_i, the weight of every row in L_i: (rows, 1)."""
        return self.sites.factors.weighed(np.repeat(1.0 / self.divisor[:, 0, 0], self.sites.counts)[:, None])

    def risk(self, w: Array) -> Array:
        """L_i(w_i): (nodes, d, runs) -> (nodes, runs)."""
        losses = self.loss.value(self._predictions(w), self.sites.labels[:, None], self.loss.theta)
        means: Array = np.add.reduceat(losses * self._share, self.sites.rows.offsets[:-1], axis=0)
        return means + self.lam * self.regulariser.value(w)

    def gradient(self, w: Array, weights: Array | None = None) -> Array:
        """grad L_i(w_i), or its stochastic form with `weights` (rows, runs) in place of u n omega_i / m_i."""
        found = self.gradients(w, self._share if weights is None else weights)
        return found + self.lam * self.regulariser.gradient(w)

    def noisy_steps(self, w: Array, steps: Steps) -> Inner:
        """The l noisy linearised steps of round k, from w~^{k,0} = w (nodes, d, runs):

            g   = grad L_i(w) - sigma s z,      z ~ N(0, I),  s the sensitivity of the gradient, for all w or `tight`
            w  <- (eta_r w - g + pull) / (curvature + eta_r),        and onto the ball of that radius, if given

        Formal guarantees: given w and the pull, each step is a Gaussian mechanism with noise multiplier sigma with
        respect to replacing one row (sampled, if there is a batch); see docs/proofs/ipadmm.md.
        """
        k, sigma, noise, batch = steps.k, steps.sigma, steps.noise, steps.batch
        total, mean = np.zeros_like(w), np.zeros_like(w)
        s, spread = self.sensitivity(batch), self.spread(steps.tight, batch)
        for r, eta_r in enumerate(steps.eta):
            g = self.gradient(w, None if batch is None else self.batch_weights(k, r, batch, noise))
            if sigma > 0:
                g = noise.added(g, sigma, s * spread.at(w) if spread.parts.size else s, k, r)
            total += w
            w = (eta_r * w - g + steps.pull) / (steps.curvature + eta_r)
            if steps.radius is not None:
                w = onto_ball(w, steps.radius)
            mean += w
        return Inner(last=w, mean=mean / len(steps.eta), total=total)

    def batch_weights(self, k: int, r: int, batch: Batch, noise: Noise) -> Array:
        """How often each row is drawn in step r of round k, times u n omega_i, over the batch size: (rows, runs)."""
        counts = noise.draws(k, r, self.sites.rows.offsets, batch.size, batch.scheme)
        weights: Array = counts / np.repeat(self.batch_divisor(batch.size)[:, 0, 0], self.sites.counts)[:, None]
        return self.sites.factors.weighed(weights)

    def expect_argmin(self) -> None:
        """Refuse an objective that `argmin` cannot minimise, before any work."""
        refuse_unsupported(self.loss, self.regulariser, self.max_grad_norm)

    def argmin(self, pull: Array, curvature: Array, start: Array, tolerance: float) -> Array:
        """argmin_w L_i(w) - <pull_i, w> + (curvature_i / 2) ||w||^2, node by node.

        Formal guarantees: the result is within tolerance / mu_i of the minimiser, mu_i the strong convexity of the
        local problem. This plain form needs a smooth loss and a smooth regulariser.
        """
        self.expect_argmin()
        w, mu = start.copy(), curvature[:, 0, 0] + self.lam * (self.regulariser.curvature or 0.0)
        for i, objective in enumerate(self._objectives):
            for q in range(start.shape[2]):
                w[i, :, q] = objective.argmin(pull[i, :, q], float(mu[i]), start[i, :, q], tolerance)
        return w

    def score(self, models: Array) -> Scores:
        """Weighted mean loss and accuracy of models, given as columns (d, models), over all rows. For simulations only:
        computed without noise.
        """
        sums = self._score_sums(models)
        return Scores(*((self._total(each) / self._total_weight).astype(np.float64) for each in sums))

    def _score_sums(self, models: Array) -> tuple[Floats, Floats]:
        """Sums of the losses and of the correct predictions over the rows of every block of nodes: (blocks, models)."""
        found = [
            summed(part.rows.block, part.labels, self.loss, models, part.factors) for part in self._blocks_as_sites
        ]
        losses, hits = zip(*found, strict=True)
        return np.stack(losses), np.stack(hits)

    @cached_property
    def _objectives(self) -> list[Objective]:
        parts = zip(self.sites.rows.offsets[:-1], self.sites.rows.offsets[1:], strict=True)
        return [
            objective_of(
                self.loss, self.sites.rows.block(int(first), int(last)), self.sites.labels[first:last],
                self._share[first:last, 0], self.sites.factors[first:last].shifts,
            )
            for first, last in parts
        ]  # fmt: skip


def note_on_tight(tight: bool, site: Oracle) -> tuple[str, ...]:
    """A note for the statement if `tight` has no effect, because no better bound is known; else empty."""
    if not tight or np.any(site.spread(tight).parts < 1):
        return ()
    return (
        f"sensitivity='tight' changes nothing here: no bound better than 2 c1 is known for the {site.loss.name} loss "
        f"with data_norm={site.sites.data_norm:g} and max_grad_norm={site.max_grad_norm}.",
    )


def onto_ball(w: Array, radius: float) -> Array:
    """The nearest point of the ball of that radius, for every model (axis 1)."""
    norms = np.sqrt(np.sum(w * w, axis=1, keepdims=True))
    shrunk: Array = w * np.minimum(1.0, radius / np.maximum(norms, radius))
    return shrunk


def one_by_one(fused: Callable[[Array, Steps, int], Inner], w: Array, steps: Steps) -> Inner:
    """The l steps as l calls of a kernel with one step each; the kernel takes (w, steps, number of the first step)."""
    mean, total = 0 * w, 0 * w
    for r in range(len(steps.eta)):
        inner = fused(w, steps._replace(eta=steps.eta[r : r + 1]), r)
        w, mean, total = inner.last, mean + inner.mean, total + inner.total
    return Inner(w, mean / len(steps.eta), total)


@dataclass(frozen=True, eq=False)
class SiteOracle(Oracle, vector_predictions=True, row_factors=True):
    """The oracle of one site of a network, of whose other sites only public numbers are known.

    Args:
        fewest: the smallest m_i of the network. Noise for sampled rows depends on it, as in a simulation of the whole.
    """

    fewest: int = 1

    @property
    def fewest_rows(self) -> int:
        """The smallest m_i of the whole network, as agreed."""
        return self.fewest
