"""The exact argmin of a smooth objective on rows, by damped Newton steps.

    F(w) = sum_j share_j loss(<w, a_j>, b_j) - <pull, w> + (mu / 2) ||w||^2

F is mu-strongly convex, so a gradient of norm tau puts w within tau / mu of the minimiser: the tolerance is certified,
not guessed.
"""

from dataclasses import dataclass

import numpy as np
import scipy.linalg as la

from sottovoce.arrays import Array, Floats
from sottovoce.errors import SottovoceError, UnsupportedError
from sottovoce.losses import Loss
from sottovoce.regularisers import Regulariser
from sottovoce.rows import Matrix

_MOST_STEPS = 100


def refuse_unsupported(loss: Loss, regulariser: Regulariser, max_grad_norm: float | None) -> None:
    """Newton needs second derivatives of the loss and of the regulariser, and gradients that are really gradients."""
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
class SmoothObjective:
    """The part of F that does not change from solve to solve."""

    loss: Loss
    rows: Matrix
    labels: Floats
    share: Floats  # weight of every row

    def argmin(self, pull: Array, mu: float, start: Array, tolerance: float) -> Array:
        """The minimiser of F, to a gradient of norm `tolerance`."""
        w = start
        for _ in range(_MOST_STEPS):
            gradient = self._gradient(w, pull, mu)
            if np.linalg.norm(gradient) <= tolerance:
                return w
            step = la.solve(self._hessian(w, mu), -gradient, assume_a="pos")
            w = self._line_search(w, step, gradient, pull, mu)
        raise SottovoceError(
            f"Expected Newton's method to reach a gradient of norm {tolerance:g} in {_MOST_STEPS} steps, "
            f"got {np.linalg.norm(gradient):.3g}. Ask for a larger tolerance."
        )

    def _value(self, w: Array, pull: Array, mu: float) -> float:
        losses = self.loss.value(self.rows @ w, self.labels, self.loss.theta)
        return float(self.share @ losses - pull @ w + 0.5 * mu * (w @ w))

    def _gradient(self, w: Array, pull: Array, mu: float) -> Array:
        slopes = self.loss.slope(self.rows @ w, self.labels, self.loss.theta)
        gradient: Array = self.rows.T @ (self.share * slopes) - pull + mu * w
        return gradient

    def _hessian(self, w: Array, mu: float) -> Array:
        curvatures = self.share * self.loss.curvature(self.rows @ w, self.labels, self.loss.theta)
        weighted = self.rows * curvatures[:, None]
        hessian = self.rows.T @ weighted
        dense: Array = hessian if isinstance(hessian, np.ndarray) else hessian.toarray()
        return dense + mu * np.eye(len(w))

    def _line_search(self, w: Array, step: Array, gradient: Array, pull: Array, mu: float) -> Array:
        """Halve the step until F falls enough; near the minimum F is flat to rounding, and the full step is right."""
        value, descent, size = self._value(w, pull, mu), float(gradient @ step), 1.0
        while -descent > 1e-14 * (1 + abs(value)) and size > 1e-8:
            if self._value(w + size * step, pull, mu) <= value + 1e-4 * size * descent:
                break
            size /= 2
        return w + size * step
