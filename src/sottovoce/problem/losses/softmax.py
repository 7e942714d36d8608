"""Softmax, the joint loss of several classes: one model, one budget.

The model is a (d, K) matrix, one column for each class, and z = a W has one number for each:

    loss = ln sum_k exp(z_k) - z_b         slope = p - e_b         curvature = diag(p) - p p^T,      p = softmax(z)

A record's gradient is the outer product of a and p - e_b. Its norm is ||a|| ||p - e_b|| < sqrt(2) ||a||, and the
curvature's largest eigenvalue is at most 1/2; both are proved in docs/proofs/softmax.md. None of the formulas
overflows. z has its classes on the last axis; b has the shape of the other axes, or broadcasts to it.
"""

# ruff: noqa: ARG004 (every formula has the same three arguments)

from dataclasses import dataclass
from math import sqrt
from numbers import Integral
from typing import final

import numpy as np
from numpy.typing import NDArray

from sottovoce.arrays import Array, Floats
from sottovoce.errors import expect
from sottovoce.problem.losses.base import Loss
from sottovoce.problem.losses.labels import Classes


@final
@dataclass(frozen=True)
class Softmax(Loss):
    """ln sum_k exp(z_k) - z_b, over `classes` classes that are numbered from 0 on."""

    name = "softmax"
    slope_bound = sqrt(2.0)
    smoothness_bound = 0.5
    classes: int

    def __post_init__(self) -> None:
        whole = isinstance(self.classes, Integral)
        expect(whole and self.classes >= 2, "classes as a whole number of at least 2", classes=self.classes)
        object.__setattr__(self, "classes", int(self.classes))  # JSON cannot write NumPy's integers

    @property
    def outputs(self) -> int:
        """The number of classes."""
        return self.classes

    @property
    def labels(self) -> Classes:
        """The classes 0 .. classes - 1."""
        return Classes(self.classes)

    @property
    def theta(self) -> float:
        return float(self.classes)

    def spread(self, reach: Floats) -> Floats:
        """2 sqrt(2) (1 - p), p the least probability that a record of norm 1 can have for its own class.

        ||p - e_b|| <= sqrt(2) (1 - p_b), and no z_k - z_b exceeds sqrt(2) reach: docs/proofs/masked.md, Lemma 3.
        """
        others = self.classes - 1
        least = np.exp(-np.minimum(sqrt(2.0) * np.asarray(reach, dtype=np.float64), 700.0)) * (1 - 1e-12)
        spread: Floats = 2 * sqrt(2.0) * others / (others + least) * (1 + 1e-12)
        return spread

    @staticmethod
    def value(z: Array, b: Array, theta: float) -> Array:
        """With u = z - z_b and M = max u, which is 0 or more: M + ln(e^-M + sum over the others of exp(u_k - M)).

        With log1p, the small loss of a row that is clearly right keeps all its digits.
        """
        own = _one_hot(z, b)
        u = z - np.sum(z * own, axis=-1, keepdims=True)
        most = np.max(u, axis=-1)
        others = np.sum(np.exp(u - most[..., None]) * ~own, axis=-1)
        loss: Array = most + np.log1p(others + np.expm1(-most))
        return loss

    @staticmethod
    def slope(z: Array, b: Array, theta: float) -> Array:
        """p - e_b. Its entry at b, p_b - 1, is computed as minus the sum of the others, without cancellation."""
        own = _one_hot(z, b)
        others = probabilities(z) * ~own
        slope: Array = others - own * np.sum(others, axis=-1, keepdims=True)
        return slope

    @staticmethod
    def curvature(z: Array, b: Array, theta: float) -> Array:
        """diag(p) - p p^T, on the last two axes."""
        p = probabilities(z)
        curvature: Array = p[..., None] * (np.eye(p.shape[-1], dtype=p.dtype) - p[..., None, :])
        return curvature


def probabilities(z: Array) -> Array:
    """p_k = exp(z_k) / sum exp(z), along the last axis."""
    e = np.exp(z - np.max(z, axis=-1, keepdims=True))
    p: Array = e / np.sum(e, axis=-1, keepdims=True)
    return p


def _one_hot(z: Array, b: Array) -> NDArray[np.bool_]:
    """True at each prediction's own class, along a new last axis."""
    # `like` keeps the arrays on the device of z.
    own: NDArray[np.bool_] = np.arange(z.shape[-1], like=z) == np.asarray(b, like=z)[..., None]
    return own
