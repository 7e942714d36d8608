"""The solver for the exact local argmin of decentralised ADMM, which chooses the method and keeps its state.

IPADMM and the algorithms of real sites do not use it: they take noisy gradient steps (`steps`). It is for rivals that
minimise exactly in every round, for ADMM without privacy, and for the pooled optimum, the reference for all others.

The problem decides between two methods:

    no kink       a smooth loss and no l1 part: runs side by side, in `oracle.argmin.descent`. Results that it does not
                  certify, because the problem is too ill-conditioned, are left to the other method
    some kink     a loss with a kink, or an l1 part: one node and run at a time, in `oracle.argmin.newton`

The proofs of their certificates are in these modules. Both are tested against `oracle.argmin.plain`.
"""

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import InputError, SottovoceError, UnsupportedError, expect
from sottovoce.oracle.argmin.descent import descend_all
from sottovoce.oracle.argmin.factor import FlatRows
from sottovoce.oracle.argmin.newton import ArgminData, Kept, minimise_all
from sottovoce.oracle.kernels.formulas import formulas
from sottovoce.oracle.kernels.simd import Lanes
from sottovoce.oracle.kernels.threads import share_out
from sottovoce.oracle.kernels.tiles import Csr, Dense
from sottovoce.problem.losses import Huber, Logistic, Loss, SmoothedHinge
from sottovoce.problem.regularisers import Regulariser

_SMOOTH: tuple[type[Loss], ...] = (Logistic, SmoothedHinge, Huber)
# Runs side by side: half a register of 512 bits, one, or two, by the number of runs. Each is compiled when needed.
_WIDTHS = (Lanes(4), Lanes(8), Lanes(16))


