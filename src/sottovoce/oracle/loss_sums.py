"""Sums over all rows at one public model, bound to a loss: gradients, Hessians, variation, and their sensitivities.

Every record's part is clipped and finite whatever the model is, so that what a row moves is bounded by public numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import InputError, PrivacyError, UnsupportedError, expect
from sottovoce.oracle.kernels.spread import KNOTS, Spread, knots_of
from sottovoce.oracle.row_sums import RowSums, half, summation_error, whole
from sottovoce.oracle.whitening import Whitening
from sottovoce.problem.losses import Huber, Logistic, Loss, Poisson, Softmax, expect_one_output
from sottovoce.problem.losses.base import BESIDE
from sottovoce.problem.sites import NORM_SLACK, Sites

DOUBLE: np.dtype[Any] = np.dtype(np.float64)
# Shorter rows are clipped as if they were this long: the squares of much shorter ones underflow.
_SHORTEST = 1e-150
_ROWS_AT_ONCE = 1 << 16  # rows whose gradients are summed at a time, so that intermediate results stay in cache
_TINY, _FAR = float(np.finfo(np.float64).tiny), 1e-6  # the second is beyond all rounding of a row
VARIATION = 0.5  # weight of the variation of counts beside the Hessian: more would leave that less exact


@dataclass(frozen=True, eq=False)
class LossSums(RowSums):
    """The private rows of a stack of nodes, bound to a loss.

    Args:
        loss: of a record at a model.
        max_grad_norm: clip each record's gradient to this norm, which then is c1.
        dtype: of models and messages.
    """

    loss: Loss
    max_grad_norm: float | None = field(default=None, kw_only=True)
    dtype: np.dtype[Any] = field(default=DOUBLE, kw_only=True)

    def __post_init__(self) -> None:
        if self.max_grad_norm is not None:
            expect(0 < self.max_grad_norm < np.inf, "max_grad_norm > 0", max_grad_norm=self.max_grad_norm)
        if self.sites.private:
            refuse_single(self.dtype.name)
        if self.sites.factors.shifts is not None and not isinstance(self.loss, Poisson):
            # With other losses, the bound on predictions that a tight sensitivity depends on would not hold.
            raise InputError(
                f"Expected loss='poisson' with exposures, got loss={self.loss.name!r}. Leave them out, or learn counts."
            )
        # Errors number rows in the whole network, whichever process holds them.
        before = 0 if self.others is None else int(self.network.sites.rows.offsets[self.others.first])
        self.loss.labels.check(self.sites.labels, before)
        if not np.isfinite(self.c1):
            raise InputError(
                f"Expected a bound on every record's gradient, got data_norm={self.sites.data_norm} and no "
                "max_grad_norm. Declare a finite data_norm, or clip gradients with max_grad_norm."
            )

    @property
    def d(self) -> int:
        """Number of coordinates of a model."""
        return self.sites.d * self.loss.outputs

    @cached_property
    def c1(self) -> float:
        """Bound on the norm of one record's gradient: the smaller of the loss's Lipschitz constant and the clipping
        norm.
        """
        bound = self.loss.lipschitz(self.sites.data_norm)
        return bound if self.max_grad_norm is None else min(bound, self.max_grad_norm)

    def _spread(self, rounding: float) -> Spread:
        """The bound on the spread as a fraction of 2 c1, plus `rounding` and the rounding of predictions; at most 1."""
        norm = self.sites.data_norm * (1 + NORM_SLACK)
        bound = knots_of(self.loss) * (norm / (2 * self.c1))
        predictions = KNOTS * float(summation_error(np.asarray(float(self.sites.d))))
        return Spread(norm * (1 + NORM_SLACK), np.minimum(bound * (1 + NORM_SLACK) + predictions + rounding, 1.0))

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

    def gradients(self, w: Array, weights: Array) -> Array:
        """The sums of the gradients of each node's records at w (nodes, d, runs), every one times its weight (rows,
        runs), without a regulariser.

        Formal guarantees: whatever w is, every record's gradient is finite and no longer than c1 (1 + 1e-12).
        """
        with np.errstate(over="ignore", invalid="ignore"):
            z = settled(self._predictions(w))
        slopes = clipped(self.loss.slope(z, self.sites.labels[:, None], self.loss.theta), self._slope_cap)
        rows = self.sites.rows
        if self.loss.outputs == 1:
            return rows.adjoint(slopes * weights)
        return rows.adjoint_vectors(slopes * weights[..., None])

    @cached_property
    def _pieces(self) -> Ints:
        """The first row of each piece that a block is cut into, and the number of rows at the end: (pieces + 1,)."""
        blocks = self._block_rows.tolist()
        return np.concatenate([np.arange(*ends, _ROWS_AT_ONCE) for ends in pairwise(blocks)] + [blocks[-1:]])

    @cached_property
    def _by_piece(self) -> "list[LossSums]":
        """These rows where each piece is a node; small pieces share an object."""
        pieces = self.sites.regrouped(self._pieces)
        firsts = np.unique(self._pieces[:-1] // _ROWS_AT_ONCE, return_index=True)[1].tolist()
        parts = (pieces.part(*ends) for ends in pairwise([*firsts, pieces.n]))
        return [LossSums(part, part.n, self.loss, max_grad_norm=self.max_grad_norm) for part in parts]

    def gradient_sum(self, w: Array) -> Array:
        """The sum of all records' gradients at one public model: (1, d, runs) -> (1, d, runs), no regulariser."""
        w = w.astype(np.float64, copy=False)
        found = self._gradient_sum(w, lambda some: some.sites.factors.weighed(np.ones((len(some.sites.labels), 1))))
        return found[None].astype(self.dtype, copy=False)

    def _gradient_sum(self, w: Array, counted: "Callable[[LossSums], Floats]") -> Array:
        """The sum of all records' gradients at w (1, d, runs), each of which counts as often as `counted` says: (rows,
        1) or (rows, runs) for some rows -> (d, runs).
        """
        by_piece = [
            some.gradients(np.broadcast_to(w, (some.n, *w.shape[1:])), counted(some)) for some in self._by_piece
        ]
        firsts = np.searchsorted(self._pieces[:-1], self._block_rows[:-1])
        return self._total(np.add.reduceat(np.concatenate(by_piece), firsts, axis=0))

    def gradient_sum_sensitivity(self, w: Array, rows: int) -> Floats:
        """The l2 sensitivity of `gradient_sum` at w to one row replaced, or to all rows of a person: (1, 1, runs). The
        rounding of a sum of at most `rows` rows in double precision is included.
        """
        exact = self.changed_in_sum(rows) * 2 * self.c1 * (1 + NORM_SLACK) * self._spread(0.0).at(w)
        return exact + 2 * self.c1 * rows * float(summation_error(np.asarray(float(rows))))

    def whitened_gradient_sum(self, u: Array, whitening: Whitening) -> Array:
        """The sum of all records' gradients in whitened coordinates, where long rows count less (`Whitening`), at a
        public model u in the same coordinates: (1, d, runs) -> (1, d, runs), no regulariser. Refused where gradients
        are clipped.

        Formal guarantees: whatever A and u are, no record's part is longer than that of a row of length c.
        """
        self._expect_unclipped()
        w = whitening.times(u[0].astype(np.float64, copy=False))[None]
        summed = self._gradient_sum(w, lambda some: some._counted(whitening))
        return whitening.times(summed.astype(np.float64, copy=False))[None].astype(self.dtype, copy=False)

    def _counted(self, whitening: Whitening) -> Floats:
        """How often each row counts: (rows, runs)."""
        if whitening.digest not in self._counts:
            self._counts.clear()  # a run has one whitening, which all its gradients share
            weights = self.sites.factors.weighed(np.ones((len(self.sites.labels), 1)))
            self._counts[whitening.digest] = whitening.counted(self.sites.rows, weights)
        return self._counts[whitening.digest]

    @cached_property
    def _counts(self) -> dict[bytes, Floats]:
        """What `_counted` found for the last whitening: it takes longer than a gradient."""
        return {}

    def whitened_gradient_sum_sensitivity(self, u: Array, rows: int, whitening: Whitening) -> Floats:
        """The l2 sensitivity of `whitened_gradient_sum` at u to one row replaced, or to all rows of a person: (1, 1,
        runs). Rounding is included.
        """
        self._expect_unclipped()
        changed, terms = self.changed_in_sum(rows), float(summation_error(np.asarray(float(rows))))
        # As for rows of length c instead of B, at the model u. Sums are rounded before A stretches them.
        norm = self.sites.data_norm
        rounding, longest = norm * whitening.rounding, whitening.length / norm
        spread = np.minimum(self._spread(0.0).at(u * longest) + KNOTS * rounding, 1.0)
        exact = changed * 2 * self.c1 * longest * (1 + NORM_SLACK) * (1 + rounding) * spread
        return exact + 2 * self.c1 * rows * (whitening.norm * terms + whitening.length * whitening.rounding)

    def start_moments(self) -> Floats:
        """The `half` of the sum of a a^T / B^2 over all rows, then the sums of a / B times the slope at 0 and of a / B,
        each times its weight of `weights_of`; the last only where its weight is not 0: (numbers,).
        """
        slopes, means = weights_of(self.loss)
        norm, outputs = self.sites.data_norm, self.loss.outputs

        def of_block(block: Sites) -> Floats:
            rows, labels = block.rows, block.labels[:, None]
            zero = np.zeros((len(labels), 1) if outputs == 1 else (len(labels), 1, outputs))
            found = np.asarray(self.loss.slope(zero, labels, self.loss.theta), dtype=np.float64)
            counted = block.factors.weighed(np.ones((len(labels), 1)))
            summed = rows.adjoint(found * counted) if outputs == 1 else rows.adjoint_vectors(found * counted[..., None])
            parts = [half(rows.moments(block.factors.weights)) / norm**2, slopes * summed[0, :, 0] / norm]
            if means:
                parts.append(means * rows.adjoint(counted)[0, :, 0] / norm)
            return np.concatenate(parts)

        return self.summed(of_block)

    def start_moments_sensitivity(self, rows: int) -> float:
        """The l2 sensitivity of `start_moments` to one row replaced (docs/proofs/ipadmm.md, Lemma 5), times the rows of
        a person if people are protected, plus the rounding of a sum of `rows` rows.
        """
        exact, changed = (1 + NORM_SLACK) ** 2 * start_moments_sensitivity(self.loss), self.changed_in_sum(rows)
        return exact * (changed + 2 * rows * float(summation_error(np.asarray(float(rows)))))

    def _expect_unclipped(self) -> None:
        if self.max_grad_norm is not None:
            raise PrivacyError(
                f"Expected no max_grad_norm with whitened gradients, got max_grad_norm={self.max_grad_norm}: one that "
                "is clipped in the coordinates of the rows may be longer in others. Use `gradient_sum`."
            )

    def whitened_hessian_sum(self, u: Array, whitening: Whitening) -> Array:
        """The `half` of the sum of all records' Hessians in whitened coordinates, A f phi'' a a^T A, where long rows
        count less (`Whitening`), at a public model u in the same coordinates: (1, d, runs) -> (1, d (d + 1) / 2, runs).
        For losses of one output whose curvature is bounded, and whole matrices A.

        Formal guarantees: whatever A and u are, 0 <= phi'' <= L as computed, the smoothness of the loss, and f |A a|^2
        is at most c^2.
        """
        expect_one_output(self.loss, "A sum of Hessians")
        most = self.loss.smoothness_bound
        assert most is not None  # the caller has checked

        def of_run(run: int) -> Floats:
            one, A = whitening.of_run(run), whitening.A[:, :, run]
            model = one.times(u[0, :, run : run + 1].astype(np.float64, copy=False))[:, 0]

            def of_block(block: Sites) -> Floats:
                z = self._finite_predictions(model, block)
                curvature = np.clip(np.nan_to_num(self.loss.curvature(z, block.labels, self.loss.theta)), 0.0, most)
                counted = one.counted(block.rows, block.factors.weighed(np.ones((len(z), 1))))[:, 0]
                return half(block.rows.moments(curvature.astype(np.float64, copy=False) * counted))

            return half(A @ whole(self.summed(of_block)[None])[0] @ A)

        return np.stack([of_run(run) for run in range(u.shape[2])], axis=1)[None]

    def _finite_predictions(self, w: Floats, block: Sites) -> Floats:
        """Predictions (rows,) of a public model (d,) for the rows of a block, finite whatever the model is."""
        with np.errstate(over="ignore", invalid="ignore"):
            z: Array = block.factors.shifted(block.rows.predict(w[None, :, None])[:, 0])
        return settled(z).astype(np.float64, copy=False)

    def focused_sum(self, u: Array, whitening: Whitening, directions: Floats) -> Floats:
        """The gradient along a few directions alone, and what the Hessian makes of them, at a public model u in
        whitened coordinates: (1, d, runs) -> (k + k d, runs). For losses of one output whose curvature is bounded.

        With t = A a and s = X^T t, a row counts f min(1, 1 / |s|) times, f as everywhere (`Whitening`), so that |s| is
        at most 1. It adds slope s, (k,), then BESIDE phi'' / (L c) s t^T, (k, d).

        Args:
            u: the model.
            whitening: the coordinates.
            directions: X, (d k, runs).
        """
        expect_one_output(self.loss, "A gradient along some directions")
        most = self.loss.smoothness_bound
        assert most is not None  # the caller has checked

        def of_run(run: int) -> Floats:
            one, X = whitening.of_run(run), directions[:, run : run + 1]
            model = one.times(u[0, :, run : run + 1].astype(np.float64, copy=False))[:, 0]
            B = one.times(X).reshape(len(model), -1)

            def of_block(block: Sites) -> Floats:
                z, rows = self._finite_predictions(model, block), block.rows
                with np.errstate(over="ignore", invalid="ignore"):
                    s = settled(rows.predict(B[None])).astype(np.float64, copy=False)
                    lengths = np.maximum(np.sqrt(np.sum(s**2, axis=1, keepdims=True)), 1.0)
                s = s * (one.counted(rows, block.factors.weighed(np.ones((len(z), 1)))) / lengths)
                slopes = self.loss.slope(z, block.labels, self.loss.theta)
                curvature = np.clip(np.nan_to_num(self.loss.curvature(z, block.labels, self.loss.theta)), 0.0, most)
                bent = rows.adjoint(s * (curvature / most)[:, None])[0].astype(np.float64, copy=False)
                return np.concatenate(([slopes @ s], bent))

            summed = self.summed(of_block)
            bent = (BESIDE / max(float(one.length[0, 0]), _TINY)) * (one.A[..., 0] @ summed[1:])
            return np.concatenate((summed[0], bent.T.ravel()))

        return np.stack([of_run(run) for run in range(u.shape[2])], axis=1)

    def focused_sum_sensitivity(self, u: Array, rows: int, whitening: Whitening) -> Floats:
        """The l2 sensitivity of `focused_sum` at u to one row replaced: at most 2 `Loss.steepness`
        (docs/proofs/inference.md, Lemma 4), times the rows of a person if people are protected, plus rounding: (1,
        runs).
        """
        norm, changed = self.sites.data_norm * (1 + NORM_SLACK), self.changed_in_sum(rows)
        terms, rounding = float(summation_error(np.asarray(float(rows)))), norm * whitening.rounding
        w = whitening.times(u[0].astype(np.float64, copy=False))
        with np.errstate(over="ignore", invalid="ignore"):
            reach = norm * np.sqrt(np.sum(w**2, axis=0, keepdims=True)) * (1 + _FAR)
        steepness = self.loss.steepness(np.nan_to_num(reach, nan=np.inf, posinf=np.inf))
        stretched = terms * (1 + norm * whitening.norm / np.maximum(whitening.length, _TINY)) + rounding
        found: Floats = 2 * changed * steepness * (1 + rounding) * (1 + _FAR)
        return found + 2 * rows * self.loss.slope_bound * stretched

    def whitened_hessian_sum_sensitivity(self, rows: int, whitening: Whitening) -> Floats:
        """The l2 sensitivity of `whitened_hessian_sum` to one row replaced: sqrt(2) L c^2, times the rows of a person
        if people are protected, plus rounding: (1, runs).
        """
        return self._hessian_moves(rows, whitening, sqrt(2.0))

    def variation_sum(self, u: Array, whitening: Whitening) -> Array:
        """Two sums over all rows of counts at one public model in whitened coordinates: of (count - mean)^2 / most^2,
        times `VARIATION`, and of mean / most. Both are times L c^2, for one release together with
        `whitened_hessian_sum`; all rows count once: (1, d, runs) -> (1, 2, runs).
        """
        loss = self.loss
        assert isinstance(loss, Poisson)  # the caller has checked

        def of_block(model: Floats, block: Sites) -> Floats:
            z = self._finite_predictions(model, block)
            off = loss.slope(z, block.labels, loss.theta) / loss.most
            rows = np.stack([VARIATION * off**2, loss.predict(z) / loss.most])
            sums: Floats = rows.sum(axis=1)
            return sums

        models = whitening.times(u[0].astype(np.float64, copy=False)).T
        found = np.stack([self.summed(partial(of_block, model)) for model in models], axis=1)
        return (loss.smoothness_bound * whitening.c**2 * found)[None]

    def varied_hessian_sensitivity(self, rows: int, whitening: Whitening) -> Floats:
        """The l2 sensitivity of `whitened_hessian_sum` and `variation_sum` together to one row replaced: 1.5 L c^2
        (docs/proofs/inference.md, Lemma 3), times the rows of a person if people are protected, plus rounding: (1,
        runs).
        """
        terms = float(summation_error(np.asarray(float(rows))))
        return self._hessian_moves(rows, whitening, sqrt(2 + VARIATION**2) + 4 * rows * terms)

    def residual_moments(self, u: Array, whitening: Whitening, reach: Floats) -> Array:
        """The `half` of the sum of f (t, c e) (t, c e)^T over all rows, in whitened coordinates, where long rows count
        less (`Whitening`): t = A a, and e is the residual of a public model u in the same coordinates, over `reach`
        and cut to [-1, 1]. Labels are cut to [-1, 1] before: (d, runs), reach (1, runs) -> ((d + 1) (d + 2) / 2,
        runs). For whole matrices A.

        Formal guarantees: whatever A, u and reach are, f |A a|^2 is at most c^2, and e is a number of size 1 at most.
        """

        def of_run(run: int) -> Floats:
            one, A, c = whitening.of_run(run), whitening.A[:, :, run], float(whitening.length[0, run])
            model, far = one.times(u[:, run : run + 1].astype(np.float64, copy=False))[:, 0], abs(float(reach[0, run]))

            def of_block(block: Sites) -> Floats:
                rows, off = block.rows, np.clip(block.labels, -1.0, 1.0) - self._finite_predictions(model, block)
                with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                    e = np.clip(np.nan_to_num(off / far, posinf=1.0, neginf=-1.0), -1.0, 1.0)
                counted = one.counted(rows, block.factors.weighed(np.ones((len(e), 1))))[:, 0]
                crossed = rows.adjoint((counted * e)[:, None])[0]
                return half(np.block([[rows.moments(counted), crossed], [crossed.T, np.array([[counted @ e**2]])]]))

            d, S = len(A), whole(self.summed(of_block)[None])[0]
            crossed = c * (A @ S[:d, d:])
            return half(np.block([[A @ S[:d, :d] @ A, crossed], [crossed.T, c * c * S[d:, d:]]]))

        return np.stack([of_run(run) for run in range(u.shape[1])], axis=1)

    def residual_moments_sensitivity(self, rows: int, whitening: Whitening) -> Floats:
        """The l2 sensitivity of `residual_moments` to one row replaced: sqrt(2) (c^2 + c^2), times the rows of a person
        if people are protected, plus rounding: (1, runs).
        """
        norm, c = self.sites.data_norm * (1 + NORM_SLACK), whitening.length
        changed, terms = self.changed_in_sum(rows), float(summation_error(np.asarray(float(rows))))
        square, stretched = (c * (1 + norm * whitening.rounding)) ** 2 * (1 + NORM_SLACK), norm * whitening.norm + c
        exact = sqrt(2.0) * 2 * changed * square
        found: Floats = exact + 2 * rows * stretched * (stretched * terms + 2 * norm * c * whitening.rounding)
        return found

    def _hessian_moves(self, rows: int, whitening: Whitening, times: float) -> Floats:
        """`times` L c^2 for every row that changes, plus the rounding of a sum that A stretches: (1, runs)."""
        bound, norm = self.loss.smoothness_bound, self.sites.data_norm * (1 + NORM_SLACK)
        assert bound is not None
        changed, terms = self.changed_in_sum(rows), float(summation_error(np.asarray(float(rows))))
        square = whitening.length**2 * (1 + norm * whitening.rounding) ** 2 * (1 + NORM_SLACK)
        stretched = norm**2 * whitening.norm * (whitening.norm * terms + 2 * whitening.length * whitening.rounding)
        found: Floats = bound * (times * changed * square + 2 * rows * stretched)
        return found


