"""The oracle: risks, gradients, noisy steps and sums of the private rows of a stack of nodes, in NumPy.

An algorithm never touches a row. It asks for the risk, a gradient, the l noisy linearised steps, or an argmin, of

    L_i(w) = (n omega_i / m_i) sum_j u_ij loss(<w, a_ij> + o_ij, b_ij) + lam phi(w),

where u_ij <= 1 is the row's weight over its public bound and o_ij what its exposure adds (`problem.factors`): 1 and 0
for rows without them. m_i counts rows whatever their weights, so that the divisor is public. omega_i is the site's
weight (`problem.sites.importances`): equal ones are 1/n, so n omega_i = 1. The mean of all L_i is the weighted mean of
the sites' mean losses plus lam phi(w), for any number of sites. All this is on arrays (nodes, d, runs). A real site is
a stack of one node and one run. If the loss has several outputs, w is a flat (d, outputs) matrix and <w, a> a vector.
This class is the plain NumPy form, which every faster one is tested against.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from math import sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import InputError, PrivacyError, UnsupportedError, expect
from sottovoce.noise.sources import Noise
from sottovoce.oracle.argmin.plain import Objective, objective_of, refuse_unsupported
from sottovoce.oracle.kernels.spread import KNOTS, PLAIN, Spread, knots_of
from sottovoce.privacy import Scheme
from sottovoce.privacy.accounting.gaussian import UNIT
from sottovoce.problem.evaluation import Scores, summed
from sottovoce.problem.losses import Loss, Poisson, expect_one_output
from sottovoce.problem.regularisers import Regulariser
from sottovoce.problem.share import block_starts
from sottovoce.problem.sites import NORM_SLACK, Sites

DOUBLE: np.dtype[Any] = np.dtype(np.float64)
# Shorter rows are clipped as if they were this long: the squares of much shorter ones underflow.
_SHORTEST = 1e-150
_ROWS_AT_ONCE = 1 << 16  # rows whose gradients are summed at a time, so that intermediate results stay in cache
VARIATION = 0.5  # weight of the variation of counts beside the Hessian: more would leave that less exact


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


class Others(NamedTuple):
    """The processes that hold the other nodes of a network, as an oracle of some of its nodes sees them."""

    network: "Oracle"  # the public numbers of all nodes, without any rows
    first: int  # the number of the first node held here
    total: Callable[[Array], Array]  # the sum over the first axis of all processes' arrays, in the order of nodes


@dataclass(frozen=True, eq=False)
class Oracle:
    """The private rows of a stack of nodes, bound to one objective.

    Args:
        sites: the rows.
        degrees: |N_i| of every node held here.
        n: the number of nodes in the whole network, of which those held here may be a part.
        loss, regulariser, lam: the objective.
        max_grad_norm: clip each record's gradient to this norm, which then is c1.
        importances: n omega_i of every node held here; None is 1 for all.
        others: the processes that hold the other nodes, where a simulation is spread over several. Sums over all rows
            then include theirs. None: there are none, as at a real site.
        dtype: of models and messages; this plain form is tested in double precision only.
        order: a function that gives the numbers of all rows, each node's own in a secret order, the same in every call.
            `apart` holds rows out by it. None: `apart` is refused.
    """

    sites: Sites
    degrees: Ints
    n: int
    loss: Loss
    regulariser: Regulariser
    lam: float
    max_grad_norm: float | None = None
    dtype: np.dtype[Any] = DOUBLE
    importances: Floats | None = None
    others: Others | None = None
    order: Callable[[], Ints] | None = None

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
        if not self._vectors:
            expect_one_output(self.loss, type(self).__name__)
        expect(
            len(self.degrees) == self.sites.n,
            "one node of the graph for every site",
            nodes=len(self.degrees),
            sites=self.sites.n,
        )
        expect(self.lam >= 0, "lam >= 0", lam=self.lam)
        if self.max_grad_norm is not None:
            expect(0 < self.max_grad_norm < np.inf, "max_grad_norm > 0", max_grad_norm=self.max_grad_norm)
        if self.sites.private:
            refuse_single(self.dtype.name)
        if not (self._weighs or self.sites.factors.plain):
            raise UnsupportedError(
                f"Expected rows that count alike for {type(self).__name__}, got rows with "
                f"{' and '.join(self.sites.factors.told)}. Use device='cpu' or 'plain'."
            )
        if self.sites.factors.shifts is not None and not isinstance(self.loss, Poisson):
            # With other losses, the bound on predictions that a tight sensitivity depends on would not hold.
            raise InputError(
                f"Expected loss='poisson' with exposures, got loss={self.loss.name!r}. Leave them out, or learn counts."
            )
        # Errors number rows in the whole network, whichever process holds them.
        before = 0 if self.others is None else int(self.network.sites.rows.offsets[self.others.first])
        self.loss.labels.check(self.sites.labels, before)
        expect(
            self.importance.shape == self.m.shape and bool(np.all((self.importance > 0) & (self.importance < np.inf))),
            "a finite importance > 0 for every site",
            importances=self.importances,
        )
        if not np.isfinite(self.c1):
            raise InputError(
                f"Expected a bound on every record's gradient, got data_norm={self.sites.data_norm} and no "
                "max_grad_norm. Declare a finite data_norm, or clip gradients with max_grad_norm."
            )

    # -- public numbers, shaped to broadcast against (nodes, d, runs) -------------------------------------------------

    @property
    def network(self) -> "Oracle":
        """The public numbers of all nodes: those held here, and those that other processes hold. What depends on all
        nodes is computed from these, so that it is the same in every process.
        """
        return self if self.others is None else self.others.network

    @property
    def d(self) -> int:
        """Number of coordinates of a model."""
        return self.sites.d * self.loss.outputs

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

    @cached_property
    def c1(self) -> float:
        """Bound on the norm of one record's gradient: the smaller of the loss's Lipschitz constant and the clipping
        norm.
        """
        bound = self.loss.lipschitz(self.sites.data_norm)
        return bound if self.max_grad_norm is None else min(bound, self.max_grad_norm)

    @property
    def changed(self) -> Floats:
        """The most rows of a node that are replaced together, (nodes, 1, 1): 1, or the rows of a person."""
        return np.minimum(float(self.sites.unit.changed), self.m)

    @property
    def sites_per_unit(self) -> int:
        """The most nodes of the network at which rows are replaced together."""
        return min(self.sites.unit.sites, self.n)

    def changed_in_sum(self, rows: int) -> int:
        """The most of `rows` rows over all nodes that are replaced together."""
        return min(self.sites.unit.changed * self.sites_per_unit, rows)

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

    def _spread(self, rounding: float) -> Spread:
        """The bound on the spread as a fraction of 2 c1, plus `rounding` and the rounding of predictions; at most 1."""
        norm = self.sites.data_norm * (1 + NORM_SLACK)
        bound = knots_of(self.loss) * (norm / (2 * self.c1))
        predictions = KNOTS * float(summation_error(np.asarray(float(self.sites.d))))
        return Spread(norm * (1 + NORM_SLACK), np.minimum(bound * (1 + NORM_SLACK) + predictions + rounding, 1.0))

    @property
    def fewest_rows(self) -> int:
        """The smallest m_i of the network, where sampling amplifies privacy least."""
        return int(self.network.sites.counts.min())

    def zeros(self, runs: int) -> Array:
        """Zero models of all nodes held here: (nodes, d, runs)."""
        return np.zeros((self.sites.n, self.d, runs), dtype=self.dtype)

    # -- the private part ---------------------------------------------------------------------------------------------

    @cached_property
    def _share(self) -> Floats:
        """u_ij n omega_i / m_i, the weight of every row in L_i: (rows, 1)."""
        return self.sites.factors.weighed(np.repeat(1.0 / self.divisor[:, 0, 0], self.sites.counts)[:, None])

    @cached_property
    def _slope_cap(self) -> Floats | None:
        """max_grad_norm / ||a||, the bound on a row's slope that clips its gradient: (rows, 1). None: no clipping."""
        if self.max_grad_norm is None:
            return None
        with np.errstate(over="ignore"):  # an infinite bound does not clip
            return (self.max_grad_norm / np.maximum(self.sites.rows.norms(), _SHORTEST))[:, None]

    def _predictions(self, w: Array) -> Array:
        """<w, a> + o for every row: (rows, runs), or (rows, runs, outputs) where there are several outputs."""
        rows, outputs = self.sites.rows, self.loss.outputs
        return self.sites.factors.shifted(rows.predict(w)) if outputs == 1 else rows.predict_vectors(w, outputs)

    def risk(self, w: Array) -> Array:
        """L_i(w_i): (nodes, d, runs) -> (nodes, runs)."""
        losses = self.loss.value(self._predictions(w), self.sites.labels[:, None], self.loss.theta)
        means: Array = np.add.reduceat(losses * self._share, self.sites.rows.offsets[:-1], axis=0)
        return means + self.lam * self.regulariser.value(w)

    def gradient(self, w: Array, weights: Array | None = None) -> Array:
        """grad L_i(w_i), or its stochastic form with `weights` (rows, runs) in place of u n omega_i / m_i.

        Formal guarantees: whatever w is, every record's part is finite and no longer than c1 (1 + 1e-12).
        """
        with np.errstate(over="ignore", invalid="ignore"):
            z = settled(self._predictions(w))
        slopes = self.loss.slope(z, self.sites.labels[:, None], self.loss.theta)
        weights = self._share if weights is None else weights
        slopes = clipped(slopes, self._slope_cap)
        rows = self.sites.rows
        if self.loss.outputs == 1:
            return rows.adjoint(slopes * weights) + self.lam * self.regulariser.gradient(w)
        return rows.adjoint_vectors(slopes * weights[..., None]) + self.lam * self.regulariser.gradient(w)

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
    def _total_weight(self) -> float:
        """The sum of all rows' weights; without weights, the number of rows."""
        if self.sites.factors.weights is None:
            return float(self.network.sites.counts.sum())
        return float(self.summed(lambda block: block.factors.weighed(np.ones(len(block.labels))).sum(keepdims=True))[0])

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

    def apart(self, every: int) -> tuple["Oracle", "Oracle"]:
        """Two oracles: one of all rows but every `every`-th of each site in the secret order, and one of the others
        (`Sites.apart`). Refused without an order.
        """
        if every not in self._apart:
            if self.order is None:
                raise PrivacyError(
                    f"Expected a secret order of the rows to hold one of {every} out, got none. Give "
                    "order=lambda: Noise.order(offsets): by their places in a file, one row could move all behind it."
                )
            learnt, held = self.sites.apart(every, self.order())
            self._apart[every] = replace(self, sites=learnt), replace(self, sites=held)
        return self._apart[every]

    @cached_property
    def _apart(self) -> dict[int, tuple["Oracle", "Oracle"]]:
        """The results of `apart`, so that repeated calls give the same oracles with their cached rows."""
        return {}

    # -- sums over all rows, for algorithms that release sums only ----------------------------------------------------
    # Over the rows held here and, with other processes, over theirs too. They are computed for each block of nodes and
    # added up in order, so that a sum's bits do not depend on the number of processes.

    @cached_property
    def _block_rows(self) -> Ints:
        """The first row of each block of nodes, and the number of rows at the end: (blocks + 1,)."""
        found: Ints = self.sites.rows.offsets[block_starts(self.sites.n, self.network.sites.n)]
        return found

    @property
    def _blocks_as_sites(self) -> Iterator[Sites]:
        """The rows of each block, as those of one site."""
        blocks = self.sites.regrouped(self._block_rows)
        return (blocks.part(i, i + 1) for i in range(blocks.n))

    def _total(self, parts: Array) -> Array:
        """The sum over all blocks, also those of other processes: (blocks, ...) -> (...)."""
        total: Array = parts.sum(axis=0) if self.others is None else self.others.total(parts)
        return total

    def summed(self, of_rows: Callable[[Sites], Floats]) -> Floats:
        """The sum over all blocks of a function of a block's rows, which are passed as those of one site."""
        return self._total(np.stack([of_rows(part) for part in self._blocks_as_sites])).astype(np.float64)

    @cached_property
    def _pieces(self) -> Ints:
        """The first row of each piece that a block is cut into, and the number of rows at the end: (pieces + 1,)."""
        blocks = self._block_rows.tolist()
        return np.concatenate([np.arange(*ends, _ROWS_AT_ONCE) for ends in pairwise(blocks)] + [blocks[-1:]])

    @cached_property
    def _piece_oracles(self) -> "list[Oracle]":
        """Oracles where each piece is a node, without a regulariser; small pieces share an oracle."""
        pieces = self.sites.regrouped(self._pieces)
        firsts = np.unique(self._pieces[:-1] // _ROWS_AT_ONCE, return_index=True)[1].tolist()
        parts = (pieces.part(*ends) for ends in pairwise([*firsts, pieces.n]))
        return [
            Oracle(part, np.zeros(part.n, np.int64), part.n, self.loss, self.regulariser, 0.0, self.max_grad_norm)
            for part in parts
        ]

    def gradient_sum(self, w: Array) -> Array:
        """The sum of all records' gradients at one public model: (1, d, runs) -> (1, d, runs), no regulariser."""
        w = w.astype(np.float64, copy=False)
        by_piece = []
        for some in self._piece_oracles:
            counted = some.sites.factors.weighed(np.ones((len(some.sites.labels), 1)))
            by_piece.append(some.gradient(np.broadcast_to(w, (some.n, *w.shape[1:])), counted))
        firsts = np.searchsorted(self._pieces[:-1], self._block_rows[:-1])
        total = self._total(np.add.reduceat(np.concatenate(by_piece), firsts, axis=0))
        return total[None].astype(self.dtype, copy=False)

    def gradient_sum_sensitivity(self, w: Array, rows: int) -> Floats:
        """The l2 sensitivity of `gradient_sum` at w to one row replaced, or to all rows of a person: (1, 1, runs). The
        rounding of a sum of at most `rows` rows in double precision is included.
        """
        exact = self.changed_in_sum(rows) * 2 * self.c1 * (1 + NORM_SLACK) * self._spread(0.0).at(w)
        return exact + 2 * self.c1 * rows * float(summation_error(np.asarray(float(rows))))

    def moments(self, full: bool) -> Floats:
        """M = sum of u a a^T over all rows: its `half` if `full`, else only its diagonal."""
        if full:
            return self.summed(lambda block: half(block.rows.moments(block.factors.weights)))
        return self.summed(lambda block: block.rows.squares(block.factors.weights))

    def moments_sensitivity(self, rows: int) -> float:
        """The l2 sensitivity of `moments` to one row replaced: sqrt(2) B^2, times the rows of a person if people are
        protected, plus the rounding of a sum of `rows` rows.
        """
        square, changed = (self.sites.data_norm * (1 + NORM_SLACK)) ** 2, self.changed_in_sum(rows)
        return square * (sqrt(2.0) * changed + 2 * rows * float(summation_error(np.asarray(float(rows)))))

    def cross_moments(self) -> Floats:
        """The `half` of the sum of u (a, b) (a, b)^T over all rows, labels clipped to [-1, 1]."""

        def of_block(block: Sites) -> Floats:
            rows, labels = block.rows, np.clip(block.labels, -1.0, 1.0)
            counted = block.factors.weighed(labels)
            crossed, moments = rows.adjoint(counted[:, None])[0], rows.moments(block.factors.weights)
            return half(np.block([[moments, crossed], [crossed.T, np.array([[labels @ counted]])]]))

        return self.summed(of_block)

    def cross_moments_sensitivity(self, rows: int) -> float:
        """The l2 sensitivity of `cross_moments` to one row replaced: sqrt(2) (B^2 + 1), times the rows of a person if
        people are protected, plus the rounding of a sum of `rows` rows.
        """
        square, changed = (self.sites.data_norm * (1 + NORM_SLACK)) ** 2 + 1, self.changed_in_sum(rows)
        return square * (sqrt(2.0) * changed + 2 * rows * float(summation_error(np.asarray(float(rows)))))

    def hessian_sum(self, w: Array) -> Array:
        """The `half` of the sum of all records' Hessians u phi'' a a^T at one public model: (1, d, runs) -> (1, d (d +
        1) / 2, runs). For losses of one output whose curvature is bounded.

        Formal guarantees: whatever w is, 0 <= phi'' <= L as computed, the smoothness of the loss.
        """
        expect_one_output(self.loss, "A sum of Hessians")
        most = self.loss.smoothness_bound
        assert most is not None  # the caller has checked

        def of_block(model: Floats, block: Sites) -> Floats:
            z = self._finite_predictions(model, block)
            curvature = np.clip(np.nan_to_num(self.loss.curvature(z, block.labels, self.loss.theta)), 0.0, most)
            return half(block.rows.moments(block.factors.weighed(curvature.astype(np.float64, copy=False))))

        models = w[0].astype(np.float64, copy=False).T
        return np.stack([self.summed(partial(of_block, model)) for model in models], axis=1)[None]

    def _finite_predictions(self, w: Floats, block: Sites) -> Floats:
        """Predictions (rows,) of a public model (d,) for the rows of a block, finite whatever the model is."""
        with np.errstate(over="ignore", invalid="ignore"):
            z: Array = block.factors.shifted(block.rows.predict(w[None, :, None])[:, 0])
        return settled(z).astype(np.float64, copy=False)

    def hessian_sum_sensitivity(self, rows: int) -> float:
        """The l2 sensitivity of `hessian_sum` to one row replaced: L times that of `moments`."""
        bound = self.loss.smoothness_bound
        assert bound is not None
        return bound * self.moments_sensitivity(rows)

    def variation_sum(self, w: Array) -> Array:
        """Two sums over all rows of counts at one public model: of (count - mean)^2 / most^2, times `VARIATION`, and of
        mean / most. Both are times L B^2, for one release together with `hessian_sum`: (1, d, runs) -> (1, 2, runs).
        """
        loss = self.loss
        assert isinstance(loss, Poisson)  # the caller has checked
        unit = loss.smoothness_bound * self.sites.data_norm**2

        def of_block(model: Floats, block: Sites) -> Floats:
            z = self._finite_predictions(model, block)
            off = loss.slope(z, block.labels, loss.theta) / loss.most
            rows = np.stack([VARIATION * off**2, loss.predict(z) / loss.most])
            sums: Floats = unit * rows.sum(axis=1)
            return sums

        models = w[0].astype(np.float64, copy=False).T
        return np.stack([self.summed(partial(of_block, model)) for model in models], axis=1)[None]

    def varied_hessian_sensitivity(self, rows: int) -> float:
        """The l2 sensitivity of `hessian_sum` and `variation_sum` together to one row replaced: 1.5 L B^2
        (docs/proofs/inference.md, Lemma 3), times the rows of a person if people are protected, plus rounding.
        """
        square, changed = (self.sites.data_norm * (1 + NORM_SLACK)) ** 2, self.changed_in_sum(rows)
        rounding = 3 * rows * float(summation_error(np.asarray(float(rows))))
        bound = self.loss.smoothness_bound
        assert bound is not None
        return bound * square * (sqrt(2 + VARIATION**2) * changed + rounding)


def half(matrix: Floats) -> Floats:
    """The upper half of a symmetric matrix, row by row, off-diagonals times sqrt(2), which preserves distances."""
    i, j = np.triu_indices(len(matrix))
    return matrix[i, j] * np.where(i == j, 1.0, sqrt(2.0))


def whole(halves: Array) -> Floats:
    """The symmetric matrices of these halves, the inverse of `half`: (runs, numbers) -> (runs, p, p)."""
    p = round((sqrt(1 + 8 * halves.shape[1]) - 1) / 2)
    i, j = np.triu_indices(p)
    matrices = np.zeros((len(halves), p, p))
    matrices[:, i, j] = matrices[:, j, i] = np.where(i == j, 1.0, sqrt(0.5)) * halves
    return matrices


def summation_error(terms: Floats) -> Floats:
    """gamma, the bound on the error of a sum of that many products in double precision, in any order, relative to the
    sum of their absolute values (Higham 2002, Section 4.2; with eight more roundings for each term).
    """
    return (terms + 8) * UNIT / (1 - (terms + 8) * UNIT)


def note_on_tight(tight: bool, site: Oracle) -> tuple[str, ...]:
    """A note for the statement if `tight` has no effect, because no better bound is known; else empty."""
    if not tight or np.any(site.spread(tight).parts < 1):
        return ()
    return (
        f"sensitivity='tight' changes nothing here: no bound better than 2 c1 is known for the {site.loss.name} loss "
        f"with data_norm={site.sites.data_norm:g} and max_grad_norm={site.max_grad_norm}.",
    )


def refuse_single(dtype: str) -> None:
    """Raise `PrivacyError` for any precision but double; for private rows."""
    if dtype != DOUBLE.name:
        raise PrivacyError(
            f"Expected dtype='float64' with private rows, got dtype={dtype!r}: in single precision, rounding lets one "
            "row move a sum over many by more than the noise is calibrated for. Use float64."
        )


def clipped(slopes: Array, cap: Floats | None) -> Array:
    """Slopes (rows, runs), or (rows, runs, outputs), clipped to a norm of at most their row's cap (rows, 1). Several
    outputs are scaled together, and keep their direction.
    """
    if cap is None:
        return slopes
    if slopes.ndim == 2:
        return np.clip(slopes, -cap, cap)
    # Relative to the largest part, because the squares of small slopes underflow.
    tiny = float(np.finfo(slopes.dtype).tiny)
    largest = np.maximum(np.max(np.abs(slopes), axis=-1), tiny)
    lengths = np.maximum(largest * np.sqrt(np.sum((slopes / largest[..., None]) ** 2, axis=-1)), tiny)
    with np.errstate(over="ignore"):
        shortened: Array = slopes * np.minimum(cap / lengths, 1.0)[..., None]
    return shortened


def settled(z: Array) -> Array:
    """Predictions clipped to +-sqrt(the largest number), so that slopes are finite; NaN becomes the lower end.

    <w, a> of a finite w may overflow, or be inf - inf. By this rule, which depends neither on the row nor on its label,
    a record's slope is finite and within its bound for every w. So no message tells which row's product overflowed.
    """
    far = float(np.sqrt(np.finfo(z.dtype).max))
    within: Array = np.fmin(np.fmax(z, -far), far)
    return within


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
