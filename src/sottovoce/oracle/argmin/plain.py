"""The exact argmin of a smooth objective on rows, by damped Newton steps: the plain form, in NumPy.

    F(w) = sum_j share_j loss(<w, a_j> + shift_j, b_j) - <pull, w> + (mu / 2) ||w||^2

IPADMM and the algorithms of real sites do not use it: they take noisy gradient steps (`steps`). It is for rivals that
minimise exactly in every round, for ADMM without privacy, and for the pooled optimum, the reference for all others.

F is mu-strongly convex, so with a gradient of norm tau, w is within tau / mu of the minimiser: the tolerance is
certified.

For a scalar prediction and few features the Hessian is a small matrix, and is factorised. With many features, and for
softmax, where w is a flat (d, K) matrix, conjugate gradients need only products with it. The kernels in
`sottovoce.oracle.argmin.solver` are faster, and also take kinked losses and an l1 part.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy

from sottovoce.arrays import Array, Floats
from sottovoce.errors import SottovoceError, UnsupportedError
from sottovoce.problem.losses import Loss, Softmax, expect_one_output
from sottovoce.problem.losses.softmax import probabilities
from sottovoce.problem.regularisers import Regulariser
from sottovoce.problem.rows import Matrix

# Newton needs about ten; damped steps from far away a few dozen.
_MOST_STEPS = 100
# The most features for which the Hessian is computed: with more, d^2 numbers and d^3 operations a step are too many.
_MOST_FACTORISED = 2_000


def refuse_unsupported(loss: Loss, regulariser: Regulariser, max_grad_norm: float | None) -> None:
    """Refuse a kinked loss or regulariser, and clipped gradients: Newton needs second derivatives."""
    missing = []
    if loss.smoothness_bound is None:
        missing.append(f"a smooth loss, which {loss.name} is not")
    if regulariser.curvature is None:
        missing.append(f"a smooth regulariser, which {regulariser.name} is not")
    if max_grad_norm is not None:
        missing.append("no max_grad_norm, since a clipped gradient is the gradient of no known function")
    if missing:
        raise UnsupportedError(f"The exact argmin needs {'; and '.join(missing)}. IPADMM needs none of these.")


@dataclass(frozen=True)
class Objective(ABC):
    """The part of F that does not change from solve to solve.

    Args:
        loss: a smooth one.
        rows: (m, d), dense or sparse.
        labels: (m,).
        share: (m,) the weight of every row in the sum.
        shifts: (m,) added to scalar predictions; None for none.
        patience: called before every pass over the rows; raises to end the search.
    """

    loss: Loss
    rows: Matrix
    labels: Floats
    share: Floats
    shifts: Floats | None = None
    patience: Callable[[], None] = lambda: None

    @abstractmethod
    def predictions(self, w: Array) -> Array:
        """<w, a_j> + shift_j for every row; for softmax a vector, on a last axis."""

    @abstractmethod
    def loss_gradient(self, w: Array) -> Array:
        """The gradient of the sum of losses at w, flat as w."""

    @abstractmethod
    def newton_step(self, w: Array, gradient: Array, mu: float) -> Array:
        """-H^-1 gradient, exactly or by conjugate gradients."""

    def argmin(self, pull: Array, mu: float, start: Array, tolerance: float) -> Array:
        """The minimiser of F, to a gradient of norm `tolerance`; raises if Newton's method does not get there."""
        w = start
        for _ in range(_MOST_STEPS):
            gradient = self.loss_gradient(w) - pull + mu * w
            if np.linalg.norm(gradient) <= tolerance:
                return w
            w = self._line_search(w, self.newton_step(w, gradient, mu), gradient, pull, mu)
        raise SottovoceError(
            f"Expected Newton's method to reach a gradient of norm {tolerance:g} in {_MOST_STEPS} steps, "
            f"got {np.linalg.norm(gradient):.3g}. Ask for a larger tolerance."
        )

    def _value(self, w: Array, pull: Array, mu: float) -> float:
        """F at the model w."""
        losses = self.loss.value(self.predictions(w), self.labels, self.loss.theta)
        return float(self.share @ losses - pull @ w + 0.5 * mu * (w @ w))

    def _line_search(self, w: Array, step: Array, gradient: Array, pull: Array, mu: float) -> Array:
        """The model after the step, halved until F falls enough. Near the minimum, where F is flat to rounding, it is
        the full step.
        """
        value, descent, size = self._value(w, pull, mu), float(gradient @ step), 1.0
        # A smaller fall of F is lost in its rounding.
        while -descent > 1e-14 * (1 + abs(value)) and size > 1e-8:
            # Armijo's rule, with the usual constant.
            if self._value(w + size * step, pull, mu) <= value + 1e-4 * size * descent:
                break
            size /= 2
        return w + size * step