def weights_of(loss: Loss, *, in_slopes: bool = False) -> tuple[float, float]:
    """How much `start_moments` weighs gradients at 0, and means of features; of gradients in units of their largest
    slope with `in_slopes`. Refused for losses that have none: those without a Newton step at 0.
    """
    if not isinstance(loss, Logistic | Huber | Softmax):
        raise UnsupportedError(
            f"Expected loss 'logistic', 'huber' or 'softmax' with moments, got loss={loss.name!r}. Leave moments out."
        )
    slopes, means = (0.75, 0.75) if isinstance(loss, Logistic) else (1.2, 0.0)
    # Rows a and -a with one label have gradients at 0 that are twice a slope apart.
    return (slopes if in_slopes else slopes * 2 / float(loss.spread(np.zeros(1))[0])), means


def start_moments_numbers(loss: Loss, features: int) -> int:
    """Length of `LossSums.start_moments` for so many features."""
    return features * (features + 1) // 2 + features * (loss.outputs + (weights_of(loss)[1] > 0))


def start_moments_sensitivity(loss: Loss) -> float:
    """How far one row of norm B moves `LossSums.start_moments`: (2 + K) / sqrt(2), K the squares of its weights."""
    return (2 + sum(weight**2 for weight in weights_of(loss, in_slopes=True))) / sqrt(2.0)


def curvature_at_zero(loss: Loss) -> float:
    """The curvature of the loss at prediction 0; of softmax, along differences of outputs that add up to 0."""
    bound = loss.smoothness_bound
    assert bound is not None  # `weights_of` has refused those
    return 1 / loss.outputs if loss.outputs > 1 else bound


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