class ArgminSolver:
    """Solver for the argmin of every node and run, with the state that it keeps between calls.

    Args:
        rows: all nodes' rows, below each other, of either precision; computed with in double.
        d: the length of a row.
        offsets: (nodes + 1,) node i's rows are offsets[i] : offsets[i + 1].
        labels: (rows,).
        loss, regulariser, lam: the objective; `lam` multiplies the regulariser.
        divisor: (nodes,) divisor of the sum over a node's rows; None is m_i.
        max_grad_norm: must be None, since a clipped gradient is the gradient of no known function.

    Formal guarantees: `solve` returns models within tolerance / mu_i of the minimiser, or raises. Each (node, run) is
    computed by itself: its result depends on its own inputs and its own earlier calls alone.

    With kinks it keeps min(m_i, d)^2 numbers for every node and run; without kinks, nothing.
    """

    def __init__(
        self,
        rows: Csr | Dense,
        d: int,
        offsets: Ints,
        labels: Array,
        loss: Loss,
        regulariser: Regulariser,
        lam: float,
        *,
        divisor: Floats | None = None,
        max_grad_norm: float | None = None,
    ) -> None:
        _refuse_unsupported(loss, max_grad_norm)
        expect(lam >= 0, "lam >= 0", lam=lam)
        kinked = loss.smoothness_bound is None
        numbers = np.ascontiguousarray(labels, dtype=np.float64)
        counts = np.diff(offsets)
        divisor = counts.astype(np.float64) if divisor is None else divisor
        share = np.repeat(1.0 / divisor, counts)
        low, high = _sides(loss, numbers, share) if kinked else (np.zeros(0), np.zeros(0))
        values = np.ascontiguousarray(rows.values, dtype=np.float64)
        if isinstance(rows, Csr):
            starts = np.asarray(rows.starts, dtype=np.int64)
            self._rows = FlatRows(values, np.asarray(rows.columns, dtype=np.int32), starts)
        else:
            starts = np.arange(len(values) + 1, dtype=np.int64) * d
            self._rows = FlatRows(values.reshape(-1), np.zeros(0, dtype=np.int32), starts)
        self._d = d
        # The same numbers, as `descend_all` reads them.
        self._tiles = Csr(*self._rows) if isinstance(rows, Csr) else Dense(self._rows.values.reshape(-1, d))
        self._light = self._tiles._replace(values=self._tiles.values.astype(np.float32))
        count = len(self._rows.starts) - 1
        row = np.repeat(np.arange(count), np.diff(self._rows.starts))
        norms = np.sqrt(np.bincount(row, self._rows.values**2, minlength=count))
        offsets = np.ascontiguousarray(offsets, dtype=np.int64)
        # One kernel for all the losses of this package. A kinked loss does not use its formulas.
        code = _SMOOTH.index(type(loss)) if type(loss) in _SMOOTH else 0
        known = kinked or type(loss) in _SMOOTH
        self._of = tuple(formulas(kind) for kind in (_SMOOTH if known else (type(loss),) * len(_SMOOTH)))
        self._problem = ArgminData(
            offsets, numbers, norms, low, high, lam * regulariser.l1, code, float(loss.theta), divisor
        )
        self._l2 = lam * regulariser.l2
        # For each node: the scale of the stiffness of kinks, and bounds on the loss's curvature and on its gradient.
        longest = np.maximum.reduceat(norms * norms, offsets[:-1])
        steepest = (loss.smoothness_bound or 0.0) * np.add.reduceat(norms * norms * share, offsets[:-1])
        slope = loss.slope_bound * np.add.reduceat(norms * share, offsets[:-1])
        self._scales = np.stack([1 / np.where(longest > 0, longest, 1.0), steepest, slope], axis=1)
        self._smooth = not kinked and self._problem.l1 == 0
        self._kept: Kept | None = None

    def solve(self, pull: Array, curvature: Floats, start: Array, tolerance: float) -> Floats:
        """argmin_w L_i(w) - <pull_i, w> + (curvature_i / 2) ||w||^2 for every node and run.

        Args:
            pull: (nodes, d, runs).
            curvature: one number per node, as (nodes, 1, 1) or (nodes,).
            start: (nodes, d, runs) where to start, such as the last result. Replaced where it is too far off.
            tolerance: the result is within tolerance / mu_i of the minimiser. Rounding sets a floor of about 1e-15
                (||pull|| + mu_i ||w|| + mean |slope| ||a|| + smoothness mean ||a||^2 ||w||): 1e-14 for rows of
                norm 1 and models of norm 10. Kinks at rows of norm R raise it to about 1e-13 R.

        Raises:
            SottovoceError: the tolerance was not reached at some node. Nothing is returned then.
        """
        nodes = len(self._scales)
        expect(start.shape[:2] == (nodes, self._d), f"start of shape ({nodes}, {self._d}, runs)", shape=start.shape)
        expect(pull.shape == start.shape, "pull of the shape of start", pull=pull.shape, start=start.shape)
        expect(tolerance > 0, "tolerance > 0", tolerance=tolerance)
        mu = np.asarray(curvature, dtype=np.float64).reshape(-1) + self._l2
        expect(len(mu) == nodes, "one curvature per node", curvatures=len(mu), nodes=nodes)
        expect(bool((mu > 0).all()), "curvature + lam l2 > 0 at every node", smallest=float(mu.min()))
        if not (np.isfinite(pull).all() and np.isfinite(start).all() and np.isfinite(mu).all()):
            raise InputError("Expected finite pull, curvature and start, got NaN or infinity.")
        pull, start = (np.ascontiguousarray(x, dtype=np.float64) for x in (pull, start))
        w, reached = (self._side_by_side if self._smooth else self._one_by_one)(pull, mu, start, float(tolerance))
        if not (reached <= tolerance).all():
            self._kept = None
            # The next call must not start from the state of a failed one.
            i, q = np.unravel_index(int(np.argmax(np.nan_to_num(reached, nan=np.inf))), reached.shape)
            raise SottovoceError(
                f"Expected the argmin of node {i}, run {q} to be certified to tolerance={tolerance:g}, "
                f"got {reached[i, q]:.3g}. Rounding may not allow less: ask for a larger tolerance."
            )
        return w

    def _side_by_side(self, pull: Floats, mu: Floats, start: Floats, tolerance: float) -> tuple[Floats, Floats]:
        """Smooth problems, many runs at a time: the models (nodes, d, runs) and their certificates (nodes, runs)."""
        nodes, _, runs = start.shape
        lanes = next((some for some in _WIDTHS if runs <= some.count), _WIDTHS[-1])
        w, reached = np.empty_like(start), np.empty((nodes, runs))
        share_out(
            descend_all, nodes * -(-runs // lanes.count), self._tiles, self._light, self._problem, self._of,
            self._scales, mu, pull, start, tolerance, w, reached, lanes,
        )  # fmt: skip
        left = np.flatnonzero(~(reached <= tolerance))
        if len(left):
            # Where the first method has overflowed, the second begins at the start.
            w = np.where(np.isfinite(w).all(axis=1, keepdims=True), w, start)
            # Nothing is kept from call to call for smooth problems.
            none = np.empty((0, nodes, 3))
            kept = Kept(none[:, 0], np.zeros(nodes, dtype=np.int64), none, none, none[..., None])
            self._minimise(left, kept, pull, mu, w, tolerance, reached)
        return w, reached

    def _one_by_one(self, pull: Floats, mu: Floats, start: Floats, tolerance: float) -> tuple[Floats, Floats]:
        """Kinked problems, with the state of the last call: models and certificates as in `_side_by_side`."""
        nodes, _, runs = start.shape
        kept = self._kept
        if kept is None or len(kept.numbers) != runs:
            kept = self._kept = self._fresh(runs)
        w, reached = start.copy(), np.empty((nodes, runs))
        self._minimise(np.arange(nodes * runs), kept, pull, mu, w, tolerance, reached)
        return w, reached

    def _minimise(
        self, which: Ints, kept: Kept, pull: Floats, mu: Floats, w: Floats, tolerance: float, reached: Floats
    ) -> None:
        """Newton's method with kinks on these (node, run) pairs: `w` and `reached` are overwritten in place."""
        share_out(
            minimise_all, len(which), which, self._rows, self._problem, self._of, kept, self._scales, mu, pull, w,
            tolerance, reached,
        )  # fmt: skip

    def _fresh(self, runs: int) -> Kept:
        """The state before the first call with this number of runs: no factors, all duals 0."""
        offsets = self._problem.offsets
        nodes, rows, d = len(offsets) - 1, int(offsets[-1]), self._d
        room = np.minimum(np.diff(offsets), d) ** 2
        place = np.concatenate([[0], np.cumsum(room)]).astype(np.int64)
        kept = Kept(
            factors=np.empty((runs, int(place[-1]))),
            place=place[:-1],
            numbers=np.zeros((runs, nodes, 3)),
            by_row=np.zeros((runs, 2, rows)),
            by_column=np.zeros((runs, nodes, 2, d if self._problem.l1 > 0 else 0)),
        )
        kept.numbers[..., 0] = -2  # no factor yet
        return kept


def _refuse_unsupported(loss: Loss, max_grad_norm: float | None) -> None:
    """Refuse clipped gradients and losses of several outputs before any work."""
    if max_grad_norm is not None:
        raise UnsupportedError(
            "The exact argmin needs no max_grad_norm, since a clipped gradient is the gradient of no known function. "
            "IPADMM takes one."
        )
    if loss.outputs != 1:
        raise UnsupportedError(f"The exact argmin needs one prediction per row, and {loss.name} has {loss.outputs}.")


def _sides(loss: Loss, labels: Floats, share: Floats) -> tuple[Floats, Floats]:
    """The two slopes of a loss with one kink, of value 0, at its label; each over its node's divisor."""
    far = 1 + np.abs(labels)
    sides = []
    for side in (-1.0, 1.0):
        steepness = loss.slope(labels + side * far, labels, loss.theta)
        # At two distances, so that a curve that merely crosses the line is not taken for it.
        for times in (1.0, 7.0):
            value = loss.value(labels + side * times * far, labels, loss.theta)
            if not np.allclose(value, steepness * side * times * far, rtol=1e-9, atol=0):
                raise UnsupportedError(
                    f"The exact argmin needs a smooth loss, or one of two straight lines that meet at 0 where the "
                    f"prediction is the label; {loss.name} is neither. IPADMM takes it."
                )
        sides.append(steepness * share)
    return sides[0].astype(np.float64), sides[1].astype(np.float64)
