"""Labels that a loss accepts, and what predictions mean among them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from sottovoce.arrays import Array, Floats, Ints
from sottovoce.errors import InputError, UnsupportedError, expect


class LabelSet(ABC):
    """The labels that a loss accepts, and what a prediction means among them."""

    @abstractmethod
    def check(self, labels: Array, before: int = 0) -> None:
        """Raise `InputError`, naming the first bad row, unless every label belongs. Its label is not quoted: it may be
        private, and errors end up in logs. Rows are counted from `before` on: so many are held elsewhere.
        """

    @abstractmethod
    def predict(self, z: Array) -> Array:
        """The label that the prediction z stands for; of vectors (last axis), one label each."""

    @abstractmethod
    def numbers(self, labels: Array) -> Ints:
        """The number of each label's class, from 0 on; 0 where a label is missing (NaN)."""

    @abstractmethod
    def hits(self, z: Array, b: Array) -> Array:
        """1 where the predicted label is b, else 0; nan in regression. The mean is the accuracy."""


def sign(z: Array) -> Array:
    """The sign of z, where a tie (z = 0) goes to +1. Kernels compile these lines too: there is no other rule."""
    signs: Array = np.sign(z) + (z == 0)
    return signs


def _check_rows(labels: Array, good: Array, expected: str, before: int) -> None:
    """Raise `InputError` at the first row whose label is not good."""
    expect(labels.ndim == 1, "labels as a one-dimensional array", shape=labels.shape)
    bad = np.flatnonzero(~np.asarray(good, dtype=bool))
    if bad.size:
        raise InputError(f"Expected {expected}, got another in row={before + int(bad[0])}.")


@final
@dataclass(frozen=True)
class Signs(LabelSet):
    """Two classes, -1 and +1."""

    def check(self, labels: Array, before: int = 0) -> None:
        """Every label is -1 or +1."""
        _check_rows(labels, np.abs(labels) == 1, "labels -1 or +1 (for labels 0 and 1 pass 2 * labels - 1)", before)

    def predict(self, z: Array) -> Array:
        """The sign of z; a tie (z = 0) goes to +1."""
        return sign(z)

    def numbers(self, labels: Array) -> Ints:
        """-1 is the first class, +1 the second."""
        return (labels > 0).astype(np.int64)

    def hits(self, z: Array, b: Array) -> Array:
        """1 where the sign is right, 0 where it is wrong."""
        hits: Array = 1.0 * (self.predict(z) == b)
        return hits


@dataclass(frozen=True)
class Reals(LabelSet):
    """Finite numbers: regression."""

    def check(self, labels: Array, before: int = 0) -> None:
        """Every label is finite."""
        _check_rows(labels, np.isfinite(labels), "finite labels (drop or fill the rows whose label is missing)", before)

    def predict(self, z: Array) -> Array:
        """The prediction itself."""
        return z

    def numbers(self, labels: Array) -> Ints:  # noqa: ARG002
        """Refused."""
        raise UnsupportedError("Numbers of classes need a loss of classes, got one of regression. Use the prediction.")

    def hits(self, z: Array, b: Array) -> Array:
        """Accuracy has no meaning in regression: nan."""
        return np.full(np.broadcast_shapes(np.shape(z), np.shape(b)), np.nan)


@final
@dataclass(frozen=True)
class Counts(Reals):
    """Numbers from 0 to `most`, whose mean is predicted by its logarithm. A loss of them clips what lies beyond."""

    most: float

    def check(self, labels: Array, before: int = 0) -> None:
        """Every label is finite and not negative."""
        good: Array = 1.0 * (np.isfinite(labels) & (labels >= 0))
        _check_rows(labels, good, "counts, finite numbers >= 0", before)

    def predict(self, z: Array) -> Array:
        """The mean: exp(z), and no more than the largest count."""
        mean: Array = np.minimum(np.exp(np.minimum(z, 30.0)), self.most)
        return mean