@final
class SmoothObjective(Objective):
    """F for a loss of one prediction per row."""

    def predictions(self, w: Array) -> Array:
        z = self._products(w)
        return z if self.shifts is None else z + self.shifts

    def _products(self, w: Array) -> Array:
        self.patience()
        z: Array = self.rows @ w
        return z

    def loss_gradient(self, w: Array) -> Array:
        slopes = self.loss.slope(self.predictions(w), self.labels, self.loss.theta)
        gradient: Array = self.rows.T @ (self.share * slopes)
        return gradient

    def newton_step(self, w: Array, gradient: Array, mu: float) -> Array:
        """The step by a factor of the Hessian or, with many features, by products with it."""
        rows = self.rows
        curvatures = self.share * self.loss.curvature(self.predictions(w), self.labels, self.loss.theta)
        if len(w) > _MOST_FACTORISED:
            return _by_products(lambda v: rows.T @ (curvatures * self._products(v)) + mu * v, gradient)
        if isinstance(rows, np.ndarray):
            dense: Array = rows.T @ (rows * curvatures[:, None])
        else:
            # Weighted by hand: SciPy's product with a column takes as long as the product of the two matrices.
            data = rows.data * np.repeat(curvatures, np.diff(rows.indptr))
            dense = (rows.T @ scipy.sparse.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)).toarray()
        step: Array = scipy.linalg.solve(dense + mu * np.eye(len(w)), -gradient, assume_a="pos")
        return step


@final
class SoftmaxObjective(Objective):
    """F for softmax: w is a flat (d, K) matrix."""

    def predictions(self, w: Array) -> Array:
        self.patience()
        z: Array = self.rows @ w.reshape(self.rows.shape[1], self.loss.outputs)
        return z

    def loss_gradient(self, w: Array) -> Array:
        return self._sum(self.loss.slope(self.predictions(w), self.labels, self.loss.theta))

    def newton_step(self, w: Array, gradient: Array, mu: float) -> Array:
        p = probabilities(self.predictions(w))

        def product(v: Array) -> Array:
            u = p * self.predictions(v)
            return self._sum(u - p * u.sum(axis=1, keepdims=True)) + mu * v

        return _by_products(product, gradient)

    def _sum(self, slopes: Array) -> Array:
        """sum_j share_j a_j slopes_j^T, a flat (d, K) matrix."""
        gradient: Array = self.rows.T @ (self.share[:, None] * slopes)
        return gradient.reshape(-1)


def _by_products(product: Callable[[Array], Array], gradient: Array) -> Array:
    """-H^-1 gradient by conjugate gradients. The relative tolerance is at most the root of the gradient's norm, which
    keeps Newton's speed near the minimum.
    """
    hessian = scipy.sparse.linalg.LinearOperator((len(gradient), len(gradient)), matvec=product, dtype=gradient.dtype)
    step: Array = scipy.sparse.linalg.cg(hessian, -gradient, rtol=min(0.1, float(np.sqrt(np.linalg.norm(gradient)))))[0]
    return step.astype(gradient.dtype)


def objective_of(
    loss: Loss, rows: Matrix, labels: Floats, share: Floats, shifts: Floats | None = None,
    patience: Callable[[], None] = lambda: None,
) -> Objective:  # fmt: skip
    """The objective F of that loss; a loss of several outputs other than softmax is refused."""
    if isinstance(loss, Softmax):
        return SoftmaxObjective(loss, rows, labels, share, None, patience)
    expect_one_output(loss, "Newton's method")
    return SmoothObjective(loss, rows, labels, share, shifts, patience)
