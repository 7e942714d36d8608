"""The interface of a loss: a function of the prediction z = <w, a> and the label b.

Formulas are static, of plain arrays, so that kernels compile them as they are. Nothing here reads rows.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import UnsupportedError, expect
from sottovoce.problem.losses.labels import LabelSet

BESIDE = math.sqrt(0.5)  # of a curvature over its bound, where it is told together with a slope


@dataclass(frozen=True)
class Loss(ABC):
    """A convex, Lipschitz loss.

    Most losses predict one number for a row. One with more `outputs`, such as softmax over classes, takes a model
    that is a (d, outputs) matrix flattened row by row. Its `z` and its slope have a last axis of that length, its
    curvature has two, and `slope_bound` and `smoothness_bound` are in the l2 norm of that axis. Code that handles
    scalar predictions alone refuses the others with `expect_one_output`.
    """

    name: ClassVar[str]
    # True if the curvature equals `smoothness_bound` wherever a fitting prediction lies, as that of a parabola does.
    # Only the length of steps depends on it.
    fully_curved: ClassVar[bool] = False

    @property
    def outputs(self) -> int:
        """The length of the prediction of one row."""
        return 1

    @property
    @abstractmethod
    def labels(self) -> LabelSet:
        """The set of labels that the loss accepts."""

    @staticmethod
    @abstractmethod
    def value(z: Array, b: Array, theta: float) -> Array:
        """The loss of each prediction.

        Args:
            z: predictions, with a last axis where `outputs` > 1.
            b: labels.
            theta: the loss's shape parameter.
        """

    @staticmethod
    def parts(z: Array, b: Array, theta: float) -> tuple[Array, Array]:
        """(x, y) with loss = x + ln(y) and 1 <= y <= 2, for losses that have such a form. A sum over many rows then
        takes one logarithm, of the product of the y. Kernels use it only where it is overridden.
        """
        raise NotImplementedError

    @staticmethod
    @abstractmethod
    def slope(z: Array, b: Array, theta: float) -> Array:
        """Derivative in z; one fixed subgradient at a kink."""

    @staticmethod
    @abstractmethod
    def curvature(z: Array, b: Array, theta: float) -> Array:
        """Second derivative in z, almost everywhere. Without meaning if `smoothness_bound` is None."""

    @property
    @abstractmethod
    def theta(self) -> float:
        """The shape parameter that the formulas take; 0 if there is none. A number, which kernels can pass on."""

    @property
    @abstractmethod
    def slope_bound(self) -> float:
        """The largest |slope|, or norm of the slope, over all z and labels.

        Formal guarantees:
            No record's gradient is longer than slope_bound ||a||. The replace-one sensitivity of a mean over m rows is
            2 slope_bound data_norm / m.
        """

    @property
    @abstractmethod
    def smoothness_bound(self) -> float | None:
        """The Lipschitz constant of the slope; None where the slope jumps."""

    def lipschitz(self, data_norm: float) -> float:
        """Lipschitz constant in w (the paper's c1) over rows with ||a|| <= data_norm."""
        return self.slope_bound * _norm(data_norm)

    def smoothness(self, data_norm: float) -> float | None:
        """Lipschitz constant of the gradient in w over rows with ||a|| <= data_norm, or None."""
        bound = self.smoothness_bound
        return None if bound is None else bound * _norm(data_norm) ** 2

    def spread(self, reach: Floats) -> Floats:
        """The largest distance between the gradients of two records at one model, over all rows of norm at most 1.

        Args:
            reach: the norm of the model, times the bound on rows where that is not 1; any shape.

        Formal guarantees: never below the true value. Twice the slope's bound, unless the loss overrides this.
        """
        return np.full_like(np.asarray(reach, dtype=np.float64), 2 * self.slope_bound)

    def steepness(self, reach: Floats) -> Floats:
        """The largest length of (slope, BESIDE curvature / smoothness_bound) over all labels and all predictions within
        +-reach.

        Formal guarantees: never below the true value. That of both bounds, unless the loss overrides this.
        """
        return np.full_like(np.asarray(reach, dtype=np.float64), math.hypot(self.slope_bound, BESIDE))

    def predict(self, z: Array) -> Array:
        """The predicted label for z: a sign or a class, in regression z itself, for counts the mean."""
        return self.labels.predict(z)

    def decide(self, z: Array) -> Ints:
        """The number of the predicted class for each row of z (rows, outputs), from 0 on."""
        return self.labels.numbers(self.predict(z if self.outputs > 1 else z[:, 0]))


def _norm(data_norm: float) -> float:
    """The bound on the norm of rows; a negative one is refused."""
    expect(data_norm >= 0, "data_norm >= 0", data_norm=data_norm)
    return data_norm


def expect_one_output(loss: Loss, what: str) -> None:
    """Raise `UnsupportedError` unless predictions are scalars; `what` begins the message."""
    if loss.outputs != 1:
        raise UnsupportedError(
            f"{what} needs a loss of one prediction per row, and {loss.name} has {loss.outputs}. "
            "IPADMM, DP-ADMM, Ryu-Kim, DP-DSGD and the averaged bounds take it, on device='cpu' or 'plain'."
        )