@final
@dataclass(frozen=True)
class Classes(LabelSet):
    """The classes 0 .. count - 1. A prediction has one number for each, on its last axis."""

    count: int

    def check(self, labels: Array, before: int = 0) -> None:
        """Every label is one of 0 .. count - 1."""
        good = (labels == np.floor(labels)) & (labels >= 0) & (labels < self.count)
        _check_rows(
            labels, good, f"labels among 0 .. {self.count - 1} (number the {self.count} classes from 0 on)", before
        )

    def predict(self, z: Array) -> Array:
        """The class with the largest number; of several, the first. NaN where a number is missing."""
        largest: Array = np.where(np.isnan(z).any(axis=-1), np.nan, np.argmax(z, axis=-1))
        return largest

    def numbers(self, labels: Array) -> Ints:
        """They are numbers already."""
        return np.nan_to_num(labels).astype(np.int64)

    def hits(self, z: Array, b: Array) -> Array:
        """1 where the class is right, 0 where it is wrong."""
        hits: Array = 1.0 * (self.predict(z) == b)
        return hits


# -- base -------------------------------------------------------------------------------------------------------------
# What a loss is: a function of the prediction z = <w, a> and the label b.
#
# Formulas are static, of plain arrays, so that kernels compile them as they are. Nothing here reads rows.


@dataclass(frozen=True)
class Loss(ABC):
    """A convex, Lipschitz loss.

    Most losses predict one number for a row. One with more `outputs`, such as softmax over classes, takes a model
    that is a (d, outputs) matrix flattened row by row. Its `z` and its slope have a last axis of that length, its
    curvature has two, and `slope_bound` and `smoothness_bound` are in the l2 norm of that axis. Code that handles
    scalar predictions alone refuses the others with `expect_one_output`.
    """

    name: ClassVar[str]
    # Whether the curvature is all of `smoothness_bound` wherever a fitting prediction lies, as that of a parabola is.
    # Only the length of steps depends on it.
    fully_curved: ClassVar[bool] = False

    @property
    def outputs(self) -> int:
        """The length of the prediction of one row."""
        return 1

    @property
    @abstractmethod
    def labels(self) -> LabelSet:
        """The labels that it accepts."""

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
        """(x, y) with loss = x + ln(y) and 1 <= y <= 2, for losses that are made so: a sum over many rows then takes
        one logarithm, of the product of the y. Kernels ask for it only where it is overridden.
        """
        raise NotImplementedError

    @staticmethod
    @abstractmethod
    def slope(z: Array, b: Array, theta: float) -> Array:
        """Its derivative in z; one fixed subgradient at a kink."""

    @staticmethod
    @abstractmethod
    def curvature(z: Array, b: Array, theta: float) -> Array:
        """Its second derivative in z, almost everywhere. Means nothing where `smoothness_bound` is None."""

    @property
    @abstractmethod
    def theta(self) -> float:
        """The shape parameter that the formulas take; 0 where there is none. A number, so that kernels can hand it
        over.
        """

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

        Formal guarantees: never below the true value. Twice the slope's bound, unless the loss knows better.
        """
        return np.full_like(np.asarray(reach, dtype=np.float64), 2 * self.slope_bound)

    def predict(self, z: Array) -> Array:
        """The label that the prediction z stands for: a sign or a class, and z itself in regression."""
        return self.labels.predict(z)

    def decide(self, z: Array) -> Ints:
        """The number of the class that each row of z (rows, outputs) stands for, from 0 on."""
        return self.labels.numbers(self.predict(z if self.outputs > 1 else z[:, 0]))


def _norm(data_norm: float) -> float:
    """The bound on the norm of rows, refused if it is negative."""
    expect(data_norm >= 0, "data_norm >= 0", data_norm=data_norm)
    return data_norm


def expect_one_output(loss: Loss, what: str) -> None:
    """Raise `UnsupportedError` unless predictions are scalars; `what` begins the message."""
    if loss.outputs != 1:
        raise UnsupportedError(
            f"{what} needs a loss of one prediction per row, and {loss.name} has {loss.outputs}. "
            "IPADMM, DP-ADMM, Ryu-Kim, DP-DSGD and the averaged bounds take it, on device='cpu' or 'plain'."
        )
